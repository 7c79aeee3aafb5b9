"""Columns of arrays: lists in a file become rows of one length, or are missing; nothing fails on a value.

Of a record's array the numbers are kept in C order. Their type depends on the declaration and on the file's type, never
on a value. It is bytes where the declared bounds are whole numbers from 0 to 255 and the file's type holds whole
numbers only, int32 for tokens, float32 otherwise. No single record changes the time of reading the others.
"""

from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from core.data.arrays import shapes_of
from core.data.columns import ArrayColumn, Column
from core.records.decoding.validation import ColumnReport

_SCALAR_BYTES: Final = 8
_SINGLE_BYTES: Final = 4


def kept_type(column: ArrayColumn, kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type of the kept arrays, for cells of the type `kind`."""
    if column.of == "token":
        number = pa.int32()
    else:
        number = pa.uint8() if column.fits_bytes and not pa.types.is_floating(_innermost(kind)) else pa.float32()
    return pa.list_(number, column.numbers)


def kept_bytes(column: Column) -> int:
    """Return how many bytes a record takes in a column, at least; a column of single values takes up to 8."""
    if not isinstance(column, ArrayColumn):
        return _SCALAR_BYTES
    return column.numbers * (1 if column.fits_bytes else _SINGLE_BYTES)


def misfit_of_array(column: ArrayColumn, kind: pa.DataType) -> str | None:
    """Return how to mend it when arrays cannot be read from an Arrow type; None when they can."""
    inner = _innermost(kind)
    if pa.types.is_null(kind):
        return None
    number = pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner)
    if inner is not kind and number and _shape_in(column, kind) is not None:
        return None
    return f"write lists of numbers in the shape {'x'.join(map(str, column.shape))}, or one list of them"


class RawArrays(Protocol):
    """Takes a column's arrays as they were read, before bounds and missing codes have a say."""

    def arrays(self, rows: int, places: npt.NDArray[np.int64], values: npt.NDArray[np.float64], /) -> None:
        """Take the arrays of the rows `places`, shape (len(places), numbers); those of the other rows are missing."""


def convert_array(
    column: ArrayColumn, cells: pa.Array, raw: RawArrays | None = None
) -> tuple[pa.FixedSizeListArray, ColumnReport]:
    """Return a column's arrays as they are kept, null where missing, and how many arrays had something done to them.

    Args:
        column: the declaration.
        cells: lists of a type that `misfit_of_array` finds nothing wrong with.
        raw: is given the arrays as they were read.
    """
    rows = len(cells)
    kept = kept_type(column, cells.type)
    places, values = _rectangular(column, cells)
    if raw is not None:
        raw.arrays(rows, places, values)
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(values).all(axis=1)
        coded = finite & np.isin(values, column.missing).any(axis=1) if column.missing else np.zeros_like(finite)
        whole = finite & ~coded
        if not whole.all():
            places, values = places[whole], values[whole]
        rounded = 0
        if column.of == "token":
            numbers = np.rint(values)
            inside = (values >= column.lower) & (values <= column.upper)
            rounded = int(np.count_nonzero(((numbers != values) & inside).any(axis=1)))
            values = numbers
        low, high = (values < column.lower).any(axis=1), (values > column.upper).any(axis=1)
        numbers = np.clip(values, column.lower, column.upper)
    out = np.zeros((rows, column.numbers), dtype=kept.value_type.to_pandas_dtype())
    out[places] = numbers
    missing = np.ones(rows, dtype=np.bool_)
    missing[places] = False
    gaps = rows - len(places)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(out.reshape(-1)), type=kept, mask=pa.array(missing))
    return lists, ColumnReport(
        name=column.name,
        clamped_low=int(np.count_nonzero(low)),
        clamped_high=int(np.count_nonzero(high)),
        rounded=rounded,
        unreadable=gaps - cells.null_count - int(np.count_nonzero(coded)),
        missing=gaps,
    )


def _innermost(kind: pa.DataType) -> pa.DataType:
    """Return what the innermost lists of a type hold; the type itself where it has none."""
    while _is_list(kind):
        kind = kind.value_type
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _shape_in(column: ArrayColumn, kind: pa.DataType) -> tuple[int, ...] | None:
    """Return the shape in which lists of a type hold the arrays; None where they cannot."""
    sizes: list[int | None] = []
    while _is_list(kind):
        sizes.append(kind.list_size if pa.types.is_fixed_size_list(kind) else None)
        kind = kind.value_type
    for shape in shapes_of(column):
        if len(shape) == len(sizes) and all(size in (None, axis) for size, axis in zip(sizes, shape, strict=True)):
            return shape
    return None


def _rectangular(column: ArrayColumn, cells: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the rows whose lists have the declared lengths at every depth, and their numbers, NaN where null."""
    if pa.types.is_null(cells.type):
        return np.zeros(0, dtype=np.int64), np.zeros((0, column.numbers))
    shape = _shape_in(column, cells.type)
    assert shape is not None, "the file's types were checked"
    places, items = np.arange(len(cells)), 1
    for size in shape:
        # A missing list gets a length that no declaration has.
        lengths: npt.NDArray[Any] = pc.list_value_length(cells).fill_null(-1).to_numpy(zero_copy_only=False)
        fitting = (lengths.reshape(-1, items) == size).all(axis=1)
        if not fitting.all():
            places = places[fitting]
            cells = cells.filter(pa.array(np.repeat(fitting, items)))
        # `flatten` drops null lists; none is left here, so that rows stay in step.
        cells = cells.flatten()
        items *= size
    if pa.types.is_boolean(cells.type):
        cells = cells.cast(pa.int8())
    # A safe cast would refuse the whole file for one integer above 2^53.
    numbers = cells.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return places, numbers.reshape(-1, column.numbers)
