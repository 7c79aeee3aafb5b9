"""Principals and their keys.

A key that the service makes reads ``frt_<id>_<secret>``: the id finds its row, and the secret is 256 random bits. Of
the whole text a row keeps a BLAKE2b hash under a salt of its own, and no part of it. A key that an operator supplied
has no id in it, so it is compared with every supplied one: an installation has one at most, that of its first admin.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import Session

from core.access.supplied import OURS, refuse_weak
from core.base.errors import Conflict, NotFound, ensure
from core.base.identifiers import new_id
from core.db import clock
from core.db.tables import ROLES, ApiKey, Principal

KEY_BYTES: Final = 32
TOUCH_SECONDS: Final = 60.0
_SALT_BYTES: Final = 16
_PERSON: Final = b"farthing api key"  # 16 bytes, the most that BLAKE2b takes
"""BLAKE2b's personalisation: a hash of ours is no hash of anything else."""
_MADE_HERE: Final = re.compile(rf"{OURS}([0-9a-z]{{26}})_.+", re.ASCII)


@dataclass(frozen=True)
class KeyHolder:
    """The principal behind a valid key."""

    principal_id: str
    name: str
    role: str
    key_id: str
    made_by: str | None
    """The principal that asked for the key, and so has seen it; None: an operator, or nobody knows."""
    touch_due: bool
    """The key's `last_used_at` is more than a minute old: call `touch`."""


def create(session: Session, name: str, role: str) -> Principal:
    """Add a principal.

    Args:
        session: an open write transaction.
        name: for people.
        role: ``owner``, ``analyst``, ``auditor`` or ``admin``.
    """
    ensure(role in ROLES, f"{role} is not a role")
    principal = Principal(id=new_id("pr"), name=name, role=role, created_at=clock.read(session))
    session.add(principal)
    session.flush()
    return principal


def create_key(
    session: Session,
    principal_id: str,
    name: str,
    *,
    made_by: str | None = None,
    starts_at: float | None = None,
    expires_at: float | None = None,
    secret: str | None = None,
) -> tuple[ApiKey, str]:
    """Add a key to a principal; return it with its secret, which is kept nowhere and shown once.

    Args:
        session: an open write transaction.
        principal_id: the principal of the key.
        name: for people.
        made_by: the principal that asks for it; None: an operator.
        starts_at: when it begins to open anything, as `expires_at`; None: at once.
        expires_at: seconds since the epoch by the database's clock, None for never.
        secret: an operator's own; None makes one.

    Raises:
        Invalid: the operator's secret is too easily found by trying.
        Conflict: the principal is disabled.
    """
    disabled = select(Principal.disabled_at).where(Principal.id == principal_id)
    if session.execute(disabled).scalar_one() is not None:
        raise Conflict("This principal is disabled: enable it before it gets another key.")
    key_id, salt = new_id("key"), secrets.token_hex(_SALT_BYTES)
    if secret is not None:
        refuse_weak(secret)
    told = secret or f"{OURS}{key_id.removeprefix('key_')}_{secrets.token_urlsafe(KEY_BYTES)}"
    key = ApiKey(
        id=key_id,
        principal_id=principal_id,
        name=name,
        salt=salt,
        digest=_digest(told, salt),
        supplied=secret is not None,
        made_by=made_by,
        starts_at=starts_at,
        created_at=clock.read(session),
        expires_at=expires_at,
    )
    session.add(key)
    session.flush()
    return key, told


def opens(digest: str, salt: str, secret: str) -> bool:
    """Tell, in a time that does not depend on the secret, whether it is the one that a row keeps the hash of."""
    return hmac.compare_digest(digest, _digest(secret, salt))


def find(session: Session, secret: str) -> KeyHolder | None:
    """Return who holds a key, None when it is unknown, revoked or expired. Reads only."""
    return find_all(session, [secret]).get(secret)


def find_all(session: Session, secrets: Iterable[str]) -> dict[str, KeyHolder]:
    """Return who holds each of some keys; those that open nothing now are left out. Reads only."""
    by_id, supplied = _candidates(secrets)
    at = clock.now()
    due = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < at - TOUCH_SECONDS)
    asked = or_(ApiKey.id.in_(by_id), ApiKey.supplied) if supplied else ApiKey.id.in_(by_id)
    rows = session.execute(
        # Columns and no objects: it runs with every request.
        select(ApiKey.id, ApiKey.digest, ApiKey.salt, Principal.id, Principal.name, Principal.role, ApiKey.made_by, due)
        .select_from(ApiKey)
        .join(Principal, Principal.id == ApiKey.principal_id)
        .where(asked, *valid(at))
    )
    return {
        secret: KeyHolder(principal_id, name, role, key_id, made_by, bool(touch_due))
        for key_id, digest, salt, principal_id, name, role, made_by, touch_due in rows
        for secret in (*by_id.get(key_id, ()), *supplied)
        if opens(digest, salt, secret)
    }


