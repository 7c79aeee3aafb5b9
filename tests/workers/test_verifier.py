"""Verifying goes on beside the freeing of leases, and whatever it meets ends neither."""

import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
import structlog
from sqlalchemy import text, update
from sqlalchemy.orm import Session

from core.base.settings import ServiceSettings
from core.db import clock
from core.db.database import Database
from core.db.tables import Job, Scope
from core.jobs import jobs
from core.jobs.sweep import CONTACT
from core.ledger import verification
from core.ledger.claims import put_secret
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.service.notifier import make_notifier
from core.training.job_repository import JobRepository
from tests.ledger.test_forgeries import drop_triggers, rehash
from tests.support.store import make_place, submit
from workers.sweep import Sweeper, Verifier

LEASE = 1.0


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


@pytest.fixture
def settings(database: Database, tmp_path: Path) -> ServiceSettings:
    made = ServiceSettings(
        home=tmp_path,
        database_url=database.url.render_as_string(hide_password=False),
        lease_seconds=LEASE,
        sweep_seconds=0.2,
        visible_grid_seconds=0,
    )
    assert guard(database, Witness(made.witness_path)) == [], "a verifier that finds none freezes the ledger"
    return made


def lose_a_lease(database: Database, job_id: str) -> None:
    """Have a job's lease be over, where sweeps have been in contact for long."""
    with database.write() as session:
        session.execute(update(Job).where(Job.id == job_id).values(lease_until=1.0))
        put_secret(session, CONTACT, f"1.0 {clock.read(session)!r}")


def run(settings: ServiceSettings, check: Callable[[], None]) -> None:
    own = Database(settings.url)
    repository = JobRepository(own, settings, "w1")
    log = structlog.get_logger()
    sweeper = Sweeper(settings, repository, [], make_notifier(settings), log)
    verifier = Verifier(settings, repository, log)
    sweeper.start()
    verifier.start()
    try:
        check()
    finally:
        verifier.stop()
        sweeper.stop()
        own.dispose()


def test_an_entry_that_is_none_freezes_its_scope_and_leases_are_freed_all_the_same(
    database: Database, settings: ServiceSettings
) -> None:
    """At 9f63d67 it ended the thread that frees leases."""
    place = make_place(database)
    elsewhere = make_place(database)
    with database.write() as session:
        submit(session, place)
        lost = submit(session, elsewhere).id
    while (claim := database.transaction(jobs.claim, "w", 600.0)) is not None and claim.job_id != lost:
        pass
    with database.write() as session:
        drop_triggers(session)
        session.execute(
            text("UPDATE entries SET body = '{}' WHERE scope_id = :scope AND seq = 2"), {"scope": place.scope_id}
        )
    rehash(database, place.scope_id)

    def frozen() -> bool:
        with database.read() as session:
            return session.get_one(Scope, place.scope_id, populate_existing=True).frozen_reason is not None

    def freed() -> bool:
        with database.read() as session:
            return session.get_one(Job, lost, populate_existing=True).state == "queued"

    def check() -> None:
        until(frozen)
        lose_a_lease(database, lost)
        until(freed)

    run(settings, check)


def test_a_verification_that_takes_long_delays_no_lease(
    database: Database, settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_place(database)
    with database.write() as session:
        lost = submit(session, place).id
    assert database.transaction(jobs.claim, "w", 600.0) is not None
    genuine, begun, enough = verification.Verifier.advance, threading.Event(), threading.Event()

    def slowly(self: verification.Verifier, session: Session, most: float = inf) -> verification.Verification | None:
        begun.set()
        assert enough.wait(60.0), "nobody let it go on"
        return genuine(self, session, most)

    monkeypatch.setattr(verification.Verifier, "advance", slowly)

    def freed() -> bool:
        with database.read() as session:
            return session.get_one(Job, lost, populate_existing=True).state == "queued"

    def check() -> None:
        try:
            assert begun.wait(20.0)
            lose_a_lease(database, lost)
            until(freed, seconds=40.0)
        finally:
            enough.set()

    run(settings, check)
