"""Mock jobs for one supervisor: claims, transitions and sweeps beside those of jobs of records."""

from collections.abc import Sequence
from types import ModuleType

from sqlalchemy.orm import Session

from core.base.settings import ServiceSettings
from core.db.tables import Job
from core.jobs import jobs, mocks, queue
from core.ledger.claims import Claim
from core.planning.job import Resources
from core.training.mock_order import MockOrder
from core.training.taken import ClaimedJob


def life_of(claim: Claim) -> ModuleType:
    """Return the module of a claim's transitions, by its identifier; each refuses claims of the other kind."""
    return mocks if mocks.is_mock(claim.job_id) else jobs


def take(session: Session, worker: str, settings: ServiceSettings, takes: Sequence[str]) -> ClaimedJob | None:
    """Take a mock job for a free slot for which no job of records waits; at the service's own site, on a CPU.

    Args:
        session: an open write transaction.
        worker: the supervisor's name.
        settings: lease and limits.
        takes: the devices that the slot serves.
    """
    if settings.site or "cpu" not in takes:
        return None
    job = mocks.claim(session, worker, settings.lease_seconds, settings.max_mock_running_per_principal)
    if job is None:
        return None
    resources = Resources.model_validate(job.spec.get("resources", {}))
    return ClaimedJob(mocks.claim_of(job), resources, mock=MockOrder.of(job))


def beat(session: Session, claim: Claim, lease_seconds: float) -> jobs.Beat:
    """Extend the lease of a job of either kind."""
    own = mocks.beat if mocks.is_mock(claim.job_id) else jobs.beat
    return own(session, claim, lease_seconds)


def outranked(session: Session, settings: ServiceSettings, takes: Sequence[str]) -> bool:
    """Tell whether a job of records could start on one of these devices, were there a slot for it."""
    return queue.someone_waits(session, takes, settings.max_running_per_principal, settings.site)


def state_of(session: Session, claim: Claim) -> str:
    """Return the state of a job of either kind, without a lock."""
    if mocks.is_mock(claim.job_id):
        return session.get_one(mocks.MockJob, claim.job_id).state
    return session.get_one(Job, claim.job_id).state


def sweep(session: Session, settings: ServiceSettings) -> None:
    """Sweep the mock jobs, where this is the service's own site."""
    if not settings.site:
        mocks.sweep(
            session,
            settings.lease_seconds,
            settings.max_attempts,
            settings.queue_deadline_seconds,
            settings.mock_retention_seconds,
        )
