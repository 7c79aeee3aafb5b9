"""A description as text and as an HTML page that needs nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from textwrap import wrap
from typing import Any, Final

from core.inference.pages import document
from core.inference.rendering import Head, bounds, centred, columns, declared, number, pairs, plain, privacy_words, wide

_LEAST: Final = 78
Table = tuple[str, list[list[str]]]
"""A heading, and lines of cells, the first one the columns' names."""


def head_of(shown: Mapping[str, Any]) -> Head:
    """Return the facts at the head of a description, in the order to read them."""
    return [
        ("Records", declared(shown["n"])),
        ("Columns", str(len(shown["columns"]))),
        ("Method", shown["optimizer"]),
        ("About", shown["about"]),
    ]


def _ends(line: Mapping[str, Any]) -> list[str]:
    """Return an interval as two cells, or why there is none."""
    if line["interval"] is None:
        return ["-", "-"]
    return [number(end) for end in line["interval"]]


def _numbers(shown: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield a line for each quantile and mean of each number."""
    for column in shown["columns"]:
        unit = f" ({column['unit']})" if column["unit"] else ""
        name = plain(column["name"]) + unit
        if column["mean"] is not None:
            yield [f"{name}: mean", number(column["mean"]["estimate"]) or "-", *_ends(column["mean"])]
        if column["mean_within"] is not None:
            cut = column["mean_within"]
            label = f"{name}: mean within [{number(cut['lower'])}, {number(cut['upper'])}]"
            yield [label, number(cut["estimate"]) or "-", *_ends(cut)]
        for one in column["quantiles"] or ():
            yield [f"{name}: {100 * one['fraction']:.4g} %", number(one["estimate"]) or "-", *_ends(one)]


def _cell(line: Mapping[str, Any]) -> list[str]:
    return [number(line["share"]) or "-", *_ends(line), f"{line['records']:,.0f}"]


def tables(shown: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables of a description."""
    ends = list(bounds(shown["level"]))
    if numbers := list(_numbers(shown)):
        yield "Numbers", [["", "estimate", *ends], *numbers]
    header = ["", "share", *ends, "records"]
    missing = [[plain(one["name"]), *_cell(one["missing"])] for one in shown["columns"] if one["missing"] is not None]
    if missing:
        yield "Without a value", [header, *missing]
    for column in shown["columns"]:
        name = plain(column["name"])
        if column["frequencies"] is not None:
            cells = column["frequencies"]["cells"]
            yield f"Values of {name}", [header, *([plain(one["value"]), *_cell(one)] for one in cells)]
        if column["histogram"] is not None:
            lines = [
                [f"{number(one['lower'])} to {number(one['upper'])}", *_cell(one)]
                for one in column["histogram"]["cells"]
            ]
            yield f"Histogram of {name}", [header, *lines]
    for table in shown["tables"]:
        one, other = map(plain, table["columns"])
        lines = [
            [f"{plain(row)}, {plain(across)}", *_cell(cell)]
            for row, cells in zip(table["rows"], table["cells"], strict=True)
            for across, cell in zip(table["across"], cells, strict=True)
        ]
        yield f"{one} by {other}", [header, *lines]
    if shown["correlations"]:
        lines = [
            [" and ".join(map(plain, one["columns"])), number(one["estimate"]) or "-", *_ends(one)]
            for one in shown["correlations"]
        ]
        yield "Correlations", [["", "estimate", *ends], *lines]


def foot_of(shown: Mapping[str, Any]) -> list[str]:
    """Return what stands below the tables: what intervals are about, notes, the promise."""
    withheld = [
        f"{column['name']}: {figure['note']}."
        for column in shown["columns"]
        for figure in (column["mean"], *(column["quantiles"] or ()))
        if figure is not None and figure["note"]
    ]
    withheld += [f"{' and '.join(one['columns'])}: {one['note']}." for one in shown["correlations"] if one["note"]]
    said = [
        shown["claim"],
        *privacy_words(shown),
        *dict.fromkeys(withheld),
        *(f"Note: {one}" for one in shown["notes"]),
    ]
    return [plain(text) for text in [*said, f"Description {shown['model']}, job {shown['job']}."]]


def summary_text(shown: Mapping[str, Any]) -> str:
    """Return a description as text.

    Args:
        shown: what `description_summary.summary` returned, with `model` and `job`.
    """
    made = [(name, columns(lines)) for name, lines in tables(shown)]
    width = max(_LEAST, *(wide(line) for _, lines in made for line in lines))
    rule = "=" * width
    body = [text for name, lines in made for text in (name, "-" * width, *lines, rule)]
    foot = [line for text in foot_of(shown) for line in wrap(text, width, subsequent_indent="  ")]
    return "\n".join([centred(shown["title"], width), rule, *pairs(head_of(shown), width), rule, *body, *foot, ""])


def summary_page(shown: Mapping[str, Any]) -> str:
    """Return a description as an HTML document."""
    middle = "\n".join(_html(name, lines) for name, lines in tables(shown))
    return document(shown["title"], head_of(shown), middle, foot_of(shown), shown["methods"])


def _html(name: str, lines: Sequence[Sequence[str]]) -> str:
    """Return one table with its heading."""
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in lines[0])
    rows = "".join(
        f'<tr><th scope="row">{escape(line[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in line[1:])
        + "</tr>"
        for line in lines[1:]
    )
    return (
        f'<h2>{escape(name)}</h2>\n<div class="scroll"><table>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{rows}</tbody>\n</table></div>\n"
    )
