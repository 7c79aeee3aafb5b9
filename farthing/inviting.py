"""Commands of invitations: one-time links for new colleagues."""

from typing import Annotated

import typer

from farthing.client import Client
from farthing.console import (
    DEFAULT_URL,
    WRONG_INPUT,
    Json,
    Secret,
    Url,
    answer,
    app,
    complain,
    figure,
    plain_table,
    say,
)


@app.command()
def invite(
    note: Annotated[str, typer.Argument(help="for whom it is, in words")],
    role: Annotated[str, typer.Option(help="owner, analyst, auditor or admin; an owner invites analysts")] = "analyst",
    dataset: Annotated[str | None, typer.Option(help="ds_..., of your own: gives access to it")] = None,
    budget_share: Annotated[
        str | None, typer.Option(help="with a dataset: the part of its budget, from 0 to 1, or all")
    ] = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Invite a colleague. The token is printed once, and works once within seven days."""
    if (dataset is None) != (budget_share is None):
        complain("--dataset and --budget-share: give both or neither")
        raise typer.Exit(WRONG_INPUT)
    cap = None if budget_share is None else budget_share if budget_share == "all" else {"budget_share": budget_share}
    with Client(url, secret) as client:
        made = client.invite(role, note, dataset=dataset, cap=cap)
    say(f"{made.id}, until {made.expires_at}; send the line below, which is shown once, for `farthing join`:")
    answer(made, made.token, as_json=as_json)


@app.command()
def invitations(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List invitations, newest first. Your own, or as an admin or auditor everybody's."""
    with Client(url, secret) as client:
        found = list(client.invitations())
    rows = [(one.id, one.role, one.note, one.state, one.expires_at, figure(one.principal)) for one in found]
    answer(
        found, plain_table("", rows, left=("invitation", "role", "for", "state", "until", "principal")), as_json=as_json
    )


@app.command()
def withdraw(
    invitation: Annotated[str, typer.Argument(metavar="INVITATION", help="inv_...")],
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """End an invitation that waits. Its token opens nothing from then on."""
    with Client(url, secret) as client:
        answer(client.withdraw_invitation(invitation), f"{invitation}: withdrawn", as_json=as_json)


@app.command()
def join(
    name: Annotated[str, typer.Argument(help="as others shall read it")],
    token: Annotated[str, typer.Option(prompt=True, hide_input=True, help="of the invitation; asked for if left out")],
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Accept an invitation. Your first key is printed once."""
    with Client(url) as client:
        made = client.accept_invitation(token, name)
    say(f"{made.role} {made.principal}, key {made.key_id}; keep the line below, it is shown once:")
    answer(made, made.key, as_json=as_json)
