"""The jobs, for one supervisor: claims, beats, and the ends of attempts. Each is one short transaction."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from core.base.errors import LedgerBusy, LedgerFrozen, NotReady, StaleAttempt
from core.base.settings import ServiceSettings
from core.base.version import code_version
from core.db import reads as queries
from core.db.database import Database
from core.db.tables import Dataset, Job
from core.jobs import absence, federations, jobs, seats, sweep, withdrawals, workers
from core.jobs.federations import FederationClaim
from core.jobs.sweep import Swept
from core.ledger.claims import Claim
from core.ledger.rounds import Rounds
from core.ledger.witness import comparing
from core.ledger.witness.trusting import mark_keys
from core.ledger.witness.witness import Witness
from core.operations import retention
from core.planning.job import Resources
from core.records import datasets
from core.records.encryption import Tampered
from core.records.master_key import check_master_keys, load_master_keys
from core.records.sealing import Reader
from core.training import mock_claims
from core.training.mock_claims import life_of
from core.training.taken import ClaimedJob, ClaimedSite, Offer

P = ParamSpec("P")
T = TypeVar("T")

WITNESS_PART: Final = 0.25
"""The part of a lease that a claim may wait for the database to answer again before its child starts."""
_PAUSE_SECONDS: Final = 0.1
SILENT_SECONDS: Final = 86400.0
"""After which a supervisor that did not say it ended is forgotten."""


class Unreachable(Exception):
    """The database does not answer, or not in time; asking again later is right."""


class JobRepository:
    """The jobs of the database, for one supervisor.

    Args:
        database: the jobs.
        settings: lease, limits and the witness.
        worker: the supervisor's name, for the records.

    Attributes:
        name: the supervisor's.
    """

    def __init__(self, database: Database, settings: ServiceSettings, worker: str) -> None:
        self._database = database
        self._settings = settings
        self._witness = Witness(settings.witness_path)
        self._party = seats.Party(worker, settings.site)
        self.name = worker
        self._rounds = Rounds(database, settings.verify_seconds, lambda: mark_keys(settings))

    def check_master_keys(self) -> None:
        """Refuse to serve without the master key that records are under: every job would fail at its whole price.

        Raises:
            NotReady: it is not there, or another one is.
            Unreachable: the database does not answer.
        """
        with _reaching(), self._database.read() as session:
            wrapped = datasets.wrapped_keys(session, self._settings.site)
        check_master_keys(self._settings, wrapped.values())

    def check_witness(self) -> None:
        """Refuse to serve with a strange witness; raises as `comparing.refuse_strange`, or Unreachable."""
        with _reaching():
            comparing.refuse_strange(self._database, self._witness)

    def claim(self, takes: Sequence[str]) -> ClaimedJob | None:
        """Take the next queued job, with all its clients, and witness what they reserved; then it may be read.

        Args:
            takes: the devices, as jobs name them, that a free slot serves.

        Raises:
            LedgerFrozen: the ledger is behind its witness.
            Unreachable: the database does not answer.
        """
        taken = self._run(self._take, takes)
        if taken is not None and taken.mock is None:
            self._witness_claim(taken.claim)
        return taken

    def offer(self, takes: Sequence[str], skip: Collection[str]) -> Offer | None:
        """Offer a session in the next federated job of several sites; None where there is none, or nobody reaches us.

        Args:
            takes: the devices, as jobs name them, that a free slot serves.
            skip: jobs to leave alone for now.

        Raises:
            LedgerFrozen, Unreachable: as for `claim`.
        """
        limits, reader = self._settings, Reader()
        # Without an address that others reach, no session could take place.
        if limits.meeting_host is None:
            return None
        job_id = self._run(
            seats.offer,
            self._party,
            reader.public_key,
            takes=takes,
            most_running=limits.max_running_per_principal,
            seat_seconds=limits.seat_seconds,
            lease_seconds=limits.lease_seconds,
            skip=skip,
        )
        return None if job_id is None else Offer(job_id, reader)

    def seated(self, offer: Offer) -> ClaimedJob | None:
        """Return what an offer has become, with this site's clients, once all sites were there; None until then.

        Raises:
            StaleAttempt: it is gone.
            LedgerFrozen, Unreachable: as for `claim`.
        """
        with _reaching(), self._database.read() as session:
            seat = seats.taken(session, self._party, offer.job_id)
            if seat is None:
                return None
            claim = seat.federation.claim
            resources = Resources.model_validate(session.get_one(Job, claim.job_id).spec.get("resources", {}))
            own = self._clients(session, seat.federation)
        context = seats.context_of(claim.job_id, claim.attempt, self._party.site)
        try:
            key = offer.reader.open(seat.sealed_key, context)
        except Tampered as error:
            # Only the worker that made the offer has the private key of its reader.
            raise StaleAttempt(f"The session in {claim.job_id} was given to another worker.") from error
        self._witness_claim(claim)
        return ClaimedJob(claim, resources, own, len(seat.federation.clients), seat.federation.size, key)

    def withdraw(self, offer: Offer) -> bool:
        """Take an offer back; tell whether it still stood.

        Raises:
            Unreachable: the database does not answer.
        """
        return self._run(seats.withdraw, self._party, offer.job_id)

    def leave_seat(self, claim: Claim, outcome: str) -> list[str] | None:
        """Say how the clients of this site ended; return what all sites say where this one is the last.

        Raises:
            StaleAttempt: the attempt is over.
            Unreachable: the database does not answer.
        """
        return self._run(seats.leave, claim, self._party, outcome)

    def _witness_claim(self, claim: Claim) -> None:
        """Witness a claim; the database may be away for a part of its lease, so that a restart costs no attempt."""
        deadline = time.monotonic() + WITNESS_PART * self._settings.lease_seconds
        while True:
            try:
                with _reaching():
                    if problems := comparing.watch(self._database, self._witness, claim.job_id):
                        raise LedgerFrozen(f"The ledger is frozen: {problems[0]} Run `farthing reconcile`.")
                    self._witness.keep(self._database, claim.job_id)
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    def _take(self, session: Session, takes: Sequence[str]) -> ClaimedJob | None:
        limits = self._settings
        most = limits.max_running_per_principal
        claim = jobs.claim(session, self.name, limits.lease_seconds, takes, most, limits.site)
        if claim is None:
            return mock_claims.take(session, self.name, limits, takes)
        resources = Resources.model_validate(session.get_one(Job, claim.job_id).spec.get("resources", {}))
        federation = federations.claimed(session, claim)
        if federation is None:
            return ClaimedJob(claim, resources)
        return ClaimedJob(
            claim, resources, self._clients(session, federation), len(federation.clients), federation.size
        )

    def _clients(self, session: Session, federation: FederationClaim) -> tuple[ClaimedSite, ...]:
        """Return the clients of this supervisor's site."""
        numbered = enumerate(federation.clients)
        own = [(number, client) for number, client in numbered if client.site == self._settings.site]
        return tuple(self._client(session, number, client) for number, client in own)

    def _client(self, session: Session, number: int, client: federations.ClientClaim) -> ClaimedSite:
        """Return a client with its own dataset's key; one without it fails by itself, as any job would."""
        dataset = session.get_one(Dataset, client.dataset_id)
        wrapped, location = dataset.wrapped_key, dataset.location
        try:
            # Read anew, so that a rotated master key needs no restart.
            key = None if wrapped is None else load_master_keys(self._settings).unwrap(client.dataset_id, wrapped)
        except (NotReady, Tampered):
            key = None
        return ClaimedSite(client.claim, number, None if key is None else key.hex(), location)

    def beat(self, claim: Claim, *, seated: bool = False) -> jobs.Beat:
        """Extend a lease; that of this site's session where other sites have one, too. Raises Unreachable."""
        limits = self._settings
        if seated:
            return self._run(seats.beat, claim, self._party, limits.lease_seconds)
        return self._run(mock_claims.beat, claim, limits.lease_seconds)

    def is_cancelling(self, claim: Claim) -> bool:
        """Look, without a lock, whether a person asked to cancel; a beat would tell too, only later.

        Raises:
            Unreachable: the database does not answer.
        """
        with _reaching(), self._database.read() as session:
            return mock_claims.state_of(session, claim) == "cancelling"

    def is_outranked(self, takes: Sequence[str]) -> bool:
        """Look whether a job of records waits for a slot that a mock job has. Raises Unreachable."""
        with _reaching(), self._database.read() as session:
            return mock_claims.outranked(session, self._settings, takes)

    def is_parting(self, claim: Claim) -> bool:
        """Look likewise whether a person asked to cancel one client of a federated job.

        Raises:
            Unreachable: the database does not answer.
        """
        with _reaching(), self._database.read() as session:
            return bool(federations.cancelled_clients(session, claim))

    def acknowledge_cancel(self, claim: Claim) -> None:
        """End a cancelled job whose child is gone.

        Raises:
            StaleAttempt: nobody asked to cancel it, or it is no longer ours.
            LedgerFrozen: the ledger is behind its witness.
            Unreachable: the database does not answer.
        """
        self._run(life_of(claim).acknowledge_cancel, claim)

    def put_back(self, claim: Claim) -> None:
        """Queue a job again whose child stopped at its supervisor's order, or fail it where it cannot pay for its loss.

        Raises:
            StaleAttempt, LedgerFrozen, Unreachable: as above.
        """
        self._run(life_of(claim).release_claim, claim)

    def diverged(self, claim: Claim) -> None:
        """Fail a job whose noised iterates diverged: its spending stays spent.

        Raises:
            StaleAttempt, LedgerFrozen, Unreachable: as above.
        """
        self._run(life_of(claim).fail, claim, "diverged", charge="spent")

    def refuse(self, claim: Claim, code: str) -> None:
        """Fail a job whose child opened no record, for a reason that no record can have: nothing more is charged.

        Raises:
            StaleAttempt, LedgerFrozen, Unreachable: as above.
        """
        self._run(life_of(claim).fail, claim, code, charge="spent")

    def fail(self, claim: Claim, code: str) -> None:
        """Fail a job for a reason that may depend on the records: once they were opened, all of it is charged.

        Raises:
            StaleAttempt, LedgerFrozen, Unreachable: as above.
        """
        self._run(life_of(claim).fail, claim, code, charge="opened")

    def sweep(self) -> Swept:
        """Free what is lost, expire what waited too long, and delete what was kept long enough.

        Raises:
            LedgerFrozen, Unreachable: as above.
        """
        limits = self._settings
        # Transactions of their own, so that no step holds another's locks.
        swept = self._run(sweep.sweep, limits.lease_seconds, limits.max_attempts, limits.queue_deadline_seconds)
        self._run(mock_claims.sweep, limits)
        swept.parted = self._run(absence.lose_absent, limits.lease_seconds, limits.absent_seconds)
        with _reaching(), self._database.read() as session:
            owners = withdrawals.owners_without(session)
        for owner_id in owners:  # one at a time: whoever holds one principal's lock waits for no other's
            swept.withdrawn += self._run(withdrawals.end_waiting, owner_id, sweep.BATCH)
        swept.forgotten = self._run(retention.drop_states, limits.kept_state_seconds)
        swept.retired = self._run(retention.retire_models, limits.model_retention_seconds)
        return swept

    def log_lines(self, swept: Swept) -> list[tuple[str, str, str | None]]:
        """Return what a sweep did, for the log: the word for it, the job, and the request that made the job.

        Raises:
            Unreachable: the database does not answer.
        """
        done = [(what, job) for what, ids in vars(swept).items() if what != "retired" for job in ids]
        if not done:
            return []
        with _reaching(), self._database.read() as session:
            requests = queries.requests_of(session, [job for _, job in done])
        return [(what, job, requests[job]) for what, job in done]

    def waiting(self, most: int) -> list[tuple[str, str]]:
        """Return the jobs that have waited longest, at most so many, and the device each asks for.

        Raises:
            Unreachable: the database does not answer.
        """
        with _reaching(), self._database.read() as session:
            return queries.waiting(session, most)

    def register(self, queues: str, slots: int, gpus: int) -> None:
        """Say that this supervisor lives, and forget those that were silent for a day.

        Raises:
            Unreachable: the database does not answer.
        """
        self._run(
            workers.see,
            name=self.name,
            queues=queues,
            slots=slots,
            gpus=gpus,
            version=code_version(),
            site=self._settings.site,
            meets=self._settings.meeting_host is not None,
        )
        self._run(workers.remove_silent, SILENT_SECONDS)

    def leave(self) -> None:
        """Say that this supervisor ends. Raises Unreachable."""
        self._run(workers.leave, self.name)

    def watch(self) -> list[str]:
        """Compare the ledger with its witness, and freeze it where it is behind; return what is wrong.

        Raises:
            Unreachable: the database or the witness does not answer.
        """
        with _reaching():
            return comparing.watch(self._database, self._witness)

    def verify(self, is_over: Callable[[], bool]) -> dict[str, str]:
        """Verify every chain that has grown since the last time, or is due; return why scopes were frozen.

        Args:
            is_over: asked between two slices; where it says so, the rest is left for the next time.

        Raises:
            Unreachable: the database does not answer.
        """
        with _reaching():
            return self._rounds.go(is_over)

    def _run(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        with _reaching():
            return self._database.transaction(work, *args, **kwargs)


def open_job_repository(settings: ServiceSettings, worker: str) -> JobRepository:
    """Connect to the database and return its jobs for a supervisor that can open what it will be asked to read.

    Raises:
        NotReady: the database could lose a commit, the master key that records are under is not here, or the witness
            is not the ledger's.
        Unreachable: the database does not answer.
    """
    with _reaching():
        database = Database(settings.url)
        repository = JobRepository(database, settings, worker)
    try:
        repository.check_witness()
        repository.check_master_keys()
    except BaseException:
        database.dispose()
        raise
    return repository


@contextmanager
def _reaching() -> Iterator[None]:
    """Give one name to all that passes with time."""
    try:
        yield
    except (LedgerBusy, DBAPIError) as error:
        raise Unreachable(type(error).__name__) from error
