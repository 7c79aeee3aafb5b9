"""Entries that the owner may write by hand: a freeze, its end, a charge given back after a proven fault."""

import json
from fractions import Fraction
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from core.base.errors import Conflict, FieldError, Invalid
from core.db import clock
from core.db.tables import TERMINAL_STATES, ApiKey, Attempt, Entry, Model, Scope
from core.ledger import chain, kinds
from core.ledger.accounts import lock_accounts, lock_scope, move, paying
from core.ledger.allowance import charged
from core.ledger.bodies import Body, slots
from core.ledger.claims import lock_job, refuse_if_frozen
from core.ledger.job_entries import COMPENSATIONS_PER_DAY, DAY_SECONDS


def freeze(session: Session, scope_id: str, reason: str, actor: str) -> Scope:
    """Stop a scope from admitting jobs; one that is frozen already keeps its first reason.

    Args:
        session: an open write transaction.
        scope_id: the scope.
        reason: for people; it stays in the chain for ever.
        actor: the principal's id.

    Raises:
        NotFound: there is no such scope.
    """
    scope = lock_scope(session, scope_id)
    if scope.frozen_reason is None:
        scope.frozen_reason = reason
        _note(session, scope, kinds.Freeze, reason, actor)
    return scope


def note_recovery(session: Session, key: ApiKey) -> None:
    """Write into each chain of a principal that the operator made a key for it, which opens nothing for a while.

    Args:
        session: an open write transaction that holds the principal's lock.
        key: that was made.
    """
    # Scopes are locked in ascending order, as `accounts_of` locks them.
    owned = select(Scope.id).where(Scope.owner_id == key.principal_id).order_by(Scope.id)
    for scope_id in session.execute(owned).scalars().all():
        scope = lock_scope(session, scope_id)
        content: dict[str, Any] = {
            "accounts": {},
            "key": key.id,
            "principal": key.principal_id,
            "starts_at": key.starts_at,
        }
        content |= {"reason": "all keys of the owner were said to be lost", "actor": "operator"}
        chain.append(session, scope, kinds.Recovery, at=clock.read(session), content=content)
    session.flush()


def mark_frozen(session: Session, scope_id: str, reason: str) -> None:
    """Stop a scope whose chain takes no entry any more from admitting jobs."""
    unmarked = update(Scope).where(Scope.id == scope_id, Scope.frozen_reason.is_(None))
    session.execute(unmarked.values(frozen_reason=reason))


def unfreeze(session: Session, scope_id: str, reason: str, actor: str) -> Scope:
    """Let a scope admit jobs again; arguments and errors as `freeze`."""
    scope = lock_scope(session, scope_id)
    if scope.frozen_reason is not None:
        scope.frozen_reason = None
        _note(session, scope, kinds.Unfreeze, reason, actor)
    return scope


def _note(session: Session, scope: Scope, form: type[Body], reason: str, actor: str) -> None:
    """Append an entry that moves nothing."""
    content = {"accounts": {}, "reason": reason, "actor": actor}
    chain.append(session, scope, form, at=clock.read(session), content=content)
    session.flush()


def compensate(session: Session, scope_id: str, job_id: str, fraction: Fraction, reason: str, actor: str) -> Entry:
    """Give back a share of what a job was charged, after a fault of ours that is proven: it never opened the records.

    Args:
        session: an open write transaction.
        scope_id: the scope that paid.
        job_id: the job, ended.
        fraction: the share, above 0 and at most 1; amounts are rounded down.
        reason: for people; it stays in the chain for ever.
        actor: the owner's id.

    Raises:
        NotFound: there is no such job or scope.
        Invalid: the share is out of range.
        Conflict: the job has not ended, was charged nothing, has opened the records, or was compensated before; or
            the scope has had as many compensations today as it may.
    """
    if not 0 < fraction <= 1:
        raise Invalid("A share of a charge is above 0 and at most 1.", FieldError("/fraction", "give at most 1"))
    refuse_if_frozen(session)
    # The job before its scope, as everywhere in the ledger, so that no two transactions deadlock.
    job = lock_job(session, job_id)
    scope = lock_scope(session, scope_id)
    at = clock.read(session)
    _refuse_unproven(session, scope, job_id, at)
    if job.scope_id != scope_id or job.state not in TERMINAL_STATES or job.chunks_spent == 0:
        raise Conflict("Only an ended job of this scope that was charged can be compensated.")
    moved = {}
    for account in lock_accounts(session, paying(job)):
        back = [-int(fraction * part) for part in charged(job, account.id)]
        moved[account.id] = move(account, spent=back, reserved=slots([]))
    content = {"accounts": moved, "fraction": str(fraction), "reason": reason, "actor": actor}
    entry = chain.append(session, scope, kinds.Compensate, at=at, job_id=job_id, attempt=0, chunk=0, content=content)
    session.flush()
    return entry


def may_have_read(session: Session, job_id: str) -> bool:
    """Say whether a job's charge stands: an entry says that it may have read records, or anything else speaks for it.

    Jobs of entries of version 1 have no such entry: there whatever was charged may have been read. A model that was
    released, and a time in an attempt's row, are beside the chain: a change of the database can remove them.
    """
    mine = select(Entry.kind, Entry.body).where(Entry.job_id == job_id, Entry.kind.in_(("read", "spend", "charge")))
    for entry in session.execute(mine):
        if entry.kind != "charge" or json.loads(entry.body)["v"] == 1:
            return True
    opened = select(func.count()).where(Attempt.job_id == job_id, Attempt.opened_at.is_not(None))
    made = select(func.count()).where(Model.job_id == job_id)
    return any(session.execute(count).scalar_one() for count in (opened, made))


def _refuse_unproven(session: Session, scope: Scope, job_id: str, at: float) -> None:
    """Refuse what would be an increase of the promise, or one correction too many."""
    if may_have_read(session, job_id):
        raise Conflict("This job may have read the records: its charge stands.")
    made = select(Entry.job_id, Entry.created_at).where(Entry.scope_id == scope.id, Entry.kind == "compensate")
    before = session.execute(made).all()
    if any(entry.job_id == job_id for entry in before):
        raise Conflict("This job's charge was compensated already; once is all.")
    if sum(entry.created_at > at - DAY_SECONDS for entry in before) >= COMPENSATIONS_PER_DAY:
        raise Conflict(f"A scope has at most {COMPENSATIONS_PER_DAY} compensations in 24 hours.")
