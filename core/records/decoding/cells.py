"""Whole columns of single values: each value becomes a number or a code; nothing here fails on a value.

The meaning of a cell is that of `core.data.cells`, given to Arrow arrays at once. A number or date becomes a
float64 in the units that enter a model (NaN: missing), a category an int32 and a binary an int8, its place among the
declared values (-1: missing).
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from core.data.column_fields import MAX_INTEGER
from core.data.columns import (
    BinaryColumn,
    CategoryColumn,
    Coded,
    DateColumn,
    IntegerColumn,
    Ordered,
    Scalar,
    bounds_of,
    key_of,
    number_of,
)
from core.data.dates import ISO_DATE, MONTHS, pattern_of
from core.data.reading import PLAIN, FileReading, marks_of, number_pattern
from core.records.decoding.validation import ColumnReport

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.integer[Any]]
_SECONDS_PER_DAY = 86_400
_DECIMAL = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity)$"


class RawCells(Protocol):
    """Takes a column's cells as they were read, before bounds, categories and missing codes have a say."""

    def numbers(self, values: Floats, /) -> None:
        """Take numbers, NaN where a cell is none."""

    def days(self, values: Floats, /) -> None:
        """Take days since 1 January of year 1, NaN where a cell is none."""

    def codes(self, texts: Sequence[str | None], places: npt.NDArray[np.integer[Any]], /) -> None:
        """Take texts: row i has `texts[places[i]]`, or none where `places[i]` is their number."""


def convert(
    column: Scalar, cells: pa.Array, raw: RawCells | None = None, reading: FileReading = PLAIN
) -> tuple[npt.NDArray[Any], ColumnReport]:
    """Return a column's canonical values, shape (rows,), and counts of the cells that were changed or missing.

    Args:
        column: the declaration.
        cells: an Arrow array of a type that `core.records.decoding.checks` lets through for this column.
        raw: receives the cells as they were read.
        reading: the form of texts that are numbers.
    """
    if pa.types.is_string_view(cells.type):
        cells = cells.cast(pa.string())  # few functions take views
    if isinstance(column, Coded):
        return _codes(column, cells, raw, reading)
    return _numbers(column, cells, raw, reading)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type holds texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _numbers(
    column: Ordered, cells: pa.Array, raw: RawCells | None, reading: FileReading
) -> tuple[Floats, ColumnReport]:
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    values = _days(column, cells) if isinstance(column, DateColumn) else floats_of(cells, reading)
    if raw is not None:
        if isinstance(column, DateColumn):
            # Counted from year 1, so that another declared lower bound gives the same hash.
            raw.days(values + column.lower.toordinal())
        else:
            raw.numbers(values)
    empty = _empty(column, cells, values)
    coded = missing_numbers(column, reading)
    absent = empty | np.isin(values, coded) if coded else empty
    missing = absent | np.isnan(values)
    lower, upper = bounds_of(column)
    with np.errstate(invalid="ignore"):
        low, high = (values < lower) & ~missing, (values > upper) & ~missing
        rounded = 0
        if isinstance(column, IntegerColumn):
            whole = np.where(np.abs(values) < MAX_INTEGER, np.rint(values), values)  # from 2^53 on, floats are whole
            rounded = int(np.count_nonzero((whole != values) & ~missing & ~low & ~high))
            values = whole
        values = np.clip(values, lower, upper)
    gaps = int(np.count_nonzero(missing))
    values[missing] = np.nan if column.fill is None else number_of(column, column.fill)
    return values, ColumnReport(
        name=column.name,
        clamped_low=int(np.count_nonzero(low)),
        clamped_high=int(np.count_nonzero(high)),
        rounded=rounded,
        unreadable=int(np.count_nonzero(missing & ~absent)),
        missing=gaps,
        filled=0 if column.fill is None else gaps,
    )


