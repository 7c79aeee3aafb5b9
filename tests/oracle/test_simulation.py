"""The simulation: replicates, silence, and the same scale as a real oracle."""

from math import sqrt
from time import process_time

import pytest
import torch

from core.mechanisms.generator import SimulationGenerator, SystemGenerator
from core.oracle import Oracle, Status
from core.oracle.filters import CountingFilter, UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.simulation import Simulation
from core.privacy.events import Gaussian, Repeated
from core.privacy.facts import Adjacency
from core.queries.gradients import Curvature, Gradient, Question, Secant
from core.queries.sums.linear import LinearProblem
from tests.support.problems import LOSSES, WEIGHTS, facts, problem, rows
from tests.support.situations import SITUATIONS

QUESTIONS = [Gradient(sigma=2.0), Gradient(sigma=1.0, clip=0.5), Curvature(of="hessian", sigma=1.5)]
SLOPE = Secant(sigma=2.0)
each = pytest.mark.parametrize("question", QUESTIONS, ids=str)
THETA = torch.tensor([0.4, -1.0, 0.3], dtype=torch.float64)


def replicated(replicates: int, units: int, dimension: int) -> LinearProblem:
    several = [rows(units, dimension, seed=seed) for seed in range(replicates)]
    x, y, present = (torch.stack(parts) for parts in zip(*several, strict=True))
    return LinearProblem(x, y, present, LOSSES[0], WEIGHTS)


@each
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_scale_is_a_real_oracle(question: Question, adjacency: Adjacency) -> None:
    public = facts(40, 3, adjacency=adjacency)
    real: Oracle = FullOracle(problem(40, 3), public, UnlimitedFilter(), SystemGenerator())
    simulated: Oracle = Simulation(problem(40, 3), public, SimulationGenerator(1))
    assert simulated.ask(question, THETA).scale == real.ask(question, THETA).scale


@each
def test_silence_is_exact(question: Question) -> None:
    public = facts(40, 3)
    oracle = Simulation(problem(40, 3), public, SimulationGenerator(1), noiseless=True)
    answer = oracle.ask(question, THETA)
    assert answer.scale == 0.0
    assert torch.equal(answer.value, problem(40, 3).bounded_sum(question, public, THETA) / 40)


