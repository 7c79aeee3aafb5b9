"""Answer from a noised sum on the lattice: integers with their noise, as floats in the units of an answer.

Compiled (`core/native/tell.c`), it is one pass over memory, some thousands of numbers at a time: sums as long as a
network's parameters do not stay in a core's cache. NumPy code here defines the result.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.base.errors import ensure
from core.mechanisms.lattice import Grid, round_parts
from core.native.library import Kernel, address
from core.native.signatures import TELL, TELL_OPEN

_TELL: Final = TELL.kernel()
_TELL_OPEN: Final = TELL_OPEN.kernel()
TELLS_OPEN: Final = _TELL_OPEN is not None
"""Whether `tell_open` can be called here."""

TELLS_IN_PLACE: Final = _TELL is not None
"""Whether `tell_in_place` can."""

_BYTES: Final = 8
"""Of an integer."""


def tell_noised(
    total: NDArray[np.int64],
    pieces: Iterable[tuple[int, NDArray[np.int64]]],
    grid: Grid,
    scale: float,
    answered: NDArray[np.float64] | NDArray[np.float32],
    kernel: Kernel | None = _TELL,
) -> None:
    """Round a sum of parts to the grid, add its noise there, and scale it; post-processing from the noise on.

    The native implementation does the same in one pass: integers exactly, and the same float operations.

    Args:
        total: in part steps, shape (p,).
        pieces: of the noise, in steps, each with the place where it begins; they cover the sum.
        grid: for sums of parts.
        scale: a step in the units of the answer.
        answered: written, rounded where it is in single precision; it may begin where the sum does, in its memory.
        kernel: compiled; None: NumPy does it.
    """
    ensure(total.dtype == np.int64, "parts add up as integers")
    single = answered.dtype == np.float32
    ensure(single or answered.dtype == np.float64, "answers are floats of double or single precision")
    ensure(total.shape == answered.shape == (total.size,), "vectors of one length")
    ensure(grid.part_bits > 0, "this grid is for sums of parts")
    if kernel is not None:
        _tell(kernel, address(total), address(answered), total.size, pieces, grid, scale, single=single)
        return
    for start, noise in _covering(pieces, total.size):
        here = slice(start, start + noise.size)
        integers = round_parts(total[here], grid)
        integers += noise
        np.multiply(integers, scale, out=answered[here], dtype=np.float64, casting="same_kind")


def _covering(pieces: Iterable[tuple[int, NDArray[np.int64]]], size: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield pieces of noise, checking that they cover a sum, each coordinate once."""
    done = 0
    for start, noise in pieces:
        fits = start == done and noise.dtype == np.int64 and done + noise.size <= size
        ensure(fits, "pieces of noise follow one another, and there is noise for this sum alone")
        done += noise.size
        yield start, noise
    ensure(done == size, "every coordinate has its noise")


def tell_in_place(
    sums: int,
    size: int,
    pieces: Iterable[tuple[int, NDArray[np.int64]]],
    grid: Grid,
    scale: float,
    *,
    single: bool,
    kernel: Kernel | None = _TELL,
) -> None:
    """Do what `tell_noised` does, compiled, where the sum stands: for a short one the kernel takes a part of the time.

    Args:
        sums: where the sum begins, int64, contiguous.
        size: p.
        pieces: as above.
        grid: as above.
        scale: as above.
        single: whether the answer is in single precision, over the first half of its memory.
        kernel: compiled, and there.
    """
    assert kernel is not None, "without kernels NumPy tells it"
    ensure(grid.part_bits > 0, "this grid is for sums of parts")
    _tell(kernel, sums, sums, size, pieces, grid, scale, single=single)


def _tell(
    kernel: Kernel,
    sums: int,
    answers: int,
    size: int,
    pieces: Iterable[tuple[int, NDArray[np.int64]]],
    grid: Grid,
    scale: float,
    *,
    single: bool,
) -> None:
    """Tell a sum from one address to another, piece by piece."""
    last, at, told_bytes = None, 0, _BYTES // 2 if single else _BYTES
    for start, noise in _covering(pieces, size):
        # Most pieces stand in the same array, and asking for an address takes time.
        if noise is not last:
            last, at = noise, address(noise)
        kernel(sums + _BYTES * start, at, noise.size, grid.part_bits, scale, answers + told_bytes * start, single)


def tell_open(
    part: NDArray[np.float32],
    total: NDArray[np.int64] | None,
    pieces: Iterable[tuple[int, NDArray[np.int64]]],
    grid: Grid,
    scale: float,
    kernel: Kernel | None = _TELL_OPEN,
) -> None:
    """Do what `tell_noised` does of a sum whose last part is still floats, which are truncated toward zero on the way.

    The answer takes that part's place: one pass over memory instead of two.

    Args:
        part: the last part, in the units of the sum, shape (p,); overwritten.
        total: the parts before it, in part steps, shape (p,); None: there are none.
        pieces: as above.
        grid: as above.
        scale: as above.
        kernel: compiled, and there. Its reference is `core.queries.sums.network.parts.write_truncated` before
            `tell_noised`.

    Raises:
        PrivacyInvariantError: a number of the part is not finite, or larger than any sum of parts; no answer may leave.
    """
    assert kernel is not None, "without kernels a sum's integers are made first"
    ensure(part.dtype == np.float32, "parts are in single precision")
    ensure(total is None or total.dtype == np.int64, "parts add up as integers")
    ensure(total is None or total.shape == part.shape, "vectors of one length")
    ensure(grid.part_bits > 0, "this grid is for sums of parts")
    floats, sums, inverse = address(part), None if total is None else address(total), 1 / grid.part_step
    last, at = None, 0
    for start, noise in _covering(pieces, part.size):
        if noise is not last:
            last, at = noise, address(noise)
        before = None if sums is None else sums + _BYTES * start
        within = kernel(floats + part.itemsize * start, inverse, before, at, noise.size, grid.part_bits, scale)
        ensure(bool(within), "every part is finite and within its public bound")
