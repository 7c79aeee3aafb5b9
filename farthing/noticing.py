"""Commands of notices: webhooks, and the email address."""

from typing import Annotated

import typer

from farthing.client import Client
from farthing.console import DEFAULT_URL, Json, Secret, Url, answer, app, figure, plain_table, say
from farthing.schemas.notices import KINDS, DeliveryView, EmailView

webhooks = typer.Typer(no_args_is_help=True, help="Have events posted to an address, signed.")
email = typer.Typer(no_args_is_help=True, help="Have events mailed to you.")
app.add_typer(webhooks, name="webhooks")
app.add_typer(email, name="email")

WebhookId = Annotated[str, typer.Argument(metavar="WEBHOOK", help="whk_...")]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", help=f"{', '.join(KINDS)}; may be repeated; default: all of them")
]


@webhooks.command("add")
def add_webhook(
    address: Annotated[str, typer.Argument(help="https://..., public")],
    kind: Kinds = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Add a webhook. Its secret is printed once."""
    with Client(url, secret) as client:
        made = client.create_webhook(address, kind)
    say(f"{made.id}; keep the line below, which verifies signatures and is shown once:")
    answer(made, made.secret, as_json=as_json)


@webhooks.command("list")
def list_webhooks(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List your webhooks, newest first."""
    with Client(url, secret) as client:
        found = list(client.webhooks())
    rows = [(one.id, one.url, ", ".join(one.kinds), one.state, figure(one.off_reason)) for one in found]
    answer(found, plain_table("", rows, left=("webhook", "address", "events", "state", "off because")), as_json=as_json)


@webhooks.command("remove")
def remove_webhook(webhook: WebhookId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Remove a webhook with its deliveries."""
    with Client(url, secret) as client:
        client.remove_webhook(webhook)
    answer({"webhook": webhook, "state": "removed"}, f"{webhook}: removed", as_json=as_json)


@webhooks.command("rotate")
def rotate_webhook(webhook: WebhookId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Give a webhook another secret. The one before signs too for a day."""
    with Client(url, secret) as client:
        made = client.rotate_webhook(webhook)
    say(f"{made.id}; keep the line below, it is shown once; the secret before it signs until {made.previous_until}:")
    answer(made, made.secret, as_json=as_json)


@webhooks.command("test")
def try_webhook(webhook: WebhookId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Post a test event. `farthing webhooks deliveries` shows what became of it."""
    with Client(url, secret) as client:
        found = client.test_webhook(webhook)
    answer(found, f"{found.id}: waiting", as_json=as_json)


@webhooks.command("deliveries")
def deliveries(webhook: WebhookId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List the deliveries of a webhook, newest first."""
    with Client(url, secret) as client:
        found = list(client.deliveries(webhook))
    answer(found, "\n".join(map(_delivery, found)), as_json=as_json)


def _delivery(one: DeliveryView) -> str:
    """Return a delivery in one line, whatever the width of the terminal."""
    said = [one.id, one.event, one.happened_at, one.state]
    said += [one.trouble] if one.trouble else []
    said += [f"{one.attempts} attempt{'' if one.attempts == 1 else 's'}"]
    said += [f"next {one.next_at}"] if one.next_at else []
    return "  ".join(said)


@email.command("show")
def show_email(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print your email address."""
    with Client(url, secret) as client:
        found = client.email()
    answer(found, _words(found), as_json=as_json)


@email.command("set")
def set_email(
    address: Annotated[str, typer.Argument(help="one address, without a name")],
    kind: Kinds = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Set your email address. A new one is mailed a code for `farthing email confirm`."""
    with Client(url, secret) as client:
        found = client.set_email(address, kind)
    answer(found, _words(found), as_json=as_json)


@email.command("confirm")
def confirm_email(
    code: Annotated[str, typer.Argument(help="the eight digits of the mail")],
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Confirm your email address."""
    with Client(url, secret) as client:
        found = client.confirm_email(code)
    answer(found, _words(found), as_json=as_json)


@email.command("remove")
def remove_email(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Take your email address away."""
    with Client(url, secret) as client:
        client.remove_email()
    answer({"address": None}, "no address", as_json=as_json)


def _words(found: EmailView) -> str:
    return "no address" if found.address is None else f"{found.address}: {found.state}; {', '.join(found.kinds)}"
