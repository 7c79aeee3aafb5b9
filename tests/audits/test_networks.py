"""Networks through the real Poisson oracle: grey box, noise law, and canaries whose separation must be the claimed one.

False alarms: the noise law one in 8,000 runs, canaries 4.5 standard errors either side, one in 150,000; generators are
forced and data seeds fixed, so a run repeats.
"""

from collections.abc import Callable, Iterator
from math import sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from core.mechanisms import sampling
from core.mechanisms.generator import SystemGenerator
from core.models.network.layers import Activation, Flatten, Linear
from core.oracle import Oracle, noise
from core.oracle.filters import CountingFilter, UnlimitedFilter
from core.oracle.noise import grid_for
from core.oracle.samples import PoissonOracle
from core.queries.gradients import Gradient
from core.queries.sums.network.problem import NetworkProblem
from core.queries.sums.network.slots import Slots
from tests.support.grey_box import Transcript, Watched, check_neighbours, recording
from tests.support.networks import NETWORKS, facts, problem, records
from tests.support.noise_law import judge
from tests.support.problems import repeatable_generator

UNITS = 200
QUESTION = Gradient(sigma=1.0, clip=0.5)
RATE = sampling.rate_parts(1 / 16)
NAMES = ("pools", "transformer", "adapters")
ROW = int(sampling.poisson_mask(repeatable_generator(), RATE, UNITS).argmax())
"""The first record of the first sample."""
WIDE = ((Linear(units=60), Activation(), Linear(units=1)), (40,), "squared", "all")


def _oracle(held: NetworkProblem, transcript: Transcript, parts: int = RATE) -> PoissonOracle:
    watched = Watched(held, transcript.points)
    return PoissonOracle(watched, facts(UNITS, held.dimension, 0.5), CountingFilter(), repeatable_generator(), parts)


def _descend(oracle: Oracle) -> Tensor:
    """Take a few steps along noised gradients."""
    theta = torch.zeros(oracle.facts.dimension, dtype=oracle.precision)
    for _ in range(6):
        theta = theta - 0.1 * oracle.ask(QUESTION, theta).value
    return theta


def _run(held: NetworkProblem, recorded: Transcript | None = None) -> Transcript:
    transcript = Transcript()
    with recording(transcript, recorded):
        value = _descend(_oracle(held, transcript))
    transcript.released.append(value.numpy().tobytes())
    return transcript


def _neighbour(name: str, kind: str) -> NetworkProblem:
    features, target, present = records(NETWORKS[name], UNITS)
    if kind == "zeroed":
        present[ROW] = False
    elif features.dtype.is_floating_point:
        features[ROW] = torch.nan if kind == "not a number" else torch.inf
    else:
        features[ROW] = -1 if kind == "not a number" else 10**9
    return problem(NETWORKS[name], UNITS, held=(features, target, present))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["zeroed", "not a number", "infinite"])
def test_all_that_leaves_is_a_function_of_bounded_integer_sums_and_coins(name: str, kind: str) -> None:
    first = _run(problem(NETWORKS[name], UNITS))
    replayed = _run(_neighbour(name, kind), first)
    check_neighbours(first, replayed)
    assert any(not np.array_equal(a, b) for a, b in zip(first.integers, replayed.integers, strict=True)), "it counted"


def _bug(name: str) -> Callable[..., tuple[list, Tensor, Tensor]]:
    """Return what a bug would make of measured gradients."""
    genuine = NetworkProblem._measured

    def measured(
        self: NetworkProblem, weights: dict[str, Tensor], slots: Slots, clip: float
    ) -> tuple[list, Tensor, Tensor]:
        terms, scales, kept = genuine(self, weights, slots, clip)
        squares = torch.stack([one.squares for one in terms]).sum(0)
        match name:
            case "no clip":
                scales = kept.to(scales.dtype)
            case "clip of the mean":
                mean = (torch.where(kept, squares, 0.0).sum() / kept.sum()).sqrt()
                scales = kept * (clip / mean).clamp(max=1.0).to(scales.dtype)
            case "realised size":
                scales = scales * (13 / slots.kept.sum().clamp(min=1))
            case "norm of one tensor":
                scales = kept * (clip / terms[-1].squares.sqrt()).clamp(max=1.0).to(scales.dtype)
        return terms, scales, kept

    return measured


@pytest.mark.parametrize("name", ["no clip", "clip of the mean", "realised size", "norm of one tensor"])
def test_planted_bugs_are_caught_by_the_grey_box(name: str) -> None:
    def loud(present: bool) -> NetworkProblem:
        features, target, here = records(NETWORKS["perceptron"], UNITS)
        features[ROW] *= 30
        here[ROW] = present
        return problem(NETWORKS["perceptron"], UNITS, micro=64, held=(features, target, here))

    with patch.object(NetworkProblem, "_measured", _bug(name)):
        first = _run(loud(True))
        with pytest.raises(AssertionError, match="within their sensitivity"):
            check_neighbours(first, _run(loud(False), first))


