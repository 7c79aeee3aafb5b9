"""The reading work of a request does not grow with the history: counted in SQLite's own steps, not in seconds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.tables import Scope
from core.jobs import jobs, queue
from core.ledger import ledger
from core.privacy.events import Event, Gaussian, Sampled, Zcdp
from core.service.budgets import budget_view
from core.service.context import Context
from tests.support.store import Place, make_place, submit

FEW, MANY, AT_ONCE = 40, 400, 80
EVENTS = (Gaussian(sigma=9000.0), Zcdp(rho=1e-9), Gaussian(sigma=7000.0))


def others(number: int) -> Event:
    """Return an event that was drawn never before."""
    return Gaussian(sigma=9000.0 + number) if number % 2 else Sampled(numerator=2**58, sigma=900.0 + number)


STEPS = 1
"""Instructions of SQLite's machine between two calls of the counter."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite+pysqlite:///{tmp_path}/farthing.sqlite")
    made.migrate()
    yield made
    made.dispose()


@contextmanager
def counted(session: Session) -> Iterator[Callable[[], int]]:
    """Count the instructions that SQLite executes for a session's statements."""
    calls = [0]

    def count() -> int:
        calls[0] += 1
        return 0

    connection = session.connection().connection.driver_connection
    assert connection is not None
    connection.set_progress_handler(count, STEPS)
    try:
        yield lambda: calls[0] * STEPS
    finally:
        connection.set_progress_handler(None, 0)


def by_turns(number: int) -> Event:
    """Return one of a few events."""
    return EVENTS[number % len(EVENTS)]


def spend_chunks(
    database: Database, place: Place, chunks: int, event: Callable[[int], Event] = by_turns, first: int = 0
) -> None:
    """Let jobs pay for as many chunks, and end."""
    for done in range(0, chunks, AT_ONCE):
        of_this = min(AT_ONCE, chunks - done)
        with database.write() as session:
            submit(session, place, [event(first + done + k) for k in range(of_this)])
        claim = database.transaction(jobs.claim, "w", 600.0)
        assert claim is not None
        with database.write() as session:
            for chunk in range(of_this):
                ledger.pay(session, claim, chunk, None, chunk)
            jobs.fail(session, claim, "diverged", charge="spent")


def steps_of_a_budget(database: Database, place: Place) -> int:
    context = Context(ServiceSettings(), database)
    context.labels.stop()
    with database.read() as session:
        scope = session.get_one(Scope, place.scope_id)
        with counted(session) as steps:
            assert budget_view(context, session, scope, place.principal_id).entries == scope.seq
        return steps()


@pytest.mark.parametrize("event", [by_turns, others])
def test_a_budget_reads_as_much_after_many_entries_as_after_few(
    database: Database, event: Callable[[int], Event]
) -> None:
    place = make_place(database)
    spend_chunks(database, place, FEW, event)
    few = steps_of_a_budget(database, place)
    spend_chunks(database, place, MANY - FEW, event, FEW)
    assert steps_of_a_budget(database, place) <= 1.5 * few


def end_jobs(database: Database, place: Place, how_many: int) -> None:
    """Queue jobs and cancel them, in one transaction."""
    with database.write() as session:
        for _ in range(how_many):
            jobs.cancel(session, submit(session, place, [EVENTS[0]]).id)
            session.expunge_all()


def steps_of_a_submission(database: Database, place: Place) -> int:
    """Return what counting the live jobs of a principal, and reserving for one more, takes."""
    with database.write() as session:
        with counted(session) as steps:
            assert queue.lock_live(session, [place.principal_id])[place.principal_id] == 0
            job = submit(session, place, [EVENTS[0]])
        jobs.cancel(session, job.id)
        return steps()


def test_a_submission_reads_as_much_after_many_jobs_as_after_few(database: Database) -> None:
    place = make_place(database)
    end_jobs(database, place, 10)
    few = steps_of_a_submission(database, place)
    end_jobs(database, place, 400)
    assert steps_of_a_submission(database, place) <= 1.5 * few


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE scope_events SET times = times - 1",
        "UPDATE scopes SET gaussian_rho = '1'",
        "UPDATE scopes SET other_rho = 'nothing'",
        "UPDATE scopes SET unpriced = 1",
        "DELETE FROM scope_events",
        "UPDATE scope_events SET event = replace(event, '9000.0', '9001.0')",
    ],
)
def test_verification_compares_the_sums_with_the_entries(database: Database, statement: str) -> None:
    place = make_place(database)
    spend_chunks(database, place, 6)
    with database.read() as session:
        assert ledger.verify(session, place.scope_id).ok
    with database.write() as session:
        session.execute(text(statement))
    with database.read() as session:
        found = ledger.verify(session, place.scope_id)
    assert not found.ok
    assert found.reason in {
        "the sums of charged events are not those of its entries",
        "it cannot be read (ValueError)",
    }
