"""Native products with rows, where they were built; their callers check shapes, types and addresses.

They add up in an order of their own, in double precision by fused multiply-adds that the source fixes. The result is
the same on every processor that has these, and no kernel is used on others. BLAS has another order; the charge covers
any order (`core.queries.sums.blocks`, `core.queries.sums.single`). All else equals the references. Numbers are made by
the same operations, and zero is a selection by a mask of bits. No branch and no loop's length depends on a number. A
part that breaks its public bound is reported, and no integer is made of it.
"""

from collections.abc import Callable
from ctypes import CDLL
from typing import Final, NamedTuple

import torch
from torch import Tensor

from core.base.errors import ensure
from core.native.library import Kernel, library
from core.native.signatures import DIFFERENCE, FUSES, MARGINS, OUTER, ROUND, SINGLE_MARGINS, SINGLE_SUM, SUM
from core.queries.sums.terms import Records, overwrite

Score = Callable[[Tensor, Tensor], Tensor]
"""Of a loss, at margins and targets."""

BLOCK_NUMBERS: Final = 2**16
"""Most numbers in a block of X that is read twice: half a megabyte, which stays in the second cache of any processor
of today between the two. Twice as many take a tenth more time where that cache holds 2 MB."""

_FOUR: Final = 4
"""Rows whose margins are made at a time. The cut of rows into blocks changes no bit: a sum takes one row after the
other."""

_LINE_NUMBERS: Final = 8
"""Doubles in a cache line, and in the widest register."""

_ROOM_ROWS: Final = 64
"""Rows that `farthing_outer` works in."""


class Kernels(NamedTuple):
    """All of them."""

    margins: Kernel
    sum: Kernel
    difference: Kernel
    outer: Kernel
    round: Kernel
    single_margins: Kernel
    single_sum: Kernel


def kernels_of(found: CDLL | None) -> Kernels | None:
    """Return a library's kernels; None: there is none, or no instruction of this processor multiplies and adds."""
    fuses = FUSES.of(found)
    if fuses is None or not fuses():
        return None
    several = [one.of(found) for one in (MARGINS, SUM, DIFFERENCE, OUTER, ROUND, SINGLE_MARGINS, SINGLE_SUM)]
    return Kernels(*(one for one in several if one is not None))


KERNELS = kernels_of(library()[0])
"""Of this process; None: NumPy does their work."""


def place(tensor: Tensor, dtype: torch.dtype, size: int) -> int:
    """Return where a vector begins, checking that a kernel can walk it."""
    fits = tensor.dtype == dtype and tensor.shape == (size,) and tensor.is_contiguous() and tensor.is_cpu
    ensure(fits, "a kernel gets the dtype and the count of its numbers, which follow each other in a CPU's memory")
    return tensor.data_ptr()


def margins(kernels: Kernels, features: Tensor, theta: Tensor) -> Tensor:
    """Return x.theta of each row, shape (m,)."""
    units, width = features.shape
    theta, margin = theta.contiguous(), torch.empty(units, dtype=torch.float64)
    kernels.margins(_matrix(features), units, width, 1, place(theta, torch.float64, width), margin.data_ptr())
    return margin


def _matrix(features: Tensor) -> int:
    """Return where a matrix begins, checking that a kernel can walk it."""
    fits = features.dtype == torch.float64 and features.is_contiguous() and features.is_cpu
    ensure(fits, "features are float64, row after row in a processor's memory")
    return features.data_ptr()


class Scratch(NamedTuple):
    """Buffers of one thread."""

    sums: Tensor
    """Float64, contiguous: of a part."""
    margin: Tensor
    """Float64, contiguous: for as many rows as are summed at a time, for each point."""
    work: Tensor
    """Float64, contiguous: zeros before the first sum, then what kernels left there."""