@each
def test_seeds_repeat(question: Question) -> None:
    first, again, other = (
        Simulation(problem(40, 3), facts(40, 3), SimulationGenerator(seed)).ask(question, THETA).value
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@each
def test_replicates_of_records(question: Question) -> None:
    oracle = Simulation(replicated(5, 40, 3), facts(40, 3), SimulationGenerator(1), noiseless=True)
    from_start = oracle.ask(question, THETA).value
    assert from_start.shape[0] == 5
    for replicate in range(5):
        single = Simulation(problem(40, 3, seed=replicate), facts(40, 3), SimulationGenerator(1), noiseless=True)
        torch.testing.assert_close(from_start[replicate], single.ask(question, THETA).value, rtol=1e-12, atol=1e-14)


@each
def test_replicates_of_noise_about_one_data_set(question: Question) -> None:
    """Thresholds of 4.5 standard errors with a fixed seed; deviations on and off the diagonal are the scale."""
    oracle = Simulation(problem(40, 3), facts(40, 3), SimulationGenerator(3), replicates=40_000)
    answer = oracle.ask(question, THETA)
    errors = answer.value - problem(40, 3).bounded_sum(question, facts(40, 3), THETA) / 40
    assert errors.shape == (40_000, *([3] * (errors.ndim - 1)))
    deviations = errors.std(0) / answer.scale
    assert ((deviations - 1).abs() < 4.5 / sqrt(2 * 40_000)).all()
    if errors.ndim == 3:
        assert torch.equal(errors, errors.mT)
    assert oracle.ask(question, answer.value if errors.ndim == 2 else THETA.expand(40_000, 3)).value.isfinite().all()


def test_slopes_in_replicates() -> None:
    """Each replicate between its own two points; deviations are the scale within 4.5 standard errors, seed fixed."""
    situation = SITUATIONS[2]
    records, public = situation.problem(situation.rows(40)), situation.facts(40)
    real: Oracle = FullOracle(records, public, UnlimitedFilter(), SystemGenerator())
    oracle = Simulation(records, public, SimulationGenerator(3), replicates=40_000)
    theta, other = situation.point(1), situation.point(2)
    answer = oracle.ask(SLOPE, theta, other)
    exact = records.bounded_sum(SLOPE, public, theta, other=other) / 40
    assert answer.value.shape == (40_000, 1)
    assert answer.scale == real.ask(SLOPE, theta, other).scale
    assert abs((answer.value - exact).std().item() / answer.scale - 1) < 4.5 / sqrt(2 * 40_000)
    silent = Simulation(records, public, SimulationGenerator(3), noiseless=True, replicates=2)
    both = silent.ask(SLOPE, torch.stack((theta, other)), torch.stack((other, theta))).value
    torch.testing.assert_close(both, torch.stack((exact, -exact)))
    with pytest.raises(AssertionError, match="two points"):
        oracle.ask(SLOPE, theta)
    with pytest.raises(AssertionError, match="one shape"):
        oracle.ask(SLOPE, theta, torch.stack([other] * 2))
    with pytest.raises(AssertionError, match="all else at one"):
        oracle.ask(QUESTIONS[0], theta, other)


def test_a_meter_counts_and_closes() -> None:
    payments = CountingFilter(priced=Repeated(event=Gaussian(sigma=2.0), times=2))
    oracle = Simulation(problem(40, 3), facts(40, 3), SimulationGenerator(1), payments=payments)
    oracle.ask(QUESTIONS[0], THETA)
    assert oracle.affords(QUESTIONS[0])
    oracle.keep({"theta": THETA}, 1)
    oracle.ask(QUESTIONS[0], THETA)
    assert not oracle.affords(QUESTIONS[0])
    with pytest.raises(AssertionError, match="its price"):
        oracle.ask(QUESTIONS[0], THETA)
    assert torch.equal(oracle.resume({})["theta"], THETA)
    assert oracle.release(1, Status.FINISHED).event == Repeated(event=Gaussian(sigma=2.0), times=2)
    with pytest.raises(AssertionError, match="closed"):
        oracle.ask(QUESTIONS[0], THETA)


def test_coins_repeat_with_the_seed() -> None:
    first, second = (Simulation(problem(4, 3), facts(4, 3), SimulationGenerator(9)).randomness for _ in range(2))
    assert torch.equal(first.normal(4), second.normal(4))
    assert [first.integer(100) for _ in range(5)] == [second.integer(100) for _ in range(5)]


def test_no_scope_and_no_system_generator_is_behind_it() -> None:
    with pytest.raises(TypeError, match="SimulationGenerator"):
        Simulation(problem(4, 3), facts(4, 3), SystemGenerator())  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="no block"):
        Simulation(problem(4, 3), facts(4, 3), SimulationGenerator(1)).block("holdout")
    with pytest.raises(AssertionError, match="one set"):
        FullOracle(replicated(2, 40, 3), facts(40, 3), UnlimitedFilter(), SystemGenerator())


def test_many_replicates_take_seconds() -> None:
    """2,000 replicates of 50 steps and a curvature took 0.7 s of a core; ten times that fails, however busy it is."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2000, 1000, 4, generator=generator, dtype=torch.float64)
    y = (torch.rand(2000, 1000, generator=generator) < 0.5).double()
    records = LinearProblem(x, y, torch.ones(2000, 1000, dtype=torch.bool), LOSSES[0], WEIGHTS)
    oracle = Simulation(records, facts(1000, 4), SimulationGenerator(1))
    start = process_time()
    theta = torch.zeros(4, dtype=torch.float64)
    for _ in range(50):
        theta = theta - oracle.ask(QUESTIONS[0], theta).value
    oracle.ask(QUESTIONS[2], theta)
    assert process_time() - start < 10
