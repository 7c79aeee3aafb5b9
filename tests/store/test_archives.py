"""Old lines of the audit trail go to a file that is accounted for, and no other line goes at all."""

import json
import time
from pathlib import Path

import pytest
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from core.store.access import archives, audit
from core.store.access.archives import AuditArchive
from core.store.access.audit import Line
from core.store.database import Database
from core.store.service_tables import Audit

YEAR = 366 * 86400.0


def write(database: Database, count: int, at: float) -> None:
    lines = [Line(None, "GET /v1/me", f"line {number}", 200, None, f"req_{number}") for number in range(count)]
    database.run(audit.append, lines, at)


def left(database: Database) -> int:
    with database.read() as session:
        return session.execute(select(func.count()).select_from(Audit)).scalar_one()


def test_old_lines_are_in_the_file_and_new_ones_in_the_trail(database: Database, tmp_path: Path) -> None:
    write(database, 2500, time.time() - 2 * YEAR)
    time.sleep(0.01)  # identifiers are sorted by time
    write(database, 3, time.time())
    made = archives.archive(database, tmp_path, YEAR)
    assert made is not None
    assert (made.seq, made.lines, made.prev_hash) == (1, 2500, archives.FIRST_HASH)
    lines = [json.loads(line) for line in (tmp_path / made.file).read_text().splitlines()]
    assert sorted(int(line["target"].split()[1]) for line in lines) == list(range(2500))
    assert left(database) == 4, "three new ones, and that of the archive"
    with database.read() as session:
        assert archives.problems(session, tmp_path) == []
        assert session.execute(select(Audit.action).order_by(Audit.id.desc()).limit(1)).scalar_one() == archives.ACTION
    assert archives.archive(database, tmp_path, YEAR) is None


def test_archives_are_chained_and_a_changed_file_is_found(database: Database, tmp_path: Path) -> None:
    for years in (4, 3):
        write(database, 5, time.time() - years * YEAR)
        assert archives.archive(database, tmp_path, YEAR) is not None
    with database.read() as session:
        first, second = archives.known(session)
        assert second.prev_hash == first.hash
        (tmp_path / first.file).write_text("changed\n")
        (tmp_path / second.file).unlink()
        assert archives.problems(session, tmp_path) == [
            f"{first.file} was changed",
            f"{second.file} is not in {tmp_path}",
        ]


@pytest.mark.parametrize("table", [Audit, AuditArchive])
def test_nothing_else_goes(database: Database, tmp_path: Path, table: type[Audit] | type[AuditArchive]) -> None:
    write(database, 5, time.time() - 2 * YEAR)
    assert archives.archive(database, tmp_path, YEAR) is not None
    write(database, 5, time.time())

    def remove(session: Session) -> None:
        session.execute(delete(table))

    def change(session: Session) -> None:
        column = "status" if table is Audit else "lines"
        session.execute(update(table).values({column: 0}))

    for work in (remove, change):
        with pytest.raises(DBAPIError):
            database.run(work)
    assert left(database) == 6


def test_a_transaction_that_fails_leaves_trail_and_folder_as_they_were(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(database, 5, time.time() - 2 * YEAR)

    def fail(*_: object) -> None:
        raise RuntimeError("no line")

    monkeypatch.setattr(archives, "append", fail)
    with pytest.raises(RuntimeError):
        archives.archive(database, tmp_path / "kept", YEAR)
    assert left(database) == 5
    assert list((tmp_path / "kept").iterdir()) == []
    with database.read() as session:
        assert archives.known(session) == []
