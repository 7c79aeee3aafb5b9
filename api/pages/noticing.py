"""Notices on pages: one's own webhooks with their deliveries, and one's email address."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response
from pydantic import ValidationError

from api.deps import After, Caller, Db
from api.errors import status_of
from api.pages.rendering import render
from api.pages.routes import Form, FormFields, PageRoute, page, see_other, value_of
from api.routes import emails as email_api
from api.routes import webhooks as api
from api.schemas import MailCode, NewEmail, NewWebhook
from core.base.errors import Conflict, Invalid, Refusal
from core.service import emails, webhooks
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.notices import KINDS, TITLES, SecretWebhookView

router = APIRouter(route_class=PageRoute)
WebhookId = Annotated[str, Path(max_length=60)]
A_PAGE: Final = 50
TROUBLES: Final = {
    "address": "its address is not public, or is not allowed any more",
    "answer": "the answer was not good",
    "connection": "no connection",
    "key-ended": "the key that made it opens nothing any more",
    "mail-refused": "the mail server refused it",
    "redirect": "it was sent elsewhere, which is not followed",
    "switched-off": "the webhook is off",
    "timeout": "no answer in time",
}
"""Why an attempt failed, in words."""
OFF: Final = {
    "failing": "it failed for three days",
    "gone": "it answered that it is gone",
    "key-ended": "the key that made it opens nothing any more: give it another secret",
    "restored": "the service was restored from a backup",
}
"""Why a webhook is off, in words."""


@dataclass(frozen=True)
class Tried:
    """A form that was sent, and why it was refused."""

    form: Form
    refusal: Refusal | None = None

    @property
    def error(self) -> str:
        """Words for the field."""
        if self.refusal is None:
            return ""
        return " ".join([self.refusal.detail, *(one.detail for one in self.refusal.fields)])

    @property
    def status(self) -> int:
        """Status of the page that shows it."""
        return 200 if self.refusal is None else status_of(type(self.refusal))


_NEW: Final = Tried({})


@page(router, "/you/notices", api=api.list_webhooks)
def show_webhooks(request: Request, caller: Caller, db: Db) -> Response:
    """Show the webhooks, and the form for one more."""
    return _webhooks(request, caller, db, _NEW)


def _webhooks(
    request: Request, caller: Principal, context: Context, tried: Tried, made: SecretWebhookView | None = None
) -> Response:
    facts: dict[str, Any] = {
        "webhooks": webhooks.page(context, caller, None, A_PAGE),
        "made": made,
        "titles": {kind: TITLES[kind] for kind in KINDS},
        "chosen": tried.form.get("kind", list(KINDS)),
        "url": value_of(tried.form, "url"),
        "error": tried.error,
        "off": OFF,
    }
    return render(request, "webhooks.html", facts, at="you", status=tried.status)


@page(router, "/you/notices", api=api.create_webhook, method="POST")
def make_webhook(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Make a webhook, and show its secret once."""
    try:
        asked = NewWebhook.model_validate({"url": value_of(form, "url"), "kinds": form.get("kind", [])})
        view = webhooks.create(db, caller, asked.url, asked.kinds)
    except ValidationError:
        refusal: Refusal = Invalid("Write an address of https, and choose at least one kind of event.")
    except (Invalid, Conflict) as found:
        refusal = found
    else:
        request.state.target = f"webhooks/{view.id}"
        return _webhooks(request, caller, db, _NEW, view)
    request.state.code = refusal.code
    # A browser sends no unticked boxes: without an empty list all kinds would be ticked again.
    return _webhooks(request, caller, db, Tried(form | {"kind": form.get("kind", [])}, refusal))


@page(router, "/you/notices/{webhook_id}", api=api.list_deliveries)
def show_deliveries(webhook_id: WebhookId, request: Request, caller: Caller, db: Db, after: After = None) -> Response:
    """Show the deliveries of a webhook."""
    return _deliveries(request, caller, db, webhook_id, after)


