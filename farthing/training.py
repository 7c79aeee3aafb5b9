"""Commands of the analyst: plan and price a job, and run it. Commands that read the release are in `reading`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from farthing import estimate_tables, federated, job_tables
from farthing.bars import following
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
    line,
    out,
    say,
)
from farthing.console import read_json as read
from farthing.descriptions import describing
from farthing.errors import JobFailed
from farthing.schemas.jobs import JobView

JobFile = Annotated[Path, typer.Argument(help="JSON of the job, or - for standard input")]
JobId = Annotated[str, typer.Argument(help="job_...")]
Datasets = Annotated[
    list[str] | None, typer.Option("--site", help="ds_..., the dataset of each site of a federated job; repeat it")
]

Models = Annotated[
    list[str] | None, typer.Option("--model", help="mdl_..., a released model that the job is about; repeat it")
]

Declared = Annotated[
    Path | None,
    typer.Option("--declaration", help="JSON of data not uploaded yet: the upload's metadata with a budget and rows"),
]

_OF_A_SWEEP: Final = ("jobs", "job", "grid", "runs", "way", "score_share")


@app.command()
def estimate(
    job: JobFile,
    *,
    width: Annotated[
        str | None, typer.Option(help="such as age=0.1: the budget and records for an interval no wider than that")
    ] = None,
    effect: Annotated[
        str | None, typer.Option(help="such as age=0.02: the budget and records to find an effect of that size")
    ] = None,
    power: Annotated[float, typer.Option(help="the wanted power")] = 0.8,
    excess: Annotated[
        float | None, typer.Option(help="such as 0.1: the budget and records for an excess risk of at most that")
    ] = None,
    sites: Datasets = None,
    models: Models = None,
    declaration: Declared = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Price a job and predict its intervals; reads no record. Or its excess risk."""
    asked = read(job, "job")
    if sum(one is not None for one in (width, effect, excess)) > 1:
        complain("--width, --effect and --excess: ask for one of them")
        raise typer.Exit(WRONG_INPUT)
    if excess is not None:
        asked = {**asked, "goal": {"excess_risk": {"at_most": excess}}}
    if width is not None:
        name, size = _wanted(width, "--width")
        asked = {**asked, "goal": {"width": {"coefficient": name, "at_most": size}}}
    if effect is not None:
        name, size = _wanted(effect, "--effect")
        asked = {**asked, "goal": {"effect": {"coefficient": name, "size": size, "power": power}}}
    with Client(url, secret) as client:
        found = client.estimate(asked, datasets=sites, models=models, declaration=_declared(declaration))
    answer(found, estimate_tables.estimate(found), as_json=as_json)
    if found.sites and not as_json:
        out.print(federated.prices(found.sites))


