"""Meaning of a record's array under its declared column, and its encoding for a network.

Numbers enter as (value - centre)/scale in single precision, with the centre `centre` (or the middle of the bounds)
and half the declared range as scale, as ordinary columns do; tokens enter as they are. The array's own order, C order,
is kept.
"""

from collections.abc import Iterator
from math import isfinite, sqrt
from typing import TYPE_CHECKING

from core.base.errors import FieldError
from core.data.columns import ArrayColumn, centre_of
from core.data.tiny import drop_tiny

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def scale_of(column: ArrayColumn) -> float:
    """Return half the declared range."""
    return column.upper / 2 - column.lower / 2


def norm_of(column: ArrayColumn) -> float:
    """Return the largest euclidean norm of an encoded array."""
    if column.of == "token":
        return sqrt(column.numbers) * column.upper
    centre = centre_of(column)
    return sqrt(column.numbers) * max(column.upper - centre, centre - column.lower) / scale_of(column)


def shapes_of(column: ArrayColumn) -> tuple[tuple[int, ...], ...]:
    """Return the shapes an array may come in: the declared one, that without its axes of length 1, and flat."""
    squeezed = tuple(size for size in column.shape if size > 1) or (1,)
    return tuple(dict.fromkeys((column.shape, squeezed, (column.numbers,))))


def encode_array(column: ArrayColumn, values: "npt.NDArray[np.generic]", out: "npt.NDArray[np.generic]") -> None:
    """Fill `out` with encoded arrays, many records at once.

    Args:
        column: the declaration.
        values: shape (rows, numbers), clamped, as the store keeps them: bytes, float32, or int32 tokens.
        out: shape (rows, numbers), float32, or int32 for tokens.
    """
    import numpy as np  # noqa: PLC0415 - only those who encode arrays pay for numpy

    if column.of == "token":
        out[...] = values
    else:
        np.subtract(values, np.float32(centre_of(column)), out=out, dtype=np.float32)
        np.divide(out, np.float32(scale_of(column)), out=out)
        drop_tiny(out)


def encode_one(column: ArrayColumn, value: object, pointer: str) -> list[float] | FieldError:
    """Return the encoded numbers of one array given as nested lists, or what is wrong with it, and where.

    Numbers are clamped and tokens rounded, as those of an upload are.

    Args:
        column: the declaration.
        value: lists in one of the shapes of `shapes_of`.
        pointer: JSON pointer of the value.
    """
    import numpy as np  # noqa: PLC0415 - as above

    depth = _depth(value)
    fitting = [shape for shape in shapes_of(column) if len(shape) == depth]
    if not fitting:
        return FieldError(pointer, f"must be lists of numbers in the shape {_text(column.shape)}, or one list of them")
    # Two shapes may be equally deep: an error is to name the one that was meant.
    shape = max(fitting, key=lambda one: isinstance(value, list | tuple) and one[0] == len(value))
    numbers = []
    for number in _walk(value, shape, pointer):
        if isinstance(number, FieldError):
            return number
        numbers.append(min(max(number, column.lower), column.upper))
        if number in column.missing:
            return FieldError(pointer, f"holds {number:g}, which means `not known`: give every number")
    rounded = np.rint(numbers) if column.of == "token" else np.array(numbers)
    # By the types that the store keeps: an upload's array gives the same numbers.
    kept = rounded.astype(np.int32 if column.of == "token" else np.float32)
    out = np.empty_like(kept)
    encode_array(column, kept, out)
    return [float(number) for number in out]


def _depth(value: object) -> int:
    """Return how deep lists stand within one another, along their first items."""
    depth = 0
    while isinstance(value, list | tuple) and value:
        depth, value = depth + 1, value[0]
    return depth


def _walk(value: object, shape: tuple[int, ...], pointer: str) -> Iterator[float | FieldError]:
    """Yield the numbers of nested lists in C order, and an error where they are not of that shape."""
    if not shape:
        # JSON's true is an int to Python.
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield FieldError(pointer, "must be a number")
            return
        try:
            number = float(value)
        except OverflowError:
            number = float("inf")  # JSON's integers may be longer than any float
        yield number if isfinite(number) else FieldError(pointer, "must be a finite number")
    elif not isinstance(value, list | tuple) or len(value) != shape[0]:
        found = f"{len(value)} items" if isinstance(value, list | tuple) else "no list"
        yield FieldError(pointer, f"must be a list of {shape[0]} items, not {found}")
    else:
        for place, item in enumerate(value):
            yield from _walk(item, shape[1:], f"{pointer}/{place}")


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
