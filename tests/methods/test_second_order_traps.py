"""Steps that a lazy implementation of Gauss-PSGD skips: each is planted somewhere, or cannot be written here.

Two tables. Mistakes that are planted here stand in MUTANTS, each beside the guard that sees it. GUARDED says of each of
the others which test plants it, or which one shows that there is no place where it could be made.
"""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from core.losses.robust import Huber
from core.losses.weights import Mallows
from core.mechanisms.generator import SimulationGenerator, SystemGenerator
from core.methods.second_order import ada_spider
from core.methods.second_order.ada_spider import no_estimate
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.oracle import Answer
from core.oracle.filters import CountingFilter, UnlimitedFilter
from core.oracle.samples import StreamOracle
from core.oracle.simulation import Simulation
from core.queries.gradients import Gradient, Question
from core.queries.sampling import StreamSampling
from core.queries.sums.linear import LinearProblem
from tests.methods.test_ada_spider import SIZES, Told
from tests.support.problems import facts, repeatable_generator, rows
from tests.support.second_order import CountedRecords, Deaf, StillRecords, facts_of, given, planted

ROOT = Path(__file__).parents[2]
UNITS = 1200


def with_estimator(old: str, new: str) -> Any:
    """Return a controller over an estimator with one piece replaced, which can look at records."""
    same = "UNDER_WAY = torch.tensor(0)"
    module = planted(gauss_psgd, same, same)
    wrong = planted(ada_spider, old, new)
    wrong.peeked = peeked
    module.AdaSpider = wrong.AdaSpider
    return module


def with_controller(old: str, new: str) -> Any:
    """Return a controller with one piece replaced, which can look at records."""
    module = planted(gauss_psgd, old, new)
    module.peeked = peeked
    return module


def peeked(oracle: Any, theta: Tensor) -> float:
    """Return a figure that nobody may know: the length of the records' mean gradient, without noise."""
    told = oracle._problem._records.bounded_sum(Gradient(sigma=1.0), facts(UNITS, 3), theta)
    return float(told.norm()) / UNITS


def check_replay(module: Any) -> None:
    """From its transcript alone a run repeats bit for bit: questions, states that were kept, and what it returns."""
    settings = given(**SIZES | {"steps": 60})
    oracle = Told(CountedRecords(UNITS), facts(UNITS, 3), CountingFilter(), SystemGenerator(), np.arange(UNITS))
    real, _ = module.iterate(settings, oracle)
    deaf, _ = module.iterate(settings, Deaf(oracle.facts, oracle.told))
    assert torch.equal(real.theta, deaf.theta)
    assert real.error_bound == deaf.error_bound


def check_noise(make: Callable[[Any], Any]) -> None:
    """Fail unless a fresh gradient has its own sensitivity's noise: 2 %, of 20 000 numbers four standard errors."""
    question, units = given(mu=0.5).fresh(), 4 * 10 * 2
    oracle = make(
        StreamOracle(
            StillRecords(units, 5000),
            facts_of(units, 5000),
            UnlimitedFilter(),
            repeatable_generator(),
            np.arange(units),
        )
    )
    at = torch.zeros(5000, dtype=torch.float64)
    found = torch.stack([oracle.ask(question, at).value[1:] for _ in range(4)])
    assert found.std() == pytest.approx(0.4, rel=0.02)


class Halves:
    """Planted: every answer is made of two micro-batches, each with noise of its own."""

    def __init__(self, oracle: StreamOracle) -> None:
        self._oracle = oracle

    def ask(self, question: Question, theta: Tensor) -> Answer:
        told = [self._oracle.ask(question, theta) for _ in range(2)]
        return Answer((told[0].value + told[1].value) / 2, told[0].scale)


def check_same_records(module: Any) -> None:
    """Fail unless the change of gradients that do not move is exactly zero, though records disagree."""
    features, _, present = rows(600, 3)
    target = 1e3 * torch.randn(600, generator=torch.Generator().manual_seed(1), dtype=torch.float64).sign()
    data, public = LinearProblem(features, target, present, Huber(scale=0.7), Mallows(bound=2**0.5)), facts(600, 3)
    oracle = Simulation(data, public, SimulationGenerator(1), noiseless=True, sampling=StreamSampling(batches=(30, 10)))
    at = torch.zeros(3, dtype=torch.float64)
    settings = given(batch=30, difference_batch=10, restart_drift=1e9)
    estimator = module.AdaSpider(settings, oracle, no_estimate(at))
    assert torch.equal(estimator.query(at), estimator.query(at + 0.1))


