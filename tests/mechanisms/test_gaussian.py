"""Discrete Gaussian noise: the table, the strips, the Renyi identity, draws against the exact law."""

from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp

import numpy as np
import pytest
from scipy import stats

from core.mechanisms.cumulative import UNDECIDED, CumulativeTable, Words
from core.mechanisms.gaussian import (
    DISTANCE_CAP,
    DiscreteGaussian,
    discrete_gaussian,
    distance_per_draw,
    noise_symmetric,
    noise_vector,
)
from core.mechanisms.generator import SimulationGenerator, SystemGenerator
from core.mechanisms.strips import Strips, expm1
from tests.support.noise_law import exact_probabilities, judge


def table_probabilities(table: CumulativeTable) -> list[Fraction]:
    """Return the probabilities that a table really draws with, exactly."""
    steps = [int(high) << 64 | int(low) for high, low in zip(table.high, table.low, strict=True)]
    return [Fraction(after - before, 2**128) for before, after in zip([0, *steps], [*steps, 2**128], strict=True)]


def ideal_probabilities(variance: Decimal, last: int) -> list[Decimal]:
    """Return the discrete Gaussian's probabilities on -last..last to 60 digits, by the square of its parameter."""
    with localcontext() as context:
        context.prec = 60
        square = 2 * variance
        half = [(-Decimal(x * x) / square).exp() for x in range(last + 1)]
        total = 2 * sum(half) - 1
        return [half[abs(x)] / total for x in range(-last, last + 1)]


def distance(one: list[Decimal], other: list[Decimal]) -> Decimal:
    """Return the total-variation distance of two laws on the same support."""
    return sum((abs(a - b) for a, b in zip(one, other, strict=True)), Decimal(0)) / 2


def decimals(values: list[Fraction]) -> list[Decimal]:
    return [Decimal(value.numerator) / Decimal(value.denominator) for value in values]


def drawn(law: Strips, *words: int) -> list[int]:
    """Return the draws of a narrow law whose bits begin with these words, and then with what follows on a tie."""
    leading = np.array([word >> 48 for word in words], dtype=np.uint64).astype(np.uint16)
    rest = [word % 2**48 << 16 for word, lead in zip(words, leading, strict=True) if law.table.guide[lead] >= UNDECIDED]
    more = Words(np.array(rest, dtype=np.uint64), SimulationGenerator(0))
    return law.settled(leading, np.zeros(len(words), dtype=np.int64), more).tolist()


