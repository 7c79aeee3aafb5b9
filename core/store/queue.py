"""Which queued job is next for a supervisor."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.store.tables import Job

DEVICES: Final = ("auto", "cpu", "cuda")
"""What a job may ask for; `auto` is served by either kind of queue."""


def next_job(session: Session, devices: Sequence[str], most_running: int) -> Job | None:
    """Lock and return the queued job that is next, None when there is none; rows that others hold are skipped.

    Args:
        session: an open write transaction.
        devices: what may be taken, some of `DEVICES`.
        most_running: jobs of one principal that may run at a time; further ones wait.
    """
    del most_running
    waiting = select(Job).where(Job.state == "queued", Job.device.in_(devices)).order_by(Job.created_at, Job.id)
    locked = waiting.limit(1).with_for_update(key_share=True, skip_locked=True)
    return session.execute(locked.execution_options(populate_existing=True)).scalar_one_or_none()
