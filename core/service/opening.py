"""From stored records to a dataset: compared with earlier uploads, given a scope, entered in the ledger."""

import secrets
from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.access import audit, principals
from core.base.errors import Unauthenticated
from core.base.identifiers import new_id
from core.data.datasets import Metadata
from core.db import reads as queries
from core.db.tables import Dataset
from core.ledger import identities, ledger
from core.ledger.identities import OwnerKeys
from core.records.decoding.decode import Decoded
from core.service.context import Caller
from core.service.declarations import joined
from core.service.identity import Comparison, published


@dataclass(frozen=True)
class Arrived:
    """An upload that was received, decoded and stored, encrypted for the dataset that it is to become."""

    dataset_id: str
    digest: str
    """Of the bytes, under the owner's key."""
    keys: OwnerKeys
    compared: Comparison | None
    """With the owner's earlier uploads; None for a draft, which is compared when it is sealed."""
    decoded: Decoded
    location: str
    wrapped_key: str
    report: dict[str, str]
    """The report of its cells, sealed for holders of the key."""
    site: str


def hold(session: Session, caller: Caller, dataset: Dataset, arrived: Arrived) -> None:
    """Note where the records of a pending dataset are; the owner's first ones end all other keys of the owner.

    Raises:
        Unauthenticated: the caller's key has ended meanwhile.
    """
    assert dataset.id == arrived.dataset_id, "the records are encrypted for this dataset and no other"
    refuse_ended(session, caller)
    principals.lock(session, dataset.owner_id)
    # Under the owner's lock, which making a key for this owner takes too.
    if not queries.holds_records(session, dataset.owner_id):
        _end_other_keys(session, caller)
    decoded = arrived.decoded
    dataset.rows = decoded.rows
    dataset.location = arrived.location
    dataset.location_digest = decoded.digest
    dataset.bytes = decoded.bytes
    dataset.wrapped_key = arrived.wrapped_key
    dataset.site = arrived.site
    dataset.validation = arrived.report
    session.flush()


def refuse_ended(session: Session, caller: Caller) -> None:
    """Refuse a caller whose key has ended since the request began.

    Raises:
        Unauthenticated: it has.
    """
    if not principals.still_valid(session, [caller.key_id]):
        raise Unauthenticated("The key of this upload was revoked, or its principal disabled: nothing was stored.")


def open_budget(session: Session, caller: Caller, dataset: Dataset, metadata: Metadata, compared: Comparison) -> None:
    """Make a dataset ready whose records are held: it joins or opens a scope, and the ledger has its entry.

    The caller holds the locks of the dataset and of its owner.

    Raises:
        DuplicateDataset, NearCopy: the records have a budget already, or may have one.
        Forbidden, Invalid, NotFound: as `declarations.parse`; the budget is held against the number of records.
    """
    assert dataset.rows is not None, "its records are held"
    # Two uploads of an owner at a time would not find each other: the lock admits one by one.
    identities.wrapped_key(session, dataset.owner_id, dataset.site, lock=True)
    leaving, overlaps = compared.check(session, metadata)
    if metadata.scope is not None:
        scope = joined(session, caller, metadata, dataset.rows)
    else:
        assert metadata.budget is not None, "budget or scope"
        scope = ledger.open_scope(
            session,
            owner_id=dataset.owner_id,
            unit="record",
            adjacency=metadata.adjacency.value,
            units=dataset.rows,
            terms=metadata.budget.terms(dataset.rows),
            declared=metadata.budget.model_dump(mode="json"),
        )
        scope.approval = metadata.approval
    # In the order of their ids, as every transaction that locks several scopes.
    for scope_id in sorted({scope.id, *(one.scope_id for one in leaving)}):
        ledger.lock_scope(session, scope_id)
    dataset.scope_id = scope.id
    dataset.state = "ready"
    # Drawn by chance: a digest of the records would confirm a guess of them.
    dataset.fingerprint = f"fp_{secrets.token_hex(16)}"
    dataset.request = published(metadata)
    session.flush()
    compared.keep(session, dataset, metadata, overlaps)
    ledger.note_upload(session, scope.id, dataset, identities.digest_of(session, dataset.id))
    for scope_id in sorted({one.scope_id for one in leaving}):
        gone = [one.dataset_id for one in leaving if one.scope_id == scope_id]
        identities.leave(session, scope_id, gone, dataset.owner_id)


def _end_other_keys(session: Session, caller: Caller) -> None:
    """Stop all other keys of who brings records for the first time: others may have made some, and have seen them."""
    gone = principals.revoke_others(session, caller.id, caller.key_id)
    request = caller.request_id or new_id("req")
    audit.append(
        session, [audit.Line(caller.id, "key ended: first records", f"keys/{key}", 200, None, request) for key in gone]
    )
