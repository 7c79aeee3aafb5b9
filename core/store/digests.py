"""Whose bytes are whose: of one owner's datasets of the same bytes one has their digest, and the others repeat it.

The one that has it says which scope the bytes belong to; a constraint sees to it that there is one. It keeps the digest
when its records are erased, so that the bytes find no second budget.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from core.store.ledger import corrections
from core.store.ledger.accounts import lock_scope
from core.store.tables import Dataset, Entry, Scope

PAYING: Final = ("spend", "charge", "reconcile")
"""Kinds of entries by which something of the records may have been told."""


def holder(session: Session, owner_id: str, digest: str) -> Dataset | None:
    """Return the owner's dataset that has this digest, None where these bytes are new."""
    statement = select(Dataset).where(Dataset.owner_id == owner_id, Dataset.digest == digest)
    return session.execute(statement).scalar_one_or_none()


def lock_place(session: Session, owner_id: str, digest: str) -> None:
    """Lock the scope that an owner's bytes are in, if they are in one: what `put` finds then stays so."""
    first = holder(session, owner_id, digest)
    if first is not None and first.scope_id is not None:
        lock_scope(session, first.scope_id)
        session.refresh(first)


def of_the_same_bytes(session: Session, first: Dataset) -> Sequence[Dataset]:
    """Return a dataset that has a digest, and those of its owner that repeat it in its scope."""
    bytes_of = or_(Dataset.digest == first.digest, Dataset.repeated_digest == first.digest)
    statement = select(Dataset).where(Dataset.owner_id == first.owner_id, Dataset.scope_id == first.scope_id, bytes_of)
    return session.execute(statement.order_by(Dataset.id)).scalars().all()


def was_paid(session: Session, scope_id: str) -> bool:
    """Tell whether anything was ever spent from a scope; what was given back since was spent all the same."""
    statement = select(Entry.seq).where(Entry.scope_id == scope_id, Entry.kind.in_(PAYING)).limit(1)
    return session.execute(statement).first() is not None


def unerased(session: Session, scope_id: str) -> Sequence[str]:
    """Return the identifiers of a scope's datasets whose records are not erased."""
    statement = select(Dataset.id).where(Dataset.scope_id == scope_id, Dataset.state != "erased")
    return session.execute(statement.order_by(Dataset.id)).scalars().all()


def put(session: Session, dataset: Dataset, digest: str, scope: Scope) -> None:
    """Give a dataset of a scope its digest: the first of these bytes has it, one more of the same scope repeats it.

    Where they leave another scope for this one, which is the caller's to allow, that one is frozen by an entry that
    names this one, and its dataset repeats the digest from now on.

    Raises:
        IntegrityError: a rival stored the same bytes at this moment; at the next flush.
    """
    first = holder(session, dataset.owner_id, digest)
    if first is not None and first.scope_id == scope.id:
        dataset.repeated_digest = digest
        return
    if first is not None:
        assert first.scope_id is not None, "a dataset with a digest has its scope"
        first.digest, first.repeated_digest = None, digest
        session.flush()
        reason = f"nothing was told of these records; they were declared anew, in {scope.id}"
        corrections.freeze(session, first.scope_id, reason, dataset.owner_id)
    dataset.digest = digest
