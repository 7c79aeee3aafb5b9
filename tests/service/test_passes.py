"""Verification of long chains: beside requests, answered at once, and found out by whoever asks again."""

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from core.base.errors import LedgerBusy
from core.db.database import Database
from core.db.tables import Scope
from core.jobs import jobs
from core.ledger import ledger
from core.ledger.verification import PAGE
from core.privacy.events import Gaussian
from core.service.context import Context
from core.service.passes import Passes, PassResult
from tests.ledger.test_forgeries import drop_triggers
from tests.support.store import Place, make_place, submit

CHUNKS = 100
ANN, OLGA = "pr_ann", "pr_olga"


def lengthen(database: Database, place: Place, entries: int) -> None:
    """Have jobs pay for many chunks, and end."""
    schedule = [Gaussian(sigma=9000.0)] * CHUNKS
    for _ in range(entries // CHUNKS):
        with database.write() as session:
            submit(session, place, schedule)
        claim = database.transaction(jobs.claim, "w", 600.0)
        assert claim is not None
        with database.write() as session:
            for chunk in range(CHUNKS):
                ledger.pay(session, claim, chunk, None, chunk)
            jobs.fail(session, claim, "diverged", charge="spent")


@pytest.fixture
def passes(context: Context) -> Iterator[Passes]:
    yield context.passes
    context.passes.stop()


def outcome(passes: Passes, database: Database, place: Place, who: str = ANN) -> PassResult:
    """Ask until the pass has ended; a minute at most."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found, goes_on = passes.ask(database, place.scope_id, who, wait_seconds=0.05)
        if not goes_on:
            assert found is not None
            return found
    raise AssertionError("a pass takes longer than a minute")


def test_a_long_chain_is_answered_before_its_end_and_told_of_after_it(context: Context, passes: Passes) -> None:
    database = context.database
    place = make_place(database)
    lengthen(database, place, 3 * PAGE)
    asked = time.monotonic()
    assert passes.ask(database, place.scope_id, ANN, wait_seconds=0.0) == (None, True)
    assert time.monotonic() - asked < 5
    first = outcome(passes, database, place)
    assert first.found.ok
    with database.read() as session:
        scope = session.get_one(Scope, place.scope_id)
        assert (first.found.entries, first.found.head) == (scope.seq, scope.head)
    assert passes.ask(database, place.scope_id, ANN, wait_seconds=0.0) == (first, True), "another one; the last is told"
    assert outcome(passes, database, place).at >= first.at


def test_who_asks_meanwhile_joins_and_gets_the_same_outcome(context: Context, passes: Passes) -> None:
    database = context.database
    place = make_place(database)
    lengthen(database, place, 3 * PAGE)
    for who in (ANN, OLGA):
        assert passes.ask(database, place.scope_id, who, wait_seconds=0.0) == (None, True)
    assert outcome(passes, database, place, ANN) is outcome(passes, database, place, OLGA)


def test_what_was_changed_since_the_last_pass_is_found_and_freezes(context: Context, passes: Passes) -> None:
    database = context.database
    place = make_place(database)
    lengthen(database, place, 2 * PAGE)
    assert outcome(passes, database, place).found.ok
    with database.write() as session:
        drop_triggers(session)
        session.execute(text("UPDATE entries SET attempt = 7 WHERE seq = 9"))
    found = outcome(passes, database, place).found
    assert (found.ok, found.first_bad_seq) == (False, 9)
    with database.read() as session:
        assert session.get_one(Scope, place.scope_id).frozen_reason is not None


def test_a_short_chain_does_not_wait_for_a_long_one(context: Context, passes: Passes) -> None:
    database = context.database
    long, short = make_place(database), make_place(database)
    lengthen(database, long, 6 * PAGE)
    assert passes.ask(database, long.scope_id, ANN, wait_seconds=0.0) == (None, True)
    assert outcome(passes, database, short).found.ok
    _, goes_on = passes.ask(database, long.scope_id, ANN, wait_seconds=0.0)
    assert goes_on


def test_a_database_that_goes_away_ends_the_pass_and_the_next_one_begins_anew(context: Context, passes: Passes) -> None:
    database = context.database
    place = make_place(database)
    with database.write() as session:
        session.execute(text("ALTER TABLE scope_events RENAME TO elsewhere"))
    with pytest.raises(LedgerBusy):
        passes.ask(database, place.scope_id, ANN, wait_seconds=60.0)
    with database.write() as session:
        session.execute(text("ALTER TABLE elsewhere RENAME TO scope_events"))
    assert outcome(passes, database, place).found.ok
