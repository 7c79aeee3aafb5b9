"""The noised states that jobs keep, to go on from: deleted with their dataset, or a while after their end."""

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from core.db.tables import Checkpoint, Job


def drop(session: Session, jobs: list[str]) -> list[str]:
    """Delete what these jobs keep; return them."""
    if jobs:
        session.execute(delete(Checkpoint).where(Checkpoint.job_id.in_(jobs)))
    return jobs


def drop_of(session: Session, dataset_id: str) -> list[str]:
    """Delete the kept states of all of a dataset's jobs; return the jobs whose states went.

    A federated job keeps the release of all its sites, though this dataset's may be lost.
    """
    own = (Job.dataset_id == dataset_id, Job.federation_id.is_(None) | Job.place.is_not(None))
    kept = select(Checkpoint.job_id).join(Job, Job.id == Checkpoint.job_id).where(*own)
    return drop(session, list(session.execute(kept.distinct()).scalars()))
