"""Parts of uploads at rest, and their rows: encrypted as records are, each under a key of its own.

An upload has one random key, which the master key wraps. The key of a part is derived from it by the part's name in the
storage, which is drawn anew each time that the part is sent. No key encrypts two files. Without the upload's row
nobody can read a part, wherever copies of it are.
"""

import hmac
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import delete, func, inspect, or_, select, true
from sqlalchemy.orm import Session

from core.base.identifiers import new_id
from core.db import clock
from core.db.tables import Dataset
from core.db.upload_tables import PartedUpload, UploadPart
from core.records.encryption import Decrypting, Tampered
from core.records.storage import Storage

PREFIX: Final = "part"
"""Of the names of stored parts."""
KEPT_SECONDS: Final = 86_400.0
"""From the last part until an upload is erased; from its completion until it is forgotten."""
LONGEST_SECONDS: Final = 7 * 86_400.0
"""From its opening, however often parts come."""
_NONCE: Final = bytes(12)
"""Always the same: each key seals one digest."""
_BLOCK_BYTES: Final = 2**20


class PartLost(Exception):
    """A stored part is gone, or is not what was stored.

    Args:
        number: its place, from 1.
        location: its name in the storage.
    """

    def __init__(self, number: int, location: str) -> None:
        super().__init__(number)
        self.number = number
        self.location = location