class Block:
    """Records that gradients in double precision are summed of, with a clip's limits.

    Attributes:
        points: at how many points margins are made.

    Args:
        kernels: compiled.
        records: on a CPU, without replicates; they are read only.
        highest: the largest numbers that the clip allows, shape (m,); None: it cuts none.
    """

    points = 1

    def __init__(self, kernels: Kernels, records: Records, highest: Tensor | None) -> None:
        self.kernels, self._records, self._highest = kernels, records, highest
        self.units, self.width = records.features.shape
        self._features = _matrix(records.features)
        self._weights = place(records.weights, torch.float64, self.units)
        self._limits = None if highest is None else place(highest, torch.float64, self.units)
        self._margin: Tensor | None = None
        self._sums = torch.zeros(self.width, dtype=torch.float64)
        self._room = 0, 0
        self._kept: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}
        self.rows = max(_FOUR, 1 << max(0, (BLOCK_NUMBERS // self.width).bit_length() - 1))

    def of(self, rows: Tensor, included: Tensor | None) -> "Block":
        """Return a copy of the records of a list; zeros stand in place of those that are left out."""
        some = self._listed(rows, included)
        highest = None if self._highest is None else self._highest.index_select(0, rows)
        if highest is not None and included is not None:
            overwrite(highest, included)
        return Block(self.kernels, some, highest)

    def _listed(self, rows: Tensor, included: Tensor | None) -> Records:
        ensure(bool(((rows >= 0) & (rows < self.units)).all()), "a list names records")
        return self._records.listed(rows, included)

    def add(
        self,
        score: Score,
        theta: Tensor,
        included: Tensor | None,
        among: tuple[int, int, int],
        room: Scratch,
    ) -> None:
        """Add some records' terms to a sum of floats, some at a time.

        Args:
            score: of the loss, or its curvature.
            theta: float64, shape (points * p,), contiguous.
            included: bool, shape (units,), contiguous; None: all count.
            among: start of the records, the end behind them, and the number summed at a time. These are in a cache
                between margins and sums, and one call makes sums and the next margins.
            room: of this thread; its sums are added to.
        """
        width, (start, stop, size) = self.width, among
        margin, kept = room.margin, None if included is None else included.data_ptr()
        at, places = margin.data_ptr(), (room.work.data_ptr(), room.sums.data_ptr(), theta.data_ptr())
        some = min(size, stop - start)
        self.kernels.margins(self._features + 8 * width * start, some, width, self.points, theta.data_ptr(), at)
        for first in range(start, stop, size):
            last = min(stop, first + size)
            count = last - first
            given = margin if count == margin.shape[0] and self.points == 1 else self._each(margin, count)
            target, offset = (
                (self._records.target, self._records.offset) if count == self.units else self._some(first, last)
            )
            if offset is not None:
                given += offset
            scores = score(given, target)  # a name of its own: it must last as long as its place is used
            scored = place(scores.view(-1), torch.float64, self.points * count)
            left = None if kept is None else kept + first
            self._sum((first, count), (scored, at), left, places, min(size, stop - last))

    def _sum(
        self, some: tuple[int, int], made: tuple[int, int], left: int | None, room: tuple[int, int, int], following: int
    ) -> None:
        """Add some records' terms to a sum, and make the margins of those that follow.

        Args:
            some: the first of them, and how many.
            made: where their scores and margins stand.
            left: where it stands who counts; None: all.
            room: where work, sums and the point stand.
            following: number of rows that follow.
        """
        (first, count), (_, sums, theta), width = some, room, self.width
        limits = None if self._limits is None else self._limits + 8 * first
        x, weights = self._features + 8 * width * first, self._weights + 8 * first
        self.kernels.sum(x, count, width, *made, weights, limits, left, sums, theta, following)

    def room(self, size: int) -> Scratch:
        """Return what a thread adds up in, so many rows at a time."""
        made = torch.empty(self.points * size, dtype=torch.float64)
        return Scratch(torch.zeros(self.width, dtype=torch.float64), made, made[:0])

    def entries(self, total: Tensor) -> Tensor:
        """Return a sum's entries in a row."""
        return total

    def _each(self, margin: Tensor, count: int) -> Tensor:
        """Return margins by points, shape (m,) or (points, m)."""
        some = margin[: self.points * count]
        return some if self.points == 1 else some.view(self.points, count)

    def gradient(self, score: Score, theta: Tensor, step: float, included: Tensor | None) -> Tensor:
        """Return the sum over all these records as one block, int64, shape (p,), in steps: few calls, for short sums.

        Its floats are those of several blocks. Arguments are as above, and `step` a power of two.
        """
        units, width, kernels = self.units, self.width, self.kernels
        if self._margin is None:
            self._margin = torch.empty(units, dtype=torch.float64)
            self._room = self._margin.data_ptr(), self._sums.data_ptr()
        at, sums = self._room
        theta = theta.contiguous()
        kernels.margins(self._features, units, width, 1, place(theta, torch.float64, width), at)
        if self._records.offset is not None:
            self._margin += self._records.offset
        scores = score(self._margin, self._records.target)
        scored = place(scores, torch.float64, units)
        left = None if included is None else place(included, torch.bool, units)
        kernels.sum(self._features, units, width, scored, at, self._weights, self._limits, left, sums, None, 0)
        total = torch.zeros(width, dtype=torch.int64)
        broken = kernels.round(sums, width, step, total.data_ptr())
        ensure(not broken, "every part is finite and within its public bound")
        return total

    def _some(self, first: int, last: int) -> tuple[Tensor, Tensor | None]:
        """Return targets and offsets of some records: views, which are kept, since torch takes long to make one."""
        found = self._kept.get((first, last))
        if found is None:
            offset = self._records.offset
            found = self._kept[first, last] = (
                self._records.target[first:last],
                None if offset is None else offset[first:last],
            )
        return found


def inverses(records: Records) -> Tensor:
    """Return one over each record's norm, shape (m,); zero for excluded rows, all of which is zeros then."""
    return torch.where(records.norms > 0, records.norms.reciprocal(), 0.0)


class Differences(Block):
    """Records that changes of gradients between two points are summed of.

    Args:
        kernels: compiled.
        records: on a CPU, without replicates; they are read only.
        inverse: `inverses` of them, contiguous.
        clip: the norm that gradients are clipped to at either point; infinite: none.
        bound: the norm that their changes are clipped to.
    """

    points = 2

    def __init__(self, kernels: Kernels, records: Records, inverse: Tensor, clip: float, bound: float) -> None:
        super().__init__(kernels, records, None)
        self._clip, self._bound, self._inverse = clip, bound, inverse
        self._inverses = place(inverse, torch.float64, self.units)

    def of(self, rows: Tensor, included: Tensor | None) -> "Differences":
        """Return a copy of the records of a list; zeros stand in place of those that are left out."""
        some = self._listed(rows, included)
        return Differences(self.kernels, some, inverses(some), self._clip, self._bound)

    def _sum(
        self, some: tuple[int, int], made: tuple[int, int], left: int | None, room: tuple[int, int, int], following: int
    ) -> None:
        (first, count), (_, sums, theta), width = some, room, self.width
        x, inverse = self._features + 8 * width * first, self._inverses + 8 * first
        beside = self._weights + 8 * first, inverse, left, self._clip, self._bound
        self.kernels.difference(x, count, width, *made, *beside, sums, theta, following)


def add_rounded(kernels: Kernels, sums: Tensor, step: float, total: Tensor) -> None:
    """Add a part's float sums to integers, in steps, and put zeros in their place.

    Args:
        kernels: compiled.
        sums: float64, contiguous.
        step: a power of two.
        total: int64, as many, contiguous.
    """
    broken = kernels.round(sums.data_ptr(), sums.numel(), step, total.data_ptr())
    ensure(not broken, "every part is finite and within its public bound")


class Moments(Block):
    """Records that x x^T times their curvature, or times the square of their score, is summed of.

    Args:
        kernels: compiled.
        records: on a CPU, without replicates; they are read only.
        inverse: `inverses` of them, contiguous.
        bound: limit of the number times |x|^2.
        squared: 1 if numbers are squares, else 0.
    """

    def __init__(self, kernels: Kernels, records: Records, inverse: Tensor, bound: float, squared: float) -> None:
        super().__init__(kernels, records, None)
        self._bound, self._squared, self._inverse = bound, int(squared), inverse
        self._inverses = place(inverse, torch.float64, self.units)
        self._outer = Outer(kernels, self.width)

    def of(self, rows: Tensor, included: Tensor | None) -> "Moments":
        """Return a copy of the records of a list; zeros stand in place of those that are left out."""
        some = self._listed(rows, included)
        return Moments(self.kernels, some, inverses(some), self._bound, self._squared)

    def room(self, size: int) -> Scratch:
        """Return what a thread adds up in."""
        return (
            super()
            .room(size)
            ._replace(sums=torch.zeros_like(self._outer.sums), work=torch.zeros_like(self._outer.room))
        )

    def entries(self, total: Tensor) -> Tensor:
        """Return a sum's entries in a row; right on and above the diagonal."""
        return total[: self.width, : self.width].flatten()

    def _sum(
        self, some: tuple[int, int], made: tuple[int, int], left: int | None, room: tuple[int, int, int], following: int
    ) -> None:
        (first, count), width = some, self.width
        x, inverse = self._features + 8 * width * first, self._inverses + 8 * first
        beside = self._weights + 8 * first, inverse, left, self._bound, self._squared
        self.kernels.outer(x, count, width, self._outer.sums.shape[1], *made, *beside, *room, following)


class Outer:
    """Sums of x x^T times numbers.

    Args:
        kernels: compiled.
        width: d.

    Attributes:
        sums: float64, shape (s, s), s being d rounded up to a multiple of 8; right on and above the diagonal.
        room: float64, which kernels work in.
    """

    def __init__(self, kernels: Kernels, width: int) -> None:
        self._kernels, self._width = kernels, width
        self._stride = -(-width // _LINE_NUMBERS) * _LINE_NUMBERS
        self.sums = torch.zeros(self._stride, self._stride, dtype=torch.float64)
        self.room = torch.zeros(_ROOM_ROWS, self._stride, dtype=torch.float64)

    def add(self, features: Tensor, numbers: Tensor, following: int = 0) -> None:
        """Add some rows, shape (m, d), times their numbers, shape (m,), and prefetch a number of rows behind them."""
        units = features.shape[0]
        at = place(numbers, torch.float64, units)
        beside, room = 4 * [None], (self.room.data_ptr(), self.sums.data_ptr())
        self._kernels.outer(
            _matrix(features), units, self._width, self._stride, at, *beside, 0.0, 0, *room, None, following
        )
