"""Parts that the commands share: the application, its streams, its options, and ways to read and show."""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

REFUSED: Final = 1
"""The exit status of a refusal, and of a check whose subject is not good."""
WRONG_INPUT: Final = 2
"""Of a command that was called wrongly."""
LATER: Final = 3
"""Where the same command may succeed later: no answer came, or the refusal says that it passes."""
WITHOUT_RESULT: Final = 4
"""Of a job that was accepted and has no result to show: it failed, was cancelled, or its release is withheld."""

app = typer.Typer(
    no_args_is_help=True,
    help="Train models privately, and know what it cost.",
    epilog="FARTHING_URL and FARTHING_KEY save typing --url and --key. Exit status: 0 done; 1 refused, or a check that "
    "failed; 2 called wrongly; 3 no answer, or try again later; 4 a job without a result.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
_STAMP: Final = re.compile(r"\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")
_SHOWN_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)")
WIDE: Final = 160
"""Places of a line that goes into a file or a pipe: identifiers are not folded there."""
out = Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else WIDE)
err = Console(stderr=True)

Url = Annotated[str, typer.Option(envvar="FARTHING_URL", help="where the service listens")]
Secret = Annotated[str, typer.Option("--key", envvar="FARTHING_KEY", help="API key", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="print JSON; of a list, one object a line")]
JsonAnyway = Annotated[bool, typer.Option("--json", help="as in any case")]
Levels = Annotated[
    list[float] | None, typer.Option("--level", help="of the intervals, may be repeated; default: the job's own")
]
DEFAULT_URL: Final = "http://127.0.0.1:8000"


def read_json(file: Path, what: str) -> Any:  # noqa: ANN401 - the service says what is wrong with the content
    """Read JSON from a file, or from standard input when the file is `-`; status 2 where there is none."""
    try:
        return json.loads(sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
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


def answer(found: BaseModel | Mapping[str, Any] | Sequence[BaseModel], shown: RenderableType, *, as_json: bool) -> None:
    """Print an answer for people, or as JSON; a text goes out as it is, in one line for each of its own."""
    if as_json and isinstance(found, Sequence):
        for one in found:
            line(one.model_dump_json())
    elif as_json:
        out.print_json(found.model_dump_json() if isinstance(found, BaseModel) else json.dumps(found))
    elif isinstance(shown, str):
        line(shown)
    else:
        out.print(shown)


def visible(text: str) -> str:
    """Return a text of a file with its control characters written out: a terminal would obey them."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


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
    """Return a plain table: text columns to the left, then numbers to the right; cells are never markup.

    Times are shown to the second and stay in one piece where a narrow terminal folds names.
    """
    rows = [[_STAMP.sub(r"\1 \2\3", cell) for cell in row] for row in rows]
    table = Table(
        show_header=bool(left or right),
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    for place, name in enumerate(left):
        whole = all(_SHOWN_STAMP.fullmatch(row[place]) or row[place] == "-" for row in rows)
        table.add_column(Text(name), overflow="fold", no_wrap=whole)
    for name in right:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return Group(Text(title, style="italic"), table) if title else table  # a table's own title folds at its width
