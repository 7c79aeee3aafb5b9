"""Parcels: claimed deliveries with all that their sending takes, and what came of it.

Sending happens between two transactions, in `api.notices`; nothing here waits for anybody outside.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session
from standardwebhooks import Webhook as Signer

from core.access import audit, deliveries, emails, webhooks
from core.access.principals import still_valid
from core.base.errors import NotReady
from core.base.identifiers import new_id
from core.base.settings import ServiceSettings
from core.db import clock
from core.db.notice_tables import Delivery, MailAddress, Webhook
from core.records.datasets import webhook_name
from core.records.encryption import Tampered
from core.records.master_key import MasterKeys, load_master_keys
from core.service import letters
from core.service.context import Context
from core.service.views import rfc3339
from core.service.webhooks import TEST
from farthing.schemas.notices import OffReason, Trouble

AT_ONCE: Final = 16
"""Deliveries that a process sends at a time."""
FAILING_SECONDS: Final = 3 * 86_400.0
"""A webhook that has failed for so long is switched off."""
GONE: Final = 410
"""By this status a webhook says that it wants nothing more."""
MAIL: Final = "eml_"
"""Beginning of the identifiers of mail addresses."""
_ANSWERS: Final = 10
"""That a mail server gives at most while it takes one mail."""
_SPARE_SECONDS: Final = 5.0
"""Between the longest time that an attempt takes and the end of its claim."""


@dataclass(frozen=True)
class Post:
    """A request to a webhook."""

    delivery_id: str
    attempt: int
    url: str
    body: bytes
    secrets: tuple[bytes, ...]
    """That sign, the newest first."""

    def headers(self, now: datetime) -> dict[str, str]:
        """Return the headers of Standard Webhooks: one signature for each secret, separated by blanks."""
        text = self.body.decode()
        signed = [Signer(secret).sign(self.delivery_id, now, text) for secret in self.secrets]
        return {
            "webhook-id": self.delivery_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(signed),
            "content-type": "application/json",
            "user-agent": "farthing",
        }


@dataclass(frozen=True)
class Mail:
    """A mail to a principal."""

    delivery_id: str
    attempt: int
    address: str
    subject: str
    text: str


@dataclass(frozen=True)
class SendingEnd:
    """The end of one attempt."""

    status: int | None = None
    """Of the answer; None: there was none."""
    trouble: Trouble | None = None
    """None: it arrived."""
    final: bool = False
    """True: another attempt makes no sense."""


def any_due(context: Context) -> bool:
    """Tell whether a delivery waits to be sent now, or a webhook to be switched off."""
    with context.database.read() as session:
        return deliveries.any_due(session) or webhooks.any_ended(session)


def claim(context: Context) -> list[Post | Mail]:
    """Claim what is due, for longer than sending takes; notices that nobody may have any more are given up."""
    settings = context.settings
    try:
        keys = load_master_keys(settings)
    except NotReady:
        return []

    def seconds(target_id: str) -> float:
        is_mail = target_id.startswith(MAIL)
        return _SPARE_SECONDS + (_ANSWERS * settings.smtp_seconds if is_mail else settings.webhook_seconds)

    def work(session: Session) -> list[Post | Mail]:
        _end_webhooks(session)
        claimed = deliveries.claim(session, AT_ONCE, seconds)
        packed = [_pack(session, one, settings, keys) for one in claimed]
        session.flush()
        return [one for one in packed if one is not None]

    return context.database.transaction(work)


def _end_webhooks(session: Session) -> None:
    """Switch off the webhooks whose keys open nothing any more."""
    for one in webhooks.ended(session):
        _off(session, one, clock.read(session), "key-ended")


def _pack(session: Session, one: Delivery, settings: ServiceSettings, keys: MasterKeys) -> Post | Mail | None:
    """Return a delivery ready to be sent; None: it was given up."""
    at = clock.read(session)
    hook = session.get(Webhook, one.target_id, populate_existing=True)
    if hook is not None:
        return _post(session, one, hook, keys, at)
    row = session.get(MailAddress, one.target_id, populate_existing=True)
    # Codes go to unconfirmed addresses alone, and all else to confirmed ones.
    if row is None or row.address is None or (row.confirmed_at is None) != (one.kind == emails.CODE):
        deliveries.note_failure(one, at, None, "switched-off", final=True)
        return None
    if not emails.may_be_mailed(session, row):
        deliveries.note_failure(one, at, None, "key-ended", final=True)
        return None
    if one.kind == emails.CODE:
        subject, text = letters.of_code(settings, emails.code_of(row, keys.current.of_codes()))
    else:
        subject, text = letters.of_event(settings, one.kind, one.data, rfc3339(one.happened_at))
    return Mail(one.id, one.attempts, row.address, subject, text)


def _post(session: Session, one: Delivery, hook: Webhook, keys: MasterKeys, at: float) -> Post | None:
    if not still_valid(session, [hook.key_id]):
        deliveries.note_failure(one, at, None, "key-ended", final=True)
        return None
    if hook.off_at is not None and one.kind != TEST:
        deliveries.note_failure(one, at, None, "switched-off", final=True)
        return None
    try:
        secrets = [keys.unwrap(webhook_name(hook.id), hook.wrapped)]
        if hook.previous is not None and hook.previous_until is not None and hook.previous_until > at:
            secrets.append(keys.unwrap(webhook_name(hook.id, "before"), hook.previous))
    except (NotReady, Tampered):  # the operator's master key is not there: the service says so, and this waits
        # Nothing was sent: this must not count towards the last attempt.
        one.attempts -= 1
        one.held_until, one.next_at = None, at + deliveries.DELAYS[1]
        return None
    event = {"type": one.kind, "timestamp": rfc3339(one.happened_at), "data": one.data}
    body = json.dumps(event, separators=(",", ":")).encode()
    return Post(one.id, one.attempts, hook.url, body, tuple(secrets))


def note(context: Context, sent: Post | Mail, outcome: SendingEnd) -> None:
    """Note what came of an attempt. One whose claim has run out meanwhile says nothing any more."""
    context.database.transaction(_note, sent, outcome)


def _note(session: Session, sent: Post | Mail, outcome: SendingEnd) -> None:
    known = session.execute(select(Delivery.target_id).where(Delivery.id == sent.delivery_id)).scalar_one_or_none()
    if known is None:
        return
    # The webhook before its delivery: removing a webhook, or switching it off, locks in this order.
    hook = _lock(session, known)
    one, at = deliveries.take(session, sent.delivery_id, sent.attempt), clock.read(session)
    if one is None:
        return
    if outcome.trouble is None:
        deliveries.note_success(one, at, outcome.status)
        if hook is not None:
            hook.failing_since = None
            if hook.off_at is not None:  # it was a test: nothing else is posted to one that is off
                webhooks.switch_on(hook)
    else:
        deliveries.note_failure(one, at, outcome.status, outcome.trouble, final=outcome.final)
        if hook is not None and hook.off_at is None:
            hook.failing_since = hook.failing_since or at
            if outcome.status == GONE:
                _off(session, hook, at, "gone")
            elif at - hook.failing_since >= FAILING_SECONDS:
                _off(session, hook, at, "failing")
    session.flush()


def _lock(session: Session, webhook_id: str) -> Webhook | None:
    statement = select(Webhook).where(Webhook.id == webhook_id).with_for_update()
    return session.execute(statement.execution_options(populate_existing=True)).scalar_one_or_none()


def _off(session: Session, hook: Webhook, at: float, reason: OffReason) -> None:
    """Switch a webhook off, and leave a line of it in the audit log."""
    session.flush()
    webhooks.switch_off(session, hook, at, reason)
    line = audit.Line(hook.principal_id, f"webhook {reason}", f"webhooks/{hook.id}", 200, None, new_id("req"))
    audit.append(session, [line])


def now() -> datetime:
    """Return the time of this process, which a signature names: a receiver compares it with its own."""
    return datetime.now(UTC)
