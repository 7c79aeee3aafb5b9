"""A job's life, a transition per function: each takes the row lock and checks where the job is, or fails loudly.

    queued -> running -> succeeded | failed
    queued -> cancelled | expired
    running -> queued (drained, or its lease was lost, and its allowance pays for what was lost with it) | cancelling
    cancelling -> cancelled

`queued` means reserved. Every way out of an attempt moves the fence in the same transaction, every transition appends a
line to the job's history under its lock, and the states on the right are final. A federated job takes its clients
with it, and a client is locked after the job that it is a client of (`core.jobs.federations`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from core.access import rights
from core.base.errors import StaleAttempt, ensure
from core.base.identifiers import new_id
from core.db import clock
from core.db.tables import Attempt, Job, JobEvent, Label, Model
from core.jobs import federations, transitions, withdrawals
from core.jobs.queue import DEVICES, next_job
from core.jobs.transitions import DRAINED, LOST, add_event, end, end_cancelled, end_failed, leave_attempt, requeue
from core.ledger import ledger, releases
from core.ledger.claims import Charge, Claim, epoch, hold, lock_job, next_fence, refuse_if_frozen
from core.privacy.events import EVENT, NOTHING

__all__ = [
    "DRAINED",
    "LOST",
    "Beat",
    "Claim",
    "acknowledge_cancel",
    "add_event",
    "beat",
    "cancel",
    "claim",
    "draft",
    "end",
    "end_cancelled",
    "end_failed",
    "enqueue",
    "events",
    "fail",
    "federate",
    "finish",
    "leave_attempt",
    "mark_opened",
    "progress",
    "release_claim",
    "requeue",
]

ANY_NUMBER: Final = 2**31 - 1


@dataclass(frozen=True)
class Beat:
    """The answer to a heartbeat."""

    alive: bool
    """False: the attempt is no longer ours; stop the child and write nothing more."""
    cancel: bool = False
    """A person asked to cancel: stop the child, then `acknowledge_cancel`."""
    left_seconds: float | None = None
    """Of the lease, where that hangs on others' beats, too; None: all of it."""


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
    clone_of: str | None = None,
    site: str = "",
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
        max_queue_seconds: the longest wait for its first attempt; None: the service's limit.
        request_id: the request that makes it, for the operator's log.
        clone_of: the job that it repeats.
        site: that keeps the records.
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
        clone_of=clone_of,
        site=site,
        labels=dict(labels),
        event_seq=1,
        created_at=at,
    )


