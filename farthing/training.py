"""Commands of the analyst: price a job, run it, read what it released."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from farthing import tables
from farthing.client import Client
from farthing.console import DEFAULT_URL, WRONG_INPUT, Json, Level, Secret, Url, app, bar, complain, err, line, out
from farthing.console import read_json as read
from farthing.views import Job

JobFile = Annotated[Path, typer.Argument(help="JSON of the job, or - for standard input")]
JobId = Annotated[str, typer.Argument(help="job_...")]
ModelId = Annotated[str, typer.Argument(help="mdl_...")]


@app.command()
def estimate(job: JobFile, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Price a job and predict its accuracy; no record is read."""
    asked = read(job, "job")
    with Client(url, secret) as client:
        found = client.estimate(asked)
    out.print_json(found.model_dump_json()) if as_json else out.print(tables.estimate(found))


@app.command()
def train(
    job: JobFile,
    *,
    detach: Annotated[bool, typer.Option("--detach", help="print the job's id and return")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="send again with the same key, pay once")] = None,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Submit a job, watch it, and print its coefficient table."""
    asked = read(job, "job")
    with Client(url, secret) as client:
        queued = client.submit(asked, key=idempotency_key)
        if detach:
            line(queued.id)
            return
        err.print(f"{queued.id} is {queued.state}; Ctrl-C leaves it running", highlight=False)
        _follow(client, queued)


@app.command()
def watch(job: JobId, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Watch a job to its end, and print its coefficient table."""
    with Client(url, secret) as client:
        _follow(client, client.job(job))


@app.command()
def jobs(
    state: Annotated[str | None, typer.Option(help="queued, running, succeeded, failed, cancelled ...")] = None,
    dataset: Annotated[str | None, typer.Option(help="ds_...")] = None,
    label: Annotated[str | None, typer.Option(help="key:value")] = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """List jobs, newest first."""
    wanted = {name: text for name, text in (("state", state), ("dataset", dataset), ("label", label)) if text}
    with Client(url, secret) as client:
        found = list(client.jobs(**wanted))
    if as_json:
        for job in found:
            line(job.model_dump_json())
    else:
        out.print(tables.jobs(found))


@app.command()
def cancel(job: JobId, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Cancel a job; what it has not spent is given back."""
    with Client(url, secret) as client:
        line(f"{job}: {client.cancel(job).state}")


@app.command()
def report(job: JobId, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print a job's privacy report as JSON."""
    with Client(url, secret) as client:
        out.print_json(data=client.report(job))


@app.command()
def summary(
    model: ModelId, level: Level = None, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = ""
) -> None:
    """Print a model's coefficient table with private intervals."""
    with Client(url, secret) as client:
        found = client.summary(model, level=level)
    out.print_json(found.model_dump_json()) if as_json else out.print(tables.summary(found))


@app.command("odds-ratios")
def odds_ratios(model: ModelId, level: Level = None, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print a logistic model's odds ratios with their intervals."""
    with Client(url, secret) as client:
        out.print(tables.odds_ratios(client.odds_ratios(model, level=level)))


@app.command("test")
def wald(
    model: ModelId,
    coefficients: Annotated[list[str], typer.Argument(help="names as the summary prints them")],
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Test jointly that coefficients are zero (Wald)."""
    with Client(url, secret) as client:
        found = client.test(model, coefficients)
    line(f"chi-squared {found.statistic:.4g} on {found.degrees_of_freedom} degrees of freedom, p {found.p_value:.4g}")


@app.command()
def methods(model: ModelId, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print a paragraph for the methods section of a paper."""
    with Client(url, secret) as client:
        line(client.methods(model))


@app.command()
def predict(
    model: ModelId,
    rows: Annotated[Path, typer.Argument(help="JSON list of rows, or - for standard input")],
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Predict rows given in the units of the declared columns; prints JSON."""
    asked = read(rows, "rows")
    if not isinstance(asked, list) or not all(isinstance(row, dict) for row in asked):
        complain(f'rows {rows}: must be a JSON list of objects, such as [{{"age": 40}}]')
        raise typer.Exit(WRONG_INPUT)
    with Client(url, secret) as client:
        out.print_json(data=client.predict(model, asked))


@app.command()
def export(
    model: ModelId,
    to: Annotated[Path | None, typer.Option("--to", "-o", help="a file; its ending .safetensors chooses that")] = None,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Download a model as JSON, to standard output or a file, or as safetensors."""
    kind = "safetensors" if to is not None and to.suffix == ".safetensors" else "json"
    with Client(url, secret) as client:
        content = client.export(model, kind)
    if to is None:
        sys.stdout.buffer.write(content + b"\n")
    else:
        to.write_bytes(content)


def _follow(client: Client, job: Job) -> None:
    """Show steps until the job has ended, then its table and its cost."""
    with bar() as progress:
        task = progress.add_task(job.state, total=job.progress.steps)

        def show(seen: Job) -> None:
            progress.update(task, description=seen.state, completed=seen.progress.step, total=seen.progress.steps)

        done = client.wait(job.id, progress=show)
    if done.model is None:
        said = {"pending": "waits for the owner's approval", "retired": "is past its time of keeping"}.get(
            done.approval or "", f"was {done.approval} by the owner"
        )
        line(f"{done.id} {done.state}; its release {said}")
        return
    out.print(tables.summary(client.summary(done.model)))
    out.print(tables.cost(done))
