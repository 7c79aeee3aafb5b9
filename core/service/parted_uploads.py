"""Uploads in parts, as their owners see them: opened, listed, looked at and ended."""

import base64
from typing import Any, Final

from sqlalchemy.orm import Session

from core.base.errors import Conflict, FieldError, Forbidden, Invalid, NotFound, TooLarge
from core.base.identifiers import new_id
from core.data.datasets import Metadata
from core.db import clock, idempotency
from core.db.tables import Dataset
from core.db.upload_tables import PartedUpload
from core.records import datasets as datasets_rows
from core.records import parts as rows
from core.records.encryption import new_key
from core.records.master_key import load_master_keys
from core.service import drafts, quotas, uploads
from core.service.context import Caller, Context
from core.service.datasets import erase_parts, find, refuse_elsewhere
from core.service.declarations import parse
from core.service.opening import refuse_ended
from core.service.views import rfc3339
from farthing.schemas.uploads import UploadPartView, UploadView, UploadWithPartsView

ROUTE: Final = "POST /v1/datasets/{id}/uploads"
PART_BYTES: Final = 8 * 2**20
"""Of a part, unless the client says otherwise."""
LEAST_PART_BYTES: Final = 2**16
MOST_PART_BYTES: Final = 64 * 2**20
MOST_PARTS: Final = 10_000
MOST_OPEN: Final = 8
"""Open uploads of one owner."""
ENDED: Final = "There is no such upload of this dataset: it was ended, or has expired. Open another one."


def begin(
    context: Context,
    caller: Caller,
    dataset_id: str,
    file_bytes: int,
    media_type: str,
    part_bytes: int | None,
    key: str | None,
) -> tuple[dict[str, Any], bool]:
    """Open an upload in parts; return its view as JSON and whether it is a replay.

    Args:
        context: the service.
        caller: the owner of the dataset.
        dataset_id: declared and without records, or a draft.
        file_bytes: of the whole file; they count against the owner's disk until the upload ends.
        media_type: of the file.
        part_bytes: of each part but the last; None: 8 MiB, or more where that would be too many parts.
        key: idempotency key; None: there is none.

    Raises:
        NotFound: the dataset does not exist for the caller.
        Forbidden: it is somebody else's.
        Conflict: it has its records, another site keeps a draft's file, or too many uploads of the owner are open.
        TooLarge: the file is larger than the service takes.
        Invalid: it would have too many parts.
        QuotaExceeded, DiskFull: there is no room for it.
        KeyNotOwn, NotReady, IdempotencyKeyReused: as `uploads.fill`.
    """
    settings = context.settings
    with context.database.read() as session:
        found = own(session, caller, dataset_id)
        uploads.refuse_filled(found)
        refuse_elsewhere(context, found, "send others")
        draft = drafts.of(session, dataset_id)
        declared = found.request if draft is None else draft.declared
    parse(context, caller, Metadata.model_validate(declared))
    size = _part_size(context, file_bytes, part_bytes)
    keys = load_master_keys(settings)
    quotas.leave_free(context, file_bytes)
    upload_id = new_id("upl")
    request = {"dataset": dataset_id, "bytes": file_bytes, "media_type": media_type, "part_bytes": part_bytes}

    def work(session: Session) -> tuple[dict[str, Any], bool]:
        if key is not None:
            stored = idempotency.begin(session, caller.id, ROUTE, key, idempotency.hash_body(request))
            if stored is not None:
                return stored.body, True
        refuse_ended(session, caller)
        # Again, under the lock: a rival may have sent the records meanwhile. A dataset is locked before its owner.
        uploads.refuse_filled(datasets_rows.lock(session, dataset_id))
        quotas.announce(context, session, caller.id, file_bytes)
        if rows.open_count(session, caller.id) >= MOST_OPEN:
            raise Conflict(f"{MOST_OPEN} uploads of yours are open: complete one, or end one by DELETE.")
        at = clock.read(session)
        upload = PartedUpload(
            id=upload_id,
            dataset_id=dataset_id,
            owner_id=caller.id,
            site=settings.site,
            bytes=file_bytes,
            part_bytes=size,
            media_type=media_type,
            wrapped_key=keys.current.wrap(rows.wrapped_for(upload_id), new_key()),
            created_at=at,
            seen_at=at,
        )
        session.add(upload)
        session.flush()
        body = UploadView(**_facts(upload, 0)).model_dump(mode="json")
        if key is not None:
            idempotency.store(session, caller.id, ROUTE, key, status=201, body=body)
        return body, False

    return context.database.transaction(work)