def _noise(parameter_share: float = 1.0) -> tuple[np.ndarray, float]:
    """Return the integers that an oracle added to a network's sums, and their claimed parameter."""
    held = problem(WIDE, UNITS)
    transcript, genuine = Transcript(), noise.noise_pieces

    def drawn(generator: SystemGenerator, parameter: float, size: int) -> Iterator[tuple[int, np.ndarray]]:
        return genuine(generator, parameter_share * parameter, size)

    oracle = _oracle(held, transcript)
    grid = grid_for(QUESTION, oracle.facts, UNITS)
    theta = torch.zeros(held.dimension, dtype=torch.float64)
    found = []
    with recording(transcript, None), patch.object(noise, "noise_pieces", drawn):
        for _ in range(8):
            answer = oracle.ask(QUESTION, theta).value.numpy() * (UNITS * RATE / sampling.RATE_UNIT)
            found.append(np.rint(answer / grid.step).astype(np.int64) - transcript.integers[-1])
    return np.concatenate(found), grid.parameter(QUESTION.sigma)


def test_noise_has_its_law_and_a_twentieth_too_little_is_seen() -> None:
    draws, parameter = _noise()
    assert draws.size > 15_000
    assert judge(draws, parameter).passes()
    draws, _ = _noise(0.95)
    assert not judge(draws, parameter).passes()


CANARIES = 200


def _audit(layers: tuple, given: tuple[int, ...], parts: int, asks: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return answers about canaries that are there and that are not, in claimed standard deviations, and mu."""
    coins = torch.from_numpy(np.random.default_rng(5).integers(0, 2, CANARIES).astype(bool))
    features = torch.eye(CANARIES) * 3
    target = torch.full((CANARIES,), 100.0, dtype=torch.float64)
    start = torch.zeros(CANARIES)
    held = NetworkProblem(features, target, coins, layers, "squared", given, start)
    question = Gradient(sigma=1.5, clip=0.7)
    public = facts(CANARIES, CANARIES, 0.7, 64)
    oracle = PoissonOracle(held, public, UnlimitedFilter(), repeatable_generator(), parts)
    theta = torch.zeros(CANARIES, dtype=torch.float64)
    answers = [oracle.ask(question, theta) for _ in range(asks)]
    seen = -np.stack([one.value.numpy() / one.scale for one in answers])
    return seen[:, coins.numpy()].ravel(), seen[:, ~coins.numpy()].ravel(), 1 / question.sigma


CANARY_NETWORKS = {
    "outer products": ((Linear(units=1, bias=False),), (CANARIES,)),
    "rows": ((Linear(units=1, bias=False), Flatten()), (1, CANARIES)),
}


def _check_canaries(name: str, rate: float) -> None:
    """Fail unless canaries shift answers as their clip, the noise and the rate say."""
    there, absent, mu = _audit(*CANARY_NETWORKS[name], sampling.rate_parts(rate), asks=160)
    for seen, shift, variance in ((there, rate * mu, 1 + rate * (1 - rate) * mu**2), (absent, 0.0, 1.0)):
        assert abs(seen.mean() - shift) <= 4.5 * sqrt(variance / seen.size), "answers shift as claimed"
        # Mixtures of two near normals: their fourth moment is below 4 variances squared.
        assert abs(seen.var() - variance) <= 4.5 * variance * sqrt(3 / seen.size), "answers spread as claimed"


@pytest.mark.parametrize("name", CANARY_NETWORKS)
@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_canaries_are_told_apart_exactly_as_claimed(name: str, rate: float) -> None:
    _check_canaries(name, rate)


@pytest.mark.parametrize("name", CANARY_NETWORKS)
def test_canaries_betray_noise_a_fifth_too_small_and_a_wrong_rate(name: str) -> None:
    genuine, rare, rare_list = noise.noise_vector, sampling.poisson_mask, sampling.poisson_list

    def small(generator: SystemGenerator, parameter: float, size: int) -> np.ndarray:
        return genuine(generator, 0.8 * parameter, size)

    def often(generator: SystemGenerator, parts: int, units: int) -> np.ndarray:
        return rare(generator, min(sampling.RATE_UNIT, 2 * parts), units)

    def often_listed(
        generator: SystemGenerator, parts: int, units: int, length: int
    ) -> sampling.ListedSample | np.ndarray:
        return rare_list(generator, min(sampling.RATE_UNIT, 2 * parts), units, length)

    with patch.object(noise, "noise_vector", small), pytest.raises(AssertionError, match="as claimed"):
        _check_canaries(name, 1.0)
    planted = patch.multiple(sampling, poisson_mask=often, poisson_list=often_listed)
    with planted, pytest.raises(AssertionError, match="as claimed"):
        _check_canaries(name, 0.25)
