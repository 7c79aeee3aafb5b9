"""Who may ask: principals and their keys. A key is shown once and kept as its SHA-256; 256 random bits need no salt."""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from core.errors import NotFound
from core.store import clock
from core.store.ids import new_id
from core.store.tables import ROLES, ApiKey, Principal

KEY_BYTES: Final = 32
PREFIX_LENGTH: Final = 11
TOUCH_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Caller:
    """The principal behind a valid key."""

    principal_id: str
    name: str
    role: str
    key_id: str
    touch_due: bool
    """The key's `last_used_at` is more than a minute old: call `touch`."""


def create(session: Session, name: str, role: str) -> Principal:
    """Add a principal.

    Args:
        session: an open write transaction.
        name: for people.
        role: ``owner``, ``analyst``, ``auditor`` or ``admin``.
    """
    assert role in ROLES, f"{role} is not a role"
    principal = Principal(id=new_id("pr"), name=name, role=role, created_at=clock.read(session))
    session.add(principal)
    session.flush()
    return principal


def create_key(
    session: Session, principal_id: str, name: str, *, expires_at: float | None = None, secret: str | None = None
) -> tuple[ApiKey, str]:
    """Add a key to a principal; return it with its secret, which is kept nowhere and shown once.

    Args:
        session: an open write transaction.
        principal_id: whose key it is.
        name: for people.
        expires_at: seconds since the epoch by the database's clock, None for never.
        secret: an operator's own secret, of at least 256 bits; None makes one.
    """
    if secret is None:
        secret = f"fth_{secrets.token_urlsafe(KEY_BYTES)}"
    key = ApiKey(
        id=new_id("key"),
        principal_id=principal_id,
        name=name,
        prefix=secret[:PREFIX_LENGTH],
        sha256=_digest(secret),
        created_at=clock.read(session),
        expires_at=expires_at,
    )
    session.add(key)
    session.flush()
    return key, secret


def find(session: Session, secret: str) -> Caller | None:
    """Return who holds a key, None when it is unknown, revoked or expired. Reads only."""
    return find_all(session, [secret]).get(secret)


def find_all(session: Session, secrets: Iterable[str]) -> dict[str, Caller]:
    """Return who holds each of some keys; those that are unknown, revoked or expired are left out. Reads only."""
    digests = {_digest(secret): secret for secret in secrets}
    at = clock.now()
    due = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < at - TOUCH_SECONDS)
    rows = session.execute(
        select(ApiKey.sha256, Principal.id, Principal.name, Principal.role, ApiKey.id, due)  # columns: it runs always
        .select_from(ApiKey)
        .join(Principal, Principal.id == ApiKey.principal_id)
        .where(
            ApiKey.sha256.in_(digests),
            ApiKey.revoked_at.is_(None),
            or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > at),
        )
    )
    return {
        digests[digest]: Caller(principal_id, name, role, key_id, bool(touch_due))
        for digest, principal_id, name, role, key_id, touch_due in rows
    }


def touch(session: Session, key_ids: Iterable[str]) -> None:
    """Note that keys were used, at most once a minute each; one that somebody holds is left to him."""
    at = clock.read(session)
    due = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < at - TOUCH_SECONDS)
    free = select(ApiKey.id).where(ApiKey.id.in_(list(key_ids)), due).with_for_update(skip_locked=True)
    found = session.execute(free).scalars().all()
    session.execute(update(ApiKey).where(ApiKey.id.in_(found)).values(last_used_at=at))


def rotate(session: Session, key_id: str) -> tuple[ApiKey, str]:
    """Replace a key by a fresh one of the same principal, name and expiry; the old one stops at once.

    Raises:
        NotFound: there is no such key, or it was revoked.
    """
    old = revoke(session, key_id)
    return create_key(session, old.principal_id, old.name, expires_at=old.expires_at)


def revoke(session: Session, key_id: str) -> ApiKey:
    """Stop a key for good.

    Raises:
        NotFound: there is no such key, or it was revoked already.
    """
    key = session.execute(
        select(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None)).with_for_update()
    ).scalar_one_or_none()
    if key is None:
        raise NotFound("There is no such key.")
    key.revoked_at = clock.read(session)
    session.flush()
    return key


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
