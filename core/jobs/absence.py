"""Sites that stay away from a federated job that has begun.

A lost worker is nobody's fault, so a job waits for its site to come back. Where a quorum was asked for, that has an
end: the clients of a site without workers for so long are lost with `worker-lost`, charged what they spent, and the
quorum decides. Absence counts from when the job began to wait or, if that was later, from when a worker of the site was
last seen. It counts only while sweeps come without a gap, so that an outage of the database is no absence.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db import clock
from core.db.tables import SEVERAL, Job
from core.jobs import federations, seats, workers
from core.jobs.sweep import BATCH, contact, waiting_since


def lose_absent(session: Session, lease_seconds: float, patience_seconds: float) -> list[str]:
    """Lose the clients of sites that stay away for too long from federated jobs that have begun and have a quorum.

    Args:
        session: an open write transaction.
        lease_seconds: the lease of the supervisors; one that was not seen for three is absent.
        patience_seconds: the longest absence of a site.

    Returns:
        The federated jobs that lost a client: they wait to go on without it, or have ended.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    at = clock.read(session)
    since, last = contact(session) or (at, at)
    if at - since < patience_seconds or at - last > lease_seconds:
        return []
    here = workers.sites(session, seats.LEASES * lease_seconds, meeting=True)
    waits = (Job.state == "queued", Job.site == SEVERAL, Job.attempt > 0)
    lost = []
    for job_id in session.execute(select(Job.id).where(*waits).order_by(Job.created_at).limit(BATCH)).scalars().all():
        # A job that somebody holds is about to change: the next sweep looks at it again.
        locked = select(Job).where(Job.id == job_id, *waits).with_for_update(key_share=True, skip_locked=True)
        job = session.execute(locked.execution_options(populate_existing=True)).scalar_one_or_none()
        if job is None or job.spec["federation"]["quorum"] is None:
            continue
        waiting = waiting_since(session, job)
        sites = {one.site for one in federations.clients_of(session, job_id) if one.state == "queued"} - here
        seen = {site: max(waiting, workers.last_seen(session, site)) for site in sites}
        gone = {site for site, until in seen.items() if at - until >= patience_seconds}
        if gone:
            federations.lose_sites(session, job, gone, at)
            lost.append(job_id)
    return lost
