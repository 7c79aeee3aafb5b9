"""Clipped stochastic gradient descent: steps along noised sums of clipped gradients of Poisson samples.

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang (2016); clipping and noise are those of algorithm 1
of Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov (preprint).
Sensitivity: that of `Gradient` on a sample, clip/(q n) where a unit is zeroed; `steps` sampled Gaussian answers, each
with a sample of its own and noise whatever was clipped and whoever was in it. Momentum, Adam and averages are
post-processing of answers.
Failure: depends on noised values only, so it tells no more than the release.
"""

import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.methods.buffers import BufferPool
from core.methods.clipped.clipped_sgd.spec import ClippedSgd
from core.methods.clipped.rules import scheduled_share
from core.methods.lifecycle import arrived, begun, ended, starting_point
from core.methods.step_rules import meant, memory_of, returned, slope_at, turned
from core.oracle import Oracle, Status
from core.queries.gradients import Gradient

State = dict[str, Tensor]


def iterate(plan: ClippedSgd, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of a model.

    Args:
        plan: public plan, nothing open.
        oracle: the only way to the records; every question has a sample of its own.

    Returns:
        The last iterate or a mean of iterates, shape (p,), replicates first in a simulation, and how the method ended.

    Raises:
        Diverged: the last step left the public radius.
    """
    assert plan.steps is not None, "plan first"
    assert plan.step_size is not None, "plan first"
    assert plan.radius is not None, "plan first"
    assert plan.average is not None, "plan first"
    (gradient,) = plan.questions()
    start = starting_point(plan.start, oracle).to(oracle.precision)  # and so is all that comes of it
    state = begun(plan.start, oracle, _beginning(plan, start))
    buffers = BufferPool()
    # A resumed attempt goes on behind its last kept step.
    for step in range(int(state["step"]) + 1, plan.steps + 1):
        state = _stepped(plan, oracle, gradient, state, step, buffers)
        oracle.keep(state, step)
    estimate = Estimate(
        theta=returned(plan.average, state, state["theta"], plan.steps),
        start=state.get("start", start),
        family="gradient",
        left=state["left"],
        scale=float(state["scale"]),
        step=plan.step_size,
        steps=plan.steps,
        scale_floored=state["raised"],
    )
    return ended(estimate, Status.FINISHED)


def _stepped(
    plan: ClippedSgd, oracle: Oracle, gradient: Gradient, state: State, step: int, buffers: BufferPool
) -> State:
    """Return the state after one more step; the answer is let go of before the next is asked for."""
    assert plan.steps is not None, "plan first"
    assert plan.step_size is not None, "plan first"
    assert plan.radius is not None, "plan first"
    assert plan.average is not None, "plan first"
    theta = state["theta"]
    answer = oracle.ask(gradient, theta)
    slope = slope_at(oracle.facts, answer.value, theta)
    along, remembered = turned(plan.rule, state, slope, step, buffers)
    size = plan.step_size * scheduled_share(step, plan.steps, plan.learning_rate_schedule, plan.warm_up)
    moved = torch.sub(theta, along, alpha=size, out=buffers.of("theta", along))
    moved, left, raised = arrived(oracle.facts, moved, plan.radius)
    return {
        # A random start cannot be drawn again: each state carries it for a later attempt.
        **({"start": state["start"]} if plan.start == "random" else {}),
        **remembered,
        **meant(plan.average, state, moved, step, plan.steps, buffers),
        "theta": moved,
        "left": left,
        "step": torch.tensor(step),
        "raised": state["raised"] + raised.long(),
        "scale": torch.tensor(answer.scale, dtype=torch.float64),
    }


def _beginning(plan: ClippedSgd, start: Tensor) -> State:
    """Return the state before the first step; a start drawn at random is a part of it."""
    assert plan.average is not None, "plan first"
    return {
        **({"start": start} if plan.start == "random" else {}),
        **memory_of(plan.rule, plan.average, start),
        "theta": start,
        "left": torch.tensor(data=False),
        "step": torch.tensor(0),
        "raised": torch.tensor(0),
        "scale": torch.tensor(0.0, dtype=torch.float64),
    }
