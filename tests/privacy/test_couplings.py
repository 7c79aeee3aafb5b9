"""Every kind of event names the coupling that its price rests on, and here exactly that is tested, once for each.

A check gets what a flaw of its own kind would be, and must see it: `flawed` plants one.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from math import log
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from core.mechanisms import sampling
from core.mechanisms.exponential import weights
from core.mechanisms.generator import Generator
from core.mechanisms.laplace import NONE
from core.oracle import Oracle, runs
from core.oracle.filters import ORDERS, UnlimitedFilter
from core.oracle.full import FullOracle, ReadSelection
from core.oracle.noise import grid_for
from core.oracle.runs import RunsOracle
from core.oracle.samples import StreamOracle
from core.privacy import events
from core.privacy.events import Composed, Coupling, Event, Gaussian, Selected, Zcdp
from core.privacy.renyi import cost_nano
from core.queries.gradients import Gradient, Question
from core.queries.sums.linear import LinearProblem
from tests.support import grey_box
from tests.support.problems import LOGISTIC, WEIGHTS, facts, repeatable_generator, rows
from tests.support.slots import KERNELS, cases, lists_of

UNITS, X = 40, 7
QUESTION = Gradient(sigma=2.0)
PUBLIC = facts(UNITS, 3)
THETA = torch.tensor([0.3, -2.0, 1.0], dtype=torch.float64)


def neighbours() -> tuple[LinearProblem, LinearProblem]:
    """Return records with unit x, and with x null; x is a large one."""
    features, target, present = rows(UNITS, 3)
    features[X] *= 100
    target[X] = float(features[X] @ THETA < 0)  # far from what is predicted, so that its gradient is long
    without = present.index_fill(0, torch.tensor(X), value=False)
    one, other = (
        LinearProblem(features.clone(), target.clone(), held, LOGISTIC, WEIGHTS) for held in (present, without)
    )
    return one, other


def in_steps(held: LinearProblem, question: Question, selected: ReadSelection) -> Tensor:
    """Return a sum on the grid's part steps."""
    step = grid_for(question, PUBLIC, UNITS).part_step
    return held.integer_sum(question, PUBLIC, THETA, step, rows=selected.rows, included=selected.included).double()


def check_shift(*, flawed: bool) -> None:
    """Equal coins: answers differ by the sums' difference, which is within the sensitivity. Flaw: fresh coins."""
    grid = grid_for(QUESTION, PUBLIC, UNITS)
    pair, keys = neighbours(), (bytes(32), bytes([flawed]) + bytes(31))
    told = [
        FullOracle(held, PUBLIC, UnlimitedFilter(), repeatable_generator(key)).ask(QUESTION, THETA).value
        for held, key in zip(pair, keys, strict=True)
    ]
    moved = ((told[0] - told[1]) * UNITS / grid.step).round()
    whole = ReadSelection(UNITS, UNITS)
    sums = [(in_steps(held, QUESTION, whole) / 2**grid.part_bits + 0.5).floor() for held in pair]
    assert torch.equal(moved, sums[0] - sums[1]), "the noise is the same"
    assert 0 < moved.norm() <= grid.sensitivity


def check_slot(*, flawed: bool) -> None:
    """All orders of five slots, x in the sample or not; flaw: lists in ascending order."""

    def unshuffled(generator: Generator, *rest: object) -> None:
        generator.bits(3)
        del rest

    case = next(case for case in cases(8) if case.name == "perceptron, gradient")
    grid = grid_for(case.question, case.public, 8)
    x, null = case.make(None), case.make(2)
    planted: AbstractContextManager[Any] = (
        patch.multiple(sampling, shuffle=unshuffled, compiled_shuffle=lambda _, *rest: unshuffled(*rest))
        if flawed
        else nullcontext()
    )
    with planted:
        inside, outside = (lists_of(KERNELS[0], sample, 4) for sample in ({0, 2, 6}, {0, 6}))

    def total(held: Any, listed: sampling.ListedSample) -> bytes:
        return case.sum(held, torch.from_numpy(listed.rows), torch.from_numpy(listed.included))

    assert Counter(total(x, one) for one in outside) == Counter(total(null, one) for one in outside), "x absent"
    assert Counter(total(null, one) for one in inside) == Counter(total(null, one) for one in outside), "x zeroed"
    moved = [np.frombuffer(total(x, one), np.int64) - np.frombuffer(total(null, one), np.int64) for one in inside]
    assert 0 < max(np.linalg.norm(one) for one in moved) / 2**grid.part_bits <= grid.sensitivity, "x in its slot"


