"""Meaning of one cell under its declared column, as the store's decoder gives it to whole columns."""

from datetime import date, datetime
from math import isnan, nan

from core.data.column_fields import MAX_INTEGER
from core.data.columns import (
    CategoryColumn,
    Coded,
    DateColumn,
    IntegerColumn,
    Ordered,
    bounds_of,
    key_of,
    number_of,
)
from core.data.dates import parse_date


def text_of_cell(value: object) -> str:
    """Return the text that is compared with declared values and codes: 1, 1.0 and "1" are one, True is "true"."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < MAX_INTEGER:
        return str(int(value))
    return str(value).strip()


def number_of_cell(column: Ordered, value: object) -> float | None:
    """Return a clamped number in the units that enter a model; None when missing and nothing fills it."""
    number = _day(column, value) if isinstance(column, DateColumn) else _number(value)
    codes = {_day(column, code) if isinstance(column, DateColumn) else _number(code) for code in column.missing}
    if isnan(number) or number in codes or text_of_cell(value) in column.missing:
        return None if column.fill is None else number_of(column, column.fill)
    lower, upper = bounds_of(column)
    # Larger floats are whole as they are, and `round` refuses infinity.
    if isinstance(column, IntegerColumn) and abs(number) < MAX_INTEGER:
        number = float(round(number))
    return min(max(number, lower), upper)


def code_of_cell(column: Coded, value: object) -> int | None:
    """Return the place of a cell among the declared values; None when missing and nothing fills it."""
    text = text_of_cell(value)
    key = key_of(column, text)
    if key in column.places:
        return column.places[key]
    absent = {"", *(key_of(column, code) for code in column.missing)}
    if isinstance(column, CategoryColumn) and column.other is not None and key not in absent:
        return column.values.index(column.other)
    return None if column.fill is None else column.values.index(column.fill)


def _number(value: object) -> float:
    """Return a number or a decimal text as a float; NaN when it is neither."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")  # an integer longer than any float
    text = value.strip() if isinstance(value, str) else ""
    # Python's float also reads 1_000 and the digits of other scripts.
    if "_" in text or not text.isascii():
        return nan
    try:
        return float(text)
    except ValueError:
        return nan


def _day(column: DateColumn, value: object) -> float:
    """Return a date or a text of one in days since the column's lower bound; NaN when it is neither."""
    # A datetime is a date to isinstance, but no date can be subtracted from it.
    if isinstance(value, datetime):
        value = value.date()
    if isinstance(value, str):
        value = parse_date(value.strip(), column.formats)
    return number_of(column, value) if isinstance(value, date) else nan