def _codes(column: Coded, cells: pa.Array, raw: RawCells | None, reading: FileReading) -> tuple[Codes, ColumnReport]:
    if not pa.types.is_dictionary(cells.type):
        cells = _texts(cells).dictionary_encode()
    # each distinct text is looked at once, however often it comes
    texts = _texts(cells.dictionary).to_pylist()
    # One place more than texts: that of cells without one.
    lookup = np.array([*_places(column, texts), _ABSENT], dtype=np.int32)
    places = cells.indices.cast(pa.int64()).fill_null(len(lookup) - 1).to_numpy(zero_copy_only=False)
    if raw is not None:
        raw.codes(_with_points(texts, reading), places)
    found = lookup[places]
    unknown, absent = found == _UNKNOWN, found == _ABSENT
    missing = absent
    other = column.other if isinstance(column, CategoryColumn) else None
    if other is not None:
        found[unknown] = column.values.index(other)
    else:
        missing = absent | unknown
    gaps = int(np.count_nonzero(missing))
    found[missing] = -1 if column.fill is None else column.values.index(column.fill)
    strange = int(np.count_nonzero(unknown))
    return found.astype(np.int8 if isinstance(column, BinaryColumn) else np.int32), ColumnReport(
        name=column.name,
        unknown=0 if other is None else strange,
        unreadable=strange if other is None else 0,
        missing=gaps,
        filled=0 if column.fill is None else gaps,
    )


_UNKNOWN, _ABSENT = -2, -1


def _places(column: Coded, texts: Sequence[str | None]) -> list[int]:
    """Return each text's place among the declared values, _ABSENT or _UNKNOWN."""
    known = column.places
    # An empty text that is declared as a value is not missing.
    absent = {"", *(key_of(column, code) for code in column.missing)} - set(known)
    keys = [key_of(column, (text or "").strip()) for text in texts]
    return [known.get(key, _ABSENT if key in absent else _UNKNOWN) for key in keys]


def _texts(cells: pa.Array) -> pa.Array:
    """Return cells as texts: 1 and 1.0 are "1", true is "true"."""
    if is_text(cells.type):
        return cells
    if pa.types.is_floating(cells.type):
        values = cells.cast(pa.float64())
        whole = pc.and_(pc.equal(pc.round(values), values), pc.less(pc.abs(values), float(MAX_INTEGER)))
        integers = pc.if_else(whole, values, None).cast(pa.int64(), safe=False).cast(pa.string())
        return pc.coalesce(integers, pc.if_else(pc.is_nan(values), None, values).cast(pa.string()))
    return cells.cast(pa.string())


def _empty(column: Ordered, cells: pa.Array, values: Floats) -> npt.NDArray[np.bool_]:
    """Tell which cells are null, or texts that are empty or a missing code; only unreadable ones are looked at."""
    empty = _mask(cells.is_null())
    if is_text(cells.type):
        strange = np.flatnonzero(np.isnan(values))
        texts = pc.utf8_trim_whitespace(cells.take(pa.array(strange)))
        empty[strange] |= _mask(pc.is_in(texts, value_set=pa.array(["", *column.missing], cells.type)))
    return empty


