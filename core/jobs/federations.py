"""Federated jobs: one row that waits, is claimed and is published, and a client row for each dataset, which pays.

A writer of several of these rows locks the federated job's first, then its sites' by place, then their scopes in the
order of their ids. A payment for one site locks that site's row alone. The federated job's claim stands for all: it is
beaten for, and its loss is theirs. Each site has an attempt and a fence of its own, with which it alone spends.

A client that ends before the job does is lost. Its own scope is charged by the rules of any job; the others stop where
nothing is lost, and go on without it if as many as the quorum are left. Else they end, and get back what they have not
spent: they failed with `client-lost`, and so did the job.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session, aliased

from core.access import rights
from core.base.errors import StaleAttempt, ensure
from core.db.tables import (
    CLIENT_LOST,
    TERMINAL_STATES,
    WITHDRAWN,
    Approval,
    Attempt,
    Checkpoint,
    Job,
    Model,
    Scope,
)
from core.jobs import transitions
from core.jobs.transitions import LOST, add_event, end, end_cancelled, end_failed, leave_attempt, requeue, settle
from core.ledger import chain, ledger, releases
from core.ledger.claims import Charge, Claim, hold, next_fence

RUNNING = ("running", "cancelling")


@dataclass(frozen=True)
class ClientClaim:
    """The right to one client of a federated job, for the one process that may read its records."""

    claim: Claim
    place: int
    dataset_id: str
    site: str
    """That keeps its records."""


@dataclass(frozen=True)
class FederationClaim:
    """The right to a federated job and to all of its clients that are left, taken in one transaction."""

    claim: Claim
    """The claim of the federated job, which its supervisor beats for, cancels and puts back."""
    clients: tuple[ClientClaim, ...]
    """Those that are not lost, by place."""
    size: int
    """m as it was asked for, the lost ones included."""
    quorum: int


def clients_of(session: Session, job_id: str, *, lock: bool = False) -> list[Job]:
    """Return the clients of a federated job by place, lost ones too; locked where the caller holds the job's lock."""
    statement = select(Job).where(Job.federation_id == job_id, Job.place.is_not(None)).order_by(Job.place)
    if lock:
        statement = statement.with_for_update(key_share=True).execution_options(populate_existing=True)
    return list(session.execute(statement).scalars())


def quorum_of(job: Job) -> int:
    """Return how many clients of a federated job must be left."""
    asked = job.spec["federation"]
    return int(asked["quorum"] or len(asked["datasets"]))


def lock_parent(session: Session, job_id: str) -> Job | None:
    """Lock the federated job that a job is a client of, as must be done before the client; None where it is none."""
    child = aliased(Job)
    parent = select(child.federation_id).where(child.id == job_id, child.place.is_not(None)).scalar_subquery()
    statement = select(Job).where(Job.id == parent).with_for_update(key_share=True)
    return session.execute(statement.execution_options(populate_existing=True)).scalar_one_or_none()


def claim_clients(session: Session, job: Job, at: float, seated: Mapping[str, str]) -> None:
    """Take the clients that are left of a federated job that was just claimed; each gets a fence of its own.

    Args:
        session: the transaction that claims.
        job: the federated job.
        at: the database's time.
        seated: the supervisor of each site's clients, where it is another than the job's.
    """
    for client in _live(clients_of(session, job.id, lock=True)):
        ensure(client.state == "queued", f"{client.id} of {job.id} is {client.state} while the job waits")
        client.state = "running"
        client.attempt += 1
        client.fence_epoch, client.fence = job.fence_epoch, next_fence(client)
        client.worker, client.lease_until = seated.get(client.site, job.worker), job.lease_until
        client.started_at = client.started_at or at
        started = Attempt(
            job_id=client.id, number=client.attempt, fence=client.fence, worker=client.worker or "", started_at=at
        )
        session.add(started)
        add_event(session, client, "running", at, attempt=client.attempt)
    session.flush()


