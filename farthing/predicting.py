"""Predictions of tables: frames of any library, and files of CSV, Arrow and Parquet, in one request.

Where pyarrow is there, frames travel as Arrow. Of a frame only the model's own columns are sent.
"""

import csv
import io
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final

from farthing.errors import WrongInput
from farthing.extras import installed, needed
from farthing.frames import Frame, beside, opened, plain, selected, write_frame
from farthing.sending import FromStart, content_type
from farthing.wire import Wire

# Below the service's limit of 2^20 bytes for a JSON body.
MOST_LETTERS: Final = 900_000
"""Of the rows in one request for predictions."""
MOST_ROWS: Final = 10_000
FLAGS: Final = "predicted_flags"
"""The column of texts; the others are numbers."""
CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
ANSWERS: Final = {".csv": CSV, ".parquet": "application/vnd.apache.parquet", ".arrows": ARROW}
"""Formats of an answer, by the ending of its file."""
FILES: Final = frozenset({*ANSWERS, ".arrow", ".feather"})
"""Endings of files that can be predicted."""


def predict_frame(wire: Wire, model: str, given: Frame, level: float | None) -> Any:  # noqa: ANN401 - the caller's table
    """Return a table with the predictions in columns after its own; its index and its other columns stay as they are.

    Args:
        wire: the client's connections.
        model: its id.
        given: of pandas, polars or Arrow; a table that speaks its interface comes back as one of Arrow.
        level: of the intervals; None: the predictions alone.

    Raises:
        WrongInput: it has none of the model's columns, one of the name of a prediction already, or one that cannot be
            sent.
    """
    frame = opened(given)
    wanted = _columns_of(wire, model)
    asked = selected(frame, wanted)
    if asked is None:
        fix = f"name its columns as the model does: {', '.join(wanted)}"
        raise WrongInput("The table has none of the model's columns.", "/rows", fix)
    arrow = installed("pyarrow")
    with TemporaryFile() as written:
        name = write_frame(asked, written)
        headers = {"Content-Type": content_type(name), "Accept": CSV if arrow is None else ARROW}
        content = FromStart(written)
        answer = wire.send("POST", _path(model), params=_query(level), headers=headers, content=content, timeout=None)
    own = len(asked.columns)
    found = _of_csv(answer.text, own) if arrow is None else _of_arrow(answer.content, own)
    names = {str(name) for name in getattr(frame, "column_names", frame.columns)}
    twice = [name for name in found if name in names]
    if twice:
        raise WrongInput(f"The table has a column `{twice[0]}`, as a prediction is called.", "/rows", "rename it")
    return beside(frame, found)


def _of_arrow(content: bytes, own: int) -> dict[str, Any]:
    """Return predictions by column, as arrays of NumPy: the columns of a stream after those that were sent."""
    found = needed("pyarrow.ipc", "a prediction of a table").open_stream(content).read_all()
    return {name: found[name].to_numpy() for name in found.column_names[own:]}


def _of_csv(text: str, own: int) -> dict[str, Any]:
    """Return predictions by column, as lists: the columns after those that were sent."""
    first, *lines = csv.reader(io.StringIO(text))
    return {
        name: [line[place] if name == FLAGS else float(line[place]) for line in lines]
        for place, name in enumerate(first)
        if place >= own
    }


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
        row_of = {name: plain(value) for name, value in row.items()}
        long = len(json.dumps(row_of))
        if part and (letters + long > MOST_LETTERS or len(part) == MOST_ROWS):
            yield part
            part, letters = [], 0
        part.append(row_of)
        # The one is the comma between two rows.
        letters += long + 1
    yield part


def _columns_of(wire: Wire, model: str) -> list[str]:
    """Return the names of the columns that a model reads."""
    design = (wire.get(f"/v1/models/{model}")["release"] or {}).get("design") or {}
    beside = [(design.get("offset") or {}).get("column"), design.get("array")]
    columns = [*design.get("columns", ()), *design.get("aside", ()), *(one for one in beside if one)]
    return [column["name"] for column in columns]


def _path(model: str) -> str:
    return f"/v1/models/{model}/predict"


def _query(level: float | None) -> dict[str, float]:
    return {} if level is None else {"level": level}
