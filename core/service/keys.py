"""Use cases of principals and their API keys. A secret leaves once, in the answer that made it."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy.orm import Session

from core.access import principals
from core.base.errors import DiskFull, Forbidden, NotFound
from core.db import clock, idempotency
from core.db import reads as queries
from core.db.tables import ApiKey, Principal
from core.service.context import Caller, Context, Role
from core.service.views import rfc3339
from farthing.schemas.keys import KeyView, NewKeyView, PrincipalView

ROUTE = "POST /v1/keys"
_MAX_SECRET = 200  # the most letters of a key that an operator supplies


def authenticate_all(context: Context, secrets: Sequence[str | None]) -> list[Caller | None]:
    """Return who holds each of some keys, in one statement, or None; notes at most once a minute that one was used."""
    possible = {secret for secret in secrets if secret and len(secret) <= _MAX_SECRET and secret.isascii()}
    found: dict[str, principals.KeyHolder] = {}
    if possible:
        with context.database.look() as session:
            found = principals.find_all(session, possible)
    due = {one.key_id for one in found.values() if one.touch_due}
    if due:
        with suppress(DiskFull):  # what only reads goes on
            context.database.transaction(principals.touch, due)
    return [caller_of(found[secret]) if secret in found else None for secret in secrets]


def is_valid(context: Context, caller: Caller) -> bool:
    """Tell whether a caller's key still opens anything, for an answer that goes on after its request was let in."""
    with context.database.look() as session:
        return caller.key_id in principals.still_valid(session, [caller.key_id])


def caller_of(found: principals.KeyHolder) -> Caller:
    """Return the principal behind a valid key as use cases know it."""
    role: Role = found.role  # type: ignore[assignment] # the table's CHECK allows no other
    return Caller(id=found.principal_id, name=found.name, role=role, key_id=found.key_id, key_made_by=found.made_by)


def whoami(caller: Caller) -> PrincipalView:
    """Return the caller's own principal."""
    return PrincipalView(id=caller.id, name=caller.name, role=caller.role, key=caller.key_id)


def create(
    context: Context,
    caller: Caller,
    *,
    name: str,
    role: Role,
    principal_id: str | None,
    lasts_seconds: int | None,
    idempotency_key: str | None,
) -> tuple[NewKeyView, bool]:
    """Make a key, for a new principal or one more for an existing one; return it and whether it is a replay.

    A replayed answer holds no secret: it was shown once.

    Raises:
        Forbidden: the caller is neither that principal nor an admin, or it is another one who holds records.
        NotFound: there is no such principal with that role.
        Conflict: the principal is disabled.
        IdempotencyKeyReused: the idempotency key belongs to another request.
    """
    if principal_id is None or principal_id != caller.id:
        caller.require("admin")
    request = {"name": name, "role": role, "principal": principal_id, "lasts": lasts_seconds}
    digest = idempotency.hash_body(request)

    def work(session: Session) -> tuple[NewKeyView, bool]:
        if idempotency_key is not None:
            stored = idempotency.begin(session, caller.id, ROUTE, idempotency_key, digest)
            if stored is not None:
                return NewKeyView(**stored.body), True
        principal = _principal(session, caller, name, role, principal_id)
        expires_at = None if lasts_seconds is None else clock.read(session) + lasts_seconds
        key, secret = principals.create_key(session, principal.id, name, made_by=caller.id, expires_at=expires_at)
        view = _new(key, principal, secret)
        if idempotency_key is not None:
            body: dict[str, Any] = {**view.model_dump(mode="json"), "key": None}
            idempotency.store(session, caller.id, ROUTE, idempotency_key, status=201, body=body)
        return view, False

    return context.database.transaction(work)


def _principal(session: Session, caller: Caller, name: str, role: Role, principal_id: str | None) -> Principal:
    if principal_id is None:
        return principals.create(session, name, role)
    found = queries.principal(session, principal_id)
    if found is None or found.role != role:
        raise NotFound("There is no such principal with this role.")
    _refuse_taking_over(session, caller, principal_id)
    return found


def _refuse_taking_over(session: Session, caller: Caller, principal_id: str) -> None:
    """Refuse a key of a principal with records to everybody else: its reader would be the owner from then on.

    It takes the principal's lock, as the first upload does: no key is made beside it.

    Raises:
        Forbidden: the principal holds records, and is not the caller.
    """
    principals.lock(session, principal_id)
    if principal_id != caller.id and queries.holds_records(session, principal_id):
        raise Forbidden(
            "This principal holds records: it alone makes and rotates its keys. If it has lost them all, the operator "
            f"makes one on the service's host: python -m workers.upkeep owner-key {principal_id}"
        )


def _new(key: ApiKey, principal: Principal, secret: str) -> NewKeyView:
    return NewKeyView(
        id=key.id,
        key=secret,
        role=principal.role,
        name=key.name,
        principal=principal.id,
        expires_at=rfc3339(key.expires_at),
    )


def page(
    context: Context, caller: Caller, after: str | None, limit: int, principal: str | None = None
) -> list[KeyView]:
    """Return up to `limit` keys, newest first: all for an admin, or one principal's; otherwise the caller's own."""
    whose = principal if caller.role == "admin" else caller.id
    if principal not in {None, whose}:
        return []
    with context.database.read() as session:
        found = queries.keys(session, whose, after, limit)
        return [_view(key, principal) for key, principal in found]


def _view(key: ApiKey, principal: Principal) -> KeyView:
    return KeyView(
        id=key.id,
        name=key.name,
        role=principal.role,
        principal=principal.id,
        made_by=key.made_by,
        created_at=rfc3339(key.created_at),
        starts_at=rfc3339(key.starts_at),
        expires_at=rfc3339(key.expires_at),
        revoked_at=rfc3339(key.revoked_at),
        last_used_at=rfc3339(key.last_used_at),
    )


def _require_own(session: Session, caller: Caller, key_id: str) -> Principal:
    key = session.get(ApiKey, key_id)
    if key is None or (caller.role != "admin" and key.principal_id != caller.id):
        raise NotFound("There is no such key.")
    principal = queries.principal(session, key.principal_id)
    assert principal is not None, "a key is somebody's"
    return principal


def rotate(context: Context, caller: Caller, key_id: str) -> NewKeyView:
    """Replace a key; the old one stops at once, the new secret is in the answer, once.

    Raises:
        Forbidden: it is the key of somebody else, who holds records.
        NotFound: there is no such key of the caller's, or it was revoked.
    """

    def work(session: Session) -> NewKeyView:
        principal = _require_own(session, caller, key_id)
        _refuse_taking_over(session, caller, principal.id)
        key, secret = principals.rotate(session, key_id, caller.id)
        return _new(key, principal, secret)

    return context.database.transaction(work)


def revoke(context: Context, caller: Caller, key_id: str) -> KeyView:
    """Stop a key for good.

    Raises:
        NotFound: there is no such key of the caller's, or it was revoked.
        Forbidden: it is the key of this very request; use another, so that nobody locks himself out.
    """
    if key_id == caller.key_id:
        raise Forbidden("This request came with that very key; revoke it with another one, or rotate it.")

    def work(session: Session) -> KeyView:
        principal = _require_own(session, caller, key_id)
        return _view(principals.revoke(session, key_id), principal)

    return context.database.transaction(work)
