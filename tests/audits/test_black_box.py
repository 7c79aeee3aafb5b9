"""Attacks on returned models alone: methods under the KL condition against the budget they claim.

Two sets of records differ in one that pulls along the first axis, one way or the other. An attacker guesses which from
the returned point's first entry by a threshold, found on one half of the runs. On the other half, Clopper-Pearson
bounds of 1e-4 either side give an epsilon at delta = 1e-3 that surely is not private. It must stay below that of the
claimed rho, and be above it where noise is a part of what it should be, or the audit is blind. Methods are given few
answers, so that the returned point reveals nearly all of these answers. Seeds are fixed.
"""

from collections.abc import Callable
from math import inf, log, sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import beta
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.methods.kl.adaptive_gd import fit as adaptive_gd
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.kl.condition import KlCondition
from core.methods.kl.proximal_point import fit as proximal_point
from core.methods.kl.proximal_point.spec import ProximalPoint
from core.methods.kl.spider.fit import walk
from core.methods.kl.spider.schedule import SpiderRound, SpiderSchedule
from core.oracle import simulation
from core.oracle.filters import CountingFilter
from core.oracle.simulation import Simulation
from core.privacy.conversions import cks_epsilon
from core.privacy.events import Zcdp
from core.privacy.facts import Facts
from core.queries.gradients import Gradient, Question
from tests.support.pathwise import CanaryProblem, facts_of, project

MU, DELTA, MISTAKE = 0.5, 1e-3, 1e-4
RHO = MU**2 / 2
DIMENSION = 2

Floats = NDArray[np.float64]
Method = Callable[[int, float], Floats]
"""Takes how many runs and the sign of the pull, and returns the first entries of what is returned."""


class Pull(CanaryProblem):
    """n - 1 records that pull to a point far off on the last axis, and one along the first, with a sign."""

    def _gradients(self, theta: Tensor, clip: float) -> tuple[Tensor, Tensor]:
        pull = self._sign * clip * torch.eye(self.dimension, dtype=torch.float64)[0]
        return project(theta - self._centre, clip), pull.expand_as(theta)


def pull(units: int, sign: float, away: float) -> tuple[Pull, Facts]:
    centre = torch.zeros(DIMENSION, dtype=torch.float64)
    centre[-1] = away
    records = Pull(units, centre, sign)
    return records, facts_of(records, 1.0, start_gap=1.0)


def replicates(records: Pull, public: Facts, runs: int, sign: float) -> Simulation:
    return Simulation(
        records, public, SimulationGenerator(int(5 + sign)), replicates=runs, payments=CountingFilter(Zcdp(rho=RHO))
    )


def spider(runs: int, sign: float) -> Floats:
    """One round of two steps: a gradient with most of the budget, and a difference, which pulls do not change."""
    records, public = pull(1000, sign, 1.0)
    one = SpiderRound(1.0, 2, 0.01, 0.1, 0.1, sqrt(1 / (2 * 0.96 * RHO)), sqrt(1 / (2 * 0.04 * RHO)))
    start = torch.zeros(DIMENSION, dtype=torch.float64)
    state = walk(SpiderSchedule(None, (one,), 1, 0.01, 1.0), start, inf, replicates(records, public, runs, sign))
    return state.theta[:, 0].numpy()


def proximal(runs: int, sign: float) -> Floats:
    """One round with one answer."""
    records, public = pull(1000, sign, 1.0)
    settings = ProximalPoint(
        condition=KlCondition(gamma=1.0, kappa=2.0),
        round_schedule="practical",
        inner_steps="practical",
        noise="exact",
        rounds=1,
        solver_steps=2,
    ).plan(public, MU)
    estimate, _ = proximal_point.iterate(settings, replicates(records, public, runs, sign))
    return estimate.theta[:, 0].numpy()


def adaptive(runs: int, sign: float) -> Floats:
    """Two norms and two gradients, which take 0.96 of the budget; far from the centre no step undoes the one before."""
    records, public = pull(200_000, sign, 1000.0)
    one = AdaptiveGradientDescent(radius=1e6, multiple=1.0).plan(public, MU)
    length = one.noise_length(public) * Gradient(sigma=1.0).sensitivity(public)
    settings = one.model_copy(update={"multiple": sqrt(0.96) / (length * one.least_sigma)})
    found = []
    for seed in range(runs):
        generator = SimulationGenerator(2 * seed + (sign > 0))
        oracle = Simulation(records, public, generator, payments=CountingFilter(Zcdp(rho=RHO)))
        found.append(float(adaptive_gd.iterate(settings, oracle)[0].theta[0]))
    return np.array(found)


def surely_told(method: Method, runs: int) -> float:
    """Return an epsilon that the method surely is not private for."""
    inside, outside = (method(runs, sign) for sign in (-1.0, 1.0))
    half = runs // 2
    grid = np.quantile(np.concatenate((inside[:half], outside[:half])), np.linspace(0.5, 0.999, 60))
    threshold = max(grid, key=lambda at: bound((inside[:half] > at).sum(), (outside[:half] > at).sum(), half))
    return bound((inside[half:] > threshold).sum(), (outside[half:] > threshold).sum(), runs - half)


def bound(hits: int, misses: int, runs: int) -> float:
    """Return log((least true positive rate - delta) / largest false positive rate), at least 0."""
    least = float(beta.ppf(MISTAKE, hits, runs - hits + 1)) if hits else 0.0
    most = float(beta.ppf(1 - MISTAKE, misses + 1, runs - misses))
    return max(0.0, log((least - DELTA) / most)) if least > DELTA else 0.0


def quieter(factor: float) -> Callable[[Question, Facts, int, float], float]:
    genuine = simulation.scale_of
    return lambda *arguments: factor * genuine(*arguments)


CLAIM = cks_epsilon(RHO, DELTA)
FAST = pytest.mark.parametrize("method", [spider, proximal])


@FAST
def test_no_attack_passes_the_claim(method: Method) -> None:
    assert 0.2 < surely_told(method, 40_000) < CLAIM


@FAST
def test_half_the_noise_is_caught(method: Method) -> None:
    with patch.object(simulation, "scale_of", quieter(0.5)):
        assert surely_told(method, 40_000) > CLAIM


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_attack_passes_the_claim_of_an_adaptive_run() -> None:
    assert surely_told(adaptive, 5_000) < CLAIM


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_half_of_an_adaptive_run_s_noise_is_caught() -> None:
    """With twice the mu, 30,000 runs are enough for bounds of 1e-4 to pass the claim; fewer than 10,000 are not."""
    with patch.object(simulation, "scale_of", quieter(0.5)):
        assert surely_told(adaptive, 30_000) > CLAIM
