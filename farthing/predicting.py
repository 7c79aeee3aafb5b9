"""Predictions of tables: frames of pandas, polars and pyarrow, and files of CSV, Arrow and Parquet, in one request.

None of these libraries is a dependency, and none is imported before a table of it comes. Where pyarrow is there, frames
travel as Arrow, else as CSV. Of a frame only the model's own columns are sent.
"""

import csv
import io
import json
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Final

from farthing.sending import FromStart, content_type
from farthing.wire import Wire

# Below the service's limit of 2^20 bytes for a JSON body.
MOST_LETTERS: Final = 900_000
"""Of the rows in one request for predictions."""
MOST_ROWS: Final = 10_000
CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
ANSWERS: Final = {".csv": CSV, ".parquet": "application/vnd.apache.parquet", ".arrows": ARROW}
"""Formats of an answer, by the ending of its file."""
FILES: Final = frozenset({*ANSWERS, ".arrow", ".feather"})
"""Endings of files that can be predicted."""
_LONGEST_WHOLE: Final = 2**53
_UNKNOWN: Final = frozenset({"NAType", "NaTType"})


def is_frame(rows: object) -> bool:
    """Tell whether rows are a table of one of the three libraries; none of them is imported for it."""
    return _library(rows) is not None


def _library(rows: object) -> str | None:
    """Return the library of a table: pandas, polars or pyarrow; None: it is of none of them."""
    for base in type(rows).__mro__:
        library = base.__module__.partition(".")[0]
        if (library, base.__name__) in {
            ("pandas", "DataFrame"),
            ("polars", "DataFrame"),
            ("polars", "LazyFrame"),
            ("pyarrow", "Table"),
            ("pyarrow", "RecordBatch"),
        }:
            return library
    return None


def predict_frame(wire: Wire, model: str, frame: Any, level: float | None) -> Any:  # noqa: ANN401 - the caller's table
    """Return a table with the predictions in columns after its own; its index and its other columns stay as they are.

    Args:
        wire: the client's connections.
        model: its id.
        frame: of pandas, polars or pyarrow.
        level: of the intervals; None: the predictions alone.

    Raises:
        ValueError: it has none of the model's columns, or one of the name of a prediction already.
    """
    library = _library(frame)
    if type(frame).__name__ == "LazyFrame":
        frame = frame.collect()
    if type(frame).__name__ == "RecordBatch":
        frame = sys.modules["pyarrow"].Table.from_batches([frame])
    names = [str(name) for name in (frame.column_names if library == "pyarrow" else frame.columns)]
    wanted = _columns_of(wire, model)
    own = [place for place, name in enumerate(names) if name in wanted]
    if not own:
        raise ValueError(f"The table has none of the model's columns: {', '.join(wanted)}.")
    if find_spec("pyarrow") is not None:
        found = _by_arrow(wire, model, _as_arrow(frame, library, own), level)
    else:
        found = _by_csv(wire, model, [names[place] for place in own], _cells(frame, library, own), level)
    twice = [name for name in found if name in names]
    if twice:
        raise ValueError(f"The table has a column `{twice[0]}` already, as a prediction is called: rename it.")
    if library == "pandas":
        return frame.assign(**found)
    if library == "polars":
        return frame.with_columns([sys.modules["polars"].Series(name, values) for name, values in found.items()])
    for name, values in found.items():
        frame = frame.append_column(name, sys.modules["pyarrow"].array(values))
    return frame


def predict_file(wire: Wire, model: str, path: str | Path, out: str | Path | BinaryIO, level: float | None) -> None:
    """Write the rows of a file with the predictions beside them into another one.

    Args:
        wire: the client's connections.
        model: its id.
        path: of CSV, Parquet or Arrow, as its ending says.
        out: a path that ends in .csv, .parquet or .arrows (a stream); or an open file, which takes CSV.
        level: of the intervals; None: the predictions alone.

    Raises:
        ValueError: an ending is none of these, or both files are one.
    """
    source = Path(path)
    if source.suffix.lower() not in FILES:
        raise ValueError(f"{source.name}: a file of rows ends in one of {', '.join(sorted(FILES))}.")
    if not isinstance(out, str | Path):
        _send_file(wire, model, source, out, CSV, level)
        return
    target = Path(out)
    answer = ANSWERS.get(target.suffix.lower())
    if answer is None:
        raise ValueError(f"{target.name}: an answer ends in one of {', '.join(ANSWERS)}.")
    if target.exists() and target.samefile(source):
        raise ValueError(f"{target.name}: the answer would take the place of the rows; name another file.")
    # Beside its place, and moved there when it is whole: an answer that breaks off leaves nothing.
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}-", delete=False) as made:
        kept = Path(made.name)
        try:
            _send_file(wire, model, source, made, answer, level)
            made.close()
            kept.replace(target)
        except BaseException:
            kept.unlink(missing_ok=True)
            raise


