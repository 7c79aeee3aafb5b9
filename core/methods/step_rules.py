"""From noised gradients to steps: momentum, Adam, and running means of iterates, kept in a method's state.

Everything here is made of answers and of public figures, replicate by replicate and coordinate by coordinate. A rule
without a memory keeps none, and a method that returns its last iterate keeps no mean.

Source: Polyak (1964) for momentum, Kingma and Ba (2015) with its corrections of the start for Adam.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from core.inference.parameters import penalised_gradient, scale_of
from core.methods.buffers import BufferPool
from core.methods.clipped.rules import Adam, Average, MovingMean, NoMean, Rule, TailMean
from core.privacy.facts import Facts


class Memory(NamedTuple):
    """Memory of a rule and an average, shapes (..., p); None where there is none."""

    velocity: Tensor | None = None
    first: Tensor | None = None
    second: Tensor | None = None
    mean: Tensor | None = None


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
    """Return the memory of a rule and an average before the first step, zeros of shape (p,) where there is any."""
    zeros = torch.zeros_like(start)
    mean = None if isinstance(average, NoMean) else zeros
    if isinstance(rule, Adam):
        return Memory(first=zeros, second=zeros, mean=mean)
    return Memory(velocity=zeros if rule.momentum > 0 else None, mean=mean)


def turned(rule: Rule, memory: Memory, slope: Tensor, step: int, buffers: BufferPool) -> tuple[Tensor, Memory]:
    """Return the direction to subtract from theta, before the step size, and the memory behind it.

    Args:
        rule: of the job.
        memory: its memory.
        slope: the noised gradient, shape (..., p).
        step: from 1.
        buffers: of this run.
    """
    if isinstance(rule, Adam):
        return _adam(rule, memory, slope, step, buffers)
    if memory.velocity is None:
        return slope, memory
    velocity = torch.add(slope, memory.velocity, alpha=rule.momentum, out=buffers.of("velocity", slope))
    return velocity, memory._replace(velocity=velocity)


def _adam(rule: Adam, memory: Memory, slope: Tensor, step: int, buffers: BufferPool) -> tuple[Tensor, Memory]:
    """Return Adam's direction and its memory."""
    assert memory.first is not None, "`memory_of` makes both"
    assert memory.second is not None, "`memory_of` makes both"
    # The scratch also holds the result: the caller uses it before the next step overwrites it.
    some = buffers.scratch(slope)
    # The first memory lacks a simulation's axis of replicates.
    first = torch.mul(memory.first.expand_as(slope), rule.first, out=buffers.of("first", slope))
    first.add_(torch.mul(slope, 1 - rule.first, out=some))
    second = torch.mul(memory.second.expand_as(slope), rule.second, out=buffers.of("second", slope))
    second.add_(torch.square(slope, out=some).mul_(1 - rule.second))
    size = torch.div(second, 1 - rule.second**step, out=some).sqrt_().add_(rule.floor)
    along = torch.div(first, size.mul_(1 - rule.first**step), out=some)
    return along, memory._replace(first=first, second=second)


def meant(average: Average, memory: Memory, theta: Tensor, step: int, steps: int, buffers: BufferPool) -> Memory:
    """Return the memory with one more iterate, shape (..., p), in its running mean."""
    if memory.mean is None:
        return memory
    if isinstance(average, MovingMean):
        mean = torch.mul(memory.mean.expand_as(theta), average.decay, out=buffers.of("mean", theta))
        return memory._replace(mean=mean.add_(torch.mul(theta, 1 - average.decay, out=buffers.scratch(theta))))
    assert isinstance(average, TailMean), "the last iterate has no mean"
    place = step - (steps - average.steps)
    return memory if place <= 0 else memory._replace(mean=averaged(memory.mean, theta, place, buffers))


def averaged(mean: Tensor, theta: Tensor, count: int, buffers: BufferPool) -> Tensor:
    """Return the mean of `count` iterates, theta the last of them, from that of those before, shape (..., p)."""
    # `mean` is read once more at the end: the pool hands out the other of its two buffers.
    return torch.sub(theta, mean, out=buffers.of("mean", theta)).div_(count).add_(mean)


def returned(average: Average, memory: Memory, theta: Tensor, steps: int) -> Tensor:
    """Return the mean after the last step, or the last iterate."""
    if memory.mean is None:
        return theta
    return memory.mean / (1 - average.decay**steps) if isinstance(average, MovingMean) else memory.mean
