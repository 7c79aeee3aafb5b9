"""Payments that survive a database that is away for a while, and give up after a lease."""

import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from core.base.errors import DatabaseAway, LedgerBusy, StaleAttempt
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.tables import Job, Scope
from core.jobs import jobs
from core.ledger.claims import Claim
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.training.ledger_writer import FencedLedgerWriter
from tests.support.store import make_place, submit

CLAIM = Claim("job_none", 1, "epoch", 1)


def away() -> OperationalError:
    return OperationalError("COMMIT", {}, Exception("the server closed the connection"))


def writer(database: Database, lease_seconds: float = 3.0) -> FencedLedgerWriter:
    return FencedLedgerWriter(database, CLAIM, ServiceSettings(lease_seconds=lease_seconds))


@pytest.mark.parametrize("trouble", [LedgerBusy("busy"), away()], ids=["busy", "away"])
def test_a_write_is_repeated_until_it_is_committed(database: Database, trouble: Exception) -> None:
    tried = []

    def work(session: Any) -> str:
        tried.append(session)
        if len(tried) < 3:
            raise trouble
        return "done"

    assert writer(database).database.transaction(work) == "done"
    assert len(tried) == 3


def test_it_gives_up_after_a_lease(database: Database) -> None:
    def work(session: Any) -> None:
        assert session is not None
        raise away()

    began = time.monotonic()
    with pytest.raises(OperationalError if database.is_sqlite else DatabaseAway):
        writer(database, 0.3).database.transaction(work)
    assert 0.3 <= time.monotonic() - began < 10


def test_a_refusal_is_final(database: Database) -> None:
    tried = []

    def work(session: Any) -> None:
        tried.append(session)
        raise StaleAttempt("gone")

    with pytest.raises(StaleAttempt):
        writer(database).database.transaction(work)
    assert len(tried) == 1


def test_a_payment_is_witnessed_though_the_database_goes_away_between_the_two(
    database: Database, tmp_path: Path
) -> None:
    settings = ServiceSettings(home=tmp_path, lease_seconds=30.0)
    witness = Witness(settings.witness_path)
    assert guard(database, witness) == []
    place = make_place(database)
    with database.write() as session:
        submit(session, place)
        taken = jobs.claim(session, "a supervisor", 30.0)
    assert taken is not None
    tried = []

    def fail(*_: object) -> None:
        tried.append(1)
        if len(tried) < 3:
            raise away()

    event.listen(database._reader, "before_cursor_execute", fail)
    FencedLedgerWriter(database, taken, settings).pay(0, None, 0)
    event.remove(database._reader, "before_cursor_execute", fail)
    assert len(tried) > 3
    with database.read() as session:
        assert witness.read()[place.scope_id].seq == session.get_one(Scope, place.scope_id).seq
        assert session.get_one(Job, taken.job_id).chunks_spent == 1


def test_what_reads_is_done_again(database: Database) -> None:
    tried = []

    def work(answer: str) -> str:
        tried.append(answer)
        if len(tried) < 3:
            raise away()
        return answer

    assert writer(database).database.insist(work, "done") == "done"


def test_each_payment_is_witnessed_before_its_chunk_is_read(database: Database, tmp_path: Path) -> None:
    settings = ServiceSettings(home=tmp_path, lease_seconds=30.0)
    witness = Witness(settings.witness_path)
    assert guard(database, witness) == []
    place = make_place(database)
    with database.write() as session:
        submit(session, place)
        taken = jobs.claim(session, "a supervisor", 30.0)
    assert taken is not None
    witness.keep(database)
    before = witness.read()[place.scope_id].seq
    FencedLedgerWriter(database, taken, settings).pay(0, None, 0)
    assert witness.read()[place.scope_id].seq == before + 2, "the reading, and its payment"