def _send_file(wire: Wire, model: str, source: Path, into: Any, answer: str, level: float | None) -> None:  # noqa: ANN401 - a file
    headers = {"Content-Type": content_type(source.name), "Accept": answer}
    with source.open("rb") as rows:
        wire.send(
            "POST",
            _path(model),
            params=_query(level),
            headers=headers,
            content=FromStart(rows),
            into=into,
            timeout=None,
        )


def parts(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield rows in parts that are small enough for one request of JSON; one empty part if there are no rows."""
    part: list[dict[str, Any]] = []
    letters = 0
    for row in rows:
        plain = {name: _plain(value) for name, value in row.items()}
        long = len(json.dumps(plain))
        if part and (letters + long > MOST_LETTERS or len(part) == MOST_ROWS):
            yield part
            part, letters = [], 0
        part.append(plain)
        # The one is the comma between two rows.
        letters += long + 1
    yield part


def _plain(value: Any) -> Any:  # noqa: ANN401 - a cell of whatever library
    """Return a cell as JSON can have it: a missing one as null, a date as its text, NumPy's arrays as lists."""
    if value is None or type(value).__name__ in _UNKNOWN:
        return None
    if isinstance(value, date):
        return value.isoformat()
    # NumPy's arrays and numbers are no JSON; both have `tolist`.
    if hasattr(value, "tolist"):
        value = value.tolist()
    return None if isinstance(value, float) and math.isnan(value) else value


def _columns_of(wire: Wire, model: str) -> list[str]:
    """Return the names of the columns that a model reads."""
    design = (wire.get(f"/v1/models/{model}")["release"] or {}).get("design") or {}
    beside = [(design.get("offset") or {}).get("column"), design.get("array")]
    columns = [*design.get("columns", ()), *design.get("aside", ()), *(one for one in beside if one)]
    return [column["name"] for column in columns]


def _as_arrow(frame: Any, library: str | None, own: Sequence[int]) -> Any:  # noqa: ANN401 - tables of three libraries
    """Return some columns as a table of pyarrow."""
    import pyarrow as pa  # noqa: PLC0415 - no dependency, and slow to import

    if library == "pyarrow":
        return frame.select(list(own))
    if library == "polars":
        return frame[:, list(own)].to_arrow()
    columns = [frame.iloc[:, place] for place in own]
    return pa.table([_array(pa, column) for column in columns], names=[str(column.name) for column in columns])


def _array(pa: Any, column: Any) -> Any:  # noqa: ANN401 - a Series of pandas
    """Return a Series as an array; one of mixed cells becomes texts."""
    try:
        return pa.Array.from_pandas(column)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([_text(cell) or None for cell in column.tolist()], pa.string())


def _by_arrow(wire: Wire, model: str, table: Any, level: float | None) -> dict[str, Any]:  # noqa: ANN401 - of pyarrow
    """Return predictions by column, as arrays of NumPy."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answer = wire.send(
        "POST",
        _path(model),
        params=_query(level),
        headers={"Content-Type": ARROW},
        content=sink.getvalue(),
        timeout=None,
    )
    found = pa.ipc.open_stream(answer.content).read_all()
    return {name: found[name].to_numpy() for name in found.column_names[table.num_columns :]}


def _cells(frame: Any, library: str | None, own: Sequence[int]) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 - as above
    """Yield rows of some columns."""
    if library == "polars":
        return zip(*(frame.to_series(place).to_list() for place in own), strict=True)
    return zip(*(frame.iloc[:, place].tolist() for place in own), strict=True)


def _by_csv(
    wire: Wire, model: str, names: Sequence[str], rows: Iterable[Sequence[Any]], level: float | None
) -> dict[str, Any]:
    """Return predictions by column, as lists."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(names)
    writer.writerows([_text(cell) for cell in row] for row in rows)
    answer = wire.send(
        "POST",
        _path(model),
        params=_query(level),
        headers={"Content-Type": CSV},
        content=text.getvalue().encode(),
        timeout=None,
    )
    first, *lines = csv.reader(io.StringIO(answer.text))
    return {name: [float(line[place]) for line in lines] for place, name in enumerate(first) if place >= len(names)}


def _text(cell: Any) -> str:  # noqa: ANN401 - as `_plain`
    """Return a cell as CSV has it: the number of a label without a fraction, as the service compares it."""
    value = _plain(cell)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < _LONGEST_WHOLE:
        return str(int(value))
    return str(value)


def _path(model: str) -> str:
    return f"/v1/models/{model}/predict"


def _query(level: float | None) -> dict[str, float]:
    return {} if level is None else {"level": level}
