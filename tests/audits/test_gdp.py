"""Gaussian-DP audit: the best test between two neighbours does no better than the claimed mu allows.

200,000 answers about each of two neighbouring sets of records, and the best statistic there is for normal noise: the
projection on the difference of their means. The area under its curve is at most Phi(mu / sqrt 2), and that of a pair at
distance d of the claim is Phi(d mu / sqrt 2). Seeds are fixed; a false alarm at 4 standard errors is 1 in 30,000.
"""

from dataclasses import dataclass, replace
from math import sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy.stats import norm, rankdata
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.oracle import noise, simulation
from core.oracle.simulation import Simulation
from core.privacy.facts import Adjacency
from core.queries.gradients import Curvature, Gradient, Question, Secant
from tests.support.problems import WEIGHT_BOUND
from tests.support.situations import SITUATIONS, Situation, ask

RUNS = 200_000
OTHERS = 4
FAR = 100.0
_, HUBER, JOINT, _, MULTINOMIAL, *_ = (replace(one, features=2) for one in SITUATIONS)
FIRST, SECOND = (WEIGHT_BOUND * axis for axis in torch.eye(2, dtype=torch.float64))


@dataclass(frozen=True)
class Neighbours:
    """Two records that one place may hold, asked about where they differ most."""

    situation: Situation
    question: Question
    x: Tensor
    y: float
    other_x: Tensor
    other_y: float
    theta: Tensor
    end: Tensor
    reached: float
    """Part of the claim that this pair reaches, in what is released."""

    def __str__(self) -> str:
        return f"{self.situation.name}, {getattr(self.question, 'of', self.question.kind)}"


