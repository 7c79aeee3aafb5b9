"""Sampling: exact Poisson rates, disjoint batches, uniform permutations, data-free starts."""

from collections import Counter
from fractions import Fraction
from itertools import permutations
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from core.mechanisms.generator import Generator, SimulationGenerator, SystemGenerator
from core.mechanisms.sampling import (
    RATE_UNIT,
    direction,
    integer,
    listed,
    normal,
    padded_length,
    permutation,
    poisson_mask,
    rate_parts,
    uniform,
)


class Scripted(Generator):
    """Words that a test chose."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def bits(self, count: int) -> NDArray[np.uint64]:
        drawn, self.words = self.words[:count], self.words[count:]
        return np.array(drawn, dtype=np.uint64)


class TestPoisson:
    @pytest.mark.parametrize("rate", [1.0, 0.5, 0.01, 1 / 3, 2.0**-12])
    def test_common_rates_are_met_exactly(self, rate: float) -> None:
        assert Fraction(rate_parts(rate), RATE_UNIT) == Fraction(rate)

    @pytest.mark.parametrize("rate", [1e-9, 3.3e-15, 2.0**-64])
    def test_tiny_rates_are_never_passed(self, rate: float) -> None:
        assert 0 < Fraction(rate_parts(rate), RATE_UNIT) <= Fraction(rate)

    @pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, 2.0**-65, float("nan")])
    def test_refuses_what_is_no_rate(self, rate: float) -> None:
        with pytest.raises(AssertionError):
            rate_parts(rate)

    def test_compares_all_64_bits(self) -> None:
        """Sixteen bits for each of four units; the two that tie draw 48 more."""
        parts = rate_parts(0.01) + 1
        leading, rest = divmod(parts, 2**48)
        first = int(np.array([leading - 1, leading, leading, leading + 1], dtype=np.uint16).view(np.uint64)[0])
        generator = Scripted(first, (rest - 1) << 16 | 0xFFFF, rest << 16)
        assert poisson_mask(generator, parts, 4).tolist() == [True, True, False, False]
        assert generator.words == []
        small = Scripted(0, 4 << 16, 5 << 16, 0, 6 << 16)
        assert poisson_mask(small, 5, 4).tolist() == [True, False, True, False], "a rate below 2^-48"

    def test_the_ends(self) -> None:
        assert not poisson_mask(SystemGenerator(), 0, 1000).any()
        assert poisson_mask(SystemGenerator(), RATE_UNIT, 1000).all()
        with pytest.raises(AssertionError):
            poisson_mask(SystemGenerator(), RATE_UNIT + 1, 1)

    @pytest.mark.parametrize("rate", [0.5, 0.1, 0.003])
    def test_sizes_are_binomial(self, rate: float) -> None:
        """z-tests of mean and variance at 4.5 over 2,000 masks of 1,000; the seed is fixed."""
        generator, parts = SimulationGenerator(3), rate_parts(rate)
        sizes = np.array([poisson_mask(generator, parts, 1000).sum() for _ in range(2000)])
        variance = 1000 * rate * (1 - rate)
        assert abs(sizes.mean() - 1000 * rate) / sqrt(variance / 2000) < 4.5
        fourth = 3 + (1 - 6 * rate * (1 - rate)) / variance
        assert abs(sizes.var() / variance - 1) / sqrt((fourth - 1) / 2000) < 4.5

    def test_units_are_included_independently(self) -> None:
        """z-test of neighbouring units' and successive masks' correlation at 4.5; the seed is fixed."""
        generator, parts = SimulationGenerator(5), rate_parts(0.2)
        one, other = (poisson_mask(generator, parts, 400_000) - 0.2 for _ in range(2))
        assert abs((one[1:] * one[:-1]).mean() / 0.16 * sqrt(one.size)) < 4.5
        assert abs((one * other).mean() / 0.16 * sqrt(one.size)) < 4.5


class TestLists:
    @pytest.mark.parametrize("units", [1, 50, 1000, 100_000])
    @pytest.mark.parametrize("rate", [2.0**-40, 1e-4, 0.01, 0.3, 0.9, 1.0])
    def test_lengths_are_passed_with_probability_below_2_to_the_minus_64(self, rate: float, units: int) -> None:
        """Against exact binomial tails; and no much shorter length is: Chernoff's bound is tight in the exponent."""
        length = padded_length(rate_parts(rate), units)
        assert stats.binom.sf(length, units, rate) < 2.0**-64
        assert length <= units
        mean = units * rate
        shorter = int(mean + 0.85 * (length - mean))
        assert length <= 4 or length == units or stats.binom.sf(shorter, units, rate) > 2.0**-64

    def test_hold_the_sample_then_padding(self) -> None:
        mask = np.array([False, True, False, True, True])
        rows, included = listed(mask, 5)
        assert (rows[:3].tolist(), included.tolist()) == ([1, 3, 4], [True, True, True, False, False])
        assert ((rows >= 0) & (rows < mask.size)).all()
        assert listed(mask, 3).included.all()
        assert listed(mask, 2) is None
        empty = listed(np.zeros(500, dtype=np.bool_), 20)
        assert not empty.included.any()
        assert np.unique(empty.rows).size == 20, "padding is read from all over, as a sample is"


