"""The smallest epsilon of the spending is searched off the request path; the figure shown until then is valid."""

import time
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from threading import Event as Signal
from threading import get_ident

import pytest

from core.db.database import Database
from core.db.tables import Scope
from core.jobs import jobs
from core.ledger import ledger
from core.privacy import reports
from core.privacy.events import Composed, Event, Gaussian, Pure, Repeated, Sampled, Zcdp, compose
from core.privacy.renyi import Leaf
from core.privacy.reports import epsilon_at
from core.service.budgets import budget_view
from core.service.context import Context
from core.service.labels import MOST_DRAWS, Composition, Label, Labels
from tests.support.store import Place, make_place, submit

DELTA = 1e-6


def sampled(number: int) -> Event:
    return Sampled(numerator=2**64 // 100, sigma=30.0 + number / 64)


def spend(database: Database, place: Place, schedule: Sequence[Event]) -> None:
    with database.write() as session:
        submit(session, place, schedule)
    claim = database.transaction(jobs.claim, "w", 600.0)
    assert claim is not None
    with database.write() as session:
        for chunk in range(len(schedule)):
            ledger.pay(session, claim, chunk, None, chunk)
        jobs.fail(session, claim, "diverged", charge="spent")


def epsilon_of(context: Context, place: Place) -> Decimal:
    with context.database.read() as session:
        shown = budget_view(context, session, session.get_one(Scope, place.scope_id), place.principal_id)
    return Decimal(shown.epsilon.spent)


def exact(context: Context, place: Place) -> float:
    with context.database.read() as session:
        drawn = compose(ledger.executed(session, place.scope_id))
        return epsilon_at(drawn, float(ledger.balance(session, place.scope_id).terms.delta))[0]


def becomes(context: Context, place: Place, expected: float) -> bool:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if abs(float(epsilon_of(context, place)) - expected) <= 1e-3 * expected:
            return True
        time.sleep(0.05)
    return False


def test_a_reader_composes_nothing_and_sees_no_epsilon_that_is_too_small(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_place(context.database)
    composing = list[int]()

    def composes(draws: Counter[Leaf], delta: float) -> float:
        composing.append(get_ident())
        return losses(draws, delta)

    losses = reports._epsilon_by_losses
    monkeypatch.setattr(reports, "_epsilon_by_losses", composes)
    for number in range(2):
        spend(context.database, place, [sampled(20 * number + k) for k in range(20)])
        shown = float(epsilon_of(context, place))
        assert composing.count(get_ident()) == number, "no reader composed"
        epsilon_at.cache_clear()
        smallest = exact(context, place)
        assert composing.count(get_ident()) == number + 1, "the exact figure composes, so that this test can fail"
        assert shown > smallest
        assert becomes(context, place, smallest)
        assert composing.count(get_ident()) == number + 1, "no reader composed"


def test_what_is_shown_at_once_holds_for_every_kind_of_draw(context: Context) -> None:
    context.labels.stop()
    schedules: list[list[Event]] = [
        [Gaussian(sigma=40.0), Zcdp(rho=1e-4)],
        [Zcdp(rho=1e-4)] * 3,
        [Pure(epsilon=0.01), Gaussian(sigma=60.0)],
        [sampled(1), Gaussian(sigma=60.0), Zcdp(rho=1e-5)],
    ]
    for schedule in schedules:
        place = make_place(context.database)
        spend(context.database, place, schedule)
        assert float(epsilon_of(context, place)) >= exact(context, place)


def test_gaussian_answers_are_exact_at_once(context: Context) -> None:
    context.labels.stop()
    place = make_place(context.database)
    assert epsilon_of(context, place) == 0
    spend(context.database, place, [Gaussian(sigma=40.0 + k) for k in range(7)])
    smallest = exact(context, place)
    assert smallest <= float(epsilon_of(context, place)) <= smallest * 1.001


def composition(number: int, distinct: int = 2) -> Composition:
    one = Repeated(event=Sampled(numerator=2**64 // 100, sigma=1.1), times=number)
    return Composition(number, Composed(events=(one, Gaussian(sigma=30.0))), distinct, DELTA)


def wait_for(labels: Labels, scope_id: str, number: int) -> Label:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if (found := labels.smallest(scope_id, number, lambda: composition(number))) is not None:
            return found
        time.sleep(0.05)
    raise AssertionError("no epsilon within a minute")


def test_of_a_scope_only_the_newest_composition_waits() -> None:
    labels, loaded = Labels(), list[int]()
    begun, go_on = Signal(), Signal()

    def held() -> Composition:
        begun.set()
        assert go_on.wait(60)
        return composition(199)

    def loads(number: int) -> Composition:
        loaded.append(number)
        return composition(number)

    assert labels.smallest("sc_0", 0, held) is None
    assert begun.wait(60)
    for number in range(200, 260):
        assert labels.smallest("sc_1", number, lambda number=number: loads(number)) is None  # type: ignore[misc]
    go_on.set()
    assert wait_for(labels, "sc_1", 259) == epsilon_at(composition(259).event, DELTA)
    assert set(loaded) <= {259}


def test_what_cannot_be_composed_ends_no_thread() -> None:
    labels = Labels()

    def fails() -> Composition:
        raise ValueError("the database went away")

    assert labels.smallest("sc_2", 1, fails) is None
    assert labels.smallest("sc_3", 1, lambda: composition(301, MOST_DRAWS + 1)) is None
    assert wait_for(labels, "sc_1", 301)[1] == "privacy loss distribution"


def test_who_stopped_begins_nothing() -> None:
    labels, begun = Labels(), Signal()
    labels.stop()

    def load() -> Composition:
        begun.set()
        return composition(302)

    assert labels.smallest("sc_1", 302, load) is None
    assert not begun.wait(0.3)
