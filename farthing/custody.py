"""Commands of the owner, the auditor and the administrator: records, budgets, keys, access, approval, audit."""

from typing import Annotated, Literal

import typer

from farthing import job_tables, ledger_tables, tables
from farthing.client import Client
from farthing.console import (
    DEFAULT_URL,
    REFUSED,
    WRONG_INPUT,
    Json,
    Secret,
    Url,
    answer,
    app,
    complain,
    line,
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
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Make an API key, of a new principal unless one is named. Its secret is printed once."""
    with Client(url, secret) as client:
        made = client.create_key(name, role, principal=principal)
    say(f"{made.role} {made.principal}, key {made.id} for {name}; keep the line below, it is shown once:")
    answer(made, made.key or "", as_json=as_json)


@app.command()
def keys(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List your API keys, or as an admin everybody's. Newest first; no part of a secret is kept."""
    with Client(url, secret) as client:
        found = list(client.keys())
    answer(found, tables.keys(found), as_json=as_json)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY", help="key_...")],
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Stop an API key for good."""
    with Client(url, secret) as client:
        answer(client.revoke_key(key_id), f"{key_id}: revoked", as_json=as_json)


@app.command()
def rotate(
    key_id: Annotated[str | None, typer.Argument(metavar="KEY", help="key_...; default: the one in use")] = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Replace an API key; the old one stops at once. The new secret is printed once."""
    with Client(url, secret) as client:
        made = client.rotate_key(key_id or client.me().key)
    say(f"key {made.id} of {made.principal}; keep the line below, it is shown once:")
    answer(made, made.key or "", as_json=as_json)


@app.command()
def principals(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List principals, newest first. With those who are disabled; for admins and auditors."""
    with Client(url, secret) as client:
        found = list(client.principals())
    answer(found, tables.principals(found), as_json=as_json)


@app.command()
def disable(
    principal: PrincipalId,
    reason: Annotated[str, typer.Option(help="kept with the principal")],
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Shut a principal out. All its keys stop at once, and none of its queued jobs starts. For admins."""
    with Client(url, secret) as client:
        answer(client.disable(principal, reason), f"{principal}: disabled", as_json=as_json)


@app.command()
def enable(principal: PrincipalId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Let a principal in again. Its keys that were not revoked go on. For admins."""
    with Client(url, secret) as client:
        answer(client.enable(principal), f"{principal}: enabled", as_json=as_json)


@app.command()
def me(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print who this key speaks for."""
    with Client(url, secret) as client:
        found = client.me()
    answer(found, f"{found.role} {found.id} ({found.name})", as_json=as_json)


@app.command()
def datasets(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List the datasets that this key may see."""
    with Client(url, secret) as client:
        found = list(client.datasets())
    answer(found, tables.datasets(found), as_json=as_json)


@app.command()
def validation(dataset: DatasetId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print how the cells of each column were read. For the owner alone: these counts are private."""
    with Client(url, secret) as client:
        found = client.validation(dataset)
    answer(found, tables.validation(found), as_json=as_json)


@app.command()
def identity(dataset: DatasetId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print what an upload shares with earlier ones. And what was stated; for the owner alone."""
    with Client(url, secret) as client:
        found = client.identity(dataset)
    lines = [
        f"{one.dataset} in {one.scope}: {one.share:.2f} of the smaller one's rows in common" for one in found.overlaps
    ]
    lines = lines or ["more than half of the rows in common: with none of your datasets"]
    answer(found, "\n".join([*lines, "stated: " + (found.distinct_because or "nothing")]), as_json=as_json)


@app.command()
def erase(
    dataset: DatasetId,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Erase a dataset's records; the ledger stays. The budget that was spent stays spent."""
    if not yes:
        typer.confirm(f"Erase the records of {dataset} for good?", abort=True, err=True)
    with Client(url, secret) as client:
        found = client.erase(dataset)
    answer(found, f"{dataset}: {found.state}", as_json=as_json)


@app.command(name="remove-record")
def remove_record(
    dataset: DatasetId,
    row: Annotated[int, typer.Argument(min=1, help="of the file; 1 is the first row of data, below the names")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Remove one record for good. Its row is excluded from later jobs, and nobody but you sees that."""
    if not yes:
        typer.confirm(f"Remove row {row} of {dataset} for good?", abort=True, err=True)
    with Client(url, secret) as client:
        found = client.remove_record(dataset, row)
    rest = "the earlier file is destroyed" if found.destroyed else "jobs that began before may read the earlier file"
    answer(found, f"{dataset}: row {row} is removed; {rest}", as_json=as_json)


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
    as_json: Json = False,
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
    may = f"may use {tables.cap(made)} of {made.scope} through {', '.join(made.datasets)}"
    answer(made, f"{made.name} ({principal}) {may}", as_json=as_json)


@app.command()
def access(dataset: DatasetId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List who may use a dataset. With each one's cap and what is used of it."""
    with Client(url, secret) as client:
        found = client.accesses(dataset)
    answer(found, tables.accesses(found), as_json=as_json)


@app.command()
def unshare(
    dataset: DatasetId, principal: PrincipalId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = ""
) -> None:
    """Take a principal's access to a dataset away. With the last one in the scope, its cap closes."""
    with Client(url, secret) as client:
        client.unshare(dataset, principal)
    done = {"dataset": dataset, "principal": principal, "access": None}
    answer(done, f"{principal} no longer uses {dataset}", as_json=as_json)


@app.command()
def budget(dataset: DatasetId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print what is left of the budget of a dataset's people."""
    with Client(url, secret) as client:
        found = client.budget(dataset)
    answer(found, ledger_tables.budget(found), as_json=as_json)


@app.command()
def entries(scope: ScopeId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print a scope's ledger, oldest first. With what each entry moved."""
    with Client(url, secret) as client:
        found = list(client.entries(scope))
    answer(found, ledger_tables.entries(found), as_json=as_json)


@app.command()
def verify(scope: ScopeId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Have the service recompute a scope's whole ledger. Status 1 when it is not whole, or was not read."""
    with Client(url, secret) as client:
        found = client.verify(scope)
    answer(found, ledger_tables.verification(found), as_json=as_json)
    if not found.ok or found.running:
        raise typer.Exit(REFUSED)


@app.command()
def freeze(
    scope: ScopeId, reason: Reason, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = ""
) -> None:
    """Stop a scope from admitting jobs; running ones end."""
    with Client(url, secret) as client:
        found = client.freeze(scope, reason)
    answer(found, f"{scope} is frozen: {found.frozen}", as_json=as_json)


@app.command()
def unfreeze(
    scope: ScopeId, reason: Reason, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = ""
) -> None:
    """Let a frozen scope admit jobs again."""
    with Client(url, secret) as client:
        answer(client.unfreeze(scope, reason), f"{scope} admits jobs", as_json=as_json)


@app.command()
def accept(
    scope: ScopeId,
    entry: Annotated[int, typer.Argument(help="the entry that says what may be missing, as `budget` shows it")],
    reason: Reason,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Accept that entries of a ledger may be missing. Its witness was lost, and the scope admits jobs from here on."""
    with Client(url, secret) as client:
        found = client.accept(scope, entry, reason)
    still = f"{scope} is frozen all the same: {found.frozen}"
    answer(found, f"{scope} admits jobs" if found.frozen is None else still, as_json=as_json)


@app.command()
def approvals(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List the releases that wait for your approval. Newest first, without their figures."""
    with Client(url, secret) as client:
        found = list(client.models(approval="pending"))
    answer(found, job_tables.models(found), as_json=as_json)


@app.command()
def approve(
    model: ModelId,
    reason: Annotated[str | None, typer.Option(help="why; it stays in the ledger")] = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Let a release be seen that waits for its owner's approval."""
    with Client(url, secret) as client:
        client.approve(model, reason)
    answer({"model": model, "approval": "approved"}, f"{model} is approved", as_json=as_json)


@app.command()
def reject(
    model: ModelId,
    reason: Annotated[str, typer.Option(help="why; it stays in the ledger")],
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Keep a release from being seen; its cost stays spent."""
    with Client(url, secret) as client:
        client.reject(model, reason)
    answer({"model": model, "approval": "rejected"}, f"{model} is rejected", as_json=as_json)


@app.command()
def audit(
    *,
    form: Annotated[Literal["jsonl", "csv"], typer.Option("--format", help="of the lines; --json: jsonl")] = "jsonl",
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Print who asked for what, oldest first.

    Admins and auditors get all of it, an owner what is about his data.
    """
    with Client(url, secret) as client:
        for text in client.audit_export("jsonl" if as_json else form):
            line(text)


@app.command()
def workers(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List the supervisors of the last day, the last seen first. For admins and auditors."""
    with Client(url, secret) as client:
        found = list(client.workers())
    answer(found, tables.workers(found), as_json=as_json)
