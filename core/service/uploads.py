"""Datasets on their way in: declared, received, decoded; a file is checked whole before a scope or a row is made."""

import secrets
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Self, TypeVar

from sqlalchemy.orm import Session

from core.access import audit, principals
from core.base.errors import (
    Conflict,
    FieldError,
    Forbidden,
    Invalid,
    KeyNotOwn,
    NotFound,
    NotOfferedYet,
    NotReady,
    Unauthenticated,
)
from core.base.identifiers import new_id
from core.base.settings import ServiceSettings
from core.data.columns import UserColumn
from core.data.datasets import Metadata
from core.db import idempotency
from core.db import reads as queries
from core.db.tables import Account, Dataset, Scope
from core.ledger import identities, ledger
from core.privacy.acceptance import refuse_large_delta
from core.records import datasets as rows
from core.records.decoding.decode import Decoded, Limits, decode_upload, format_of
from core.records.decoding.validation import seal_report
from core.records.encryption import SealedFile
from core.records.master_key import load_master_keys
from core.records.storage import open_storage
from core.records.uploads import receive
from core.service import quotas, scopes, witnessing
from core.service.context import Caller, Context
from core.service.datasets import RECORDS, dataset_view, find_own
from core.service.earlier import earlier
from core.service.identity import Comparison, owner_keys, published
from core.service.views import DatasetView

ROUTE: Final = "POST /v1/datasets"
LEAST_STATEMENT: Final = 20
"""Letters of a reason why records are other people's than those of an earlier upload."""
T = TypeVar("T")


def parse(context: Context, caller: Caller, metadata: Metadata) -> None:
    """Refuse a declaration that no file could make good, before any of the file is read.

    Raises:
        Forbidden: the key's role owns no data.
        KeyNotOwn: somebody else made the key.
        NotOfferedYet: user-level units.
        NotFound: the scope to join does not exist for the caller.
        Forbidden: it is somebody else's.
        Invalid: a budget that cannot be kept, or a unit or adjacency other than the scope's.
    """
    caller.require("owner", "admin")
    if caller.key_made_by not in {None, caller.id}:
        raise KeyNotOwn(
            "Another principal made this key and has seen it. Rotate it first (farthing rotate, or POST "
            f"/v1/keys/{caller.key_id}/rotate), and send records by the fresh one, which nobody else has."
        )
    if metadata.distinct_because is not None and len(metadata.distinct_because) < LEAST_STATEMENT:
        fix = f"say in {LEAST_STATEMENT} letters or more why these are other people, so that an auditor can judge it"
        raise Invalid("So short a statement gives no reason.", FieldError("/distinct_because", fix))
    if isinstance(metadata.unit, UserColumn):
        raise NotOfferedYet("User-level units are not offered yet.", FieldError("/unit", 'use "record"'))
    if len(metadata.columns) > context.settings.max_columns:
        most = context.settings.max_columns
        raise Invalid(f"A dataset has at most {most} columns.", FieldError("/columns", "declare fewer"))
    if metadata.scope is not None:
        with context.database.read() as session:
            _joined(session, caller, metadata, metadata.rows)
    elif metadata.budget is not None:
        if metadata.rows is None:  # its delta is held against the number of records once they are there
            metadata.budget.plan(context.settings.max_rows)
        else:
            metadata.budget.terms(metadata.rows)


def _joined(session: Session, caller: Caller, metadata: Metadata, units: int | None) -> Scope:
    """Return the scope that a dataset of so many records joins, None where their number is not known yet.

    The scope's delta is held against this number too: more records have a smaller 1/n.
    """
    assert metadata.scope is not None, "it names one"
    try:
        scope = scopes.find_own(session, caller, metadata.scope)
    except NotFound as refusal:
        raise NotFound(refusal.detail, FieldError("/scope", "name a scope of yours")) from refusal
    if scope.owner_id != caller.id:  # an admin's own dataset in it would spend the owner's budget
        raise Forbidden("Only the owner of a scope adds datasets to it.")
    told = metadata.model_fields_set
    wrong = [
        FieldError(f"/{name}", f"is {here!r} in this scope; leave it out")
        for name, given, here in (
            ("unit", metadata.unit, scope.unit),
            ("adjacency", metadata.adjacency.value, scope.adjacency),
            ("approval", metadata.approval, scope.approval),
        )
        if name in told and given != here
    ]
    if wrong:
        raise Invalid("The scope has its own unit, adjacency and rule of approval.", *wrong)
    if units is not None:
        budget = session.get_one(Account, scope.id)
        refuse_large_delta(
            Decimal(budget.delta),
            units,
            accepted=metadata.accept_delta or bool(budget.declared.get("accept_delta")),
            pointer="/accept_delta",
            fixed="/scope",
            fix="join a scope whose delta is at most {safe}, or open one with a budget of its own",
        )
    return scope