def _deliveries(
    request: Request,
    caller: Principal,
    context: Context,
    webhook_id: str,
    after: str | None = None,
    made: SecretWebhookView | None = None,
) -> Response:
    found = webhooks.delivery_page(context, caller, webhook_id, after, A_PAGE + 1)
    facts = {
        "webhook": webhooks.get(context, caller, webhook_id),
        "deliveries": found[:A_PAGE],
        "older": f"/you/notices/{webhook_id}?after={found[A_PAGE - 1].id}" if len(found) > A_PAGE else None,
        "titles": TITLES,
        "troubles": TROUBLES,
        "off": OFF,
        "made": made,
    }
    return render(request, "deliveries.html", facts, at="you")


@page(router, "/you/notices/{webhook_id}/test", api=api.test_webhook, method="POST")
def send_test(webhook_id: WebhookId, caller: Caller, db: Db) -> Response:
    """Post a test event soon."""
    webhooks.test(db, caller, webhook_id)
    return see_other(f"/you/notices/{webhook_id}")


@page(router, "/you/notices/{webhook_id}/rotate", api=api.rotate_webhook, method="POST")
def replace_secret(webhook_id: WebhookId, request: Request, caller: Caller, db: Db) -> Response:
    """Give a webhook another secret, and show it once."""
    made = webhooks.rotate(db, caller, webhook_id)
    return _deliveries(request, caller, db, webhook_id, made=made)


@page(router, "/you/notices/{webhook_id}/remove", api=api.remove_webhook, method="POST")
def remove_webhook(webhook_id: WebhookId, caller: Caller, db: Db) -> Response:
    """Remove a webhook."""
    webhooks.remove(db, caller, webhook_id)
    return see_other("/you/notices")


@page(router, "/you/email", api=email_api.get_email)
def show_email(request: Request, caller: Caller, db: Db) -> Response:
    """Show one's email address, and the form for it."""
    return _email(request, caller, db, _NEW)


def _email(request: Request, caller: Principal, context: Context, tried: Tried, *, at_code: bool = False) -> Response:
    found = emails.get(context, caller)
    known = found.address if found.address is not None else ""
    facts = {
        "email": found,
        "titles": {kind: TITLES[kind] for kind in KINDS},
        "chosen": tried.form.get("kind", list(found.kinds or KINDS)),
        "address": value_of(tried.form, "address") or known,
        "error": "" if at_code else tried.error,
        "code_error": tried.error if at_code else "",
        "offered": context.settings.smtp_host is not None,
    }
    return render(request, "email.html", facts, at="you", status=tried.status)


@page(router, "/you/email", api=email_api.set_email, method="POST")
def set_email(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Set one's email address."""
    try:
        asked = NewEmail.model_validate({"address": value_of(form, "address"), "kinds": form.get("kind", [])})
        emails.put(db, caller, asked.address, asked.kinds)
    except ValidationError:
        refusal: Refusal = Invalid("Write one address, such as ann@example.com, and choose at least one kind of event.")
    except Conflict as found:
        refusal = found
    else:
        return see_other("/you/email")
    request.state.code = refusal.code
    return _email(request, caller, db, Tried(form | {"kind": form.get("kind", [])}, refusal))


@page(router, "/you/email/confirm", api=email_api.confirm_email, method="POST")
def confirm_email(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Confirm one's email address by the code that was mailed there."""
    try:
        emails.confirm(db, caller, MailCode.model_validate({"code": value_of(form, "code")}).code)
    except ValidationError:
        refusal = Invalid("Write the eight digits of the mail.")
    except Invalid as found:
        refusal = found
    else:
        return see_other("/you/email")
    request.state.code = refusal.code
    return _email(request, caller, db, Tried({}, refusal), at_code=True)


@page(router, "/you/email/remove", api=email_api.remove_email, method="POST")
def remove_email(caller: Caller, db: Db) -> Response:
    """Take one's email address away."""
    emails.remove(db, caller)
    return see_other("/you/email")
