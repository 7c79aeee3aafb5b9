"""Writes of one attempt to the ledger, committed whatever happens to the connection meanwhile."""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from sqlalchemy.orm import Session

from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.tables import Job
from core.jobs import jobs
from core.ledger import ledger
from core.ledger.claims import Claim
from core.ledger.marks import MarkKey
from core.ledger.witness.trusting import Trust, ask_witness
from core.ledger.witness.witness import Witness

T = TypeVar("T")


class FencedLedgerWriter:
    """Pays and keeps through the attempt's fence.

    Every write is one short transaction that may be repeated. After any doubt the same write is sent again on a new
    connection; the fence or the entry's unique key shows whether it was done. It is repeated for one lease at most;
    after that the attempt is no longer ours anyway.

    Args:
        database: the ledger.
        claim: the attempt.
        settings: for the lease, the grid on which progress shows, and the witness.
        keys: under which marks of how far a ledger was verified count.

    Attributes:
        claim: the attempt.
        database: the ledger, whose transactions are repeated for a lease.
    """

    def __init__(
        self, database: Database, claim: Claim, settings: ServiceSettings, keys: Sequence[MarkKey] = ()
    ) -> None:
        self.database: Final = database.patient(settings.lease_seconds)
        self.claim: Final = claim
        self._witness = Witness(settings.witness_path)
        self._keys = keys
        self._grid_seconds = settings.visible_grid_seconds
        # So that the first step shows at once.
        self._shown_at = time.monotonic() - self._grid_seconds

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        """Commit the payment of a chunk, and now and then the step counter with it; then tell the witness.

        The chunk is read only after this returns. A database restored to a moment before the payment is therefore
        behind its witness, and freezes before the same chunk could be read again on one charge.

        Raises:
            StaleAttempt: the job is no longer ours.
            LedgerFrozen: the ledger is behind its witness.
        """
        show = step > 0 and time.monotonic() - self._shown_at >= self._grid_seconds
        self.database.transaction(_pay_and_show if show else ledger.pay, self.claim, chunk, state, step)
        # After the commit: a witness ahead of the ledger would freeze it for nothing.
        self.database.insist(self._witness.keep, self.database, self.claim.job_id)
        if show:
            self._shown_at = time.monotonic()

    def keep(self, state: bytes, step: int) -> None:
        """Commit a state that has every paid chunk in it.

        Raises:
            StaleAttempt: the job is no longer ours.
        """
        self.database.transaction(ledger.keep, self.claim, state, step)

    def ask(self, work: Callable[[Session, Claim, Trust], T]) -> T:
        """Return ``work(session, claim, trust)`` of one snapshot, and of what the witness knew before it.

        Raises:
            DBAPIError, LedgerBusy: database or witness could not be reached for a whole lease.
        """

        def look() -> T:
            with self.database.read() as session:
                scope_id = session.get_one(Job, self.claim.job_id).scope_id
            # Asked before the snapshot: later entries are in the snapshot, so it can only be ahead of the witness.
            trust = ask_witness(self._witness, [scope_id], self._keys)
            with self.database.read() as session:
                return work(session, self.claim, trust)

        return self.database.insist(look)


def _pay_and_show(session: Session, claim: Claim, chunk: int, state: bytes | None, step: int) -> None:
    # First: of a federated job it locks the row before that of the site.
    jobs.progress(session, claim, step)
    ledger.pay(session, claim, chunk, state, step)