def check_likelihoods(*, flawed: bool) -> None:
    """Scores moved by at most D: log-probabilities move by a range of 2 D/P. Flaw: half the parameter."""
    parameter, moved = 5.0, 3
    draws = np.random.default_rng(1)
    used = parameter / 2 if flawed else parameter
    widest = 0.0
    for _ in range(200):
        scores = draws.integers(0, 30, 6)
        other = scores + draws.integers(-moved, moved + 1, 6)
        chances = [weights(one.tolist(), used) for one in (scores, other)]
        ratios = [log(Fraction(a, b)) for a, b in zip(*chances, strict=True)]
        widest = max(widest, max(ratios) - min(ratios))
    assert 0.9 * 2 * moved / parameter < widest <= 2 * moved / parameter * (1 + 1e-12)


def check_threshold(*, flawed: bool) -> None:
    """For noises that answer k on q, the moved ones answer k on q', moved by D and 2 D. Flaw: scores move by 2 D."""
    moved, draws = 4, np.random.default_rng(2)
    answered = Counter[int]()
    for _ in range(2000):
        scores, shift, noises = draws.integers(0, 40, 5), int(draws.integers(-20, 20)), draws.integers(-40, 40, 5)
        other = scores + draws.integers(-moved, moved + 1, 5) * (1 + flawed)
        first = _first(scores, shift, noises)
        answered[first] += 1
        before = slice(None) if first == NONE else slice(first)
        change = int((other + noises)[before].min(initial=10**6) - (scores + noises)[before].min(initial=10**6))
        again = noises.copy()
        if first != NONE:
            again[first] += change + int(scores[first] - other[first])
        assert _first(other, shift + change, again) == first, "a bijection: the change depends on other noises alone"
        assert abs(change) <= moved
        assert np.abs(again - noises).max() <= 2 * moved
    assert len(answered) == 6, "all answers occur"


def _first(scores: np.ndarray, shift: int, noises: np.ndarray) -> int:
    below = scores + noises <= 10 + shift
    return int(below.argmax()) if below.any() else NONE


def check_cover(*, flawed: bool) -> None:
    """Gaussian answers of a total rho cost no more than their cover at any order. Flaw: one answer more."""
    for sigmas in ((1.0,), (2.0, 3.0, 0.7), (5.0,) * 40):
        rho = sum(1 / (2 * sigma**2) for sigma in sigmas)
        drawn = Composed(events=tuple(Gaussian(sigma=sigma) for sigma in (*sigmas, *sigmas[: int(flawed)])))
        covers = cost_nano(Zcdp(rho=rho * (1 + 1e-12)), ORDERS)
        assert all(cost <= cover for cost, cover in zip(cost_nano(drawn, ORDERS), covers, strict=True))


def check_transcript(*, flawed: bool) -> None:
    """Given the same sums and coins, runs on neighbours ask the same and tell the same. Flaw: a step by the records."""
    pair = neighbours()

    def method(held: LinearProblem) -> Callable[[Oracle], Tensor]:
        def run(oracle: Oracle) -> Tensor:
            theta = THETA
            for _ in range(3):
                theta = theta - oracle.ask(QUESTION, theta).value
                if flawed:
                    theta = theta * float(held._records.norms.sum())
            return theta

        return run

    first = grey_box.run(pair[0], PUBLIC, method(pair[0]))
    grey_box.check_neighbours(first, grey_box.run(pair[1], PUBLIC, method(pair[1]), first))


