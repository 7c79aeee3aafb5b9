"""Discrete Gaussian noise: the table, the convolution's bound, the Renyi identity, draws against the exact law."""

from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from core.mechanisms.cumulative import UNDECIDED
from core.mechanisms.gaussian import (
    DISTANCE_CAP,
    CumulativeTable,
    DiscreteGaussian,
    discrete_gaussian,
    distance_per_draw,
    noise_symmetric,
    noise_vector,
    true_sigma,
)
from core.mechanisms.generator import Generator, SimulationGenerator, SystemGenerator
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


class Scripted(Generator):
    """Words that a test chose."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def bits(self, count: int) -> NDArray[np.uint64]:
        drawn, self.words = self.words[:count], self.words[count:]
        return np.array(drawn, dtype=np.uint64)


def asked(table: CumulativeTable, *words: int) -> list[int]:
    """Return what a table asks a generator for where its draws' first 64 bits are these words, in its order."""
    leading = [word >> 48 for word in words]
    packed = np.array(leading + [0] * (-len(leading) % 4), dtype=np.uint16).view(np.uint64)
    rest = [word % 2**48 << 16 for word, lead in zip(words, leading, strict=True) if table.guide[lead] >= UNDECIDED]
    return [*packed.tolist(), *rest]


class TestTable:
    @pytest.mark.parametrize("parameter", [0.5, 1.0, 1.37, 7.3, 40.0])
    def test_is_the_law_within_its_stated_distance(self, parameter: float) -> None:
        table = CumulativeTable(parameter)
        with localcontext() as context:
            context.prec = 60
            drawn = decimals(table_probabilities(table))
            ideal = ideal_probabilities(Decimal(parameter) ** 2, table.last + 20)
            far = distance([Decimal(0)] * 20 + drawn + [Decimal(0)] * 20, ideal)
        assert far <= Decimal(table.distance())
        assert far > 0  # 128 bits are not exact, so an empty comparison would show

    @pytest.mark.parametrize("parameter", [1.0, 5.5, pytest.param(300.0, marks=pytest.mark.slow)])
    def test_every_word_draws_what_its_bits_say(self, parameter: float) -> None:
        """The guide, the search and a plain count agree, at random words and around every table value."""
        table = CumulativeTable(parameter)
        steps = [int(high) << 64 | int(low) for high, low in zip(table.high, table.low, strict=True)]
        words = SimulationGenerator(2).bits(2000).tolist()
        for high in table.high.tolist()[:: max(1, table.last // 100)]:
            words += [max(high - 1, 0), min(high + 1, 2**64 - 1)]
        words = [word for word in words if word not in set(table.high.tolist())]
        expected = [sum(step <= word << 64 for step in steps) - table.last for word in words]
        assert table.draw(Scripted(*asked(table, *words)), len(words)).tolist() == expected

    @pytest.mark.parametrize(("offset", "reached"), [(-1, 0), (0, 1), (1, 1)])
    def test_a_tie_is_decided_by_64_more_bits(self, offset: int, reached: int) -> None:
        table = CumulativeTable(2.0)
        position = table.last  # the step from 0 - 1 to 0: far from ties of its own
        word, low = int(table.high[position]), int(table.low[position])
        drawn = table.draw(Scripted(*asked(table, word), low + offset), 1)
        assert drawn.tolist() == [position + reached - table.last]

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


class TestConvolution:
    @pytest.mark.parametrize(("sigma", "widest"), [(40.0, 12.0), (33.3, 10.0), (90.0, 9.0)])
    def test_is_the_law_within_its_stated_distance(self, sigma: float, widest: float) -> None:
        law = DiscreteGaussian(sigma, widest)
        assert len(law.multipliers) > 1
        narrow = table_probabilities(law.table)
        # All over 2^128: integers convolve exactly and fast.
        law_values = {0: 1}
        for k in law.multipliers:
            wider: dict[int, int] = {}
            for value, weight in law_values.items():
                for x, p in enumerate(narrow, start=-law.table.last):
                    reached = value + k * x
                    wider[reached] = wider.get(reached, 0) + weight * int(p * 2**128)
            law_values = wider
        with localcontext() as context:
            context.prec = 60
            last = max(law_values)
            scale = Decimal(2) ** (128 * len(law.multipliers))
            drawn = [Decimal(law_values.get(x, 0)) / scale for x in range(-last, last + 1)]
            # The exact parameter, s sqrt(sum K^2), is no float; law.sigma is the nearest one.
            variance = Decimal(law.table.parameter) ** 2 * sum(k * k for k in law.multipliers)
            far = distance(drawn, ideal_probabilities(variance, last))
        assert far <= Decimal(law.distance)

    @pytest.mark.parametrize("smoothing", [0.35, 0.5, 0.7])
    def test_the_bound_is_not_idle(self, smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """With too little smoothing the law is visibly off, by no more than e/(1-e), and the promise is refused."""
        monkeypatch.setattr("core.mechanisms.gaussian.SMOOTHING", smoothing)
        with pytest.raises(AssertionError, match="keeps its promise"):
            DiscreteGaussian(40.0, 6.0)
        k, s = 6, smoothing * sqrt(1 + 36)
        ideal = exact_probabilities(s, 200)
        stretched = np.zeros(2 * 200 * k + 1)
        stretched[::k] = ideal
        drawn = np.convolve(ideal, stretched)
        last = (drawn.size - 1) // 2
        far = np.abs(drawn - exact_probabilities(s * sqrt(37), last)).sum() / 2
        error = 2.01 * exp(-2 * np.pi**2 * smoothing**2)
        assert far > 1e-7
        if error < 1:
            assert far <= error / (1 - error)

    @pytest.mark.parametrize("sigma", [0.5, 1.0, 77.7, 1023.9, 1024.1, 5e6, 1e9, 2.0**40, 2.0**50])
    def test_meets_any_parameter_from_above(self, sigma: float) -> None:
        law = discrete_gaussian(sigma)
        square = Fraction(law.table.parameter) ** 2 * sum(k * k for k in law.multipliers)
        assert Fraction(sigma) ** 2 <= square <= Fraction(sigma) ** 2 * (1 + Fraction(1, 2**48))
        assert sigma <= true_sigma(sigma) <= sigma * (1 + 2**-48)
        assert true_sigma(sigma) == law.sigma
        assert 0 < distance_per_draw(sigma) <= DISTANCE_CAP

    @pytest.mark.parametrize("sigma", [0.0, -1.0, 0.4, float("nan"), float("inf"), 2.0**51])
    def test_refuses_what_it_cannot_meet(self, sigma: float) -> None:
        with pytest.raises(AssertionError):
            DiscreteGaussian(sigma)

    def test_refuses_a_table_too_narrow_to_smooth(self) -> None:
        with pytest.raises(AssertionError):
            DiscreteGaussian(40.0, 2.0)


class TestRenyi:
    @pytest.mark.parametrize(
        ("sigma", "shift", "order"),
        [(1.0, 1, 2), (1.0, 1, 5), (1.0, 2, 3), (2.5, 1, 5), (2.5, 3, 2), (2.5, 3, 5), (9.0, 2, 3), (9.0, 10, 5)],
    )
    def test_moments_are_the_continuous_ones(self, sigma: float, shift: int, order: int) -> None:
        """E_0[(p_m/p_0)^k] = exp((k^2 - k) m^2 / (2 sigma^2)), with the probabilities that the table draws with."""
        table = CumulativeTable(sigma)
        probabilities = np.array([float(p) for p in table_probabilities(table)])
        # The moment lives around k m: at most 6 sigma here, where 128-bit probabilities are far from their last bits.
        reach = order * shift + 6 * sigma
        support = np.arange(-table.last, table.last + 1)
        inside = np.flatnonzero((np.abs(support) < reach) & (probabilities > 1e-32) & (support - shift > -table.last))
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
        """Chi-square of a wide law's residues modulo 256, which a gap between multiples would skew."""
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
