"""Commands that bring records: upload them, look at the draft, mend it and seal it."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from farthing import tables
from farthing.bars import sending
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
    err,
    line,
    out,
    plain_table,
    read_json,
    say,
)
from farthing.errors import DraftRefused, FarthingError, Unreachable
from farthing.parts import IN_PARTS_BYTES, Progress
from farthing.schemas.datasets import Dataset, ValidationView
from farthing.schemas.drafts import DraftView
from farthing.schemas.local import CheckView

DatasetId = Annotated[str, typer.Argument(help="ds_...")]
MANY_EXCLUDED: Final = "many-excluded"


@app.command()
def upload(
    file: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow or NPZ")],
    metadata: Annotated[Path, typer.Option("--metadata", "-m", help="JSON: name, columns, budget or scope")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "--seal", help="do not ask, however many rows are excluded")] = False,
    keep_draft: Annotated[bool, typer.Option("--draft", help="do not seal it: only you see it, for 7 days")] = False,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Upload records with declared bounds and a budget. Print how their cells were read, and on a terminal ask.

    A script is not asked: more than 5 % of excluded rows are refused there, unless it says --yes. A large file goes in
    parts: repeat the command after it broke, and it goes on where it was.
    """
    declared = read_json(metadata, "metadata")
    if yes and keep_draft:
        complain("Say --yes or --draft, not both.")
        raise typer.Exit(WRONG_INPUT)
    refuse_absent(file)
    with Client(url, secret) as client:
        if keep_draft or _is_asked(declared, yes=yes):
            found = _sent(client, file, {**declared, "seal": False})
            _report(client, found.id)
            _say_taken(client.draft(found.id))
            found = found if keep_draft else _sealed(client, found)
        else:
            found = _sent(client, file, {**declared, "accept_excluded": True} if yes else declared)
            _report(client, found.id)
    _show(found, as_json=as_json)


@app.command()
def draft(dataset: DatasetId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Print a draft of yours. Its declaration, and how the cells of its file were read."""
    with Client(url, secret) as client:
        found = client.draft(dataset)
        if as_json:
            out.print_json(found.model_dump_json())
            return
        out.print_json(data=found.declared)
        if found.rows is None:
            line(f"{dataset} has no file: send it with `farthing mend {dataset} --file FILE`")
        else:
            _report(client, dataset)
            _say_taken(found)
    line(f"it is erased at {found.expires_at}, unless it is sealed before")


@app.command()
def mend(
    dataset: DatasetId,
    metadata: Annotated[Path | None, typer.Option("--metadata", "-m", help="JSON: the fields to change")] = None,
    file: Annotated[Path | None, typer.Option(help="in place of the one that it has")] = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Change the declaration of a draft, its file, or both. Other columns or another reading need the file again."""
    if metadata is None and file is None:
        complain("Say what to change: --metadata, --file, or both.")
        raise typer.Exit(WRONG_INPUT)
    changes = None if metadata is None else read_json(metadata, "metadata")
    if file is not None:
        refuse_absent(file)
    with Client(url, secret) as client:
        if changes is not None:
            client.mend(dataset, changes)
        if file is not None:
            _send(client, dataset, file)
        found = client.dataset(dataset)
        if found.rows is None:
            say(f"The columns are others now: send the file again with `farthing mend {dataset} --file FILE`.")
        else:
            _report(client, dataset)
            _say_taken(client.draft(dataset))
    _show(found, as_json=as_json)


@app.command()
def seal(dataset: DatasetId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Make a draft a dataset that others may use. It opens its budget, or joins its scope."""
    with Client(url, secret) as client:
        _show(client.seal(dataset), as_json=as_json)


def refuse_absent(file: Path) -> None:
    """End with status 2 where there is no such file."""
    if not file.is_file():
        complain(f"{file}: no such file")
        raise typer.Exit(WRONG_INPUT)


def _is_asked(declared: Any, *, yes: bool) -> bool:  # noqa: ANN401 - any JSON; the service says what is wrong with it
    """Tell whether somebody sits at a terminal who has not said yet that the upload is to be sealed, or is not."""
    said = not isinstance(declared, Mapping) or "seal" in declared or declared.get("accept_excluded")
    # Standard input decides: without a terminal there, nobody could reply.
    return not yes and not said and sys.stdin.isatty()


def _sent(client: Client, file: Path, declared: Any) -> Dataset:  # noqa: ANN401 - any JSON
    """Upload a file with its declaration, and show progress."""
    with _progress(file) as progress:
        try:
            return client.upload(file, declared, progress=progress)
        except DraftRefused as refusal:
            say(
                f"The draft {refusal.dataset} keeps the file for a day, so that it need not be sent again: change the "
                f"declaration with `farthing mend {refusal.dataset} --metadata CHANGES --file {file}`."
            )
            raise
        except FarthingError as refusal:
            if refusal.code == MANY_EXCLUDED:
                _count(refusal.problem["columns"])
            raise


def _send(client: Client, dataset: str, file: Path) -> None:
    """Send a draft another file, and show progress."""
    with _progress(file) as progress:
        client.send_records(dataset, file, progress=progress)


@contextmanager
def _progress(file: Path) -> Iterator[Progress]:
    """Show how much of a file has arrived; where the service does not answer any more, say how to go on."""
    with sending(err) as look:
        try:
            yield look
        except (Unreachable, KeyboardInterrupt):
            if file.stat().st_size > IN_PARTS_BYTES:
                say(
                    "The parts that have arrived are kept for a day: repeat this command, and it goes on with the rest."
                )
            raise


def _count(columns: Any) -> None:  # noqa: ANN401 - a list of counts by column
    """Print the cells for which rows would be excluded."""
    names = ("unreadable", "missing", "filled", "unknown")
    rows = [(str(one["name"]), *(f"{one[name]:,}" for name in names)) for one in columns]
    err.print(plain_table("cells by column; only you see this", rows, left=("column",), right=names))


def _report(client: Client, dataset: str) -> None:
    """Print how the cells of each column were read, with a warning where many rows are excluded."""
    found = client.validation(dataset)
    err.print(tables.validation(found))
    warn_excluded(found)


def warn_excluded(found: ValidationView | CheckView) -> None:
    """Warn where more than one row in twenty is excluded."""
    # Five per cent in whole numbers, as the service counts it.
    if 20 * found.incomplete_rows > found.rows:
        share = 100 * found.incomplete_rows / found.rows
        complain(
            f"WARNING: {found.incomplete_rows:,} of {found.rows:,} rows ({share:.1f} %) have a missing or unreadable "
            "cell. Models that use the column leave them out, and the budget is opened for all rows all the same."
        )


def _say_taken(found: DraftView) -> None:
    """Print the reading that was taken of a draft's file, and what else it could be, where none was declared."""
    if found.sniffed is not None:
        err.print(tables.sniffed(found.sniffed))


def _sealed(client: Client, found: Dataset) -> Dataset:
    """Ask whether a draft shall be sealed, and seal it."""
    later = f"It stays a draft for 7 days: `farthing mend {found.id}`, `farthing seal {found.id}`, or `farthing erase`."
    if not typer.confirm("Seal it? Its budget cannot be changed afterwards.", err=True):
        say(later)
        return found
    try:
        return client.seal(found.id)
    except FarthingError:
        say(later)
        raise


def _show(found: Dataset, *, as_json: bool) -> None:
    answer(found, tables.dataset(found), as_json=as_json)
