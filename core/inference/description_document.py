"""The document of a description, which a text, a PDF and a page show."""

from collections.abc import Iterator, Mapping
from typing import Any

from core.inference import sections
from core.inference.rendering import Head, declared, number, privacy_words
from farthing.schemas.documents import Document, SectionView


def document(shown: Mapping[str, Any]) -> Document:
    """Return a description as a document.

    Args:
        shown: the result of `description_summary.summary`, with `model` and `job`.
    """
    return sections.document(shown["title"], _head(shown), [*_tables(shown)], _foot(shown), shown["methods"])


def _head(shown: Mapping[str, Any]) -> Head:
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
        name = column["name"] + unit
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


def _tables(shown: Mapping[str, Any]) -> Iterator[SectionView]:
    """Yield the tables of a description."""
    ends = [f"{100 * shown['level']:g} % from", "to"]
    estimates, shares = ["Estimate", *ends], ["Share", *ends, "Records"]
    of_estimates = "Estimates, with the ends of their intervals."
    of_shares = "Shares of the records, with the ends of their intervals."
    if numbers := list(_numbers(shown)):
        yield sections.table("Numbers", of_estimates, ["Figure", *estimates], numbers)
    missing = [[one["name"], *_cell(one["missing"])] for one in shown["columns"] if one["missing"] is not None]
    if missing:
        yield sections.table("Without a value", of_shares, ["Column", *shares], missing)
    for column in shown["columns"]:
        if column["frequencies"] is not None:
            lines = [[one["value"], *_cell(one)] for one in column["frequencies"]["cells"]]
            yield sections.table(f"Values of {column['name']}", of_shares, ["Value", *shares], lines)
        if column["histogram"] is not None:
            cells = column["histogram"]["cells"]
            lines = [[f"{number(one['lower'])} to {number(one['upper'])}", *_cell(one)] for one in cells]
            yield sections.table(f"Histogram of {column['name']}", of_shares, ["Within", *shares], lines)
    for table in shown["tables"]:
        lines = [
            [f"{row}, {across}", *_cell(cell)]
            for row, cells in zip(table["rows"], table["cells"], strict=True)
            for across, cell in zip(table["across"], cells, strict=True)
        ]
        yield sections.table(" by ".join(table["columns"]), of_shares, ["Values", *shares], lines)
    if shown["correlations"]:
        lines = [
            [" and ".join(one["columns"]), number(one["estimate"]) or "-", *_ends(one)] for one in shown["correlations"]
        ]
        yield sections.table("Correlations", of_estimates, ["Columns", *estimates], lines)


def _foot(shown: Mapping[str, Any]) -> list[str]:
    """Return the text below the tables: the meaning of intervals, notes, the promise."""
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
    return [*said, f"Description {shown['model']}, job {shown['job']}."]
