"""Data frames of pandas, polars and Arrow, found by their shape: none of these libraries is imported for it."""

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]


def rows_of(given: Any) -> tuple[list[Row], list[Hashable]]:  # noqa: ANN401 - rows, or a frame of any library
    """Return the rows of a frame, or rows as they are, with a label each: a pandas frame's index, else their places.

    Missing cells of a frame are None.
    """
    if hasattr(given, "to_pylist"):  # Arrow
        rows, labels = given.to_pylist(), None
    elif hasattr(given, "to_dicts"):  # polars
        rows, labels = given.to_dicts(), None
    elif hasattr(given, "iloc"):  # pandas
        rows, labels = given.to_dict("records"), list(given.index)
    else:
        return _numbered(given)
    return [{str(name): _cell(value) for name, value in row.items()} for row in rows], labels or list(range(len(rows)))


def _numbered(given: Iterable[Row]) -> tuple[list[Row], list[Hashable]]:
    rows = list(given)
    return rows, list(range(len(rows)))


def _cell(value: Any) -> Any:  # noqa: ANN401 - any cell
    """Return a cell as JSON has it: missing ones are None, and times and dates are ISO texts."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if type(value).__name__ in {"NAType", "NaTType"}:
        return None
    return value.isoformat() if hasattr(value, "isoformat") else value
