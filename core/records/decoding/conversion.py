"""A file's batches in canonical form, with counts of how its cells were read; it writes nothing.

`core.records.decoding.decode` has the canonical form and writes it. `core.records.local.check` only counts.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa

from core.base.errors import FieldError, Invalid
from core.data.columns import ArrayColumn, Column, with_formats
from core.data.reading import PLAIN, SNIFF, FileReading, Reading
from core.records.decoding import arrays, cells, formats, otherwise, sniffing
from core.records.decoding.checks import Caps, Counter
from core.records.decoding.sources import Source
from core.records.decoding.validation import ColumnReport, Sniffed, ValidationReport


class Raw(cells.RawCells, arrays.RawArrays, Protocol):
    """Takes a column's cells as they were read."""


class Conversion:
    """A file on its way to canonical columns.

    Args:
        source: the file.
        columns: the declaration.
        caps: the most that it may hold.
        media: its format by the sender's word; None: its first bytes decide.
        reading: the form of a CSV file, or the word to look for it; None: UTF-8 with commas and points.

    Raises:
        Invalid: its structure or types are wrong, or it plainly is written otherwise.
        TooLarge: it passes a cap.
    """

    def __init__(
        self,
        source: Source,
        columns: Sequence[Column],
        caps: Caps,
        *,
        media: str | None = None,
        reading: Reading | None = None,
    ) -> None:
        kind = formats.sniff(source)
        if media is not None and media != kind:
            raise Invalid(
                f"The file is said to be {media}, but it looks like {kind}.",
                FieldError("/file", "send the Content-Type that fits the file"),
            )
        self._sniffed: Sniffed | None = None
        if reading == SNIFF:
            reading = None
            if kind is formats.Format.CSV:
                self._sniffed = sniffing.sniff(source, columns, Counter(0, columns, caps))
                reading, columns = self._sniffed.reading, with_formats(columns, self._sniffed.formats)
        self.columns = columns
        """As declared, with the forms of dates that were found."""
        self._reading: FileReading = reading or PLAIN
        self._found = formats.batches(source, kind, columns, caps, reading)
        self._first = next(self._found)  # there is one, or a refusal
        self.reading = self._reading if kind is formats.Format.CSV else None
        """Of a CSV file."""
        if self.reading is not None and self._sniffed is None:
            otherwise.refuse(columns, self._first, self.reading)
        self.schema = pa.schema([(column.name, self._kept_type(column)) for column in columns])
        """Of the canonical batches."""
        self._rows = self._incomplete = 0
        self._reports = [ColumnReport(name=column.name) for column in columns]

    def batches(self, raws: Sequence[Raw] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the canonical batches, once.

        Args:
            raws: receive the cells of each column as they were read, before a batch is yielded.

        Raises:
            As the constructor, from a later part of the file.
        """
        for batch in chain([self._first], self._found):
            gaps = np.zeros(batch.num_rows, dtype=bool)
            kept = []
            for place, column in enumerate(self.columns):
                raw = None if raws is None else raws[place]
                if isinstance(column, ArrayColumn):
                    lists, counts = arrays.convert_array(column, batch.column(place), raw)
                    gaps |= lists.is_null().to_numpy(zero_copy_only=False)
                    kept.append(lists)
                else:
                    values, counts = cells.convert(column, batch.column(place), raw, self._reading)
                    gaps |= np.isnan(values) if values.dtype.kind == "f" else values < 0
                    kept.append(pa.array(values))
                self._reports[place] = self._reports[place].plus(counts)
            self._incomplete += int(np.count_nonzero(gaps))
            self._rows += batch.num_rows
            yield pa.record_batch(kept, schema=self.schema)

    @property
    def report(self) -> ValidationReport:
        """The counts of the batches that were yielded."""
        return ValidationReport(
            rows=self._rows, incomplete_rows=self._incomplete, columns=tuple(self._reports), sniffed=self._sniffed
        )

    def _kept_type(self, column: Column) -> pa.DataType:
        if isinstance(column, ArrayColumn):
            return arrays.kept_type(column, self._first.schema.field(column.name).type)
        return {"category": pa.int32(), "binary": pa.int8()}.get(column.type, pa.float64())