def claimed(session: Session, claim: Claim) -> FederationClaim | None:
    """Return what a claim stands for where it is a federated job's, read in the claim's own transaction; else None."""
    job = session.get_one(Job, claim.job_id)
    if not job.is_federated:
        return None
    clients = clients_of(session, job.id)
    taken = [
        ClientClaim(
            Claim(client.id, client.attempt, client.fence_epoch, client.fence, client.request_id),
            client.place or 0,
            client.dataset_id,
            client.site,
        )
        for client in clients
        if client.state in RUNNING
    ]
    return FederationClaim(claim, tuple(taken), len(clients), quorum_of(job))


def extend_leases(session: Session, job: Job) -> None:
    """Give the clients of a federated job, whose lock the caller holds, the lease that the job has."""
    running = (Job.federation_id == job.id, Job.place.is_not(None), Job.state.in_(RUNNING))
    statement = update(Job).where(*running).values(lease_until=job.lease_until)
    session.execute(statement.execution_options(synchronize_session=False))


def cancelled_clients(session: Session, claim: Claim) -> list[str]:
    """Return the clients of a claimed federated job that somebody asked to cancel; reads only, and locks nothing."""
    statement = select(Job.id).where(
        Job.federation_id == claim.job_id, Job.place.is_not(None), Job.state == "cancelling"
    )
    return list(session.execute(statement.order_by(Job.place)).scalars())


def show_progress(session: Session, parent: Job, at: float) -> None:
    """Publish how far a federated job is: as far as the last of its running clients. The caller holds its lock."""
    steps = [client.step for client in clients_of(session, parent.id) if client.state == "running"]
    step = min(steps, default=parent.step)
    if step > parent.step:
        parent.step = step
        add_event(session, parent, "progress", at, step=step, steps=parent.steps)


def put_back(session: Session, job: Job, at: float, outcome: Literal["drained", "worker-lost"]) -> None:
    """End an attempt at a federated job, whose lock the caller holds; then its quorum decides whether it waits again.

    A client that somebody asked to cancel is cancelled. One that cannot pay again for what was lost with the attempt
    fails, charged what it spent.
    """
    leave_attempt(session, job, at, outcome)
    job.state = "queued"
    clients = clients_of(session, job.id, lock=True)
    for client in _by_scope(_live(clients)):
        if client.state == "cancelling":
            end_cancelled(session, client, at)
        elif ledger.affords_repeats(session, client):
            requeue(session, client, at, outcome)
        else:
            end_failed(session, client, at, LOST, charge="spent")
    if not _decide(session, job, clients, at):
        add_event(session, job, "queued", at, reason=outcome)
    session.flush()


def end_all(session: Session, job: Job, at: float, code: str, *, charge: Charge) -> None:
    """Fail a federated job and all remaining sites with the same code; the caller holds the job's lock."""
    for client in _by_scope(_live(clients_of(session, job.id, lock=True))):
        end_failed(session, client, at, code, charge=charge)
    end_failed(session, job, at, code, charge="spent")


def cancel_all(session: Session, job: Job, at: float) -> None:
    """End a cancelled federated job that nobody runs any more, and whose lock the caller holds, with its clients."""
    for client in _by_scope(_live(clients_of(session, job.id, lock=True))):
        end_cancelled(session, client, at)
    end_cancelled(session, job, at)


def ask_to_cancel(session: Session, job: Job, at: float) -> None:
    """Note that a running federated job, whose lock the caller holds, is to be cancelled, and its clients with it."""
    for one in (job, *_live(clients_of(session, job.id, lock=True))):
        if one.state == "running":
            one.state = "cancelling"
            add_event(session, one, "cancelling", at)


def expire_all(session: Session, job: Job, at: float) -> None:
    """Expire a federated job that waits and whose lock the caller holds, and its clients with it."""
    for client in _by_scope(_live(clients_of(session, job.id, lock=True))):
        settle(session, client, "expired")
        end(session, client, "expired", at)
    end(session, job, "expired", at)


