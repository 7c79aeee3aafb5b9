"""Use cases of datasets that are there: seen and erased.

Those on their way in are in `core.service.uploads`; other principals' access is in `core.service.access`.
"""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from sqlalchemy.orm import Session

from core.base.errors import Conflict, FieldError, Forbidden, Invalid, LedgerBusy, NotFound, NotReady
from core.data.columns import numbers_in
from core.db import lists
from core.db import reads as queries
from core.db.identity_tables import Draft
from core.db.sorting import NEWEST, Order
from core.db.tables import Dataset, Scope
from core.jobs import jobs as job_rows
from core.records import datasets as rows
from core.records import parts, removals, weights
from core.records.decoding.mock import MAX_MOCK_CELLS, mock_rows
from core.records.decoding.validation import open_report
from core.records.master_key import load_master_keys
from core.records.storage import open_storage
from core.records.uploads import remove_partial
from core.service import witnessing
from core.service.budgets import budget_view
from core.service.context import Caller, Context
from core.service.quotes import COLUMNS
from core.service.scopes import viewer
from core.service.views import DatasetView, rfc3339
from farthing.schemas.budgets import BudgetView
from farthing.schemas.datasets import ValidationView

RECORDS: Final = "rec"
"""Prefix of the names of stored records."""
ORPHAN_SECONDS: Final = 86400.0
_LONGEST_UPLOAD_SECONDS: Final = 3600.0


def find(session: Session, caller: Caller, dataset_id: str) -> Dataset:
    """Return a dataset that exists for the caller.

    Raises:
        NotFound: it does not.
    """
    found = queries.dataset(session, viewer(caller), dataset_id)
    if found is None:
        raise NotFound("There is no such dataset.")
    return found


def find_own(session: Session, caller: Caller, dataset_id: str) -> Dataset:
    """Return a dataset that the caller answers for: its owner, or an admin.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
    """
    found = find(session, caller, dataset_id)
    if found.owner_id != caller.id and caller.role != "admin":
        raise Forbidden("Only the owner of this dataset, or an admin, may do that.")
    return found


def refuse_elsewhere(context: Context, dataset: Dataset, what: str) -> None:
    """Refuse what only the service of the site that keeps a dataset's records can do, or may.

    Raises:
        Conflict: it is another site's than this service's.
    """
    if dataset.location is not None and dataset.site != context.settings.site:
        keeper = f"the site {dataset.site}" if dataset.site else "the service itself, which is no site"
        raise Conflict(f"These records are kept by {keeper}: {what} through its own API.")


def dataset_view(session: Session, dataset: Dataset) -> DatasetView:
    """Return a dataset's public facts."""
    scope = None if dataset.scope_id is None else session.get(Scope, dataset.scope_id)
    declared: Mapping[str, Any] = dataset.request
    draft = dataset.state == "pending" and session.get(Draft, dataset.id) is not None
    return DatasetView(
        id=dataset.id,
        name=dataset.name,
        owner=dataset.owner_id,
        state="draft" if draft else dataset.state,
        scope=dataset.scope_id,
        unit=declared["unit"] if scope is None else scope.unit,
        adjacency=declared["adjacency"] if scope is None else scope.adjacency,
        rows=dataset.rows,
        columns=COLUMNS.validate_python(dataset.columns),
        fingerprint=dataset.fingerprint,
        site=dataset.site,
        created_at=rfc3339(dataset.created_at),
    )


