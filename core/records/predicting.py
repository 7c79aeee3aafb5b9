"""Files of rows to predict: read in a child process as uploads are, and written again with the predictions beside.

A cell means what it means in an upload (`core.records.decoding.cells`), except that a value that nothing stands for is
an error. One bad cell refuses the whole file: an answer is written to a file of its own, and taken only if it is whole.
Columns that the model does not need are passed on and not read.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from core.base.errors import FieldError, Invalid, Refusal, TooLarge
from core.data.columns import ArrayColumn, Column
from core.inference import network_predictions, predictions
from core.inference.description import ReleasedDescription
from core.inference.network import AnyReleased, ReleasedNetwork, read_released
from core.inference.predicted import Predicted
from core.models.design import Design
from core.models.features import escape, wanted
from core.records.answering import FilePredicted, RowsToPredict
from core.records.decoding import arrays, cells, formats
from core.records.decoding.checks import Caps
from core.records.decoding.child import ChildRefusal, answering, limit
from core.records.decoding.decode import leave_free
from core.records.tables import Table

MOST_ERRORS = 10
"""Bad cells that a refusal names."""
_STEP_NUMBERS = 2**21
"""Encoded numbers that are in memory at once."""
_MOST_PREDICTED = 100_000_000


class _Model:
    """A released model that predicts."""

    def __init__(self, model_id: str, released: AnyReleased, level: float | None) -> None:
        assert not isinstance(released, ReleasedDescription), "it was refused before"
        if isinstance(released, ReleasedNetwork):
            network_predictions.refuse_level(level)
        else:
            predictions.need_intervals(released, level)
        self._id, self._released, self._level = model_id, released, level

    @property
    def design(self) -> Design:
        return self._released.design

    def predict(self, values: dict[str, np.ndarray[Any, Any]], rows: int) -> Predicted:
        """Predict rows whose canonical values are given by column."""
        step = max(1, _STEP_NUMBERS // self.design.dimension)
        return Predicted.joined(
            [
                self._part({name: one[start : start + step] for name, one in values.items()}, min(step, rows - start))
                for start in range(0, rows, step)
            ]
        )

    def _part(self, values: dict[str, np.ndarray[Any, Any]], rows: int) -> Predicted:
        design = self.design
        encoded = np.empty((rows, design.dimension), dtype=design.number_type)
        design.encode_columns(values, encoded)
        if isinstance(self._released, ReleasedNetwork):
            return network_predictions.predict_encoded(self._id, self._released, encoded)
        offsets = np.zeros(rows)
        if design.offset is not None:
            # One by one, as for a single row: NumPy's logarithm may round otherwise.
            offsets[:] = [design.offset.of(value) for value in values[design.offset.column.name].tolist()]
        return predictions.predict_encoded(self._released, encoded, offsets, self._level)


class _Bad:
    """The cells that stand for nothing: their number, and the first of them."""

    def __init__(self) -> None:
        self.cells = 0
        self._rows = 0
        self._first: list[FieldError] = []

    def add(self, start: int, gaps: dict[str, tuple[Column, np.ndarray[Any, Any]]]) -> None:
        """Count the bad cells of a batch that begins at row `start`, given by column as shape (rows,)."""
        found = [(at, place) for place, (_, bad) in enumerate(gaps.values()) for at in _few(bad)]
        columns = [column for column, _ in gaps.values()]
        for at, place in sorted(found)[: MOST_ERRORS - len(self._first)]:
            column = columns[place]
            self._first.append(FieldError(f"/rows/{start + at}/{escape(column.name)}", _fix(column)))
        self.cells += sum(int(np.count_nonzero(bad)) for _, bad in gaps.values())
        self._rows += int(np.count_nonzero(np.logical_or.reduce([bad for _, bad in gaps.values()])))

    def refuse(self) -> None:
        """Refuse the file, where there are any.

        Raises:
            Invalid: it names the first of them.
        """
        if self.cells:
            many = f"{self.cells} cells in {self._rows} rows" if self.cells > 1 else "One cell"
            what = "stand for nothing" if self.cells > 1 else "stands for nothing"
            more = f"; the first {len(self._first)} are named" if self.cells > len(self._first) else ""
            raise Invalid(f"{many} of the file {what} that the model can read{more}.", *self._first)


def _few(bad: np.ndarray[Any, Any]) -> list[int]:
    """Return the first places of bad cells; there is an end to those that are named."""
    found: list[int] = np.flatnonzero(bad)[:MOST_ERRORS].tolist()
    return found


def _fix(column: Column) -> str:
    if isinstance(column, ArrayColumn):
        return f"must be lists of numbers in the shape {'x'.join(map(str, column.shape))}, none of them missing"
    return wanted(column)


def predict_file(request: RowsToPredict) -> int:
    """Write the rows of a file with their predictions, in this process; return how many there are.

    Raises:
        Invalid: the file is not what it is said to be, lacks a column, or has a cell that stands for nothing; its
            first bad cells are named. Or the level, or the format of the answer, does not suit it.
        TooLarge: it, or the answer, holds more than is taken.
    """
    model = _Model(request.model, read_released(request.released), request.level)
    limits = request.limits
    found = formats.sniff(request.source)
    if found != request.media:
        raise Invalid(
            f"The file is said to be {request.media}, but it looks like {found}.",
            FieldError("#header/content-type", "send the Content-Type that fits the file"),
        )
    bad, rows = _Bad(), 0
    with request.target.writing() as sink, Table(request.kind, sink, request.answer_bytes) as table:
        for batch, values in _read(request, model.design.predictors, bad):
            if bad.cells:
                continue
            leave_free(request.target.path.parent, limits.free_bytes)
            figures = model.predict(values, batch.num_rows).columns()
            rows += batch.num_rows
            if rows * len(figures) > _MOST_PREDICTED:
                raise TooLarge(
                    f"The answer would have more than {_MOST_PREDICTED} predicted figures.",
                    FieldError("/file", "send fewer rows at a time"),
                )
            table.write(batch, figures)
        bad.refuse()
    return rows


def _read(
    request: RowsToPredict, columns: tuple[Column, ...], bad: _Bad
) -> Iterator[tuple[pa.RecordBatch, dict[str, np.ndarray[Any, Any]]]]:
    """Yield batches of the whole file, with the canonical values of some columns; count bad cells on the way."""
    limits = request.limits
    caps = Caps(limits.rows, limits.columns, limits.cells)
    start = 0
    for batch in formats.batches(request.source, formats.Format(request.media), columns, caps, whole=True):
        values: dict[str, np.ndarray[Any, Any]] = {}
        gaps: dict[str, tuple[Column, np.ndarray[Any, Any]]] = {}
        for column in columns:
            given = batch.column(column.name)
            if isinstance(column, ArrayColumn):
                lists, _ = arrays.convert_array(column, given)
                gaps[column.name] = column, lists.is_null().to_numpy(zero_copy_only=False)
                values[column.name] = lists.values.to_numpy(zero_copy_only=False).reshape(-1, column.numbers)
            else:
                kept, _ = cells.convert(column, given)
                gaps[column.name] = column, np.isnan(kept) if kept.dtype.kind == "f" else kept < 0
                values[column.name] = kept
        bad.add(start, gaps)
        start += batch.num_rows
        yield batch, values


def answer(line: bytes) -> str:
    """Return the answer to a request of one line, as JSON."""
    request = RowsToPredict.model_validate_json(line)
    limits = request.limits
    limit(memory_bytes=limits.memory_bytes, seconds=limits.seconds, file_bytes=2 * request.answer_bytes)
    try:
        return FilePredicted(rows=predict_file(request)).model_dump_json()
    except Refusal as refusal:
        return FilePredicted(problem=ChildRefusal.of(refusal)).model_dump_json()


if __name__ == "__main__":
    answering(answer)
