"""Webhooks: rows of addresses to which a principal has events posted.

A webhook ends with the key that made it, as a session of the console does: a stolen key leaves no listener behind once
it is revoked. Its secret is stored wrapped by the master key, which this layer never sees.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, func, inspect, select, update
from sqlalchemy.orm import Session

from core.access.principals import lock, valid
from core.base.errors import Conflict
from core.db import clock
from core.db.notice_tables import Delivery, NoticeMark, Webhook
from core.db.tables import ApiKey, Principal

MOST: Final = 10
"""Of one principal."""
BOTH_SECONDS: Final = 86_400.0
"""Seconds in which the secret before the present one signs, too."""


def make(
    session: Session, webhook_id: str, *, principal_id: str, key_id: str, url: str, kinds: Sequence[str], wrapped: str
) -> Webhook:
    """Add a webhook.

    Args:
        session: an open write transaction.
        webhook_id: `whk_...`.
        principal_id: the owner of the webhook.
        key_id: the key that asks for it, with which it ends.
        url: its address.
        kinds: of events.
        wrapped: its secret under the master key.

    Raises:
        Conflict: the principal has too many.
    """
    lock(session, principal_id)
    count = select(func.count()).select_from(Webhook).where(Webhook.principal_id == principal_id)
    if session.execute(count).scalar_one() >= MOST:
        raise Conflict(f"You have {MOST} webhooks already: remove one first.")
    made = Webhook(
        id=webhook_id,
        principal_id=principal_id,
        key_id=key_id,
        url=url,
        kinds=list(kinds),
        wrapped=wrapped,
        created_at=clock.read(session),
    )
    session.add(made)
    session.flush()
    return made


def find(session: Session, webhook_id: str, principal_id: str, *, hold: bool = False) -> Webhook | None:
    """Return a principal's webhook; with `hold`, locked and as it is now."""
    statement = select(Webhook).where(Webhook.id == webhook_id, Webhook.principal_id == principal_id)
    if hold:
        statement = statement.with_for_update().execution_options(populate_existing=True)
    return session.execute(statement).scalar_one_or_none()


def page(session: Session, principal_id: str, after: str | None, limit: int) -> Sequence[Webhook]:
    """Return up to `limit` webhooks of a principal, newest first."""
    statement = select(Webhook).where(Webhook.principal_id == principal_id)
    if after:
        statement = statement.where(Webhook.id < after)
    return session.execute(statement.order_by(Webhook.id.desc()).limit(limit)).scalars().all()


def remove(session: Session, webhook: Webhook) -> None:
    """Forget a webhook with its deliveries; the caller holds its lock."""
    session.execute(delete(Delivery).where(Delivery.target_id == webhook.id))
    session.delete(webhook)
    session.flush()


def replace_secret(session: Session, webhook: Webhook, *, wrapped: str, previous: str, key_id: str) -> None:
    """Give a webhook another secret, and put it under the key that asks; the one before signs on for a day."""
    webhook.wrapped, webhook.previous = wrapped, previous
    webhook.previous_until = clock.read(session) + BOTH_SECONDS
    webhook.key_id = key_id
    # A new secret comes with another key, and mends no other reason.
    if webhook.off_reason == "key-ended":
        webhook.off_at = webhook.off_reason = None
    session.flush()


def switch_off(session: Session, webhook: Webhook, at: float, reason: str) -> None:
    """Post nothing more to a webhook, and give up what waits for it; the caller holds its lock."""
    webhook.off_at, webhook.off_reason = at, reason
    _give_up(session, [webhook.id], at)
    session.flush()


def switch_on(webhook: Webhook) -> None:
    """Post events to a webhook again; the caller holds its lock."""
    webhook.off_at = webhook.off_reason = webhook.failing_since = None


def ended(session: Session) -> Sequence[Webhook]:
    """Return the webhooks that are not off and whose key opens nothing any more, locked."""
    statement = select(Webhook).where(*_is_ended()).order_by(Webhook.id).with_for_update()
    return session.execute(statement).scalars().all()


def any_ended(session: Session) -> bool:
    """Tell whether there is a webhook that is not off and whose key opens nothing any more."""
    return session.execute(select(Webhook.id).where(*_is_ended()).limit(1)).first() is not None


def _is_ended() -> tuple[ColumnElement[bool], ...]:
    alive = select(ApiKey.id).join(Principal, Principal.id == ApiKey.principal_id).where(*valid(clock.now()))
    return Webhook.off_at.is_(None), Webhook.key_id.not_in(alive)


def live(session: Session) -> list[tuple[Webhook, str]]:
    """Return the webhooks to which events are posted, each with the role of its principal."""
    joined = select(Webhook, Principal.role).join(ApiKey, ApiKey.id == Webhook.key_id)
    joined = joined.join(Principal, Principal.id == ApiKey.principal_id)
    return [(row[0], row[1]) for row in session.execute(joined.where(Webhook.off_at.is_(None), *valid(clock.now())))]


def forget(session: Session) -> None:
    """Switch every webhook off: a restored backup must not post to those that were removed since.

    Events are read from now on. The database may be of a release without webhooks.
    """
    if not inspect(session.connection()).has_table(Webhook.__tablename__):
        return
    at = clock.read(session)
    found: Any = session.execute(select(Webhook.id)).scalars().all()
    session.execute(update(Webhook).values(off_at=at, off_reason="restored"))
    session.execute(delete(NoticeMark))
    _give_up(session, found, at)


def _give_up(session: Session, targets: Iterable[str], at: float) -> None:
    waiting = (Delivery.target_id.in_(list(targets)), Delivery.state == "waiting")
    values = {"state": "given-up", "ended_at": at, "trouble": "switched-off", "held_until": None}
    session.execute(update(Delivery).where(*waiting).values(**values))
