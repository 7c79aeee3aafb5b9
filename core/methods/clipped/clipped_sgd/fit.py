"""Clipped stochastic gradient descent: steps along noised sums of clipped gradients of Poisson samples.

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang (2016); clipping and noise are those of algorithm 1
of Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov (preprint).
Sensitivity: that of `Gradient` on a sample, clip/(q n) where a unit is zeroed; `steps` sampled Gaussian answers, each
with a sample of its own and noise whatever was clipped and whoever was in it. Momentum, Adam and averages are
post-processing of answers.
Failure: depends on noised values only, so it tells no more than the release.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.methods.buffers import BufferPool
from core.methods.clipped.clipped_sgd.spec import ClippedSgdPlan
from core.methods.clipped.rules import scheduled_share
from core.methods.lifecycle import arrived, ended, resumed, starting_point, tensors_of
from core.methods.step_rules import Memory, meant, memory_of, returned, slope_at, turned
from core.oracle import Oracle, Status
from core.queries.gradients import Gradient


class _State(NamedTuple):
    """Where a run stands after a step; in a simulation replicates come first."""

    start: Tensor | None
    """One that was drawn at random, which a later attempt cannot draw again; None: it follows from the plan."""
    memory: Memory
    theta: Tensor
    left: Tensor
    step: Tensor
    raised: Tensor
    """Number of steps whose scale was raised to its floor."""
    scale: Tensor
    """Deviation of the last answer's noise on a coordinate."""


def iterate(plan: ClippedSgdPlan, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of a model.

    Args:
        plan: public, nothing open.
        oracle: the only way to the records; every question has a sample of its own.

    Returns:
        The last iterate or a mean of iterates, shape (p,), replicates first in a simulation, and how the method ended.

    Raises:
        Diverged: the last step left the public radius.
    """
    (gradient,) = plan.questions()
    start = starting_point(plan.start, oracle).to(oracle.precision)  # and so is all that comes of it
    first = _State(
        start=start if plan.start == "random" else None,
        memory=memory_of(plan.rule, plan.average, start),
        theta=start,
        left=torch.tensor(data=False),
        step=torch.tensor(0),
        raised=torch.tensor(0),
        scale=torch.tensor(0.0, dtype=torch.float64),
    )
    state = resumed(plan.start, oracle, first)
    buffers = BufferPool()
    # A resumed attempt goes on behind its last kept step.
    for step in range(int(state.step) + 1, plan.steps + 1):
        state = _stepped(plan, oracle, gradient, state, step, buffers)
        oracle.keep(tensors_of(state), step)
    estimate = Estimate(
        theta=returned(plan.average, state.memory, state.theta, plan.steps),
        start=start if state.start is None else state.start,
        family="gradient",
        left=state.left,
        scale=float(state.scale),
        step=plan.step_size,
        steps=plan.steps,
        scale_floored=state.raised,
    )
    return ended(estimate, Status.FINISHED)


def _stepped(
    plan: ClippedSgdPlan, oracle: Oracle, gradient: Gradient, state: _State, step: int, buffers: BufferPool
) -> _State:
    """Return the state after one more step; the answer is let go of before the next is asked for."""
    answer = oracle.ask(gradient, state.theta)
    slope = slope_at(oracle.facts, answer.value, state.theta)
    along, memory = turned(plan.rule, state.memory, slope, step, buffers)
    size = plan.step_size * scheduled_share(step, plan.steps, plan.learning_rate_schedule, plan.warm_up)
    moved = torch.sub(state.theta, along, alpha=size, out=buffers.of("theta", along))
    moved, left, raised = arrived(oracle.facts, moved, plan.radius)
    return _State(
        start=state.start,
        memory=meant(plan.average, memory, moved, step, plan.steps, buffers),
        theta=moved,
        left=left,
        step=torch.tensor(step),
        raised=state.raised + raised.long(),
        scale=torch.tensor(answer.scale, dtype=torch.float64),
    )