def check_batches(*, flawed: bool) -> None:
    """One order: sums of batches without x are equal, the other is within the sensitivity. Flaw: ordered by norms."""
    asked, grid = Gradient(sigma=2.0, batch=8), grid_for(Gradient(sigma=2.0, batch=8), PUBLIC, 8)
    order = sampling.public_order("a job", UNITS)
    gaps = []
    oracles = []
    for held in neighbours():
        read = held._records.norms.argsort(stable=True).numpy() if flawed else order
        oracles.append((held, StreamOracle(held, PUBLIC, UnlimitedFilter(), repeatable_generator(), read)))
    for _ in range(UNITS // 8):
        sums = []
        for held, oracle in oracles:
            selected = oracle._select(asked)
            sums.append(
                held.integer_sum(asked, PUBLIC, THETA, grid.part_step, rows=selected.rows, included=selected.included)
            )
        gaps.append(float((sums[0] - sums[1]).double().norm()) / 2**grid.part_bits)
    assert sum(gap > 0 for gap in gaps) == 1, "one batch has x"
    assert max(gaps) <= grid.sensitivity


def check_best(*, flawed: bool) -> None:
    """Runs that do not count move nothing, and every run draws coins of its own. Flaw: all slots count."""
    event, scores = (
        Selected(event=Gaussian(sigma=0.1), means=(2.0, 1.0), slots=(4, 3)),
        (5.0, 1.0, 4.0, 0.5, 3.0, 2.0, 0.1),
    )
    counted = iter((4, 3) if flawed else (2, 1))
    made: list[float] = []
    answers: set[float] = set()

    def run(oracle: RunsOracle, group: int) -> tuple[tuple[int, float], float]:
        answers.add(float(oracle.ask(QUESTION, THETA).value[0]))
        made.append(scores[len(made)])
        return (group, made[-1]), made[-1]

    with patch.object(runs, "number_of_runs", lambda *_: next(counted)):
        oracle = FullOracle(neighbours()[0], PUBLIC, UnlimitedFilter(), repeatable_generator())
        best = oracle.best_of(event, run)
    assert made == list(scores), "all slots are run, in public order"
    assert len(answers) == len(scores), "with coins of its own"
    assert best == (0, 1.0), "the least of those that count: the first two, and the fifth"


CHECKS: dict[Coupling, Callable[..., None]] = {
    Coupling.SHIFT: check_shift,
    Coupling.SLOT: check_slot,
    Coupling.LIKELIHOODS: check_likelihoods,
    Coupling.THRESHOLD: check_threshold,
    Coupling.COVER: check_cover,
    Coupling.TRANSCRIPT: check_transcript,
    Coupling.BATCHES: check_batches,
    Coupling.BEST: check_best,
}
KINDS: tuple[type[Event], ...] = get_args(get_args(Event)[0])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_of_event_names_a_coupling_that_holds(kind: type[Event]) -> None:
    assert isinstance(kind.coupling, Coupling), "a kind of event names what its price rests on"
    assert "coupling" not in kind.model_fields, "no stored event carries it"
    CHECKS[kind.coupling](flawed=False)


@pytest.mark.parametrize("coupling", CHECKS, ids=lambda one: one.name)
def test_a_flaw_of_each_coupling_is_seen(coupling: Coupling) -> None:
    with pytest.raises(AssertionError):
        CHECKS[coupling](flawed=True)


def test_couplings_are_named_by_some_event_and_tested() -> None:
    assert {kind.coupling for kind in KINDS} == set(Coupling) == set(CHECKS)
    assert all(one.value.equal and one.value.branches for one in Coupling)
    assert events.EVENT.dump_python(Gaussian(sigma=1.0)) == {"kind": "gaussian", "sigma": 1.0}