_CHANGE = "slope + self._oracle.ask(change, last.before, theta).value"
_TWO_BATCHES = (
    "slope + self._oracle.ask(settings.fresh().model_copy(update={'batch': settings.difference_batch}), theta).value"
    " - self._oracle.ask(settings.fresh().model_copy(update={'batch': settings.difference_batch}), last.before).value"
)
MUTANTS: dict[str, tuple[Callable[[], object], Callable[[Any], None]]] = {
    "noise is added to each micro-batch": (lambda: Halves, check_noise),
    "the two gradients of a change are of different batches": (
        lambda: planted(ada_spider, _CHANGE, _TWO_BATCHES),
        check_same_records,
    ),
    "the clip is estimated from the records": (
        lambda: with_estimator(
            "fresh = settings.fresh()",
            "fresh = settings.fresh().model_copy(update={'clip': 1e-3 + peeked(self._oracle, theta)})",
        ),
        check_replay,
    ),
    "the smoothness is estimated from the records": (
        lambda: with_estimator(
            "settings.change(distance)",
            "settings.change(distance * (1 + peeked(self._oracle, theta)))",
        ),
        check_replay,
    ),
    "drift is of gradients without noise": (
        lambda: with_estimator("drift += distance**2", "drift += peeked(self._oracle, theta) ** 2"),
        check_replay,
    ),
    "descent stops early on a figure of the training records": (
        lambda: with_controller(
            "before = estimator.snapshot()",
            "before = estimator.snapshot()\n"
            "        if peeked(estimator._oracle, state.theta) < 1e-9:\n"
            "            return _ended(state, 'step_cap')",
        ),
        check_replay,
    ),
    "the best iterate by the training records is returned": (
        lambda: with_controller(
            "theta=state.anchor if is_anchored(state) else state.theta",
            "theta=min((state.anchor, state.theta), key=lambda at: peeked(oracle, at))",
        ),
        check_replay,
    ),
    "how many gradients were cut is noted": (
        lambda: with_controller(
            "oracle.keep(tensors_of(SearchState(walked, estimator.state()))",
            "oracle.keep(tensors_of(SearchState(walked, estimator.state()))"
            " | {'cut': torch.tensor(peeked(oracle, walked.theta))}",
        ),
        check_replay,
    ),
}
"""Mistakes of privacy, and what they make of the code."""

GUARDED = {
    "clips by layer with the sensitivity of the whole model": "queries/network/test_sums.py::"
    "test_planted_bugs_move_a_sum_by_more_than_is_charged",
    "a snapshot that holds the place in the stream: a batch comes again in the next round": "methods/"
    "test_ada_spider.py::test_a_place_in_the_stream_that_goes_back_with_a_round_is_seen",
    "a batch of whatever is left": "methods/test_ada_spider.py::test_a_last_batch_of_what_is_left_is_seen",
    "U from the loss of private records, there are none where plans are made": "test_house.py::"
    "test_the_api_and_its_use_cases_import_no_torch_and_start_soon",
    "noise for the average instead of each client's": "oracle/test_federation.py::test_less_is_caught",
    "one seed for clients and server": "oracle/test_federation.py::test_one_seed_is_caught",
    "drift at clients, of their own gradients": "oracle/test_federation.py::"
    "test_deciding_by_ones_own_values_ends_the_attempt",
    "no noise where the way is short": "methods/test_ada_spider.py::"
    "test_a_change_without_noise_where_the_way_is_short_is_seen",
    "the radius is looked at when a round ends, the trigger is the first step, failed rounds are kept, the last "
    "iterate is returned, norms by coordinates, Q = 1, no cap, descent goes on with a step": "methods/"
    "test_gauss_psgd.py::test_every_shortcut_is_seen",
}
"""Mistakes that are planted, or shown to be impossible, elsewhere: by which test."""


@pytest.mark.parametrize(
    "guard", dict.fromkeys(guard for _, guard in MUTANTS.values()), ids=lambda guard: guard.__name__
)
def test_guards_pass_what_is_right(guard: Callable[[Any], None]) -> None:
    right: dict[Callable[[Any], None], object] = {
        check_replay: gauss_psgd,
        check_noise: lambda oracle: oracle,
        check_same_records: ada_spider,
    }
    guard(right[guard])


@pytest.mark.parametrize("mistake", MUTANTS)
def test_every_mistake_is_seen(mistake: str) -> None:
    """A replay has no records: code that looks at some fails there, or comes to other questions or answers."""
    made, guard = MUTANTS[mistake]
    wrong = made()
    with pytest.raises((AssertionError, AttributeError)) as seen:
        guard(wrong)
    assert isinstance(seen.value, AssertionError) or "'Deaf' object" in str(seen.value), "no other mistake"


@pytest.mark.parametrize("mistake", GUARDED)
def test_the_others_have_a_guard(mistake: str) -> None:
    file, name = GUARDED[mistake].split("::")
    assert re.search(rf"\bdef {name}\b", (ROOT / "tests" / file).read_text())


def test_an_answer_tells_a_value_and_its_scale_and_nothing_of_clipping() -> None:
    """Nothing that a clip did thus reaches a log: an oracle has no other way out."""
    assert [one.name for one in fields(Answer)] == ["value", "scale"]