def lose(session: Session, parent: Job, client: Job, at: float) -> None:
    """Cancel one client, both locks held: at once where the job waits, and then its quorum decides; else soon."""
    if client.state == "queued":
        end_cancelled(session, client, at)
        _decide(session, parent, clients_of(session, parent.id, lock=True), at)
    elif client.state == "running":
        client.state = "cancelling"
        add_event(session, client, "cancelling", at)
    session.flush()


def lose_sites(session: Session, job: Job, sites: Collection[str], at: float) -> None:
    """Fail the clients of some sites, charged what they spent; then the quorum of the job decides.

    The job waits, and the caller holds its lock: nobody runs any of its clients.
    """
    clients = clients_of(session, job.id, lock=True)
    for client in _by_scope([one for one in _live(clients) if one.site in sites]):
        end_failed(session, client, at, LOST, charge="spent")
    if not _decide(session, job, clients, at):
        add_event(session, job, "queued", at, reason=LOST)
    session.flush()


def finish(session: Session, claim: Claim, release: Mapping[str, Any]) -> Model | None:
    """End one client that has the whole release; with the last of those that run, publish it, once.

    Every site has the same release, since all computed it from the same answers; the first one handed in is kept.

    Args:
        session: an open write transaction.
        claim: the client's.
        release: the job's release, JSON-ready.

    Returns:
        The model, where this client was the last; None while others are to come.

    Raises:
        StaleAttempt: the claim no longer holds the client, or the job is no longer running.
        LedgerFrozen: the ledger is behind its witness.
    """
    parent, client, at = _hold_with_parent(session, claim)
    handed_in = _handed_in(session, parent)
    if handed_in is None:
        # Kept at once: the loss of all other sites must not lose a release that is complete.
        handed_in = dict(release)
        kept = chain.canonical(handed_in).encode()
        session.add(Checkpoint(job_id=parent.id, chunk=0, attempt=parent.attempt, state=kept, created_at=at))
    _succeed(session, client, handed_in, at)
    clients = clients_of(session, parent.id, lock=True)
    if any(one.state in RUNNING for one in clients):
        session.flush()
        return None
    ensure(_decide(session, parent, clients, at), "a job whose release was handed in ends")
    leave_attempt(session, parent, at, parent.error_code or parent.state)
    session.flush()
    return session.execute(select(Model).where(Model.job_id == parent.id)).scalar_one_or_none()


def end_misled(session: Session, claim: Claim, number: int) -> None:
    """End a federated job in which one site sent another an impossible message; the history's last line names both.

    It was seen before anything was asked in this attempt, from messages and from what a client's own ledger says: no
    record decides it. Each site is charged its spending, and the rest goes back.

    Args:
        session: an open write transaction.
        claim: of the client that saw it.
        number: of the other one, among those that take part in the attempt.

    Raises:
        StaleAttempt: the claim no longer holds the client, or the job is no longer running.
        LedgerFrozen: the ledger is behind its witness.
    """
    parent, client, at = _hold_with_parent(session, claim)
    clients = clients_of(session, parent.id, lock=True)
    begun = session.get_one(Attempt, (parent.id, parent.attempt)).started_at
    # One claim notes one time for all its attempts, so this finds the sites that take part.
    started = select(Attempt.job_id).where(Attempt.started_at == begun, Attempt.job_id.in_([one.id for one in clients]))
    taking_part = set(session.execute(started).scalars())
    told = [one.place for one in clients if one.id in taking_part][number]
    for one in _by_scope(_live(clients)):
        settle(session, one, CLIENT_LOST)
        leave_attempt(session, one, at, CLIENT_LOST)
        one.error_code = CLIENT_LOST
        end(session, one, "failed", at, code=CLIENT_LOST)
    leave_attempt(session, parent, at, CLIENT_LOST)
    parent.error_code = CLIENT_LOST
    end(session, parent, "failed", at, code=CLIENT_LOST, misled=client.place, by=told)
    session.flush()


def _hold_with_parent(session: Session, claim: Claim) -> tuple[Job, Job, float]:
    """Lock a federated job and then the client that a claim holds; return both, and the time.

    Raises:
        StaleAttempt: the claim no longer holds the client, or the job is no longer running.
    """
    parent = lock_parent(session, claim.job_id)
    client, at = hold(session, claim)
    if parent is None or parent.state != "running":
        raise StaleAttempt(f"The job that {claim.job_id} is a client of no longer runs.")
    return parent, client, at


