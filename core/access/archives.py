"""Old lines of the audit log, moved to a file: each archive names its lines and its file's hash, chained to the last.

The table of archives is only ever added to, and a trigger lets those lines of the audit log go alone that an archive
names. Lines that left the audit log are accounted for, and a file that was changed is found by its hash.
"""

import json
import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Float, Integer, String, delete, func, insert, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from core.access.audit import PAGE, Line, append
from core.base.errors import Conflict
from core.base.files import sync_folder
from core.db import clock
from core.db.base import Base, Id
from core.db.database import Database
from core.db.service_tables import Audit

FIRST_HASH: Final = "sha256:" + "0" * 64
ACTION: Final = "archive audit"


class AuditArchive(Base):
    """Lines of the audit log that are in a file now; append-only (a trigger)."""

    __tablename__ = "audit_archives"

    seq: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)  # from 1
    first_id: Mapped[str] = mapped_column(Id)
    last_id: Mapped[str] = mapped_column(Id)
    lines: Mapped[int] = mapped_column(Integer)
    file: Mapped[str] = mapped_column(String(200))  # its name
    digest: Mapped[str] = mapped_column(String(80))  # sha256:... of the file
    prev_hash: Mapped[str] = mapped_column(String(80))
    hash: Mapped[str] = mapped_column(String(80))  # over the one before and the fields above
    created_at: Mapped[float] = mapped_column(Float)


def archive(database: Database, folder: Path, older_than_seconds: float) -> AuditArchive | None:
    """Move lines of the audit log that are older into a new file; return what is noted of it, None where none is older.

    The file is whole and on the disk before a line goes; where anything fails, the audit log is as it was.

    Args:
        database: the one with the audit log.
        folder: where the file goes; made where it is not there.
        older_than_seconds: by the database's clock.

    Raises:
        Conflict: lines came in between; run it again.
    """
    with database.read() as session:
        before = clock.read(session) - older_than_seconds
        last_id = session.execute(select(func.max(Audit.id)).where(Audit.created_at < before)).scalar()
        if last_id is None:
            return None
        first_id = session.execute(select(func.min(Audit.id))).scalar_one()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"audit-{first_id}-{last_id}.jsonl"
    partial = path.with_suffix(".partial")
    digest, count = _write(database, partial, last_id)

    def work(session: Session) -> AuditArchive:
        at = clock.read(session)
        last = session.execute(select(AuditArchive).order_by(AuditArchive.seq.desc()).limit(1)).scalar_one_or_none()
        there = session.execute(select(func.count()).where(Audit.id <= last_id)).scalar_one()
        # Identifiers follow processes' clocks, so a late line may sort before the last one of the file.
        if there != count:
            raise Conflict("Lines of that time came in meanwhile: run it again.")
        fields: dict[str, Any] = {
            "seq": 1 if last is None else last.seq + 1,
            "first_id": first_id,
            "last_id": last_id,
            "lines": count,
            "file": path.name,
            "digest": f"sha256:{digest}",
            "prev_hash": FIRST_HASH if last is None else last.hash,
        }
        # The archive first: the trigger lets go only of lines that an archive names.
        session.execute(insert(AuditArchive).values(**fields, hash=hash_of(fields), created_at=at))
        session.execute(delete(Audit).where(Audit.id <= last_id))
        append(session, [Line(None, ACTION, path.name, 200, None, f"archive {fields['seq']}")], at)
        return session.get_one(AuditArchive, fields["seq"])

    # Before the transaction: a crash in between leaves the lines twice, and never nowhere.
    partial.replace(path)
    sync_folder(folder)
    try:
        return database.transaction(work)
    except BaseException:
        # A commit whose answer was lost may have happened. Where the database cannot say so, the file stays.
        if not _is_known(database, path.name):
            path.unlink(missing_ok=True)
        raise


def _is_known(database: Database, file: str) -> bool:
    with database.read() as session:
        return session.execute(select(AuditArchive.seq).where(AuditArchive.file == file)).first() is not None


def _write(database: Database, path: Path, last_id: str) -> tuple[str, int]:
    """Write all lines up to one to a file, durably; return its hash and how many they are."""
    digest, count = sha256(), 0
    with path.open("wb") as file:
        for text in _lines(database, last_id):
            digest.update(text)
            file.write(text)
            count += 1
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest(), count


def _lines(database: Database, last_id: str) -> Iterator[bytes]:
    after = ""
    while True:
        with database.read() as session:
            statement = select(Audit).where(Audit.id > after, Audit.id <= last_id).order_by(Audit.id).limit(PAGE)
            found = [
                {column.name: getattr(row, column.name) for column in Audit.__table__.columns}
                for row in session.execute(statement).scalars()
            ]
        for one in found:
            yield json.dumps(one, sort_keys=True).encode() + b"\n"
        if len(found) < PAGE:
            return
        after = found[-1]["id"]


def hash_of(fields: dict[str, Any]) -> str:
    """Return the hash of what is noted of an archive, which holds that of the one before."""
    names = ("seq", "first_id", "last_id", "lines", "file", "digest", "prev_hash")
    text = json.dumps({name: fields[name] for name in names}, sort_keys=True, separators=(",", ":"))
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def known(session: Session) -> list[AuditArchive]:
    """Return all archives, the first one first."""
    return list(session.execute(select(AuditArchive).order_by(AuditArchive.seq)).scalars())


def problems(session: Session, folder: Path) -> list[str]:
    """Return what is wrong with the archives, or with their files in a folder; nothing where all is well.

    A file that is elsewhere is named, for whoever keeps it to look. Each archive left a line in the audit log, which
    names
    it: the last one cannot go from the table without its line, and that line goes into no other archive's file unseen.
    """
    found, before, last_id = list[str](), FIRST_HASH, ""
    archives = known(session)
    for seq, one in enumerate(archives, 1):
        fields = {column.name: getattr(one, column.name) for column in AuditArchive.__table__.columns}
        follows = one.first_id > last_id and one.seq == seq
        if not follows or one.prev_hash != before or one.hash != hash_of(fields):
            found.append(f"archive {one.seq} does not follow from the one before")
        before, last_id = one.hash, one.last_id
        path = folder / one.file
        if not path.is_file():
            found.append(f"{one.file} is not in {folder}")
        elif f"sha256:{_digest_of(path)}" != one.digest:
            found.append(f"{one.file} was changed")
    return found + _unaccounted(session, folder, archives)


def _unaccounted(session: Session, folder: Path, archives: Sequence[AuditArchive]) -> list[str]:
    """Return what the audit log and the folder tell of archives that the table does not, and lines that are back."""
    files = {one.file for one in archives}
    told = session.execute(select(Audit.target).where(Audit.action == ACTION, Audit.principal_id.is_(None))).scalars()
    found = [
        f"{name} was archived by a line of the audit log, and no archive says so" for name in told if name not in files
    ]
    there = sorted(path.name for path in folder.glob("audit-*.jsonl"))
    found += [f"{name} is of no archive" for name in there if name not in files]
    if archives:
        back = select(func.count()).select_from(Audit).where(Audit.id <= archives[-1].last_id)
        if many := session.execute(back).scalar_one():
            found.append(f"{many} lines of the audit log are from before the end of the last archive")
    return found


def _digest_of(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()