@app.command()
def curve(
    job: JobFile,
    *,
    declaration: Declared = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Predict interval widths at nine targets. Shows what more budget would buy."""
    asked = read(job, "job")
    with Client(url, secret) as client:
        found = client.curve(asked, declaration=_declared(declaration))
    answer(found, estimate_tables.curve(found), as_json=as_json)


def _declared(file: Path | None) -> Mapping[str, Any] | None:
    return None if file is None else read(file, "declaration")


def _wanted(given: str, option: str) -> tuple[str, float]:
    """Read `age=0.1`; names may have an equals sign of their own."""
    name, _, size = given.rpartition("=")
    try:
        return name, float(size)
    except ValueError:
        complain(f"{option} {given}: write it as age=0.1")
        raise typer.Exit(WRONG_INPUT) from None


@app.command()
def train(
    job: JobFile,
    *,
    sites: Datasets = None,
    models: Models = None,
    quorum: Annotated[int | None, typer.Option(help="sites that must be left when one is lost")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="print the job's id and return")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="send again with the same key, pay once")] = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Submit a job, watch it, and print its coefficient table."""
    asked = read(job, "job")
    with Client(url, secret) as client:
        queued = client.submit(asked, datasets=sites, quorum=quorum, models=models, key=idempotency_key)
        if detach:
            answer(queued, queued.id, as_json=as_json)
            return
        say(f"{queued.id} is {queued.state}; Ctrl-C leaves it running")
        _follow(client, queued, as_json=as_json)


@app.command()
def mock(
    job: JobFile,
    *,
    rows: Annotated[int | None, typer.Option(min=1, help="to draw; default: as many as were declared")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="print the job's id and return")] = False,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Practise a job on rows drawn from the declaration. It costs nothing and says nothing about the data."""
    asked = read(job, "job")
    with Client(url, secret) as client:
        queued = client.submit(asked if rows is None else {**asked, "rows": rows}, mock=True)
        if detach:
            answer(queued, queued.id, as_json=as_json)
            return
        say(f"{queued.id} is {queued.state}; Ctrl-C leaves it running")
        _follow(client, queued, as_json=as_json)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="JSON of the jobs, or of a job and a grid, or - for standard input")],
    *,
    dry: Annotated[bool, typer.Option("--price", help="print the price and the plan, and run nothing")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="print the job's id and return")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="send again with the same key, pay once")] = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Train several settings of a job as one job. The best by a private score is released."""
    asked = read(file, "sweep")
    unknown = sorted(asked.keys() - _OF_A_SWEEP) if isinstance(asked, dict) else ["this"]
    if unknown:
        complain(f"sweep {file}: {unknown[0]} is no field of a sweep; an object has {', '.join(_OF_A_SWEEP)}")
        raise typer.Exit(WRONG_INPUT)
    with Client(url, secret) as client:
        if dry:
            found = client.price_sweep(**asked)
            answer(found, estimate_tables.estimate(found), as_json=as_json)
            return
        queued = client.submit_sweep(**asked, key=idempotency_key)
        if detach:
            answer(queued, queued.id, as_json=as_json)
            return
        say(f"{queued.id} is {queued.state}; Ctrl-C leaves it running")
        _follow(client, queued, as_json=as_json)


@app.command()
def describe(
    dataset: Annotated[str, typer.Argument(help="ds_...")],
    *,
    mu: Annotated[str, typer.Option(help="its privacy target mu, such as 0.3")],
    column: Annotated[list[str] | None, typer.Option(help="to describe; repeat it; default: all")] = None,
    statistic: Annotated[
        list[str] | None,
        typer.Option(help="frequencies, missing, quantiles, histograms, means, correlations; repeat it"),
    ] = None,
    table: Annotated[list[str] | None, typer.Option(help="two columns to cross-tabulate, as a,b; repeat it")] = None,
    dry: Annotated[
        bool, typer.Option("--price", help="print the price and how it is divided, and run nothing")
    ] = False,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Describe columns. Means, quantiles, histograms, frequencies, tables and correlations, with intervals."""
    pairs = [tuple(pair.split(",")) for pair in table or ()]
    if any(len(pair) != len(("one", "other")) for pair in pairs):
        complain("--table: name two columns, as age,income")
        raise typer.Exit(WRONG_INPUT)
    asked = {
        "dataset": dataset,
        "model": describing(columns=column or None, statistics=statistic or None, tables=pairs),
        "optimizer": {"kind": "describe"},
        "privacy": {"mu": mu},
    }
    with Client(url, secret) as client:
        if dry:
            found = client.estimate(asked)
            answer(found, estimate_tables.description_price(found), as_json=as_json)
            return
        queued = client.submit(asked)
        say(f"{queued.id} is {queued.state}; Ctrl-C leaves it running")
        _follow(client, queued, as_json=as_json)


@app.command()
def watch(job: JobId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Watch a job to its end, and print its coefficient table."""
    with Client(url, secret) as client:
        _follow(client, client.job(job), as_json=as_json)


@app.command()
def jobs(
    state: Annotated[str | None, typer.Option(help="queued, running, succeeded, failed, cancelled ...")] = None,
    dataset: Annotated[str | None, typer.Option(help="ds_...")] = None,
    label: Annotated[str | None, typer.Option(help="key:value")] = None,
    federation: Annotated[str | None, typer.Option(help="job_...: the sites of a federated job")] = None,
    approval: Annotated[str | None, typer.Option(help="of what it released: pending, approved, rejected ...")] = None,
    *,
    mock: Annotated[bool, typer.Option("--mock", help="list mock jobs alone")] = False,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """List jobs, newest first. Those of a federated job's sites by --dataset or --federation only."""
    asked = {"state": state, "dataset": dataset, "label": label, "federation": federation, "approval": approval}
    wanted = {name: text for name, text in asked.items() if text}
    if mock and wanted:
        complain(f"--mock lists all mock jobs: leave out --{next(iter(wanted))}")
        raise typer.Exit(WRONG_INPUT)
    with Client(url, secret) as client:
        found = list(client.mock_jobs() if mock else client.jobs(**wanted))
    answer(found, job_tables.jobs(found), as_json=as_json)


@app.command("job")
def show(
    job: JobId,
    *,
    wait: Annotated[int, typer.Option(min=0, max=60, help="seconds to wait, at most, for it to end")] = 0,
    spec: Annotated[bool, typer.Option("--spec", help="print what was asked, as JSON that `train` takes")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="print what each chunk draws and costs")] = False,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Print a job as it stands, and of a federated one its sites. It shows request, state and what it waits for."""
    with Client(url, secret) as client:
        if plan:
            chunks = client.job_plan(job)
            answer(chunks, job_tables.plan(chunks), as_json=as_json)
            return
        found = client.job(job, wait_seconds=wait)
    if spec:
        if found.spec is None:
            complain(f"{job}: it has sites whose datasets this key may not see, and its whole request cannot be shown")
            raise typer.Exit(REFUSED)
        out.print_json(data=found.spec)
        return
    answer(found, job_tables.job(found), as_json=as_json)


@app.command()
def cancel(job: JobId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Cancel a job; its unspent reservation is given back."""
    with Client(url, secret) as client:
        found = client.cancel(job)
    answer(found, f"{job}: {found.state}" if found.ended else f"{job}: {found.state}, asked to stop", as_json=as_json)


@app.command()
def report(
    about: Annotated[str, typer.Argument(help="a job, job_..., or a dataset, ds_...")],
    pdf: Annotated[Path | None, typer.Option(help="write it as PDF to this file")] = None,
    *,
    _as_json: JsonAnyway = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Print a privacy report as JSON. Of a job, or of a dataset's budget; with --pdf it is written to a file."""
    with Client(url, secret) as client:
        if pdf is not None:
            pdf.write_bytes(client.report_pdf(about))
            line(f"{about}: {pdf}")
        elif about.startswith("ds_"):
            out.print_json(data=client.dataset_report(about).model_dump(mode="json"))
        else:
            out.print_json(data=client.report(about))


def _follow(client: Client, job: JobView, *, as_json: bool) -> None:
    """Show steps, and what a queued job waits for, until the job has ended; then its table and its cost."""
    looks: list[JobView] = []
    with following(err) as moved:

        def look(seen: JobView) -> None:
            moved(seen)
            looks.append(seen)

        try:
            done = client.wait(job.id, progress=look)
        except JobFailed:
            if not as_json and looks[-1].federation is not None:  # which site was lost, and by which code
                out.print(job_tables.job(looks[-1]))
            raise
    if as_json:
        answer(done, "", as_json=True)
        return
    if done.released is None:
        line(f"{done.id} {done.state}; its release {done.withheld}")
        return
    line(client.summary_text(done.released).rstrip())
    if done.cost is None:
        out.print(federated.sites(done))
    else:
        out.print((job_tables.price if done.mock else job_tables.cost)(done.id, done.cost))
