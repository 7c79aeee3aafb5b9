"""Discrete Laplace noise and AboveThreshold: their laws, what neighbours may learn, one answer, constant work.

Chi-square tests have thresholds of p < 1e-4, with a seeded generator, so a run repeats.
"""

from itertools import product
from math import exp, log, tanh

import numpy as np
import pytest
from scipy import stats

from core.mechanisms import laplace
from core.mechanisms.generator import Generator, SimulationGenerator, SystemGenerator
from core.mechanisms.laplace import NONE, distance_per_draw, draw, first_below

DRAWS = 20_000


class Counted(Generator):
    """Words that are counted."""

    def __init__(self) -> None:
        self.words = 0
        self.real = SimulationGenerator(3)

    def bits(self, count: int) -> np.ndarray:
        self.words += count
        return self.real.bits(count)


def chance(scale: float, at: float) -> float:
    """Return the ideal probability of an integer."""
    return tanh(1 / (2 * scale)) * exp(-abs(at) / scale)


def misfit(drawn_with: float, claimed: float) -> float:
    """Return the p-value of draws with one scale against the law of another, in bins of equal width."""
    drawn = np.array(draw(SimulationGenerator(11), drawn_with, DRAWS))
    width = max(1, int(claimed))
    reach = 6 * width
    edges = np.arange(-reach, reach + 1, width)
    ideal = np.array([sum(chance(claimed, at) for at in range(low, low + width)) for low in edges[:-1]])
    observed = np.array([np.sum((drawn >= low) & (drawn < low + width)) for low in edges[:-1]])
    expected = np.append(ideal, 1 - ideal.sum()) * DRAWS
    return float(stats.chisquare(np.append(observed, DRAWS - observed.sum()), expected).pvalue)


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.7, 1000.0])
def test_draws_have_the_law(scale: float) -> None:
    assert misfit(scale, scale) > 1e-4


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1])
def test_another_scale_would_be_seen(factor: float) -> None:
    """Planted bugs: half the noise, a tenth less, a tenth more."""
    assert misfit(3.7 * factor, 3.7) < 1e-4


