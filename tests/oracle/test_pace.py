"""The duration of a choice reveals nothing of the records: work on un-noised values ends at public deadlines."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from math import isqrt
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy import stats
from threadpoolctl import threadpool_limits

from core.mechanisms.generator import SystemGenerator
from core.mechanisms.lattice import integer_norm
from core.oracle import full, noise, pace
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


CORE = str(Path(full.__file__).parents[1])
PRIVATE_WORK = {"integer_norm", "least_eigenvalue", "choose", "first_below"}
"""The functions whose time depends on the records, by name."""


def asking(name: str, *, slow: bool) -> Callable[[], object]:
    """Return what asks an oracle over crafted records one question."""
    oracle = FullOracle(crafted(slow=slow), facts(UNITS, WIDTH), UnlimitedFilter(), SystemGenerator())
    points = torch.zeros(POINTS[name], WIDTH, dtype=torch.float64)
    return lambda: oracle.ask(QUESTIONS[name], points)


def traced(name: str, *, slow: bool) -> tuple[list[float], Counter[str]]:
    """Return the deadlines of an answer in order, and how often each function ran outside of them."""
    ask, deadlines, ran = asking(name, slow=slow), list[float](), Counter[str]()
    ask()  # deadlines are measured once

    def note(frame: FrameType, event: str, given: Any) -> None:
        if CORE not in frame.f_code.co_filename:
            return  # what libraries remember of one call, they need not do at the next
        if event == "call":
            ran[frame.f_code.co_name] += 1
        elif event == "c_call":
            ran[given.__name__] += 1

    def unseen(genuine: Callable[..., Any]) -> Callable[..., Any]:
        def paced_by(seconds: float, act: Callable[[], Any]) -> Any:
            sys.setprofile(None)
            deadlines.append(seconds)
            try:
                return genuine(seconds, act)
            finally:
                sys.setprofile(note)

        return paced_by

    # One that has been patched already, as by a planted bug, stays as it is, and what it runs is seen.
    with ExitStack() as stack:
        for module in (full, noise):
            if module.paced is paced:
                stack.enter_context(patch.object(module, "paced", unseen(paced)))
        sys.setprofile(note)
        try:
            ask()
        finally:
            sys.setprofile(None)
    return deadlines, ran


@pytest.mark.parametrize("name", QUESTIONS)
def test_two_sets_of_records_run_alike_but_for_what_ends_at_equal_deadlines(name: str) -> None:
    """By the functions that ran: no time is measured, so that no load fails it."""
    (ends, ran), (other_ends, other_ran) = (traced(name, slow=slow) for slow in (True, False))
    assert ends == other_ends
    assert len(ends) == {"likely": 2, "first": 2, "least": 1}[name]
    assert ran == other_ran
    assert ran.total() > 100, "it was watched"
    assert not PRIVATE_WORK & set(ran)


@pytest.fixture
def unpaced() -> Iterator[None]:
    def at_once(seconds: float, act: Callable[[], Any]) -> Any:
        del seconds
        return act()

    with patch.object(full, "paced", at_once), patch.object(noise, "paced", at_once):
        yield


@pytest.mark.usefixtures("unpaced")
@pytest.mark.parametrize("name", QUESTIONS)
def test_work_outside_of_deadlines_is_seen(name: str) -> None:
    ends, ran = traced(name, slow=True)
    assert ends == []
    assert PRIVATE_WORK & set(ran)


def timed(name: str, *, slow: bool, clock: Callable[[], float] = time.perf_counter) -> Callable[[], float]:
    ask = asking(name, slow=slow)

    def measure() -> float:
        begun = clock()
        ask()
        return clock() - begun

    return measure


def unequal(name: str, pairs: int = PAIRS, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the p-value of a sign test of the two times of `ask`, in random order: exact, whatever the load does."""
    slow, quick = timed(name, slow=True, clock=clock), timed(name, slow=False, clock=clock)
    slow(), quick()  # deadlines are measured once
    later = 0
    for first in np.random.default_rng().integers(0, 2, pairs):
        before = None if first else quick()
        taken = slow()
        later += taken > (quick() if before is None else before)
    return float(stats.binomtest(later, pairs).pvalue)


@pytest.mark.timing
@pytest.mark.parametrize("name", ["likely", "first"])
def test_the_time_of_an_answer_does_not_tell_two_sets_of_records_apart(name: str) -> None:
    """False alarm 1e-6 under equal laws; without deadlines a set is known from the other in all pairs (p = 2e-15)."""
    assert unequal(name) > 1e-6


@pytest.mark.timing
@pytest.mark.usefixtures("unpaced")
def test_without_deadlines_the_times_tell_them_apart() -> None:
    """By processor time, which other programs hardly touch."""
    assert unequal("likely", clock=time.process_time) < 1e-6


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Keep eigenvalues to one thread, as trainers do."""
    with threadpool_limits(1):
        yield


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_choice_ends_at_its_deadline(name: str) -> None:
    score = 0.0 if name == "least" else score_seconds(WIDTH) * POINTS[name]
    least = score + choice_seconds(POINTS[name], WIDTH if name == "least" else 1)
    assert timed(name, slow=True, clock=time.monotonic)() >= least


class _Clock:
    """A clock that only an act and a sleep move."""

    def __init__(self) -> None:
        self.now = 7.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("takes", "ends"), [(0.0, 0.05), (0.02, 0.05), (0.07, 0.1), (0.15, 0.2), (3.0, 3.2)])
def test_an_act_ends_at_its_deadline_or_at_the_next(takes: float, ends: float) -> None:
    clock = _Clock()
    with patch.object(pace, "time", clock):
        assert paced(0.05, lambda: clock.sleep(takes) or takes) == takes  # type: ignore[func-returns-value]
    assert clock.now == pytest.approx(7.0 + ends)


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
