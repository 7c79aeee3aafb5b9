from contextlib import nullcontext
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from core.base.errors import LedgerBusy, NotReady
from core.db import clock, connections
from core.db import database as module
from core.db.base import Base
from core.db.connections import journal, refuse_network_file_system
from core.db.database import Database
from core.db.revisions import REVISION_TABLE
from core.db.tables import Principal
from core.jobs import sweep
from tests.support.store import make_place


def test_migrations_make_the_tables(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": REVISION_TABLE})
        assert compare_metadata(context, Base.metadata) == []


def test_accepts_its_own_revision_and_the_next(database: Database) -> None:
    for revision, ready in (("0003", False), ("0004", True), ("0005", True), ("0006", False)):
        with database.write() as session:
            session.execute(text("UPDATE schema_revision SET version_num = :revision"), {"revision": revision})
        assert database.ready() is ready


def test_reading_sessions_cannot_write(database: Database) -> None:
    with pytest.raises(DBAPIError, match=r"readonly|read-only"), database.read() as session:  # noqa: PT012 - one block
        session.add(Principal(id="pr_x", name="x", role="owner", created_at=0.0))
        session.flush()


def test_a_failed_block_leaves_nothing(database: Database) -> None:
    with pytest.raises(RuntimeError), database.write() as session:  # noqa: PT012 - the failure comes after the write
        session.add(Principal(id="pr_x", name="x", role="owner", created_at=0.0))
        session.flush()
        raise RuntimeError
    with database.read() as session:
        assert session.execute(select(Principal)).all() == []


@pytest.mark.parametrize("table", ["entries", "audit"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET created_at = 0", "DELETE FROM {}"])
def test_history_is_append_only(database: Database, table: str, statement: str) -> None:
    make_place(database)
    with database.write() as session:
        session.execute(text("INSERT INTO audit VALUES ('evt_1', NULL, 'x', NULL, 200, NULL, 'r', 1.0)"))
    with pytest.raises(DBAPIError, match="append-only"), database.write() as session:
        session.execute(text(statement.format(table)))


def test_retries_where_locks_crossed_and_gives_up(database: Database) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite has one writer: locks cannot cross")
    calls = []

    def crossed(session: object, failures: int) -> str:
        calls.append(1)
        if len(calls) <= failures:
            session.execute(text("DO $$ BEGIN RAISE EXCEPTION 'crossed' USING ERRCODE = '40P01'; END $$"))
        return "done"

    assert database.transaction(crossed, module.RETRIES) == "done"
    calls.clear()
    with pytest.raises(LedgerBusy):
        database.transaction(crossed, 99)
    assert len(calls) == module.RETRIES + 1


def test_waits_for_a_lock_no_longer_than_its_limit(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make_place(database)
    if database.is_sqlite:
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.2)
    other = Database(database.url)
    with database.write() as session:
        session.execute(text("UPDATE scopes SET units = 2 WHERE id = :id"), {"id": place.scope_id})
        with pytest.raises(LedgerBusy), other.write() as rival:
            rival.execute(text("UPDATE scopes SET units = 3 WHERE id = :id"), {"id": place.scope_id})
    other.dispose()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize(("patience_seconds", "freed"), [(1.0, True), (0.0, False)])
def test_a_process_that_stands_still_keeps_no_lock(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    patience_seconds: float,
    freed: bool,
) -> None:
    """A supervisor was stopped amid its sweep; a server with endless patience keeps all others from theirs."""
    monkeypatch.setattr(connections, "STALL_SECONDS", patience_seconds)
    still, other = Database(database.url), Database(database.url)
    with pytest.raises(LedgerBusy) if freed else nullcontext(), still.write() as session:
        sweep.sweep(session, 60.0, 3, 1e9)
        with nullcontext() if freed else pytest.raises(LedgerBusy):
            other.transaction(sweep.sweep, 60.0, 3, 1e9)
        session.execute(select(Principal))  # it wakes
    still.dispose()
    other.dispose()


def test_refuses_a_server_that_may_forget_commits(database: Database) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite sets its own syncing")
    unsafe = database.url.update_query_dict({"options": "-c synchronous_commit=off"})
    with pytest.raises(NotReady, match="synchronous_commit"):
        Database(unsafe)


def test_sqlite_syncs_every_commit(tmp_path: Path) -> None:
    made = Database(f"sqlite+pysqlite:///{tmp_path / 'a.sqlite'}")
    with made.write() as session:
        assert session.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
        assert session.execute(text("PRAGMA synchronous")).scalar_one() == 2
        assert session.execute(text("PRAGMA foreign_keys")).scalar_one() == 1
    made.dispose()
    assert journal((3, 51, 2)) == ("delete", "EXTRA")
    assert journal((3, 51, 3)) == ("wal", "FULL")


def test_an_affected_sqlite_uses_the_rollback_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_FIRST_SAFE_LOG", (99, 0, 0))
    made = Database(f"sqlite+pysqlite:///{tmp_path / 'a.sqlite'}")
    made.migrate()
    with made.write() as session:
        assert session.execute(text("PRAGMA journal_mode")).scalar_one() == "delete"
        assert session.execute(text("PRAGMA synchronous")).scalar_one() == 3
    assert made.ready()
    made.dispose()


def test_refuses_sqlite_without_a_file() -> None:
    with pytest.raises(NotReady):
        Database("sqlite+pysqlite:///:memory:")


def test_refuses_network_file_systems(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    with pytest.raises(NotReady, match="nfs4"):
        refuse_network_file_system(tmp_path / "home", mounts)
    refuse_network_file_system(Path("/elsewhere"), mounts)
    refuse_network_file_system(tmp_path, tmp_path / "missing")


def test_backup_is_a_whole_database(database: Database, tmp_path: Path) -> None:
    if not database.is_sqlite:
        with pytest.raises(AssertionError):
            database.backup(tmp_path / "copy.sqlite")
        return
    make_place(database)
    database.backup(tmp_path / "copy.sqlite")
    copy = Database(f"sqlite+pysqlite:///{tmp_path / 'copy.sqlite'}")
    with copy.read() as session:
        assert len(session.execute(select(Principal)).all()) == 1
    copy.dispose()


def test_the_process_clock_has_no_say(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    import time  # noqa: PLC0415 - patched below

    with database.read() as session:
        before = clock.read(session)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    with database.read() as session:
        assert 0 <= clock.read(session) - before < 60
