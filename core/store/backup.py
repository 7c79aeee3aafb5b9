"""Copies of an embedded home: the database and the records it names, with a manifest of digests.

A backup is taken while the service runs: the database is copied in one snapshot, and records never change once they
are stored. The witness is left out on purpose: it has to know what a backup does not. A restored ledger therefore
starts frozen, for a copy cannot tell what was read after it was made; `reconcile` charges that and goes on.
"""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import select
from sqlalchemy.engine import make_url

from core.errors import Conflict, NotFound
from core.store import clock
from core.store.claims import freeze_ledger
from core.store.database import Database
from core.store.records import digest_of
from core.store.tables import Dataset
from core.store.uploads import sync_folder

DATABASE: Final = "farthing.sqlite"
RECORDS: Final = "records"
MANIFEST: Final = "manifest.json"
RESTORED: Final = "it was restored from a backup."
STAGING: Final = ".restoring"
BESIDE: Final = frozenset({"lock", "witness.jsonl", "witness.lock", STAGING})
"""What a home may hold before a backup is restored into it: the witness, locks, and half a restore."""
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 0.5


class File(BaseModel):
    """One file of a backup."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, Field(pattern=r"^(farthing\.sqlite|records/[0-9A-Za-z._-]{1,100})$")]
    """Relative to the backup."""
    bytes: int
    sha256: str


class Manifest(BaseModel):
    """What a backup holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["farthing-backup"] = "farthing-backup"
    version: Literal[1] = 1
    made_at: float
    """Seconds since the epoch by the database's clock."""
    revision: str | None
    """Of the database's tables."""
    files: tuple[File, ...]


class _Gone(Exception):
    """The records of a dataset were there when the database was copied, and are not any more."""


def backup(database: Database, records: Path, to: Path) -> Manifest:
    """Copy a database and its records into a new folder, also while the service runs.

    Args:
        database: a SQLite database.
        records: the folder of the encoded records.
        to: the new folder; it is given its name only when the copy is whole and on the disk.

    Raises:
        Conflict: the folder exists, or the database is not SQLite.
        NotFound: records that the database names are missing.
    """
    if not database.is_sqlite:
        raise Conflict("This database is PostgreSQL: back it up with pg_basebackup or pg_dump, and copy the records.")
    if to.exists():
        raise Conflict(f"{to} exists; name a new folder.")
    partial = to.with_name(f".{to.name}.partial")
    for attempt in range(_TRIES):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700, parents=True)
        try:
            manifest = _copy(database, records, partial)
        except _Gone as gone:  # erased between the snapshot and the copy: a new snapshot knows of that
            if attempt == _TRIES - 1:
                shutil.rmtree(partial)
                raise NotFound(f"The records of {gone} are missing in {records}.") from None
            time.sleep(_PAUSE_SECONDS)
            continue
        partial.replace(to)
        sync_folder(to.parent)
        return manifest
    raise AssertionError("the loop returns or raises")


def _copy(database: Database, records: Path, folder: Path) -> Manifest:
    """Copy everything into `folder` and write its manifest."""
    database.backup(folder / DATABASE)
    files = [_told(folder, folder / DATABASE)]
    copied = Database(f"sqlite+pysqlite:///{(folder / DATABASE).absolute()}")
    try:
        kept = _kept(copied)
        with copied.read() as session:
            made_at = clock.read(session)
        revision = copied.revision()
    finally:
        copied.dispose()
    (folder / RECORDS).mkdir(mode=0o700)
    for dataset_id, location, digest in kept:
        target = folder / RECORDS / location
        try:
            _copy_file(records / location, target)
        except FileNotFoundError:
            raise _Gone(dataset_id) from None
        if digest_of(target) != digest:  # an erasure that is under way overwrites before it removes
            raise _Gone(dataset_id)
        files.append(_told(folder, target))
    files[0] = _told(folder, folder / DATABASE)  # opening it may have changed its header
    manifest = Manifest(made_at=made_at, revision=revision, files=tuple(files))
    _write(folder / MANIFEST, json.dumps(manifest.model_dump(mode="json"), indent=1).encode())
    sync_folder(folder / RECORDS)
    sync_folder(folder)
    return manifest


