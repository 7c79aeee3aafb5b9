"""A create request answered at most once per key, in the transaction that does the work.

The key is inserted first, so that a rival waits for that transaction to end: it then gets the stored answer, or, where
the first was refused and rolled back, does the work itself.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from core.errors import IdempotencyKeyInFlight, IdempotencyKeyReused
from core.store import clock
from core.store.chain import canonical
from core.store.database import LOCK_TIMEOUT, sqlstate
from core.store.tables import Idempotency


@dataclass(frozen=True)
class Replay:
    """The stored answer to a request that was made before."""

    status: int
    body: Any


def hash_body(body: object) -> str:
    """Return the hash of a parsed, JSON-ready body, by its canonical text."""
    return hashlib.sha256(canonical(body).encode("ascii")).hexdigest()


def find(session: Session, principal_id: str, route: str, key: str, digest: str) -> Replay | None:
    """Return the stored answer to a request, None where there is none yet. Reads only.

    Raises:
        IdempotencyKeyReused: the key came with another body.
        IdempotencyKeyInFlight: a request with it has no answer yet.
    """
    found = session.execute(
        select(Idempotency).filter_by(principal_id=principal_id, route=route, key=key)
    ).scalar_one_or_none()
    if found is None:
        return None
    if found.request_hash != digest:
        raise IdempotencyKeyReused("This Idempotency-Key was used with another body; use a new one.")
    if found.status is None:
        raise IdempotencyKeyInFlight("A request with this Idempotency-Key has no answer yet.", retry_after_seconds=1)
    return Replay(found.status, found.body)


def begin(session: Session, principal_id: str, route: str, key: str, digest: str) -> Replay | None:
    """Claim a key; None means that the caller does the work and calls `store` in this same transaction.

    Args:
        session: an open write transaction; do this first in it.
        principal_id: who asks; keys of different principals are different.
        route: for example ``POST /v1/jobs``.
        key: the client's own.
        digest: `hash_body` of the request.

    Raises:
        IdempotencyKeyReused: the key came with another body.
        IdempotencyKeyInFlight: a request with it is still being answered.
    """
    insert = insert_sqlite if session.get_bind().dialect.name == "sqlite" else insert_postgresql
    names = {"principal_id": principal_id, "route": route, "key": key}
    values = {**names, "request_hash": digest, "created_at": clock.now()}
    statement = insert(Idempotency).values(values).on_conflict_do_nothing().returning(Idempotency.key)
    try:
        inserted = session.execute(statement).first()
    except OperationalError as error:
        if sqlstate(error) == LOCK_TIMEOUT:
            raise IdempotencyKeyInFlight(
                "A request with this Idempotency-Key is still being answered.", retry_after_seconds=1
            ) from error
        raise
    return None if inserted is not None else find(session, principal_id, route, key, digest)


def store(session: Session, principal_id: str, route: str, key: str, *, status: int, body: object) -> None:
    """Store the answer under a key that `begin` claimed in this transaction; leave secrets out of it.

    Args:
        session: the transaction of `begin`.
        principal_id: as in `begin`.
        route: as in `begin`.
        key: as in `begin`.
        status: the HTTP status.
        body: JSON-ready.
    """
    session.execute(
        update(Idempotency).filter_by(principal_id=principal_id, route=route, key=key).values(status=status, body=body)
    )
