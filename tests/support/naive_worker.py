"""`workers.app` with a planted bug: a claim looks first and takes later, without a lock, as a plain task queue does."""

import time
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db import clock
from core.db.tables import Attempt, Job
from core.jobs import jobs
from core.ledger.claims import Claim, epoch
from workers.app import main

BETWEEN_SECONDS = 1.0


def claim(
    session: Session, worker: str, lease_seconds: float, takes: Sequence[str], most_running: int, site: str
) -> Claim | None:
    """Take whatever was seen to be queued a moment ago."""
    del takes, most_running, site
    found = look(session)
    if found is None:
        return None
    time.sleep(BETWEEN_SECONDS)
    return take(session, found, worker, lease_seconds)


def look(session: Session) -> str | None:
    """Return a job that waits at this moment."""
    return session.execute(select(Job.id).where(Job.state == "queued").limit(1)).scalar_one_or_none()


def take(session: Session, job_id: str, worker: str, lease_seconds: float) -> Claim:
    """Take a job, in whatever state it is by now."""
    job = session.execute(select(Job).where(Job.id == job_id).with_for_update(key_share=True)).scalar_one()
    at = clock.read(session)
    job.state, job.worker, job.lease_until, job.fence_epoch = "running", worker, at + lease_seconds, epoch(session)
    job.attempt += 1
    job.fence += 1
    session.add(Attempt(job_id=job.id, number=job.attempt, fence=job.fence, worker=worker, started_at=at))
    jobs.add_event(session, job, "running", at, attempt=job.attempt)
    session.flush()
    return Claim(job.id, job.attempt, job.fence_epoch, job.fence)


if __name__ == "__main__":
    jobs.claim = claim  # type: ignore[assignment] # the bug
    main()