def federate(job: Job, parent: Job | None = None, place: int | None = None) -> None:
    """Make a drafted job a federated one, which reserves nothing itself, or the client of one at a place."""
    if parent is None:
        job.federation_id = job.id
        job.price, job.schedule = EVENT.dump_python(NOTHING, mode="json"), []
        job.chunks, job.allowance, job.allowance_spent = {}, {}, {}
    else:
        job.federation_id, job.place = parent.id, place
        job.labels, job.expires_at, job.clone_of = {}, None, None  # are the federated job's to have


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
    site: str = "",
) -> Claim | None:
    """Take the next queued job, None when there is none; of a federated job all clients that are left.

    One whose owner may no longer use its data ends here, and so do those that wait behind it; None may then be returned
    although others wait.

    The caller updates the witness after this commits and before it starts a child.

    Args:
        session: an open write transaction.
        worker: the supervisor's name, for the records.
        lease_seconds: the length of a claim without a beat.
        takes: the devices, as jobs name them, that this supervisor can serve now.
        most_running: jobs of one principal that may run at a time.
        site: that keeps the records; this supervisor's.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    refuse_if_frozen(session)
    job = next_job(session, takes, most_running, site, withdrawals.may_begin)
    return None if job is None else take(session, job, worker, lease_seconds)


def take(
    session: Session, job: Job, worker: str, lease_seconds: float, seated: Mapping[str, str] | None = None
) -> Claim:
    """Begin an attempt at a queued job whose lock, after its owner's, the caller holds.

    Args:
        session: an open write transaction.
        job: that waits.
        worker: the supervisor's name, for the records.
        lease_seconds: the length of a claim without a beat.
        seated: of a federated job of several sites, who has each site's clients.
    """
    at = clock.read(session)
    values = {
        "state": "running",
        "attempt": job.attempt + 1,
        "fence_epoch": epoch(session),
        "fence": next_fence(job),
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
    ensure(taken.rowcount == 1, f"{job.id} was locked as queued and is not")  # type: ignore[attr-defined]  # of a cursor
    session.refresh(job)  # the UPDATE did not go through this object
    session.add(Attempt(job_id=job.id, number=job.attempt, fence=job.fence, worker=worker, started_at=at))
    add_event(session, job, "running", at, attempt=job.attempt)
    session.flush()
    if job.is_federated:
        federations.claim_clients(session, job, at, seated or {})
    return Claim(job.id, job.attempt, job.fence_epoch, job.fence, job.request_id)


def beat(session: Session, claim: Claim, lease_seconds: float) -> Beat:
    """Extend a lease that has not run out, a federated job's with its sites'; one that has is never revived."""
    try:
        job, at = hold(session, claim, ("running", "cancelling"))
    except StaleAttempt:
        return Beat(alive=False)
    job.lease_until = max(job.lease_until or 0.0, at + lease_seconds)  # a longer one stays
    session.flush()
    if job.is_federated:
        federations.extend_leases(session, job)
    return Beat(alive=True, cancel=job.state == "cancelling")


def mark_opened(session: Session, claim: Claim, software: Mapping[str, Any] | None = None) -> None:
    """Note, before it happens, that the attempt opens the records: from here on its job's charge stands.

    Args:
        session: an open write transaction.
        claim: the claim of the attempt.
        software: the versions that the process computes with, JSON-ready, for the job's certificate.

    Raises:
        StaleAttempt: the claim no longer holds the job.
        LedgerFrozen: the ledger is behind its witness.
    """
    parent = federations.lock_parent(session, claim.job_id)
    job, at = hold(session, claim)
    refuse_if_frozen(session)
    ledger.note_reading(session, job, at)
    for opened in (job, parent):
        if opened is not None:
            attempt = session.get_one(Attempt, (opened.id, opened.attempt))
            attempt.opened_at = attempt.opened_at or at  # the first time counts
            if opened is job:
                attempt.software = attempt.software or software
    session.flush()


def progress(session: Session, claim: Claim, step: int) -> None:
    """Publish the step counter, a client's with that of its federated job.

    Raises:
        StaleAttempt: the claim no longer holds the job.
    """
    parent = federations.lock_parent(session, claim.job_id)
    job, at = hold(session, claim)
    if step != job.step or step == 0:
        job.step = step
        add_event(session, job, "progress", at, step=step, steps=job.steps)
    session.flush()
    if parent is not None:
        federations.show_progress(session, parent, at)


def finish(session: Session, claim: Claim, release: Mapping[str, Any], approval: str) -> Model:
    """Publish the result, settle the rest and end the job, all in one transaction.

    Args:
        session: an open write transaction.
        claim: the claim of the attempt.
        release: the release, JSON-ready.
        approval: ``not-needed``, or ``pending`` where the data's owner approves each release; it is pending too where
            the job's owner may no longer use the data.

    Raises:
        StaleAttempt: the claim no longer holds the job.
        LedgerFrozen: the ledger is behind its witness.
    """
    job, at = hold(session, claim)
    if not rights.allowed(session, [(job.owner_id, job.dataset_id)]):
        approval = "pending"
    model = transitions.publish(session, job, release, approval, at)
    job.step = job.steps
    ledger.settle(session, job, reason="succeeded", release=model.release)
    if approval == "pending":
        releases.withhold(session, [job])
    leave_attempt(session, job, at, "succeeded")
    end(session, job, "succeeded", at, model=model.id)
    session.flush()
    return model


def fail(session: Session, claim: Claim, code: str, *, charge: Charge) -> None:
    """End a running job with one of the public failure codes; a federated one with all clients that are left.

    A client that fails alone is lost to its federated job, which goes on or ends once its other clients have stopped
    and it is put back (`release_claim`).

    Args:
        session: an open write transaction.
        claim: the claim of the attempt.
        code: from the closed list.
        charge: ``opened`` where the failure may depend on records that were opened, ``all`` where nobody knows
            whether they were, else ``spent``.

    Raises:
        StaleAttempt: the claim no longer holds the job.
        LedgerFrozen: the ledger is behind its witness.
    """
    job, at = hold(session, claim)
    if job.is_federated:
        federations.end_all(session, job, at, code, charge=charge)
    else:
        end_failed(session, job, at, code, charge=charge)


def cancel(session: Session, job_id: str) -> Job:
    """Cancel a job: a queued one at once, a running one through its supervisor; an ended one stays as it is.

    A federated job is cancelled with all its clients. A client that is cancelled is lost to it: its quorum decides.

    Raises:
        NotFound: there is no such job.
        LedgerFrozen: the ledger is behind its witness.
    """
    parent = federations.lock_parent(session, job_id)
    job = lock_job(session, job_id)
    at = clock.read(session)
    if parent is not None:
        federations.lose(session, parent, job, at)
    elif job.state == "queued":
        federations.cancel_all(session, job, at) if job.is_federated else end_cancelled(session, job, at)
    elif job.is_federated:
        federations.ask_to_cancel(session, job, at)
    elif job.state == "running":
        job.state = "cancelling"
        add_event(session, job, "cancelling", at)
    session.flush()
    return job


def acknowledge_cancel(session: Session, claim: Claim) -> None:
    """End a job in `cancelling`, once its child is gone. Its spending stays spent.

    Raises:
        StaleAttempt: the claim no longer holds the job, or nobody asked to cancel it.
    """
    job, at = hold(session, claim, ("cancelling",))
    if job.is_federated:
        federations.cancel_all(session, job, at)
    else:
        end_cancelled(session, job, at)


def release_claim(session: Session, claim: Claim) -> None:
    """Put a running job back when its supervisor drains; the attempt does not count.

    The child has stopped, and as a rule `ledger.keep` has stored its answers. A chunk that was paid and not kept
    is lost: where the job's allowance does not pay for it again, the job fails. A federated job is put back once all
    its children have stopped, whatever became of each: its quorum then decides whether it waits again.

    Raises:
        StaleAttempt: the claim no longer holds the job.
    """
    job, at = hold(session, claim)
    if job.is_federated:
        federations.put_back(session, job, at, DRAINED)
    elif ledger.affords_repeats(session, job):
        requeue(session, job, at, DRAINED)
    else:
        end_failed(session, job, at, LOST, charge="spent")
