"""Parts that the commands share: the application, its streams, its options, and ways to read and show."""

import json
import os
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

WRONG_INPUT: Final = 2
"""The exit status where a command was called wrongly; a refusal by the service ends with 1."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Train models privately, and know what it cost.",
    epilog="FARTHING_URL and FARTHING_KEY save typing --url and --key.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
WIDE: Final = 160
"""Places of a line that goes into a file or a pipe: identifiers are not folded there."""
out = Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else WIDE)
err = Console(stderr=True)

Url = Annotated[str, typer.Option(envvar="FARTHING_URL", help="where the service listens")]
Secret = Annotated[str, typer.Option("--key", envvar="FARTHING_KEY", help="API key", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]
Levels = Annotated[
    list[float] | None, typer.Option("--level", help="of the intervals, may be repeated; default: the job's own")
]
DEFAULT_URL: Final = "http://127.0.0.1:8000"


def read_json(file: Path, what: str) -> Any:  # noqa: ANN401 - the service says what is wrong with the content
    """Read JSON from a file, or from standard input when the file is `-`; status 2 where there is none."""
    try:
        return json.loads(sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        complain(f"{what} {file}: {error}")
        raise typer.Exit(WRONG_INPUT) from error


def complain(text: str) -> None:
    """Print what went wrong, as it is."""
    err.print(text, style="red", markup=False, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Print what people want to know beside the answer, as it is."""
    err.print(text, markup=False, highlight=False, soft_wrap=True)


def line(text: str) -> None:
    """Print one line that a program may read: no colours, no wrapping."""
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def site_name(site: str | None) -> str:
    """Name a site that keeps records; a dash where this key may not see it."""
    return "-" if site is None else site or "(service)"


def number(value: float | None, digits: int = 4) -> str:
    """Write a number in a few digits; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}g}"


def figure(value: str | None) -> str:
    """Write a figure as the service gave it; a dash where there is none."""
    return "-" if value is None else value


def of_100(share: str | None) -> str:
    """Write a share of a budget in per cent, with every digit that the service gave; a dash where there is none."""
    return "-" if share is None else format(Decimal(share).scaleb(2), "f")


def per_cent(share: str | None) -> str:
    """Write the same with its sign."""
    return "-" if share is None else f"{of_100(share)} %"


def plain_table(
    title: str, rows: Sequence[Sequence[str]], *, left: Sequence[str] = (), right: Sequence[str] = ()
) -> RenderableType:
    """Return a plain table: text columns to the left, then numbers to the right; cells are never markup."""
    table = Table(
        show_header=bool(left or right),
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    for name in left:
        table.add_column(Text(name), overflow="fold")
    for name in right:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return Group(Text(title, style="italic"), table) if title else table  # a table's own title folds at its width
