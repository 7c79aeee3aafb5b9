"""Notices: webhooks with their deliveries, and the email address of a principal."""

from typing import Final, Literal, get_args

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn, Operational, Timed

NoticeKind = Literal["approval.waiting", "job.ended", "budget.low", "ledger.frozen", "worker.gone"]
"""Events that a webhook or a mail may be about."""
KINDS: Final[tuple[NoticeKind, ...]] = get_args(NoticeKind)
TITLES: Final[dict[str, str]] = {
    "approval.waiting": "A release waits for your approval",
    "job.ended": "A job ended",
    "budget.low": "Less than a tenth of a budget is left",
    "ledger.frozen": "A ledger is frozen",
    "worker.gone": "A worker is gone",
    "webhook.test": "A test of a webhook",
}
"""Each kind in words."""
OffReason = Literal["failing", "gone", "key-ended", "restored"]
Trouble = Literal["address", "answer", "connection", "key-ended", "mail-refused", "redirect", "switched-off", "timeout"]


class WebhookView(View):
    """A webhook, without its secret."""

    id: Drawn[str]
    """`whk_...`."""
    object: Literal["webhook"] = "webhook"
    url: Declared[str]
    """Address to which events are posted."""
    kinds: Declared[list[NoticeKind]]
    """Kinds of events that are posted."""
    state: Operational[Literal["on", "failing", "off"]]
    """`failing`: the last attempt had no good answer. `off`: nothing but tests is posted."""
    off_reason: Operational[OffReason | None]
    """`failing`: for days; `gone`: it answered 410; `key-ended`: the key that made it opens nothing any more;
    `restored`: the service was restored from a backup. null: it is not off."""
    created_at: Timed[str]
    """Time at which it was made."""
    failing_since: Timed[str | None]
    """Time of the first of the attempts that failed; null: the last one did not."""
    previous_until: Timed[str | None]
    """Time until which the secret before the present one signs, too; null: it signs no more."""


class SecretWebhookView(WebhookView):
    """A webhook with its secret, which was made just now."""

    secret: Drawn[str]
    """`whsec_...`, to verify signatures with; this answer alone has it."""


class DeliveryView(View):
    """One event for one webhook, and what became of it."""

    id: Drawn[str]
    """`msg_...`, the header `webhook-id` of each attempt."""
    object: Literal["delivery"] = "delivery"
    webhook: Drawn[str]
    """`whk_...`."""
    event: Operational[str]
    """Kind of the event, or `webhook.test`."""
    data: Drawn[dict[str, str]]
    """Identifiers of what the event is about."""
    happened_at: Timed[str]
    """Time of the event."""
    state: Operational[Literal["waiting", "delivered", "given-up"]]
    """Its state: it waits, was delivered, or was given up."""
    attempts: Operational[int]
    """Attempts so far."""
    status: Operational[int | None]
    """HTTP status of the last answer; null: there was none."""
    trouble: Operational[Trouble | None]
    """Why the last attempt failed; null: it did not, or there was none."""
    next_at: Timed[str | None]
    """Time of the next attempt; null: there is none."""
    ended_at: Timed[str | None]
    """Time at which it was delivered or given up; null: it waits."""


class EmailView(View):
    """The email address of a principal, and what is mailed there."""

    object: Literal["email"] = "email"
    address: Declared[str | None]
    """null: there is none."""
    kinds: Declared[list[NoticeKind]]
    """Kinds of events that are mailed."""
    state: Operational[Literal["none", "unconfirmed", "confirmed"]]
    """Only a code is mailed to an address that is not confirmed."""
    confirmed_at: Timed[str | None]
    """Time of the confirmation; null: there was none."""
