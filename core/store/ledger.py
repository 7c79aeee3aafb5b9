"""The ledger: reserve at submit, spend ahead of every reading, settle what was never spent.

Each movement is one line of its scope's chain and one change of the accounts, in one transaction, under locks that
are always taken in the same order: principal, job, scope, accounts by id. A cap is checked by the admission rule and
again by the table's CHECK; a committed spend is never returned, except by the owner's visible correction.

Chunks are numbered from 0. Chunk k of K charges C(k + 1) - C(k) of the cumulative prices frozen at reserve, so chunks
never sum past C(K). A chunk that was lost with its worker is paid again, out of the allowance that was reserved beside
C(K) (`core.store.allowance`), by an entry of the new attempt that says so. A stream's is not: its first chunk pays for
the whole stream, and a new attempt goes on after the last chunk that any attempt has paid for.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from core.errors import BudgetExhausted, BudgetReserved, FieldError, ScopeFrozen
from core.privacy.budget import Terms, admits, covers, smallest_change
from core.privacy.events import EVENT
from core.privacy.renyi import MAX_NANO
from core.store import allowance, chain, clock
from core.store.accounts import (
    Balance,
    balance,
    balance_of,
    difference,
    lock_accounts,
    lock_scope,
    move,
    paying,
    read_slots,
    slots,
    terms_of,
    total_at,
)
from core.store.claims import Claim, hold, refuse_if_frozen, time_unless_frozen
from core.store.corrections import compensate, freeze, unfreeze
from core.store.opening import grant_terms, open_scope, set_grant
from core.store.schedules import MAX_CHUNKS, Schedule, is_stream, runs_of
from core.store.tables import Account, Checkpoint, Entry, Job, Scope
from core.store.verification import Verification, executed, executed_by, resum, verify

__all__ = [
    "MAX_CHUNKS",
    "Balance",
    "Books",
    "Schedule",
    "Verification",
    "affords_repeats",
    "balance",
    "charge_all",
    "compensate",
    "executed",
    "executed_by",
    "freeze",
    "grant_terms",
    "is_stream",
    "keep",
    "last_kept",
    "lock_scope",
    "open_books",
    "open_scope",
    "price",
    "reserve",
    "resum",
    "set_grant",
    "settle",
    "spend",
    "unfreeze",
    "verify",
]

RETRY_SECONDS: Final = 30


@dataclass(frozen=True)
class Books:
    """The scopes and accounts that some jobs are to pay from, locked until the transaction ends."""

    session: Session
    scopes: Mapping[str, Scope]
    accounts: Mapping[str, Account]
    terms: Mapping[str, Terms]
    """Of each account."""
    at: float
    """The database's time once all of them were locked."""


