"""The ledger: reserve at submit, pay ahead of every reading, settle what was never spent.

Before an attempt opens the records a line of the chain says so, and nothing that its job is charged is given back then.
Each movement is one line of its scope's chain and one change of the accounts, in one transaction, under locks that
are always taken in the same order: principal, job, scope, accounts by id. A cap is checked by the admission rule and
again by the table's CHECK; a committed spend is never returned, except by the owner's visible correction.

Chunks are numbered from 0. Chunk k of K charges C(k + 1) - C(k) of the cumulative prices frozen at reserve, so chunks
never sum past C(K). A chunk that was lost with its worker is paid again, out of the allowance that was reserved beside
C(K) (`core.ledger.allowance`), by an entry of the new attempt that says so. A stream's is not: its first chunk
pays for the whole stream, and a new attempt goes on after the last chunk that any attempt has paid for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from core.base.errors import ensure
from core.db import clock
from core.db.tables import Account, Checkpoint, Entry, Job
from core.ledger import allowance, chain, kinds
from core.ledger.accounts import (
    Balance,
    balance,
    lock_accounts,
    lock_scope,
    move,
    paying,
    price_of,
    read_slots,
)
from core.ledger.bodies import slots
from core.ledger.charged import executed, executed_by
from core.ledger.claims import Claim, hold, refuse_if_frozen, time_unless_frozen
from core.ledger.corrections import compensate, freeze, unfreeze
from core.ledger.digests import digest_of
from core.ledger.opening import close_grant, note_upload, open_scope, set_grant
from core.ledger.reserving import LockedAccounts, Reservation, accounts_of, price, reserve
from core.ledger.rounds import Rounds
from core.ledger.schedules import MAX_CHUNKS, Schedule, is_stream, is_whole, runs_of
from core.ledger.verification import Verification, verify
from core.privacy.budget import covers
from core.privacy.draws import MOST_RUNS, draws_left
from core.privacy.events import EVENT

__all__ = [
    "MAX_CHUNKS",
    "Balance",
    "LockedAccounts",
    "Reservation",
    "Rounds",
    "Schedule",
    "Verification",
    "accounts_of",
    "affords_repeats",
    "balance",
    "charge_all",
    "close_grant",
    "compensate",
    "executed",
    "executed_by",
    "freeze",
    "is_stream",
    "is_whole",
    "keep",
    "last_kept",
    "lock_accounts",
    "lock_scope",
    "note_reading",
    "note_upload",
    "open_scope",
    "pay",
    "price",
    "reserve",
    "set_grant",
    "settle",
    "unfreeze",
    "verify",
]


def note_reading(session: Session, job: Job, at: float) -> None:
    """Write into the chain, once an attempt, that it may read records from here on; the caller holds the job's lock.

    Args:
        session: an open write transaction.
        job: that is running.
        at: the database's time.
    """
    mine = select(Entry.seq).where(
        Entry.job_id == job.id, Entry.attempt == job.attempt, Entry.kind == kinds.Reading.KIND
    )
    if session.execute(mine).first() is None:
        scope, free = lock_scope(session, job.scope_id), dict[str, Any](accounts={})
        chain.append(session, scope, kinds.Reading, at=at, job_id=job.id, attempt=job.attempt, chunk=0, content=free)


def pay(session: Session, claim: Claim, chunk: int, state: bytes | None, step: int) -> None:
    """Pay for a chunk before it is read, and keep the noised state so far with it.

    An attempt pays for the chunks after those in the state that was kept, one after the other. One that an earlier
    attempt had paid for, and lost, is paid again, out of the job's allowance; a stream's is skipped. Repeating a
    payment of the same attempt, after any doubt whether it was stored, does nothing.

    Args:
        session: an open write transaction.
        claim: the claim of the attempt.
        chunk: k, from 0.
        state: the answers so far, with chunks 0 to k - 1 in it; None keeps nothing.
        step: the public step counter.

    Raises:
        StaleAttempt: the claim no longer holds the job.
        LedgerFrozen: the ledger is behind its witness.
    """
    time_unless_frozen(session)
    job, at = hold(session, claim)
    due = _due(session, job)
    if chunk < due and _is_paid(session, job, chunk):
        return
    ensure(
        chunk == due < len(job.schedule),
        f"chunk {chunk} of {job.id} cannot be paid where chunk {due} is due",
    )
    note_reading(session, job, at)
    if state is not None:
        _store(session, job, state, chunk, at)
    scope, accounts = lock_scope(session, job.scope_id), lock_accounts(session, paying(job))
    again = chunk < job.chunks_spent
    if again:
        amounts = {one.id: allowance.again(job, one, [chunk]) for one in accounts}
        covered = all(covers(allowance.rest(job, account_id), amount) for account_id, amount in amounts.items())
        ensure(covered, "a job with lost chunks is only queued again where its allowance covers them")
        allowance.take(job, amounts)
    else:
        amounts = {one.id: price_of(job, one.id, chunk) for one in accounts}
        job.chunks_spent = chunk + 1
    content = {"accounts": _spend(accounts, amounts), "event": runs_of(job.schedule[chunk : chunk + 1]), "again": again}
    chain.append(session, scope, kinds.Spend, at=at, job_id=job.id, attempt=job.attempt, chunk=chunk, content=content)
    job.step = step
    session.flush()


def _due(session: Session, job: Job) -> int:
    """Return the chunk that the present attempt pays for next."""
    mine = select(func.max(Entry.chunk)).where(
        Entry.job_id == job.id, Entry.attempt == job.attempt, Entry.kind == "spend"
    )
    last = session.execute(mine).scalar_one()
    if last is not None:
        return int(last) + 1
    # Lost chunks of other jobs are drawn again; a stream reads no batch twice.
    return job.chunks_spent if is_stream(job.schedule) else _kept_chunks(session, job)


def _is_paid(session: Session, job: Job, chunk: int) -> bool:
    """Tell whether this attempt has paid a chunk."""
    statement = select(Entry.seq).where(
        Entry.job_id == job.id, Entry.attempt == job.attempt, Entry.chunk == chunk, Entry.kind == "spend"
    )
    return session.execute(statement).first() is not None


def _spend(accounts: Sequence[Account], amounts: Mapping[str, list[int]]) -> dict[str, dict[str, list[int]]]:
    """Move an amount of each locked account from reserved to spent; return the movements."""
    moved = {}
    for account in accounts:
        amount = amounts[account.id]
        ensure(covers(read_slots(account, "reserved"), amount), "a reservation covers its chunks")
        moved[account.id] = move(account, spent=amount, reserved=[-part for part in amount])
    return moved


def affords_repeats(session: Session, job: Job) -> bool:
    """Say whether the rest of a job's allowance pays, at every order, for every chunk that is paid and not kept.

    And there are attempts left, for a job reserves draws for `MOST_RUNS` of them; each that loses something has paid. A
    stream's chunks are never paid again.
    """
    if is_stream(job.schedule):
        return True
    lost = range(_kept_chunks(session, job), job.chunks_spent)
    paying_attempts = select(func.count(Entry.attempt.distinct())).where(Entry.job_id == job.id, Entry.kind == "spend")
    if lost and session.execute(paying_attempts).scalar_one() >= MOST_RUNS:
        return False
    return all(
        covers(allowance.rest(job, account.id), allowance.again(job, account, lost))
        for account in _payers(session, job)
    )


def _payers(session: Session, job: Job) -> list[Account]:
    """Return the accounts that a job pays from, for their orders, which never change; nothing is locked."""
    return [session.get_one(Account, account_id) for account_id in paying(job)]


def keep(session: Session, claim: Claim, state: bytes, step: int) -> None:
    """Keep this attempt's answers, with every chunk that it has paid for, without paying another.

    Used when draining, and for the complete release before post-processing: a retry from there is free.

    Raises:
        StaleAttempt: the claim no longer holds the job.
    """
    job, at = hold(session, claim)
    _store(session, job, state, _due(session, job), at)
    job.step = step
    session.flush()


def _store(session: Session, job: Job, state: bytes, chunks: int, at: float) -> None:
    """Keep a state that has the first `chunks` chunks in it, in place of what was kept before."""
    session.execute(delete(Checkpoint).where(Checkpoint.job_id == job.id))
    session.add(Checkpoint(job_id=job.id, chunk=chunks, attempt=job.attempt, state=state, created_at=at))


def _kept_chunks(session: Session, job: Job) -> int:
    """Return how many chunks are in what was kept."""
    statement = select(func.max(Checkpoint.chunk)).where(Checkpoint.job_id == job.id)
    return session.execute(statement).scalar_one() or 0


def last_kept(session: Session, job_id: str) -> Checkpoint | None:
    """Return what was kept last; a new attempt resumes there, at chunk `chunk`."""
    return session.execute(
        select(Checkpoint).where(Checkpoint.job_id == job_id).order_by(Checkpoint.chunk.desc()).limit(1)
    ).scalar_one_or_none()


def settle(session: Session, job: Job, *, reason: str, release: Mapping[str, Any] | None = None) -> None:
    """Give back what a job reserved and never spent; the caller holds its lock and ends it in this transaction.

    Args:
        session: an open write transaction.
        job: that ends.
        reason: for people; `succeeded` where it releases something, and nowhere else.
        release: the job's release, JSON-ready, as it is stored.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    refuse_if_frozen(session)
    scope = lock_scope(session, job.scope_id)
    moved = {}
    undrawn = _undrawn(session, job)
    for account in lock_accounts(session, paying(job)):
        moved[account.id] = move(account, spent=slots([]), reserved=[-part for part in allowance.held(job, account.id)])
        account.draws -= undrawn
    content = {"accounts": moved, "reason": reason, "draws": undrawn}
    content |= {"release": None if release is None else digest_of(release)}
    at = clock.read(session)
    chain.append(session, scope, kinds.Settle, at=at, job_id=job.id, attempt=0, chunk=0, content=content)
    session.flush()


