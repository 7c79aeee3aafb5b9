"""The proximal-point method: rounds of projected noisy gradient steps on the loss plus a quadratic about a centre.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithm 2, with algorithm 4 for a round. Corrected: a round
starts at its centre, has its share of budget and failure probability, and may have a weight of its own. A ridge is a
part of the quadratic: with q = 2 w + ridge the public terms are (q/2) |theta - (2 w/q) centre|^2, whose ball of radius
L0/q holds the exact minimiser.
Sensitivity: that of `Gradient` (C/n, or its diameter over n under replace_one); `steps` Gaussian answers, everything
after an answer is post-processing. The gradient of the public terms is added behind the oracle and never clipped.
Failure: none. Projections keep all iterates in public balls, whatever the noise; where the theory promises nothing,
which is known before a record is read, the start is returned and nothing is asked.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.methods.kl.proximal_point.spec import ProximalPointPlan
from core.methods.lifecycle import resumed, starting_point, tensors_of
from core.oracle import Oracle, Status


class _State(NamedTuple):
    """Where a run stands after a step; in a simulation replicates come first."""

    start: Tensor
    theta: Tensor
    centre: Tensor
    total: Tensor
    """Sum of a round's points so far, the t-th of them t times."""
    step: Tensor
    scale: Tensor
    """Deviation of a gradient's noise on a coordinate."""


def iterate(plan: ProximalPointPlan, oracle: Oracle) -> tuple[Estimate, Status]:
    """Minimise a loss that need be neither convex nor smooth, under the KL condition.

    Args:
        plan: public, nothing open.
        oracle: the only way to the records.

    Returns:
        The mean of the last round's iterates, shape (features,), replicates first in a simulation, with a certificate;
        the start, with nothing asked, where the schedule has no rounds.
    """
    course = plan.arithmetic(oracle.facts)
    start = starting_point(plan.start, oracle)
    # The start is the first centre.
    first = _State(start, start, start, start, torch.tensor(0), torch.tensor(0.0, dtype=torch.float64))
    if course.regime is not None:
        return _estimate(plan, oracle, first, 0, 0.0), Status.FINISHED
    (gradient,) = plan.questions()
    points = plan.solver_steps
    state = resumed(plan.start, oracle, first)
    for done in range(int(state.step), plan.steps):
        # A round's centre is the first of its points, hence one step fewer than points.
        index, taken = divmod(done, points - 1)
        now, theta, centre = course.rounds[index], state.theta, state.centre
        middle, total = now.shrinkage * centre, state.total
        if taken == 0:
            theta = total = middle + _within(now.radius, centre - middle)
        answer = oracle.ask(gradient, theta)
        away = theta - middle
        slope = torch.add(answer.value, away, alpha=now.pull)
        moved = torch.sub(away, slope, alpha=plan.rate(now.weight, taken + 1))
        theta = middle + _within(now.radius, moved)
        total = torch.add(total, theta, alpha=taken + 2)
        if taken + 2 == points:
            # The weights 1 to points sum to points (points + 1)/2.
            centre = total * (2 / (points * (points + 1)))
        state = _State(
            start=state.start,
            theta=theta,
            centre=centre,
            total=total,
            step=torch.tensor(done + 1),
            scale=torch.tensor(answer.scale, dtype=torch.float64) if taken == 0 else state.scale,
        )
        oracle.keep(tensors_of(state), done + 1)
    last = plan.rate(course.rounds[-1].weight, points - 1)
    return _estimate(plan, oracle, state, plan.steps, last), Status.FINISHED


def _within(radius: float, away: Tensor) -> Tensor:
    """Return a distance from the middle of a ball, shape (..., p), as it is or cut to the ball's radius."""
    length = torch.linalg.vector_norm(away, dim=-1, keepdim=True)
    # Dividing by at least 1 leaves inner points exact and never divides by a zero length.
    cut: Tensor = away / (length / radius).clamp(min=1)
    return cut


def _estimate(plan: ProximalPointPlan, oracle: Oracle, state: _State, steps: int, rate: float) -> Estimate:
    """Return the last centre with what is known of it."""
    theta = state.centre
    return Estimate(
        theta=theta,
        start=state.start,
        family="gradient",
        left=torch.zeros(theta.shape[:-1], dtype=torch.bool),
        scale=float(state.scale),
        step=rate,
        steps=steps,
        error_bound=plan.error_bound(oracle.facts) if theta.ndim == 1 else None,
    )