class TestPermutation:
    def test_every_order_is_equally_likely(self) -> None:
        """Chi-square over the 24 orders of four, false alarm 1e-4; the seed is fixed."""
        generator = SimulationGenerator(6)
        counts = Counter(tuple(permutation(generator, 4).tolist()) for _ in range(24_000))
        assert stats.chisquare([counts[order] for order in permutations(range(4))]).pvalue > 1e-4

    def test_equal_keys_are_drawn_again(self) -> None:
        generator = Scripted(5, 5, 1, 30, 10, 20)
        assert permutation(generator, 3).tolist() == [1, 2, 0]
        assert generator.words == []

    @pytest.mark.parametrize("count", [0, 1, 1000])
    def test_holds_every_index_once(self, count: int) -> None:
        assert sorted(permutation(SystemGenerator(), count).tolist()) == list(range(count))


class TestCoins:
    @pytest.mark.parametrize("below", [1, 3, 10, 2**63 + 1, 2**64])
    def test_integers_stay_below(self, below: int) -> None:
        generator = SystemGenerator()
        assert all(0 <= integer(generator, below) < below for _ in range(100))

    def test_integers_are_uniform_and_reject_the_uneven_rest(self) -> None:
        """Chi-square, false alarm 1e-4; the seed is fixed."""
        generator = SimulationGenerator(9)
        counts = np.bincount([integer(generator, 7) for _ in range(14_000)], minlength=7)
        assert stats.chisquare(counts).pvalue > 1e-4
        assert integer(Scripted(2**64 - 1, 8), 3) == 2  # 2^64 mod 3 = 1: the last word is rejected

    @pytest.mark.parametrize("below", [0, -1, 2**64 + 1])
    def test_refuses_an_empty_range(self, below: int) -> None:
        with pytest.raises(AssertionError):
            integer(SystemGenerator(), below)

    def test_uniforms_are_never_zero(self) -> None:
        assert uniform(Scripted(0, 2**64 - 1), 2).tolist() == [2.0**-53, 1.0]

    @pytest.mark.parametrize("size", [0, 1, 2, 100_001])
    def test_normals_are_normal(self, size: int) -> None:
        """Kolmogorov-Smirnov on the long one, false alarm 1e-4; the seed is fixed."""
        drawn = normal(SimulationGenerator(10), size)
        assert drawn.shape == (size,)
        if size > 2:
            assert stats.kstest(drawn, "norm").pvalue > 1e-4

    def test_directions_are_unit_vectors_with_no_preference(self) -> None:
        """z-test of each mean coordinate at 4.5; the seed is fixed."""
        generator = SimulationGenerator(11)
        drawn = np.array([direction(generator, 3) for _ in range(5000)])
        assert np.allclose((drawn**2).sum(axis=1), 1)
        assert (np.abs(drawn.mean(axis=0)) * sqrt(3 * 5000) < 4.5).all()

    def test_a_zero_vector_is_drawn_again(self) -> None:
        """A word of all ones gives the uniform 1, hence radius 0."""
        assert direction(Scripted(2**64 - 1, 0, 0, 0), 1).tolist() == [1.0]

    def test_refuses_no_dimension(self) -> None:
        with pytest.raises(AssertionError):
            direction(SystemGenerator(), 0)
