"""Old lines of the audit log go to a file that is accounted for, and no other line goes at all."""

import json
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from core.access import archives, audit
from core.access.archives import AuditArchive
from core.access.audit import Line
from core.db.database import Database
from core.db.service_tables import Audit

YEAR = 366 * 86400.0


def write(database: Database, count: int, at: float) -> None:
    lines = [Line(None, "GET /v1/me", f"line {number}", 200, None, f"req_{number}") for number in range(count)]
    database.transaction(audit.append, lines, at)


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


Attack = Callable[[Session, Path, list[AuditArchive]], object]


def lose_a_file(_: Session, folder: Path, made: list[AuditArchive]) -> None:
    (folder / made[0].file).unlink()


def cut_a_file(_: Session, folder: Path, made: list[AuditArchive]) -> None:
    path = folder / made[1].file
    path.write_bytes(path.read_bytes()[:-20])


def exchange_two_files(_: Session, folder: Path, made: list[AuditArchive]) -> None:
    first, second = folder / made[0].file, folder / made[1].file
    texts = first.read_bytes(), second.read_bytes()
    first.write_bytes(texts[1])
    second.write_bytes(texts[0])


def exchange_two_archives(session: Session, _: Path, made: list[AuditArchive]) -> None:
    for seq, number in ((made[0].seq, 99), (made[1].seq, 1), (99, 2)):
        session.execute(update(AuditArchive).where(AuditArchive.seq == seq).values(seq=number))


def lose_the_newest(session: Session, folder: Path, made: list[AuditArchive]) -> None:
    session.execute(delete(AuditArchive).where(AuditArchive.seq == made[-1].seq))
    (folder / made[-1].file).unlink()


def lose_the_newest_row(session: Session, _: Path, made: list[AuditArchive]) -> None:
    session.execute(delete(AuditArchive).where(AuditArchive.seq == made[-1].seq))
    session.execute(delete(Audit).where(Audit.action == archives.ACTION))


def lose_the_first(session: Session, folder: Path, made: list[AuditArchive]) -> None:
    session.execute(delete(AuditArchive).where(AuditArchive.seq == made[0].seq))
    (folder / made[0].file).unlink()


def replace_the_newest(session: Session, folder: Path, made: list[AuditArchive]) -> None:
    """With another file and another digest; its own hash is left alone."""
    (folder / made[-1].file).write_bytes(b"{}\n")
    digest = f"sha256:{sha256(b'{}' + bytes([10])).hexdigest()}"
    session.execute(update(AuditArchive).where(AuditArchive.seq == made[-1].seq).values(digest=digest))


def bring_a_line_back(session: Session, _: Path, made: list[AuditArchive]) -> None:
    line = {"action": "GET /v1/me", "status": 200, "request_id": "req_0", "created_at": 1.0}
    session.execute(insert(Audit).values(id=made[0].first_id, **line))


ATTACKS = (
    lose_a_file,
    cut_a_file,
    exchange_two_files,
    exchange_two_archives,
    lose_the_newest,
    lose_the_newest_row,
    lose_the_first,
    replace_the_newest,
    bring_a_line_back,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.__name__)
def test_whatever_is_done_to_archives_is_found(database: Database, tmp_path: Path, attack: Attack) -> None:
    """By whoever has the folder and the database, triggers or not; at 2ee9d81 the newest could go, lines come back."""
    for years in (4, 3, 2):
        write(database, 5, time.time() - years * YEAR)
        time.sleep(0.01)
        assert archives.archive(database, tmp_path, 1.5 * YEAR) is not None
    with database.read() as session:
        assert archives.problems(session, tmp_path) == []
        made = archives.known(session)
    with database.write() as session:
        if session.get_bind().dialect.name == "sqlite":
            for name in session.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all():
                session.execute(text(f'DROP TRIGGER "{name}"'))
        else:
            session.execute(text("SET LOCAL session_replication_role = replica"))
        attack(session, tmp_path, made)
    with database.read() as session:
        assert archives.problems(session, tmp_path) != []


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
            database.transaction(work)
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


def test_a_commit_whose_answer_is_lost_keeps_the_file(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(database, 5, time.time() - 2 * YEAR)
    run = database.transaction

    def lose(work: Callable[[Session], object]) -> None:
        run(work)
        raise ConnectionError("the answer is lost")

    monkeypatch.setattr(database, "transaction", lose)
    with pytest.raises(ConnectionError):
        archives.archive(database, tmp_path / "kept", YEAR)
    with database.read() as session:
        (kept,) = archives.known(session)
    lines = (tmp_path / "kept" / kept.file).read_text().splitlines()
    assert (left(database), len(lines)) == (1, 5), "one line says that the others were archived"