def test_a_geometric_law_in_place_of_the_two_sided_one_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: G alone."""
    genuine = draw
    monkeypatch.setattr(laplace, "draw", lambda *given: [abs(one) for one in genuine(*given)])
    drawn = laplace.draw(SimulationGenerator(1), 3.0, 100)
    assert min(drawn) >= 0 > min(genuine(SimulationGenerator(1), 3.0, 100))


def test_bits_of_a_wide_law_make_up_its_probabilities() -> None:
    """The chances of the bits multiply to q^x (1 - q) for every x below 2^10."""
    scale = 6.5
    chances = [one / 2**128 for one in laplace._chances(scale)]
    ratio = exp(-1 / scale)
    for value in (0, 1, 2, 3, 100, 1023):
        bits = [value >> place & 1 for place in range(len(chances))]
        found = np.prod([one if bit else 1 - one for bit, one in zip(bits, chances, strict=True)])
        assert found == pytest.approx((1 - ratio) * ratio**value, rel=1e-12)


@pytest.mark.parametrize("scale", [2.0**-10, 1.0, 3e6, 2.0**60])
def test_distance_is_far_below_that_of_gaussian_noise(scale: float) -> None:
    assert 0 < distance_per_draw(scale) < 2.0**-119
    assert all(abs(one) <= 2 * 2**8 * max(1.0, scale) for one in draw(SystemGenerator(), scale, 5))


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("inf"), float("nan"), 2.0**61])
def test_a_scale_is_an_ordinary_positive_number(wrong: float) -> None:
    with pytest.raises(AssertionError, match="scale"):
        draw(SystemGenerator(), wrong, 1)


def answers(scores: list[int], threshold: int, moved: int, sigma: float, *, score_factor: float = 2.0) -> list[float]:
    """Return the exact probability of every answer, none last: sums over noise on a wide grid of integers."""
    reach = int(30 * max(1.0, score_factor) * sigma * moved)
    grid = np.arange(-reach, reach + 1)
    shifts = np.array([chance(sigma * moved, int(at)) for at in grid])
    noises = np.array([chance(score_factor * sigma * moved, int(at)) for at in grid])
    cumulative = np.concatenate([[0.0], noises.cumsum()])
    passing = [
        cumulative[np.clip(threshold + grid - score + reach + 1, 0, len(grid))] for score in scores
    ]  # of each score, at each shifted threshold
    found, left = [], np.ones_like(shifts)
    for one in passing:
        found.append(float((shifts * left * one).sum()))
        left = left * (1 - one)
    return [*found, float((shifts * left).sum())]


class TestAboveThreshold:
    SCORES, THRESHOLD, MOVED, SIGMA = [9, 4, 6, 2], 3, 3, 1.3

    def test_answers_have_the_law(self) -> None:
        generator = SimulationGenerator(5)
        drawn = [
            first_below(generator, self.SCORES, self.THRESHOLD, moved=self.MOVED, sigma=self.SIGMA)
            for _ in range(DRAWS // 4)
        ]
        assert min(drawn) == NONE
        counts = np.bincount([len(self.SCORES) if one == NONE else one for one in drawn], minlength=5)
        ideal = np.array(answers(self.SCORES, self.THRESHOLD, self.MOVED, self.SIGMA)) * len(drawn)
        assert stats.chisquare(counts, ideal * counts.sum() / ideal.sum()).pvalue > 1e-4
        wrong = np.array(answers(self.SCORES, self.THRESHOLD, self.MOVED, self.SIGMA, score_factor=1.0)) * len(drawn)
        assert stats.chisquare(counts, wrong * counts.sum() / wrong.sum()).pvalue < 1e-4

    def largest_loss(self, score_factor: float) -> float:
        """Return the largest change of a log-probability, over neighbours whose scores move by as much as may be.

        The extremes are scores far below the threshold, and a last one far above it, which moves against them. The low
        scores are so many that only a low threshold keeps all of them from passing.
        """
        worst = 0.0
        for scores in ([0, 0], [40, -5], [-20, 8], [-30] * 60 + [60]):
            for first, last in product((-self.MOVED, 0, self.MOVED), repeat=2):
                shifted = [score + first for score in scores[:-1]] + [scores[-1] + last]
                both = (answers(one, 0, self.MOVED, self.SIGMA, score_factor=score_factor) for one in (scores, shifted))
                losses = [abs(log(a) - log(b)) for a, b in zip(*both, strict=True) if min(a, b) > 0]
                worst = max(worst, *losses)
        return worst

    def test_neighbours_are_told_apart_within_epsilon(self) -> None:
        assert 0.9 * 2 / self.SIGMA < self.largest_loss(2.0) <= 2 / self.SIGMA + 1e-6

    def test_scores_with_the_threshold_s_own_scale_would_be_seen(self) -> None:
        """Planted bug: the factor 2 of the scores' noise is forgotten."""
        assert self.largest_loss(1.0) > 2 / self.SIGMA * 1.1

    def test_there_is_one_positive_answer_and_it_is_the_first(self) -> None:
        generator = SystemGenerator()
        assert all(first_below(generator, [10**9, -(10**9), -(10**9)], 0, moved=1, sigma=1.0) == 1 for _ in range(20))
        assert first_below(generator, [10**9] * 3, 0, moved=1, sigma=1.0) == NONE

    @pytest.mark.parametrize("scores", [[0, 0, 0], [-(10**9), 0, 0], [10**9] * 3])
    def test_random_words_do_not_depend_on_scores(self, scores: list[int]) -> None:
        generator = Counted()
        first_below(generator, scores, 0, moved=2**20, sigma=3.0)
        counted = Counted()
        draw(counted, 3.0 * 2**20, 1)
        draw(counted, 6.0 * 2**20, 3)
        assert generator.words == counted.words

    def test_there_is_something_to_choose(self) -> None:
        with pytest.raises(AssertionError, match="choose"):
            first_below(SystemGenerator(), [], 0, moved=1, sigma=1.0)
        with pytest.raises(AssertionError, match="move"):
            first_below(SystemGenerator(), [1], 0, moved=0, sigma=1.0)
