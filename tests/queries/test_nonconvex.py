"""Neighbours behind an oracle, with losses that are not convex: sums move by no more than was claimed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.losses.categorical import Brier
from core.losses.phase import RobustPhase, SmoothPhase
from core.losses.records import per_record
from core.losses.registry import Loss
from core.losses.robust import Cauchy, GemanMcClure
from core.losses.squares import SineLink
from core.losses.weights import Clip, Mallows, Weights
from core.oracle.noise import grid_for
from core.privacy.facts import Adjacency
from core.queries.gradients import Gradient, GradientDifference, Question
from core.queries.sums.linear import LinearProblem
from tests.support.losses import public, told

UNITS, DIMENSION = 6, 3
PAIRS: list[tuple[Loss, Weights]] = [
    (GemanMcClure(scale=0.8), Mallows(bound=1.3)),
    (Cauchy(scale=0.8), Clip(bound=0.4)),
    (Brier(), Mallows(bound=1.3, power=1)),
    (SineLink(), Clip(bound=0.7)),
    (SmoothPhase(cap=1.5), Clip(bound=0.7)),
    (RobustPhase(cap=1.5), Clip(bound=0.7)),
]
QUESTIONS = (Gradient(sigma=1), Gradient(sigma=1, clip=0.05), GradientDifference(sigma=1, cap=0.3))
numbers = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, -1.0, 1e300, float("inf"), float("nan")])
records = st.tuples(st.lists(numbers, min_size=DIMENSION, max_size=DIMENSION), numbers | st.floats(0, 2))


def summed(question: Question, loss: Loss, weights: Weights, x: Tensor, y: Tensor, adjacency: Adjacency) -> Tensor:
    facts = public(UNITS, DIMENSION, loss, weights, adjacency=adjacency)
    problem = LinearProblem(x.clone(), y.clone(), torch.ones(UNITS, dtype=torch.bool), loss, weights)
    step = grid_for(question, facts, UNITS).part_step
    theta = torch.tensor([0.4, -0.7, 0.2], dtype=torch.float64)
    other = theta + 0.1 if question.places == "pair" else None
    return step * problem.integer_sum(question, facts, theta, step, other=other).double()


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("loss", "weights"), PAIRS, ids=told)
@given(first=records, second=records, seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_one_record_moves_a_sum_by_no_more_than_claimed(
    adjacency: Adjacency,
    loss: Loss,
    weights: Weights,
    first: tuple[list[float], float],
    second: tuple[list[float], float],
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(UNITS, DIMENSION, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 2, (UNITS,), generator=generator).double()
    neighbours = []
    for row, target in (first, second if adjacency is Adjacency.REPLACE_ONE else ([float("nan")] * DIMENSION, 0.0)):
        features, targets = x.clone(), y.clone()
        features[2], targets[2] = torch.tensor(row, dtype=torch.float64), target
        neighbours.append((features, targets))
    for question in QUESTIONS:
        before, after = (summed(question, loss, weights, *one, adjacency) for one in neighbours)
        facts = public(UNITS, DIMENSION, loss, weights, adjacency=adjacency)
        claimed = question.sensitivity(facts) * UNITS
        assert before.isfinite().all()
        assert (after - before).norm().item() <= claimed * (1 + 2.0**-9)


@pytest.mark.parametrize(("loss", "weights"), PAIRS, ids=told)
def test_scores_are_odd_or_even_as_their_losses_are(loss: Loss, weights: Weights) -> None:
    """With both signs turned a loss is what it was; a square does not see the sign of its root."""
    del weights
    margin = torch.linspace(-4, 4, 801, dtype=torch.float64)
    code = per_record(loss)
    target = torch.full_like(margin, 1.0)
    turned = {"brier": 1 - target, "smooth": target, "robust": target}.get(loss.kind, -target)
    torch.testing.assert_close(code.value(-margin, turned), code.value(margin, target), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(code.score(-margin, turned), -code.score(margin, target), rtol=1e-12, atol=1e-15)


def test_targets_that_a_loss_is_not_defined_for_count_for_nothing() -> None:
    wrong = {"brier": 0.5, "smooth": -0.1, "robust": -0.1}
    for loss, weights in PAIRS:
        x = torch.ones(UNITS, DIMENSION, dtype=torch.float64)
        y = torch.full((UNITS,), wrong.get(loss.kind, float("inf")), dtype=torch.float64)
        assert not summed(QUESTIONS[0], loss, weights, x, y, Adjacency.ZERO_OUT).any()


def test_a_start_at_zero_is_a_stationary_point_of_every_square() -> None:
    x = torch.randn(UNITS, DIMENSION, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for loss, weights in PAIRS[-2:]:
        facts = public(UNITS, DIMENSION, loss, weights)
        problem = LinearProblem(x.clone(), x[:, 0].abs(), torch.ones(UNITS, dtype=torch.bool), loss, weights)
        zero = torch.zeros(DIMENSION, dtype=torch.float64)
        assert not problem.bounded_sum(Gradient(sigma=1), facts, zero).any()
        assert problem.bounded_sum(Gradient(sigma=1), facts, zero + 0.1).any()