def _part_size(context: Context, file_bytes: int, part_bytes: int | None) -> int:
    most = context.settings.max_upload_bytes
    if file_bytes > most:
        raise TooLarge(
            f"The file is larger than {most} bytes, the most this service takes.",
            FieldError("/bytes", "send fewer rows, leave out undeclared columns, or use Parquet"),
            limit_bytes=most,
        )
    # Rounded up, so that the last part never passes the number of parts.
    least = -(-file_bytes // MOST_PARTS)
    size = max(PART_BYTES, least) if part_bytes is None else part_bytes
    if size < least:
        raise Invalid(
            f"An upload may have {MOST_PARTS} parts.",
            FieldError("/part_bytes", f"give {least} or more, or leave it out"),
        )
    return size


def page(context: Context, caller: Caller, dataset_id: str) -> list[UploadView]:
    """Return the open uploads of a dataset, newest first.

    Raises:
        NotFound: the dataset does not exist for the caller.
        Forbidden: it is somebody else's.
    """
    with context.database.read() as session:
        own(session, caller, dataset_id)
        found = rows.open_of(session, dataset_id)
        received = rows.counts(session, [one.id for one in found])
        return [UploadView(**_facts(one, received.get(one.id, 0))) for one in found]


def get(context: Context, caller: Caller, dataset_id: str, upload_id: str) -> UploadWithPartsView:
    """Return an upload with the parts that are there.

    Raises:
        NotFound: it does not exist for the caller, or has expired.
        Forbidden: it is somebody else's.
        Conflict: another site keeps its parts.
    """
    with context.database.read() as session:
        upload = find_upload(session, caller, dataset_id, upload_id)
        refuse_other_site(context, upload)
        found = rows.of(session, upload_id)
        session.expunge_all()
    key = key_of(context, upload) if found else b""
    shown = [part_view(upload, one.number, rows.open_digest(key, one)) for one in found]
    return UploadWithPartsView(**_facts(upload, len(found)), parts=shown)


def end(context: Context, caller: Caller, dataset_id: str, upload_id: str) -> None:
    """End an upload and erase its parts; the dataset or draft stays as it is.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
        Conflict: it is completed, or another site keeps its parts.
    """
    with context.database.read() as session:
        refuse_other_site(context, find_upload(session, caller, dataset_id, upload_id))

    def work(session: Session) -> list[str]:
        locked = rows.lock(session, upload_id)
        if locked is None:
            return []
        refuse_completed(locked)
        return rows.drop(session, locked)

    erase_parts(context, context.database.transaction(work))


def own(session: Session, caller: Caller, dataset_id: str) -> Dataset:
    """Return a dataset of the caller's.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's; an admin too would learn by the answer what is in the owner's other uploads.
    """
    found = find(session, caller, dataset_id)
    if found.owner_id != caller.id:
        raise Forbidden("Only the owner of a dataset sends its records.")
    return found


def find_upload(session: Session, caller: Caller, dataset_id: str, upload_id: str) -> PartedUpload:
    """Return an upload of the caller's that has not expired.

    Raises:
        NotFound: there is none.
        Forbidden: it is somebody else's.
    """
    own(session, caller, dataset_id)
    found = session.get(PartedUpload, upload_id)
    if found is None or found.dataset_id != dataset_id or rows.expires_at(found) <= clock.read(session):
        raise NotFound(ENDED)
    return found


def refuse_completed(upload: PartedUpload) -> None:
    """Refuse a change of an upload that is completed.

    Raises:
        Conflict: it is.
    """
    if upload.completed_at is not None:
        raise Conflict("This upload is completed: its dataset has the records.")


def refuse_other_site(context: Context, upload: PartedUpload) -> None:
    """Refuse what only the service of the site that keeps the parts can do.

    Raises:
        Conflict: it is another site's than this service's.
    """
    if upload.site != context.settings.site:
        keeper = f"the site {upload.site}" if upload.site else "the service itself, which is no site"
        raise Conflict(f"The parts of this upload are kept by {keeper}: go on with it through its own API.")


def key_of(context: Context, upload: PartedUpload) -> bytes:
    """Return the key of an open upload, 32 bytes.

    Raises:
        NotReady: the master key is not here, or is another one.
    """
    assert upload.wrapped_key is not None, "it is open"
    return load_master_keys(context.settings).unwrap(rows.wrapped_for(upload.id), upload.wrapped_key)


def part_view(upload: PartedUpload, number: int, digest: bytes) -> UploadPartView:
    """Return a part as its owner sees it."""
    text = f"sha-256=:{base64.b64encode(digest).decode()}:"
    return UploadPartView(number=number, bytes=rows.size_of(upload, number), digest=text)


def _facts(upload: PartedUpload, received: int) -> dict[str, Any]:
    count = rows.count_of(upload)
    is_done = upload.completed_at is not None
    return {
        "id": upload.id,
        "dataset": upload.dataset_id,
        "state": "completed" if is_done else "open",
        "bytes": upload.bytes,
        "media_type": upload.media_type,
        "part_bytes": upload.part_bytes,
        "part_count": count,
        "received_count": count if is_done else received,
        "created_at": rfc3339(upload.created_at),
        "expires_at": rfc3339(rows.expires_at(upload)),
    }
