"""Noisy gradient descent: steps of fixed size on noised mean gradients.

Source: Avella-Medina, Bradshaw and Loh (2023), equation (4), Theorem 2; with an unknown residual scale, steps on
coefficients and scale together, multiplied by the current scale as in the authors' own experiments.
Sensitivity: that of `Gradient` (B/n, or its diameter over n under replace_one); `steps` Gaussian answers, everything
after an answer is post-processing.
Failure: depends on noised values only, so it tells no more than the release.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from core.inference.estimate import Estimate, by_replicate
from core.inference.parameters import penalised_gradient, scale_of
from core.methods.lifecycle import arrived, ended, resumed, settled, starting_point, tensors_of
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.oracle import Oracle, Status


class _State(NamedTuple):
    """Where a run stands after a step; in a simulation replicates come first."""

    start: Tensor
    theta: Tensor
    """Shape (..., p)."""
    left: Tensor
    """True where the last step left the radius, shape (...)."""
    step: Tensor
    going: Tensor
    """True where no step has stopped the run, shape (...)."""
    taken: Tensor
    """Number of steps taken, shape (...)."""
    raised: Tensor
    """Number of steps whose scale was raised to its floor, shape (...)."""
    scale: Tensor
    """Deviation of the last answer's noise on a coordinate."""


def iterate(plan: NoisyGradientDescentPlan, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of an M-estimator.

    Args:
        plan: public, nothing open.
        oracle: the only way to the records.

    Returns:
        The last iterate, shape (features,), with the size of its noise, and how the method ended. In a simulation
        replicates come first, and a replicate that has stopped stays where it is while others go on.

    Raises:
        Diverged: the last step left the public radius.
    """
    (gradient,) = plan.questions()
    start = starting_point(plan.start, oracle)
    none, zero = torch.tensor(data=False), torch.tensor(0)
    noiseless = torch.tensor(0.0, dtype=torch.float64)
    state = resumed(plan.start, oracle, _State(start, start, none, zero, ~none, zero, zero, noiseless))
    status = Status.FINISHED
    for step in range(int(state.step) + 1, plan.steps + 1):
        slope = oracle.ask(gradient, state.theta)
        going = state.going
        if plan.stop == "private":
            going = going & ~settled(slope, 1.0 if oracle.facts.scale is None else 0.5)
            if not bool(going.any()):
                status = Status.STOPPED
                break
        along = penalised_gradient(oracle.facts, slope.value, state.theta)
        moved = state.theta - by_replicate(_step_size(plan, oracle, state.theta), 1) * along
        moved, left, raised = arrived(oracle.facts, moved, plan.radius)
        state = _State(
            start=state.start,
            theta=torch.where(going.unsqueeze(-1), moved, state.theta),
            left=torch.where(going, left, state.left),
            step=torch.tensor(step),
            going=going,
            taken=state.taken + going.long(),
            raised=state.raised + (raised & going).long(),
            scale=torch.tensor(slope.scale, dtype=torch.float64),
        )
        oracle.keep(tensors_of(state), step)
    estimate = Estimate(
        theta=state.theta,
        start=state.start,
        family="gradient",
        left=state.left,
        scale=float(state.scale),
        step=_step_size(plan, oracle, state.theta),
        steps=state.taken,
        scale_floored=state.raised,
    )
    return ended(estimate, status)


def _step_size(plan: NoisyGradientDescentPlan, oracle: Oracle, theta: Tensor) -> Tensor | float:
    """Return what a gradient at theta is multiplied by, in all, shape (...)."""
    if plan.scaling == "plain" or oracle.facts.scale is None:
        return plan.step_size
    return plan.step_size * scale_of(oracle.facts, theta)
