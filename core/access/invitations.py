"""Invitations: one-time links by which a new colleague becomes a principal and gets a key that nobody else has seen.

The token of a link is 256 random bits; a row keeps its BLAKE2b hash alone. A link ends with its use, when somebody
withdraws it, after a week, and while its maker is disabled.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import func, inspect, select, update
from sqlalchemy.orm import Session

from core.access.principals import lock
from core.base.errors import Conflict
from core.base.identifiers import new_id
from core.db import clock
from core.db.service_tables import Invitation

TOKEN_BYTES: Final = 32
LASTS_SECONDS: Final = 7 * 86_400.0
MOST_WAITING: Final = 100
"""Of one principal."""
_PERSON: Final = b"farthing invite"
"""BLAKE2b's personalisation: a hash of ours is no hash of anything else."""


def make(
    session: Session,
    *,
    made_by: str,
    role: str,
    note: str,
    dataset_id: str | None,
    budget_cap: Mapping[str, Any] | str | None,
) -> tuple[Invitation, str]:
    """Add an invitation; return it with its token, which is kept nowhere.

    Raises:
        Conflict: its maker has too many that wait, or is disabled.
    """
    if lock(session, made_by).disabled_at is not None:
        raise Conflict("This principal is disabled: it invites nobody.")
    at = clock.read(session)
    waiting = select(func.count()).select_from(Invitation).where(Invitation.made_by == made_by, *_open(at))
    if session.execute(waiting).scalar_one() >= MOST_WAITING:
        raise Conflict(f"{MOST_WAITING} invitations of yours wait already: withdraw some first.")
    token = secrets.token_urlsafe(TOKEN_BYTES)
    made = Invitation(
        id=new_id("inv"),
        digest=_digest(token),
        made_by=made_by,
        role=role,
        note=note,
        dataset_id=dataset_id,
        budget_cap=budget_cap,
        created_at=at,
        expires_at=at + LASTS_SECONDS,
    )
    session.add(made)
    session.flush()
    return made, token


def take(session: Session, token: str) -> Invitation | None:
    """Return the invitation of a token, locked, if it can still be accepted."""
    found = session.execute(
        select(Invitation).where(Invitation.digest == _digest(token), *_open(clock.read(session))).with_for_update()
    ).scalar_one_or_none()
    # Under the maker's lock: a disabling that is under way ends first, and counts.
    if found is None or lock(session, found.made_by).disabled_at is not None:
        return None
    return found


def accept(session: Session, invitation: Invitation, principal_id: str) -> None:
    """Note who accepted an invitation that the caller has taken."""
    invitation.accepted_at, invitation.principal_id = clock.read(session), principal_id
    session.flush()


def withdraw(session: Session, invitation_id: str) -> Invitation:
    """End an invitation that waits; one that ended stays as it is.

    Raises:
        Conflict: it was accepted.
    """
    found = session.execute(select(Invitation).where(Invitation.id == invitation_id).with_for_update()).scalar_one()
    if found.accepted_at is not None:
        raise Conflict("This invitation was accepted: disable the principal, or take its access away.")
    if found.withdrawn_at is None:
        found.withdrawn_at = clock.read(session)
    session.flush()
    return found


def find(session: Session, invitation_id: str, made_by: str | None) -> Invitation | None:
    """Return an invitation: of one maker, or of anybody."""
    found = session.get(Invitation, invitation_id)
    return found if found is not None and made_by in {None, found.made_by} else None


def page(session: Session, made_by: str | None, after: str | None, limit: int) -> Sequence[Invitation]:
    """Return up to `limit` invitations, newest first: of one maker, or of all."""
    statement = select(Invitation)
    if made_by is not None:
        statement = statement.where(Invitation.made_by == made_by)
    if after:
        statement = statement.where(Invitation.id < after)
    return session.execute(statement.order_by(Invitation.id.desc()).limit(limit)).scalars().all()


def forget(session: Session) -> None:
    """Withdraw every invitation that waits: a restored backup must not revive those that have ended since.

    The database may be of a release without them.
    """
    if not inspect(session.connection()).has_table(Invitation.__tablename__):
        return
    at = clock.read(session)
    session.execute(update(Invitation).where(*_open(at)).values(withdrawn_at=at))


def _open(at: float) -> tuple[Any, ...]:
    return Invitation.accepted_at.is_(None), Invitation.withdrawn_at.is_(None), Invitation.expires_at > at


def _digest(token: str) -> str:
    """Return the hash of a token: 256 bits of BLAKE2b; the token is random, so no salt is needed."""
    return hashlib.blake2b(token.encode(), digest_size=32, person=_PERSON).hexdigest()
