"""Simulations of samples and of streams: the records that are read, the divisor, and the price."""

from math import sqrt

import pytest
import torch

from core.mechanisms.generator import SimulationGenerator
from core.oracle import Status
from core.oracle.simulation import Simulation
from core.privacy.events import Gaussian, Repeated, Sampled
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient
from core.queries.sampling import PoissonSampling, StreamSampling
from studies.clipped.heavy_tails import SkewedPareto
from studies.clipped.populations import NoisySlope, RegressionTable
from tests.support.problems import facts, problem

THETA = torch.tensor([0.4, -1.0, 0.3], dtype=torch.float64)
BATCH = Gradient(sigma=2.0, batch=8)
SAMPLE = Gradient(sigma=2.0)
QUARTER = PoissonSampling(parts=2**62)


def population(replicates: int, units: int) -> tuple[NoisySlope, Facts]:
    public = Facts(units=units, dimension=1, adjacency=Adjacency.ZERO_OUT, gradient_bound=5.0)
    return NoisySlope(SkewedPareto(1.5), replicates, units), public


class TestStreams:
    def test_batches_follow_one_another_until_too_few_units_are_left(self) -> None:
        records, public = problem(20, 3), facts(20, 3)
        stream = StreamSampling(batches=(8,))
        oracle = Simulation(records, public, SimulationGenerator(1), noiseless=True, sampling=stream)
        for first in (0, 8):
            assert oracle.affords(BATCH)
            rows = torch.arange(first, first + 8)
            step = 2.0**-40
            exact = records.integer_sum(BATCH, public, THETA, step, rows=rows).double() * step / 8
            assert torch.allclose(oracle.ask(BATCH, THETA).value, exact, atol=1e-9)
        assert not oracle.affords(BATCH)
        with pytest.raises(AssertionError, match="run out"):
            oracle.ask(BATCH, THETA)

    def test_all_batches_together_are_priced_as_one_answer(self) -> None:
        found, public = population(3, 40)
        oracle = Simulation(found, public, SimulationGenerator(1), sampling=StreamSampling(batches=(8,)))
        for _ in range(5):
            assert oracle.ask(BATCH, torch.zeros(1, dtype=torch.float64)).value.shape == (3, 1)
        assert oracle.release(None, Status.FINISHED).event == Gaussian(sigma=2.0)

    def test_noise_is_that_of_a_batch_s_mean(self) -> None:
        found, public = population(3, 40)
        oracle = Simulation(found, public, SimulationGenerator(1), sampling=StreamSampling(batches=(8,)))
        scale = oracle.ask(BATCH, torch.zeros(1, dtype=torch.float64)).scale
        assert 2.0 * 5 / 8 <= scale <= 1.01 * 2.0 * 5 / 8

    def test_another_batch_than_the_stream_s_is_a_mistake(self) -> None:
        found, public = population(3, 40)
        oracle = Simulation(found, public, SimulationGenerator(1), sampling=StreamSampling(batches=(4,)))
        with pytest.raises(AssertionError, match="its batches"):
            oracle.ask(BATCH, torch.zeros(1, dtype=torch.float64))


class TestSamples:
    @pytest.mark.parametrize("replicates", [None, 3])
    def test_every_replicate_draws_its_own_of_ordinary_records(self, replicates: int | None) -> None:
        oracle = Simulation(
            problem(40, 3),
            facts(40, 3),
            SimulationGenerator(1),
            noiseless=True,
            replicates=replicates,
            sampling=QUARTER,
        )
        first, second = (oracle.ask(SAMPLE, THETA).value for _ in range(2))
        assert first.shape == ((3,) if replicates is None else (3, 3))
        assert not torch.equal(first, second)
        assert len(first.reshape(-1, 3).unique(dim=0)) == (replicates or 1)
        event = oracle.release(None, Status.FINISHED).event
        assert event == Repeated(event=Sampled(numerator=2**62, sigma=2.0), times=2)

    def test_sums_divide_by_the_expected_size_and_by_no_other(self) -> None:
        """A sample mean of v over n units at rate q has variance |v|^2 (1 - q)/(n q) along v.

        It would be zero if the sum were divided by the size that was drawn. |z| < 4.5 is passed by chance in one of
        150 000 cases.
        """
        replicates, units, rate = 4000, 200, 0.25
        table = RegressionTable(SkewedPareto(1.6, 1e-9), replicates, units, torch.zeros(2, dtype=torch.float64),
                                SimulationGenerator(2))  # fmt: skip
        public = Facts(units=units, dimension=2, adjacency=Adjacency.ZERO_OUT, gradient_bound=9.0)
        oracle = Simulation(table, public, SimulationGenerator(3), noiseless=True, sampling=QUARTER)
        theta = torch.tensor([0.0, 1.0], dtype=torch.float64)  # every record's gradient is its features: intercept 1
        along = oracle.ask(SAMPLE, theta).value[:, 1]
        variance = (1 - rate) / (units * rate)
        assert abs(float(along.mean()) - 1) < 4.5 * sqrt(variance / replicates)
        assert abs(float(along.var()) / variance - 1) < 4.5 * sqrt(2 / replicates)

    def test_noise_is_over_the_expected_size(self) -> None:
        oracle = Simulation(problem(40, 3), facts(40, 3), SimulationGenerator(1), sampling=QUARTER)
        whole = Simulation(problem(40, 3), facts(40, 3), SimulationGenerator(1)).ask(SAMPLE, THETA).scale
        assert oracle.ask(SAMPLE, THETA).scale == pytest.approx(4 * whole, rel=1e-12)


def test_a_population_is_never_read_in_full() -> None:
    found, public = population(3, 40)
    with pytest.raises(AssertionError, match="samples"):
        Simulation(found, public, SimulationGenerator(1)).ask(SAMPLE, torch.zeros(1, dtype=torch.float64))
