"""The ledger: reserve at submit, spend ahead of every reading, settle what was never spent.

Each movement is one line of its scope's chain and one change of the accounts, in one transaction, under locks that
are always taken in the same order: principal, job, scope, accounts by id. A cap is checked by the admission rule and
again by the table's CHECK; a committed spend is never returned, except by the owner's visible correction.

Chunks are numbered from 0. Chunk k of K charges C(k + 1) - C(k) of the cumulative prices frozen at reserve, so chunks
never sum past the reservation C(K).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.errors import BudgetExhausted, BudgetReserved, Conflict, ScopeFrozen
from core.privacy.budget import Terms, admits, covers, smallest_change
from core.privacy.events import EVENT, Event, compose
from core.privacy.renyi import MAX_NANO, prefix_costs
from core.store import chain, clock
from core.store.accounts import (
    Balance,
    Totals,
    balance,
    balance_of,
    described,
    difference,
    lock_accounts,
    lock_scope,
    move,
    paying,
    read_slots,
    set_terms,
    slots,
    terms_of,
    total_at,
)
from core.store.claims import Claim, hold, refuse_if_frozen
from core.store.corrections import compensate, freeze, unfreeze
from core.store.ids import new_id
from core.store.tables import Account, Checkpoint, Entry, Job, Principal, Scope
from core.store.verification import Verification, executed, executed_by, resum, verify

__all__ = [
    "MAX_CHUNKS",
    "Balance",
    "Verification",
    "balance",
    "charge_all",
    "compensate",
    "executed",
    "executed_by",
    "freeze",
    "grant_terms",
    "keep",
    "last_kept",
    "lock_scope",
    "open_scope",
    "reserve",
    "resum",
    "set_grant",
    "settle",
    "spend",
    "unfreeze",
    "verify",
]

MAX_CHUNKS: Final = 100
RETRY_SECONDS: Final = 30


def open_scope(
    session: Session,
    *,
    owner_id: str,
    unit: str | Mapping[str, Any],
    adjacency: str,
    units: int,
    terms: Terms,
    declared: Mapping[str, Any],
) -> Scope:
    """Make a scope with its account and the first entry of its chain.

    Args:
        session: an open write transaction.
        owner_id: the principal who answers for it.
        unit: ``record``, or the user column and the most records of one user.
        adjacency: ``zero_out`` or ``replace_one``.
        units: n, public by the owner's word.
        terms: orders, weights and caps, fixed from now on.
        declared: the budget as the owner wrote it.
    """
    at = clock.read(session)
    scope = Scope(
        id=new_id("sc"),
        owner_id=owner_id,
        unit=unit,
        adjacency=adjacency,
        units=units,
        approval=False,
        seq=0,
        head=chain.GENESIS,
        created_at=at,
    )
    session.add(scope)
    session.flush()
    session.add(_new_account(scope.id, scope.id, None, terms, declared))
    content = {"account": scope.id, "terms": described(terms, declared), "actor": owner_id, "accounts": {}}
    chain.append(session, scope, "open", at=at, content={**content, "adjacency": adjacency, "units": units})
    session.flush()
    return scope


def set_grant(
    session: Session, scope_id: str, principal_id: str, terms: Terms, declared: Mapping[str, Any], *, actor: str = ""
) -> Account:
    """Give a principal an own ceiling inside a scope's budget, or change it.

    A ceiling that was used keeps its orders, weights and delta: `grant_terms` moves a new epsilon onto them. It may
    not fall below what is already spent and reserved.

    Raises:
        NotFound: there is no such scope.
        Conflict: the new ceiling lies below what was used, or has other orders, weights or delta than a used one.
    """
    scope = lock_scope(session, scope_id)
    found = session.execute(
        select(Account.id).where(Account.scope_id == scope_id, Account.principal_id == principal_id)
    ).scalar_one_or_none()
    if found is None:
        account = _new_account(new_id("gr"), scope_id, principal_id, terms, declared)
        session.add(account)
    else:
        (account,) = lock_accounts(session, [found])
        _change_terms(account, terms)
        account.declared = dict(declared)
    content = {"account": account.id, "terms": described(terms, declared), "actor": actor, "accounts": {}}
    chain.append(session, scope, "grant", at=clock.read(session), content={**content, "principal": principal_id})
    session.flush()
    return account


def grant_terms(session: Session, scope_id: str, principal_id: str) -> Terms | None:
    """Return the terms of a principal's ceiling, None where there is none."""
    account = session.execute(
        select(Account).where(Account.scope_id == scope_id, Account.principal_id == principal_id)
    ).scalar_one_or_none()
    return None if account is None else terms_of(account)