class TestTable:
    @pytest.mark.parametrize("parameter", [0.5, 1.0, 1.37, 7.3, 40.0])
    def test_is_the_law_within_its_stated_distance(self, parameter: float) -> None:
        law = Strips(parameter, 0)
        with localcontext() as context:
            context.prec = 60
            drawn = decimals(table_probabilities(law.table))
            ideal = ideal_probabilities(Decimal(parameter) ** 2, law.below + 20)
            far = distance([Decimal(0)] * 20 + drawn + [Decimal(0)] * 20, ideal)
        assert far <= Decimal(law.distance())
        assert far > 0  # 128 bits are not exact, so an empty comparison would show

    @pytest.mark.parametrize("parameter", [1.0, 5.5, pytest.param(300.0, marks=pytest.mark.slow)])
    def test_every_word_draws_what_its_bits_say(self, parameter: float) -> None:
        """The guide, the search and a plain count agree, at random words and around every table value."""
        law = Strips(parameter, 0)
        table = law.table
        steps = [int(high) << 64 | int(low) for high, low in zip(table.high, table.low, strict=True)]
        words = SimulationGenerator(2).bits(2000).tolist()
        for high in table.high.tolist()[:: max(1, law.below // 100)]:
            words += [max(high - 1, 0), min(high + 1, 2**64 - 1)]
        words = [word for word in words if word not in set(table.high.tolist())]
        expected = [sum(step <= word << 64 for step in steps) - law.below for word in words]
        assert drawn(law, *words) == expected

    @pytest.mark.parametrize(("offset", "reached"), [(-1, 0), (0, 1), (1, 1)])
    def test_a_tie_is_decided_by_64_more_bits(self, offset: int, reached: int) -> None:
        law = Strips(2.0, 0)
        position = law.below  # the step from 0 to 1: far from ties of its own
        word, low = int(law.table.high[position]), int(law.table.low[position])
        more = Words(np.array([word % 2**48 << 16, low + offset], dtype=np.uint64), SimulationGenerator(0))
        leading = np.array([word >> 48], dtype=np.uint16)
        assert law.settled(leading, np.zeros(1, dtype=np.int64), more).tolist() == [position + reached - law.below]

    def test_small_parameters_against_the_exact_law(self) -> None:
        """Chi-square per parameter, seeds fixed (false alarm 1e-4 each)."""
        for seed, sigma in enumerate((0.5, 1.0, 1.5, 3.0, 12.0)):
            last = int(14 * sigma)
            expected = 400_000 * exact_probabilities(sigma, last)
            drawn = noise_vector(SimulationGenerator(seed), sigma, 400_000)
            counts = np.bincount(drawn + last, minlength=2 * last + 1)
            kept = expected > 10
            rest = np.array([counts[~kept].sum()]), np.array([expected[~kept].sum()])
            result = stats.chisquare(np.append(counts[kept], rest[0]), np.append(expected[kept], rest[1]))
            assert result.pvalue > 1e-4


def strip_probabilities(law: Strips, raised: Decimal = Decimal(0)) -> list[Decimal]:
    """Return what a law of strips really draws with on -K J..K J - 1, by its tables and the density.

    Args:
        law: of few cells.
        raised: added to each share of a test that is taken, a planted flaw.
    """
    assert law.tests
    width, sigma = 2**law.fine, Decimal(law.parameter)
    *cells, test = decimals(table_probabilities(law.table))
    rho = [(-(Decimal(x) ** 2) / (2 * sigma * sigma)).exp() for x in range(width * law.below + 1)]
    found = []
    for number, (cell, tested) in enumerate(zip(cells, decimals(table_probabilities(law.tests)), strict=True)):
        outer = max(law.below - number, number + 1 - law.below) * width
        for x in range((number - law.below) * width, (number - law.below + 1) * width):
            share = (rho[abs(x)] - rho[outer]) / (rho[outer - width] - rho[outer]) + raised
            found.append(cell / width + test * tested / width * share)
    ends = sum(found)
    return [one / ends for one in found]


class TestStrips:
    @pytest.mark.parametrize(("sigma", "fine"), [(9.0, 1), (40.0, 3), (33.3, 4), (70.0, 1), (100.5, 6)])
    def test_are_the_law_within_the_stated_distance_whatever_the_cells_are(self, sigma: float, fine: int) -> None:
        law = Strips(sigma, fine)
        with localcontext() as context:
            context.prec = 60
            ideal = ideal_probabilities(Decimal(sigma) ** 2, law.below * 2**fine)
            far = distance([*strip_probabilities(law), Decimal(0)], ideal)
            flawed = distance([*strip_probabilities(law, Decimal(2) ** -90), Decimal(0)], ideal)
        assert 0 < far <= Decimal(law.distance())
        assert flawed > Decimal(law.distance())

    def test_every_event_has_its_cell_and_every_place_is_drawn(self) -> None:
        """All leading bits that are decided, with the first and the last place of a cell."""
        law = DiscreteGaussian(5e6).strips
        for place in (0, 2**law.fine - 1):
            cells = np.flatnonzero(law.table.guide < law.test)
            found = law.settled(
                cells.astype(np.uint16),
                np.full(cells.size, place),
                Words(np.empty(0, np.uint64), SimulationGenerator(0)),
            )
            values = np.concatenate([law.table.high, [np.uint64(2**64 - 1)]])
            event = (found - place) // 2**law.fine + law.below
            words = cells.astype(np.uint64) << np.uint64(48)
            assert np.all(values[event] > words)
            assert np.all(values[event[event > 0] - 1] <= words[event > 0])

    def test_the_series_errs_less_than_is_said(self) -> None:
        """At arguments of all sizes that occur, within 2^-47 relatively."""
        d = np.concatenate([np.linspace(0, 0.25, 400)[1:], 2.0 ** -np.arange(3.0, 60.0)])
        with localcontext() as context:
            context.prec = 60
            for one, found in zip(d.tolist(), expm1(d).tolist(), strict=True):
                exact = Decimal(one).exp() - 1
                assert abs(Decimal(found) / exact - 1) < Decimal(2) ** -47

    @pytest.mark.parametrize("sigma", [1024.1, 2000.0, 8191.9, 8192.0, 5e6, 2.0**50])
    def test_wide_laws_have_sixty_four_cells_to_a_parameter_or_up_to_twice_as_many(self, sigma: float) -> None:
        law = DiscreteGaussian(sigma).strips
        assert 64 <= sigma / 2**law.fine < 128
        assert (2 * law.below - 1) / law.twice < 0.23

    @pytest.mark.parametrize("sigma", [0.5, 1.0, 77.7, 1023.9, 1024.1, 5e6, 1e9, 2.0**40, 2.0**50])
    def test_any_parameter_is_met(self, sigma: float) -> None:
        assert discrete_gaussian(sigma).sigma == sigma
        assert 0 < distance_per_draw(sigma) <= DISTANCE_CAP

    @pytest.mark.parametrize("sigma", [0.0, -1.0, 0.4, float("nan"), float("inf"), 2.0**51])
    def test_refuses_what_it_cannot_meet(self, sigma: float) -> None:
        with pytest.raises(AssertionError):
            DiscreteGaussian(sigma)


class TestRenyi:
    @pytest.mark.parametrize(
        ("sigma", "shift", "order"),
        [(1.0, 1, 2), (1.0, 1, 5), (1.0, 2, 3), (2.5, 1, 5), (2.5, 3, 2), (2.5, 3, 5), (9.0, 2, 3), (9.0, 10, 5)],
    )
    def test_moments_are_the_continuous_ones(self, sigma: float, shift: int, order: int) -> None:
        """E_0[(p_m/p_0)^k] = exp((k^2 - k) m^2 / (2 sigma^2)), with the probabilities that the table draws with."""
        law = Strips(sigma, 0)
        probabilities = np.array([float(p) for p in table_probabilities(law.table)])
        # The moment lives around k m: at most 6 sigma here, where 128-bit probabilities are far from their last bits.
        reach = order * shift + 6 * sigma
        support = np.arange(-law.below, law.below + 1)
        inside = np.flatnonzero((np.abs(support) < reach) & (probabilities > 1e-32) & (support - shift > -law.below))
        inside = inside[probabilities[inside - shift] > 0]
        moment = (probabilities[inside] * (probabilities[inside - shift] / probabilities[inside]) ** order).sum()
        assert moment == pytest.approx(exp((order**2 - order) * shift**2 / (2 * sigma**2)), rel=1e-6)


class TestDraws:
    @pytest.mark.parametrize("sigma", [1000.0, 5.0e6, 1.0e9, 2.0**40])
    def test_follow_the_exact_law(self, sigma: float) -> None:
        assert judge(noise_vector(SimulationGenerator(11), sigma, 1_000_000), sigma).passes()

    @pytest.mark.slow
    @pytest.mark.parametrize("sigma", [1000.0, 5.0e6, 1.0e9])
    def test_follow_the_exact_law_over_many_draws(self, sigma: float) -> None:
        assert judge(noise_vector(SimulationGenerator(12), sigma, 20_000_000), sigma).passes()

    def test_reach_the_tails(self) -> None:
        """Poisson test of the count beyond 4.5 sigma (27 expected of 4 million); the seed is fixed."""
        drawn = noise_vector(SimulationGenerator(13), 5.0e6, 4_000_000)
        beyond = int((np.abs(drawn) > 4.5 * 5.0e6).sum())
        expected = 4_000_000 * 2 * stats.norm.sf(4.5)
        assert stats.poisson.cdf(beyond, expected) > 1e-4
        assert stats.poisson.sf(beyond - 1, expected) > 1e-4

    def test_low_bits_are_fair(self) -> None:
        """Chi-square of a wide law's residues modulo 256, which an unfair place in a cell would skew."""
        drawn = noise_vector(SimulationGenerator(14), 5.0e6, 1_000_000)
        assert stats.chisquare(np.bincount(drawn % 256, minlength=256)).pvalue > 1e-4

    @pytest.mark.parametrize("size", [0, 1, 2**15, 2**15 + 1])
    def test_have_the_size_asked_for(self, size: int) -> None:
        drawn = noise_vector(SystemGenerator(), 5.0e6, size)
        assert drawn.shape == (size,)
        assert drawn.dtype == np.int64
        assert np.unique(drawn).size > 0.98 * size or size == 0

    def test_streams_of_one_generator_differ(self) -> None:
        generator = SystemGenerator()
        assert not np.array_equal(noise_vector(generator, 5e6, 9), noise_vector(generator, 5e6, 9))


class TestSymmetric:
    def test_is_symmetric_to_the_bit(self) -> None:
        matrix = noise_symmetric(SystemGenerator(), 5.0e6, 54)
        assert matrix.shape == (54, 54)
        assert np.array_equal(matrix, matrix.T)

    def test_upper_entries_are_the_stream_in_order(self) -> None:
        matrix = noise_symmetric(SimulationGenerator(1), 1e4, 6)
        assert matrix[np.triu_indices(6)].tolist() == noise_vector(SimulationGenerator(1), 1e4, 21).tolist()
