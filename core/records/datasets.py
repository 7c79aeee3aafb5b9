"""Rows of datasets: declared, filled, shared, erased."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import Select, delete, inspect, select, update
from sqlalchemy.orm import Session

from core.base.errors import NotFound
from core.db import checkpoints, clock
from core.db.identity_tables import Draft, IdentityKey
from core.db.notice_tables import Webhook
from core.db.tables import Access, Dataset, Job
from core.db.upload_tables import PartedUpload, Removal
from core.records import parts


def add(session: Session, dataset_id: str, owner_id: str, name: str, request: Mapping[str, Any]) -> Dataset:
    """Add a dataset without records.

    Args:
        session: an open write transaction.
        dataset_id: its identifier.
        owner_id: the owner of the dataset.
        name: for people.
        request: its metadata, JSON-ready.
    """
    dataset = Dataset(
        id=dataset_id,
        owner_id=owner_id,
        name=name,
        state="pending",
        request=dict(request),
        bytes=len(json.dumps(request)),  # a declaration takes room, too; its records' size takes the place
        columns=request["columns"],
        created_at=clock.read(session),
    )
    session.add(dataset)
    session.flush()
    return dataset


def lock(session: Session, dataset_id: str) -> Dataset:
    """Lock a dataset's row, before any job's or scope's; return it as it is now.

    Raises:
        NotFound: there is no such dataset.
    """
    statement = select(Dataset).where(Dataset.id == dataset_id).with_for_update()
    # Without `populate_existing` the session would return the row as it read it before the lock.
    found = session.execute(statement.execution_options(populate_existing=True)).scalar_one_or_none()
    if found is None:
        raise NotFound("There is no such dataset.")
    return found


def is_kept(session: Session, location: str) -> bool:
    """Tell whether a dataset's records are in this file."""
    return session.execute(select(Dataset.id).where(Dataset.location == location)).first() is not None


def give_access(session: Session, dataset_id: str, principal_id: str) -> tuple[Access, bool]:
    """Let a principal see a dataset; return the row and whether it is new. The caller holds the principal's lock."""
    found = session.get(Access, (dataset_id, principal_id))
    if found is not None:
        return found, False
    made = Access(dataset_id=dataset_id, principal_id=principal_id, created_at=clock.read(session))
    session.add(made)
    session.flush()
    return made, True


def take_access(session: Session, dataset_id: str, principal_id: str) -> None:
    """Take a principal's sight of a dataset away."""
    session.execute(delete(Access).where(Access.dataset_id == dataset_id, Access.principal_id == principal_id))


def erasable(session: Session, lease_seconds: float, site: str = "") -> Iterable[tuple[str, str | None]]:
    """Return identifier and file of each dataset in erasure, of a site or without records, that no process can hold.

    One that has an upload in parts waits until the site that keeps the parts has erased them.
    """
    # Without a file there is nothing to erase at a site, so that any process may end it.
    here = (Dataset.site == site) | Dataset.location.is_(None)
    statement = select(Dataset.id, Dataset.location).where(Dataset.state == "erasing", here)
    in_use = holding(session, lease_seconds).where(Job.dataset_id == Dataset.id).exists()
    sent_to = select(PartedUpload.id).where(PartedUpload.dataset_id == Dataset.id).exists()
    return [(row[0], row[1]) for row in session.execute(statement.where(~in_use, ~sent_to))]


def holding(session: Session, lease_seconds: float) -> Select[str]:
    """Return the jobs whose trainer may still hold records; of a federated job its sites' do.

    A job that is cancelled or has failed was ended after its trainer was reaped, or after its lease had passed. One
    that succeeded was ended by the trainer itself, which a supervisor kills within a lease if it does not leave.
    """
    left = Job.finished_at + lease_seconds <= clock.read(session)
    holds = Job.federation_id.is_(None) | Job.place.is_not(None)
    return select(Job.id).where(holds, Job.finished_at.is_(None) | ((Job.state == "succeeded") & ~left))


def destroy_key(session: Session, dataset_id: str, lease_seconds: float) -> bool:
    """Forget the key of a dataset in erasure, so that its records cannot be read wherever copies of them are.

    Returns:
        Whether the records may be destroyed: not while a process that could hold them may be alive.
    """
    dataset = lock(session, dataset_id)
    in_use = holding(session, lease_seconds).where(Job.dataset_id == dataset_id).limit(1)
    # Asked again under the lock: the list of datasets was read in an earlier transaction.
    if dataset.state != "erasing" or session.execute(in_use).first() is not None:
        return False
    dataset.wrapped_key = None
    session.execute(update(Draft).where(Draft.dataset_id == dataset_id).values(declared={}, sealed=None))
    session.flush()
    return True


