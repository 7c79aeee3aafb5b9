"""KL-Spider: rounds of steps of one length, along a gradient estimate that noised differences keep up to date.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithm 1. Corrected: a round that ends because its estimate
is short keeps the point where it was short (printed: the one before). A round that ends at its cap has made exactly T_k
steps (printed: one more) and asks no difference after the last. The first round starts at the start.
Sensitivity: those of `Gradient` and `GradientDifference`, whose cap is the public length of a step times one unit's
smoothness; K gradients and fewer than T_k differences a round, everything after an answer is post-processing.
Failure: depends on noised values only, so it tells no more than the release.

A difference's noise stays in the estimate until the next round: after t differences it is that of a gradient and of t
differences together. The ridge's gradient is added where the estimate is used, exactly, and never clipped.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.inference.parameters import penalised_gradient
from core.methods.kl.spider.schedule import SpiderRound, SpiderSchedule
from core.methods.kl.spider.spec import KlSpiderPlan
from core.methods.lifecycle import ended, resumed, starting_point, tensors_of
from core.oracle import Oracle, Status
from core.queries.gradients import Gradient, GradientDifference

FRESH = -1
"""Of `differences` in a state: the round's gradient has not been asked yet."""


class _State(NamedTuple):
    """Where a walk stands after an answer; in a simulation replicates come first."""

    theta: Tensor
    slope: Tensor
    """Of the mean loss at theta, without its ridge's, as answers add up to it."""
    round: Tensor
    differences: Tensor
    """Answers of this round after its gradient's."""
    walking: Tensor
    left: Tensor
    taken: Tensor
    """Number of steps."""
    step: Tensor
    """Number of answers."""
    scale: Tensor
    """Deviation of the last gradient's noise on a coordinate."""


def iterate(plan: KlSpiderPlan, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of an M-estimator under the KL condition.

    Args:
        plan: public, nothing open.
        oracle: the only way to the records.

    Returns:
        The point where the last round ended, shape (features,), with its certificate, and that the method finished.
        Where no round is worth its noise: the start, and nothing was asked. In a simulation replicates come first,
        without a certificate; a replicate whose round has ended waits for the others.

    Raises:
        Diverged: an iterate left the region where the condition was declared.
    """
    course, start = plan.course(oracle.facts), starting_point(plan.start, oracle)
    state = walk(course, start, plan.radius, oracle, plan.clip)
    estimate = Estimate(
        theta=state.theta,
        start=start,
        family="gradient",
        left=state.left,
        scale=float(state.scale),
        step=2 / (7 * plan.mean_smoothness),  # a round's step over its threshold: at most so much of an estimate
        steps=state.taken,
        error_bound=plan.error_bound(oracle.facts) if state.theta.ndim == 1 else None,
    )
    return ended(estimate, Status.FINISHED)


def walk(course: SpiderSchedule, start: Tensor, radius: float, oracle: Oracle, clip: float | None = None) -> _State:
    """Go through all rounds and return the last state.

    A state that is kept is one just after an answer, and all that follows from it is made again: a lost attempt goes on
    from any answer.

    Args:
        course: the rounds.
        start: shape (p,).
        radius: iterates farther from the start have left; their replicates stay where they are.
        oracle: the only way to the records.
        clip: of one unit's gradient, None for the loss's own bound.
    """
    first = _State(
        theta=start,
        slope=torch.zeros_like(start),
        round=torch.tensor(0),
        differences=torch.tensor(FRESH),
        walking=torch.tensor(data=True),
        left=torch.tensor(data=False),
        taken=torch.tensor(0),
        step=torch.tensor(0),
        scale=torch.tensor(0.0, dtype=torch.float64),
    )
    state = resumed("zeros", oracle, first)  # the start is given: nothing is drawn
    for number in range(int(state.round), len(course.rounds)):
        if bool(state.left.all()):
            break
        state = _go_round(course.rounds[number], state, start, radius, oracle, clip)
    return state


def _go_round(
    one: SpiderRound, state: _State, start: Tensor, radius: float, oracle: Oracle, clip: float | None
) -> _State:
    """Ask for a gradient, then step and ask for differences until the estimate is short or the steps are over."""
    if int(state.differences) == FRESH:
        answer = oracle.ask(Gradient(sigma=one.gradient_sigma, clip=clip), state.theta)
        replicates = answer.value.shape[:-1]
        state = state._replace(
            slope=answer.value,
            scale=torch.tensor(answer.scale, dtype=torch.float64),
            # A simulation's answer brings the axis of replicates, which all entries then need.
            theta=state.theta.expand_as(answer.value),
            left=state.left.expand(replicates),
            taken=state.taken.expand(replicates),
            walking=~state.left.expand(replicates),
        )
        state = _kept(state, oracle)
    for step in range(int(state.differences) + 1, one.steps + 1):
        along = penalised_gradient(oracle.facts, state.slope, state.theta)
        length = torch.linalg.vector_norm(along, dim=-1)
        walking = state.walking & (length >= one.threshold)
        if not bool(walking.any()):
            break
        # Walking replicates are longer: the clamp only spares the others a division by zero.
        before, direction = state.theta, along / length.clamp(min=one.threshold).unsqueeze(-1)
        theta = torch.where(walking.unsqueeze(-1), before - one.step * direction, before)
        left = state.left | (torch.linalg.vector_norm(theta - start, dim=-1) > radius)
        taken = state.taken + walking.long()
        state = state._replace(theta=theta, left=left, walking=walking & ~left, taken=taken)
        # After a round's last step a difference would be paid for and never used.
        if step < one.steps and bool(state.walking.any()):
            assert one.difference_sigma is not None, "a round of several steps has differences"
            question = GradientDifference(sigma=one.difference_sigma, cap=one.cap, clip=clip)
            change = oracle.ask(question, before, theta)
            state = _kept(state._replace(slope=state.slope + change.value), oracle)
    return state._replace(round=state.round + 1, differences=torch.tensor(FRESH))


def _kept(state: _State, oracle: Oracle) -> _State:
    """Count one answer, and keep the state that it made."""
    state = state._replace(differences=state.differences + 1, step=state.step + 1)
    oracle.keep(tensors_of(state), int(state.step))
    return state
