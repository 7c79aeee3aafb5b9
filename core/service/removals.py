"""The removal of one record on request: its row becomes an excluded one, in a new file under a new key.

Nobody but the owner sees it: the public number of records, the scope, its budget and its ledger stay as they are. The
key of the earlier file is gone with the change, and the file once no job that began before can read it any more.
"""

from contextlib import suppress
from typing import Final

from sqlalchemy.orm import Session

from core.base.errors import Conflict, FieldError, Forbidden, Invalid, LedgerBusy, NotReady
from core.base.files import copy
from core.base.identifiers import new_id
from core.db.tables import Dataset
from core.records import datasets as rows
from core.records import removals
from core.records.decoding.decode import Limits
from core.records.decoding.removal import remove_row
from core.records.decoding.validation import ValidationReport, open_report, seal_report
from core.records.encryption import SealedFile
from core.records.master_key import load_master_keys
from core.records.records import StoredRecords, kept_of
from core.records.storage import open_storage
from core.records.uploads import SPOOLED
from core.service import quotas
from core.service.context import Caller, Context
from core.service.datasets import RECORDS, find, finish_removals, refuse_elsewhere
from core.service.opening import refuse_ended
from farthing.schemas.datasets import RemovalView

_TRIES: Final = 3


def remove(context: Context, caller: Caller, dataset_id: str, row: int) -> RemovalView:
    """Remove a record; one that is excluded already is answered alike, so the request may be repeated.

    Args:
        context: the service.
        caller: the owner.
        dataset_id: the dataset.
        row: of its file, the first row of data being 1.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: another principal owns it; an admin may not either.
        Conflict: it is a draft, has no records, or is in erasure; another site keeps it; others change it meanwhile.
        Invalid: it has no such row.
        DiskFull: there is no room for a second file.
        Unauthenticated: the caller's key has ended meanwhile.
    """
    for _ in range(_TRIES):
        with context.database.read() as session:
            dataset = find(session, caller, dataset_id)
            _refuse(context, caller, dataset, row)
            session.expunge_all()
        if _replaced(context, caller, dataset, row):
            break
    else:
        raise Conflict("Other records of this dataset are being removed: repeat the request.")
    with suppress(NotReady, LedgerBusy):  # a storage or a witness that is away for a moment: the upkeep goes on
        finish_removals(context)
    with context.database.read() as session:
        return RemovalView(dataset=dataset_id, row=row, destroyed=not removals.has_file(session, dataset_id))


def _refuse(context: Context, caller: Caller, dataset: Dataset, row: int) -> None:
    if dataset.owner_id != caller.id:
        raise Forbidden("Only the owner of a dataset removes a record of it.")
    refuse_elsewhere(context, dataset, "remove it")
    if dataset.state == "pending":
        raise Conflict("This dataset is not sealed: empty the row in your file, and send that file.")
    if dataset.state != "ready":
        raise Conflict(f"This dataset is {dataset.state}: all of its records go.")
    assert dataset.rows is not None, "a dataset that is ready has a public number of rows"
    if row > dataset.rows:
        fix = f"give a row from 1 to {dataset.rows}; 1 is the first row of data, below the names of the columns"
        raise Invalid("The dataset has no such row.", FieldError("/row", fix))


def _replaced(context: Context, caller: Caller, dataset: Dataset, row: int) -> bool:
    """Write the file anew and have the dataset name it; tell whether that is done, or was not needed.

    A process that dies on the way leaves the earlier file in its place, and of the other one at most a file without a
    key, which the sweep collects within a day.
    """
    settings, storage, kept = context.settings, open_storage(context.settings), kept_of(dataset)
    key = load_master_keys(settings).unwrap(dataset.id, kept.wrapped_key)
    quotas.leave_free(context, 2 * (dataset.bytes or 0))
    settings.spool_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    location = f"{new_id(RECORDS)}.sealed"
    source = SealedFile(path=settings.spool_path / f"{SPOOLED}{location}", context=dataset.id, key=key)
    target = SealedFile(path=settings.spool_path / location, context=dataset.id)
    is_kept = False
    try:
        try:
            with storage.open(kept.location) as file:
                copy(file, source.path)
        except FileNotFoundError:
            return False  # another removal was first, and its earlier file is gone
        limits = Limits(
            seconds=settings.decode_seconds,
            memory_bytes=settings.decode_memory_bytes,
            free_bytes=settings.min_free_disk_bytes,
        )
        written = remove_row(source, target, row, limits=limits)
        if written is None:
            return True
        storage.put(target.path, location)
        wrapped = load_master_keys(settings).current.wrap(dataset.id, target.key)
        report = _sealed_anew(dataset, key, target.key)

        after = StoredRecords(dataset.id, location, written.digest, wrapped)
        is_kept = context.database.transaction(_swap, caller, kept, after, written.bytes, report)
        return is_kept
    finally:
        for path in (source.path, target.path):
            path.unlink(missing_ok=True)
        if not is_kept:
            _discard(context, location)


def _sealed_anew(dataset: Dataset, key: bytes, fresh: bytes) -> dict[str, str] | None:
    """Return the report on the upload under another key, as it was: it tells how the upload was read."""
    if dataset.validation is None:
        return None
    report = ValidationReport.model_validate(open_report(dataset.validation, key, dataset.id))
    return seal_report(report, fresh, dataset.id)


def _swap(
    session: Session,
    caller: Caller,
    before: StoredRecords,
    after: StoredRecords,
    size_bytes: int,
    report: dict[str, str] | None,
) -> bool:
    """Name the other file and key in the dataset's row, all or nothing; tell whether it still named the earlier ones.

    Raises:
        Conflict: it is in erasure by now.
        Unauthenticated: the caller's key has ended.
    """
    dataset = rows.lock(session, before.dataset_id)
    refuse_ended(session, caller)
    if dataset.state != "ready":
        raise Conflict(f"This dataset is {dataset.state}: all of its records go.")
    if dataset.location != before.location:
        return False
    removals.replace_file(session, dataset, after.location, after.digest, size_bytes)
    dataset.wrapped_key, dataset.validation = after.wrapped_key, report
    session.flush()
    return True


def _discard(context: Context, location: str) -> None:
    """Erase a file that did not become the dataset's; after a lost answer of the database, its row decides."""
    with context.database.read() as session:
        is_kept = rows.is_kept(session, location)
    if not is_kept:
        with suppress(NotReady):  # it has no key any more, and the sweep collects it within a day
            open_storage(context.settings).erase(location)
