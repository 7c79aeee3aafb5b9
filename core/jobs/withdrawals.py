"""Access that was taken away while a job waited: it ends by the next sweep, or where a worker would begin it."""

from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.orm import Session

from core.access import rights
from core.base.errors import LedgerBusy
from core.db import clock
from core.db.tables import WITHDRAWN, Dataset, Job, Principal
from core.jobs import federations
from core.jobs.queue import lock_owner
from core.jobs.transitions import end_failed
from core.ledger.claims import refuse_if_frozen


def may_begin(session: Session, job: Job) -> bool:
    """Tell whether a queued job may still begin; where it may not, it has ended by then, charged what it had spent.

    Its owner must not be disabled, and must own its dataset or have access to it under an open cap. In a federated job
    the sites without this end, and its quorum decides about the rest.

    Args:
        session: the transaction that claims or sweeps; its owner's lock, and after that the job's, are held.
        job: that waits.
    """
    clients = federations.clients_of(session, job.id) if job.is_federated else [job]
    waiting = [client for client in clients if client.state == "queued"]
    allowed = rights.allowed(session, [(job.owner_id, client.dataset_id) for client in waiting])
    gone = {client.id for client in waiting if (job.owner_id, client.dataset_id) not in allowed}
    if not gone:
        return True
    at = clock.read(session)
    if job.is_federated:
        return federations.withdraw(session, job, gone, at)
    end_failed(session, job, at, WITHDRAWN, charge="spent")
    return False


def owners_without(session: Session) -> list[str]:
    """Return who has jobs that wait and may not begin, in the order of their ids; nothing is locked."""
    owners = select(Job.owner_id).where(_waits_in_vain()).distinct().order_by(Job.owner_id)
    return list(session.execute(owners).scalars())


def end_waiting(session: Session, owner_id: str, most: int) -> list[str]:
    """End a principal's jobs that wait and may not begin, and give back what they reserved; return those that ended.

    Args:
        session: an open write transaction in which nobody else's lock is held.
        owner_id: principal of the jobs.
        most: jobs to look at.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    refuse_if_frozen(session)
    lock_owner(session, owner_id)
    claimed = func.coalesce(Job.federation_id, Job.id)
    found = session.execute(select(claimed).where(Job.owner_id == owner_id, _waits_in_vain()).distinct()).scalars()
    waiting = select(Job).where(Job.id.in_(sorted(found)[:most]), Job.state == "queued").order_by(Job.id)
    locked = waiting.with_for_update(key_share=True, skip_locked=True).execution_options(populate_existing=True)
    return [job.id for job in session.execute(locked).scalars().all() if not may_begin(session, job)]


def refuse_while_waiting(session: Session, owner_id: str) -> None:
    """Refuse to give access while jobs wait that lost it: given now, it would let them begin.

    Args:
        session: an open write transaction that holds the owner's lock.
        owner_id: the principal of the jobs.

    Raises:
        LedgerBusy: there are such jobs, which `end_waiting` has not ended yet.
    """
    lost = select(Job.id).where(Job.owner_id == owner_id, _waits_in_vain()).limit(1)
    if session.execute(lost).first() is not None:
        raise LedgerBusy("Jobs of this principal that lost their access are about to end. Try again in a moment.")


def _waits_in_vain() -> ColumnElement[bool]:
    """Return the condition of a job, or a client, that waits for records its owner may not use now."""
    reads = Job.federation_id.is_(None) | Job.place.is_not(None)
    own = exists().where(Principal.id == Job.owner_id, Dataset.id == Job.dataset_id, rights.may_use())
    return (Job.state == "queued") & reads & ~own
