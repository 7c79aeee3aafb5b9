"""Retention: noised states of ended jobs are kept for a while, and models until a limit or a retraction.

The ledger, the jobs and their reports stay. A model that is taken away leaves its row, so that who asks for it learns
that there was one.
"""

from collections.abc import Mapping
from typing import Final, Literal

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from core.db import checkpoints, clock
from core.db.model_reads import GONE
from core.db.tables import Checkpoint, Job, Model
from core.jobs import subjects
from core.jobs.presence import SiteSlot

RETIRED: Final = "retired"
RETRACTED: Final = "retracted"
BATCH: Final = 100


def drop_states(session: Session, kept_state_seconds: float) -> list[str]:
    """Delete the kept states of jobs that ended longer ago; return up to 100 jobs whose states went.

    Args:
        session: an open write transaction.
        kept_state_seconds: seconds for which the states of an ended job are kept.
    """
    ended = Job.finished_at <= clock.read(session) - kept_state_seconds
    session.execute(delete(SiteSlot).where(SiteSlot.job_id.in_(select(Job.id).where(ended))))
    old = select(Checkpoint.job_id).join(Job, Job.id == Checkpoint.job_id).where(ended)
    return checkpoints.drop(
        session, list(session.execute(old.distinct().order_by(Checkpoint.job_id).limit(BATCH)).scalars())
    )


def retire_models(session: Session, retention_seconds: float | None) -> list[str]:
    """Take the content of models away that were released longer ago; return up to 100 of them.

    Their jobs' kept states go with them, for the last one holds the release. A model that a job is about stays until
    that job has ended.

    Args:
        session: an open write transaction.
        retention_seconds: seconds for which a model is kept; None keeps all.
    """
    if retention_seconds is None:
        return []
    at = clock.read(session)
    old = select(Model.id, Model.job_id).where(Model.created_at <= at - retention_seconds, Model.approval.not_in(GONE))
    locked = old.order_by(Model.id).limit(BATCH).with_for_update(skip_locked=True)
    rows = session.execute(locked).all()
    needed = subjects.live(session) if rows else frozenset[str]()  # jobs come in under a lock on their models
    found = {row.id: row.job_id for row in rows if row.id not in needed}
    if found:
        take_away(session, found, RETIRED)
    return list(found)


def take_away(session: Session, models: Mapping[str, str], state: Literal["retired", "retracted"]) -> None:
    """Take the content of models away, and with it the kept states of their jobs, for the last one holds the release.

    A federated job's states are its sites': each keeps the answers of all of them.

    Args:
        session: an open write transaction that holds the models.
        models: the job of each, by the model's id.
        state: that the models have from here on.
    """
    session.execute(update(Model).where(Model.id.in_(models)).values(release={}, approval=state))
    jobs = list(models.values())
    sites = select(Job.id).where(Job.federation_id.in_(jobs), Job.place.is_not(None))
    checkpoints.drop(session, [*jobs, *session.execute(sites).scalars()])