def _live(clients: Sequence[Job]) -> list[Job]:
    """Return the clients that have not ended."""
    return [client for client in clients if client.state not in TERMINAL_STATES]


def _by_scope(clients: Sequence[Job]) -> list[Job]:
    """Return clients in the order in which everybody locks their scopes."""
    return sorted(clients, key=lambda client: (client.scope_id, client.place))


def asked_of(clients: Sequence[Job], scopes: Collection[str]) -> list[Job]:
    """Return the clients of some scopes that were asked anything, by scope."""
    return _by_scope([one for one in clients if one.scope_id in scopes and one.chunks_spent])


def _succeed(session: Session, client: Job, release: Mapping[str, Any], at: float) -> None:
    """End a client that has nothing more to do; the release is that of the federated job."""
    client.step = client.steps
    settle(session, client, "succeeded", release)
    if client.state != "queued":
        leave_attempt(session, client, at, "succeeded")
    end(session, client, "succeeded", at)
    session.flush()


def _handed_in(session: Session, job: Job) -> dict[str, Any] | None:
    """Return the release that some client of a federated job has handed in."""
    kept = session.execute(select(Checkpoint.state).where(Checkpoint.job_id == job.id)).scalar_one_or_none()
    return None if kept is None else dict(json.loads(kept))


def withdraw(session: Session, job: Job, gone: Collection[str], at: float) -> bool:
    """End those clients of a waiting federated job whose data its owner may no longer use; tell whether it still waits.

    The caller holds the job's lock. They are charged what they spent; then the quorum decides about the others.
    """
    clients = clients_of(session, job.id, lock=True)
    for client in _by_scope([one for one in _live(clients) if one.id in gone]):
        end_failed(session, client, at, WITHDRAWN, charge="spent")
    return not _decide(session, job, clients, at, WITHDRAWN)


def _decide(session: Session, job: Job, clients: Sequence[Job], at: float, code: str = CLIENT_LOST) -> bool:
    """Decide, by its quorum, what becomes of a federated job that nobody runs; tell whether it ended.

    Where too few clients are left, they and the job fail with the code.

    Where the release was handed in, all answers were given: those that are left have nothing more to do.
    """
    left = _by_scope(_live(clients))
    done = [client for client in clients if client.state == "succeeded"]
    if len(left) + len(done) < quorum_of(job):
        for one in (*left, job):
            settle(session, one, code)
            one.error_code = code
            end(session, one, "failed", at, code=code)
        session.flush()
        return True
    release = _handed_in(session, job)
    if release is None:
        return False
    for client in left:
        _succeed(session, client, release, at)
    _publish(session, job, clients, release, at)
    return True


def _publish(session: Session, job: Job, clients: Sequence[Job], release: Mapping[str, Any], at: float) -> None:
    """Publish a federated job's model.

    Every scope that was asked anything has to approve it where it asks for that, or where the job's owner may no longer
    use its data.
    """
    asked = {client.scope_id for client in clients if client.chunks_spent}
    allowed = rights.allowed(session, [(job.owner_id, client.dataset_id) for client in clients])
    gone = {client.scope_id for client in clients if (job.owner_id, client.dataset_id) not in allowed}
    statement = select(Scope.id).where(Scope.id.in_(asked), Scope.approval | Scope.id.in_(gone)).order_by(Scope.id)
    judges = list(session.execute(statement).scalars())
    model = transitions.publish(session, job, release, "pending" if judges else "not-needed", at)
    session.add_all(Approval(model_id=model.id, scope_id=scope_id, verdict="pending") for scope_id in judges)
    releases.withhold(session, asked_of(clients, judges))
    session.execute(delete(Checkpoint).where(Checkpoint.job_id == job.id))  # the model holds it from here on
    job.step = job.steps
    end(session, job, "succeeded", at, model=model.id)
    session.flush()
