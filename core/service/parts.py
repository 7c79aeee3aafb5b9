"""The bytes of uploads in parts: sent part by part in any order, and completed by the path that a whole file takes."""

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Final

from sqlalchemy.orm import Session

from core.base.errors import Conflict, DigestMismatch, FieldError, Invalid, NotFound, Refusal
from core.db import clock
from core.db.upload_tables import PartedUpload, UploadPart
from core.records import parts as rows
from core.records.encryption import SealedFile
from core.records.parts import PartLost
from core.records.storage import open_storage
from core.service import uploads
from core.service.context import Caller, Context
from core.service.datasets import dataset_view, erase_parts
from core.service.opening import refuse_ended
from core.service.parted_uploads import (
    ENDED,
    find_upload,
    key_of,
    own,
    part_view,
    refuse_completed,
    refuse_other_site,
)
from core.service.views import DatasetView
from farthing.schemas.uploads import UploadPartView

_MOST_NAMED: Final = 20
_CHANGED: Final = "A part of this upload was sent again meanwhile: complete it once more."


def put(
    context: Context,
    caller: Caller,
    dataset_id: str,
    upload_id: str,
    number: int,
    digest: bytes,
    pieces: Iterable[bytes],
) -> UploadPartView:
    """Store one part; the same bytes again change nothing, and others take the place of those that are there.

    Args:
        context: the service.
        caller: the owner.
        dataset_id: of the upload.
        upload_id: an open one.
        number: of the part, from 1.
        digest: SHA-256 of the part, 32 bytes.
        pieces: its bytes.

    Raises:
        NotFound: the upload does not exist for the caller, or has expired.
        Forbidden: it is somebody else's.
        Conflict: it is completed, its dataset has its records, or another site keeps its parts.
        Invalid: the upload has no part of this number, or the part is not as long as it should be.
        DigestMismatch: the bytes are not those of the digest.
        NotReady: the storage does not answer.
    """
    with context.database.read() as session:
        upload = find_upload(session, caller, dataset_id, upload_id)
        uploads.refuse_filled(own(session, caller, dataset_id))
        refuse_completed(upload)
        refuse_other_site(context, upload)
        session.expunge_all()
    count = rows.count_of(upload)
    if number > count:
        raise Invalid(f"This upload has {count} parts.", FieldError("#path/number", f"give 1 to {count}"))
    # A new name each time: the part's key follows from it, and no key encrypts two files.
    key, location, storage = key_of(context, upload), rows.new_location(), open_storage(context.settings)
    context.settings.spool_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = SealedFile(
        path=context.settings.spool_path / location,
        context=rows.context_of(upload_id, number),
        key=rows.key_of(key, location),
    )
    try:
        _take(file, pieces, rows.size_of(upload, number), digest)
        storage.put(file.path, location)
    finally:
        file.path.unlink(missing_ok=True)

    def work(session: Session) -> str | None:
        refuse_ended(session, caller)
        locked = rows.lock(session, upload_id)
        if locked is None:
            raise NotFound(ENDED)
        refuse_completed(locked)
        locked.seen_at = clock.read(session)
        present = session.get(UploadPart, (upload_id, number), populate_existing=True)
        # The row keeps the file that it has, and the one just stored is erased.
        if present is not None and rows.open_digest(key, present) == digest:
            return location
        sealed, before = rows.seal_digest(key, location, digest), None
        if present is None:
            made = UploadPart(
                upload_id=upload_id, number=number, site=locked.site, location=location, sealed_digest=sealed
            )
            session.add(made)
        else:
            before, present.location, present.sealed_digest = present.location, location, sealed
        session.flush()
        return before

    try:
        gone = context.database.transaction(work)
    # The commit may have been done although its answer was lost: only a file without a row is erased.
    except BaseException:
        with suppress(Refusal):  # a part that is not kept and cannot be erased now is collected within a day
            _erase_unkept(context, location)
        raise
    if gone is not None:
        erase_parts(context, [gone])
    return part_view(upload, number, digest)