def open_books(session: Session, jobs: Iterable[Job]) -> Books:
    """Lock what some jobs that are not stored yet are to pay from; the caller holds their owners' locks.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    wanted = list(jobs)
    scopes = {scope_id: lock_scope(session, scope_id) for scope_id in sorted({job.scope_id for job in wanted})}
    accounts = lock_accounts(session, {account_id for job in wanted for account_id in paying(job)})
    return Books(
        session,
        scopes,
        accounts={account.id: account for account in accounts},
        terms={account.id: terms_of(account) for account in accounts},
        at=time_unless_frozen(session),
    )


def reserve(books: Books, job: Job, schedule: Schedule) -> int:
    """Reserve the most a job may cost, from its scope and from its owner's grant, or refuse and change nothing.

    Jobs that share books are admitted one after the other, each against what those before it have left. A caller
    without a grant draws on the scope's own account; whether that is allowed is the service's to say.

    Args:
        books: opened for this job, among others.
        job: a job that is not yet stored; its `price`, `schedule`, `chunks` and `allowance` are filled.
        schedule: what it draws, frozen from here on.

    Returns:
        The number of its entry in the scope's chain.

    Raises:
        BudgetExhausted: it does not fit; the facts say by how much, the fields whether it would without allowance.
        BudgetReserved: it would fit if the present reservations were given back.
        ScopeFrozen: the owner or the auditor has frozen the scope.
    """
    scope = books.scopes[job.scope_id]
    if scope.frozen_reason is not None:
        raise ScopeFrozen("This scope is frozen: it admits no job until its owner unfreezes it.")
    accounts = [books.accounts[account_id] for account_id in paying(job)]
    price(job, schedule, {account.id: books.terms[account.id] for account in accounts})
    _admit(job, [(account.id, balance_of(account, books.terms[account.id])) for account in accounts])
    moved = {
        account.id: move(account, spent=slots([]), reserved=allowance.held(job, account.id)) for account in accounts
    }
    content = {"accounts": moved, "event": job.price, "schedule": schedule.runs, "actor": job.owner_id}
    times = schedule.retry_allowance
    content |= {"retry_allowance": times, "allowance": job.allowance} if times else {}
    chain.append(books.session, scope, "reserve", at=books.at, job_id=job.id, attempt=0, chunk=0, content=content)
    return scope.seq


def price(job: Job, schedule: Schedule, terms: Mapping[str, Terms]) -> None:
    """Fill in what a job that is not yet stored would cost the accounts with these terms, by their identifiers."""
    job.price, job.schedule = schedule.price, schedule.chunks
    job.chunks = {account_id: schedule.amounts(own)[0] for account_id, own in terms.items()}
    job.allowance = {account_id: schedule.amounts(own)[1] for account_id, own in terms.items()}
    job.allowance_spent = {account_id: slots([]) for account_id in terms}


def _admit(job: Job, balances: Sequence[tuple[str, Balance]]) -> None:
    """Refuse a job that does not fit each of its accounts, its allowance with it; say if it would without."""
    for account_id, held in balances:
        refusal = _refusal(held, job.chunks[account_id][-1], job.allowance[account_id])
        if refusal is None:
            continue
        bare = all(_fits(other, job.chunks[other_id][-1]) for other_id, other in balances)
        if not bare:
            raise refusal
        raise type(refusal)(
            f"{refusal.detail} With retry_allowance 0 it fits as it is: a worker lost with a chunk then fails the job.",
            FieldError("/retry_allowance", "give 0 and the job fits"),
            retry_after_seconds=refusal.retry_after_seconds,
            **refusal.facts,
        )


def _refusal(account: Balance, price: Sequence[int], beside: Sequence[int]) -> BudgetExhausted | BudgetReserved | None:
    """Say why a price with an allowance beside it does not fit an account; None where it does."""
    terms = account.terms
    cost = [one + other for one, other in zip(price, beside, strict=True)]
    if _fits(account, cost):
        return None
    if _fits(Balance(terms, account.spent, (0,) * len(terms.orders)), cost):
        return BudgetReserved(
            "The job does not fit now, but would if the present reservations were given back.",
            retry_after_seconds=RETRY_SECONDS,
        )
    short = smallest_change(terms, account.spent, account.reserved, cost[: len(terms.orders)])
    if short is None:  # admitted at one order, beyond what a column can count at another
        return BudgetExhausted("The job's price at one order cannot be counted; ask for noisier answers.")
    part = min(one / both for one, both in zip(price, cost, strict=True) if both)
    mu, rho = short.mu * sqrt(part), short.rho * part
    return BudgetExhausted(
        f"The job asks {short.required} % of the budget; {short.available} % is left. "
        f"It would fit at {short.share:.4g} of its price, for example as mu {mu:.4g}.",
        required_percent=str(short.required),
        available_percent=str(short.available),
        fits_at_share=f"{short.share:.6g}",
        fits_at_rho=f"{rho:.6g}",
        fits_at_mu=f"{mu:.6g}",
    )


def _fits(account: Balance, cost: Sequence[int]) -> bool:
    """Say whether an account admits a cost, and can count it at every order."""
    price = cost[: len(account.terms.orders)]
    counted = zip(account.spent, account.reserved, price, strict=True)
    countable = all(sum(amounts) < MAX_NANO for amounts in counted)
    return countable and admits(account.terms, account.spent, account.reserved, price)


def spend(session: Session, claim: Claim, chunk: int, state: bytes | None, step: int) -> None:
    """Pay for a chunk before it is read, and keep the noised state so far with it.

    An attempt pays for the chunks after those in the state that was kept, one after the other. One that an earlier
    attempt had paid for, and lost, is paid again, out of the job's allowance; a stream's is skipped. Repeating a spend
    of the same attempt, after any doubt whether it was stored, does nothing.

    Args:
        session: an open write transaction.
        claim: who asks.
        chunk: k, from 0.
        state: what was told so far, with chunks 0 to k - 1 in it; None keeps nothing.
        step: the public step counter.

    Raises:
        StaleAttempt: the claim no longer holds the job.
        LedgerFrozen: the ledger is behind its witness.
    """
    refuse_if_frozen(session)
    job, at = hold(session, claim)
    due = _due(session, job)
    if chunk < due and _is_paid(session, job, chunk):
        return
    assert chunk == due, f"chunk {chunk} of {job.id} cannot be paid where chunk {due} is due"
    assert chunk < len(job.schedule), f"{job.id} has {len(job.schedule)} chunks only"
    if state is not None:
        _store(session, job, state, chunk, at)
    if chunk < job.chunks_spent:
        _pay_again(session, job, chunk, at)
    else:
        _pay(session, job, chunk, at)
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
    return job.chunks_spent if is_stream(job.schedule) else _kept_chunks(session, job)


def _is_paid(session: Session, job: Job, chunk: int) -> bool:
    """Tell whether this attempt has paid a chunk."""
    statement = select(Entry.seq).where(
        Entry.job_id == job.id, Entry.attempt == job.attempt, Entry.chunk == chunk, Entry.kind == "spend"
    )
    return session.execute(statement).first() is not None


def _pay(session: Session, job: Job, chunk: int, at: float) -> None:
    """Pay for a chunk for the first time."""
    content = {"event": runs_of(job.schedule[chunk : chunk + 1])}
    _spend(
        session,
        job,
        at,
        lambda account: difference(total_at(job, account.id, chunk + 1), total_at(job, account.id, chunk)),
        chunk=chunk,
        content=content,
    )
    job.chunks_spent = chunk + 1


def _pay_again(session: Session, job: Job, chunk: int, at: float) -> None:
    """Pay for a chunk that was paid before and lost."""
    taken = {account.id: allowance.again(job, account, [chunk]) for account in _payers(session, job)}
    covered = all(covers(allowance.rest(job, account_id), amount) for account_id, amount in taken.items())
    assert covered, "a job with lost chunks is only queued again where its allowance covers them"
    content = {"event": runs_of(job.schedule[chunk : chunk + 1]), "repeats": chunk, "allowance": taken}
    _spend(session, job, at, lambda account: taken[account.id], chunk=chunk, content=content)
    allowance.take(job, taken)


def _spend(
    session: Session,
    job: Job,
    at: float,
    amount_of: Callable[[Account], list[int]],
    *,
    chunk: int,
    content: Mapping[str, Any],
) -> None:
    """Move an amount of each account from reserved to spent."""
    scope = lock_scope(session, job.scope_id)
    moved = {}
    for account in lock_accounts(session, paying(job)):
        amount = amount_of(account)
        assert covers(read_slots(account, "reserved"), amount), "a reservation covers its chunks"
        moved[account.id] = move(account, spent=amount, reserved=[-part for part in amount])
    told = {"accounts": moved, **content}
    chain.append(session, scope, "spend", at=at, job_id=job.id, attempt=job.attempt, chunk=chunk, content=told)


def affords_repeats(session: Session, job: Job) -> bool:
    """Say whether the rest of a job's allowance pays, at every order, for every chunk that is paid and not kept.

    A stream's are never paid again.
    """
    if is_stream(job.schedule):
        return True
    lost = range(_kept_chunks(session, job), job.chunks_spent)
    return all(
        covers(allowance.rest(job, account.id), allowance.again(job, account, lost))
        for account in _payers(session, job)
    )


def _payers(session: Session, job: Job) -> list[Account]:
    """Return the accounts that a job pays from, for their orders, which never change; nothing is locked."""
    return [session.get_one(Account, account_id) for account_id in paying(job)]


def keep(session: Session, claim: Claim, state: bytes, step: int) -> None:
    """Keep what this attempt was told, with every chunk in it that it has paid for, without paying another.

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


