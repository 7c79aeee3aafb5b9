"""The command line: `farthing up | key | upload | estimate | train | watch | summary | budget | verify | ...`.

The address and the key come from `--url` and `--key`, or from FARTHING_URL and FARTHING_KEY.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from farthing import tables
from farthing.client import Client
from farthing.errors import FarthingError
from farthing.views import Job

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Train models privately, and know what it cost.",
    rich_markup_mode=None,
)
out = Console()
err = Console(stderr=True)

Url = Annotated[str, typer.Option(envvar="FARTHING_URL", help="where the service listens")]
Secret = Annotated[str, typer.Option("--key", envvar="FARTHING_KEY", help="API key", show_default=False)]
DEFAULT_URL = "http://127.0.0.1:8000"


def main() -> None:
    """Run the command line; a refusal is printed as text and ends with status 1."""
    try:
        app()
    except FarthingError as refusal:
        err.print(str(refusal), style="red", markup=False, highlight=False)
        sys.exit(1)


def _read(file: Path, what: str) -> Any:  # noqa: ANN401 - JSON may be anything; the service says what is wrong with it
    """Read JSON from a file, or from standard input when the file is `-`."""
    try:
        return json.loads(sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        err.print(f"{what} {file}: {error}", style="red", markup=False)
        raise typer.Exit(2) from error


def _start(module: str, *arguments: str) -> None:
    """Become one of the service's own programs, which live in its checkout or image."""
    if find_spec(module.partition(".")[0]) is None:
        err.print("The service is not installed here, only its client. Use the checkout (`make setup`) or the image.")
        raise typer.Exit(2)
    command = [sys.executable, "-m", module, *arguments]
    if sys.platform == "win32":
        raise typer.Exit(subprocess.call(command))  # noqa: S603 - our own interpreter and module
    os.execv(sys.executable, command)  # noqa: S606 - as above; no shell


@app.command()
def up(
    home: Annotated[Path, typer.Option(envvar="FARTHING_HOME", help="everything lives here")] = Path(".farthing"),
    host: Annotated[str, typer.Option(envvar="FARTHING_HOST")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="FARTHING_PORT")] = 8000,
    workers: Annotated[int, typer.Option(envvar="FARTHING_WORKERS", help="jobs trained at a time")] = 1,
    witness: Annotated[
        Path | None,
        typer.Option(envvar="FARTHING_WITNESS", help="file that keeps the ledger's heads, best on another disk"),
    ] = None,
) -> None:
    """Start the service: API and trainers on one machine, no other server needed."""
    arguments = ["--home", str(home), "--host", host, "--port", str(port), "--workers", str(workers)]
    _start("workers.embedded", *arguments, *(["--witness", str(witness)] if witness else []))


@app.command()
def backup(
    to: Annotated[Path, typer.Argument(help="a new folder")],
    home: Annotated[Path, typer.Option(envvar="FARTHING_HOME")] = Path(".farthing"),
) -> None:
    """Copy database and records of an embedded home, also while it runs."""
    _start("workers.upkeep", "backup", "--home", str(home), "--to", str(to))


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="a folder that `backup` made")],
    home: Annotated[Path, typer.Option(envvar="FARTHING_HOME")] = Path(".farthing"),
) -> None:
    """Put a backup in place; the ledger stays frozen until `reconcile`."""
    _start("workers.upkeep", "restore", "--home", str(home), "--from", str(source))


@app.command()
def reconcile(home: Annotated[Path, typer.Option(envvar="FARTHING_HOME")] = Path(".farthing")) -> None:
    """Raise a restored ledger to its witness and thaw it."""
    _start("workers.upkeep", "reconcile", "--home", str(home))


@app.command()
def key(
    name: Annotated[str, typer.Argument(help="whose key it is")],
    role: Annotated[str, typer.Option(help="owner, analyst, auditor or admin")] = "analyst",
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Make an API key; its secret is printed once."""
    with Client(url, secret) as client:
        made = client.create_key(name, role)
    err.print(f"{made.role} key {made.id} for {name}; keep the line below, it is shown once:")
    out.print(made.key, markup=False, highlight=False, soft_wrap=True)


@app.command()
def upload(
    file: Annotated[Path, typer.Argument(help="CSV, Parquet or Arrow")],
    metadata: Annotated[Path, typer.Option("--metadata", "-m", help="JSON: name, columns, budget")],
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Upload records with declared bounds and a budget."""
    declared = _read(metadata, "metadata")
    if not file.is_file():
        err.print(f"{file}: no such file", style="red", markup=False)
        raise typer.Exit(2)
    size = file.stat().st_size
    with Client(url, secret) as client, file.open("rb") as raw, _bar() as progress:
        task = progress.add_task("upload", total=size)
        with progress.wrap_file(raw, task_id=task) as stream:
            dataset = client.upload(stream, declared)
    out.print(tables.dataset(dataset))


@app.command()
def estimate(
    job: Annotated[Path, typer.Argument(help="JSON of the job, or - for standard input")],
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Price a job and predict its accuracy; no record is read."""
    with Client(url, secret) as client:
        out.print(tables.estimate(client.estimate(_read(job, "job"))))


@app.command()
def train(
    job: Annotated[Path, typer.Argument(help="JSON of the job, or - for standard input")],
    *,
    detach: Annotated[bool, typer.Option("--detach", help="print the job's id and return")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="send again with the same key, pay once")] = None,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Submit a job, watch it, and print its coefficient table."""
    with Client(url, secret) as client:
        queued = client.submit(_read(job, "job"), key=idempotency_key)
        if detach:
            out.print(queued.id, highlight=False)
            return
        _follow(client, queued)


@app.command()
def watch(job: str, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Watch a job to its end."""
    with Client(url, secret) as client:
        _follow(client, client.job(job))


@app.command()
def cancel(job: str, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Cancel a job; what it has not spent is given back."""
    with Client(url, secret) as client:
        out.print(f"{job}: {client.cancel(job).state}", highlight=False)


@app.command()
def summary(
    model: str,
    *,
    level: Annotated[float | None, typer.Option(help="of the intervals")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Print a model's coefficient table with private intervals."""
    with Client(url, secret) as client:
        found = client.summary(model, level=level)
    if as_json:
        out.print_json(found.model_dump_json())
    else:
        out.print(tables.summary(found))


@app.command()
def budget(dataset: str, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print what is left of the budget of the people behind a dataset."""
    with Client(url, secret) as client:
        out.print(tables.budget(client.budget(dataset)))


@app.command()
def verify(scope: str, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Recompute a scope's chain of entries and its sums; status 1 when it is not whole."""
    with Client(url, secret) as client:
        found = client.verify(scope)
    out.print_json(found.model_dump_json())
    if not found.ok:
        raise typer.Exit(1)


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=err, transient=True)


def _follow(client: Client, job: Job) -> None:
    """Show steps until the job has ended, then its table and its cost."""
    with _bar() as progress:
        task = progress.add_task(job.state, total=job.progress.steps)

        def show(seen: Job) -> None:
            progress.update(task, description=seen.state, completed=seen.progress.step, total=seen.progress.steps)

        done = client.wait(job.id, progress=show)
    if done.model is None:
        out.print(f"{done.id}: {done.state}; its release waits for the owner's approval", highlight=False)
        return
    out.print(tables.summary(client.summary(done.model)))
    out.print(tables.cost(done))


if __name__ == "__main__":
    main()
