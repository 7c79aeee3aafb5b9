"""Least squares from a noised X'X and a noised X'y.

Source: Avella-Medina, Bradshaw and Loh (2023), appendix H.2.
Sensitivity: those of `Curvature` and of `Gradient` with its clip, one Gaussian answer each; the rest is
post-processing.
Failure: depends on noised values only, so it tells no more than the release.
"""

import torch

from core.inference.eigen import floor_eigenvalues, inside, solve
from core.inference.estimate import Estimate
from core.inference.parameters import penalised_hessian, scale_of
from core.methods.lifecycle import ended, starting_point
from core.methods.m_estimation.sufficient_statistics.spec import SufficientStatisticsPlan
from core.oracle import Oracle, Status


def iterate(plan: SufficientStatisticsPlan, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the coefficients of a linear model.

    Args:
        plan: public, nothing open.
        oracle: the only way to the records, with the squared loss.

    Returns:
        The estimate, shape (features,), and that it finished.

    Raises:
        Diverged: the estimate left the public radius.
    """
    zero = starting_point(plan.start, oracle)
    vector, matrix = plan.questions()
    slope = oracle.ask(vector, zero)
    bend = oracle.ask(matrix, zero)
    hessian, floored = floor_eigenvalues(
        penalised_hessian(oracle.facts, bend.value, scale_of(oracle.facts, zero)), plan.eigenvalue_floor
    )
    # At zero the gradient is -X'y/n, and a ridge adds nothing to it.
    theta, left = inside(-solve(hessian, slope.value), plan.radius)
    estimate = Estimate(
        theta=theta,
        start=zero,
        family="statistics",
        left=left,
        scale=slope.scale,
        step=1.0,
        steps=torch.ones(left.shape, dtype=torch.int64),
        floored=floored,
    )
    return ended(estimate, Status.FINISHED)
