"""Copies of an embedded home: the database and the records it names, with a manifest of digests.

A backup is taken while the service runs: the database is copied in one snapshot, and records never change once they
are stored. They are copied as they are, encrypted. The master key is left out on purpose, so that who has the backup
does not have the records; its fingerprint says which one a restore needs. The witness is left out on purpose, too: it
has to know what a backup does not. A restored ledger therefore starts frozen, for a copy cannot tell what was read
after it was made; `reconcile` charges that and goes on.
"""

import json
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy import select
from sqlalchemy.engine import make_url

from core.access import emails, invitations, sessions, webhooks
from core.base.errors import Conflict, NotFound, NotReady
from core.base.files import copy, digest_of, replace, sync_file, sync_folder
from core.base.patterns import Pattern
from core.base.settings import ServiceSettings
from core.base.validation_errors import said
from core.db import clock
from core.db.database import Database
from core.db.tables import Dataset
from core.ledger.claims import freeze_ledger
from core.records import parts
from core.records.datasets import webhook_secrets
from core.records.master_key import fingerprint_of, load_master_keys
from core.records.records import StoredRecords, kept_of
from core.records.storage import Storage, open_storage

DATABASE: Final = "farthing.sqlite"
RECORDS: Final = "records"
MANIFEST: Final = "manifest.json"
RESTORED: Final = "it was restored from a backup."
STAGING: Final = ".restoring"
BESIDE: Final = frozenset({"lock", "master.key", "signing.key", "witness.jsonl", "witness.lock", STAGING})
"""Files that a home may hold before a backup is restored into it: its keys, the witness, locks, and half a restore."""
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 0.5


class File(BaseModel):
    """One file of a backup."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[
        str,
        Pattern(
            r"^(farthing\.sqlite|records/[0-9A-Za-z._-]{1,100})$",
            "farthing.sqlite, or records/ and the name of one file in that folder",
            "records/rec_1.sealed",
        ),
    ]
    """Relative to the backup."""
    bytes: int
    sha256: str


class Manifest(BaseModel):
    """The content of a backup."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["farthing-backup"] = "farthing-backup"
    version: Literal[1] = 1
    made_at: float
    """Seconds since the epoch by the database's clock."""
    revision: str | None
    """Of the database's tables."""
    master_keys: tuple[str, ...] = ()
    """Fingerprints of the master keys that the records and the secrets of webhooks are under."""
    files: tuple[File, ...]


class _Gone(Exception):
    """The records of a dataset were there when the database was copied, and are not any more."""


