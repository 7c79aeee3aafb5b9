"""Rows of removals: the earlier files of datasets from which a record was removed, until each is destroyed."""

from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from core.db import clock
from core.db.tables import Attempt, Dataset, Job
from core.db.upload_tables import Removal
from core.records.datasets import holding


def replace_file(session: Session, dataset: Dataset, location: str, digest: str, size_bytes: int) -> None:
    """Put another file in the place of a dataset's, and note the earlier one; the caller holds the dataset's lock."""
    assert dataset.location is not None, "it has records"
    at = clock.read(session)
    session.add(Removal(location=dataset.location, dataset_id=dataset.id, site=dataset.site, removed_at=at))
    dataset.location, dataset.location_digest, dataset.bytes = location, digest, size_bytes
    session.flush()


def destructible(session: Session, lease_seconds: float, site: str) -> Sequence[str]:
    """Return the earlier files of a site that no process can be reading any more."""
    # A lease longer: an attempt may read the dataset's row just before the change of it that had read the clock.
    began = Attempt.started_at < Removal.removed_at + lease_seconds
    # A job that was queued again has no trainer; the attempt of one that succeeded was ended by its own.
    lives = Attempt.ended_at.is_(None) | (Job.state == "succeeded")
    reads = (Attempt.job_id == Job.id) & (Attempt.number == Job.attempt) & began & lives
    in_use = holding(session, lease_seconds).join(Attempt, reads).where(Job.dataset_id == Removal.dataset_id).exists()
    here = (Removal.site == site, Removal.destroyed_at.is_(None))
    return session.execute(select(Removal.location).where(*here, ~in_use).order_by(Removal.location)).scalars().all()


def note_destroyed(session: Session, location: str) -> None:
    """Note that an earlier file is gone."""
    gone = update(Removal).where(Removal.location == location).values(destroyed_at=clock.read(session))
    session.execute(gone)


def has_file(session: Session, dataset_id: str) -> bool:
    """Tell whether an earlier file of a dataset waits to be destroyed."""
    waiting = select(Removal.location).where(Removal.dataset_id == dataset_id, Removal.destroyed_at.is_(None))
    return session.execute(waiting.limit(1)).first() is not None


def is_any(session: Session, dataset_id: str) -> bool:
    """Tell whether a record of a dataset was removed."""
    found = select(Removal.location).where(Removal.dataset_id == dataset_id).limit(1)
    return session.execute(found).first() is not None