def count_of(upload: PartedUpload) -> int:
    """Return the number of parts of an upload that is complete."""
    return -(-upload.bytes // upload.part_bytes)


def size_of(upload: PartedUpload, number: int) -> int:
    """Return the bytes of a part: all are of one size, and the last one has the rest."""
    return min(upload.part_bytes, upload.bytes - (number - 1) * upload.part_bytes)


def expires_at(upload: PartedUpload) -> float:
    """Return when an upload goes, in seconds since the epoch."""
    if upload.completed_at is not None:
        return upload.completed_at + KEPT_SECONDS
    return min(upload.seen_at + KEPT_SECONDS, upload.created_at + LONGEST_SECONDS)


def wrapped_for(upload_id: str) -> str:
    """Return what an upload's key is wrapped for."""
    return f"parts of {upload_id}"


def new_location() -> str:
    """Return a new name for a part in the storage."""
    return f"{new_id(PREFIX)}.sealed"


def key_of(upload_key: bytes, location: str) -> bytes:
    """Return the key of one stored part."""
    return hmac.digest(upload_key, f"farthing upload part: {location}".encode(), sha256)


def context_of(upload_id: str, number: int) -> str:
    """Return what a part's frames are bound to."""
    return f"{upload_id}/{number}"


def seal_digest(upload_key: bytes, location: str, digest: bytes) -> bytes:
    """Return a part's SHA-256, encrypted: in the open it would confirm a guess of the part's rows."""
    return AESGCM(_digest_key(upload_key, location)).encrypt(_NONCE, digest, None)


def open_digest(upload_key: bytes, part: UploadPart) -> bytes:
    """Return the SHA-256 of a part.

    Raises:
        Tampered: the row is not the one that was written.
    """
    try:
        return AESGCM(_digest_key(upload_key, part.location)).decrypt(_NONCE, part.sealed_digest, None)
    except (InvalidTag, ValueError):
        raise Tampered from None


def _digest_key(upload_key: bytes, location: str) -> bytes:
    return hmac.digest(upload_key, f"farthing upload part's digest: {location}".encode(), sha256)


def contents(storage: Storage, upload_id: str, upload_key: bytes, parts: Sequence[UploadPart]) -> Iterator[bytes]:
    """Yield the bytes of a file from its stored parts, in their order, a block at a time.

    Raises:
        PartLost: a part is gone, or is not what was stored.
        NotReady: the storage does not answer.
    """
    for part in parts:
        key, context = key_of(upload_key, part.location), context_of(upload_id, part.number)
        try:
            with closing(Decrypting(storage.open(part.location), key, context)) as file:
                while block := file.read(_BLOCK_BYTES):
                    yield block
        except (Tampered, FileNotFoundError):
            raise PartLost(part.number, part.location) from None


# Rows ---------------------------------------------------------------------------------------------------------------


def lock(session: Session, upload_id: str) -> PartedUpload | None:
    """Lock an upload after its dataset, if both are locked; return it as it is now."""
    statement = select(PartedUpload).where(PartedUpload.id == upload_id).with_for_update()
    return session.execute(statement.execution_options(populate_existing=True)).scalar_one_or_none()


def of(session: Session, upload_id: str) -> Sequence[UploadPart]:
    """Return the parts of an upload that are there, in their order."""
    statement = select(UploadPart).where(UploadPart.upload_id == upload_id).order_by(UploadPart.number)
    return session.execute(statement.execution_options(populate_existing=True)).scalars().all()


def counts(session: Session, upload_ids: Sequence[str]) -> dict[str, int]:
    """Return how many parts of each upload are there; uploads without any are left out."""
    statement = select(UploadPart.upload_id, func.count()).where(UploadPart.upload_id.in_(list(upload_ids)))
    return {row[0]: row[1] for row in session.execute(statement.group_by(UploadPart.upload_id))}


def open_of(session: Session, dataset_id: str) -> Sequence[PartedUpload]:
    """Return the uploads of a dataset that are not completed and have not expired, newest first."""
    mine = PartedUpload.dataset_id == dataset_id
    statement = select(PartedUpload).where(mine, *_is_open(clock.read(session))).order_by(PartedUpload.id.desc())
    return session.execute(statement).scalars().all()


def open_count(session: Session, owner_id: str) -> int:
    """Return how many uploads of an owner are open, at all sites."""
    mine = PartedUpload.owner_id == owner_id
    statement = select(func.count()).select_from(PartedUpload).where(mine, *_is_open(clock.read(session)))
    return session.execute(statement).scalar_one()


def _is_open(at: float) -> tuple[Any, ...]:
    young = PartedUpload.seen_at > at - KEPT_SECONDS, PartedUpload.created_at > at - LONGEST_SECONDS
    return PartedUpload.completed_at.is_(None), *young


def drop_parts(session: Session, upload_id: str) -> list[str]:
    """Forget the parts of an upload that the caller has locked; return their names, for the storage to erase."""
    gone = delete(UploadPart).where(UploadPart.upload_id == upload_id).returning(UploadPart.location)
    return list(session.execute(gone).scalars())


def drop(session: Session, upload: PartedUpload) -> list[str]:
    """Forget an upload that the caller has locked, its key with it; return the names of its parts."""
    names = drop_parts(session, upload.id)
    session.delete(upload)
    session.flush()
    return names


def drop_late(session: Session, site: str) -> list[str]:
    """Forget a site's uploads that nobody goes on with; return the names of their parts.

    They have expired, or their dataset is erased or has its records by another way.
    """
    at = clock.read(session)
    expired = or_(PartedUpload.seen_at <= at - KEPT_SECONDS, PartedUpload.created_at <= at - LONGEST_SECONDS)
    is_done = PartedUpload.completed_at.is_not(None)
    useless = Dataset.state.in_(("erasing", "erased")) | ((Dataset.state == "ready") & ~is_done)
    late = useless | (is_done & (PartedUpload.completed_at <= at - KEPT_SECONDS)) | (~is_done & expired)
    found = select(PartedUpload.id).join(Dataset, Dataset.id == PartedUpload.dataset_id)
    names: list[str] = []
    for upload_id in (
        # In order of identifiers, so that two of these that lock rows at once cannot block each other.
        session.execute(found.where(PartedUpload.site == site, late).order_by(PartedUpload.id)).scalars().all()
    ):
        upload = lock(session, upload_id)
        if upload is not None:
            names += drop(session, upload)
    return names


def is_kept(session: Session, location: str) -> bool:
    """Tell whether an upload has this stored part."""
    return session.execute(select(UploadPart.upload_id).where(UploadPart.location == location)).first() is not None


def locations(session: Session) -> set[str]:
    """Return the names of all stored parts of uploads."""
    return set(session.execute(select(UploadPart.location)).scalars())


def pending_bytes(session: Session, owner_id: str, site: str) -> int:
    """Return the bytes that an owner's open uploads at a site have announced."""
    # Expired ones count until they are dropped: their parts are still on the disk.
    here = PartedUpload.owner_id == owner_id, PartedUpload.site == site, PartedUpload.completed_at.is_(None)
    return int(session.execute(select(func.coalesce(func.sum(PartedUpload.bytes), 0)).where(*here)).scalar_one())


def forget(session: Session) -> None:
    """Forget all uploads: a backup holds their rows and not their parts. Its release may be one without them."""
    if inspect(session.connection()).has_table(PartedUpload.__tablename__):
        session.execute(delete(UploadPart).where(true()))
        session.execute(delete(PartedUpload).where(true()))