def backup(database: Database, storage: Storage, to: Path) -> Manifest:
    """Copy a database and its records into a new folder, also while the service runs.

    Args:
        database: a SQLite database.
        storage: where the encoded records are.
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
            manifest = _copy(database, storage, partial)
        except _Gone as gone:  # erased between the snapshot and the copy: a new snapshot knows of that
            if attempt == _TRIES - 1:
                shutil.rmtree(partial)
                raise NotFound(f"The records of {gone} are missing, or are not those that were stored.") from None
            time.sleep(_PAUSE_SECONDS)
            continue
        partial.replace(to)
        sync_folder(to.parent)
        return manifest
    raise AssertionError("the loop returns or raises")


def _copy(database: Database, storage: Storage, folder: Path) -> Manifest:
    """Copy everything into `folder` and write its manifest."""
    database.backup(folder / DATABASE)
    copied = Database(f"sqlite+pysqlite:///{(folder / DATABASE).absolute()}")
    try:
        kept = _kept(copied)
        with copied.read() as session:
            made_at = clock.read(session)
            secrets = webhook_secrets(session)
        revision = copied.revision()
    finally:
        copied.dispose()
    (folder / RECORDS).mkdir(mode=0o700)
    for records in kept:
        target = folder / RECORDS / records.location
        try:
            with storage.open(records.location) as file:
                copy(file, target)
        except FileNotFoundError:
            raise _Gone(records.dataset_id) from None
        if _digest(target) != records.digest:  # an erasure that is under way overwrites before it removes
            raise _Gone(records.dataset_id)
    files = [_told(folder, folder / DATABASE)]  # opening it may have changed its header, so not before
    files += [_told(folder, folder / RECORDS / records.location) for records in kept]
    wrapped = [*(records.wrapped_key for records in kept), *secrets.values()]
    fingerprints = {fingerprint_of(text) for text in wrapped}
    manifest = Manifest(made_at=made_at, revision=revision, master_keys=tuple(sorted(fingerprints)), files=tuple(files))
    replace(folder / MANIFEST, json.dumps(manifest.model_dump(mode="json"), indent=1).encode())
    sync_folder(folder / RECORDS)
    return manifest


def _kept(database: Database) -> list[StoredRecords]:
    """Return where the records are that are to be kept; not those of datasets in erasure."""
    here = (Dataset.state.in_(("ready", "pending")), Dataset.location.is_not(None))  # a draft is pending
    statement = select(Dataset).where(*here).order_by(Dataset.id)
    with database.read() as session:
        return [kept_of(found) for found in session.execute(statement).scalars()]


def restore(source: Path, settings: ServiceSettings) -> Manifest:
    """Put a backup into an empty home, and leave its ledger frozen.

    Every file is checked against the manifest before anything is written, and again as it arrives. The master key has
    to be there before, and a witness that stands in the home already stays as it is.

    Args:
        source: a folder that `backup` made.
        settings: of the home; nothing but its master key and its witness may be in it. SQLite.

    Raises:
        NotFound: the folder is no backup.
        NotReady: the master key is not there, or not the one that the records are under.
        Conflict: the home is not empty, a file is not the one that was written, or the database is not SQLite.
    """
    manifest = read_manifest(source)
    url = make_url(settings.url)
    if url.get_backend_name() != "sqlite" or not url.database:
        raise Conflict("A backup of an embedded home is restored into SQLite; unset FARTHING_DATABASE_URL.")
    home, database = settings.home, Path(url.database)
    _refuse_used(settings, database, manifest)
    _refuse_other_key(settings, manifest)
    staging = home / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    (staging / RECORDS).mkdir(mode=0o700, parents=True)
    for file in manifest.files:
        with (source / file.path).open("rb") as original:
            copy(original, staging / file.path)
        if _digest(staging / file.path) != file.sha256:
            raise Conflict(f"{file.path} changed while it was copied.")
    _freeze(staging / DATABASE)
    # The database comes last, whole and frozen: a service that starts on half a restore finds none.
    settings.records_path.mkdir(mode=0o700, exist_ok=True)
    storage = open_storage(settings)
    for path in sorted((staging / RECORDS).iterdir()):
        with suppress(FileExistsError):  # of a restore that was cut short: what is read of it is checked
            storage.put(path, path.name)
    database.parent.mkdir(parents=True, exist_ok=True)
    (staging / DATABASE).replace(database)
    shutil.rmtree(staging)
    sync_folder(home)
    return manifest


def _refuse_other_key(settings: ServiceSettings, manifest: Manifest) -> None:
    """Refuse a master key that would not open the records."""
    if not manifest.master_keys:
        return
    needed = ", ".join(manifest.master_keys)
    try:
        found = load_master_keys(settings)
    except NotReady as missing:
        raise NotReady(
            f"This backup's records are encrypted under master key {needed}, which a backup does not hold. Put that "
            f"key's file at {settings.master_key_path} first. {missing.detail}"
        ) from missing
    if set(manifest.master_keys) - set(found.fingerprints):
        raise NotReady(
            f"This backup's records are encrypted under master key {needed}, but the one here is "
            f"{', '.join(found.fingerprints)}. Put the right one at {settings.master_key_path} first."
        )


def _place(error: ValidationError) -> str:
    """Return where a manifest is wrong, to stand before what is wrong with it."""
    place = "/".join(map(str, error.errors()[0]["loc"]))
    return f"{place} " if place else ""


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
        raise Conflict(f"{source / MANIFEST} cannot be read: {_place(error)}{said(error.errors()[0])}.") from None
    if DATABASE not in {file.path for file in manifest.files}:
        raise Conflict(f"{source / MANIFEST} names no database.")
    for file in manifest.files:
        if not (source / file.path).is_file():
            raise Conflict(f"{file.path} is missing in {source}.")
        if _digest(source / file.path) != file.sha256:
            raise Conflict(f"{file.path} in {source} is not the file that was backed up.")
    return manifest


def _refuse_used(settings: ServiceSettings, database: Path, manifest: Manifest) -> None:
    """Refuse a home that holds more than its key, its witness, and records of this very backup."""
    home, records = settings.home, settings.records_path
    ours = {Path(file.path).name for file in manifest.files}
    beside = BESIDE | {settings.master_key_path.name, settings.signing_key_path.name}
    used = [path.name for path in sorted(home.iterdir()) if path.name not in beside] if home.is_dir() else []
    if records.is_dir() and {path.name for path in records.iterdir()} <= ours:
        used = [name for name in used if name != records.name]
    used += [str(path) for path in (database,) if path.exists() and path.parent != home]
    if used:
        raise Conflict(
            f"{home} is not empty ({', '.join(used[:5])}). Move it away, put its witness and its master key into a new "
            "folder, and restore into that one."
        )


def _freeze(path: Path) -> None:
    """Freeze the ledger of a database file; end sessions, webhooks, and uploads whose parts are not here."""
    database = Database(f"sqlite+pysqlite:///{path.absolute()}")
    try:
        database.transaction(sessions.forget)
        database.transaction(invitations.forget)
        database.transaction(webhooks.forget)
        database.transaction(emails.forget)
        database.transaction(parts.forget)
        database.transaction(freeze_ledger, RESTORED)
    finally:
        database.dispose()  # the last connection folds the log back into the file
    sync_file(path)


def _told(folder: Path, path: Path) -> File:
    """Describe a file of a backup."""
    return File(path=str(path.relative_to(folder)), bytes=path.stat().st_size, sha256=_digest(path))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return digest_of(file)
