"""Encoded numbers so small that products with them are slow: they become zero where records are encoded.

Processors take a hundred times as long for a product below the smallest normal float. A cell next to the middle of its
column would make such products in each pass, and only a record's own numbers say whether it does. From 2^-300 on, the
product of any two encoded numbers is normal in double precision, with a record's own number as well, which is 2^-200 or
more (`core.data.limits`); and from 2^-60 on in single precision. The change of a record is far below one step of any
grid.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LEAST: Final = 2.0**-300
"""In double precision."""
LEAST_SINGLE: Final = 2.0**-60
"""In single precision."""


def drop_tiny(numbers: "npt.NDArray[np.generic]") -> None:
    """Put zero in place of what is smaller, where it stands; NaN stays.

    Args:
        numbers: encoded, float64 or float32.
    """
    import numpy as np  # noqa: PLC0415 - only those who encode columns pay for numpy

    least = LEAST if numbers.dtype == np.float64 else LEAST_SINGLE
    np.copyto(numbers, 0.0, where=np.less(np.absolute(numbers), least))


def without_tiny(number: float) -> float:
    """Return one number in double precision, or zero in place of it."""
    return 0.0 if abs(number) < LEAST else number
