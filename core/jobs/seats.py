"""Meetings of sites: a federated job over several sites, each with a worker of its own, begins when all have offered.

A free worker offers a session of its site until some time; this claims nothing. The offer that completes the sites
takes the job with all its sites in one transaction. It gives each session the key by which the sites recognise each
other. No job is ever half claimed. A worker that has waited in vain takes its offer back, and is free again.

From then on every session beats for its own lease, and the job's lasts as long as the shortest of them: one silent site
is the loss of the attempt, for all. A session whose trainers have ended reports their outcome, and leaves. The last one
to leave gets all outcomes, and writes the end of the job. Locks are those of `core.jobs.federations`: the owner, the
federated job, its sites; sessions change under the job's lock.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from core.base.errors import StaleAttempt
from core.db import clock
from core.db.tables import Job
from core.jobs import federations, jobs, withdrawals, workers
from core.jobs.federations import RUNNING, FederationClaim, claimed, clients_of
from core.jobs.jobs import Beat
from core.jobs.presence import SiteSlot
from core.jobs.queue import next_of_several
from core.ledger.claims import Claim, hold, lock_job, refuse_if_frozen
from core.records.encryption import KEY_BYTES
from core.records.sealing import seal

LEASES: Final = 3
"""A site whose workers were not seen for so many leases is not there."""


@dataclass(frozen=True)
class Party:
    """A worker that may offer a session of its site."""

    worker: str
    """The supervisor's name."""
    site: str
    """The site whose part it would run."""


@dataclass(frozen=True)
class ClaimedSlot:
    """A site's session in an attempt that has begun."""

    federation: FederationClaim
    """With all sites that take part."""
    sealed_key: str


def context_of(job_id: str, attempt: int, site: str) -> str:
    """Return the context that binds a sealed key to its session: job, attempt and site."""
    return f"{job_id}/{attempt}/{site}"


def offer(
    session: Session,
    party: Party,
    public_key: str,
    *,
    takes: Sequence[str],
    most_running: int,
    seat_seconds: float,
    lease_seconds: float,
    skip: Collection[str] = (),
) -> str | None:
    """Offer a session in the next federated job of several sites; begin the attempt where that completes them.

    Args:
        session: an open write transaction.
        party: the worker and site that offer.
        public_key: its own, fresh; the meeting key is sealed for it.
        takes: the devices, as jobs name them, that it can serve now.
        most_running: jobs of one principal that may run at a time.
        seat_seconds: the length of an offer.
        lease_seconds: the length of a session without a beat.
        skip: jobs that it has waited for in vain.

    Returns:
        The job; None where none waits that has all its sites here.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    refuse_if_frozen(session)
    served = workers.sites(session, LEASES * lease_seconds, meeting=True) | {party.site}
    job = next_of_several(
        session, takes, most_running, party.site, served=served, skip=skip, may_begin=withdrawals.may_begin
    )
    if job is None:
        return None
    at = clock.read(session)
    seat = session.get(SiteSlot, (job.id, party.site))
    if seat is None:
        seat = SiteSlot(job_id=job.id, site=party.site)
        session.add(seat)
    elif seat.attempt == 0 and seat.until > at and seat.worker != party.worker:
        return None  # a colleague waits already
    seat.worker, seat.attempt, seat.until, seat.public_key = party.worker, 0, at + seat_seconds, public_key
    # Nothing of an earlier attempt may be taken for this one's.
    seat.sealed_key = seat.address = seat.outcome = None
    session.flush()
    _begin(session, job, party.worker, at, lease_seconds)
    return job.id


def _begin(session: Session, job: Job, worker: str, at: float, lease_seconds: float) -> None:
    """Take a federated job whose lock the caller holds, where every site that is left in it offers a session."""
    needed = {client.site for client in clients_of(session, job.id) if client.state == "queued"}
    seats = {seat.site: seat for seat in _seats(session, job.id, attempt=0) if seat.until > at and seat.site in needed}
    if seats.keys() != needed:
        return
    claim = jobs.take(session, job, worker, lease_seconds, {site: seat.worker for site, seat in seats.items()})
    key = secrets.token_bytes(KEY_BYTES)
    for site, seat in seats.items():
        seat.attempt, seat.until = claim.attempt, at + lease_seconds
        seat.sealed_key = seal(key, seat.public_key, context_of(job.id, claim.attempt, site))
    session.flush()


def taken(session: Session, party: Party, job_id: str) -> ClaimedSlot | None:
    """Return the session that an offer has become, None while it still stands; reads only.

    Raises:
        StaleAttempt: the offer is gone, or the attempt that it led to is.
    """
    job, seat = session.get_one(Job, job_id), session.get(SiteSlot, (job_id, party.site))
    if seat is None or seat.worker != party.worker:
        raise StaleAttempt(f"Another worker has the session of {party.site} in {job_id}.")
    if seat.attempt == 0:
        return None
    if seat.attempt != job.attempt or job.state not in RUNNING or seat.sealed_key is None:
        raise StaleAttempt(f"Attempt {seat.attempt} at {job_id} is over.")
    claim = Claim(job.id, job.attempt, job.fence_epoch, job.fence, job.request_id)
    federation = claimed(session, claim)
    assert federation is not None, "a federated job"
    return ClaimedSlot(federation, seat.sealed_key)


def withdraw(session: Session, party: Party, job_id: str) -> bool:
    """Take an offer back; tell whether it still stood: an attempt may have begun in the meantime."""
    # Under the job's lock no attempt begins in between.
    lock_job(session, job_id)
    mine = (
        SiteSlot.job_id == job_id,
        SiteSlot.site == party.site,
        SiteSlot.worker == party.worker,
        SiteSlot.attempt == 0,
    )
    return session.execute(delete(SiteSlot).where(*mine).returning(SiteSlot.job_id)).first() is not None


def beat(session: Session, claim: Claim, party: Party, lease_seconds: float) -> Beat:
    """Extend a session's lease, and the job's to the shortest of its sessions'; an expired one is never revived."""
    try:
        job, at = hold(session, claim, RUNNING)
        seat = _own(session, claim, party)
    except StaleAttempt:
        return Beat(alive=False)
    seat.until = max(seat.until, at + lease_seconds)
    _lease(session, job)
    return Beat(alive=True, cancel=job.state == "cancelling", left_seconds=(job.lease_until or at) - at)