def _new_account(
    account_id: str, scope_id: str, principal_id: str | None, terms: Terms, declared: Mapping[str, Any]
) -> Account:
    """Return an account with nothing spent or reserved."""
    account = Account(id=account_id, scope_id=scope_id, principal_id=principal_id, declared=dict(declared))
    set_terms(account, terms)
    for slot in range(1, 5):
        setattr(account, f"spent_{slot}", 0)
        setattr(account, f"reserved_{slot}", 0)
    return account


def _change_terms(account: Account, terms: Terms) -> None:
    """Put new terms on a grant, where the promise it has already made allows that."""
    old = balance_of(account)
    if any(old.spent) or any(old.reserved):
        if (old.terms.orders, old.terms.weights, old.terms.delta) != (terms.orders, terms.weights, terms.delta):
            raise Conflict("This grant was used: its delta and orders are fixed; give it another epsilon only.")
        if not admits(terms, old.spent, old.reserved, [0] * len(terms.orders)):
            raise Conflict("This grant would fall below what was already spent and reserved.")
    set_terms(account, terms)


def reserve(session: Session, job: Job, schedule: Sequence[Event]) -> None:
    """Reserve the most a job may cost, from its scope and from its owner's grant, or refuse.

    Fills `price`, `schedule` and `chunks` of the job, which was added in this same transaction. A caller without a
    grant draws on the scope's own account; whether that is allowed is the service's to say.

    Args:
        session: an open write transaction.
        job: a job that is not yet stored.
        schedule: what each chunk draws, in order, frozen from here on; 1 to 100 chunks.

    Raises:
        BudgetExhausted: it does not fit; the facts say by how much.
        BudgetReserved: it would fit if the present reservations were given back.
        ScopeFrozen: the owner or the auditor has frozen the scope.
        LedgerFrozen: the ledger is behind its witness.
    """
    assert 1 <= len(schedule) <= MAX_CHUNKS, "a job has 1 to 100 chunks"
    with session.no_autoflush:
        refuse_if_frozen(session)
        session.execute(
            select(Principal.id).where(Principal.id == job.owner_id).with_for_update(key_share=True)
        ).scalar_one()
        scope = lock_scope(session, job.scope_id)
        if scope.frozen_reason is not None:
            raise ScopeFrozen("This scope is frozen: it admits no job until its owner unfreezes it.")
        accounts = lock_accounts(session, paying(job))
        assert len(accounts) == len(paying(job)), "a job pays from accounts that exist"
        totals = {account.id: _totals(schedule, terms_of(account)) for account in accounts}
        for account in accounts:
            _admit(balance_of(account), totals[account.id][-1])
        counted = Counter(schedule)
        job.price = EVENT.dump_python(compose(counted), mode="json")
        job.schedule = [EVENT.dump_python(event, mode="json") for event in schedule]
        job.chunks = totals
        moved = {account.id: move(account, spent=slots([]), reserved=totals[account.id][-1]) for account in accounts}
        content = {"accounts": moved, "event": job.price, "schedule": _runs(job.schedule), "actor": job.owner_id}
        at = clock.read(session)
        chain.append(session, scope, "reserve", at=at, job_id=job.id, attempt=0, chunk=0, content=content)
    session.flush()


def _totals(schedule: Sequence[Event], terms: Terms) -> Totals:
    """Return C(1), ..., C(K) in four slots."""
    return [slots(total) for total in prefix_costs(schedule, terms.orders)]


def _runs(schedule: Sequence[Any]) -> list[list[Any]]:
    """Return a schedule as runs of equal events: [how many, event]."""
    runs: list[list[Any]] = []
    for event in schedule:
        if runs and runs[-1][1] == event:
            runs[-1][0] += 1
        else:
            runs.append([1, event])
    return runs


def _admit(account: Balance, cost: Sequence[int]) -> None:
    """Refuse a cost that does not fit an account."""
    terms, spent, reserved = account.terms, account.spent, account.reserved
    price = cost[: len(terms.orders)]
    countable = all(sum(amounts) < MAX_NANO for amounts in zip(spent, reserved, price, strict=True))
    if countable and admits(terms, spent, reserved, price):
        return
    if countable and admits(terms, spent, [0] * len(price), price):
        raise BudgetReserved(
            "The job does not fit now, but would if the present reservations were given back.",
            retry_after_seconds=RETRY_SECONDS,
        )
    short = smallest_change(terms, spent, reserved, price)
    if short is None:  # admitted at one order, beyond what a column can count at another
        raise BudgetExhausted("The job's price at one order cannot be counted; ask for noisier answers.")
    raise BudgetExhausted(
        f"The job asks {short.required} % of the budget; {short.available} % is left. "
        f"It would fit at {short.share:.4g} of its price, for example as mu {short.mu:.4g}.",
        required_percent=str(short.required),
        available_percent=str(short.available),
        fits_at_share=f"{short.share:.6g}",
        fits_at_rho=f"{short.rho:.6g}",
        fits_at_mu=f"{short.mu:.6g}",
    )


