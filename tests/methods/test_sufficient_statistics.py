"""Least squares from noised X'X and X'y: exact without noise, priced as declared, noised as its neighbours need.

Seeds are fixed; the bands of standard deviations are 4.5 standard errors wide and the lattice's thousandth.
"""

from collections import Counter
from math import sqrt

import numpy as np
import pytest
import torch

from core.base.errors import Diverged, Invalid
from core.inference.eigen import floor_eigenvalues
from core.losses.losses import Clip, Squared
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import fit, iterate
from core.methods.m_estimation.sufficient_statistics.spec import SufficientStatistics
from core.methods.registry import PLANS
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.oracle.simulation import Simulation
from core.privacy.events import compose
from core.privacy.facts import Adjacency, Facts
from core.queries.sums.linear import LinearProblem
from tests.support.problems import repeatable_generator

UNITS, DIMENSION, REPLICATES = 4000, 3, 4000
LARGEST = 2.0
"""No row is longer."""
CLIP = Clip(bound=LARGEST)


def records() -> tuple[torch.Tensor, torch.Tensor]:
    draws = np.random.default_rng(2)
    features = np.concatenate([np.ones((UNITS, 1)), draws.uniform(-1, 1, (UNITS, DIMENSION - 1))], axis=1)
    target = np.clip(features @ [0.1, 0.4, -0.3] + draws.normal(0, 0.1, UNITS), -1, 1)
    return torch.from_numpy(features), torch.from_numpy(target)


def public(adjacency: Adjacency = Adjacency.ZERO_OUT, ridge: float = 0.0) -> Facts:
    return Facts(
        units=UNITS,
        dimension=DIMENSION,
        adjacency=adjacency,
        gradient_bound=LARGEST,
        curvature_bound=LARGEST**2,
        target_bound=1.0,
        ridge=ridge,
    )


def problem() -> LinearProblem:
    return LinearProblem(*records(), torch.ones(UNITS, dtype=torch.bool), Squared(), CLIP)


def simulation(known: Facts, *, noiseless: bool = False, replicates: int | None = None) -> Simulation:
    return Simulation(problem(), known, SimulationGenerator(1), noiseless=noiseless, replicates=replicates)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_without_noise_it_is_least_squares(ridge: float) -> None:
    known = public(ridge=ridge)
    found = fit(SufficientStatistics(eigenvalue_floor=1e-9).plan(known, 1.0), simulation(known, noiseless=True)).value
    features, target = (part.numpy() for part in records())
    matrix = features.T @ features / UNITS + ridge * np.eye(DIMENSION)
    assert np.allclose(found.theta.numpy(), np.linalg.solve(matrix, features.T @ target / UNITS), atol=1e-12)


def test_half_of_mu_squared_each_and_all_of_it() -> None:
    settings = SufficientStatistics().plan(public(), 0.8)
    assert [1 / question.sigma for question in settings.questions()] == pytest.approx([0.8 / sqrt(2)] * 2)
    price = compose(Counter(settings.schedule(public())))
    assert fit(settings, simulation(public())).event == price
    assert PLANS.validate_json(settings.model_dump_json()) == settings
    assert settings.plan(public(), 3.0) == settings
    assert None not in settings.model_dump().values()


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_noise_is_what_neighbours_need_not_what_is_printed(adjacency: Adjacency) -> None:
    """Under replace_one sqrt(2) x_max^2 and 2 x_max y_max; the printed x_max^2 is seen to be too little."""
    known = public(adjacency)
    settings = SufficientStatistics(eigenvalue_floor=1e-9).plan(known, 4.0)
    oracle = simulation(known, replicates=REPLICATES)
    zero = torch.zeros(DIMENSION, dtype=torch.float64)
    vector, matrix = (oracle.ask(question, zero).value for question in settings.questions())
    share, band = 4.0 / sqrt(2), 4.5 / sqrt(2 * REPLICATES) + 0.002
    moves = (2.0, sqrt(2)) if adjacency is Adjacency.REPLACE_ONE else (1.0, 1.0)
    for seen, size in ((vector[:, 1], moves[0] * LARGEST), (matrix[:, 0, 1], moves[1] * LARGEST**2)):
        ratio = float(seen.std()) / (size / (share * UNITS))
        assert abs(ratio - 1) < band
    if adjacency is Adjacency.REPLACE_ONE:
        printed = float(matrix[:, 0, 1].std()) / (LARGEST**2 / (share * UNITS))
        assert abs(printed - 1) > band


def test_the_floor_holds_and_is_counted() -> None:
    known = public()
    settings = SufficientStatistics().plan(known, 0.01)
    found, _ = iterate(settings, simulation(known, replicates=50))
    assert settings.eigenvalue_floor is not None
    assert found.floored is not None
    assert int(found.floored.max()) > 0
    assert floor_eigenvalues(torch.zeros(2, 2), settings.eigenvalue_floor)[1] == 2
    assert torch.linalg.vector_norm(found.theta, dim=-1).max() < 10


def test_a_real_oracle_says_the_same() -> None:
    known = public()
    settings = SufficientStatistics(eigenvalue_floor=1e-6).plan(known, 1e5)
    oracle = FullOracle(problem(), known, CountingFilter(), repeatable_generator())
    exact = fit(settings, simulation(known, noiseless=True)).value.theta
    assert torch.allclose(fit(settings, oracle).value.theta, exact, atol=1e-4)
    with pytest.raises(Diverged):
        fit(settings.model_copy(update={"radius": 1e-3}), simulation(known))


def test_another_loss_is_refused() -> None:
    with pytest.raises(Invalid) as refused:
        SufficientStatistics().plan(public().model_copy(update={"target_bound": None}), 1.0)
    assert refused.value.fields[0].pointer == "/optimizer/kind"
