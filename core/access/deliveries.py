"""Deliveries: notices that wait to be sent, each for one webhook or one mail address.

A process claims a delivery for some seconds, sends it outside any transaction, and notes what came of it. Where the
process dies in between, the claim runs out and another process sends it. Each is sent at least once.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, func, insert, or_, select
from sqlalchemy.orm import Session, aliased

from core.base.identifiers import new_id
from core.db import clock
from core.db.notice_tables import Delivery

DELAYS: Final = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Seconds from each attempt that failed to the next; after the last one it is given up."""
MOST_ATTEMPTS: Final = len(DELAYS) + 1
KEPT_SECONDS: Final = 30 * 86_400.0
"""After its end a delivery stays in the log for so long."""
EACH: Final = 2
"""Deliveries of one principal that are claimed at a time: nobody's slow server keeps others waiting."""
_JITTER: Final = 1000


def add(
    session: Session,
    *,
    principal_id: str,
    target_id: str,
    kind: str,
    source: str,
    data: Mapping[str, str],
    happened_at: float,
) -> Delivery:
    """Add a notice that waits, in the transaction that found its event.

    Args:
        session: an open write transaction.
        principal_id: the receiver of the notice.
        target_id: webhook or mail address.
        kind: of the event.
        source: names the event; a target has one delivery of it at most.
        data: identifiers of what it is about.
        happened_at: seconds since the epoch.
    """
    at = clock.read(session)
    made = Delivery(
        id=new_id("msg"),
        principal_id=principal_id,
        target_id=target_id,
        kind=kind,
        source=source,
        data=dict(data),
        happened_at=happened_at,
        created_at=at,
        state="waiting",
        attempts=0,
        next_at=at,
    )
    session.add(made)
    session.flush()
    return made


def add_all(session: Session, rows: Sequence[Mapping[str, Any]]) -> int:
    """Add those of some notices that their targets have not had; return how many. Rows have the fields of `add`.

    The caller holds the lock of the reader's mark, so that nobody else adds notices of events.
    """
    sources = list({row["source"] for row in rows})
    known = set[tuple[str, str]]()
    for start in range(0, len(sources), 500):
        part = Delivery.source.in_(sources[start : start + 500])
        known |= {(row[0], row[1]) for row in session.execute(select(Delivery.target_id, Delivery.source).where(part))}
    at = clock.read(session)
    fresh = [
        {"id": new_id("msg"), "created_at": at, "next_at": at, "state": "waiting", "attempts": 0, **row}
        for row in rows
        if (row["target_id"], row["source"]) not in known
    ]
    if fresh:
        session.execute(insert(Delivery), fresh)
    return len(fresh)


def waiting(session: Session, target_id: str, kind: str) -> int:
    """Return how many deliveries of a kind wait for a target."""
    here = (Delivery.target_id == target_id, Delivery.kind == kind, Delivery.state == "waiting")
    return session.execute(select(func.count()).select_from(Delivery).where(*here)).scalar_one()


def any_due(session: Session) -> bool:
    """Tell whether a delivery can be claimed now."""
    return session.execute(select(Delivery.id).where(*_due(clock.now())).limit(1)).first() is not None


def claim(session: Session, most: int, seconds: Callable[[str], float]) -> list[Delivery]:
    """Claim deliveries that are due: one of each target, and `EACH` of a principal, at a time.

    Args:
        session: an open write transaction.
        most: the largest number to return.
        seconds: for how long, by the identifier of the target.
    """
    at = clock.read(session)
    held = aliased(Delivery)
    busy = select(held.target_id).where(held.state == "waiting", held.held_until > at)
    rank = func.row_number().over(partition_by=Delivery.target_id, order_by=(Delivery.next_at, Delivery.id))
    first = select(Delivery.id, rank.label("rank")).where(*_due(at), Delivery.target_id.not_in(busy)).subquery()
    each = func.row_number().over(partition_by=Delivery.principal_id, order_by=(Delivery.next_at, Delivery.id))
    heads = select(Delivery.id, each.label("rank"), Delivery.next_at).join(first, first.c.id == Delivery.id)
    ranked = heads.where(first.c.rank == 1).subquery()
    wanted = select(ranked.c.id).where(ranked.c.rank <= EACH).order_by(ranked.c.next_at, ranked.c.id).limit(most)
    ids = session.execute(wanted).scalars().all()
    # Due once more: a rival may have claimed one since the list was made.
    statement = select(Delivery).where(Delivery.id.in_(ids), *_due(at)).order_by(Delivery.id)
    locked = statement.with_for_update(skip_locked=True).execution_options(populate_existing=True)
    found = list(session.execute(locked).scalars())
    for one in found:
        one.held_until = at + seconds(one.target_id)
        one.attempts += 1
    session.flush()
    return found


def _due(at: float | clock.now) -> tuple[ColumnElement[bool], ...]:
    free = or_(Delivery.held_until.is_(None), Delivery.held_until <= at)
    return Delivery.state == "waiting", Delivery.next_at <= at, free


def take(session: Session, delivery_id: str, attempt: int) -> Delivery | None:
    """Return a delivery, locked, if this attempt is the last one that was begun; None: another has begun since."""
    statement = select(Delivery).where(Delivery.id == delivery_id, Delivery.state == "waiting").with_for_update()
    found = session.execute(statement.execution_options(populate_existing=True)).scalar_one_or_none()
    return found if found is not None and found.attempts == attempt else None


def note_success(delivery: Delivery, at: float, status: int | None) -> None:
    """Note that a delivery arrived."""
    delivery.state, delivery.ended_at = "delivered", at
    delivery.status, delivery.trouble, delivery.held_until = status, None, None


def note_failure(delivery: Delivery, at: float, status: int | None, trouble: str, *, final: bool = False) -> None:
    """Note that an attempt failed; the next one comes after a time that grows, with a fifth of chance in it."""
    delivery.status, delivery.trouble, delivery.held_until = status, trouble, None
    if final or delivery.attempts >= MOST_ATTEMPTS:
        delivery.state, delivery.ended_at = "given-up", at
        return
    chance = 0.8 + 0.4 * secrets.randbelow(_JITTER) / _JITTER
    delivery.next_at = at + DELAYS[delivery.attempts - 1] * chance


def page(session: Session, target_id: str, after: str | None, limit: int) -> Sequence[Delivery]:
    """Return up to `limit` deliveries of a target, newest first."""
    statement = select(Delivery).where(Delivery.target_id == target_id)
    if after:
        statement = statement.where(Delivery.id < after)
    return session.execute(statement.order_by(Delivery.id.desc()).limit(limit)).scalars().all()


def remove_old(session: Session, kept: Iterable[str]) -> None:
    """Forget deliveries that ended long ago, but those of events that still hold."""
    old = Delivery.ended_at < clock.read(session) - KEPT_SECONDS
    session.execute(delete(Delivery).where(old, Delivery.source.not_in(list(kept))))