def leave(session: Session, claim: Claim, party: Party, outcome: str) -> list[str] | None:
    """Report the outcome of a session whose trainers have all ended; return all outcomes to the last one to leave.

    Args:
        session: an open write transaction.
        claim: the federated job's.
        party: the worker and site that leave.
        outcome: a word of its own for the one who is last.

    Raises:
        StaleAttempt: the attempt is over.
    """
    job, _ = hold(session, claim, RUNNING)
    _own(session, claim, party).outcome = outcome
    session.flush()
    said = [seat.outcome for seat in _seats(session, claim.job_id, claim.attempt)]
    if None not in said:
        return [one for one in said if one is not None]
    _lease(session, job)
    return None


def announce(session: Session, client: Claim, address: str) -> None:
    """Note the address at which the sites of an attempt meet; for the site that listens there.

    Args:
        session: an open write transaction.
        client: that site's own claim.
        address: HOST:PORT as the others reach it.

    Raises:
        StaleAttempt: the attempt is over.
    """
    parent = federations.lock_parent(session, client.job_id)
    job, _ = hold(session, client)
    assert parent is not None, "a client is of a federated job"
    seat = session.get_one(SiteSlot, (parent.id, job.site))
    if seat.attempt != parent.attempt:
        raise StaleAttempt(f"Attempt {seat.attempt} at {parent.id} is over.")
    seat.address = address
    session.flush()


def address(session: Session, client: Claim) -> str | None:
    """Return the address at which the sites of an attempt meet, None while none is noted; reads only.

    Raises:
        StaleAttempt: the attempt is over.
    """
    job = session.get_one(Job, client.job_id)
    if (job.fence_epoch, job.fence) != (client.fence_epoch, client.fence):
        raise StaleAttempt(f"Attempt {client.attempt} at {client.job_id} is over.")
    parent = session.get_one(Job, job.federation_id)
    noted = [seat.address for seat in _seats(session, parent.id, parent.attempt) if seat.address is not None]
    return noted[0] if noted else None


def _lease(session: Session, job: Job) -> None:
    """Let a job's lease, and its sites', last as long as the shortest of the sessions that have not left."""
    # Never empty: a beat is of one that has not left, and the last to leave does not come here.
    lasting = [seat.until for seat in _seats(session, job.id, job.attempt) if seat.outcome is None]
    job.lease_until = max(job.lease_until or 0.0, min(lasting))
    session.flush()
    federations.extend_leases(session, job)


def _own(session: Session, claim: Claim, party: Party) -> SiteSlot:
    """Return a party's session in an attempt.

    Raises:
        StaleAttempt: it has none.
    """
    seat = session.get(SiteSlot, (claim.job_id, party.site), populate_existing=True)
    if seat is None or (seat.worker, seat.attempt) != (party.worker, claim.attempt) or seat.outcome is not None:
        raise StaleAttempt(f"{party.worker} has no session in attempt {claim.attempt} at {claim.job_id}.")
    return seat


def _seats(session: Session, job_id: str, attempt: int) -> list[SiteSlot]:
    statement = select(SiteSlot).where(SiteSlot.job_id == job_id, SiteSlot.attempt == attempt).order_by(SiteSlot.site)
    return list(session.execute(statement.execution_options(populate_existing=True)).scalars())
