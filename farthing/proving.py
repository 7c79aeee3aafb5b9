"""Commands about what the service has signed: get it, and check it where no service is."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import RenderableType

from farthing.bars import bar
from farthing.certificate_forms import Event, FederatedCertificate, Head, Software
from farthing.client import Client
from farthing.console import (
    DEFAULT_URL,
    REFUSED,
    WRONG_INPUT,
    Json,
    JsonAnyway,
    Secret,
    Url,
    answer,
    app,
    complain,
    err,
    plain_table,
    read_json,
    say,
)
from farthing.schemas.ledger import EntryView

if TYPE_CHECKING:
    from farthing.certificates import Signed

commands = typer.Typer(no_args_is_help=True, help="Certificates of jobs and signed heads of ledgers.")
app.add_typer(commands, name="certificate")

JobId = Annotated[str, typer.Argument(metavar="JOB", help="job_...")]
FIGURES: Final = ("epsilon", "delta", "rho", "mu")


@commands.command()
def get(job: JobId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print the certificate of a job that has ended. It states draws and promises, signed; keep it with the model."""
    with Client(url, secret) as client:
        text = _waited(lambda progress: client.certificate(job, progress=progress))
    answer({"job": job, "certificate": text}, text, as_json=as_json)


@commands.command()
def head(
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="sc_...")],
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Print where a scope's ledger stands, signed. Keep it where the operator cannot reach."""
    with Client(url, secret) as client:
        text = _waited(lambda progress: client.signed_head(scope, progress=progress))
    answer({"scope": scope, "head": text}, text, as_json=as_json)


@commands.command()
def keys(*, _as_json: JsonAnyway = False, url: Url = DEFAULT_URL) -> None:
    """Print the public keys of an installation. Keep them: a certificate is worth what these are."""
    with Client(url) as client:
        answer(client.signing_keys(), "", as_json=True)


@commands.command()
def check(
    file: Annotated[Path, typer.Argument(help="a certificate or a signed head")],
    jwks: Annotated[
        Path | None, typer.Option(help="public keys, as `certificate keys` prints them; default: asks the service")
    ] = None,
    after: Annotated[
        Path | None, typer.Option(help="an older one of the same ledger, which must not have gone back since")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="the ledger, as `entries --json` prints it: it must say the same")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="the model's export as JSON: it must be the one")] = None,
    job: Annotated[str, typer.Option(help="job_...: it must be this job's")] = "",
    whole: Annotated[
        Path | None, typer.Option(help="the certificate of the federated job that it is a client of")
    ] = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Check a certificate or a signed head here, without the service. Status 1 when it is not good."""
    from farthing import certificates  # noqa: PLC0415 - loads cryptography, which other commands need not wait for

    public = _keys(jwks, url)
    entries = None if ledger is None else _entries(ledger)
    try:
        found = certificates.check(_text(file), public)
        if after is not None:
            certificates.extends(found, certificates.check(_text(after), public), entries)
        elif entries is not None:
            certificates.contained(found, entries)
        if job:
            certificates.of_job(found, job)
        if model is not None:
            certificates.released(found, read_json(model, "model"))
        if whole is not None:
            certificates.part_of(found, certificates.check(_text(whole), public))
    except certificates.BadCertificateError as bad:
        complain(f"{file}: {bad}")
        raise typer.Exit(REFUSED) from None
    answer(found.payload, shown(found), as_json=as_json)


def _waited(ask: Callable[[Callable[[int], None]], str]) -> str:
    """Return an answer, and show meanwhile how much of the ledger the service has verified for it."""
    with ExitStack() as until_it_comes:
        task: list[Callable[[int], None]] = []

        def progress(percent: int) -> None:
            # The bar begins with the first figure, since most answers come without any.
            if not task:
                say("The service verifies the ledger first.")
                found = until_it_comes.enter_context(bar(err))
                number = found.add_task("verified, %", total=100)
                task.append(lambda done: found.update(number, completed=done))
            task[0](percent)

        return ask(progress)


def shown(signed: "Signed") -> RenderableType:
    """Show what is good of a certificate, or of a signed head."""
    told, issuer = signed.told, str(signed.payload["issuer"])
    when = f"{datetime.fromtimestamp(signed.at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    rows = [("issuer", issuer), ("signed", when), ("by key", signed.key)]
    if isinstance(told, Head):
        rows += [("scope", told.scope), ("entries", str(told.seq)), ("head", told.hash)]
        return plain_table("signed head of a ledger", rows)
    job, result = told.job, told.result
    rows += [("job", f"{job.id}, {job.state}" + (f" ({job.error})" if job.error else ""))]
    rows += [("method", told.method.optimizer.kind), ("model", (result and result.model) or "-")]
    rows += [("model's digest", (result and result.digest) or "-")]
    if isinstance(told, FederatedCertificate):
        rows += [(f"client {one.place}", f"{one.state}, {one.certificate}") for one in told.clients]
        return plain_table("certificate of a federated job", rows)
    charged = "; ".join(f"{times} x {_event(event)}" for times, event in told.events.charged) or "nothing"
    rows += [
        ("dataset", f"{told.dataset.id}, fingerprint {told.dataset.fingerprint or '-'}"),
        ("scope", f"{told.scope.id}, {told.scope.units} units"),
        ("charged", charged),
    ]
    for relation in ("zero_out", "replace_one"):
        figures = getattr(told.promise, relation)
        said = ", ".join(f"{name} {getattr(figures, name)}" for name in FIGURES if figures and getattr(figures, name))
        rows.append((relation, f"{said}, {told.promise.label}" if figures else "-"))
    rows += [("computed with", _software(one)) for one in [one.software for one in told.software] or [None]]
    ledger = told.ledger
    rows.append(("ledger", f"entries {ledger.first.seq} to {ledger.last.seq}, {ledger.last.hash}"))
    rows += [("no entry covers", ", ".join(told.uncovered))] if told.uncovered else []
    for one in ledger.reconciled:
        missing = "" if one.since is None else f": payments of {one.since:.0f} to {one.until:.0f} may be missing"
        rows.append((one.kind, f"entry {one.seq}{missing}"))
    return plain_table("certificate of a job", rows)


def _event(event: Event) -> str:
    members = {name: value for name, value in event.model_dump().items() if name != "kind"}
    return f"{event.kind} " + ", ".join(f"{name} {value}" for name, value in members.items())


def _software(told: Software | None) -> str:
    if told is None:
        return "not known: it was not written down"
    libraries = ", ".join(f"{name} {version}" for name, version in told.libraries.items())
    return f"farthing {told.farthing.version} ({told.farthing.source}), Python {told.python}, {libraries}"


def _keys(jwks: Path | None, url: str) -> Mapping[str, Any]:
    """Return the public keys of a file, or of the service."""
    if jwks is not None:
        found: Mapping[str, Any] = read_json(jwks, "keys")
        return found
    with Client(url) as client:
        return client.signing_keys()


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        complain(f"{file}: cannot be read ({type(error).__name__})")
        raise typer.Exit(WRONG_INPUT) from None


def _entries(file: Path) -> list[EntryView]:
    try:
        return [EntryView.model_validate_json(text) for text in _text(file).splitlines() if text]
    except ValueError:
        complain(f"{file}: no ledger that can be read")
        raise typer.Exit(WRONG_INPUT) from None
