"""Commands of the owner, the auditor and the administrator: records, budgets, keys, access, approval, audit."""

from typing import Annotated, Literal

import typer

from farthing import job_tables, ledger_tables, tables
from farthing.client import Client
from farthing.console import (
    DEFAULT_URL,
    WRONG_INPUT,
    Json,
    Secret,
    Url,
    app,
    complain,
    line,
    out,
    say,
)

DatasetId = Annotated[str, typer.Argument(help="ds_...")]
ScopeId = Annotated[str, typer.Argument(help="sc_...")]
ModelId = Annotated[str, typer.Argument(help="mdl_...")]
PrincipalId = Annotated[str, typer.Argument(help="pr_..., as `key` and `me` print it")]
Reason = Annotated[str, typer.Option(help="kept in the ledger for ever")]


@app.command()
def key(
    name: Annotated[str, typer.Argument(help="the principal of the key")],
    role: Annotated[str, typer.Option(help="owner, analyst, auditor or admin")] = "analyst",
    principal: Annotated[str | None, typer.Option(help="pr_..., of that role: one more key for them")] = None,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Make an API key, of a new principal unless one is named. Its secret is printed once."""
    with Client(url, secret) as client:
        made = client.create_key(name, role, principal=principal)
    say(f"{made.role} {made.principal}, key {made.id} for {name}; keep the line below, it is shown once:")
    line(made.key or "")


@app.command()
def keys(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List your API keys, newest first, or as an admin everybody's. No part of a secret is kept."""
    with Client(url, secret) as client:
        found = list(client.keys())
    if as_json:
        for one in found:
            line(one.model_dump_json())
    else:
        out.print(tables.keys(found))


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY", help="key_...")], url: Url = DEFAULT_URL, secret: Secret = ""
) -> None:
    """Stop an API key for good."""
    with Client(url, secret) as client:
        line(f"{client.revoke_key(key_id).id}: revoked")


