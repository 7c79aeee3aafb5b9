"""Step rules against PyTorch's own optimizers, and means of iterates against their definitions."""

import pytest
import torch
from torch import Tensor

from core.methods.buffers import BufferPool
from core.methods.clipped.rules import Adam, Average, MovingMean, NoMean, Rule, Sgd, TailMean, scheduled_share
from core.methods.step_rules import Memory, meant, memory_of, returned, turned

STEPS, SIZE = 12, 0.1


def slopes(replicates: int = 1) -> Tensor:
    """Return gradients of so many steps, shape (STEPS, replicates, 3)."""
    return torch.randn(STEPS, replicates, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def path(rule: Rule, told: Tensor, average: Average = NoMean()) -> tuple[list[Tensor], Tensor]:  # noqa: B008 - a frozen value
    """Return all iterates from zero, and what is returned."""
    theta = torch.zeros(told.shape[-1], dtype=torch.float64)
    state, iterates, buffers = memory_of(rule, average, theta), [theta], BufferPool()
    for step, slope in enumerate(told, start=1):
        along, state = turned(rule, state, slope, step, buffers)
        theta = theta - SIZE * along
        state = meant(average, state, theta, step, STEPS, buffers)
        iterates.append(theta)
    return iterates, returned(average, state, theta, STEPS)


@pytest.mark.parametrize("rule", [Sgd(), Sgd(momentum=0.9), Adam(), Adam(first=0.5, second=0.8, floor=1e-3)])
def test_a_rule_is_that_of_pytorch(rule: Rule) -> None:
    told = slopes()[:, 0]
    weight = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    if isinstance(rule, Adam):
        reference: torch.optim.Optimizer = torch.optim.Adam(
            [weight], lr=SIZE, betas=(rule.first, rule.second), eps=rule.floor
        )
    else:
        reference = torch.optim.SGD([weight], lr=SIZE, momentum=rule.momentum)
    for slope in told:
        weight.grad = slope.clone()
        reference.step()
    assert torch.allclose(path(rule, told)[1], weight.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", [Sgd(momentum=0.9), Adam()])
def test_replicates_are_independent(rule: Rule) -> None:
    told = slopes(replicates=4)
    together = path(rule, told, MovingMean(decay=0.7))[1]
    for replicate in range(4):
        assert torch.equal(together[replicate], path(rule, told[:, replicate], MovingMean(decay=0.7))[1])


def test_a_tail_mean_is_of_the_last_iterates() -> None:
    iterates, found = path(Sgd(), slopes()[:, 0], TailMean(steps=5))
    assert torch.allclose(found, torch.stack(iterates[-5:]).mean(0), atol=1e-14)
    assert torch.equal(path(Sgd(), slopes()[:, 0], TailMean(steps=1))[1], iterates[-1])


def test_a_moving_mean_forgets_that_it_began_at_nothing() -> None:
    iterates, found = path(Sgd(), slopes()[:, 0], MovingMean(decay=0.6))
    weights = torch.tensor([0.6 ** (STEPS - step) for step in range(1, STEPS + 1)], dtype=torch.float64)
    expected = (weights[:, None] * torch.stack(iterates[1:])).sum(0) / weights.sum()
    assert torch.allclose(found, expected, atol=1e-14)


def test_what_needs_no_memory_keeps_none() -> None:
    assert memory_of(Sgd(), NoMean(), torch.zeros(2)) == Memory()
    assert memory_of(Adam(), TailMean(steps=2), torch.zeros(2)).velocity is None


def test_step_sizes_rise_to_one_and_fall_as_half_a_wave() -> None:
    rising = [scheduled_share(step, 10, "constant", 4) for step in range(1, 11)]
    assert rising == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1]
    falling = [scheduled_share(step, 10, "cosine", 2) for step in range(1, 11)]
    assert falling[1:3] == [1.0, 1.0]
    assert falling[6] == pytest.approx(0.5)
    assert falling[2:] == sorted(falling[2:], reverse=True)
    assert 0 < falling[-1] < 0.1
