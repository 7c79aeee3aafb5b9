"""Made-up rows that fit a declared schema, to try programs on: drawn from the declaration alone, never from records.

Each column is uniform over its bounds or values, independent of the others. The draws are public (a hash in counter
mode of the column's name, the seed and the row), so that the same request gets the same rows; they protect nothing.
"""

import struct
from collections.abc import Iterator, Sequence
from datetime import timedelta
from hashlib import blake2b, shake_128
from typing import Any

from core.data.columns import ArrayColumn, Coded, Column, DateColumn, IntegerColumn, NumberColumn, Scalar

MAX_MOCK_ROWS = 10_000
MAX_MOCK_CELLS = 50_000
"""In all rows; an array's numbers are as many cells."""
Cell = float | int | str | list[Any]


def mock_rows(columns: Sequence[Column], rows: int, *, seed: int = 0) -> Iterator[dict[str, Cell]]:
    """Yield `rows` made-up rows, column name -> number, ISO date, declared value or nested lists of an array."""
    for row in range(rows):
        yield {
            column.name: _array(column, seed, row)
            if isinstance(column, ArrayColumn)
            else _value(column, _uniform(column.name, seed, row))
            for column in columns
        }


def _uniform(name: str, seed: int, row: int) -> float:
    """Return a number in [0, 1) with 53 bits."""
    draw = blake2b(f"farthing mock\0{name}\0{seed}\0{row}".encode(), digest_size=8).digest()
    return (int.from_bytes(draw) >> 11) / 2**53


def _array(column: ArrayColumn, seed: int, row: int) -> list[Any]:
    """Return an array as nested lists; of bytes and tokens, whole numbers."""
    draw = shake_128(f"farthing mock\0{column.name}\0{seed}\0{row}".encode()).digest(8 * column.numbers)
    uniforms = (whole / 2**64 for (whole,) in struct.iter_unpack(">Q", draw))
    if column.of == "token" or column.fits_bytes:
        low, high = int(column.lower), int(column.upper)
        # Dividing 64 bits may round up to 1, which would pass `high`.
        items: list[Any] = [min(low + int(uniform * (high - low + 1)), high) for uniform in uniforms]
    else:
        items = [_between(column, uniform) for uniform in uniforms]
    for size in reversed(column.shape[1:]):
        items = [items[start : start + size] for start in range(0, len(items), size)]
    return items


def _value(column: Scalar, uniform: float) -> float | int | str:
    if isinstance(column, Coded):
        return column.values[int(uniform * len(column.values))]
    if isinstance(column, DateColumn):
        days = (column.upper - column.lower).days + 1
        return (column.lower + timedelta(days=int(uniform * days))).isoformat()
    if isinstance(column, IntegerColumn):
        return column.lower + int(uniform * (column.upper - column.lower + 1))
    return _between(column, uniform)


def _between(column: NumberColumn | ArrayColumn, uniform: float) -> float:
    """Return a short number within the bounds of a column."""
    short = float(f"{column.lower + uniform * (column.upper - column.lower):.6g}")
    return min(max(short, column.lower), column.upper)  # six digits may round past a bound
