"""Tables that are written batch by batch: CSV for people, Arrow and Parquet with types."""

import io
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from core.base.errors import FieldError, Invalid, TooLarge
from core.base.spreadsheets import FORMULA, guarded, lines
from core.records.answering import Kind
from core.records.decoding.cells import is_text
from core.records.encryption import Encrypting

_NUMBER: Final = r"^[+-](([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|nan)$"
_MARKS: Final = np.isin(np.arange(256), [ord(mark) for mark in FORMULA])
"""Of each byte: whether a text that begins with it may run as a formula."""


class Table:
    """A table on its way to a file; it is whole when the block ends without an exception.

    Args:
        kind: its format.
        sink: takes it.
        most_bytes: of the table.
    """

    def __init__(self, kind: Kind, sink: Encrypting, most_bytes: int) -> None:
        self._kind = kind
        self._sink = sink
        self._most_bytes = most_bytes
        self._schema: pa.Schema | None = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        """Begin; nothing is written before the first batch."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write what comes after the last batch."""
        if self._writer is not None and error is None:
            self._writer.close()

    def write(self, batch: pa.RecordBatch, figures: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Append rows with figures beside them.

        Args:
            batch: the rows, as they came.
            figures: by name, shape (rows,).

        Raises:
            Invalid: a column has the name of a figure, or a type that the format does not hold.
            TooLarge: the table is longer than it may be.
        """
        made = [pa.array(np.ascontiguousarray(values)) for values in figures.values()]
        try:
            if self._schema is None:
                self._begin(batch.schema, dict(zip(figures, made, strict=True)))
            whole = pa.record_batch([*batch.columns, *made], schema=self._schema)
            if self._kind == "csv":
                self._sink.write(_as_csv(whole))
            elif self._kind == "arrow-stream":
                self._writer.write_batch(whole)
            else:
                self._writer.write_batch(whole, row_group_size=max(1, whole.num_rows))
        except (pa.ArrowException, NotImplementedError):
            raise Invalid(
                f"A column has a type that {self._kind} does not hold.",
                FieldError("#header/accept", "ask for another format, or leave the column out"),
            ) from None
        if self._sink.tell() > self._most_bytes:
            raise TooLarge(
                f"The answer would be larger than {self._most_bytes} bytes.",
                FieldError("/file", "send fewer rows at a time, or leave columns out that the model does not need"),
            )

    def _begin(self, schema: pa.Schema, figures: Mapping[str, pa.Array]) -> None:
        twice = [name for name in figures if name in schema.names]
        if twice:
            raise Invalid(
                "The file has columns with the names of predictions.",
                *(FieldError(f"/columns/{name}", "rename it: the answer has a column of this name") for name in twice),
            )
        if self._kind == "csv":
            nested = [field for field in schema if pa.types.is_nested(field.type) or pa.types.is_binary(field.type)]
            if nested:
                fix = "ask for Arrow or Parquet, or leave the column out"
                raise Invalid(
                    f"CSV does not hold {nested[0].type} values, as `{nested[0].name}` has.",
                    FieldError("#header/accept", fix),
                )
        self._schema = pa.schema(
            [*schema, *(pa.field(name, values.type) for name, values in figures.items())], metadata=schema.metadata
        )
        if self._kind == "csv":
            self._sink.write(lines([self._schema.names]).encode())
            return
        file = pa.PythonFile(self._sink, "w")
        if self._kind == "arrow-stream":
            self._writer = pa.ipc.new_stream(file, self._schema)
        else:
            self._writer = pq.ParquetWriter(file, self._schema)


def _as_csv(batch: pa.RecordBatch) -> bytes:
    """Return rows as CSV without a header: texts guarded, in quotes only where a cell needs them."""
    guarded_columns = [_guarded(_plain(column)) for column in batch.columns]
    batch = pa.record_batch(guarded_columns, names=batch.schema.names)
    for style in ("none", "needed"):
        text = io.BytesIO()
        try:
            pacsv.write_csv(
                batch, text, pacsv.WriteOptions(include_header=False, quoting_style=style, batch_size=8192, eol="\r\n")
            )
        except pa.ArrowInvalid:
            if style == "none":  # a cell holds a comma, a quote or a line end
                continue
            raise
        return text.getvalue()
    raise AssertionError("the last style takes every cell")


def _plain(column: pa.Array) -> pa.Array:
    """Return cells of a type that CSV can have."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if is_text(kind):
        return column if pa.types.is_string(kind) else column.cast(pa.string())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return column
    return column.cast(pa.string())


def _guarded(column: pa.Array) -> pa.Array:
    """Return texts of which none runs as a formula; other cells as they are."""
    if not pa.types.is_string(column.type) or not len(column):
        return column
    _, ends, content = column.buffers()
    if content is None or not content.size:
        return column
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    letters = np.frombuffer(content, np.uint8)
    # A sign alone is no formula; all signs are one byte long.
    long = np.flatnonzero(np.diff(offsets) > 1)
    marked = long[_MARKS[letters[offsets[long]]]]
    if not len(marked):
        return column
    numbers = pc.match_substring_regex(column.take(pa.array(marked)), _NUMBER).fill_null(True)
    marked = marked[~numbers.to_numpy(zero_copy_only=False)]
    if not len(marked):
        return column
    mask = np.zeros(len(column), dtype=bool)
    mask[marked] = True
    texts = [guarded(text) for text in column.take(pa.array(marked)).to_pylist()]
    return pc.replace_with_mask(column, pa.array(mask), pa.array(texts, pa.string()))
