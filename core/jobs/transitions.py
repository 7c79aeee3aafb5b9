"""Transitions of a job's state: the change of its row and of the ledger by each. The caller holds the row's lock.

A federated job itself has nothing reserved: its clients have, and each of them goes through these same transitions.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import ensure
from core.base.identifiers import new_id
from core.db.tables import FAILURE_CODES, TERMINAL_STATES, Attempt, Job, JobEvent, Model
from core.ledger import ledger
from core.ledger.claims import Charge

LOST: Final = "worker-lost"
DRAINED: Final = "drained"


def add_event(session: Session, job: Job, kind: str, at: float, **data: object) -> None:
    """Append a line to a job's history."""
    job.event_seq += 1
    session.add(JobEvent(job_id=job.id, seq=job.event_seq, kind=kind, data=data, created_at=at))


def leave_attempt(session: Session, job: Job, at: float, outcome: str) -> None:
    """Move the fence past the present attempt and close its record."""
    job.fence += 1
    job.worker = None
    job.lease_until = None
    attempt = session.get_one(Attempt, (job.id, job.attempt))
    attempt.ended_at, attempt.outcome = at, outcome


def requeue(session: Session, job: Job, at: float, outcome: str) -> None:
    """Put a running job back into the queue."""
    leave_attempt(session, job, at, outcome)
    job.state = "queued"
    add_event(session, job, "queued", at, reason=outcome)
    session.flush()


def end(session: Session, job: Job, state: str, at: float, **data: object) -> None:
    """Put a job into a final state; its line is the last of its history."""
    ensure(job.state not in TERMINAL_STATES, f"{job.id} has ended")
    ensure(state in TERMINAL_STATES, f"{state} is not final")
    job.state = state
    job.finished_at = at
    add_event(session, job, state, at, **data)


def settle(session: Session, job: Job, reason: str, release: Mapping[str, Any] | None = None) -> None:
    """Give back what a job reserved and never spent; `release` is what it has released, None otherwise."""
    if not job.is_federated:
        ledger.settle(session, job, reason=reason, release=release)


def has_opened(session: Session, job: Job) -> bool:
    """Tell whether any attempt at a job is on record as having opened the records: it is noted before it happens."""
    opened = select(Attempt.number).where(Attempt.job_id == job.id, Attempt.opened_at.is_not(None)).limit(1)
    return session.execute(opened).first() is not None


def end_failed(session: Session, job: Job, at: float, code: str, *, charge: Charge) -> None:
    """Fail a job with one of the public codes."""
    ensure(code in FAILURE_CODES, f"{code} is not a failure code")
    whole = charge == "all" or (charge == "opened" and has_opened(session, job))
    if whole and not job.is_federated:
        ledger.charge_all(session, job, code)
    else:
        settle(session, job, code)
    if job.state != "queued":  # a queued job has no attempt under way
        leave_attempt(session, job, at, code)
    job.error_code = code
    end(session, job, "failed", at, code=code)
    session.flush()


def end_cancelled(session: Session, job: Job, at: float) -> None:
    """End a job that a person cancelled. Its spending stays spent."""
    settle(session, job, "cancelled")
    if job.state != "queued":
        leave_attempt(session, job, at, "cancelled")
    end(session, job, "cancelled", at)
    session.flush()


def publish(session: Session, job: Job, release: Mapping[str, Any], approval: str, at: float) -> Model:
    """Keep what a job released as its model; whether it waits for an owner, `approval` says."""
    # The mark of made-up rows: with it, a release of records would say that none was read.
    ensure("mock" not in release, "a job of records releases nothing that is marked as mock")
    model = Model(
        id=new_id("mdl"),
        job_id=job.id,
        dataset_id=job.dataset_id,
        release=dict(release),
        approval=approval,
        created_at=at,
    )
    session.add(model)
    session.flush()
    return model