def _kept(database: Database) -> list[tuple[str, str, str | None]]:
    """Return identifier, file and digest of each dataset whose records are to be kept; not those in erasure."""
    statement = select(Dataset).where(Dataset.state == "ready").order_by(Dataset.id)
    with database.read() as session:
        found = session.execute(statement).scalars()
        return [(one.id, one.location, one.location_digest) for one in found if one.location is not None]


def restore(source: Path, database_url: str, records: Path, home: Path) -> Manifest:
    """Put a backup into an empty home, and leave its ledger frozen.

    Every file is checked against the manifest before anything is written, and again as it arrives. A witness that
    stands in the home already stays as it is.

    Args:
        source: a folder that `backup` made.
        database_url: where the database belongs; SQLite.
        records: where the records belong.
        home: the home; nothing but its witness may be in it.

    Raises:
        NotFound: the folder is no backup.
        Conflict: the home is not empty, a file is not the one that was written, or the database is not SQLite.
    """
    manifest = read_manifest(source)
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite" or not url.database:
        raise Conflict("A backup of an embedded home is restored into SQLite; unset FARTHING_DATABASE_URL.")
    _refuse_used(home, Path(url.database), records)
    staging = home / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    (staging / RECORDS).mkdir(mode=0o700, parents=True)
    for file in manifest.files:
        _copy_file(source / file.path, staging / file.path)
        if digest_of(staging / file.path) != file.sha256:
            raise Conflict(f"{file.path} changed while it was copied.")
    _freeze(staging / DATABASE)
    sync_folder(staging / RECORDS)
    # The database comes last, whole and frozen: a service that starts on half a restore finds none.
    records.parent.mkdir(parents=True, exist_ok=True)
    (staging / RECORDS).replace(records)
    Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    (staging / DATABASE).replace(url.database)
    staging.rmdir()
    sync_folder(home)
    return manifest


def read_manifest(source: Path) -> Manifest:
    """Return a backup's manifest, once every file of it was compared with its digest.

    Raises:
        NotFound: the folder is no backup.
        Conflict: a file is missing, or is not the one that was written.
    """
    if not (source / MANIFEST).is_file():
        raise NotFound(f"{source} is no backup: it holds no {MANIFEST}.")
    try:
        manifest = Manifest.model_validate_json((source / MANIFEST).read_bytes())
    except ValidationError as error:
        raise Conflict(f"{source / MANIFEST} cannot be read: {error.errors()[0]['msg']}.") from None
    if DATABASE not in {file.path for file in manifest.files}:
        raise Conflict(f"{source / MANIFEST} names no database.")
    for file in manifest.files:
        if not (source / file.path).is_file():
            raise Conflict(f"{file.path} is missing in {source}.")
        if digest_of(source / file.path) != file.sha256:
            raise Conflict(f"{file.path} in {source} is not the file that was backed up.")
    return manifest


def _refuse_used(home: Path, database_path: Path, records: Path) -> None:
    """Refuse a home that holds more than its witness."""
    used = [path.name for path in sorted(home.iterdir()) if path.name not in BESIDE] if home.is_dir() else []
    used += [str(path) for path in (database_path, records) if path.exists() and path.parent != home]
    if used:
        raise Conflict(
            f"{home} is not empty ({', '.join(used[:5])}). Move it away, put its witness into a new folder, and "
            "restore into that one."
        )


def _freeze(path: Path) -> None:
    """Freeze the ledger of a database file."""
    database = Database(f"sqlite+pysqlite:///{path.absolute()}")
    try:
        database.run(freeze_ledger, RESTORED)
    finally:
        database.dispose()  # the last connection folds the log back into the file
    _sync(path)


def _told(folder: Path, path: Path) -> File:
    """Describe a file of a backup."""
    return File(path=str(path.relative_to(folder)), bytes=path.stat().st_size, sha256=digest_of(path))


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file durably; only this user may read it."""
    with source.open("rb") as reader:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as writer:  # noqa: PTH123 - from a descriptor, for its mode
            shutil.copyfileobj(reader, writer, 2**20)
            writer.flush()
            os.fsync(writer.fileno())


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
