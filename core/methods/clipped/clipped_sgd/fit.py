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


def iterate(settings: ClippedSgd, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of a model.

    Args:
        settings: public settings, nothing open.
        oracle: the only way to the records; every question has a sample of its own.

    Returns:
        The last iterate or a mean of iterates, shape (p,), replicates first in a simulation, and how the method ended.

    Raises:
        Diverged: the last step left the public radius.
    """
    assert settings.steps is not None, "plan first"
    assert settings.step_size is not None, "plan first"
    assert settings.radius is not None, "plan first"
    assert settings.average is not None, "plan first"
    (gradient,) = settings.questions()
    start = starting_point(settings.start, oracle).to(oracle.precision)  # and so is all that comes of it
    state = begun(settings.start, oracle, _beginning(settings, start))
    buffers = BufferPool()
    # A resumed attempt goes on behind its last kept step.
    for step in range(int(state["step"]) + 1, settings.steps + 1):
        state = _stepped(settings, oracle, gradient, state, step, buffers)
        oracle.keep(state, step)
    estimate = Estimate(
        theta=returned(settings.average, state, state["theta"], settings.steps),
        start=state.get("start", start),
        family="gradient",
        left=state["left"],
        scale=float(state["scale"]),
        step=settings.step_size,
        steps=settings.steps,
        scale_floored=state["raised"],
    )
    return ended(estimate, Status.FINISHED)


def _stepped(
    settings: ClippedSgd, oracle: Oracle, gradient: Gradient, state: State, step: int, buffers: BufferPool
) -> State:
    """Return the state after one more step; the answer is let go of before the next is asked for."""
    assert settings.steps is not None, "plan first"
    assert settings.step_size is not None, "plan first"
    assert settings.radius is not None, "plan first"
    assert settings.average is not None, "plan first"
    theta = state["theta"]
    answer = oracle.ask(gradient, theta)
    slope = slope_at(oracle.facts, answer.value, theta)
    along, remembered = turned(settings.rule, state, slope, step, buffers)
    size = settings.step_size * scheduled_share(step, settings.steps, settings.learning_rate_schedule, settings.warm_up)
    moved = torch.sub(theta, along, alpha=size, out=buffers.of("theta", along))
    moved, left, raised = arrived(oracle.facts, moved, settings.radius)
    return {
        # A random start cannot be drawn again: each state carries it for a later attempt.
        **({"start": state["start"]} if settings.start == "random" else {}),
        **remembered,
        **meant(settings.average, state, moved, step, settings.steps, buffers),
        "theta": moved,
        "left": left,
        "step": torch.tensor(step),
        "raised": state["raised"] + raised.long(),
        "scale": torch.tensor(answer.scale, dtype=torch.float64),
    }


def _beginning(settings: ClippedSgd, start: Tensor) -> State:
    """Return the state before the first step; a start drawn at random is a part of it."""
    assert settings.average is not None, "plan first"
    return {
        **({"start": start} if settings.start == "random" else {}),
        **memory_of(settings.rule, settings.average, start),
        "theta": start,
        "left": torch.tensor(data=False),
        "step": torch.tensor(0),
        "raised": torch.tensor(0),
        "scale": torch.tensor(0.0, dtype=torch.float64),
    }
