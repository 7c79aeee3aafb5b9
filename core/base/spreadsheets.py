"""Spreadsheets: CSV for people, in which no cell of text runs as a formula."""

import csv
import io
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def lines(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as lines of CSV. None is an empty cell.

    A text that a spreadsheet would take for a formula gets an apostrophe before it; numbers stay as they are.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([guarded("" if value is None else str(value)) for value in row] for row in rows)
    return text.getvalue()


def guarded(text: str) -> str:
    """Return a text as a cell that runs nothing."""
    # A sign alone is a laboratory's result, and no formula.
    if len(text) == 1 or not text.startswith(FORMULA):
        return text
    with suppress(ValueError):
        float(text)
        return text
    return f"'{text}"
