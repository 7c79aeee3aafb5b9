"""Drafts: uploads that their owner looks at, mends and seals, or that go after a week.

A draft is a pending dataset with a row in `drafts`. Its records are stored as those of other datasets are; it has no
scope, and so no budget, ledger, access or job. Sealing it takes the steps that an upload without a draft takes at once.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.access import principals
from core.base.errors import Conflict, FieldError, Forbidden, Invalid, NotReady, ensure
from core.data.columns import with_formats
from core.data.datasets import Metadata, parse_metadata
from core.data.reading import SNIFF
from core.db import clock
from core.db.identity_tables import Draft
from core.db.tables import Dataset
from core.ledger import identities
from core.ledger.identities import Staged
from core.records import datasets as rows
from core.records.decoding.validation import ValidationReport, open_report
from core.records.master_key import load_master_keys
from core.records.storage import open_storage
from core.service import witnessing
from core.service.context import Caller, Context
from core.service.datasets import dataset_view, find, refuse_elsewhere
from core.service.declarations import parse
from core.service.earlier import earlier
from core.service.identity import Comparison, owner_keys, published
from core.service.opening import Arrived, hold, open_budget, refuse_ended
from core.service.views import DatasetView, rfc3339
from farthing.schemas.drafts import CellCounts, DraftView

KEPT_SECONDS: Final = 7 * 86_400.0
"""From the declaration of a draft until it is erased."""
_CHANGED: Final = "This draft was changed meanwhile: look at it again, and repeat the request."
_SEALING: Final = ("seal", "accept_excluded")


def begin(session: Session, dataset: Dataset, metadata: Metadata) -> None:
    """Make a pending dataset a draft, in the transaction that adds it."""
    session.add(Draft(dataset_id=dataset.id, declared=_declared(metadata), sealed=None))
    session.flush()


def _declared(metadata: Metadata) -> dict[str, Any]:
    """Return a declaration as it was given, without the members that a scope decides."""
    return metadata.model_dump(mode="json", exclude_unset=True)


def of(session: Session, dataset_id: str) -> Draft | None:
    """Return a dataset's draft, as it is now; None: it is none."""
    return session.get(Draft, dataset_id, populate_existing=True)


def hold_records(session: Session, caller: Caller, dataset: Dataset, arrived: Arrived) -> None:
    """Give a draft its file, in place of the one that it has; the caller holds the dataset's lock."""
    hold(session, caller, dataset, arrived)
    draft, records = of(session, dataset.id), arrived.decoded.records
    ensure(draft is not None and records is not None, "it is a draft, and was decoded under the owner's key")
    assert draft is not None, "as above"
    assert records is not None, "as above"
    draft.sealed = identities.seal_draft(arrived.keys, dataset.id, Staged(digest=arrived.digest, records=records))
    session.flush()


def refuse_changed(session: Session, dataset_id: str, declared: Mapping[str, Any]) -> None:
    """Refuse a file that was read by a declaration that is another one by now.

    Raises:
        Conflict: it is, or the draft is none any more.
    """
    draft = of(session, dataset_id)
    if draft is None or draft.declared != declared:
        raise Conflict(_CHANGED)


def discard(context: Context, location: str | None) -> None:
    """Erase a file that a draft no longer has; its key is gone already."""
    if location is not None:
        with suppress(NotReady):  # the sweep collects it within a day
            open_storage(context.settings).erase(location)


def _own(session: Session, caller: Caller, dataset_id: str) -> Dataset:
    """Return a dataset of the caller's.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
    """
    found = find(session, caller, dataset_id)
    if found.owner_id != caller.id:
        raise Forbidden("Only the owner of a dataset mends and seals it.")
    return found


def _unsealed(session: Session, dataset: Dataset) -> Draft:
    """Return the draft of a dataset.

    Raises:
        Conflict: it is none, or is erased.
    """
    draft = of(session, dataset.id)
    if draft is None or dataset.state != "pending":
        fix = "upload the records as a new dataset in the same scope" if dataset.scope_id else "declare a new dataset"
        raise Conflict(f"This dataset is no draft; it is {dataset.state}. To change it, {fix}.")
    return draft


