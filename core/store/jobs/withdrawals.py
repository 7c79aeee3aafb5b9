"""Access that was taken away while a job waited: the job is looked at once more when somebody would begin it."""

from sqlalchemy.orm import Session

from core.store import clock
from core.store.access import rights
from core.store.jobs import federations
from core.store.jobs.arrows import end_failed
from core.store.tables import WITHDRAWN, Job


def may_begin(session: Session, job: Job) -> bool:
    """Tell whether a queued job may still begin; where it may not, it has ended by then, charged what it had spent.

    Its owner must not be disabled, and must own its dataset or have access to it under a cap that is open; of a
    federated job those clients end where that is not so, and its quorum decides about the rest.

    Args:
        session: the transaction that claims; its owner's lock, and after that the job's, are held.
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