def at(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


ZERO, ONE = at(0.0, 0.0), at(0.0, 0.0, 1.0)
GRADIENT, SLOPE = Gradient(sigma=1.0), Secant(sigma=1.0)
HESSIAN, SCORE = Curvature(of="hessian", sigma=1.0), Curvature(of="score", sigma=2.0)
# Two rows almost orthogonal to a far theta, one on either side: each is surely what the other was seen to be.
NEAR, ACROSS = (WEIGHT_BOUND * at(sign * 1e-3, 1.0) / sqrt(1 + 1e-6) for sign in (1, -1))
PULL = 1e6 * at(1, 0, 0, 0, -1, 0)
PAIRS = [
    Neighbours(HUBER, GRADIENT, FIRST, FAR, FIRST, -FAR, ZERO, ZERO, 1.0),
    Neighbours(HUBER, HESSIAN, FIRST, 0.0, SECOND, 0.0, ZERO, ZERO, 1.0),
    Neighbours(HUBER, SCORE, FIRST, FAR, SECOND, FAR, ZERO, ZERO, 1.0),
    Neighbours(HUBER, SLOPE, FIRST, FAR, FIRST, -FAR, ZERO, at(0.1, 0.0), 1.0),
    Neighbours(JOINT, GRADIENT, FIRST, FAR, FIRST, -FAR, ONE, ONE, 0.97288),
    Neighbours(JOINT, HESSIAN, FIRST, 1.3449, SECOND, 1.3449, ONE, ONE, 0.72461),
    Neighbours(JOINT, SCORE, FIRST, FAR, SECOND, FAR, ONE, ONE, 0.96072),
    Neighbours(JOINT, SLOPE, FIRST, FAR, FIRST, -FAR, ONE, at(0.1, 0.0, 1.0), 0.96072),
    Neighbours(MULTINOMIAL, GRADIENT, NEAR, 3.0, ACROSS, 1.0, PULL, PULL, 1.0),
]
every = pytest.mark.parametrize("pair", PAIRS, ids=str)


def released(pair: Neighbours, x: Tensor, y: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what is released of many answers with one record in place, and the exact answer."""
    rows, targets, _ = pair.situation.rows(OTHERS + 1, seed=3)
    rows[0], targets[0] = x, y
    records = pair.situation.problem((rows, targets, torch.ones(OTHERS + 1, dtype=torch.bool)))
    public = pair.situation.facts(OTHERS + 1, Adjacency.REPLACE_ONE)
    oracle = Simulation(records, public, SimulationGenerator(seed), replicates=RUNS)
    answers = oracle.ask(pair.question, pair.theta, pair.end if pair.question.places == "pair" else None).value
    exact = ask(records, pair.question, public, pair.theta, pair.end) / (OTHERS + 1)
    if exact.ndim == 1:
        return answers.numpy(), exact.numpy()
    upper = torch.triu_indices(*exact.shape)
    return answers[:, upper[0], upper[1]].numpy(), exact[upper[0], upper[1]].numpy()


def area(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return the part of pairs that a statistic orders rightly, with its standard error (DeLong and others 1988)."""
    ranks = rankdata(np.concatenate((first, second)))
    above = (ranks[: len(first)] - rankdata(first)) / len(second)
    below = 1 - (ranks[len(first) :] - rankdata(second)) / len(first)
    return float(above.mean()), sqrt(above.var() / len(first) + below.var() / len(second))


def check(pair: Neighbours) -> None:
    """Fail where neighbours are distinguished better than claimed, or worse than this pair should be."""
    (first, mean), (second, other) = (
        released(pair, x, y, seed) for x, y, seed in ((pair.x, pair.y, 11), (pair.other_x, pair.other_y, 12))
    )
    found, error = area(first @ (mean - other), second @ (mean - other))
    mu = 1 / pair.question.sigma
    assert found <= norm.cdf(mu / sqrt(2)) + 4 * error, "told apart better than claimed"
    # The lattice charges up to two thousandths more than the sensitivity.
    assert found >= norm.cdf(0.998 * pair.reached * mu / sqrt(2)) - 4 * error, "noisier than charged"
    assert found <= norm.cdf(pair.reached * mu / sqrt(2)) + 4 * error, "better than this pair can be"


@every
def test_neighbours_are_told_apart_no_better_than_claimed(pair: Neighbours) -> None:
    check(pair)


class TestPlantedBugs:
    """Each must be caught."""

    @pytest.mark.parametrize("pair", [PAIRS[1], PAIRS[2], PAIRS[6]], ids=str)
    def test_matrix_factor_one(self, pair: Neighbours) -> None:
        genuine = noise.matrix_grid

        def cheaper(clip: float, units: int, p: int, _: Adjacency) -> object:
            return genuine(clip, units, p, Adjacency.ZERO_OUT)

        with patch.object(noise, "matrix_grid", cheaper), pytest.raises(AssertionError, match="better than claimed"):
            check(pair)

    @pytest.mark.parametrize("pair", [PAIRS[0], PAIRS[3], PAIRS[4], PAIRS[7], PAIRS[8]], ids=str)
    def test_one_bound_in_place_of_two(self, pair: Neighbours) -> None:
        genuine = noise.vector_grid

        def cheaper(clip: float, units: int, p: int, _: Adjacency, *diameter: float) -> object:
            return genuine(clip, units, p, Adjacency.ZERO_OUT, *diameter)

        with patch.object(noise, "vector_grid", cheaper), pytest.raises(AssertionError, match="better than claimed"):
            check(pair)

    @every
    def test_noise_a_fifth_too_small(self, pair: Neighbours) -> None:
        genuine = simulation.scale_of
        with (
            patch.object(simulation, "scale_of", lambda *arguments: 0.8 * genuine(*arguments)),
            pytest.raises(AssertionError, match="better than"),
        ):
            check(pair)

    @every
    def test_noise_of_another_mu(self, pair: Neighbours) -> None:
        genuine = simulation.scale_of
        with (
            patch.object(simulation, "scale_of", lambda *arguments: 1.1 * genuine(*arguments)),
            pytest.raises(AssertionError, match="noisier"),
        ):
            check(pair)