def _candidates(secrets: Iterable[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return texts by the id of the key that they claim to be, and those that name none."""
    by_id: dict[str, list[str]] = {}
    supplied = []
    for secret in secrets:
        named = _MADE_HERE.fullmatch(secret)
        if named is None:
            supplied.append(secret)
        else:
            by_id.setdefault(f"key_{named[1]}", []).append(secret)
    return by_id, supplied


def valid(at: clock.now) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of a key that opens anything, joined with its principal."""
    return (
        ApiKey.revoked_at.is_(None),
        or_(ApiKey.starts_at.is_(None), ApiKey.starts_at <= at),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > at),
        Principal.disabled_at.is_(None),
    )


def still_valid(session: Session, key_ids: Iterable[str]) -> set[str]:
    """Return those of some keys that still open something; for answers that go on after their request was let in."""
    joined = select(ApiKey.id).join(Principal, Principal.id == ApiKey.principal_id)
    return set(session.execute(joined.where(ApiKey.id.in_(list(key_ids)), *valid(clock.now()))).scalars())


def lock(session: Session, principal_id: str) -> Principal:
    """Lock a principal, before any job or scope; return it as it is now.

    Raises:
        NotFound: there is none.
    """
    # FOR NO KEY UPDATE: new rows that refer to the principal, such as datasets, need not wait.
    statement = select(Principal).where(Principal.id == principal_id).with_for_update(key_share=True)
    found = session.execute(statement.execution_options(populate_existing=True)).scalar_one_or_none()
    if found is None:
        raise NotFound("There is no such principal.")
    return found


def disable(session: Session, principal_id: str, reason: str) -> Principal:
    """Close the service to a principal, all its keys at once; one that is disabled keeps its first reason.

    Raises:
        NotFound: there is none.
    """
    found = lock(session, principal_id)
    if found.disabled_at is None:
        found.disabled_at, found.disabled_reason = clock.read(session), reason
    session.flush()
    return found


def enable(session: Session, principal_id: str) -> Principal:
    """Open the service to a principal again: keys that were neither revoked nor have expired go on.

    Raises:
        NotFound: there is none.
    """
    found = lock(session, principal_id)
    found.disabled_at = found.disabled_reason = None
    session.flush()
    return found


def touch(session: Session, key_ids: Iterable[str]) -> None:
    """Note that keys were used, at most once a minute each; one that somebody holds is left to him."""
    at = clock.read(session)
    due = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < at - TOUCH_SECONDS)
    # Two statements, for an UPDATE cannot skip rows that others hold.
    free = select(ApiKey.id).where(ApiKey.id.in_(list(key_ids)), due).with_for_update(skip_locked=True)
    found = session.execute(free).scalars().all()
    session.execute(update(ApiKey).where(ApiKey.id.in_(found)).values(last_used_at=at))


def rotate(session: Session, key_id: str, made_by: str | None = None) -> tuple[ApiKey, str]:
    """Replace a key by a fresh one of the same principal, name, start and expiry; the old one stops at once.

    Args:
        session: an open write transaction.
        key_id: the old one.
        made_by: the principal that asks for it, and sees the fresh one.

    Raises:
        NotFound: there is no such key, or it was revoked.
    """
    old = revoke(session, key_id)
    return create_key(
        session, old.principal_id, old.name, made_by=made_by, starts_at=old.starts_at, expires_at=old.expires_at
    )


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


def revoke_others(session: Session, principal_id: str, kept: str) -> list[str]:
    """Stop all keys of a principal but one; return their identifiers. The caller holds the principal's lock."""
    others = select(ApiKey).where(ApiKey.principal_id == principal_id, ApiKey.id != kept, ApiKey.revoked_at.is_(None))
    found = session.execute(others.order_by(ApiKey.id).with_for_update()).scalars().all()
    at = clock.read(session)
    for key in found:
        key.revoked_at = at
    session.flush()
    return [key.id for key in found]


def _digest(secret: str, salt: str) -> str:
    """Return the hash of a key's whole text: 256 bits of BLAKE2b under the row's own salt."""
    return hashlib.blake2b(secret.encode(), digest_size=32, salt=bytes.fromhex(salt), person=_PERSON).hexdigest()
