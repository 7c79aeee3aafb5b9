"""Identities of records: sealed summaries of each owner's uploads, which a further upload is compared with.

Each owner has a key at each site, wrapped by that site's master key (decision 31). From it come the key of the digest
of an upload's bytes, the key of its rows' hashes, and the key that seals both with all that was found of them. A
reader of the database cannot learn from these rows whether two uploads, or two owners, have anything in common. They
outlive the records, or an erased file would find a second budget.
"""

import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite
from sqlalchemy.orm import Session

from core.base.canonical import canonical
from core.base.errors import ensure
from core.db.identity_tables import Identity, IdentityCounts, IdentityKey
from core.db.tables import Dataset, Entry
from core.ledger import corrections
from core.privacy.facts import Frozen
from core.records.decoding.likeness import Summarized, Summary, tag_of
from core.records.encryption import Tampered

PAYING: Final = ("spend", "charge", "reconcile")
"""Kinds of entries by which an answer about the records may have been released."""
_NONCE_BYTES: Final = 12
_ROOM: Final = 16_384
_ROOM_FOR_A_COLUMN: Final = 200


@dataclass(frozen=True)
class OwnerKeys:
    """The keys that one owner's uploads to one site are summarized, digested and sealed under."""

    secret: bytes = field(repr=False)

    @property
    def of_rows(self) -> bytes:
        """The key of rows' hashes."""
        return self._derive("rows")

    @property
    def of_bytes(self) -> bytes:
        """The key of the digest of an upload's bytes."""
        return self._derive("bytes")

    def seal(self, name: str, content: bytes) -> bytes:
        """Return content encrypted, bound to what it is called."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self._derive("seal")).encrypt(nonce, content, name.encode())

    def open(self, name: str, sealed: bytes) -> bytes:
        """Return what `seal` was given.

        Raises:
            Tampered: it was changed, or is called otherwise.
        """
        try:
            return AESGCM(self._derive("seal")).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
        except InvalidTag:
            raise Tampered from None

    def _derive(self, purpose: str) -> bytes:
        return hmac.digest(self.secret, f"farthing owner key: {purpose}".encode(), sha256)


class Overlap(Frozen):
    """An earlier upload that shares more than half of its rows with this one, or of this one's."""

    dataset: str
    scope: str
    share: float


class OwnedUpload(Frozen):
    """The summary of an upload, for its owner alone."""

    digest: str
    """Of the bytes, under the owner's key."""
    summary: Summary
    overlaps: tuple[Overlap, ...] = ()
    """Found when it came."""
    distinct_because: str | None = None
    """The owner's statement, in their words."""


class Staged(Frozen):
    """The summary of a draft's file, which its upload is compared by once the draft is sealed."""

    digest: str
    """Of the bytes, under the owner's key."""
    records: Summarized


@dataclass(frozen=True)
class Known:
    """An earlier dataset of an owner's, and its scope."""

    dataset_id: str
    scope_id: str
    state: str
    columns: Any
    moved: bool
    """Whether it is noted that its records left for another scope; a note that nobody vouches for."""
    comparable: bool
    """Whether something was kept of it here: not of another site's, nor of what came before there were summaries."""


def wrapped_key(session: Session, owner_id: str, site: str, *, lock: bool = False) -> str | None:
    """Return an owner's wrapped key at a site, None before the first upload there.

    Args:
        session: a session; of a write transaction where it locks.
        owner_id: the owner.
        site: the site.
        lock: hold it until the transaction ends: one upload of an owner after the other is compared and stored.
    """
    statement = select(IdentityKey.wrapped).where(IdentityKey.owner_id == owner_id, IdentityKey.site == site)
    return session.execute(statement.with_for_update() if lock else statement).scalar_one_or_none()


def add_key(session: Session, owner_id: str, site: str, wrapped: str) -> None:
    """Store an owner's key, unless a rival was first."""
    insert = insert_sqlite if session.get_bind().dialect.name == "sqlite" else insert_postgresql
    values = {"owner_id": owner_id, "site": site, "wrapped": wrapped}
    session.execute(insert(IdentityKey).values(values).on_conflict_do_nothing())


def keep(session: Session, keys: OwnerKeys, dataset: Dataset, kept: OwnedUpload, records: Summarized) -> None:
    """Store the summary of a dataset, sealed; its length depends on the number of columns alone."""
    sealed = keys.seal(dataset.id, _padded(kept.model_dump_json().encode(), kept.summary))
    session.add(Identity(dataset_id=dataset.id, owner_id=dataset.owner_id, site=dataset.site, sealed=sealed))
    for one in records.counts:
        tag = tag_of(one.columns)
        content = keys.seal(f"{dataset.id} {tag}", one.content)
        session.add(IdentityCounts(dataset_id=dataset.id, tag=tag, sealed=content))
    session.flush()


def seal_draft(keys: OwnerKeys, dataset_id: str, staged: Staged) -> bytes:
    """Return what is known of a draft's file, sealed; its length follows from the declaration alone."""
    counts = sum(len(one.model_dump_json()) + 1 for one in staged.records.counts)
    plain = _padded(staged.model_dump_json().encode(), staged.records.summary, counts)
    return keys.seal(_draft_name(dataset_id), plain)


