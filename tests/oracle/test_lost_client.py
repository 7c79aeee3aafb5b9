"""A client that is lost is in no estimate any more: those that are left begin with a fresh gradient of their own."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from core.base.errors import Diverged, PeerLost
from core.inference.estimate import Estimate
from core.mechanisms.generator import SystemGenerator
from core.methods.second_order import ada_spider
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.oracle import Answer
from core.oracle.federation import FederatedOracle, MessageRounds, SiteFilter
from core.oracle.filters import CountingFilter
from core.oracle.samples import StreamOracle
from core.queries.gradients import Question
from core.queries.sums.peer_group import PeerGroup
from tests.support.peer_groups import Clients, Mail, together
from tests.support.problems import facts, problem
from tests.support.second_order import given, planted

UNITS, DIMENSION = 1200, 3
DESCENT: dict[str, Any] = {
    "batch": 60,
    "difference_batch": 10,
    "restart_drift": 1e6,
    "error_radius": 1e-6,
    "escape_distance": 0.35,
    "round_steps": 5,
    "step_size": 0.3,
    "mu": 5.0,
    "steps": 30,
}
"""One fresh gradient, and changes from there on."""
ROUNDS = DESCENT | {"error_radius": 100.0, "rounds": 50, "escape_distance": 1e6, "round_steps": 10}
"""The first gradient begins rounds, and none of them ends."""


class Lost(Exception):
    """This client is lost."""


class Heard:
    """A client's stream, which writes down what it is asked, and is lost after so many answers."""

    def __init__(self, place: int, payments: SiteFilter, skipped: int, ends: int) -> None:
        records, orders = problem(UNITS, DIMENSION, seed=place), np.arange(UNITS)
        public = facts(UNITS, DIMENSION)
        self._oracle = StreamOracle(records, public, payments, SystemGenerator(), orders, skipped=skipped)
        self._ends = ends
        self.asked: list[str] = []
        self.facts, self.randomness, self.precision = (
            self._oracle.facts,
            self._oracle.randomness,
            self._oracle.precision,
        )
        self.affords, self.block, self.release = self._oracle.affords, self._oracle.block, self._oracle.release
        self.resume, self.keep = self._oracle.resume, self._oracle.keep

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        if len(self.asked) == self._ends:
            raise Lost
        self.asked.append(question.kind)
        return self._oracle.ask(question, theta, other)


def attempt(
    module: Any, peers: PeerGroup, payments: CountingFilter, *, skipped: int = 0, ends: int = -1, **options: Any
) -> tuple[list[str], Estimate]:
    """Carry out a client's attempt; return what it was asked and the estimate."""
    paying = SiteFilter(payments, MessageRounds(peers))
    oracle = Heard(peers.place, paying, skipped, ends)
    estimate, _ = module.iterate(given(**DESCENT | options), FederatedOracle(oracle, paying, "fed_test"))
    return oracle.asked, estimate


def after_a_loss(answers: int, left: int, module: Any = gauss_psgd, **options: Any) -> list[tuple[list[str], Estimate]]:
    """Have three clients answer so often, until the last is lost; `left` of them go on; return what they end with.

    For the sites that go on, the mean of three is replaced by a number that spoils any result that it enters.
    """
    filters = [CountingFilter() for _ in range(3)]

    def first(peers: PeerGroup) -> object:
        ends = answers if peers.place == 2 else -1
        return attempt(module, peers, filters[peers.place], ends=ends, **options)

    endings = Clients(Mail(3), first).endings
    assert [type(ending) for ending in endings] == [PeerLost, PeerLost, Lost]
    kept = filters[0].log.resume()
    assert kept is not None
    if left < 3:
        kept |= {"slope": kept["slope"] * torch.nan, "held_slope": kept["held_slope"] * torch.nan}

    def second(peers: PeerGroup) -> tuple[list[str], Estimate]:
        payments = CountingFilter()
        payments.log.keep(kept, 0)
        return attempt(module, peers, payments, skipped=UNITS // 2, **options)

    return together(Mail(left), second)


def check(answers: int, module: Any = gauss_psgd, **options: Any) -> None:
    """Fail unless the first question after a loss is a fresh one and nothing of the mean of three is left."""
    for asked, estimate in after_a_loss(answers, 2, module, **options):
        assert asked[0] == "gradient", "what is known of a mean with a lost client in it is forgotten"
        assert bool(estimate.theta.isfinite().all()), "and it is in nothing that follows"


@pytest.mark.parametrize("answers", [2, 9])
def test_those_that_are_left_begin_with_a_fresh_gradient(answers: int) -> None:
    check(answers)


@pytest.mark.parametrize("round_mode", ["fresh", "rewind", "continue"])
def test_a_phase_is_left_with_the_mean_that_began_it(round_mode: str) -> None:
    """The first answers of those that are left say anew whether the gradient is short where the phase began."""
    (asked, estimate), _ = after_a_loss(5, 2, round_mode=round_mode, **ROUNDS)
    check(5, round_mode=round_mode, **ROUNDS)
    going_on = round_mode == "continue"  # a rewound one goes back to knowing nothing
    assert asked[:2] == ["gradient", "gradient_difference" if going_on else "gradient"]
    assert estimate.error_bound is not None
    assert estimate.error_bound.second_order is not None
    assert estimate.error_bound.second_order.phases == 2


def test_a_loss_that_loses_nobody_restarts_nothing() -> None:
    found = after_a_loss(9, 3)
    assert all(asked[0] == "gradient_difference" for asked, _ in found)


def test_an_estimate_that_is_kept_is_caught() -> None:
    """Planted bug: those that are left correct the mean of three by changes of the mean of two."""
    wrong = planted(ada_spider, "        if not is_of_these(state, oracle):\n", "        if False:\n")
    module = planted(gauss_psgd, "    estimator = AdaSpider(", "    estimator = WRONG(")
    module.WRONG = wrong.AdaSpider
    with pytest.raises(Diverged):
        check(9, module)