def get(context: Context, caller: Caller, dataset_id: str) -> DraftView:
    """Return a draft with its declaration and the report on its file.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
        Conflict: it is no draft; or another site keeps its file.
    """
    with context.database.read() as session:
        found = _own(session, caller, dataset_id)
        draft = _unsealed(session, found)
        refuse_elsewhere(context, found, "look at them")
        session.expunge_all()
    return _view(context, found, draft)


def _view(context: Context, dataset: Dataset, draft: Draft) -> DraftView:
    report = _report(context, dataset)
    names = [column["name"] for column in dataset.columns]
    rows_, excluded = (None, None) if report is None else (report.rows, report.incomplete_rows)
    return DraftView(
        dataset=dataset.id,
        declared=draft.declared,
        rows=rows_,
        excluded=excluded,
        many_excluded=report is not None and report.many_excluded,
        columns=[] if report is None else [CellCounts.model_validate(dict(one)) for one in report.columns],
        sniffed=None if report is None or report.sniffed is None else report.sniffed.view(names),
        expires_at=rfc3339(dataset.created_at + KEPT_SECONDS),
    )


def _report(context: Context, dataset: Dataset) -> ValidationReport | None:
    """Return the report on a draft's file; None: it has none."""
    if dataset.validation is None or dataset.wrapped_key is None:
        return None
    key = load_master_keys(context.settings).unwrap(dataset.id, dataset.wrapped_key)
    return ValidationReport.model_validate(open_report(dataset.validation, key, dataset.id))


def _with_taken(metadata: Metadata, report: ValidationReport | None) -> Metadata:
    """Return a draft's declaration with the reading that was taken of its file, where that was to be found."""
    if metadata.reading != SNIFF:
        return metadata
    found = None if report is None else report.sniffed
    if found is None:  # a file that says itself how it is written
        return metadata.model_copy(update={"reading": None})
    columns = with_formats(metadata.columns, found.formats)
    return metadata.model_copy(update={"reading": found.reading, "columns": columns})


def mend(context: Context, caller: Caller, dataset_id: str, changes: object) -> DraftView:
    """Change the declaration of a draft; with other columns or another reading its file is erased.

    Args:
        context: the service.
        caller: the owner.
        dataset_id: the draft.
        changes: metadata fields that take the place of those declared before; null takes one away. A budget takes the
            place of the scope to join, and the other way round.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
        Conflict: it is no draft, or was changed meanwhile.
        Invalid: the declaration is not valid then, or its rows are not those of the file.
    """
    with context.database.read() as session:
        found = _own(session, caller, dataset_id)
        declared = _unsealed(session, found).declared
        refuse_elsewhere(context, found, "mend their declaration")
    metadata = parse_metadata(_merged(declared, changes))
    parse(context, caller, metadata)

    def work(session: Session) -> tuple[DraftView, str | None]:
        dataset = rows.lock(session, dataset_id)
        draft = _unsealed(session, dataset)
        # The changes were merged into the declaration that the first look found.
        refuse_changed(session, dataset_id, declared)
        request = published(metadata)
        gone = None
        # by which the cells of its file were read
        if (request["columns"], request.get("reading")) != (dataset.columns, dataset.request.get("reading")):
            gone = dataset.location
            rows.forget_records(session, dataset)
            draft.sealed = None
        elif metadata.rows is not None and dataset.rows is not None and metadata.rows != dataset.rows:
            fix = f"give {dataset.rows}, or send another file first"
            raise Invalid(f"The file has {dataset.rows} rows.", FieldError("/rows", fix))
        dataset.name, dataset.request, dataset.columns = metadata.name, request, request["columns"]
        if dataset.location is None:  # else the size of its file stands there
            dataset.bytes = len(json.dumps(request))
        draft.declared = _declared(metadata)
        session.flush()
        return _view(context, dataset, draft), gone

    view, gone = context.database.transaction(work)
    # After the commit: a change that is rolled back must still have its file.
    discard(context, gone)
    return view


