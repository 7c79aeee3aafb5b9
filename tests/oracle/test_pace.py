"""How long a choice takes tells nothing of the records: what depends on un-noised values ends at public deadlines."""

import time
from collections.abc import Callable, Iterator
from math import isqrt
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy import stats
from threadpoolctl import threadpool_limits

from core.mechanisms.generator import SystemGenerator
from core.mechanisms.lattice import integer_norm
from core.oracle import full, noise
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.pace import LEAST_SECONDS, ROOM, choice_seconds, paced, score_seconds
from core.queries.gradients import LeastGradient, Question
from core.queries.hessians import FirstStationary, LikelyStationary
from core.queries.sums.linear import LinearProblem
from tests.support.problems import LOGISTIC, WEIGHTS, facts

UNITS, WIDTH = 300, 200
SCORED: dict[str, Any] = {"sigma": 2.0, "curvature_clip": 1.0, "alpha": 0.1, "gamma": 0.1}
QUESTIONS: dict[str, Question] = {
    "likely": LikelyStationary(**SCORED),
    "first": FirstStationary(**SCORED, slack=1.0),
    "least": LeastGradient(sigma=2.0),
}
PAIRS = 50
POINTS = {"likely": 1, "first": 1, "least": 200}


def crafted(*, slow: bool) -> LinearProblem:
    """Return records whose mean Hessian has a spectrum all over, or that are all null: zero takes half the time."""
    features = torch.randn(UNITS, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    target = (features[:, 0] > 0).double()
    present = torch.full((UNITS,), slow)
    return LinearProblem(features, target, present, LOGISTIC, WEIGHTS)


def asked(name: str, *, slow: bool, clock: Callable[[], float] = time.perf_counter) -> Callable[[], float]:
    oracle = FullOracle(crafted(slow=slow), facts(UNITS, WIDTH), UnlimitedFilter(), SystemGenerator())
    points = torch.zeros(POINTS[name], WIDTH, dtype=torch.float64)

    def ask() -> float:
        begun = clock()
        oracle.ask(QUESTIONS[name], points)
        return clock() - begun

    return ask


def unequal(name: str, pairs: int = PAIRS, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the p-value of a sign test of the two times of `ask`, in random order: exact, whatever the load does."""
    slow, quick = asked(name, slow=True, clock=clock), asked(name, slow=False, clock=clock)
    slow(), quick()  # deadlines are measured once
    later = 0
    for first in np.random.default_rng().integers(0, 2, pairs):
        before = None if first else quick()
        taken = slow()
        later += taken > (quick() if before is None else before)
    return float(stats.binomtest(later, pairs).pvalue)


@pytest.mark.parametrize("name", ["likely", "first"])
def test_the_time_of_an_answer_does_not_tell_two_sets_of_records_apart(name: str) -> None:
    """Fails once in 20,000 times under equal laws; without deadlines a set is told from the other in all pairs."""
    assert unequal(name) > 5e-5


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Keep eigenvalues to one thread, as trainers do."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def unpaced() -> Iterator[None]:
    def at_once(seconds: float, act: Callable[[], Any]) -> Any:
        del seconds
        return act()

    with patch.object(full, "paced", at_once), patch.object(noise, "paced", at_once):
        yield


@pytest.mark.usefixtures("unpaced")
def test_without_deadlines_they_are_told_apart() -> None:
    """By processor time, which other programs hardly touch."""
    assert unequal("likely", clock=time.process_time) < 5e-5


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_choice_ends_at_its_deadline(name: str) -> None:
    score = 0.0 if name == "least" else score_seconds(WIDTH) * POINTS[name]
    least = score + choice_seconds(POINTS[name], WIDTH if name == "least" else 1)
    assert asked(name, slow=True)() >= least


def test_an_act_ends_at_its_deadline_or_at_the_next() -> None:
    for takes, ends in ((0.0, 0.05), (0.02, 0.05), (0.07, 0.1), (0.15, 0.2)):
        begun = time.monotonic()
        assert paced(0.05, lambda takes=takes: time.sleep(takes) or takes) == takes  # type: ignore[misc]
        taken = time.monotonic() - begun
        multiples = [ends * 2**times for times in range(6)]  # a busy machine takes a later one
        assert any(0 <= taken - one < 0.04 for one in multiples), (takes, taken)


def test_deadlines_leave_room_and_grow_with_the_number_of_points() -> None:
    assert score_seconds(2) >= LEAST_SECONDS
    assert score_seconds(200) > score_seconds(20) or score_seconds(200) == LEAST_SECONDS
    assert choice_seconds(100_000) > 100 * choice_seconds(1)
    assert ROOM > 1


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_norms_of_integers_are_exact(size: int) -> None:
    generator = np.random.default_rng(0)
    for most in (1, 2**20, 2**21, 2**42, 2**61):
        drawn = generator.integers(-most, most, size, endpoint=True)
        assert integer_norm(drawn) == isqrt(sum(value * value for value in drawn.tolist()))
    extreme = np.full(size, -(2**62))
    assert integer_norm(extreme) == isqrt(size * 2**124)
