"""What a supervisor asks of the database: claims, beats, and the ends of attempts. Each is one short transaction."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from core.catalogue.jobs import Resources
from core.errors import LedgerBusy
from core.settings import ServiceSettings
from core.store import jobs, sweep, verification
from core.store.claims import Claim
from core.store.database import Database
from core.store.tables import Job
from core.store.witness import Witness

P = ParamSpec("P")
T = TypeVar("T")


class Unreachable(Exception):
    """The database does not answer, or not in time; asking again later is right."""


class Desk:
    """One supervisor's face of the database.

    Args:
        database: the jobs.
        settings: lease, limits and the witness.
        worker: the supervisor's name, for the records.
    """

    def __init__(self, database: Database, settings: ServiceSettings, worker: str) -> None:
        self._database = database
        self._settings = settings
        self._witness = Witness(settings.witness_path)
        self._worker = worker
        self._checked: dict[str, int] = {}

    def claim(self) -> tuple[Claim, Resources] | None:
        """Take the oldest queued job and witness its reservation; nothing is read before both are done.

        Raises:
            LedgerFrozen: the ledger is behind its witness.
            Unreachable: the database does not answer.
        """
        taken = self._run(self._take)
        if taken is not None:
            with _reaching():
                self._witness.keep(self._database)
        return taken

    def _take(self, session: Session) -> tuple[Claim, Resources] | None:
        claim = jobs.claim(session, self._worker, self._settings.lease_seconds)
        if claim is None:
            return None
        spec = session.get_one(Job, claim.job_id).spec
        return claim, Resources.model_validate(spec.get("resources", {}))

    def beat(self, claim: Claim) -> jobs.Beat:
        """Extend a lease.

        Raises:
            Unreachable: the database does not answer.
        """
        return self._run(jobs.beat, claim, self._settings.lease_seconds)

    def is_cancelling(self, claim: Claim) -> bool:
        """Look, without a lock, whether a person asked to cancel; a beat would tell too, only later.

        Raises:
            Unreachable: the database does not answer.
        """
        with _reaching(), self._database.read() as session:
            return session.get_one(Job, claim.job_id).state == "cancelling"

    def acknowledge_cancel(self, claim: Claim) -> None:
        """End a cancelled job whose child is gone.

        Raises:
            StaleAttempt: nobody asked to cancel it, or it is no longer ours.
            LedgerFrozen: the ledger is behind its witness.
            Unreachable: the database does not answer.
        """
        self._run(jobs.acknowledge_cancel, claim)

    def put_back(self, claim: Claim) -> None:
        """Queue a job again whose child stopped at its supervisor's order; it fails if paid work was lost with it.

        Raises:
            StaleAttempt, LedgerFrozen, Unreachable: as above.
        """
        self._run(jobs.release_claim, claim)

    def diverged(self, claim: Claim) -> None:
        """Fail a job whose noised iterates diverged: what was spent stays spent.

        Raises:
            StaleAttempt, LedgerFrozen, Unreachable: as above.
        """
        self._run(jobs.fail, claim, "diverged", charge="spent")

    def fail(self, claim: Claim, code: str) -> None:
        """Fail a job for a reason that may depend on the records: the whole reservation is charged.

        Raises:
            StaleAttempt, LedgerFrozen, Unreachable: as above.
        """
        self._run(jobs.fail, claim, code, charge="all")

    def sweep(self) -> sweep.Swept:
        """Free what is lost and expire what waited too long.

        Raises:
            LedgerFrozen, Unreachable: as above.
        """
        limits = self._settings
        return self._run(sweep.sweep, limits.lease_seconds, limits.max_attempts, limits.queue_deadline_seconds)

    def resum(self) -> list[str]:
        """Sum every chain that has grown since the last time; return the scopes that were frozen for a mismatch.

        Raises:
            Unreachable: the database does not answer.
        """
        with _reaching():
            return verification.resum(self._database, self._checked)

    def _run(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        with _reaching():
            return self._database.run(work, *args, **kwargs)


@contextmanager
def _reaching() -> Iterator[None]:
    """Give one name to all that passes with time."""
    try:
        yield
    except (LedgerBusy, DBAPIError) as error:
        raise Unreachable(type(error).__name__) from error