def _take(file: SealedFile, pieces: Iterable[bytes], expected_bytes: int, digest: bytes) -> None:
    """Write a part into a new file, encrypted as it comes, and check its length and digest."""
    taken, received = sha256(), 0
    with file.writing() as sink:
        for piece in pieces:
            received += len(piece)
            if received > expected_bytes:
                raise _other_length(expected_bytes, "more")
            taken.update(piece)
            sink.write(piece)
    if received < expected_bytes:
        raise _other_length(expected_bytes, str(received))
    if taken.digest() != digest:
        raise DigestMismatch(
            "The bytes of this part are not those that its digest names: they were changed on their way, or the digest "
            "is another part's. Nothing was stored.",
            FieldError("#header/Content-Digest", "send the part again, with the SHA-256 of its bytes"),
        )


def _other_length(expected_bytes: int, received: str) -> Invalid:
    return Invalid(
        f"This part has {expected_bytes} bytes, and {received} came. Nothing was stored.",
        FieldError("#header/Content-Length", f"send exactly {expected_bytes} bytes"),
    )


def _erase_unkept(context: Context, location: str) -> None:
    with context.database.read() as session:
        is_kept = rows.is_kept(session, location)
    if not is_kept:
        open_storage(context.settings).erase(location)


def complete(context: Context, caller: Caller, dataset_id: str, upload_id: str) -> DatasetView:
    """Give a dataset or draft the file that came in parts; an upload that is completed is answered with its dataset.

    Where the file is refused, the parts stay: the draft can be mended, or a part sent again.

    Raises:
        NotFound: the upload does not exist for the caller, or has expired.
        Forbidden: it is somebody else's.
        Conflict: parts are missing, lost or changed in the storage, or were sent again meanwhile.
        Invalid, TooLarge, DuplicateDataset, NearCopy, ManyExcluded: as `uploads.fill`.
    """
    with context.database.read() as session:
        upload = find_upload(session, caller, dataset_id, upload_id)
        if upload.completed_at is not None:
            return dataset_view(session, own(session, caller, dataset_id))
        refuse_other_site(context, upload)
        found = rows.of(session, upload_id)
        session.expunge_all()
    _refuse_missing(upload, {one.number for one in found})
    gone: list[str] = []

    def within(session: Session) -> None:
        locked = rows.lock(session, upload_id)
        if locked is None:
            raise NotFound(ENDED)
        refuse_completed(locked)
        # A part that was sent again has another name in the storage.
        if [one.location for one in rows.of(session, upload_id)] != [one.location for one in found]:
            raise Conflict(_CHANGED)
        # Without the upload's key nobody reads a copy of its parts.
        locked.completed_at, locked.wrapped_key = clock.read(session), None
        gone[:] = rows.drop_parts(session, upload_id)  # replaced, for the transaction may be run again

    try:
        content = rows.contents(open_storage(context.settings), upload_id, key_of(context, upload), found)
        view = uploads.fill(context, caller, dataset_id, upload.media_type, content, within=within)
    except (Refusal, PartLost) as failed:
        with context.database.read() as session:
            now = session.get(PartedUpload, upload_id)
            if now is not None and now.completed_at is not None:  # by a rival, with these very parts
                return dataset_view(session, own(session, caller, dataset_id))
        if isinstance(failed, PartLost):
            raise context.database.transaction(_forget_lost, upload_id, failed) from None
        raise
    erase_parts(context, gone)
    return view


def _refuse_missing(upload: PartedUpload, there: set[int]) -> None:
    missing = [number for number in range(1, rows.count_of(upload) + 1) if number not in there]
    if missing:
        named = [{"number": number} for number in missing[:_MOST_NAMED]]
        first = ", ".join(map(str, missing[:_MOST_NAMED])) + (" and others" if len(missing) > _MOST_NAMED else "")
        raise Conflict(
            f"{len(missing)} of {rows.count_of(upload)} parts are missing: {first}. Send them, and complete it again.",
            missing=named,
            missing_count=len(missing),
        )


def _forget_lost(session: Session, upload_id: str, lost: PartLost) -> Refusal:
    """Forget a part that cannot be read any more, and return the refusal that says so."""
    if rows.lock(session, upload_id) is None:
        return NotFound(ENDED)
    part = session.get(UploadPart, (upload_id, lost.number), populate_existing=True)
    if part is None or part.location != lost.location:
        return Conflict(_CHANGED)
    session.delete(part)
    session.flush()
    text = f"Part {lost.number} was lost or changed in the storage: send it again, then complete the upload."
    return Conflict(text, missing=[{"number": lost.number}], missing_count=1)
