"""Joint Newton steps as in the authors' published code, which figure 2(b) of the paper was drawn with.

Not a method that a job may ask for: the matrix's block of coefficients gets noise for an added record only, less than
replacing one needs, and nothing has a floor. On synthetic records, to compare with that figure. Its sums are made here,
for runs go on after their scale has passed zero, where the problem that jobs are about has no residuals any more.
"""

from math import sqrt

import torch
from torch import Tensor

from core.losses.records import record_weights
from core.losses.robust import Huber
from core.mechanisms.generator import SimulationGenerator
from studies.inference.designs import D1
from studies.inference.studies import MALLOWS

LOSS = Huber(scale=1.0, joint=True)
CORNER = LOSS.c
UNITS, STEPS, MU = 1000, 20, 2.0
VANISHED = 1e-14
"""An eigenvalue of an exact Hessian below it: no record's residual is within c any more."""


def diverged_as_published(damping: float, repetitions: int, seed: int = 5) -> float:
    """Return the share of runs whose exact Hessian has vanished after the last step.

    Each step asks three answers of mu/sqrt(3 K + 2) each: the gradient, the Hessian's block of the coefficients (times
    the scale; norm at most 2) and its last row.

    Args:
        damping: of the steps.
        repetitions: data sets of D1, n = 1000, each with noise of its own.
        seed: of records and noise.
    """
    generator = SimulationGenerator(seed)
    x, y = D1.linear(generator, repetitions, UNITS)
    weights = record_weights(torch.linalg.vector_norm(x, dim=-1), MALLOWS)
    share = UNITS * MU / sqrt(3 * STEPS + 2)
    theta = torch.cat([x.new_zeros(repetitions, 4), x.new_ones(repetitions, 1)], dim=-1)
    for _ in range(STEPS):
        gradient, hessian = _answers(x, y, weights, theta)
        gradient += sqrt(8 * CORNER**2 + CORNER**4 / 4) / share * generator.normal(repetitions, 5)
        block = 2 / share * generator.normal(repetitions, 4, 4).triu()
        row = sqrt(8 * CORNER**2 + CORNER**4) / share * generator.normal(repetitions, 5)
        hessian[:, :4, :4] += block + block.triu(1).mT
        hessian[:, 4, :] += row
        hessian[:, :4, 4] += row[:, :4]
        theta = theta - damping * theta[:, 4:] * torch.linalg.solve(hessian, gradient)
    _, exact = _answers(x, y, weights, theta)
    return float((torch.linalg.eigvalsh(exact)[:, 0] < VANISHED).double().mean())


def _answers(x: Tensor, y: Tensor, weights: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return the exact mean gradient and scale times the mean Hessian of Huber's loss with an unknown scale."""
    residual = (y - (x @ theta[:, :4, None]).squeeze(-1)) / theta[:, 4:]
    inner = residual.abs() < CORNER
    score = residual.clamp(-CORNER, CORNER)
    terms = torch.cat([-score.unsqueeze(-1) * x, (LOSS.kappa - score**2).unsqueeze(-1) / 2], dim=-1)
    wide = torch.cat([x, residual.unsqueeze(-1)], dim=-1)
    return (weights.unsqueeze(-1) * terms).mean(1), ((weights * inner).unsqueeze(-1) * wide).mT @ wide / UNITS