def settle(session: Session, job: Job, *, reason: str) -> None:
    """Give back what a job reserved and never spent; the caller holds its lock and ends it in this transaction.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    refuse_if_frozen(session)
    scope = lock_scope(session, job.scope_id)
    moved = {}
    for account in lock_accounts(session, paying(job)):
        moved[account.id] = move(account, spent=slots([]), reserved=[-part for part in allowance.held(job, account.id)])
    content = {"accounts": moved, "reason": reason, **_unused(job)}
    at = clock.read(session)
    chain.append(session, scope, "settle", at=at, job_id=job.id, attempt=0, chunk=0, content=content)
    session.flush()


def charge_all(session: Session, job: Job, reason: str) -> None:
    """Spend all that a job still has reserved; the caller holds its lock and ends it in this transaction."""
    refuse_if_frozen(session)
    schedule = [EVENT.validate_python(event) for event in job.schedule]
    events = list(job.schedule[job.chunks_spent :])
    repeats = allowance.repeats_left(job, session.get_one(Account, job.scope_id))
    events += [EVENT.dump_python(allowance.dearest(schedule), mode="json")] * repeats
    content = {"event": runs_of(events), "reason": reason, **_unused(job)}
    at = clock.read(session)
    _spend(session, job, at, lambda account: allowance.held(job, account.id), chunk=len(schedule), content=content)
    job.chunks_spent = len(schedule)
    job.allowance_spent = job.allowance
    session.flush()


def _unused(job: Job) -> dict[str, Any]:
    """Return the rest of a job's allowance as an entry's body tells it; nothing where there is none."""
    left = {account_id: allowance.rest(job, account_id) for account_id in paying(job)}
    return {"allowance": left} if any(map(any, left.values())) else {}