def mark_erased(session: Session, dataset_id: str) -> bool:
    """Note that a dataset's records are gone, and with them its jobs' states; tell whether they were about to be."""
    dataset = lock(session, dataset_id)
    if dataset.state != "erasing":
        return False
    checkpoints.drop_of(session, dataset_id)
    dataset.state = "erased"
    dataset.location = dataset.location_digest = dataset.wrapped_key = dataset.validation = None
    dataset.bytes = 0
    session.flush()
    return True


def forget_records(session: Session, dataset: Dataset) -> None:
    """Forget the records of a draft, and their key with them; the caller holds the dataset's lock."""
    dataset.location = dataset.location_digest = dataset.wrapped_key = dataset.validation = dataset.rows = None
    session.flush()


def ready(session: Session, site: str) -> Sequence[Dataset]:
    """Return the datasets whose records a site keeps, in order."""
    statement = select(Dataset).where(Dataset.state == "ready", Dataset.site == site).order_by(Dataset.id)
    return session.execute(statement).scalars().all()


def locations(session: Session) -> set[str]:
    """Return the names of all records that a dataset has, or has to destroy yet."""
    now = session.execute(select(Dataset.location).where(Dataset.location.is_not(None))).scalars()
    earlier = session.execute(select(Removal.location).where(Removal.destroyed_at.is_(None))).scalars()
    return {*earlier, *(location for location in now if location is not None)}


def wrapped_keys(session: Session, site: str) -> dict[str, str]:
    """Return all secrets that a site's master key wraps, each by what it is wrapped for.

    They are the keys of datasets, of owners and of uploads in parts, and at the service itself the secrets of webhooks.
    """
    here = (Dataset.site == site, Dataset.wrapped_key.is_not(None))
    found = session.execute(select(Dataset.id, Dataset.wrapped_key).where(*here))
    wrapped = {dataset_id: text for dataset_id, text in found if text is not None}
    owners = session.execute(select(IdentityKey.owner_id, IdentityKey.wrapped).where(IdentityKey.site == site))
    in_parts = (PartedUpload.site == site, PartedUpload.wrapped_key.is_not(None))
    for upload_id, text in session.execute(select(PartedUpload.id, PartedUpload.wrapped_key).where(*in_parts)):
        if text is not None:
            wrapped[parts.wrapped_for(upload_id)] = text
    wrapped |= {owner_name(owner_id): text for owner_id, text in owners}
    return wrapped if site else wrapped | webhook_secrets(session)


def webhook_secrets(session: Session) -> dict[str, str]:
    """Return the wrapped secrets of webhooks, each by what it is wrapped for; a release before had none."""
    if not inspect(session.connection()).has_table(Webhook.__tablename__):
        return {}
    found = session.execute(select(Webhook.id, Webhook.wrapped, Webhook.previous)).all()
    now = {webhook_name(webhook_id): text for webhook_id, text, _ in found}
    return now | {webhook_name(webhook_id, "before"): text for webhook_id, _, text in found if text is not None}


def webhook_name(webhook_id: str, which: Literal["now", "before"] = "now") -> str:
    """Return the name under which a webhook's secret is wrapped: the one that signs now, or the one before it."""
    return f"webhook {webhook_id} {which}"


def owner_name(owner_id: str) -> str:
    """Return what an owner's key is wrapped for."""
    return f"uploads of {owner_id}"


def rewrap_key(session: Session, before: str, after: str, site: str = "") -> bool:
    """Put another wrapping in a key's place; tell whether the one before was still there.

    Args:
        session: an open write transaction.
        before: a wrapping that `wrapped_keys` returned.
        after: the same key under another master key.
        site: the site of the key; a site's own login may not see webhooks.
    """
    # Found by its old text: a key that was destroyed meanwhile must not come back.
    changes = [
        update(Dataset).where(Dataset.wrapped_key == before).values(wrapped_key=after).returning(Dataset.id),
        update(IdentityKey).where(IdentityKey.wrapped == before).values(wrapped=after).returning(IdentityKey.owner_id),
        update(PartedUpload)
        .where(PartedUpload.wrapped_key == before)
        .values(wrapped_key=after)
        .returning(PartedUpload.id),
    ]
    if not site:
        changes += [
            update(Webhook).where(Webhook.wrapped == before).values(wrapped=after).returning(Webhook.id),
            update(Webhook).where(Webhook.previous == before).values(previous=after).returning(Webhook.id),
        ]
    # A wrapping has a random nonce, so at most one row holds it and the search may stop there.
    return any(session.execute(change).first() is not None for change in changes)
