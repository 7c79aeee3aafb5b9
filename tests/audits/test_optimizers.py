"""Gaussian-location audit of both optimizers: the returned model only, against the mu that was priced.

One record with a gradient as long as its bound is present or zeroed. An attacker sees the last iterate of many seeded
runs and takes the best linear statistic, found on one half of them. Its separation, in standard deviations, must not
pass the claimed mu by 4.5 standard errors (false-alarm rate below 1e-5), and must come near it, or the audit is blind.
"""

from math import sqrt

import numpy as np
import pytest
import torch
from torch import Tensor

from core.losses.robust import Huber
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import iterate
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.methods.registry import AnySpec
from core.oracle import Answer
from core.oracle.simulation import Simulation
from core.privacy.facts import Facts
from core.queries.gradients import Question
from core.queries.sums.linear import LinearProblem
from tests.laws.test_optimizers import newton
from tests.support.problems import WEIGHTS, facts

LOSS = Huber(scale=1.0)
UNITS, DIMENSION, REPLICATES = 2000, 3, 10_000
CLAIM = 1.0
SETTINGS: tuple[AnySpec, ...] = (
    NoisyGradientDescentPlan(steps=1, step_size=0.4, mu=CLAIM, radius=1e6),
    NoisyGradientDescentPlan(steps=3, step_size=0.4, mu=CLAIM, radius=1e6),
    newton(1, mu=CLAIM, curvature_share=0.05, eigenvalue_floor=0.2, radius=1e6),
    newton(3, damping=0.3, mu=CLAIM, curvature_share=0.05, eigenvalue_floor=0.2, radius=1e6),
)


class Quieter:
    """A planted bug: an oracle whose noise is a part of what it should be."""

    def __init__(self, real: Simulation, factor: float) -> None:
        self._real, self._factor = real, factor
        self.facts: Facts = real.facts

    def ask(self, question: Question, theta: Tensor) -> Answer:
        quiet = self._real.ask(question.model_copy(update={"sigma": self._factor * question.sigma}), theta)
        return Answer(quiet.value, quiet.scale / self._factor)

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        return initial

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Nothing to keep."""


def records(*, present: bool) -> LinearProblem:
    draws = np.random.default_rng(11)
    features = np.concatenate([np.ones((UNITS, 1)), draws.standard_normal((UNITS, DIMENSION - 1))], axis=1)
    target = np.zeros(UNITS)  # the start is the answer, so that noised Hessians do not hide the canary
    target[0], features[0] = 1e6, (1.0, 1.0, 0.0)  # |psi| = c and |w x| = t: the bound is attained
    here = torch.ones(UNITS, dtype=torch.bool)
    here[0] = present
    return LinearProblem(torch.from_numpy(features), torch.from_numpy(target), here, LOSS, WEIGHTS)


def thetas(settings: AnySpec, seed: int, factor: float, *, present: bool) -> np.ndarray:
    public = facts(UNITS, DIMENSION, LOSS)
    real = Simulation(records(present=present), public, SimulationGenerator(seed), replicates=REPLICATES)
    estimate, _ = iterate(settings, real if factor == 1 else Quieter(real, factor))  # type: ignore[arg-type]  # a planted bug
    return estimate.theta.numpy()


def separation(settings: AnySpec, factor: float = 1.0) -> float:
    """Return the distance of the two worlds in the attacker's best linear statistic, in standard deviations."""
    inside, outside = thetas(settings, 1, factor, present=True), thetas(settings, 2, factor, present=False)
    half = REPLICATES // 2
    within = (np.cov(inside[:half].T) + np.cov(outside[:half].T)) / 2
    direction = np.linalg.solve(within, inside[:half].mean(0) - outside[:half].mean(0))
    one, other = inside[half:] @ direction, outside[half:] @ direction
    return float((one.mean() - other.mean()) / sqrt((one.var() + other.var()) / 2))


ERROR = 4.5 * sqrt(2 / (REPLICATES // 2) * (1 + CLAIM**2 / 8))


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: f"{one.kind}-{one.steps}")
def test_the_returned_model_tells_no_more_than_was_priced(settings: AnySpec) -> None:
    seen = separation(settings)
    assert seen <= CLAIM + ERROR
    assert seen >= 0.85 * CLAIM, "the audit has power"


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: f"{one.kind}-{one.steps}")
def test_noise_a_fifth_too_small_is_caught(settings: AnySpec) -> None:
    assert separation(settings, 0.8) > CLAIM + ERROR


def test_a_dropped_budget_for_steps_is_caught() -> None:
    """Planted: every step spends the whole mu, sqrt(K) too little noise."""
    assert separation(SETTINGS[1], 1 / sqrt(3)) > CLAIM + ERROR
