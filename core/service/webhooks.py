"""Use cases of webhooks: made, listed, tested, removed; each principal sees its own alone."""

import base64
import secrets
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy.orm import Session

from core.access import deliveries, webhooks
from core.base.errors import Conflict, Forbidden, NotFound
from core.base.identifiers import new_id
from core.db import clock
from core.db.notice_tables import Delivery, Webhook
from core.records.datasets import webhook_name
from core.records.master_key import load_master_keys
from core.service import addresses
from core.service.context import Caller, Context
from core.service.views import rfc3339
from farthing.schemas.notices import DeliveryView, NoticeKind, SecretWebhookView, WebhookView

TEST: Final = "webhook.test"
MOST_TESTS: Final = 3
"""Of one webhook, that wait at a time: nobody has the service flood an address."""
_MARK: Final = "whsec_"
"""Beginning of a secret, after Standard Webhooks."""
_SECRET_BYTES: Final = 32


def refuse_site(context: Context) -> None:
    """Refuse requests about notices at a site's service: its login to the database sees none of them.

    Raises:
        Forbidden: this is a site's service.
    """
    if context.settings.site:
        raise Forbidden("Notices are at the service itself, and not at a site: ask there.")


def create(context: Context, caller: Caller, url: str, kinds: Sequence[NoticeKind]) -> SecretWebhookView:
    """Make a webhook; return it with its secret, which leaves once.

    Raises:
        Invalid: the address is none, is not public, or its name is not known.
        Conflict: the caller has too many.
        Forbidden: this is a site's service.
    """
    refuse_site(context)
    # Outside the transaction, for to resolve a name takes seconds.
    addresses.refuse_closed(url, context.settings)
    webhook_id, secret = new_id("whk"), secrets.token_bytes(_SECRET_BYTES)
    wrapped = load_master_keys(context.settings).current.wrap(webhook_name(webhook_id), secret)

    def work(session: Session) -> SecretWebhookView:
        made = webhooks.make(
            session,
            webhook_id,
            principal_id=caller.id,
            key_id=caller.key_id,
            url=url,
            kinds=sorted(set(kinds)),
            wrapped=wrapped,
        )
        return SecretWebhookView(**_facts(made, made.created_at), secret=_shown(secret))

    return context.database.transaction(work)


def _shown(secret: bytes) -> str:
    return _MARK + base64.b64encode(secret).decode()


def page(context: Context, caller: Caller, after: str | None, limit: int) -> list[WebhookView]:
    """Return up to `limit` webhooks of the caller's, newest first."""
    refuse_site(context)
    with context.database.read() as session:
        at = clock.read(session)
        return [_view(one, at) for one in webhooks.page(session, caller.id, after, limit)]


def get(context: Context, caller: Caller, webhook_id: str) -> WebhookView:
    """Return a webhook of the caller's.

    Raises:
        NotFound: it does not exist for the caller.
    """
    refuse_site(context)
    with context.database.read() as session:
        return _view(_own(session, caller, webhook_id), clock.read(session))


def remove(context: Context, caller: Caller, webhook_id: str) -> None:
    """Forget a webhook and its deliveries.

    Raises:
        NotFound: it does not exist for the caller.
    """
    refuse_site(context)

    def work(session: Session) -> None:
        webhooks.remove(session, _own(session, caller, webhook_id, hold=True))

    context.database.transaction(work)


def rotate(context: Context, caller: Caller, webhook_id: str) -> SecretWebhookView:
    """Give a webhook another secret, which leaves once; the one before signs beside it for a day.

    The webhook ends with the caller's key from then on.

    Raises:
        NotFound: it does not exist for the caller.
    """
    refuse_site(context)
    secret = secrets.token_bytes(_SECRET_BYTES)
    keys = load_master_keys(context.settings)

    def work(session: Session) -> SecretWebhookView:
        found = _own(session, caller, webhook_id, hold=True)
        now, before = webhook_name(webhook_id), webhook_name(webhook_id, "before")
        # Wrapped anew, since a wrapped secret is bound to what it is called.
        previous = keys.current.wrap(before, keys.unwrap(now, found.wrapped))
        wrapped = keys.current.wrap(now, secret)
        webhooks.replace_secret(session, found, wrapped=wrapped, previous=previous, key_id=caller.key_id)
        return SecretWebhookView(**_facts(found, clock.read(session)), secret=_shown(secret))

    return context.database.transaction(work)


def test(context: Context, caller: Caller, webhook_id: str) -> DeliveryView:
    """Post a test event to a webhook soon. A good answer switches on a webhook that was off.

    Raises:
        NotFound: it does not exist for the caller.
        Conflict: some tests of it wait already.
    """
    refuse_site(context)

    def work(session: Session) -> DeliveryView:
        found = _own(session, caller, webhook_id, hold=True)
        if deliveries.waiting(session, found.id, TEST) >= MOST_TESTS:
            raise Conflict(f"{MOST_TESTS} tests of this webhook wait already: see what comes of them first.")
        made = deliveries.add(
            session,
            principal_id=caller.id,
            target_id=found.id,
            kind=TEST,
            source=new_id("test"),
            data={"webhook": found.id},
            happened_at=clock.read(session),
        )
        return delivery_view(made)

    return context.database.transaction(work)


def delivery_page(
    context: Context, caller: Caller, webhook_id: str, after: str | None, limit: int
) -> list[DeliveryView]:
    """Return up to `limit` deliveries of a webhook of the caller's, newest first.

    Raises:
        NotFound: the webhook does not exist for the caller.
    """
    refuse_site(context)
    with context.database.read() as session:
        found = _own(session, caller, webhook_id)
        return [delivery_view(one) for one in deliveries.page(session, found.id, after, limit)]


def _own(session: Session, caller: Caller, webhook_id: str, *, hold: bool = False) -> Webhook:
    found = webhooks.find(session, webhook_id, caller.id, hold=hold)
    if found is None:
        raise NotFound("There is no such webhook.")
    return found


def _view(one: Webhook, at: float) -> WebhookView:
    return WebhookView(**_facts(one, at))


def _facts(one: Webhook, at: float) -> dict[str, Any]:
    state = "off" if one.off_at is not None else "on" if one.failing_since is None else "failing"
    previous = one.previous_until if one.previous_until is not None and one.previous_until > at else None
    return {
        "id": one.id,
        "url": one.url,
        "kinds": one.kinds,
        "state": state,
        "off_reason": one.off_reason,
        "created_at": rfc3339(one.created_at),
        "failing_since": rfc3339(one.failing_since),
        "previous_until": rfc3339(previous),
    }


def delivery_view(one: Delivery) -> DeliveryView:
    """Return a delivery as its principal sees it."""
    return DeliveryView.model_validate(
        {
            "id": one.id,
            "webhook": one.target_id,
            "event": one.kind,
            "data": one.data,
            "happened_at": rfc3339(one.happened_at),
            "state": one.state,
            "attempts": one.attempts,
            "status": one.status,
            "trouble": one.trouble,
            "next_at": rfc3339(one.next_at) if one.state == "waiting" else None,
            "ended_at": rfc3339(one.ended_at),
        }
    )
