"""Sums of charges stand beside the chain: they equal the entries' sums, for every writer and every refund."""

import threading
from collections import Counter
from fractions import Fraction

import pytest

from core.db.database import Database
from core.db.tables import Scope, ScopeEvent
from core.jobs import jobs
from core.ledger import ledger
from core.ledger.charged import totals_of
from core.privacy.events import Event, Gaussian, Pure, Sampled, Zcdp, compose
from core.privacy.totals import Totals, total_mu, total_rho
from tests.support.store import Place, make_place, submit

EVENTS: tuple[Event, ...] = (Gaussian(sigma=900.0), Zcdp(rho=1e-9), Sampled(numerator=2**58, sigma=90.0))
WRITERS = 6


def totals(database: Database, place: Place) -> Totals:
    with database.read() as session:
        found = ledger.verify(session, place.scope_id)
        assert found.ok, found.reason
        return totals_of(session.get_one(Scope, place.scope_id))


def test_many_who_pay_at_once_lose_nothing(database: Database) -> None:
    place = make_place(database)
    with database.write() as session:
        for _ in range(WRITERS):
            submit(session, place, EVENTS * 2)
    claims = [database.transaction(jobs.claim, f"w{number}", 600.0) for number in range(WRITERS)]
    failed: list[BaseException] = []

    def pay(number: int) -> None:
        claim = claims[number]
        assert claim is not None
        try:
            for chunk in range(2 * len(EVENTS)):
                database.transaction(ledger.pay, claim, chunk, None, chunk)
        except BaseException as error:  # noqa: BLE001 - of a thread: the test tells it below
            failed.append(error)

    threads = [threading.Thread(target=pay, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    due = Counter(dict.fromkeys(EVENTS, 2 * WRITERS))
    assert totals(database, place) == Totals().plus(due)
    with database.read() as session:
        assert ledger.executed(session, place.scope_id) == due


def test_what_is_given_back_whole_is_taken_from_the_sums(database: Database) -> None:
    place = make_place(database)
    for fraction in (Fraction(1), Fraction(1, 2)):
        with database.write() as session:
            submit(session, place, EVENTS)
        claim = database.transaction(jobs.claim, "w", 600.0)
        assert claim is not None
        database.transaction(jobs.fail, claim, "gpu-unavailable", charge="all")
        database.transaction(ledger.compensate, place.scope_id, claim.job_id, fraction, "no driver", place.principal_id)
        left = Counter[Event]() if fraction == 1 else Counter(EVENTS)
        assert totals(database, place) == Totals().plus(left)
        with database.read() as session:
            assert ledger.executed(session, place.scope_id) == left


def test_an_event_that_was_written_in_two_ways_is_counted_once(database: Database) -> None:
    """A later version may write the same event otherwise; both rows are of it."""
    place = make_place(database)
    with database.write() as session:
        text = '{"kind":"gaussian","sigma":900}'
        session.add(ScopeEvent(scope_id=place.scope_id, digest="0" * 64, event=text, times=3))
        session.add(ScopeEvent(scope_id=place.scope_id, digest="1" * 64, event=text.replace("900", "900.0"), times=4))
    with database.read() as session:
        assert ledger.executed(session, place.scope_id) == {EVENTS[0]: 7}


@pytest.mark.parametrize(
    "counted",
    [
        Counter({Gaussian(sigma=900.0 + k): k + 1 for k in range(50)}),
        Counter({Zcdp(rho=1e-9): 3, Pure(epsilon=0.1): 2, Gaussian(sigma=7.0): 1}),
        Counter(EVENTS),
        Counter[Event](),
    ],
)
def test_totals_are_those_of_the_composition_in_any_order(counted: Counter[Event]) -> None:
    whole = compose(counted)
    found = Totals().plus(counted)
    assert found.rho == (None if total_rho(whole) is None else pytest.approx(total_rho(whole), rel=1e-12))
    assert found.mu == (None if total_mu(whole) is None else pytest.approx(total_mu(whole), rel=1e-12))
    one_by_one = Totals()
    for event in reversed(list(counted.elements())):
        one_by_one = one_by_one.plus({event: 1})
    assert one_by_one == found
    assert found.plus({event: -times for event, times in counted.items()}) == Totals()