def open_draft(keys: OwnerKeys, dataset_id: str, sealed: bytes) -> Staged:
    """Return what `seal_draft` was given.

    Raises:
        Tampered: it was changed, or is another dataset's.
    """
    return Staged.model_validate_json(keys.open(_draft_name(dataset_id), sealed))


def _draft_name(dataset_id: str) -> str:
    return f"draft {dataset_id}"


def _padded(plain: bytes, summary: Summary, more: int = 0) -> bytes:
    """Return JSON filled up to a length that says nothing but how many columns there are, and how long their names."""
    names = sum(len(json.dumps(name)) for name in summary.columns)
    room = _ROOM + names + _ROOM_FOR_A_COLUMN * len(summary.columns) + more
    ensure(len(plain) <= room, "summaries, overlaps and statements are bounded")
    # JSON may end with spaces, so a reader need not cut the padding off.
    return plain.ljust(room)


def read(session: Session, keys: OwnerKeys, dataset_id: str) -> OwnedUpload | None:
    """Return what is known of a dataset; None where nothing was kept here."""
    found = session.get(Identity, dataset_id)
    return None if found is None else _opened(keys, found.dataset_id, found.sealed)


def site_of(session: Session, dataset_id: str) -> str | None:
    """Return the site where something was kept of a dataset; None: nowhere."""
    return session.execute(select(Identity.site).where(Identity.dataset_id == dataset_id)).scalar_one_or_none()


def known(session: Session, owner_id: str, site: str) -> list[Known]:
    """Return an owner's datasets that have a scope, oldest first."""
    here = (Identity.dataset_id == Dataset.id) & (Identity.site == site)
    statement = (
        select(
            Dataset.id,
            Dataset.scope_id,
            Dataset.state,
            Dataset.columns,
            Identity.moved,
            Identity.dataset_id.is_not(None),
        )
        .outerjoin(Identity, here)
        .where(Dataset.owner_id == owner_id, Dataset.scope_id.is_not(None))
        .order_by(Dataset.id)
    )
    return [
        Known(dataset_id, scope_id, state, columns, moved=bool(moved), comparable=bool(comparable))
        for dataset_id, scope_id, state, columns, moved, comparable in session.execute(statement)
    ]


def is_any_kept(session: Session, owner_id: str, site: str) -> bool:
    """Say whether something is kept of any of an owner's uploads to a site."""
    found = select(Identity.dataset_id).where(Identity.owner_id == owner_id, Identity.site == site).limit(1)
    return session.execute(found).first() is not None


def digest_of(session: Session, dataset_id: str) -> str | None:
    """Return SHA-256 over all that is kept of a dataset, as it is sealed; None where nothing is.

    Every seal has a fresh random nonce: the digest says nothing of what is sealed, and differs for the same records.
    """
    found = session.execute(select(Identity.site, Identity.sealed).where(Identity.dataset_id == dataset_id)).first()
    if found is None:
        return None
    rows = select(IdentityCounts.tag, IdentityCounts.sealed).where(IdentityCounts.dataset_id == dataset_id)
    # Sorted, for a query returns rows in any order and the digest must not depend on it.
    parts = sorted([row.tag, sha256(row.sealed).hexdigest()] for row in session.execute(rows))
    text = canonical([dataset_id, found.site, sha256(found.sealed).hexdigest(), parts])
    return "sha256:" + sha256(text.encode("ascii")).hexdigest()


def counts(session: Session, keys: OwnerKeys, dataset_id: str, tag: str) -> bytes:
    """Return a dataset's counts by a set of its columns."""
    found = session.get_one(IdentityCounts, (dataset_id, tag))
    return keys.open(f"{dataset_id} {tag}", found.sealed)


def leave(session: Session, scope_id: str, datasets: Sequence[str], owner_id: str) -> None:
    """Note that records left a scope without released answers for another; an entry freezes the old one.

    The entry reads as one of the owner's own: that the records are in another scope now is the owner's alone to see.
    """
    session.execute(update(Identity).where(Identity.dataset_id.in_(datasets)).values(moved=True))
    reason = "closed by its owner: nothing was told of its records"
    corrections.freeze(session, scope_id, reason, owner_id)


def was_paid(session: Session, scope_id: str) -> bool:
    """Say whether anything was ever spent from a scope; a charge that was given back counts as spent."""
    statement = select(Entry.seq).where(Entry.scope_id == scope_id, Entry.kind.in_(PAYING)).limit(1)
    return session.execute(statement).first() is not None


def unerased(session: Session, scope_id: str) -> Sequence[str]:
    """Return the identifiers of a scope's datasets whose records are not erased."""
    statement = select(Dataset.id).where(Dataset.scope_id == scope_id, Dataset.state != "erased")
    return session.execute(statement.order_by(Dataset.id)).scalars().all()


def _opened(keys: OwnerKeys, dataset_id: str, sealed: bytes) -> OwnedUpload:
    plain: Mapping[str, Any] = json.loads(keys.open(dataset_id, sealed))
    return OwnedUpload.model_validate(plain)
