"""Gradient steps with one matrix: their filter, what noise does to eigenvalues, and covariances that hold.

Noise and data seeds are fixed; the band of every frequency and variance is more than 4.5 standard errors wide.
"""

from math import sqrt

import numpy as np
import pytest
import torch
from torch import Tensor

from core.inference import late_covariance as late
from core.inference.estimate import Sandwich
from core.inference.late_covariance import MIXING, Array, Matrices, Steps, forgotten, late_covariance, repelled
from core.inference.sandwich import infer
from core.inference.settings import PlannedInference
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import fit, iterate
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton, NoisyNewtonPlan
from core.oracle.simulation import Simulation
from core.queries.sums.linear import LinearProblem
from tests.support.problems import LOGISTIC, WEIGHTS, facts, rows

UNITS, REPLICATES = 4000, 1500


@pytest.mark.parametrize(("count", "averaged"), [(1, 1), (5, 1), (5, 5), (20, 10)])
@pytest.mark.parametrize("factor", [-0.4, 0.0, 0.7, 1.0])
def test_the_filter_is_that_of_the_recursion(count: int, averaged: int, factor: float) -> None:
    iterates = torch.zeros(count + 1, count + 1, dtype=torch.float64)  # of each step: the start's and all noises' part
    iterates[0, 0] = 1.0
    for step in range(1, count + 1):
        iterates[step] = factor * iterates[step - 1]
        iterates[step, step] += 1.0
    mean = iterates[count - averaged + 1 :].mean(0)
    left, noise = forgotten(np.array(factor), count, averaged)
    assert left.item() == pytest.approx(mean[0].item(), abs=1e-12)
    assert noise.item() == pytest.approx(mean[1:].square().sum().item(), rel=1e-12)


def symmetric_noise(generator: torch.Generator, *shape: int) -> Tensor:
    drawn = torch.randn(*shape, shape[-1], generator=generator, dtype=torch.float64)
    return drawn.triu() + drawn.triu(1).mT


def test_curvatures_along_noised_eigenvectors_are_told_from_noised_eigenvalues() -> None:
    """A spectrum that the noise covers: the raw eigenvalues are far off, those taken back are right on average."""
    generator = torch.Generator().manual_seed(1)
    truth = torch.logspace(-2, 1, 30, dtype=torch.float64)
    noised = torch.diag(truth) + 0.3 * symmetric_noise(generator, 400, 30)
    values, vectors = torch.linalg.eigh(noised)
    along = (vectors.mT @ (truth.unsqueeze(-1) * vectors)).diagonal(dim1=-2, dim2=-1)
    error, raw = (torch.from_numpy(repelled(values.numpy(), 0.3)) - along).mean(0), (values - along).mean(0)
    assert error.abs().max() < 0.25 * raw.abs().max()
    assert error.abs().mean() < 0.15
    assert raw.abs().max() > 2.0, "without it the smallest are taken for negative"
    assert np.array_equal(repelled(truth.numpy(), 0.0), truth.numpy())


def planned(mu: float, **more: object) -> NoisyNewtonPlan:
    return NoisyNewton(eigenvalue_floor=0.02, **more).plan(facts(UNITS, 4), mu)  # type: ignore[arg-type]  # a test's keywords


def minimiser(problem: LinearProblem) -> Tensor:
    silent = Simulation(problem, facts(UNITS, 4), SimulationGenerator(0), noiseless=True)
    return fit(planned(1.0, steps=60, hessians=50), silent).value.theta


def study(problem: LinearProblem, mu: float, seed: int, radius: float = 3.0) -> tuple[Tensor, Sandwich]:
    """Return the distance from the minimiser and the intervals' covariance, one replicate a run."""
    oracle = Simulation(problem, facts(UNITS, 4), SimulationGenerator(seed), replicates=REPLICATES)
    inference = PlannedInference(
        curvature_sigma=5 / mu,
        score_sigma=3 / mu,
        curvature_floor=1e-3,
        score_floor=1e-4,
        plausible_radius=radius,
    )
    estimate, _ = iterate(planned(mu), oracle)
    return estimate.theta - minimiser(problem), infer(inference, estimate, oracle)