def _merged(declared: Mapping[str, Any], changes: object) -> dict[str, Any]:
    """Return a declaration with changes in it, to be validated as a new one is."""
    if not isinstance(changes, dict):
        raise Invalid("The changes must be a JSON object.", FieldError("", "send the metadata fields to change"))
    for name in _SEALING:
        if name in changes:
            fix = "leave it out; POST /v1/datasets/{id}/seal seals a draft with all its rows"
            raise Invalid("A change of the declaration seals nothing.", FieldError(f"/{name}", fix))
    merged = {**declared, **changes}
    if changes.get("budget") is not None and "scope" not in changes:
        merged |= {"scope": None, "accept_delta": None}
    elif changes.get("scope") is not None and "budget" not in changes:
        merged |= {"budget": None}
    return {name: value for name, value in merged.items() if value is not None}


def seal(context: Context, caller: Caller, dataset_id: str) -> DatasetView:
    """Make a draft a dataset: compared with earlier uploads, in a scope, with a budget; a sealed one stays as it is.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
        Conflict: it has no file yet, is no draft, or was changed meanwhile.
        DuplicateDataset, NearCopy, Invalid: as `uploads.create`; the draft stays as it is.
    """
    with context.database.read() as session:
        found = _own(session, caller, dataset_id)
        if found.state == "ready":
            return dataset_view(session, found)
        draft = _unsealed(session, found)
        refuse_elsewhere(context, found, "seal them")
        declared, sealed, location = draft.declared, draft.sealed, found.location
        session.expunge_all()
    if sealed is None:
        raise Conflict(f"This draft has no records: send its file by PUT /v1/datasets/{dataset_id}/content.")
    metadata = _with_taken(Metadata.model_validate(declared), _report(context, found))
    parse(context, caller, metadata)
    keys = owner_keys(context, caller.id)
    staged = identities.open_draft(keys, dataset_id, sealed)
    known = earlier(context, caller.id)
    compared = Comparison(keys, caller.id, context.settings.site, staged.digest, known, staged.records)
    with context.database.read() as session:  # long comparisons hold no transaction up
        compared.check(session, metadata)

    def work(session: Session) -> DatasetView:
        dataset = rows.lock(session, dataset_id)
        if dataset.state == "ready":
            return dataset_view(session, dataset)
        draft = _unsealed(session, dataset)
        # The comparison was of what the first look found; another file or declaration needs another one.
        if (dataset.location, draft.declared) != (location, declared):
            raise Conflict(_CHANGED)
        refuse_ended(session, caller)
        principals.lock(session, dataset.owner_id)
        session.delete(draft)
        dataset.columns = published(metadata)["columns"]  # with the forms of dates that were taken
        open_budget(session, caller, dataset, metadata, compared)
        return dataset_view(session, dataset)

    view = context.database.transaction(work)
    witnessing.keep(context)
    return view


def erase_late(context: Context, older_than_seconds: float = KEPT_SECONDS) -> list[str]:
    """Begin to erase drafts that nobody sealed in time; return their identifiers. Their keys go first, as always."""

    def work(session: Session) -> list[str]:
        late = Dataset.created_at < clock.read(session) - older_than_seconds
        old = select(Dataset.id).join(Draft, Draft.dataset_id == Dataset.id).where(Dataset.state == "pending", late)
        begun = []
        for dataset_id in session.execute(old.order_by(Dataset.id)).scalars().all():
            dataset = rows.lock(session, dataset_id)
            # It may have been sealed while this waited for its lock.
            if dataset.state == "pending":
                dataset.state = "erasing"
                begun.append(dataset_id)
        session.flush()
        return begun

    return context.database.transaction(work)
