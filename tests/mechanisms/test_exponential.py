"""The exponential mechanism on integer scores: its law, what neighbours may learn of it, and constant work.

Chi-square tests have thresholds of p < 1e-4, with a seeded generator, so a run repeats.
"""

from decimal import Context, Decimal
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from core.mechanisms import exponential
from core.mechanisms.exponential import choose, distance_per_choice, weights
from core.mechanisms.generator import Generator, SimulationGenerator, SystemGenerator

DRAWS = 5_000
SCORES = [7_340_032, 0, 1_048_576, 3_000_001, 1_048_577, 20_000_000]
PARAMETER = 1.7 * 2**20


class Counted(Generator):
    """Words that are counted."""

    def __init__(self) -> None:
        self.words = 0
        self.real = SimulationGenerator(3)

    def bits(self, count: int) -> np.ndarray:
        self.words += count
        return self.real.bits(count)


def law(scores: list[int], parameter: float) -> np.ndarray:
    ideal = np.array([exp(-(score - min(scores)) / parameter) for score in scores])
    return ideal / ideal.sum()


def misfit(scores: list[int], drawn_with: float, claimed: float) -> float:
    """Return the p-value of draws with one parameter against the law of another."""
    generator = SimulationGenerator(11)
    counts = np.bincount([choose(generator, scores, drawn_with) for _ in range(DRAWS)], minlength=len(scores))
    expected = law(scores, claimed) * DRAWS
    kept = expected >= 5
    observed = np.append(counts[kept], counts[~kept].sum())
    ideal = np.append(expected[kept], expected[~kept].sum())
    return float(stats.chisquare(observed[ideal > 0], ideal[ideal > 0]).pvalue)


def test_indices_have_the_law() -> None:
    assert misfit(SCORES, PARAMETER, PARAMETER) > 1e-4


@pytest.mark.parametrize("factor", [0.5, 0.8, 2.0])
def test_another_epsilon_would_be_seen(factor: float) -> None:
    """Planted bugs: epsilon doubled (half the parameter), a quarter too large, halved."""
    assert misfit(SCORES, factor * PARAMETER, PARAMETER) < 1e-4


def test_edges_that_are_off_by_one_would_be_seen() -> None:
    """Planted bug: the last index is never drawn."""
    scores = [0, 2**20, 0]
    assert misfit(scores, PARAMETER, PARAMETER) > 1e-4
    generator = SimulationGenerator(11)
    counts = np.bincount([min(1, choose(generator, scores, PARAMETER)) for _ in range(DRAWS)], minlength=3)
    assert counts[2] < law(scores, PARAMETER)[2] * DRAWS / 2


@given(
    st.lists(st.integers(0, 2**61), min_size=1, max_size=8),
    st.floats(2.0**-3, 2.0**60, allow_nan=False),
)
def test_weights_are_within_their_proven_distance(scores: list[int], parameter: float) -> None:
    context = Context(prec=150)
    found = weights(scores, parameter)
    for score, weight in zip(scores, found, strict=True):
        exponent = context.divide(Decimal(min(scores) - score), Decimal(parameter))
        ideal = context.exp(max(exponent, Decimal(-100_000)))
        gap = abs(context.subtract(context.divide(Decimal(weight), Decimal(2**256)), ideal))
        assert gap < Decimal(2) ** -167
    assert max(found) > 2**256 - 2**89, "the least score weighs one"


@given(
    st.lists(st.integers(0, 2**40), min_size=2, max_size=8),
    st.integers(1, 2**30),
    st.floats(2.0**-4, 2.0**4),
    st.data(),
)
def test_neighbours_are_told_apart_within_the_bounded_range(
    scores: list[int], moved: int, sigma: float, data: st.DataObject
) -> None:
    """No score moves by more than D: the range of the changes of log-probabilities is at most 2/sigma.

    The tolerance is that of weights of 167 bits which are not less than exp(-50).
    """
    parameter = sigma * moved
    scores = [min(score, int(50 * parameter)) for score in scores]
    changes = data.draw(st.lists(st.integers(-moved, moved), min_size=len(scores), max_size=len(scores)))
    both = [weights(one, parameter) for one in (scores, [a + b for a, b in zip(scores, changes, strict=True)])]
    # Each list is shifted by its own least score, which moves all logarithms by one number.
    logs = [log(a) - log(b) for a, b in zip(*both, strict=True) if a and b]
    assert max(logs) - min(logs) <= 2 / sigma + 1e-9


def test_the_bounded_range_is_attained() -> None:
    down, up = weights([0, 2 * 10**6], 10**6), weights([10**6, 10**6], 10**6)
    ratios = [log(a) - log(b) for a, b in zip(down, up, strict=True)]
    assert max(ratios) - min(ratios) == pytest.approx(2.0)


def test_a_shift_of_all_scores_changes_nothing() -> None:
    assert weights(SCORES, PARAMETER) == weights([score + 12_345 for score in SCORES], PARAMETER)


@pytest.mark.parametrize("scores", [[0], [0, 0], [5, 2**61], SCORES, [2**61] * 50], ids=len)
def test_bits_and_products_do_not_depend_on_scores(scores: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    products: list[int] = []
    genuine = exponential._exponential
    monkeypatch.setattr(exponential, "_exponential", lambda exponent: products.append(1) or genuine(exponent))
    generator = Counted()
    assert 0 <= choose(generator, scores, PARAMETER) < len(scores)
    assert generator.words == 4
    assert len(products) == len(scores)


def test_far_scores_are_never_chosen_and_equal_ones_alike() -> None:
    generator = SystemGenerator()
    assert all(choose(generator, [2**50, 0, 2**50], 1.0) == 1 for _ in range(50))
    first = sum(choose(SimulationGenerator(seed), [3, 3], 1.0) for seed in range(1000))
    assert abs(first - 500) < 4.5 * 250**0.5


def test_distance_is_far_below_that_of_gaussian_noise() -> None:
    assert distance_per_choice(20_000) < 2.0**-150


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("inf"), float("nan")])
def test_a_parameter_is_a_positive_number(wrong: float) -> None:
    with pytest.raises(AssertionError, match="parameter"):
        choose(SystemGenerator(), [1, 2], wrong)
    with pytest.raises(AssertionError, match="something"):
        choose(SystemGenerator(), [], 1.0)
