"""From noised gradients to steps: momentum, Adam, and running means of iterates, kept in a method's state.

Everything here is made of answers and of public figures, replicate by replicate and coordinate by coordinate. A rule
without a memory keeps none, and a method that returns its last iterate keeps no mean.

Source: Polyak (1964) for momentum, Kingma and Ba (2015) with its corrections of the start for Adam.
"""

from typing import assert_never

import torch
from torch import Tensor

from core.inference.parameters import penalised_gradient, scale_of
from core.methods.buffers import BufferPool
from core.methods.clipped.rules import Adam, Average, MovingMean, NoMean, Rule, Sgd, TailMean
from core.privacy.facts import Facts

Memory = dict[str, Tensor]


def slope_at(facts: Facts, received: Tensor, theta: Tensor) -> Tensor:
    """Return a noised gradient with its ridge's, times an unknown scale: as it is where there is neither.

    Args:
        facts: for ridge and scale.
        received: the answer's value, shape (..., p).
        theta: where it was asked at, shape (..., p).
    """
    if facts.ridge == 0 and facts.scale is None:
        return received  # networks have millions of parameters: nothing is multiplied by one
    return penalised_gradient(facts, received, theta) * scale_of(facts, theta).unsqueeze(-1)


def memory_of(rule: Rule, average: Average, start: Tensor) -> Memory:
    """Return what a rule and an average remember before the first step, entries of shape (p,)."""
    names = ("first", "second") if isinstance(rule, Adam) else ("velocity",) * (rule.momentum > 0)
    means = () if isinstance(average, NoMean) else ("mean",)
    return {name: torch.zeros_like(start) for name in (*names, *means)}


def turned(rule: Rule, memory: Memory, slope: Tensor, step: int, buffers: BufferPool) -> tuple[Tensor, Memory]:
    """Return what is subtracted from theta, times the step size, and what the rule remembers.

    Args:
        rule: which.
        memory: its memory.
        slope: the noised gradient, shape (..., p).
        step: from 1.
        buffers: of this run.
    """
    match rule:
        case Sgd():
            if rule.momentum == 0:
                return slope, {}
            velocity = torch.add(slope, memory["velocity"], alpha=rule.momentum, out=buffers.of("velocity", slope))
            return velocity, {"velocity": velocity}
        case Adam():
            # The scratch also holds the result: the caller uses it before the next step overwrites it.
            some = buffers.scratch(slope)
            # The first memory lacks a simulation's axis of replicates.
            first = torch.mul(memory["first"].expand_as(slope), rule.first, out=buffers.of("first", slope))
            first.add_(torch.mul(slope, 1 - rule.first, out=some))
            second = torch.mul(memory["second"].expand_as(slope), rule.second, out=buffers.of("second", slope))
            second.add_(torch.square(slope, out=some).mul_(1 - rule.second))
            size = torch.div(second, 1 - rule.second**step, out=some).sqrt_().add_(rule.floor)
            along = torch.div(first, size.mul_(1 - rule.first**step), out=some)
            return along, {"first": first, "second": second}
        case _:
            assert_never(rule)


def meant(average: Average, memory: Memory, theta: Tensor, step: int, steps: int, buffers: BufferPool) -> Memory:
    """Return the running mean with one more iterate, shape (..., p); nothing where none is kept."""
    match average:
        case NoMean():
            return {}
        case TailMean():
            place = step - (steps - average.steps)
            if place <= 0:
                return {"mean": memory["mean"]}
            return {"mean": averaged(memory["mean"], theta, place, buffers)}
        case MovingMean():
            mean = torch.mul(memory["mean"].expand_as(theta), average.decay, out=buffers.of("mean", theta))
            return {"mean": mean.add_(torch.mul(theta, 1 - average.decay, out=buffers.scratch(theta)))}
        case _:
            assert_never(average)


def averaged(mean: Tensor, theta: Tensor, count: int, buffers: BufferPool) -> Tensor:
    """Return the mean of `count` iterates, theta the last of them, from that of those before, shape (..., p)."""
    # `mean` is read once more at the end: the pool hands out the other of its two buffers.
    return torch.sub(theta, mean, out=buffers.of("mean", theta)).div_(count).add_(mean)


def returned(average: Average, memory: Memory, theta: Tensor, steps: int) -> Tensor:
    """Return the mean after the last step, or the last iterate."""
    if isinstance(average, NoMean):
        return theta
    if isinstance(average, MovingMean):
        return memory["mean"] / (1 - average.decay**steps)
    return memory["mean"]
