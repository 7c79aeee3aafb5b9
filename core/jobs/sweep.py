"""The sweep: periodic work on leases that ran out, jobs that waited too long, and sums that must still hold.

Time decides liveness, never safety. Leases count as lost only after the sweeper itself has reached the database for one
whole lease without a gap. An outage of the database thus does not look like the loss of all workers.
"""

from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from core.db import clock
from core.db.service_tables import Secret
from core.db.tables import Attempt, Job
from core.jobs import federations, jobs
from core.ledger import ledger
from core.ledger.claims import put_secret, refuse_if_frozen

CONTACT: Final = "sweeper-contact"
BATCH: Final = 100


@dataclass
class Swept:
    """Results of a sweep, as job ids; `retired` are model ids."""

    requeued: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    """Ended long ago: their kept states were deleted."""
    retired: list[str] = field(default_factory=list)
    parted: list[str] = field(default_factory=list)
    """Federated jobs that lost clients of sites that stayed away."""
    withdrawn: list[str] = field(default_factory=list)
    """Their owners may not use their data any more."""


def sweep(session: Session, lease_seconds: float, max_attempts: int, queue_deadline_seconds: float) -> Swept:
    """Free what is lost; up to 100 jobs of each kind in one transaction, skipping rows that others hold.

    A lost lease puts its job back into the queue if the rest of its allowance pays again, at every order, for each
    chunk that was paid and not kept. Otherwise the job fails with `worker-lost`, charged its payments. After
    `max_attempts` lost attempts it fails; if one has opened the records, the whole reservation is charged.

    Args:
        session: an open write transaction.
        lease_seconds: the lease of the supervisors; also the contact that a reclaim needs. Sweep more often than this.
        max_attempts: lost attempts after which a job is given up.
        queue_deadline_seconds: the longest wait of a job for its first or next attempt.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    refuse_if_frozen(session)
    at = clock.read(session)
    swept = Swept()
    if _contact_seconds(session, at, lease_seconds) >= lease_seconds:
        for job in _locked(session, Job.state.in_(("running", "cancelling")), Job.lease_until <= at):
            _free(session, job, at, max_attempts, swept)
    never_started = Job.started_at.is_(None) & (Job.expires_at <= at)
    # These are candidates: a job that was put back waits from then on, not from its creation.
    for job in _locked(session, Job.state == "queued", never_started | (Job.created_at <= at - queue_deadline_seconds)):
        if _is_late(job, at) or waiting_since(session, job) <= at - queue_deadline_seconds:
            _expire(session, job, at)
            swept.expired.append(job.id)
    session.flush()
    return swept


def _is_late(job: Job, at: float) -> bool:
    """Tell whether a queued job was to have started by now; one that was put back has started."""
    return job.started_at is None and job.expires_at is not None and job.expires_at <= at


def _expire(session: Session, job: Job, at: float) -> None:
    """End a job that waited too long."""
    if job.is_federated:
        federations.expire_all(session, job, at)
    else:
        ledger.settle(session, job, reason="expired")
        jobs.end(session, job, "expired", at)


def waiting_since(session: Session, job: Job) -> float:
    """Return when a queued job was last put into the queue."""
    if job.attempt == 0:
        return job.created_at
    return session.get_one(Attempt, (job.id, job.attempt)).ended_at or job.created_at


def _locked(session: Session, *conditions: ColumnElement[bool]) -> list[Job]:
    """Lock the oldest jobs that meet conditions and that nobody else holds; clients go with their federated job."""
    statement = (
        # By scope, in the order in which all lock scopes, for each job's end locks its own.
        select(Job).where(Job.place.is_(None), *conditions).order_by(Job.scope_id, Job.created_at, Job.id).limit(BATCH)
    )
    locked = statement.with_for_update(key_share=True, skip_locked=True)
    return list(session.execute(locked.execution_options(populate_existing=True)).scalars())


def contact(session: Session) -> tuple[float, float] | None:
    """Return since when sweeps have come without a gap, and the time of the last one; None before the first."""
    value = session.execute(select(Secret.value).where(Secret.name == CONTACT)).scalar_one_or_none()
    if value is None:
        return None
    since, last = value.split()
    return float(since), float(last)


def _contact_seconds(session: Session, at: float, gap_seconds: float) -> float:
    """Return for how long sweeps have come without a gap longer than `gap_seconds`, and note this one."""
    since, last = contact(session) or (at, at)
    if at - last > gap_seconds or last > at:  # or the clock was set back
        since = at
    put_secret(session, CONTACT, f"{since!r} {at!r}")
    return at - since


def _free(session: Session, job: Job, at: float, max_attempts: int, swept: Swept) -> None:
    """Take a job away from an attempt whose lease has run out."""
    if job.state == "cancelling":
        federations.cancel_all(session, job, at) if job.is_federated else jobs.end_cancelled(session, job, at)
        swept.cancelled.append(job.id)
        return
    lost = session.execute(
        select(func.count()).where(Attempt.job_id == job.id, Attempt.outcome == jobs.LOST)
    ).scalar_one()
    if lost + 1 >= max_attempts:  # this attempt's own loss is not noted yet
        if job.is_federated:
            federations.end_all(session, job, at, jobs.LOST, charge="opened")
        else:
            jobs.end_failed(session, job, at, jobs.LOST, charge="opened")
        swept.failed.append(job.id)
    elif job.is_federated:
        federations.put_back(session, job, at, jobs.LOST)
        # In neither list where it has succeeded: its release was handed in before.
        {"queued": swept.requeued, "failed": swept.failed}.get(job.state, []).append(job.id)
    elif ledger.affords_repeats(session, job):
        jobs.requeue(session, job, at, jobs.LOST)
        swept.requeued.append(job.id)
    else:
        jobs.end_failed(session, job, at, jobs.LOST, charge="spent")
        swept.failed.append(job.id)