def declare(context: Context, caller: Caller, metadata: Metadata, key: str | None) -> tuple[dict[str, Any], bool]:
    """Make a dataset whose records come later, by `fill`; return its view as JSON and whether it is a replay.

    Raises:
        As `parse`; IdempotencyKeyReused: the key belongs to another request.
    """
    parse(context, caller, metadata)
    request = metadata.model_dump(mode="json")

    def work(session: Session) -> tuple[dict[str, Any], bool]:
        if key is not None:
            stored = idempotency.begin(session, caller.id, ROUTE, key, idempotency.hash_body(request))
            if stored is not None:
                return stored.body, True
        dataset = rows.add(session, new_id("ds"), caller.id, metadata.name, request)
        body = dataset_view(session, dataset).model_dump(mode="json")
        if key is not None:
            idempotency.store(session, caller.id, ROUTE, key, status=201, body=body)
        return body, False

    return context.database.run(work)


def create(
    context: Context, caller: Caller, metadata: Metadata, media: str | None, pieces: Iterable[bytes], key: str | None
) -> tuple[dict[str, Any], bool]:
    """Make a dataset from its declaration and its file; return its view as JSON and whether it is a replay.

    Raises:
        As `parse`; Invalid: the file's structure or types are wrong; TooLarge: it passes a limit;
        DuplicateDataset: the same records are a dataset of the caller's, declared as they are here or in another scope;
        NearCopy: more than half of them may be; IdempotencyKeyReused. Nothing is stored then.
    """
    parse(context, caller, metadata)
    request = metadata.model_dump(mode="json")

    def work(session: Session, arrived: Arrived) -> tuple[dict[str, Any], bool]:
        if key is not None:
            stored = idempotency.begin(
                session, caller.id, ROUTE, key, idempotency.hash_body([request, arrived.compared.digest])
            )
            if stored is not None:
                return stored.body, True
        dataset = rows.add(session, arrived.dataset_id, caller.id, metadata.name, published(metadata))
        _fill(session, caller, dataset, metadata, arrived)
        body = dataset_view(session, dataset).model_dump(mode="json")
        if key is not None:
            idempotency.store(session, caller.id, ROUTE, key, status=201, body=body)
        return body, False

    with context.database.read() as session:
        answered = key is not None and queries.is_answered(session, caller.id, ROUTE, key)
    with _Stored(context, caller.id, metadata, media, pieces, new_id("ds"), may_repeat=answered) as stored:
        answer = stored.commit(work)
    witnessing.keep(context)
    return answer


def fill(
    context: Context, caller: Caller, dataset_id: str, content_type: str | None, pieces: Iterable[bytes]
) -> DatasetView:
    """Give a declared dataset its records.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's; an admin too would learn by the answer what is in the owner's other uploads.
        Conflict: it has its records already.
        Invalid, TooLarge, DuplicateDataset, NearCopy: as `create`.
    """
    with context.database.read() as session:
        pending = find_own(session, caller, dataset_id)
        if pending.owner_id != caller.id:
            raise Forbidden("Only the owner of a declaration sends its records.")
        _refuse_filled(pending)
        owner_id, metadata = pending.owner_id, Metadata.model_validate(pending.request)
    parse(context, caller, metadata)

    def work(session: Session, arrived: Arrived) -> DatasetView:
        dataset = rows.lock(session, dataset_id)
        _refuse_filled(dataset)
        _fill(session, caller, dataset, metadata, arrived)
        return dataset_view(session, dataset)

    with _Stored(context, owner_id, metadata, format_of(content_type), pieces, dataset_id) as stored:
        view = stored.commit(work)
    witnessing.keep(context)
    return view


def _refuse_filled(dataset: Dataset) -> None:
    if dataset.state != "pending":
        raise Conflict("This dataset has its records; new data are a new dataset in the same scope.")


