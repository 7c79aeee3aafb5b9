"""Commands of those who read a released model: tables, intervals, regions, tests, comparisons, predictions."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from farthing import job_tables, tables
from farthing.client import Client
from farthing.console import (
    DEFAULT_URL,
    WRONG_INPUT,
    Json,
    JsonAnyway,
    Levels,
    Secret,
    Url,
    answer,
    app,
    complain,
    line,
    out,
)
from farthing.console import read_json as read
from farthing.errors import WrongInput
from farthing.predicting import FILES

ModelId = Annotated[str, typer.Argument(help="mdl_...")]
OneLevel = Annotated[float | None, typer.Option("--level", help="of the intervals; default: the job's own")]


@app.command()
def models(
    dataset: Annotated[str | None, typer.Option(help="ds_...")] = None,
    job: Annotated[str | None, typer.Option(help="job_..., that released them")] = None,
    optimizer: Annotated[str | None, typer.Option(help="kind of the method, such as noisy_newton")] = None,
    label: Annotated[str | None, typer.Option(help="key:value")] = None,
    approval: Annotated[
        str | None, typer.Option(help="not-needed, pending, approved, rejected, retired or retracted")
    ] = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """List released models, newest first. Without their figures; those that are gone by --approval alone."""
    asked = {"dataset": dataset, "job": job, "optimizer": optimizer, "label": label, "approval": approval}
    with Client(url, secret) as client:
        found = list(client.models(**{name: text for name, text in asked.items() if text}))
    answer(found, job_tables.models(found), as_json=as_json)


@app.command()
def retract(
    model: ModelId,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="ask nothing")] = False,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Take a model back. Its figures are deleted for good; the ledger, the job and its charge stay."""
    if not yes:
        typer.confirm(f"Delete the figures of {model} for good?", abort=True)
    with Client(url, secret) as client:
        answer(client.retract(model), f"{model} is retracted", as_json=as_json)