def _undrawn(session: Session, job: Job) -> int:
    """Return how many units of draws a job has reserved that it cannot have made."""
    if not job.chunks_spent:  # it has paid nothing, and so has drawn nothing
        return job.draws
    said = select(Entry.body).where(Entry.job_id == job.id, Entry.kind == kinds.Reserve.KIND)
    reserved = kinds.Reserve.read(session.execute(said).scalar_one())
    readings = select(func.count()).where(Entry.job_id == job.id, Entry.kind == kinds.Reading.KIND)
    return draws_left(job.draws, reserved.runs, session.execute(readings).scalar_one())


def charge_all(session: Session, job: Job, reason: str) -> None:
    """Spend all that a job still has reserved; the caller holds its lock and ends it in this transaction."""
    refuse_if_frozen(session)
    schedule = [EVENT.validate_python(event) for event in job.schedule]
    events = list(job.schedule[job.chunks_spent :])
    repeats = allowance.repeats_left(job, session.get_one(Account, job.scope_id))
    events += [EVENT.dump_python(allowance.dearest(schedule), mode="json")] * repeats
    scope, accounts = lock_scope(session, job.scope_id), lock_accounts(session, paying(job))
    moved = _spend(accounts, {one.id: allowance.held(job, one.id) for one in accounts})
    content = {"accounts": moved, "event": runs_of(events), "reason": reason}
    at, chunk = clock.read(session), len(schedule)
    chain.append(session, scope, kinds.Charge, at=at, job_id=job.id, attempt=job.attempt, chunk=chunk, content=content)
    # After `held`, which counts the chunks that are not paid yet.
    job.chunks_spent = chunk
    job.allowance_spent = job.allowance
    session.flush()
