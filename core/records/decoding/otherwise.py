"""Columns of a CSV file that plainly are written otherwise than declared: refused, never read as gaps or garbage.

A few strange cells are no sign: they are counted, and missing. Here more than half of a column's cells in the first
batch say that the reading is wrong.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.base.errors import FieldError, Invalid
from core.data.columns import Column, DateColumn, IntegerColumn, NumberColumn, Ordered
from core.data.reading import Decimal, FileReading, Thousands, number_pattern
from core.records.decoding.cells import days_of_texts

LEAST_CELLS: Final = 32
"""Fewer cells of a column are no sign of anything."""
NUMERALS: Final[tuple[tuple[Decimal, Thousands | None], ...]] = (
    *((".", None), (",", None)),
    *((",", "."), (".", ","), (",", " "), (".", " "), (".", "'"), (",", "'")),
)
"""Decimal marks and marks of thousands: those that say least come first."""

FORMS: Final = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d"),
    *("%d%b%Y", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y"),
)
"""Forms of dates that files often have, beside ISO 8601."""


def refuse(columns: Sequence[Column], batch: pa.RecordBatch, reading: FileReading) -> None:
    """Refuse a batch of texts that plainly is written otherwise.

    Raises:
        Invalid: each field to change is named once, with a column that says so.
    """
    fields: dict[str, FieldError] = {}
    for place, column in enumerate(columns):
        for field in _misread(place, column, batch.column(place), reading):
            fields.setdefault(field.pointer, field)
    if fields:
        raise Invalid("The file is written otherwise than declared.", *fields.values())


def given_in(column: Column, cells: pa.Array) -> pa.Array:
    """Return the texts of a column that are neither empty nor a missing code, without blanks around them."""
    texts = pc.utf8_trim_whitespace(cells.drop_null())
    absent = pa.array(["", *(str(code) for code in column.missing)], texts.type)
    return texts.filter(pc.invert(pc.is_in(texts, value_set=absent)))


def dates_in(texts: pa.Array, forms: Sequence[str]) -> int:
    """Return how many texts are dates, ISO or of the forms."""
    return int(np.count_nonzero(~np.isnan(days_of_texts(texts, forms))))


def matching(texts: pa.Array, pattern: str) -> int:
    """Return how many texts match a regular expression."""
    return int(pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0)


def with_numerals(reading: FileReading, decimal: Decimal, thousands: Thousands | None) -> FileReading:
    """Return a reading with other numerals; it may contradict itself, and reads numbers alone."""
    return reading.model_copy(update={"decimal": decimal, "thousands": thousands})


def _misread(place: int, column: Column, cells: pa.Array, reading: FileReading) -> Iterator[FieldError]:
    if not isinstance(column, Ordered) or len(texts := given_in(column, cells)) < LEAST_CELLS:
        return
    if isinstance(column, DateColumn):
        read = dates_in(texts, column.formats)
        counts = {form: dates_in(texts, (form,)) for form in FORMS}
        if max(counts.values()) > read + len(texts) / 2:
            named = " or ".join(f'"{form}"' for form, count in counts.items() if count == max(counts.values()))
            fix = f"most dates of `{column.name}` are not written as declared; declare {named}"
            yield FieldError(f"/columns/{place}/formats", fix)
        return
    yield from _misread_numbers(column, texts, reading)


def _misread_numbers(
    column: NumberColumn | IntegerColumn, texts: pa.Array, reading: FileReading
) -> Iterator[FieldError]:
    counts = {pair: matching(texts, number_pattern(with_numerals(reading, *pair))) for pair in NUMERALS}
    least = matching(texts, number_pattern(reading)) + len(texts) / 2
    most = max(counts.values())
    if most > least:
        # A mark of thousands that no cell has says nothing; `1,234` alone may be either, and its owner knows.
        named = [
            _declared(reading, decimal, thousands)
            for (decimal, thousands), count in counts.items()
            if count == most and (thousands is None or counts[decimal, None] < most)
        ]
        fix = f"most numbers of `{column.name}` are not written as declared; declare {' or '.join(named)}"
        yield FieldError("/reading/decimal" if "decimal" in named[0] else "/reading/thousands", fix)
    elif isinstance(column, IntegerColumn) and reading.thousands is None and holds_thousands(texts, reading):
        fix = (
            f"most whole numbers of `{column.name}` have groups of three digits; declare reading.thousands "
            f'"{reading.decimal}" and another reading.decimal, or the column as a number'
        )
        yield FieldError("/reading/thousands", fix)


def holds_thousands(texts: pa.Array, reading: FileReading) -> bool:
    """Tell whether most texts have a decimal mark where thousands have theirs, and no zeros alone after it."""
    mark = "[.]" if reading.decimal == "." else ","
    groups = matching(texts, f"^[+-]?[0-9]{{1,3}}({mark}[0-9]{{3}})+$")
    return groups - matching(texts, f"^[+-]?[0-9]{{1,3}}{mark}000$") > len(texts) / 2


def _declared(reading: FileReading, decimal: Decimal, thousands: Thousands | None) -> str:
    """Return the fields of a reading to declare for other numerals."""
    wanted = {"decimal": decimal, "thousands": thousands}
    changed = [
        f'reading.{name} "{value}"' if value else f"reading.{name} null"
        for name, value in wanted.items()
        if value != getattr(reading, name)
    ]
    if decimal == reading.separator:
        changed.append("another separator, with which the file is saved")
    return " and ".join(changed)
