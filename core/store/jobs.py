"""A job's life, an arrow per function: each takes the row lock, checks where the job is, and fails loudly elsewhere.

    queued -> running -> succeeded | failed
    queued -> cancelled | expired
    running -> queued (drained, or its lease was lost, and its allowance pays for what was lost with it) | cancelling
    cancelling -> cancelled

`queued` means reserved. Every way out of an attempt moves the fence in the same transaction, every arrow appends a
line to the job's history under its lock, and the states on the right are final.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from core.errors import StaleAttempt
from core.store import clock, ledger
from core.store.claims import Claim, epoch, hold, lock_job, refuse_if_frozen
from core.store.ids import new_id
from core.store.queue import DEVICES, next_job
from core.store.tables import FAILURE_CODES, TERMINAL_STATES, Attempt, Job, JobEvent, Label, Model

__all__ = [
    "Beat",
    "Claim",
    "acknowledge_cancel",
    "add_event",
    "beat",
    "cancel",
    "claim",
    "draft",
    "end",
    "enqueue",
    "events",
    "fail",
    "finish",
    "leave_attempt",
    "mark_opened",
    "progress",
    "release_claim",
]

LOST: Final = "worker-lost"
DRAINED: Final = "drained"
ANY_NUMBER: Final = 2**31 - 1


@dataclass(frozen=True)
class Beat:
    """The answer to a heartbeat."""

    alive: bool
    """False: the attempt is no longer ours; stop the child and write nothing more."""
    cancel: bool = False
    """A person asked to cancel: stop the child, then `acknowledge_cancel`."""


def draft(
    *,
    at: float,
    owner_id: str,
    dataset_id: str,
    scope_id: str,
    grant_id: str | None,
    spec: Mapping[str, Any],
    optimizer: str,
    steps: int,
    labels: Mapping[str, str],
    device: str = "auto",
    priority: int = 0,
    max_queue_seconds: float | None = None,
    request_id: str | None = None,
) -> Job:
    """Return a job that is stored nowhere yet: `ledger.reserve` and `enqueue` follow in one transaction.

    Args:
        at: the database's time.
        owner_id: the principal who asks.
        dataset_id: the records to train on.
        scope_id: the scope that pays.
        grant_id: the caller's own account in that scope, which pays, too.
        spec: the job as the trainer runs it, JSON-ready.
        optimizer: the method's name, to filter by.
        steps: the public number of steps.
        labels: the caller's own words, to filter by.
        device: which queues may take it, one of `queue.DEVICES`.
        priority: higher ones are claimed first.
        max_queue_seconds: how long it may wait for its first attempt; None: as long as any job.
        request_id: the request that makes it, for the operator's log.
    """
    return Job(
        id=new_id("job"),
        owner_id=owner_id,
        dataset_id=dataset_id,
        scope_id=scope_id,
        grant_id=grant_id,
        spec=dict(spec),
        optimizer=optimizer,
        state="queued",
        step=0,
        steps=steps,
        attempt=0,
        chunks_spent=0,
        fence_epoch="",
        fence=0,
        device=device,
        priority=priority,
        expires_at=None if max_queue_seconds is None else at + max_queue_seconds,
        request_id=request_id,
        labels=dict(labels),
        event_seq=1,
        created_at=at,
    )


def enqueue(session: Session, jobs: Sequence[Job]) -> None:
    """Store jobs that were reserved for in this same transaction, for `queued` means reserved; in few statements."""
    session.add_all(jobs)
    session.flush()
    first = [
        {"job_id": job.id, "seq": job.event_seq, "kind": "queued", "data": {}, "created_at": job.created_at}
        for job in jobs
    ]
    labels = [{"job_id": job.id, "key": key, "value": value} for job in jobs for key, value in job.labels.items()]
    if first:
        session.execute(insert(JobEvent), first)
    if labels:
        session.execute(insert(Label), labels)


def add_event(session: Session, job: Job, kind: str, at: float, **data: object) -> None:
    """Append a line to a job's history; the caller holds the job's lock."""
    job.event_seq += 1
    session.add(JobEvent(job_id=job.id, seq=job.event_seq, kind=kind, data=data, created_at=at))


def events(session: Session, job_id: str, after: int = 0, limit: int = 100) -> list[JobEvent]:
    """Return up to `limit` lines of a job's history with a number above `after`, oldest first."""
    statement = select(JobEvent).where(JobEvent.job_id == job_id, JobEvent.seq > after)
    return list(session.execute(statement.order_by(JobEvent.seq).limit(limit)).scalars())


