"""Samples and batches of synthetic records: the law of who is in one, the clip on each, no draw that is infinite."""

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, GradientDifference
from core.queries.sums.streams import Population, RandomSource, poisson_rows
from studies.clipped.heavy_tails import IsotropicPareto, SkewedPareto
from studies.clipped.populations import NoisySlope, RegressionTable

REPLICATES, UNITS, RATE = 2000, 400, 0.03
TRUTH = torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)


def facts(units: int, dimension: int) -> Facts:
    return Facts(units=units, dimension=dimension, adjacency=Adjacency.ZERO_OUT, gradient_bound=9.0)


class TestSamples:
    """|z| < 4.5 throughout: passed by chance in one of 150 000 comparisons each, and there are 400 of one kind."""

    rows, included = poisson_rows(SimulationGenerator(1), REPLICATES, UNITS, RATE)

    def test_sizes_are_binomial(self) -> None:
        sizes = self.included.sum(-1).double()
        spread = UNITS * RATE * (1 - RATE)
        assert abs(float(sizes.mean()) - UNITS * RATE) < 4.5 * sqrt(spread / REPLICATES)
        assert abs(float(sizes.var()) / spread - 1) < 4.5 * sqrt(2 / REPLICATES)

    def test_every_record_is_as_likely_the_first_and_the_last_included(self) -> None:
        counts = torch.bincount(self.rows[self.included], minlength=UNITS).double()
        assert len(counts) == UNITS
        z = (counts - REPLICATES * RATE) / sqrt(REPLICATES * RATE * (1 - RATE))
        assert float(z.abs().max()) < 5.5

    def test_nobody_is_in_a_sample_twice(self) -> None:
        for rows, included in zip(self.rows[:100], self.included[:100], strict=True):
            assert len(rows[included].unique()) == int(included.sum())

    def test_neighbours_are_included_independently(self) -> None:
        present = torch.zeros(REPLICATES, UNITS, dtype=torch.float64)
        present[
            torch.arange(REPLICATES).unsqueeze(-1).expand_as(self.rows)[self.included], self.rows[self.included]
        ] = 1
        both = float((present[:, 1:] * present[:, :-1]).mean())
        assert abs(both - RATE**2) < 4.5 * sqrt(RATE**2 / (REPLICATES * (UNITS - 1)))


def test_each_record_of_a_batch_is_clipped_and_not_their_mean() -> None:
    problem = NoisySlope(IsotropicPareto(1.2, 50.0), 300, 100, 2)
    question = Gradient(sigma=1.0, clip=1.0, batch=16)
    total = problem.batch_sum(question, facts(100, 2), torch.zeros(2, dtype=torch.float64), SimulationGenerator(2))
    lengths = torch.linalg.vector_norm(total, dim=-1)
    assert float(lengths.max()) <= 16
    # All are clipped, so a sum of 16 unit vectors has mean square 16: a clipped mean times 16 would have 256.
    assert abs(float(lengths.square().mean()) - 16) < 4.5 * 16 / sqrt(300)


def test_replicates_have_records_of_their_own() -> None:
    problem = NoisySlope(SkewedPareto(1.5), 50, 100)
    question = Gradient(sigma=1.0, clip=1e9, batch=1)
    total = problem.batch_sum(question, facts(100, 1), torch.zeros(1, dtype=torch.float64), SimulationGenerator(3))
    assert len(total.unique()) == 50


def test_only_gradients_are_asked_of_them() -> None:
    problem = NoisySlope(SkewedPareto(1.5), 2, 100)
    table = RegressionTable(SkewedPareto(1.6), 2, 50, TRUTH, SimulationGenerator(4))
    difference = GradientDifference(sigma=1.0, cap=1.0, batch=1)
    with pytest.raises(AssertionError, match="gradient_difference"):
        problem.batch_sum(difference, facts(100, 1), torch.zeros(1, dtype=torch.float64), SimulationGenerator(0))
    with pytest.raises(AssertionError, match="gradient_difference"):
        table.sample_sum(difference, facts(50, 3), torch.zeros(3, dtype=torch.float64), 0.1, SimulationGenerator(0))


class Planted(Population):
    """A population whose author drew with floats of 32 bits, zero among them."""

    def __init__(self, draw: Callable[[int, int], Tensor]) -> None:
        super().__init__(1, 2**26, 1)
        self._draw = draw

    def excess(self, theta: Tensor) -> Tensor:
        return theta.sum(-1)

    def gradients(self, theta: Tensor, records: int, draws: RandomSource) -> Tensor:
        del draws
        return self._draw(records, 1).unsqueeze(0) + theta.unsqueeze(-2)


class TestGuards:
    facts = Facts(units=2**26, dimension=1, adjacency=Adjacency.ZERO_OUT, gradient_bound=5.0)
    zero = torch.zeros(1, dtype=torch.float64)

    def drawn(self, records: int, draw: Callable[[int, int], Tensor]) -> Tensor:
        question = Gradient(sigma=1.0, clip=5.0, batch=records)
        return Planted(draw).batch_sum(question, self.facts, self.zero, SimulationGenerator(0))

    def test_an_infinite_draw_stops_the_study(self) -> None:
        """Of 2^23 draws of 24 bits none is zero with two seeds in three; with this one some are."""
        uniform = np.random.default_rng(2).random(2**23, dtype=np.float32)
        assert (uniform == 0).any(), "or the guard has nothing to guard against"
        zeros = torch.from_numpy(uniform[uniform < 1e-6].astype(np.float64))
        with pytest.raises(AssertionError, match="infinite"):
            self.drawn(len(zeros), lambda records, _: zeros.pow(-1 / 1.5).unsqueeze(-1)[:records])

    def test_floats_of_32_bits_are_refused_even_before_one_is_infinite(self) -> None:
        with pytest.raises(AssertionError, match="fewer bits"):
            Planted(torch.rand).batch_sum(
                Gradient(sigma=1.0, clip=5.0, batch=3), self.facts, self.zero.float(), SimulationGenerator(0)
            )

    def test_our_own_uniform_draws_are_never_zero(self) -> None:
        drawn = SimulationGenerator(9).uniform(2**18)
        assert drawn.dtype == torch.float64
        assert float(drawn.min()) > 0
        assert float(drawn.max()) <= 1
        assert len(drawn.unique()) > 2**18 - 5, "53 bits, not 24: hardly any are equal"
