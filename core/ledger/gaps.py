"""Ranges of time in which entries of a scope may be missing, because the ledger went on without its witness."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from core.base.errors import Conflict, FieldError, Invalid
from core.db import clock
from core.db.tables import Scope
from core.ledger import chain, kinds
from core.ledger.accounts import lock_scope
from core.privacy.facts import Frozen


class Gap(Frozen):
    """A range of time in which entries may be missing; seconds since the epoch by the database's clock."""

    entry: int
    """The number of the entry that says so."""
    since: float
    """The time of the entry before it."""
    until: float
    """When the ledger went on."""
    accepted: int | None = None
    """The number of the entry by which the owner has accepted it; None: the scope waits for that."""


def gaps_of(scope: Scope) -> tuple[Gap, ...]:
    """Return a scope's gaps, oldest first."""
    return tuple(Gap.model_validate(one) for one in scope.unwitnessed or ())


def pending(scope: Scope) -> Gap | None:
    """Return the gap that a scope's owner has still to accept; None where it admits jobs as far as that goes."""
    return next((gap for gap in reversed(gaps_of(scope)) if gap.accepted is None), None)


def why_stopped(scope: Scope) -> str | None:
    """Return why a scope admits no job; None where it does."""
    if scope.frozen_reason is not None:
        return scope.frozen_reason
    gap = pending(scope)
    if gap is None:
        return None
    return f"entry {gap.entry} says that entries before it may be missing: the owner must accept that"


def note(session: Session, scope: Scope, actor: str, reason: str) -> None:
    """Write into a locked scope's chain that entries since its last one may be missing."""
    since, until = chain.last_time(session, scope), clock.read(session)
    content: dict[str, Any] = {"accounts": {}, "actor": actor, "reason": reason, "since": since}
    # `until` is cut as `chain.append` cuts the entry's time: verification demands that both are equal.
    entry = chain.append(
        session, scope, kinds.Unwitnessed, at=until, content=content | {"until": max(since, float(int(until)))}
    )
    gap = Gap(entry=entry.seq, since=since, until=entry.created_at)
    _store(scope, [*gaps_of(scope), gap])


def accept(session: Session, scope_id: str, entry: int, reason: str, actor: str) -> Scope:
    """Let a scope go on although entries may be missing: its owner has accepted that.

    Args:
        session: an open write transaction.
        scope_id: the scope.
        entry: the number of the entry that says so.
        reason: for people; it stays in the chain for ever.
        actor: the owner's id.

    Raises:
        NotFound: there is no such scope.
        Conflict: nothing waits to be accepted.
        Invalid: another entry does.
    """
    scope = lock_scope(session, scope_id)
    gap = pending(scope)
    if gap is None:
        raise Conflict("Nothing waits to be accepted in this scope.")
    if gap.entry != entry:
        raise Invalid("This entry waits for nobody.", FieldError("/entry", f"accept entry {gap.entry}"))
    content = {"accounts": {}, "entry": entry, "reason": reason, "actor": actor}
    made = chain.append(session, scope, kinds.Accept, at=clock.read(session), content=content)
    # Whoever accepts the last gap knows of those before it: the views show all of them.
    _store(scope, [one.model_copy(update={"accepted": one.accepted or made.seq}) for one in gaps_of(scope)])
    session.flush()
    return scope


def _store(scope: Scope, gaps: Sequence[Gap]) -> None:
    scope.unwitnessed = [gap.model_dump(mode="json") for gap in gaps]