def claim(
    session: Session,
    worker: str,
    lease_seconds: float,
    takes: Sequence[str] = DEVICES,
    most_running: int = ANY_NUMBER,
) -> Claim | None:
    """Take the next queued job, None when there is none.

    The caller updates the witness after this commits and before it starts a child.

    Args:
        session: an open write transaction.
        worker: the supervisor's name, for the records.
        lease_seconds: how long the claim lasts without a beat.
        takes: the devices, as jobs name them, that this supervisor can serve now.
        most_running: jobs of one principal that may run at a time.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    refuse_if_frozen(session)
    job = next_job(session, takes, most_running)
    if job is None:
        return None
    at = clock.read(session)
    values = {
        "state": "running",
        "attempt": job.attempt + 1,
        "fence_epoch": epoch(session),
        "fence": job.fence + 1,
        "worker": worker,
        "lease_until": at + lease_seconds,
        "started_at": job.started_at or at,
    }
    taken = session.execute(
        update(Job)
        .where(Job.id == job.id, Job.state == "queued", Job.fence == job.fence)
        .values(values)
        .execution_options(synchronize_session=False)
    )
    assert taken.rowcount == 1, f"{job.id} was locked as queued and is not"  # type: ignore[attr-defined]  # of a cursor
    session.refresh(job)
    session.add(Attempt(job_id=job.id, number=job.attempt, fence=job.fence, worker=worker, started_at=at))
    add_event(session, job, "running", at, attempt=job.attempt)
    session.flush()
    return Claim(job.id, job.attempt, job.fence_epoch, job.fence, job.request_id)


def beat(session: Session, claim: Claim, lease_seconds: float) -> Beat:
    """Extend a lease that has not run out; one that has is never revived."""
    try:
        job, at = hold(session, claim, ("running", "cancelling"))
    except StaleAttempt:
        return Beat(alive=False)
    job.lease_until = max(job.lease_until or 0.0, at + lease_seconds)
    session.flush()
    return Beat(alive=True, cancel=job.state == "cancelling")


def mark_opened(session: Session, claim: Claim) -> None:
    """Note, before it happens, that the attempt opens the records: from here on no fault of ours is proven.

    Raises:
        StaleAttempt: the claim no longer holds the job.
    """
    job, at = hold(session, claim)
    attempt = session.get_one(Attempt, (job.id, job.attempt))
    attempt.opened_at = attempt.opened_at or at
    session.flush()


def progress(session: Session, claim: Claim, step: int) -> None:
    """Publish the step counter.

    Raises:
        StaleAttempt: the claim no longer holds the job.
    """
    job, at = hold(session, claim)
    if step != job.step or step == 0:
        job.step = step
        add_event(session, job, "progress", at, step=step, steps=job.steps)
    session.flush()


def finish(session: Session, claim: Claim, release: Mapping[str, Any], approval: str) -> Model:
    """Publish the result, settle the rest and end the job, all in one transaction.

    Args:
        session: an open write transaction.
        claim: who asks.
        release: what was released, JSON-ready.
        approval: ``not-needed``, or ``pending`` where the owner approves each release.

    Raises:
        StaleAttempt: the claim no longer holds the job.
        LedgerFrozen: the ledger is behind its witness.
    """
    job, at = hold(session, claim)
    model = Model(
        id=new_id("mdl"),
        job_id=job.id,
        dataset_id=job.dataset_id,
        release=dict(release),
        approval=approval,
        created_at=at,
    )
    session.add(model)
    job.step = job.steps
    ledger.settle(session, job, reason="succeeded")
    leave_attempt(session, job, at, "succeeded")
    end(session, job, "succeeded", at, model=model.id)
    session.flush()
    return model


def fail(session: Session, claim: Claim, code: str, *, charge: Literal["spent", "all"]) -> None:
    """End a running job with one of the public failure codes.

    Args:
        session: an open write transaction.
        claim: who asks.
        code: one of `FAILURE_CODES`.
        charge: ``all`` for anything that may depend on the records, else ``spent``.

    Raises:
        StaleAttempt: the claim no longer holds the job.
        LedgerFrozen: the ledger is behind its witness.
    """
    job, at = hold(session, claim)
    end_failed(session, job, at, code, charge=charge)


def end_failed(session: Session, job: Job, at: float, code: str, *, charge: Literal["spent", "all"]) -> None:
    """Fail a job that the caller has locked."""
    assert code in FAILURE_CODES, f"{code} is not a failure code"
    if charge == "all":
        ledger.charge_all(session, job, code)
    else:
        ledger.settle(session, job, reason=code)
    if job.state != "queued":
        leave_attempt(session, job, at, code)
    job.error_code = code
    end(session, job, "failed", at, code=code)
    session.flush()


def cancel(session: Session, job_id: str) -> Job:
    """Cancel a job: a queued one at once, a running one through its supervisor; an ended one stays as it is.

    Raises:
        NotFound: there is no such job.
        LedgerFrozen: the ledger is behind its witness.
    """
    job = lock_job(session, job_id)
    at = clock.read(session)
    if job.state == "queued":
        ledger.settle(session, job, reason="cancelled")
        end(session, job, "cancelled", at)
    elif job.state == "running":
        job.state = "cancelling"
        add_event(session, job, "cancelling", at)
    session.flush()
    return job


def acknowledge_cancel(session: Session, claim: Claim) -> None:
    """End a job in `cancelling`, once its child is gone: what was spent stays spent.

    Raises:
        StaleAttempt: the claim no longer holds the job, or nobody asked to cancel it.
    """
    job, at = hold(session, claim, ("cancelling",))
    end_cancelled(session, job, at)


def end_cancelled(session: Session, job: Job, at: float) -> None:
    """End a job in `cancelling` that the caller has locked."""
    ledger.settle(session, job, reason="cancelled")
    leave_attempt(session, job, at, "cancelled")
    end(session, job, "cancelled", at)
    session.flush()


def release_claim(session: Session, claim: Claim) -> None:
    """Put a running job back when its supervisor drains; the attempt does not count.

    The child has stopped, and as a rule `ledger.keep` has stored what it was told. A chunk that was paid and not kept
    is lost: where the job's allowance does not pay for it again, the job fails.

    Raises:
        StaleAttempt: the claim no longer holds the job.
    """
    job, at = hold(session, claim)
    if not ledger.affords_repeats(session, job):
        end_failed(session, job, at, LOST, charge="spent")
        return
    requeue(session, job, at, DRAINED)


def requeue(session: Session, job: Job, at: float, outcome: str) -> None:
    """Put a running job that the caller has locked back into the queue."""
    leave_attempt(session, job, at, outcome)
    job.state = "queued"
    add_event(session, job, "queued", at, reason=outcome)
    session.flush()


def leave_attempt(session: Session, job: Job, at: float, outcome: str) -> None:
    """Move the fence past the present attempt and close its record."""
    job.fence += 1
    job.worker = None
    job.lease_until = None
    attempt = session.get_one(Attempt, (job.id, job.attempt))
    attempt.ended_at, attempt.outcome = at, outcome


def end(session: Session, job: Job, state: str, at: float, **data: object) -> None:
    """Put a job into a final state; its line is the last of its history."""
    assert job.state not in TERMINAL_STATES, f"{job.id} has ended"
    assert state in TERMINAL_STATES, f"{state} is not final"
    job.state = state
    job.finished_at = at
    add_event(session, job, state, at, **data)
