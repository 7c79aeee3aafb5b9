"""Made-up rows that fit a declared schema, to try programs on: drawn from the declaration alone, never from records.

Each column is uniform over its bounds or values, independent of the others. The draws are public (a hash in counter
mode of the column's name, the seed and the row), so that the same request gets the same rows; they protect nothing.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import timedelta
from hashlib import blake2b

from core.catalogue.columns import Coded, Column, DateColumn, IntegerColumn

MAX_MOCK_ROWS = 10_000


def mock_rows(columns: Sequence[Column], rows: int, *, seed: int = 0) -> Iterator[dict[str, float | int | str]]:
    """Yield `rows` made-up rows, column name -> number, ISO date or declared value."""
    for row in range(rows):
        yield {column.name: _value(column, _uniform(column.name, seed, row)) for column in columns}


def mock_csv(columns: Sequence[Column], rows: int, *, seed: int = 0) -> str:
    """Return made-up rows as a CSV text with a header, fit to be uploaded under the same declaration."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [column.name for column in columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows(mock_rows(columns, rows, seed=seed))
    return text.getvalue()


def _uniform(name: str, seed: int, row: int) -> float:
    """Return a number in [0, 1) with 53 bits."""
    draw = blake2b(f"farthing mock\0{name}\0{seed}\0{row}".encode(), digest_size=8).digest()
    return (int.from_bytes(draw) >> 11) / 2**53


def _value(column: Column, uniform: float) -> float | int | str:
    if isinstance(column, Coded):
        return column.values[int(uniform * len(column.values))]
    if isinstance(column, DateColumn):
        days = (column.upper - column.lower).days + 1
        return (column.lower + timedelta(days=int(uniform * days))).isoformat()
    if isinstance(column, IntegerColumn):
        return column.lower + int(uniform * (column.upper - column.lower + 1))
    return float(f"{column.lower + uniform * (column.upper - column.lower):.6g}")
