"""Data frames of pandas, polars and Arrow, found by their shape: none of these libraries is imported for it.

A frame becomes an Arrow file, or a CSV where pandas has no pyarrow beside it. Missing cells (NaN, NaT, None, NA) are
missing in both; a time with a zone keeps its own calendar day.
"""

import csv
import io
import math
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from numbers import Number
from typing import Any, BinaryIO, Final, Protocol

from farthing.errors import WrongInput
from farthing.extras import installed, needed

Row = Mapping[str, Any]
_WHOLE: Final = 2**53
"""From here on all floats are whole."""


class Frame(Protocol):
    """A data frame of pandas, polars or Arrow, or of a library that speaks Arrow's C interface."""

    @property
    def columns(self) -> Any:  # noqa: ANN401 - each library's own
        """Names, or the columns themselves."""


def is_frame(given: object) -> bool:
    """Tell whether something is a table of columns; a single column is none."""
    if _is_lazy(given):
        return True
    speaks = hasattr(given, "__arrow_c_stream__") and (hasattr(given, "columns") or hasattr(given, "schema"))
    return speaks or (hasattr(given, "iloc") and hasattr(given, "columns"))


def _is_lazy(given: object) -> bool:
    """Tell whether something is a query of polars, which becomes a frame once it is collected."""
    return type(given).__name__ == "LazyFrame" and hasattr(given, "collect")


def write_frame(frame: Any, file: BinaryIO) -> str:  # noqa: ANN401 - of any library
    """Write a frame into an open file, rewind it, and return a name that says how it is written.

    The same frame gives the same bytes, so that an upload in parts goes on where it broke.

    Raises:
        WrongInput: a column's name or its cells cannot be sent; it is named.
        MissingExtra: a frame that is neither pandas' nor polars', and pyarrow is not installed.
    """
    name = "records.arrow"
    frame = frame.collect() if _is_lazy(frame) else frame
    if hasattr(frame, "iloc"):
        frame = _pandas_columns(frame)
        name = name if installed("pyarrow") else "records.csv"
    if name == "records.csv":
        _write_csv(frame, file)
    elif hasattr(frame, "write_ipc"):
        _write_polars(frame, file)
    else:
        _write_arrow(frame, file)
    file.seek(0)
    return name


def rows_of(given: Any) -> tuple[list[Row], list[Hashable]]:  # noqa: ANN401 - rows, or a frame of any library
    """Return the rows of a frame, or rows as they are, with a label each: a pandas frame's index, else their places."""
    if not is_frame(given):
        rows = list(given)
        return rows, list(range(len(rows)))
    frame = opened(given)
    if hasattr(frame, "iloc"):
        return frame.to_dict("records"), list(frame.index)
    rows = frame.to_dicts() if hasattr(frame, "to_dicts") else frame.to_pylist()
    return rows, list(range(len(rows)))


def opened(frame: Any) -> Any:  # noqa: ANN401 - of any library
    """Return a frame of pandas or polars, else a table of Arrow: a query is collected."""
    if _is_lazy(frame):
        return frame.collect()
    return frame if hasattr(frame, "iloc") or hasattr(frame, "write_ipc") else _table(frame)


def selected(frame: Any, wanted: Sequence[str]) -> Any:  # noqa: ANN401 - as `opened` returns it
    """Return a frame with those of its columns, and of a pandas index, that are wanted; None: it has none of them."""
    if hasattr(frame, "iloc"):
        levels = [name for name in frame.index.names if name in wanted and name not in frame.columns]
        places = [place for place, name in enumerate(frame.columns) if str(name) in wanted]
        found = frame.iloc[:, places].set_axis([str(frame.columns[place]) for place in places], axis="columns")
        found = found.reset_index(level=levels).reset_index(drop=True)
        return found if found.shape[1] else None
    if hasattr(frame, "write_ipc"):
        names = [name for name in frame.columns if name in wanted]
    else:
        names = [place for place, name in enumerate(frame.column_names) if name in wanted]
    return frame.select(names) if names else None


