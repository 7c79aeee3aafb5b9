"""NumPy arrays on their way to a service: images, sequences and ordinary columns in one archive."""

from collections.abc import Mapping
from typing import Any, BinaryIO


def write_npz(arrays: Mapping[str, Any], file: BinaryIO) -> None:
    """Write arrays by their columns' names into an open file, compressed; the same arrays give the same bytes.

    Raises:
        ImportError: NumPy is not installed; the SDK needs it for nothing else.
        ValueError: an array holds Python objects, which no service reads.
    """
    import numpy as np  # noqa: PLC0415 - whoever has arrays has NumPy; nobody else needs it

    found = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    objects = [name for name, array in found.items() if array.dtype.hasobject]
    if objects:
        raise ValueError(f"`{objects[0]}` holds Python objects: give numbers, or texts as .astype(str)")
    np.savez_compressed(file, allow_pickle=False, **found)
    file.seek(0)