def spend(session: Session, claim: Claim, chunk: int, state: bytes | None, step: int) -> None:
    """Pay for a chunk before it is read, and keep the noised state so far with it.

    Repeating a spend of the same attempt, after any doubt whether it was stored, does nothing.

    Args:
        session: an open write transaction.
        claim: who asks.
        chunk: k, from 0; all chunks before it must be paid.
        state: what the method kept, with chunks 0 to k - 1 in it; None keeps nothing.
        step: the public step counter.

    Raises:
        StaleAttempt: the claim no longer holds the job.
        LedgerFrozen: the ledger is behind its witness.
    """
    refuse_if_frozen(session)
    job, at = hold(session, claim)
    if chunk < job.chunks_spent and _is_paid(session, job, chunk):
        return
    assert chunk == job.chunks_spent, f"chunk {chunk} of {job.id} cannot be paid after {job.chunks_spent} chunks"
    assert chunk < len(job.schedule), f"{job.id} has {len(job.schedule)} chunks only"
    if state is not None:
        _store(session, job, state, at)
    _pay(session, job, chunk + 1, at, chunk=chunk, content={"event": _runs(job.schedule[chunk : chunk + 1])})
    job.step = step
    session.flush()


def _is_paid(session: Session, job: Job, chunk: int) -> bool:
    """Tell whether this attempt has paid a chunk."""
    statement = select(Entry.seq).where(
        Entry.job_id == job.id, Entry.attempt == job.attempt, Entry.chunk == chunk, Entry.kind == "spend"
    )
    return session.execute(statement).first() is not None


def _pay(session: Session, job: Job, upto: int, at: float, *, chunk: int, content: Mapping[str, Any]) -> None:
    """Move the price of the chunks below `upto` that are not paid yet from reserved to spent."""
    scope = lock_scope(session, job.scope_id)
    moved = {}
    for account in lock_accounts(session, paying(job)):
        amount = difference(total_at(job, account.id, upto), total_at(job, account.id, job.chunks_spent))
        assert covers(read_slots(account, "reserved"), amount), "a reservation covers its chunks"
        moved[account.id] = move(account, spent=amount, reserved=[-part for part in amount])
    job.chunks_spent = upto
    chain.append(
        session,
        scope,
        "spend",
        at=at,
        job_id=job.id,
        attempt=job.attempt,
        chunk=chunk,
        content={"accounts": moved, **content},
    )


def keep(session: Session, claim: Claim, state: bytes, step: int) -> None:
    """Keep a noised state that has every paid chunk in it, without paying another.

    Used when draining, and for the complete release before post-processing: a retry from there is free.

    Raises:
        StaleAttempt: the claim no longer holds the job.
    """
    job, at = hold(session, claim)
    _store(session, job, state, at)
    job.step = step
    session.flush()


def _store(session: Session, job: Job, state: bytes, at: float) -> None:
    """Keep a state that has the first `chunks_spent` chunks in it."""
    key = {"job_id": job.id, "chunk": job.chunks_spent}
    session.merge(Checkpoint(**key, attempt=job.attempt, state=state, created_at=at))


def last_kept(session: Session, job_id: str) -> Checkpoint | None:
    """Return the last state that was kept; a new attempt resumes there, at chunk `chunk`."""
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
        amount = difference(total_at(job, account.id, len(job.schedule)), total_at(job, account.id, job.chunks_spent))
        moved[account.id] = move(account, spent=slots([]), reserved=[-part for part in amount])
    content = {"accounts": moved, "reason": reason}
    at = clock.read(session)
    chain.append(session, scope, "settle", at=at, job_id=job.id, attempt=0, chunk=0, content=content)
    session.flush()


def charge_all(session: Session, job: Job, reason: str) -> None:
    """Spend all that a job still has reserved; the caller holds its lock and ends it in this transaction."""
    refuse_if_frozen(session)
    paid = job.chunks_spent
    content = {"event": _runs(job.schedule[paid:]), "reason": reason}
    _pay(session, job, len(job.schedule), clock.read(session), chunk=len(job.schedule), content=content)
    session.flush()