def test_the_private_variance_is_that_of_the_runs_where_all_is_resolved() -> None:
    distance, sandwich = study(LinearProblem(*rows(UNITS, 4), LOGISTIC, WEIGHTS), 3.0, seed=1)
    private = (sandwich.covariance - sandwich.plain).diagonal(dim1=-2, dim2=-1).mean(0) / MIXING
    seen = distance.square().mean(0)
    assert torch.allclose(private / seen, torch.ones(4, dtype=torch.float64), atol=0.2)
    assert not torch.allclose(2 * private / seen, torch.ones(4, dtype=torch.float64), atol=0.2), "m for 2 m"
    assert int(sandwich.slow.max()) == 0


def hidden() -> LinearProblem:
    """A column that hardly differs from the intercept's: the records say next to nothing of it."""
    features, target, present = rows(UNITS, 4)
    features[:, 3] = -0.99 + 0.02 * features[:, 3]
    return LinearProblem(features, target, present, LOGISTIC, WEIGHTS)


@pytest.mark.slow
def test_a_coefficient_that_the_records_do_not_tell_has_a_wide_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    distance, sandwich = study(hidden(), 0.5, seed=2, radius=6.0)
    half = 1.96 * sandwich.covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    covered = (distance.abs() <= half).double().mean(0)
    assert covered.min() > 0.93
    assert half.median(0).values[3] > 10 * half.median(0).values[1]

    def as_claimed(private: Array, *_: object) -> Array:
        return private

    monkeypatch.setattr(late, "_widened", as_claimed)
    _, narrow = study(hidden(), 0.5, seed=2, radius=6.0)
    assert narrow.covariance.diagonal(dim1=-2, dim2=-1).mean(0)[3] < sandwich.covariance[..., 3, 3].mean()


NO_SHIFTS = np.zeros((0, 3))


def test_without_noise_it_is_the_sandwich() -> None:
    factor = np.random.default_rng(3).standard_normal((3, 3))
    curvature, score = factor @ factor.T + np.eye(3), 0.7 * factor @ factor.T + 0.4 * np.eye(3)
    inverse = np.linalg.inv(curvature)
    steps = Steps(count=6, averaged=2, scale=0.0, inverse=inverse)
    told = Matrices(curvature=curvature, deviation=0.0, score=score, score_deviation=0.0, ratio=4.0)
    covariance, slow = late_covariance(steps, told, 50, 1e6, NO_SHIFTS)
    assert np.allclose(covariance, inverse @ score @ inverse / 50, rtol=1e-5)
    assert int(slow) == 0


def test_noise_of_gradients_enters_by_its_own_size() -> None:
    curvature = np.diag([0.2, 0.5, 1.3])
    told = Matrices(curvature=curvature, deviation=0.0, score=curvature, score_deviation=0.0, ratio=4.0)

    def covariance(scale: float, averaged: int) -> Array:
        steps = Steps(count=6, averaged=averaged, scale=scale, inverse=np.linalg.inv(curvature))
        return late_covariance(steps, told, 50, 1e6, NO_SHIFTS)[0]

    exact = covariance(0.0, 3)
    added = covariance(0.1, 3) - exact
    assert np.allclose(added, MIXING * 0.01 / 3 * np.linalg.inv(curvature @ curvature), rtol=1e-6)
    assert np.allclose(3 * added, covariance(0.1, 1) - exact, rtol=1e-6)
    assert sqrt(added[0, 0]) == pytest.approx(sqrt(MIXING / 3) * 0.1 / 0.2, rel=1e-6)


def test_replicates_are_reckoned_as_if_alone() -> None:
    draws = np.random.default_rng(1)
    raw = draws.normal(size=(7, 5, 5))
    curvature = raw @ raw.transpose(0, 2, 1) / 5 + 0.02 * np.eye(5)
    noise = draws.normal(size=(7, 5, 5)) * 0.05
    noise = noise + noise.transpose(0, 2, 1)
    shifts, radius = np.array([[0.0, 0.6, 0.8, 0.0, 0.0]]), np.linspace(1.0, 4.0, 7)

    def covariance(replicates: slice | int) -> tuple[Array, object]:
        told = Matrices(
            curvature[replicates] + noise[replicates],
            0.05,
            0.7 * curvature[replicates] + noise[replicates] / 9,
            0.03,
            2.0,
        )
        steps = Steps(20, 10, 0.01, np.linalg.inv(curvature[replicates]))
        return late_covariance(steps, told, 1000, radius[replicates], shifts)

    together, slow = covariance(slice(None))
    for replicate in range(7):
        alone, counted = covariance(replicate)
        assert np.allclose(together[replicate], alone, rtol=1e-9)
        assert np.asarray(slow)[replicate] == counted
