"""Clients on machines that round otherwise: they answer at one point and hand in one value; more than rounding ends it.

Planted: a federation without agreement on the point, which such machines end at their first difference.
"""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from core.base.errors import PeerLost
from core.methods.fits import fit
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.oracle import Release, Status
from core.oracle.federation import FederatedOracle, MessageRounds, SiteFilter
from core.oracle.filters import CountingFilter, UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.points import CLOSE, adopted, parts_of, told_by
from core.queries.gradients import Gradient
from tests.support.peer_groups import Clients, Mail, ThreadPeerGroup, together
from tests.support.problems import facts, problem, repeatable_generator

DIMENSION, UNITS = 3, 40
SETTINGS = NoisyGradientDescentPlan(steps=30, step_size=0.3, radius=50.0, mu=1.0)
GRADIENT = Gradient(sigma=2.0)
ROUNDING = 1e-15


class Elsewhere:
    """A client's federation as a machine sees it that rounds every point it works out otherwise."""

    def __init__(self, own: FederatedOracle, error: float) -> None:
        self._own = own
        self._error = error

    def ask(self, question: Gradient, theta: Tensor, other: Tensor | None = None) -> object:
        return self._own.ask(question, theta * (1 + self._error) + self._error, other)

    def release(self, value: object, status: Status) -> object:
        return self._own.release(value, status)

    def __getattr__(self, name: str) -> object:
        return getattr(self._own, name)


class Recording(FullOracle):
    """A oracle that remembers where it was asked."""

    def ask(self, question: Gradient, theta: Tensor, other: Tensor | None = None) -> object:  # type: ignore[override] # as it is
        self.asked = [*getattr(self, "asked", []), theta.clone()]
        return super().ask(question, theta, other)


def run(error: float) -> tuple[Clients[Release[object]], list[Recording]]:
    """Fit on three clients, of whom the second rounds otherwise."""
    oracles: dict[int, Recording] = {}

    def work(peers: ThreadPeerGroup) -> Release[object]:
        paying = SiteFilter(UnlimitedFilter(), MessageRounds(peers))
        generator = repeatable_generator(bytes([peers.place + 1]) * 32)
        records = problem(UNITS, DIMENSION, seed=peers.place)
        oracles[peers.place] = Recording(records, facts(UNITS, DIMENSION), paying, generator)
        oracle = FederatedOracle(oracles[peers.place], paying, "fed_test")
        return fit(SETTINGS, Elsewhere(oracle, error) if peers.place == 1 else oracle)  # type: ignore[arg-type] # it is one

    ended = Clients(Mail(3), work)
    return ended, [oracles[place] for place in range(3)]


def test_all_answer_at_the_first_one_s_point_and_end_together() -> None:
    ended, oracles = run(ROUNDING)
    assert not [ending for ending in ended.endings if isinstance(ending, Exception)], ended.endings
    for oracle in oracles:
        assert len(oracle.asked) == SETTINGS.steps
        assert all(map(torch.equal, oracle.asked, oracles[0].asked)), "bit for bit"


def test_without_agreement_such_machines_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FederatedOracle, "_agreed", lambda *asked: asked[2:])
    ended, _ = run(ROUNDING)
    assert all(isinstance(ending, PeerLost) for ending in ended.endings)


def test_what_is_more_than_rounding_ends_the_attempt_before_anybody_pays() -> None:
    filters = [CountingFilter() for _ in range(3)]

    def work(peers: ThreadPeerGroup) -> object:
        paying = SiteFilter(filters[peers.place], MessageRounds(peers))
        oracle = FederatedOracle(
            FullOracle(problem(UNITS, DIMENSION), facts(UNITS, DIMENSION), paying, repeatable_generator()),
            paying,
            "fed",
        )
        return oracle.ask(GRADIENT, torch.full((DIMENSION,), 1e-3 * (peers.place == 1), dtype=torch.float64))

    assert all(isinstance(ending, PeerLost) for ending in Clients(Mail(3), work).endings)
    assert [payments.totals for payments in filters] == [[], [], []]


def test_values_that_differ_by_rounding_are_released() -> None:
    def work(peers: ThreadPeerGroup) -> Release[Tensor]:
        paying = SiteFilter(UnlimitedFilter(), MessageRounds(peers))
        oracle = FullOracle(problem(UNITS, DIMENSION), facts(UNITS, DIMENSION), paying, repeatable_generator())
        value = torch.full((DIMENSION,), 1 + ROUNDING * peers.place, dtype=torch.float64)
        return FederatedOracle(oracle, paying, "fed").release(value, Status.FINISHED)

    assert all(isinstance(one, Release) for one in together(Mail(2), work))


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=0, max_size=4), min_size=1, max_size=3))
def test_points_arrive_as_they_were(rows: list[list[float]]) -> None:
    own = [torch.tensor(row, dtype=torch.float64) for row in rows]
    assert all(map(torch.equal, adopted(own, told_by(own)), own))


@pytest.mark.parametrize("change", [lambda told: told[:-1], lambda told: told + b"\0", lambda told: told[:0]])
def test_what_is_no_point_ends_the_attempt(change: object) -> None:
    own = [torch.ones(2, dtype=torch.float64)]
    assert callable(change)
    with pytest.raises(PeerLost):
        adopted(own, change(told_by(own)))
    with pytest.raises(PeerLost):
        adopted(own, told_by([own[0] + 3 * CLOSE]))


@dataclass(frozen=True)
class Value:
    """Something released."""

    theta: Tensor
    steps: int
    scale: float


def test_a_value_is_words_and_numbers() -> None:
    one, other = (Value(torch.full((2,), by, dtype=torch.float64), 3, by) for by in (1.0, 2.0))
    (text, numbers), (same, others) = parts_of(one), parts_of(other)
    assert text == same
    assert [float(number.sum()) for number in numbers] == [2.0, 1.0]
    assert [float(number.sum()) for number in others] == [4.0, 2.0]
    assert parts_of(Value(one.theta, 4, 1.0))[0] != text