@dataclass(frozen=True)
class Arrived:
    """An upload that was received, decoded and stored, encrypted for the dataset that it is to become."""

    dataset_id: str
    compared: Comparison
    """With the owner's earlier uploads."""
    decoded: Decoded
    location: str
    wrapped_key: str
    report: dict[str, str]
    """How its cells were read, for who has the key."""
    site: str


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
    ) -> None:
        settings = context.settings
        self._context = context
        self._owner_id = owner_id
        self._storage = open_storage(settings)
        self._kept = False
        load_master_keys(settings)  # before anything is read: without one, nothing can be stored
        keys = owner_keys(context, owner_id)
        self._counting = ExitStack()
        counted = self._counting.enter_context(quotas.counted(context, owner_id, pieces))
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
            compared = Comparison(keys, owner_id, settings.site, received.digest, earlier(context, owner_id))
            self._check(compared, metadata, may_repeat=may_repeat)
            decoded = decode_upload(
                received.file,
                target,
                metadata.columns,
                limits=_limits(settings, quotas.room(context, owner_id)),
                media=media,
                rows=metadata.rows,
                row_key=keys.of_rows,
            )
            compared.records = decoded.records
            self._check(compared, metadata, may_repeat=may_repeat)
            self._storage.put(target.path, location)
        except BaseException:
            self._remove()
            raise
        wrapped_key = load_master_keys(settings).current.wrap(dataset_id, target.key)  # it may be another one by now
        report = seal_report(decoded.report, target.key, dataset_id)
        self._arrived = Arrived(dataset_id, compared, decoded, location, wrapped_key, report, settings.site)

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

    def commit(self, work: Callable[[Session, Arrived], T]) -> T:
        """Run the transaction that makes the file a dataset, and keep the file if it did."""

        def keep(session: Session) -> T:
            quotas.admit(self._context, session, self._owner_id, self._arrived.decoded.bytes)
            return work(session, self._arrived)

        answer = self._context.database.run(keep)
        with self._context.database.read() as session:
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


def _end_other_keys(session: Session, caller: Caller) -> None:
    """Stop all other keys of who brings records for the first time: others may have made some, and have seen them."""
    gone = principals.revoke_others(session, caller.id, caller.key_id)
    request = caller.request_id or new_id("req")
    audit.append(
        session, [audit.Line(caller.id, "key ended: first records", f"keys/{key}", 200, None, request) for key in gone]
    )


def _fill(session: Session, caller: Caller, dataset: Dataset, metadata: Metadata, arrived: Arrived) -> None:
    """Make a pending dataset ready: its scope, its public facts and where its records are."""
    assert dataset.id == arrived.dataset_id, "the records are encrypted for this dataset and no other"
    decoded = arrived.decoded
    if not principals.still_valid(session, [caller.key_id]):
        raise Unauthenticated("The key of this upload was revoked, or its principal disabled: nothing was stored.")
    principals.lock(session, dataset.owner_id)
    if not queries.holds_records(session, dataset.owner_id):
        _end_other_keys(session, caller)
    identities.wrapped_key(session, dataset.owner_id, arrived.site, lock=True)
    leaving, overlaps = arrived.compared.check(session, metadata)
    if metadata.scope is not None:
        scope = _joined(session, caller, metadata, decoded.rows)
    else:
        assert metadata.budget is not None, "budget or scope"
        scope = ledger.open_scope(
            session,
            owner_id=dataset.owner_id,
            unit="record",
            adjacency=metadata.adjacency.value,
            units=decoded.rows,
            terms=metadata.budget.terms(decoded.rows),
            declared=metadata.budget.model_dump(mode="json"),
        )
        scope.approval = metadata.approval
    dataset.scope_id = scope.id
    dataset.rows = decoded.rows
    dataset.location = arrived.location
    dataset.location_digest = decoded.digest
    dataset.bytes = decoded.bytes
    dataset.wrapped_key = arrived.wrapped_key
    dataset.site = arrived.site
    dataset.validation = arrived.report
    dataset.state = "ready"
    dataset.fingerprint = f"fp_{secrets.token_hex(16)}"
    dataset.request = published(metadata)
    session.flush()
    arrived.compared.keep(session, dataset, metadata, overlaps)
    ledger.note_upload(session, scope.id, dataset, identities.digest_of(session, dataset.id))
    for scope_id in sorted({one.scope_id for one in leaving}):
        gone = [one.dataset_id for one in leaving if one.scope_id == scope_id]
        identities.leave(session, scope_id, gone, dataset.owner_id)
