"""Datasets on their way in: declared, received, decoded; a file is checked whole before a scope or a row is made."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Any, Final, Self, TypeVar

from sqlalchemy.orm import Session

from core.base.errors import Conflict, Forbidden, NotReady
from core.base.identifiers import new_id
from core.base.settings import ServiceSettings
from core.data.datasets import Metadata
from core.db import idempotency
from core.db import reads as queries
from core.db.tables import Dataset
from core.records import datasets as rows
from core.records.decoding.decode import Limits, decode_upload, format_of
from core.records.decoding.validation import refuse_many_excluded, seal_report
from core.records.encryption import SealedFile
from core.records.master_key import load_master_keys
from core.records.storage import open_storage
from core.records.uploads import receive
from core.service import drafts, quotas, witnessing
from core.service.context import Caller, Context
from core.service.datasets import RECORDS, dataset_view, find_own, refuse_elsewhere
from core.service.declarations import asked, parse
from core.service.earlier import earlier
from core.service.identity import Comparison, owner_keys, published
from core.service.opening import Arrived, hold, open_budget
from core.service.views import DatasetView

ROUTE: Final = "POST /v1/datasets"
T = TypeVar("T")


def declare(context: Context, caller: Caller, metadata: Metadata, key: str | None) -> tuple[dict[str, Any], bool]:
    """Make a dataset whose records come later, by `fill`; return its view as JSON and whether it is a replay.

    Raises:
        As `parse`; IdempotencyKeyReused: the key belongs to another request.
    """
    parse(context, caller, metadata)
    request = asked(metadata)

    def work(session: Session) -> tuple[dict[str, Any], bool]:
        if key is not None:
            stored = idempotency.begin(session, caller.id, ROUTE, key, idempotency.hash_body(request))
            if stored is not None:
                return stored.body, True
        dataset = rows.add(session, new_id("ds"), caller.id, metadata.name, metadata.model_dump(mode="json"))
        if not metadata.seal:
            drafts.begin(session, dataset, metadata)
        body = dataset_view(session, dataset).model_dump(mode="json")
        if key is not None:
            idempotency.store(session, caller.id, ROUTE, key, status=201, body=body)
        return body, False

    return context.database.transaction(work)


def create(
    context: Context, caller: Caller, metadata: Metadata, media: str | None, pieces: Iterable[bytes], key: str | None
) -> tuple[dict[str, Any], bool]:
    """Make a dataset from its declaration and its file; return its view as JSON and whether it is a replay.

    Raises:
        As `parse`; Invalid: the file's structure or types are wrong; TooLarge: it passes a limit;
        DuplicateDataset: the same records are a dataset of the caller's, declared as they are here or in another scope;
        NearCopy: more than half of them may be; ManyExcluded: too many rows would be left out; IdempotencyKeyReused.
        Nothing is stored then.
    """
    parse(context, caller, metadata)
    request = asked(metadata)

    def work(session: Session, arrived: Arrived) -> tuple[dict[str, Any], bool]:
        if key is not None:
            stored = idempotency.begin(session, caller.id, ROUTE, key, idempotency.hash_body([request, arrived.digest]))
            if stored is not None:
                return stored.body, True
        dataset = rows.add(session, arrived.dataset_id, caller.id, metadata.name, published(metadata))
        if metadata.seal:
            _fill(session, caller, dataset, metadata, arrived)
        else:
            drafts.begin(session, dataset, metadata)
            drafts.hold_records(session, caller, dataset, arrived)
        body = dataset_view(session, dataset).model_dump(mode="json")
        if key is not None:
            idempotency.store(session, caller.id, ROUTE, key, status=201, body=body)
        return body, False

    with context.database.read() as session:
        # A repeated request would be refused as a copy of the very dataset that it made.
        answered = key is not None and queries.is_answered(session, caller.id, ROUTE, key)
    with _Stored(context, caller.id, metadata, media, pieces, new_id("ds"), may_repeat=answered) as stored:
        answer = stored.commit(work)
    witnessing.keep(context)
    return answer


def fill(
    context: Context,
    caller: Caller,
    dataset_id: str,
    content_type: str | None,
    pieces: Iterable[bytes],
    *,
    within: Callable[[Session], None] | None = None,
) -> DatasetView:
    """Give a declared dataset its records, or a draft other ones.

    Args:
        context: the service.
        caller: the owner.
        dataset_id: the dataset or draft.
        content_type: of the file; None: the decoder looks at it.
        pieces: of the file.
        within: of an upload in parts, whose bytes are counted already: it ends that upload, in the transaction that
            keeps the records, once the dataset is locked.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's; an admin too would learn by the answer what is in the owner's other uploads.
        Conflict: it has its records already, or its declaration was changed meanwhile.
        Invalid, TooLarge, DuplicateDataset, NearCopy, ManyExcluded: as `create`.
    """
    with context.database.read() as session:
        pending = find_own(session, caller, dataset_id)
        if pending.owner_id != caller.id:
            raise Forbidden("Only the owner of a declaration sends its records.")
        refuse_filled(pending)
        draft = drafts.of(session, dataset_id)
        owner_id, declared = pending.owner_id, pending.request if draft is None else draft.declared
        refuse_elsewhere(context, pending, "send others")
    metadata = Metadata.model_validate(declared)
    parse(context, caller, metadata)

    def work(session: Session, arrived: Arrived) -> tuple[DatasetView, str | None]:
        dataset = rows.lock(session, dataset_id)
        refuse_filled(dataset)  # again, under the lock: a rival may have been first
        if within is not None:
            within(session)
        before = dataset.location
        if metadata.seal:
            _fill(session, caller, dataset, metadata, arrived)
        else:
            drafts.refuse_changed(session, dataset_id, declared)  # the file was read by that one
            drafts.hold_records(session, caller, dataset, arrived)
        return dataset_view(session, dataset), before

    media, announced = format_of(content_type), within is not None
    with _Stored(context, owner_id, metadata, media, pieces, dataset_id, announced=announced) as stored:
        view, before = stored.commit(work, dataset_id)
    drafts.discard(context, before)
    witnessing.keep(context)
    return view


def refuse_filled(dataset: Dataset) -> None:
    """Refuse records for a dataset that waits for none.

    Raises:
        Conflict: it has its records, or is erased.
    """
    if dataset.state != "pending":
        raise Conflict("This dataset has its records; new data are a new dataset in the same scope.")


class _Stored:
    """An upload on its way into storage; its files are removed unless the transaction keeps them."""

    def __init__(
        self,
        context: Context,
        owner_id: str,
        metadata: Metadata,
        media: str | None,
        pieces: Iterable[bytes],
        dataset_id: str,
        *,
        may_repeat: bool = False,
        announced: bool = False,
    ) -> None:
        settings = context.settings
        self._context = context
        self._owner_id = owner_id
        self._storage = open_storage(settings)
        self._kept = False
        load_master_keys(settings)  # before anything is read: without one, nothing can be stored
        keys = owner_keys(context, owner_id)
        self._counting = ExitStack()
        counted = self._counting.enter_context(quotas.counted(context, owner_id, pieces, announced=announced))
        try:
            received = receive(
                counted, folder=settings.spool_path, secret=keys.of_bytes, limit_bytes=settings.max_upload_bytes
            )
        except BaseException:
            self._counting.close()
            raise
        location = f"{new_id(RECORDS)}.sealed"
        target = SealedFile(path=settings.spool_path / location, context=dataset_id)
        self._spooled = (received.file.path, target.path)
        self._location = location
        try:
            compared = None
            if metadata.seal:
                compared = Comparison(keys, owner_id, settings.site, received.digest, earlier(context, owner_id))
                self._check(compared, metadata, may_repeat=may_repeat)
            decoded = decode_upload(
                received.file,
                target,
                metadata.columns,
                limits=_limits(settings, quotas.room(context, owner_id)),
                reading=metadata.reading,
                media=media,
                rows=metadata.rows,
                row_key=keys.of_rows,
            )
            if compared is not None:
                compared.records = decoded.records
                self._check(compared, metadata, may_repeat=may_repeat)
                if not may_repeat:
                    refuse_many_excluded(decoded.report, accepted=metadata.accept_excluded)
            self._storage.put(target.path, location)  # before its row, which must not name a file that is missing
        except BaseException:
            self._remove()
            raise
        wrapped_key = load_master_keys(settings).current.wrap(dataset_id, target.key)  # it may be another one by now
        report = seal_report(decoded.report, target.key, dataset_id)
        self._arrived = Arrived(
            dataset_id=dataset_id,
            digest=received.digest,
            keys=keys,
            compared=compared,
            decoded=decoded,
            location=location,
            wrapped_key=wrapped_key,
            report=report,
            site=settings.site,
        )

    def _check(self, compared: Comparison, metadata: Metadata, *, may_repeat: bool) -> None:
        """Refuse what has a budget already, before it is decoded, stored or held a transaction up for."""
        if not may_repeat:
            with self._context.database.read() as session:
                compared.check(session, metadata)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._remove()

    def _remove(self) -> None:
        for path in self._spooled:
            path.unlink(missing_ok=True)
        self._counting.close()
        if not self._kept:
            with suppress(NotReady):  # it has no key any more, and the sweep collects it within a day
                self._storage.erase(self._location)

    def commit(self, work: Callable[[Session, Arrived], T], declared: str | None = None) -> T:
        """Run the transaction that makes the file a dataset, and keep the file if it did.

        Args:
            work: the transaction.
            declared: the dataset or draft that gets the file; None: `work` makes one.
        """

        def keep(session: Session) -> T:
            # A dataset before its owner, as everywhere: `quotas.admit` locks the owner.
            if declared is not None:
                rows.lock(session, declared)
            quotas.admit(self._context, session, self._owner_id, self._arrived.decoded.bytes)
            return work(session, self._arrived)

        answer = self._context.database.transaction(keep)
        with self._context.database.read() as session:
            # The row decides: a replayed answer leaves this file without one.
            self._kept = rows.is_kept(session, self._location)
        return answer


def _limits(settings: ServiceSettings, room_bytes: int) -> Limits:
    return Limits(
        bytes=room_bytes,
        rows=settings.max_rows,
        columns=settings.max_columns,
        seconds=settings.decode_seconds,
        memory_bytes=settings.decode_memory_bytes,
        free_bytes=settings.min_free_disk_bytes,
    )


def _fill(session: Session, caller: Caller, dataset: Dataset, metadata: Metadata, arrived: Arrived) -> None:
    """Make a pending dataset ready: its scope, its public facts and where its records are."""
    assert arrived.compared is not None, "it is no draft"
    hold(session, caller, dataset, arrived)
    open_budget(session, caller, dataset, metadata, arrived.compared)