@app.command()
def rotate(
    key_id: Annotated[str | None, typer.Argument(metavar="KEY", help="key_...; default: the one in use")] = None,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Replace an API key; the old one stops at once. The new secret is printed once."""
    with Client(url, secret) as client:
        made = client.rotate_key(key_id or client.me().key)
    say(f"key {made.id} of {made.principal}; keep the line below, it is shown once:")
    line(made.key or "")


@app.command()
def principals(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List principals, newest first. With those who are disabled; for admins and auditors."""
    with Client(url, secret) as client:
        found = list(client.principals())
    if as_json:
        for one in found:
            line(one.model_dump_json())
    else:
        out.print(tables.principals(found))


@app.command()
def disable(
    principal: PrincipalId,
    reason: Annotated[str, typer.Option(help="kept with the principal")],
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Shut a principal out. All its keys stop at once, and none of its queued jobs starts. For admins."""
    with Client(url, secret) as client:
        line(f"{client.disable(principal, reason).id}: disabled")


@app.command()
def enable(principal: PrincipalId, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Let a principal in again. Its keys that were not revoked go on. For admins."""
    with Client(url, secret) as client:
        line(f"{client.enable(principal).id}: enabled")


@app.command()
def me(url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print who this key speaks for."""
    with Client(url, secret) as client:
        found = client.me()
    line(f"{found.role} {found.id} ({found.name})")


@app.command()
def datasets(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List the datasets that this key may see."""
    with Client(url, secret) as client:
        found = list(client.datasets())
    if as_json:
        for one in found:
            line(one.model_dump_json())
    else:
        out.print(tables.datasets(found))


@app.command()
def validation(dataset: DatasetId, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print how the cells of each column were read. For the owner alone: these counts are private."""
    with Client(url, secret) as client:
        out.print(tables.validation(client.validation(dataset)))


@app.command()
def identity(dataset: DatasetId, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print what an upload shares with earlier ones. And what was stated; for the owner alone."""
    with Client(url, secret) as client:
        found = client.identity(dataset)
    for one in found.overlaps:
        line(f"{one.dataset} in {one.scope}: {one.share:.2f} of the smaller one's rows in common")
    if not found.overlaps:
        line("more than half of the rows in common: with none of your datasets")
    line("stated: " + (found.distinct_because or "nothing"))


@app.command()
def erase(
    dataset: DatasetId,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Erase a dataset's records; the ledger stays. The budget that was spent stays spent."""
    if not yes:
        typer.confirm(f"Erase the records of {dataset} for good?", abort=True, err=True)
    with Client(url, secret) as client:
        line(f"{dataset}: {client.erase(dataset).state}")


@app.command()
def share(
    dataset: DatasetId,
    principal: PrincipalId,
    budget_share: Annotated[str | None, typer.Option(help="of the budget, such as 0.1")] = None,
    epsilon: Annotated[str | None, typer.Option(help="the most that may be learnt, in place of a budget share")] = None,
    rho: Annotated[str | None, typer.Option(help="the same, zero-concentrated")] = None,
    delta: Annotated[str | None, typer.Option(help="of epsilon or rho; default: the budget's")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="as much as there is of the budget")] = False,
    change: Annotated[
        bool, typer.Option("--change", help="the cap that is there, for all datasets of the scope")
    ] = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Let a principal use a dataset up to a cap. State it by --budget-share, --epsilon, --rho or --all."""
    figures = (("budget_share", budget_share), ("epsilon", epsilon), ("rho", rho), ("delta", delta))
    part = {name: text for name, text in figures if text is not None}
    if everything == bool(part):
        complain("Say how much of the budget: --budget-share 0.1, --epsilon, --rho, or --all alone.")
        raise typer.Exit(WRONG_INPUT)
    with Client(url, secret) as client:
        present = {one.principal: one.version for one in client.accesses(dataset)} if change else {}
        made = client.share(dataset, principal, "all" if everything else part, version=present.get(principal))
    line(f"{made.name} ({principal}) may use {tables.cap(made)} of {made.scope} through {', '.join(made.datasets)}")


@app.command()
def access(dataset: DatasetId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List who may use a dataset. With each one's cap and what is used of it."""
    with Client(url, secret) as client:
        found = client.accesses(dataset)
    if as_json:
        for one in found:
            line(one.model_dump_json())
    else:
        out.print(tables.accesses(found))


@app.command()
def unshare(dataset: DatasetId, principal: PrincipalId, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Take a principal's access to a dataset away. With the last one in the scope, its cap closes."""
    with Client(url, secret) as client:
        client.unshare(dataset, principal)
    line(f"{principal} no longer uses {dataset}")


@app.command()
def budget(dataset: DatasetId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print what is left of the budget of a dataset's people."""
    with Client(url, secret) as client:
        found = client.budget(dataset)
    out.print_json(found.model_dump_json()) if as_json else out.print(ledger_tables.budget(found))


@app.command()
def entries(scope: ScopeId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print a scope's ledger, oldest first. With what each entry moved."""
    with Client(url, secret) as client:
        found = list(client.entries(scope))
    if as_json:
        for one in found:
            line(one.model_dump_json())
    else:
        out.print(ledger_tables.entries(found))


@app.command()
def verify(scope: ScopeId, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Have the service recompute a scope's chain, prices and sums. Status 1 when it is not whole, or was not read."""
    with Client(url, secret) as client:
        found = client.verify(scope)
    out.print_json(found.model_dump_json())
    if not found.ok or found.running:
        raise typer.Exit(1)


@app.command()
def freeze(scope: ScopeId, reason: Reason, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Stop a scope from admitting jobs; running ones end."""
    with Client(url, secret) as client:
        line(f"{scope} is frozen: {client.freeze(scope, reason).frozen}")


@app.command()
def unfreeze(scope: ScopeId, reason: Reason, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Let a frozen scope admit jobs again."""
    with Client(url, secret) as client:
        client.unfreeze(scope, reason)
    line(f"{scope} admits jobs")


@app.command()
def accept(
    scope: ScopeId,
    entry: Annotated[int, typer.Argument(help="the entry that says what may be missing, as `budget` shows it")],
    reason: Reason,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Accept that entries of a ledger may be missing. Its witness was lost, and the scope admits jobs from here on."""
    with Client(url, secret) as client:
        frozen = client.accept(scope, entry, reason).frozen
    line(f"{scope} admits jobs" if frozen is None else f"{scope} is frozen all the same: {frozen}")


@app.command()
def approvals(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List the releases that wait for your approval. Newest first, without their figures."""
    with Client(url, secret) as client:
        found = list(client.models(approval="pending"))
    if as_json:
        for one in found:
            line(one.model_dump_json())
    else:
        out.print(job_tables.models(found))


@app.command()
def approve(
    model: ModelId,
    reason: Annotated[str | None, typer.Option(help="why; it stays in the ledger")] = None,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Let a release be seen that waits for its owner's approval."""
    with Client(url, secret) as client:
        client.approve(model, reason)
    line(f"{model} is approved")


@app.command()
def reject(
    model: ModelId,
    reason: Annotated[str, typer.Option(help="why; it stays in the ledger")],
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Keep a release from being seen; its cost stays spent."""
    with Client(url, secret) as client:
        client.reject(model, reason)
    line(f"{model} is rejected")


@app.command()
def audit(
    *,
    form: Annotated[Literal["jsonl", "csv"], typer.Option("--format", help="of the lines")] = "jsonl",
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Print who asked for what, oldest first.

    Admins and auditors get all of it, an owner what is about his data.
    """
    with Client(url, secret) as client:
        for text in client.audit_export(form):
            line(text)


@app.command()
def workers(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List the supervisors of the last day, the last seen first. For admins and auditors."""
    with Client(url, secret) as client:
        found = list(client.workers())
    if as_json:
        for one in found:
            line(one.model_dump_json())
    else:
        out.print(tables.workers(found))
