"""Gaussian-location audit: one-hot canaries, released answers only; the interval for mu must contain the claim.

Every record has a coordinate of its own. A coin decides for each canary which of two neighbouring records it is; the
released coordinates of both kinds then are two normal samples, mu standard deviations apart. The interval is 4.5
standard errors wide on either side: a false alarm in 150,000 runs, and the generator is forced, so a run repeats.
"""

from math import sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch

from core.losses.robust import Huber
from core.mechanisms.generator import SystemGenerator
from core.oracle import noise
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.privacy.facts import Adjacency
from core.queries.gradients import Curvature, Gradient, Question
from core.queries.sums.linear import LinearProblem
from tests.support.problems import WEIGHT_BOUND, WEIGHTS, facts, repeatable_generator

LOSS = Huber(scale=1.0)
ADJACENCIES = list(Adjacency)
COORDINATES = 250


def separation(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return the distance of two normal samples in their standard deviations, with its standard error."""
    spread = sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2)
    gap = float(first.mean() - second.mean()) / spread
    error = sqrt(1 / first.size + 1 / second.size + gap**2 / (2 * (first.size + second.size - 2)))
    return gap, error


def audit_gradient(question: Gradient, adjacency: Adjacency, asks: int = 160) -> tuple[float, float]:
    """Return mu of a canary's gradient and its standard error, from answers about 250 canaries."""
    draws = np.random.default_rng(5)
    coins = draws.integers(0, 2, COORDINATES).astype(bool)
    features = torch.eye(COORDINATES, dtype=torch.float64) * WEIGHT_BOUND
    target = torch.full((COORDINATES,), 100.0, dtype=torch.float64)
    present = torch.ones(COORDINATES, dtype=torch.bool)
    if adjacency is Adjacency.ZERO_OUT:
        present = torch.from_numpy(coins)
    else:
        target = torch.where(torch.from_numpy(coins), target, -target)
    records = LinearProblem(features, target, present, LOSS, WEIGHTS)
    public = facts(COORDINATES, COORDINATES, LOSS, adjacency)
    oracle = FullOracle(records, public, UnlimitedFilter(), repeatable_generator())
    theta = torch.zeros(COORDINATES, dtype=torch.float64)
    answers = -np.stack([oracle.ask(question, theta).value.numpy() for _ in range(asks)])
    return separation(answers[:, coins].ravel(), answers[:, ~coins].ravel())


def audit_curvature(question: Curvature, adjacency: Adjacency, asks: int = 200) -> tuple[float, float]:
    """Return mu of a canary's matrix: on the axis e_2i or nothing, or on e_2i or e_2i+1."""
    pairs, p = 50, 100
    draws = np.random.default_rng(6)
    coins = draws.integers(0, 2, pairs).astype(bool)
    places = 2 * np.arange(pairs) + (~coins if adjacency is Adjacency.REPLACE_ONE else 0)
    features = torch.zeros(pairs, p, dtype=torch.float64)
    features[range(pairs), places] = WEIGHT_BOUND
    present = torch.ones(pairs, dtype=torch.bool)
    if adjacency is Adjacency.ZERO_OUT:
        present = torch.from_numpy(coins)
    target = torch.full((pairs,), 100.0 if question.of == "score" else 0.0, dtype=torch.float64)
    records = LinearProblem(features, target, present, LOSS, WEIGHTS)
    oracle = FullOracle(records, facts(pairs, p, LOSS, adjacency), UnlimitedFilter(), repeatable_generator())
    theta = torch.zeros(p, dtype=torch.float64)
    diagonal = np.stack([oracle.ask(question, theta).value.diagonal().numpy() for _ in range(asks)])
    seen = diagonal[:, 0::2]
    if adjacency is Adjacency.REPLACE_ONE:  # the best direction: the difference of the two axes
        seen = (seen - diagonal[:, 1::2]) / sqrt(2)
    return separation(seen[:, coins].ravel(), seen[:, ~coins].ravel())


def check(question: Question, adjacency: Adjacency) -> None:
    """Fail unless the interval for mu contains 1/sigma."""
    audit = audit_gradient if isinstance(question, Gradient) else audit_curvature
    mu, error = audit(question, adjacency)
    claim = 1 / question.sigma
    assert mu - 4.5 * error <= claim, f"the answer tells more than claimed: {mu} > {claim}"
    assert mu + 4.5 * error >= claim, f"the answer is noisier than claimed: {mu} < {claim}"


QUESTIONS = [
    Gradient(sigma=1.0),
    Gradient(sigma=2.0, clip=0.4),
    Curvature(of="hessian", sigma=1.0),
    Curvature(of="score", sigma=2.0),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_canaries_are_told_apart_exactly_as_claimed(question: Question, adjacency: Adjacency) -> None:
    check(question, adjacency)


class TestPlantedBugs:
    """Each must be caught."""

    @pytest.mark.parametrize("adjacency", ADJACENCIES)
    @pytest.mark.parametrize("question", [QUESTIONS[0], QUESTIONS[2]], ids=str)
    def test_noise_a_fifth_too_small(self, question: Question, adjacency: Adjacency) -> None:
        genuine = noise.noise_vector, noise.noise_symmetric

        def vector(generator: SystemGenerator, parameter: float, size: int) -> np.ndarray:
            return genuine[0](generator, 0.8 * parameter, size)

        def matrix(generator: SystemGenerator, parameter: float, size: int) -> np.ndarray:
            return genuine[1](generator, 0.8 * parameter, size)

        with (
            patch.multiple(noise, noise_vector=vector, noise_symmetric=matrix),
            pytest.raises(AssertionError, match="more than claimed"),
        ):
            check(question, adjacency)

    def test_no_clipping(self) -> None:
        genuine = LinearProblem.__init__

        def trusting(self: LinearProblem, *arguments: object) -> None:
            genuine(self, *arguments)
            self._gradient_bound = 0.0  # so that no clip ever seems to be below it

        with (
            patch.object(LinearProblem, "__init__", trusting),
            pytest.raises(AssertionError, match="more than claimed"),
        ):
            check(QUESTIONS[1], Adjacency.ZERO_OUT)

    @pytest.mark.parametrize(
        ("name", "question"),
        [("vector_grid", QUESTIONS[0]), ("matrix_grid", QUESTIONS[2])],
        ids=["2B to B", "factor 1"],
    )
    def test_the_other_adjacencys_sensitivity(self, name: str, question: Question) -> None:
        genuine = getattr(noise, name)

        def cheaper(clip: float, units: int, p: int, _: Adjacency, *diameter: float) -> object:
            return genuine(clip, units, p, Adjacency.ZERO_OUT, *diameter)

        with patch.object(noise, name, cheaper), pytest.raises(AssertionError, match="more than claimed"):
            check(question, Adjacency.REPLACE_ONE)

    def test_the_same_noise_each_step(self) -> None:
        """Two answers with one noise: their difference tells the records apart without any doubt."""
        records = {}
        genuine = noise.noise_vector

        def repeated(_generator: SystemGenerator, parameter: float, size: int) -> np.ndarray:
            return genuine(repeatable_generator(), parameter, size)

        for name, planted in (("fresh", genuine), ("repeated", repeated)):
            with patch.object(noise, "noise_vector", planted):
                oracle = FullOracle(
                    LinearProblem(
                        torch.full((4, 1), 0.5, dtype=torch.float64),
                        torch.full((4,), 0.3, dtype=torch.float64),
                        torch.ones(4, dtype=torch.bool),
                        LOSS,
                        WEIGHTS,
                    ),
                    facts(4, 1, LOSS),
                    UnlimitedFilter(),
                    repeatable_generator(),
                )
                points = (torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
                low, high = (oracle.ask(QUESTIONS[0], point).value.item() for point in points)
                records[name] = high - low
        exact = 0.5 * 0.5  # the difference of the two exact means, free of noise
        assert abs(records["repeated"] - exact) < 1e-5
        assert abs(records["fresh"] - exact) > 1e-3