@app.command()
def summary(
    model: ModelId,
    level: Levels = None,
    *,
    as_json: Json = False,
    html: Annotated[Path | None, typer.Option(help="write it to a file, as a page with a plot")] = None,
    pdf: Annotated[Path | None, typer.Option(help="write it to a file, as PDF")] = None,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Print a model's coefficient table with private intervals."""
    with Client(url, secret) as client:
        found = client.model(model)
        if html is not None:
            html.write_text(found.page(level), encoding="utf-8")
        elif pdf is not None:
            pdf.write_bytes(found.pdf(level))
        elif as_json:
            answer(found.table(level), "", as_json=True)
        else:
            line(found.summary(level).rstrip())


@app.command()
def description(
    model: ModelId,
    level: OneLevel = None,
    about: Annotated[
        str, typer.Option(help="population: intervals count sampling and noise; records: noise alone")
    ] = "population",
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Print what a job that describes columns released. Each figure with its interval."""
    with Client(url, secret) as client:
        found = client.model(model)
        if as_json:
            answer(found.description(level, about=about), "", as_json=True)
        else:
            line(found.description_text(level, about=about).rstrip())


@app.command()
def intervals(
    model: ModelId,
    level: Levels = None,
    method: Annotated[
        str, typer.Option(help="pointwise, or bonferroni, sidak, scheffe: all hold at once")
    ] = "pointwise",
    coefficient: Annotated[list[str] | None, typer.Option(help="those to compare; default: all")] = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Print intervals of coefficients. One by one, or such that all hold at once."""
    with Client(url, secret) as client:
        read_from = client.model(model)
        found, notes = read_from.intervals(level, method=method, coefficients=coefficient or None), read_from.notes
    answer(found, tables.intervals(found, level or [], notes), as_json=as_json)


@app.command("odds-ratios")
def odds_ratios(
    model: ModelId, level: OneLevel = None, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = ""
) -> None:
    """Print odds ratios with their intervals. Of logistic and multinomial models."""
    with Client(url, secret) as client:
        read_from = client.model(model)
        found, notes = read_from.odds_ratios(level), read_from.notes
    answer(found, tables.ratios(found, notes), as_json=as_json)


@app.command("rate-ratios")
def rate_ratios(
    model: ModelId, level: OneLevel = None, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = ""
) -> None:
    """Print rate ratios with their intervals. Of Poisson models."""
    with Client(url, secret) as client:
        read_from = client.model(model)
        found, notes = read_from.rate_ratios(level), read_from.notes
    answer(found, tables.ratios(found, notes), as_json=as_json)


@app.command("test")
def wald(
    model: ModelId,
    hypotheses: Annotated[
        list[str], typer.Argument(help="such as age, or 'age = 0, job[b] = job[c]', names as the summary prints them")
    ],
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Test coefficients, or equations between them, jointly. A Wald test."""
    with Client(url, secret) as client:
        read_from = client.model(model)
        # Names alone need no parser, which is an extra.
        plain = set(hypotheses) <= set(read_from.names)
        try:
            found = read_from.wald_test(hypotheses if plain else ", ".join(hypotheses))
        except WrongInput as wrong:
            complain(str(wrong))
            raise typer.Exit(WRONG_INPUT) from wrong
    freedom = f"{found.degrees_of_freedom} degrees of freedom"
    text = f"chi-squared {found.statistic:.4g} on {freedom}, p {found.p_value:.4g}"
    answer(found, "\n".join([text, *found.notes]), as_json=as_json)


@app.command()
def region(
    model: ModelId,
    coefficients: Annotated[list[str], typer.Argument(help="names as the summary prints them")],
    level: Levels = None,
    at: Annotated[str | None, typer.Option(help="a point: its values in that order, as 0,0.5")] = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Print the ellipsoid that holds some coefficients together. And whether a point is inside."""
    try:
        point = None if at is None else dict(zip(coefficients, map(float, at.split(",")), strict=True))
    except ValueError as wrong:
        complain(f"--at {at}: must be {len(coefficients)} numbers with commas between them")
        raise typer.Exit(WRONG_INPUT) from wrong
    with Client(url, secret) as client:
        found = client.model(model).ellipsoid(coefficients, level, point=point)
    answer(found, tables.ellipsoid(found), as_json=as_json)


@app.command()
def compare(
    model: ModelId,
    other: ModelId,
    level: OneLevel = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Print two models of one target side by side. And what their difference allows to say."""
    with Client(url, secret) as client:
        first = client.model(model)
        if as_json:
            answer(first.compare(other, level=level), "", as_json=True)
        else:
            line(first.compare_text(other, level=level).rstrip())


@app.command()
def methods(model: ModelId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print a paragraph for the methods section of a paper."""
    with Client(url, secret) as client:
        text = client.methods(model)
    answer({"model": model, "text": text}, text, as_json=as_json)


@app.command()
def predict(
    model: ModelId,
    rows: Annotated[
        Path, typer.Argument(help="JSON list of rows, or - for standard input; or a file .csv, .parquet or .arrow(s)")
    ],
    level: Annotated[float | None, typer.Option(help="also give each mean's interval, at this level")] = None,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="of such a file: .csv, .parquet or .arrows; default: CSV here")
    ] = None,
    *,
    _as_json: JsonAnyway = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Predict rows given in the units of the declared columns. Prints JSON; of a file its rows too."""
    if rows.suffix.lower() in FILES:
        _predict_file(model, rows, to, level, url, secret)
        return
    if to is not None:
        complain(f"--output {to}: rows of JSON are answered here; give a file that ends in {', '.join(sorted(FILES))}")
        raise typer.Exit(WRONG_INPUT)
    asked = read(rows, "rows")
    if not isinstance(asked, list) or not all(isinstance(row, dict) for row in asked):
        complain(f'rows {rows}: must be a JSON list of objects, such as [{{"age": 40}}]')
        raise typer.Exit(WRONG_INPUT)
    with Client(url, secret) as client:
        out.print_json(data=client.predict(model, asked, level=level))


def _predict_file(model: str, rows: Path, to: Path | None, level: float | None, url: str, secret: str) -> None:
    try:
        with Client(url, secret) as client:
            client.model(model).predict_file(rows, sys.stdout.buffer if to is None else to, level=level)
    except (OSError, ValueError) as error:
        complain(str(error))
        raise typer.Exit(WRONG_INPUT) from None


@app.command()
def export(
    model: ModelId,
    to: Annotated[
        Path | None, typer.Option("--to", "-o", help="a file; its ending .safetensors or .onnx chooses that")
    ] = None,
    form: Annotated[
        Literal["json", "safetensors", "onnx"] | None,
        typer.Option("--format", help="default: by the file's ending, else json"),
    ] = None,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Download a model as JSON or safetensors, a network as ONNX. To standard output or a file."""
    kind = to.suffix[1:] if to is not None and to.suffix in {".safetensors", ".onnx"} else "json"
    with Client(url, secret) as client:
        content = client.export(model, form or kind)
    if to is None:
        # A line feed would spoil a binary file: safetensors refuses one that is not covered to its end.
        sys.stdout.buffer.write(content + b"\n" if form in {None, "json"} else content)
    else:
        to.write_bytes(content)
