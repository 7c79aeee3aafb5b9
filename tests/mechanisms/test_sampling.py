"""Sampling: exact Poisson rates, disjoint batches, uniform permutations, data-free starts."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise, permutations, product
from math import factorial, sqrt
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from core.mechanisms.generator import Generator, SimulationGenerator, SystemGenerator
from core.mechanisms.sampling import (
    KERNELS,
    RATE_UNIT,
    ListedSample,
    ListKernels,
    _groups,
    integer,
    list_by,
    normal,
    padded_length,
    permutation,
    poisson_list,
    poisson_mask,
    rate_parts,
    uniform,
)
from core.mechanisms.shuffle import _places_by, compiled_shuffle, shuffle
from core.native.library import Kernel, address


class Scripted(Generator):
    """Words that a test chose."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def bits(self, count: int) -> NDArray[np.uint64]:
        drawn, self.words = self.words[:count], self.words[count:]
        return np.array(drawn, dtype=np.uint64)


def found(sample: ListedSample | NDArray[np.bool_]) -> ListedSample:
    """Return a sample that is a list."""
    assert isinstance(sample, ListedSample)
    return sample


def _undecided(seed: int, parts: int, units: int) -> int:
    """Return how many groups' leading bits do not decide."""
    groups = _groups(parts)
    leading = groups.leading(SimulationGenerator(seed), -(-units // 8))
    return int((groups._guide.take(leading) < 0).sum())


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

    @pytest.mark.parametrize("rate", [0.5, 0.01, 2.0**-40, 2.0**-64])
    def test_eight_units_that_share_a_draw_are_independent_and_in_at_exactly_the_rate(self, rate: float) -> None:
        """All 256 probabilities, as whole numerators over 2^512, are those of eight independent units."""
        parts = rate_parts(rate)
        edges = [0, *_groups(parts)._exact, RATE_UNIT**8]
        for byte, (below, above) in enumerate(pairwise(edges)):
            ones = byte.bit_count()
            assert above - below == parts**ones * (RATE_UNIT - parts) ** (8 - ones)

    @pytest.mark.parametrize("parts", [1, rate_parts(0.01) + 1, rate_parts(0.3), RATE_UNIT - 1, RATE_UNIT])
    def test_a_draw_is_how_many_exact_bounds_its_512_bits_reach(self, parts: int) -> None:
        """One below a bound, and at it, where as many bits decide as it takes; and at random."""
        exact, random = _groups(parts)._exact, Random(1)
        bounds = [exact[byte] for byte in (0, 1, 2, 3, 127, 254)]
        numbers = [bound + step for bound in bounds for step in (-1, 0, 1)] + [
            random.getrandbits(512) for _ in range(99)
        ]
        for number in numbers:
            if 0 <= number < RATE_UNIT**8:
                leading, rest, last = number >> 496, number >> 448 & (2**48 - 1), number & (2**448 - 1)
                words = np.frombuffer(last.to_bytes(56, "big"), dtype=np.uint64).tolist()
                mask = poisson_mask(Scripted(leading, rest, *words), parts, 8)
                assert np.packbits(mask)[0] == sum(bound <= number for bound in exact)

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
    def test_lengths_are_passed_with_probability_below_2_to_the_minus_84(self, rate: float, units: int) -> None:
        """Against exact binomial tails; and no much shorter length is: Chernoff's bound is tight in the exponent."""
        length = padded_length(rate_parts(rate), units)
        assert stats.binom.sf(length, units, rate) < 2.0**-84
        assert length <= units
        mean = units * rate
        shorter = int(mean + 0.85 * (length - mean))
        assert length <= 4 or length == units or stats.binom.sf(shorter, units, rate) > 2.0**-84

    @pytest.mark.parametrize(("rate", "units"), [(0.01, 4003), (0.2, 1001), (2.0**-40, 800), (0.4, 64)])
    def test_hold_the_sample_that_a_mask_of_the_same_bits_does(self, rate: float, units: int) -> None:
        """Leading bits decide on the same units in both; the tests of the law compare the undecided units."""
        parts = rate_parts(rate)
        length = padded_length(parts, units)
        for seed in range(50):
            rows, included = found(poisson_list(SimulationGenerator(seed), parts, units, length))
            mask = poisson_mask(SimulationGenerator(seed), parts, units)
            assert rows.shape == included.shape == (length,)
            assert ((rows >= 0) & (rows < units)).all()
            assert np.unique(rows[included]).size == included.sum(), "none twice"
            assert np.setxor1d(rows[included], np.flatnonzero(mask)).size <= 8 * _undecided(seed, parts, units)

    @pytest.mark.parametrize("rate", [0.3, 0.02])
    def test_include_each_unit_independently(self, rate: float) -> None:
        """z-tests at 4.5 of all units' and of the last group's rates, and of sizes' variance; seeds are fixed."""
        parts, units = rate_parts(rate), 999
        generator, length = SimulationGenerator(9), padded_length(parts, units)
        masks = np.zeros((2000, units))
        for mask in masks:
            rows, included = found(poisson_list(generator, parts, units, length))
            mask[rows[included]] = 1
        one = rate * (1 - rate)
        assert abs(masks.mean() - rate) < 4.5 * sqrt(one / masks.size)
        assert abs(masks[:, 992:].mean() - rate) < 4.5 * sqrt(one / (2000 * 7))
        sizes = masks.sum(1)
        assert abs(sizes.var() / (units * one) - 1) < 4.5 * sqrt((2 + 1 / (units * one)) / 2000)
        both = ((masks[:, 1:] - rate) * (masks[:, :-1] - rate)).mean() / one
        assert abs(both) < 4.5 / sqrt(2000 * 998)

    def test_give_way_to_the_whole_mask_where_the_sample_is_larger(self) -> None:
        parts, units = rate_parts(0.3), 1001
        mask = poisson_list(SimulationGenerator(4), parts, units, 10)
        assert isinstance(mask, np.ndarray)
        assert mask.shape == (units,)
        listed = poisson_list(SimulationGenerator(4), parts, units, 600)
        rows, included = found(listed)
        assert sorted(rows[included].tolist()) == np.flatnonzero(mask).tolist()

    def test_pad_with_rows_from_all_over(self) -> None:
        empty = found(poisson_list(SystemGenerator(), 1, 500, 20))
        assert not empty.included.any()
        assert np.unique(empty.rows).size == 20, "padding is read from all over, as a sample is"

    def test_lengths_ask_for_the_rate_and_the_number_of_units_alone(self) -> None:
        """Every list of 200 samples has the length that was worked out before any was drawn."""
        parts, units = rate_parts(0.05), 40_000
        length = padded_length(parts, units)
        for kernels in (KERNELS, None):
            generator = SimulationGenerator(11)
            lists = [found(list_by(kernels, generator, parts, units, length)) for _ in range(200)]
            assert {(one.rows.size, one.included.size) for one in lists} == {(length, length)}
            assert len({int(one.included.sum()) for one in lists}) > 50, "samples differ in size"

    @pytest.mark.parametrize("kernels", [KERNELS, None], ids=["compiled", "numpy"])
    def test_every_slot_is_as_likely_for_a_unit_as_for_padding(self, kernels: ListKernels | None) -> None:
        """Chi-squares: of which slots are padding, and of where units of the first half stand; false alarm 1e-4."""
        parts, units = rate_parts(0.2), 60
        length = padded_length(parts, units)
        generator = SimulationGenerator(12)
        padding, low = np.zeros(length), np.zeros(length)
        for _ in range(4000):
            rows, included = found(list_by(kernels, generator, parts, units, length))
            padding += ~included
            low += included & (rows < units // 2)
        assert stats.chisquare(padding).pvalue > 1e-4
        assert stats.chisquare(low).pvalue > 1e-4


def orders_by(kernel: Kernel | None, length: int) -> Counter[tuple[int, ...]]:
    """Return how often each order comes of all choices of places, a word for each."""
    counts: Counter[tuple[int, ...]] = Counter()
    for places in product(*(range(last + 1) for last in range(1, length))):
        words = [-(-place * 2**64 // (last + 2)) + 1 for last, place in enumerate(places)]
        rows, included = np.arange(length), np.arange(length) % 2 == 0
        shuffled(kernel, Scripted(*words), rows, included)
        assert np.array_equal(included, rows % 2 == 0), "both are reordered alike"
        counts[tuple(rows.tolist())] += 1
    return counts


def shuffled(kernel: Kernel | None, generator: Generator, rows: NDArray[np.int64], included: NDArray[np.bool_]) -> None:
    """Shuffle by a kernel or by NumPy."""
    if kernel is None:
        shuffle(generator, rows, included)
    else:
        compiled_shuffle(kernel, generator, len(rows), address(rows), address(included))


def accepts(kernel: Kernel | None, word: int, places: int) -> bool:
    """Say whether a word is taken for one of so many places, others being taken."""
    words = np.full(places - 1, 2**63 + 1, dtype=np.uint64)
    words[-1] = word
    if kernel is None:
        return not _places_by(words)[1]
    rows, included = np.arange(places), np.ones(places, dtype=np.bool_)
    return not kernel(address(words), places, address(rows), address(included))


@pytest.mark.parametrize("kernel", [None if KERNELS is None else KERNELS.shuffle, None], ids=["compiled", "numpy"])
class TestShuffle:
    """The random order of a list's slots."""

    @pytest.mark.parametrize("length", [1, 2, 3, 4, 6])
    def test_choices_of_places_and_orders_are_one_to_one(self, kernel: Kernel | None, length: int) -> None:
        counts = orders_by(kernel, length)
        assert set(counts.values()) == {1}
        assert len(counts) == factorial(length)

    @pytest.mark.parametrize("places", [3, 5, 6, 7, 100, 1000])
    def test_words_stand_for_places_equally_often(self, kernel: Kernel | None, places: int) -> None:
        """At both ends of each place's words: where they are one too many, the first one is refused."""
        for place in {0, 1, places // 2, places - 2, places - 1}:
            first, behind = -(-place * 2**64 // places), -(-(place + 1) * 2**64 // places)
            spare = (behind - first) - 2**64 // places
            assert [accepts(kernel, word, places) for word in (first, first + 1, behind - 1)] == [not spare, True, True]

    def test_a_word_that_stands_for_no_place_is_drawn_again_with_all_others(self, kernel: Kernel | None) -> None:
        generator = Scripted(7, 0, 1, 2**63)
        rows, included = np.arange(3), np.array([True, True, False])
        shuffled(kernel, generator, rows, included)
        assert generator.words == [], "two words, and two again"
        assert rows.tolist() == [0, 1, 2], "[1, 2, 0] by the first two, and then by the second"
        assert included.tolist() == [True, True, False]

    def test_long_lists_are_reordered_by_the_same_words_alike(self, kernel: Kernel | None) -> None:
        rows, included = np.arange(5000), np.arange(5000) % 3 == 0
        shuffled(kernel, SimulationGenerator(3), rows, included)
        again, same = np.arange(5000), np.arange(5000) % 3 == 0
        shuffled(None, SimulationGenerator(3), again, same)
        assert np.array_equal(rows, again)
        assert np.array_equal(included, same)
        assert sorted(rows.tolist()) == list(range(5000))


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
