"""Claims of jobs: the fence that every write of an attempt carries, and the ledger's own state.

A fence is the ledger's random epoch and a number that grows with every claim, at random, and with every end of one. A
claim that a restored backup lacks is therefore void, and never equal to the next one. It is checked under the job's row
lock together with the state and the lease. A supervisor or a child that resumes after its lease can therefore neither
spend nor publish.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite
from sqlalchemy.orm import Session

from core.base.errors import LedgerFrozen, NotFound, StaleAttempt
from core.db import clock
from core.db.service_tables import Secret
from core.db.tables import Job

Charge = Literal["spent", "opened", "all"]
"""The charge of a failed job: its spending; its whole reservation if an attempt has opened the records, else its
spending; or its whole reservation."""
EPOCH: Final = "ledger-epoch"
FROZEN: Final = "ledger-frozen"
FENCE_BITS: Final = 44
"""Two claims have one number by chance once in 2**44; a column of 63 bits holds half a million claims of one job."""


@dataclass(frozen=True)
class Claim:
    """An attempt's right to a job, handed from the supervisor to its child."""

    job_id: str
    attempt: int
    fence_epoch: str
    fence: int
    request_id: str | None = field(default=None, compare=False)
    """The request that made the job, for the operator's log."""

    @property
    def log_fields(self) -> dict[str, str | int | None]:
        """The text of the operator's log line."""
        return {"job": self.job_id, "attempt": self.attempt, "request_id": self.request_id}


def epoch(session: Session) -> str:
    """Return the ledger's epoch, drawn at first use and again by every reconciliation."""
    found = epoch_seen(session)
    if found is not None:
        return found
    put_secret(session, EPOCH, secrets.token_hex(16), keep=True)
    # Read again: a rival may have stored another epoch first.
    return session.execute(select(Secret.value).where(Secret.name == EPOCH)).scalar_one()


def epoch_seen(session: Session) -> str | None:
    """Return the ledger's epoch; None before the first one."""
    return session.execute(select(Secret.value).where(Secret.name == EPOCH)).scalar_one_or_none()


def put_secret(session: Session, name: str, value: str, *, keep: bool = False) -> None:
    """Store an installation-wide value; with `keep`, only where there is none yet."""
    insert = insert_sqlite if session.get_bind().dialect.name == "sqlite" else insert_postgresql
    statement = insert(Secret).values(name=name, value=value)
    if keep:
        session.execute(statement.on_conflict_do_nothing())
    else:
        session.execute(statement.on_conflict_do_update(index_elements=["name"], set_={"value": value}))


def refuse_if_frozen(session: Session) -> None:
    """Refuse while the ledger is behind its witness.

    Raises:
        LedgerFrozen: until an operator has reconciled.
    """
    time_unless_frozen(session)


def time_unless_frozen(session: Session) -> float:
    """Return the database's time, in the statement that refuses while the ledger is behind its witness.

    Raises:
        LedgerFrozen: until an operator has reconciled.
    """
    reason = select(Secret.value).where(Secret.name == FROZEN).scalar_subquery()
    at, why = session.execute(select(clock.now(), reason)).one()
    if why is not None:
        raise LedgerFrozen(f"The ledger is frozen: {why} An operator must run `farthing reconcile`.")
    return float(at)


def frozen_reason(session: Session) -> str | None:
    """Return why the ledger is frozen, None where it is not."""
    return session.execute(select(Secret.value).where(Secret.name == FROZEN)).scalar_one_or_none()


def freeze_ledger(session: Session, reason: str) -> None:
    """Stop reserving, claiming, spending and settling."""
    put_secret(session, FROZEN, reason[:200])  # the column's length, which PostgreSQL enforces


def freeze_found(session: Session, reason: str, seen: str | None) -> bool:
    """Freeze a ledger that was found wrong in an epoch; do nothing where it was reconciled since.

    Args:
        session: an open write transaction.
        reason: that people read.
        seen: the epoch when the look began, see `epoch_seen`.

    Returns:
        Whether it is frozen now.
    """
    # The lock makes a reconciliation, which writes this row first, wait or have ended.
    now = select(Secret.value).where(Secret.name == EPOCH).with_for_update()
    if session.execute(now).scalar_one_or_none() != seen:
        return False
    freeze_ledger(session, reason)
    return True


def thaw_ledger(session: Session) -> None:
    """Draw a new epoch, so that no fence from before is valid, and go on."""
    # The epoch first: `freeze_found` locks its row, so that an old finding cannot freeze after the thaw.
    put_secret(session, EPOCH, secrets.token_hex(16))
    session.execute(delete(Secret).where(Secret.name == FROZEN))


def next_fence(job: Job) -> int:
    """Return the number of a job's next claim: above all before it, and drawn, for a backup may have forgotten some."""
    return job.fence + 1 + secrets.randbits(FENCE_BITS)


def lock_job(session: Session, job_id: str) -> Job:
    """Lock a job's row and return it as it is now.

    Raises:
        NotFound: there is no such job.
    """
    job = session.execute(
        select(Job).where(Job.id == job_id).with_for_update(key_share=True).execution_options(populate_existing=True)
    ).scalar_one_or_none()
    if job is None:
        raise NotFound("There is no such job.")
    return job


def hold(session: Session, claim: Claim, states: Sequence[str] = ("running",)) -> tuple[Job, float]:
    """Lock a job and check that the claim still holds it; return the job and the database's time.

    Raises:
        StaleAttempt: the fence, the state or the lease is no longer the attempt's.
    """
    try:
        job = lock_job(session, claim.job_id)
    except NotFound as gone:  # the database was put back to before this job
        raise StaleAttempt(f"{claim.job_id} is not known here.") from gone
    # Read after the lock: the lease may run out while another transaction holds the row.
    at = clock.read(session)
    if (
        (job.fence_epoch, job.fence, job.attempt) != (claim.fence_epoch, claim.fence, claim.attempt)
        or job.state not in states
        or job.lease_until is None
        or job.lease_until <= at
    ):
        raise StaleAttempt(f"Attempt {claim.attempt} no longer holds {claim.job_id}.")
    return job, at