def _mask(cells: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = cells.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def floats_of(cells: pa.Array, reading: FileReading = PLAIN) -> Floats:
    """Return numbers, or texts of numbers, as float64; NaN for everything else."""
    if is_text(cells.type):
        cells = _parsed(cells if reading.writes_points else _pointed(cells, reading))
    elif pa.types.is_boolean(cells.type):
        cells = cells.cast(pa.int8())
    values = cells.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return np.array(values, dtype=np.float64)


def _parsed(texts: pa.Array) -> pa.Array:
    """Return texts as numbers, null for everything else; the slower ways are only taken where they are needed."""
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        filled = pc.if_else(pc.equal(texts, ""), None, texts)
    try:
        return filled.cast(pa.float64())
    except pa.ArrowInvalid:
        trimmed = pc.utf8_trim_whitespace(filled)
        return pc.if_else(pc.match_substring_regex(trimmed, _DECIMAL), trimmed, None).cast(pa.float64())


def _pointed(texts: pa.Array, reading: FileReading) -> pa.Array:
    """Return numbers as this reading writes them as those with a point, null for everything else."""
    trimmed = pc.utf8_trim_whitespace(texts)
    kept = pc.if_else(pc.match_substring_regex(trimmed, number_pattern(reading)), trimmed, None)
    if reading.thousands is not None:
        kept = pc.replace_substring_regex(kept, f"[{marks_of(reading.thousands)}]", "")
    return pc.replace_substring(kept, reading.decimal, ".")


def _with_points(texts: Sequence[str | None], reading: FileReading) -> Sequence[str | None]:
    """Return texts, those of numbers with a point: a category's "1,5" is the number that it is in a column of such."""
    if reading.writes_points:
        return texts
    pointed = _pointed(pa.array(texts, pa.string()), reading).to_pylist()
    return [text if point is None else point for text, point in zip(texts, pointed, strict=True)]


def _days(column: DateColumn, cells: pa.Array) -> Floats:
    """Return dates, or texts of dates, as days since the column's lower bound; NaN for everything else."""
    if is_text(cells.type):
        days = days_of_texts(pc.utf8_trim_whitespace(cells), column.formats)
    elif pa.types.is_null(cells.type):
        return np.full(len(cells), np.nan)
    elif pa.types.is_date32(cells.type):
        days = cells.cast(pa.int32()).cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    else:
        unit = "ms" if pa.types.is_date64(cells.type) else cells.type.unit
        ticks = cells.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        # Whole numbers: a float moves the last nanosecond of a day into the next. Floored, so right before 1970, too.
        days = np.where(
            cells.is_null().to_numpy(zero_copy_only=False), np.nan, ticks // (_SECONDS_PER_DAY * _TICKS[unit])
        )
    return np.array(days, dtype=np.float64) - column.lower.toordinal() + _EPOCH_ORDINAL


def days_of_texts(texts: pa.Array, forms: Sequence[str]) -> Floats:
    """Return dates in texts, ISO or of the forms, as days since 1970; NaN for everything else."""
    iso = pc.if_else(pc.match_substring_regex(texts, ISO_DATE), pc.utf8_slice_codeunits(texts, 0, 10), None)
    parsed = pc.strptime(iso, format="%Y-%m-%d", unit="s", error_is_null=True)
    # it takes February 30 for March 2
    kept = pc.equal(pc.day(parsed), pc.utf8_slice_codeunits(iso, 8, 10).cast(pa.int64()))
    seconds = pc.if_else(kept, parsed, None).cast(pa.int64())
    days = np.array(seconds.fill_null(0).to_numpy(zero_copy_only=False) // _SECONDS_PER_DAY, dtype=np.float64)
    days[seconds.is_null().to_numpy(zero_copy_only=False)] = np.nan
    for form in forms:
        left = np.flatnonzero(np.isnan(days))
        days[left] = _days_of_form(texts.take(pa.array(left)), form)
    return days


def _days_of_form(texts: pa.Array, form: str) -> Floats:
    """Return texts of one form as days since 1970; NaN for everything else."""
    found = pc.extract_regex(texts, pattern=pattern_of(form))
    parts = {field.name: pc.struct_field(found, field.name) for field in found.type}
    if "name" in parts:
        parts["month"] = pc.add(pc.index_in(pc.utf8_lower(parts.pop("name")), value_set=pa.array(MONTHS)), 1)
    year, month, day = (
        parts[name].cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) for name in ("year", "month", "day")
    )
    months = (year - 1970) * 12 + month - 1
    starts = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    days = starts + day - 1
    ends = (months + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    valid = (year > 0) & (month > 0) & (month <= _MONTHS) & (day > 0) & (days < ends)
    return np.where(valid, days, np.nan)


_MONTHS = 12
_TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH_ORDINAL = 719_163  # of 1970-01-01


def missing_numbers(column: Ordered, reading: FileReading) -> list[float]:
    """Return the missing codes that are numbers (or dates) of the column's kind, unclamped: as JSON or the file has."""
    texts = pa.array(column.missing, pa.string())
    if isinstance(column, DateColumn):
        values = _days(column, texts)
    else:
        values, written = floats_of(texts), floats_of(texts, reading)
        values = np.where(np.isnan(values), written, values)
    return [float(value) for value in values if not np.isnan(value)]