def get(context: Context, caller: Caller, dataset_id: str) -> DatasetView:
    """Return a dataset's public facts.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        return dataset_view(session, find(session, caller, dataset_id))


def page(context: Context, caller: Caller, after: str | None, limit: int, order: Order = NEWEST) -> list[DatasetView]:
    """Return up to `limit` datasets that exist for the caller."""
    with context.database.read() as session:
        found = lists.datasets(session, viewer(caller), after, limit, order)
        return [dataset_view(session, dataset) for dataset in found]


def validation(context: Context, caller: Caller, dataset_id: str) -> ValidationView:
    """Return the report on an upload's cells: for its owner alone, since it counts private values.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
        Conflict: there is none yet, or none any more, or another site has its key.
    """
    with context.database.read() as session:
        found = find(session, caller, dataset_id)
        if found.owner_id != caller.id:
            raise Forbidden("Only the owner of this dataset sees how its cells were read.")
        if found.validation is None or found.wrapped_key is None:
            raise Conflict(f"This dataset is {found.state}: there is no report.")
        refuse_elsewhere(context, found, "ask for their report")
    key = load_master_keys(context.settings).unwrap(found.id, found.wrapped_key)
    return ValidationView(dataset=found.id, **open_report(found.validation, key, found.id))


def mock(context: Context, caller: Caller, dataset_id: str, count: int) -> list[dict[str, Any]]:
    """Return synthetic rows, made from the declared columns alone.

    Raises:
        NotFound: it does not exist for the caller.
        Invalid: this number of rows has too many cells.
    """
    with context.database.read() as session:
        columns = COLUMNS.validate_python(find(session, caller, dataset_id).columns)
    row_cells = sum(map(numbers_in, columns))
    # One row is always given, however wide it is.
    if count > 1 and count * row_cells > MAX_MOCK_CELLS:
        fix = f"ask for {max(1, MAX_MOCK_CELLS // row_cells)} at most"
        raise Invalid(f"At most {MAX_MOCK_CELLS} cells are made up, {row_cells} a row.", FieldError("#query/rows", fix))
    return list(mock_rows(columns, count))


def budget(context: Context, caller: Caller, dataset_id: str) -> BudgetView:
    """Return what is left of the budget of the people behind a dataset.

    Raises:
        NotFound: it does not exist for the caller.
        Conflict: it has no scope before it has records and is sealed.
    """
    with context.database.read() as session:
        found = find(session, caller, dataset_id)
        if found.scope_id is None:
            raise Conflict("This dataset has no budget before it has records and is sealed.")
        return budget_view(context, session, session.get_one(Scope, found.scope_id), caller.id)


def erase(context: Context, caller: Caller, dataset_id: str) -> DatasetView:
    """Begin to erase a dataset's records: no new jobs, live ones are cancelled; the ledger stays.

    The records go as soon as no job can read them any more, at once where none is running.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
        Conflict: another site keeps the records.
    """

    def work(session: Session) -> DatasetView:
        find_own(session, caller, dataset_id)
        dataset = rows.lock(session, dataset_id)
        refuse_elsewhere(context, dataset, "erase them")
        if dataset.state in {"pending", "ready"}:
            dataset.state = "erasing"
            for job_id in queries.live_jobs(session, dataset_id):
                job_rows.cancel(session, job_id)
        session.flush()
        return dataset_view(session, dataset)

    view = context.database.transaction(work)
    witnessing.keep(context)
    with suppress(NotReady, LedgerBusy):  # a storage or a witness that is away for a moment: the upkeep goes on
        finish_erasures(context)
    return view


def finish_erasures(context: Context) -> list[str]:
    """Destroy the records of datasets in erasure that no job can read any more; return their identifiers.

    Called by an upkeep loop as well, so that an erasure ends once the last child is reaped or its lease has passed.
    Records are destroyed by the processes of the site that keeps them.
    The key goes first, then the records, then the noised states of their jobs; models and the ledger stay. Uploads in
    parts go before all.
    """
    finish_removals(context)
    erase_late_uploads(context)
    with context.database.read() as session:
        waiting = list(rows.erasable(session, context.settings.lease_seconds, context.settings.site))
    done: list[str] = []
    storage = open_storage(context.settings)
    for dataset_id, location in waiting:
        # The witness first: a backup that is put back right after must not bring the records back.
        witnessing.bury(context, dataset_id)
        # Then the key: copies that the storage still has cannot be read from here on.
        if not context.database.transaction(rows.destroy_key, dataset_id, context.settings.lease_seconds):
            continue
        if location is not None:
            storage.erase(location)
        if context.database.transaction(rows.mark_erased, dataset_id):
            done.append(dataset_id)
    return done


def finish_removals(context: Context) -> int:
    """Destroy the earlier files of datasets from which a record was removed, once no job can read them any more.

    Returns:
        The number of files. They have no key any more since the removal itself.
    """
    with context.database.read() as session:
        names = removals.destructible(session, context.settings.lease_seconds, context.settings.site)
    for name in names:
        # After the change and not before: the witness must never miss a file that is a dataset's.
        witnessing.bury(context, name)
        open_storage(context.settings).erase(name)
        context.database.transaction(removals.note_destroyed, name)
    return len(names)


def erase_late_uploads(context: Context) -> int:
    """Erase uploads in parts that nobody goes on with, their keys first; return how many parts they had.

    They have expired, or their dataset is erased or has its records by another way.
    """
    names = context.database.transaction(parts.drop_late, context.settings.site)
    erase_parts(context, names)
    return len(names)


def erase_parts(context: Context, names: Iterable[str]) -> None:
    """Erase stored parts that no row names any more."""
    for name in names:
        with suppress(NotReady):  # nobody has their key any more, and the sweep collects them within a day
            open_storage(context.settings).erase(name)


def remove_leftovers(context: Context) -> int:
    """Remove what uploads and decodings that were killed left behind; return how many files."""
    # Longer than any upload and its decoding take, so that none under way loses its file.
    oldest_seconds = 2 * context.settings.decode_seconds + _LONGEST_UPLOAD_SECONDS
    return remove_partial(context.settings.spool_path, older_than_seconds=oldest_seconds)


def collect_orphans(context: Context, older_than_seconds: float = ORPHAN_SECONDS) -> list[str]:
    """Erase stored records that became no dataset, parts of no upload, weights that nobody has; return their names.

    Their upload was killed, or lost to a rival. Listing a bucket costs, so once an hour will do. Uploads under way are
    younger than what is collected.
    """
    storage = open_storage(context.settings)
    limit = time.time() - older_than_seconds
    listed = (stored for prefix in (RECORDS, parts.PREFIX, weights.PREFIX) for stored in storage.list(f"{prefix}_"))
    old = [stored.name for stored in listed if stored.modified_at < limit]
    # After the list: a record that became a dataset while it was made has its row by now.
    with context.database.read() as session:
        kept = rows.locations(session) | weights.locations(session) | parts.locations(session)
    orphans = [name for name in old if name not in kept]
    for name in orphans:
        storage.erase(name)
    return orphans