def beside(frame: Any, found: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as `opened` returns it
    """Return a frame with more columns after its own; its index and its other columns stay as they are."""
    if hasattr(frame, "iloc"):
        return frame.assign(**found)
    if hasattr(frame, "write_ipc"):
        return frame.with_columns([sys.modules["polars"].Series(name, values) for name, values in found.items()])
    arrow = needed("pyarrow", "a table of this kind")
    for name, values in found.items():
        frame = frame.append_column(name, arrow.array(values))
    return frame


def _pandas_columns(frame: Any) -> Any:  # noqa: ANN401 - pandas'
    """Return a pandas frame whose named index levels are columns, each column of one kind.

    Raises:
        WrongInput: a name is no text, comes twice, or a column mixes kinds.
    """
    levels = [name for name in frame.index.names if name is not None and name not in frame.columns]
    if levels:
        frame = frame.reset_index(level=levels)
    seen: set[str] = set()
    for place, name in enumerate(frame.columns):
        if not isinstance(name, str) or name in seen:
            fix = "rename it: each column has a name of its own, which is a text"
            raise WrongInput(f"Column {place + 1} of the frame is named {name!r}.", f"/columns/{name}", fix)
        seen.add(name)
    for name in frame.columns:
        if frame[name].dtype == object:
            _check_kinds(name, frame[name])
    return frame


def _check_kinds(name: str, cells: Iterable[Any]) -> None:
    """Refuse a column of objects that are of several kinds.

    Raises:
        WrongInput: naming the column and the kinds.
    """
    kinds = sorted({_kind(cell) for cell in cells if plain(cell) is not None})
    if len(kinds) > 1:
        fix = f"make it one of them, such as frame[{name!r}].astype(str)"
        raise WrongInput(f"Column {name!r} mixes {' and '.join(kinds)}.", f"/columns/{name}", fix)


def _kind(cell: object) -> str:
    if type(cell).__name__ in {"bool", "bool_"}:
        return "truth values"
    if isinstance(cell, Decimal):
        return "decimals"
    for kind, words in ((Number, "numbers"), (str, "texts"), (datetime, "times"), (date, "dates")):
        if isinstance(cell, kind):
            return words
    return f"objects of type {type(cell).__name__}"


def _write_polars(frame: Any, file: BinaryIO) -> None:  # noqa: ANN401 - polars'
    polars = sys.modules["polars"]
    for name, kind in frame.schema.items():
        if kind == polars.Object:
            fix = "cast it to texts or numbers"
            raise WrongInput(f"Column {name!r} holds Python objects.", f"/columns/{name}", fix)
        if getattr(kind, "time_zone", None) is not None:
            frame = frame.with_columns(polars.col(name).dt.replace_time_zone(None))
    frame.write_ipc(file, compression="uncompressed", compat_level=polars.CompatLevel.oldest())


def _write_arrow(frame: Any, file: BinaryIO) -> None:  # noqa: ANN401 - of any library
    arrow, compute = needed("pyarrow", "a table of this kind"), needed("pyarrow.compute", "a table of this kind")
    table = _table(frame)
    for place, field in enumerate(table.schema):
        # Arrow keeps the instant; the day is that of the frame's own zone.
        if arrow.types.is_timestamp(field.type) and field.type.tz is not None:
            table = table.set_column(place, field.name, compute.local_timestamp(table.column(place)))
    # What pandas adds of itself names versions, so it would change the bytes.
    table = table.replace_schema_metadata(None)
    ipc = needed("pyarrow.ipc", "a table of this kind")
    with ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _table(frame: Any) -> Any:  # noqa: ANN401 - Arrow's
    arrow = needed("pyarrow", "a table of this kind")
    try:
        if hasattr(frame, "iloc"):
            return arrow.Table.from_pandas(frame, preserve_index=False)
        return arrow.table(frame)
    except (arrow.ArrowException, TypeError, ValueError, OverflowError) as wrong:
        # pyarrow names the column, and its text may quote a cell of the caller's own frame.
        why = ", ".join(map(str, wrong.args)).strip()
        raise WrongInput(f"The frame is no Arrow table: {why}.", "/file", "give each column one type") from wrong


def _write_csv(frame: Any, file: BinaryIO) -> None:  # noqa: ANN401 - pandas'
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(frame.columns)
    names = list(frame.columns)
    for row in frame.itertuples(index=False, name=None):
        writer.writerow([_written(cell, name) for cell, name in zip(row, names, strict=True)])
    # Else the file would be closed with its wrapper.
    text.detach()


def _written(cell: Any, name: str) -> str:  # noqa: ANN401 - any cell
    """Return a cell as the service reads texts: truth is `true`, and a whole float has no point."""
    value = plain(cell)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else repr(float(value))
    if isinstance(value, str | Number):
        return str(value)
    fix = 'install pyarrow beside pandas: pip install "farthing[notebook]"'
    raise WrongInput(f"Column {name!r} holds {_kind(value)}, which no CSV has.", f"/columns/{name}", fix)


def plain(value: Any) -> Any:  # noqa: ANN401 - any cell
    """Return a cell as JSON has it: missing ones are None, times and dates are ISO texts, NumPy's arrays are lists."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    # Numbers of NumPy, and its missing times, have it too.
    value = value.tolist() if hasattr(value, "tolist") else value
    return None if isinstance(value, float) and math.isnan(value) else value
