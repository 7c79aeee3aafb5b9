"""A create request answered at most once per key, in the transaction that does the work.

The key is inserted first, so that a rival waits for that transaction to end: it then gets the stored answer, or, where
the first was refused and rolled back, does the work itself.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Table, delete, select, tuple_, update
from sqlalchemy.dialects.postgresql import Insert as InsertPostgresql
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import Insert as InsertSqlite
from sqlalchemy.dialects.sqlite import insert as insert_sqlite
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from core.base.canonical import canonical
from core.base.errors import IdempotencyKeyInFlight, IdempotencyKeyReused
from core.db import clock
from core.db.database import LOCK_TIMEOUT, sqlstate
from core.db.service_tables import Idempotency


class RequestKey(NamedTuple):
    """A key as its principal and its route have it; keys of different principals are different."""

    principal_id: str
    route: str
    key: str


@dataclass(frozen=True)
class KeyedRequest:
    """A request, by the hash of its body, and the answer that it gets if it is the first with its key."""

    name: RequestKey
    digest: str
    status: int
    body: Any


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


def claim_all(session: Session, claims: Sequence[KeyedRequest], at: float) -> set[RequestKey]:
    """Store answers under keys that are new; return these keys. The others' answers are to be found.

    A key that a rival has claimed is waited for, like a row lock.

    Args:
        session: an open write transaction; do this first in it.
        claims: of different keys.
        at: the database's time.

    Raises:
        IdempotencyKeyInFlight: the one request there is, is still being answered elsewhere.
    """
    rows = [
        {**claim.name._asdict(), "request_hash": claim.digest, "status": claim.status, "body": claim.body,
         "created_at": at}
        for claim in sorted(claims, key=lambda one: one.name)  # in one order, so that rivals' claims never cross
    ]  # fmt: skip
    columns = [Idempotency.principal_id, Idempotency.route, Idempotency.key]
    statement = _insert(session).on_conflict_do_nothing().returning(*columns)
    try:
        return {RequestKey(row[0], row[1], row[2]) for row in session.execute(statement, rows)}
    except OperationalError as error:
        if sqlstate(error) == LOCK_TIMEOUT and len(claims) == 1:
            raise _in_flight() from error
        raise


def release_all(session: Session, names: Sequence[RequestKey]) -> None:
    """Forget keys that were claimed in this transaction, and whose requests were refused after all."""
    if names:
        name = tuple_(Idempotency.principal_id, Idempotency.route, Idempotency.key)
        session.execute(delete(Idempotency).where(name.in_([tuple(one) for one in names])))


def begin(session: Session, principal_id: str, route: str, key: str, digest: str) -> Replay | None:
    """Claim a key; None means that the caller does the work and calls `store` in this same transaction.

    Args:
        session: an open write transaction; do this first in it.
        principal_id: the caller; keys of different principals are different.
        route: for example ``POST /v1/jobs``.
        key: the client's own.
        digest: `hash_body` of the request.

    Raises:
        IdempotencyKeyReused: the key came with another body.
        IdempotencyKeyInFlight: a request with it is still being answered.
    """
    names = {"principal_id": principal_id, "route": route, "key": key}
    values = {**names, "request_hash": digest, "created_at": clock.now()}
    statement = _insert(session).values(values).on_conflict_do_nothing().returning(Idempotency.key)
    try:
        inserted = session.execute(statement).first()
    except OperationalError as error:
        if sqlstate(error) == LOCK_TIMEOUT:
            raise _in_flight() from error
        raise
    return None if inserted is not None else find(session, principal_id, route, key, digest)


def _insert(session: Session) -> InsertSqlite | InsertPostgresql:
    """Return an insert that can do nothing where there is a row, as this database words it."""
    table = Idempotency.__table__
    assert isinstance(table, Table), "it is no view"
    return insert_sqlite(table) if session.get_bind().dialect.name == "sqlite" else insert_postgresql(table)


def _in_flight() -> IdempotencyKeyInFlight:
    return IdempotencyKeyInFlight("A request with this Idempotency-Key is still being answered.", retry_after_seconds=1)


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
