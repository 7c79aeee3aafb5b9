"""Passes over records in compiled code: block by block, rounded to integers part by part, parts shared out to threads.

A block of records is in a core's cache from its margins to its sums, so X comes from memory once a question. A part's
float sums are made in one thread from its rows alone, in an order that public shapes decide. They are rounded to
integers, which add up to the same in any order. A sum has therefore the same bytes for every number of threads and of
processes, whichever of them makes a part.

The number of threads is public: torch's number (`torch.set_num_threads`), at most one for each part, and one for each
THREAD_NUMBERS numbers of X. They live as long as one sum, so a process that forks between two sums has none. Kernels
and torch's operations run side by side, since both let other threads of Python go on; no operation of theirs on one
block is long enough for torch to share out.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import torch
from torch import Tensor

from core.base.errors import ensure
from core.privacy.facts import PART_UNITS, parts_in
from core.queries.sums.rows import Block, Kernels, Outer, Score, add_rounded, place
from core.queries.sums.terms import AnswerLayout, Factors, Records

THREAD_NUMBERS: Final = 2**21
"""Numbers of X that a thread is worth starting for: 16 MB, whose reading takes over a millisecond."""


class PartSums(Protocol):
    """One thread's sums."""

    @property
    def total(self) -> Tensor:
        """Of its parts, int64, in steps."""

    def add(self, start: int, stop: int) -> None:
        """Add the part from one row to another."""


def add_parts(units: int, width: int, make: Callable[[], PartSums], *, copied: bool) -> Tensor:
    """Return the sum of all parts, int64.

    Args:
        units: number of rows that are read.
        width: d.
        make: makes the sums of one thread; called once in each.
        copied: whether rows are those of a list. Torch copies them in threads of its own, so there are no others.
    """
    threads = 1 if copied else min(torch.get_num_threads(), parts_in(units), units * width // THREAD_NUMBERS)
    parts = iter(range(0, units, PART_UNITS))  # which Python lets one thread at a time take the next of
    if threads <= 1:
        return _work(parts, units, make)
    with ThreadPoolExecutor(threads - 1, "farthing-parts") as others:
        found = [others.submit(_work, parts, units, make) for _ in range(threads - 1)]
        total = _work(parts, units, make)
        return total + torch.stack([one.result() for one in found]).sum(0)


def _work(parts: Iterator[int], units: int, make: Callable[[], PartSums]) -> Tensor:
    with torch.inference_mode():  # of this thread
        sums = make()
        for start in parts:
            sums.add(start, min(units, start + PART_UNITS))
        return sums.total


class BlockSums:
    """Sums of clipped gradients, of what they change by, or of second moments, a `PartSums`.

    Args:
        block: the records.
        score: of the loss, or its curvature.
        theta: float64, shape (p,), or (2, p) for changes.
        step: a power of two.
        rows: a list of records that is read in its order; None: all are.
        included: which of what is read counts; None: all.
        size: largest number of rows that are read together; a multiple of four.
    """

    def __init__(
        self,
        block: Block,
        score: Score,
        theta: Tensor,
        step: float,
        rows: Tensor | None,
        included: Tensor | None,
        size: int,
    ) -> None:
        width = block.width
        self._block, self._score, self._step, self._rows, self._size = block, score, step, rows, size
        self._theta = theta.contiguous().view(-1)
        place(self._theta, torch.float64, block.points * width)
        self._included = None if included is None else included.contiguous()
        if self._included is not None:
            place(self._included, torch.bool, block.units if rows is None else rows.shape[0])
        self._room = block.room(size)
        self._total = torch.zeros(self._room.sums.shape, dtype=torch.int64)

    @property
    def total(self) -> Tensor:
        """Of its parts, int64, in steps: shape (d,) or (d * d,)."""
        return self._block.entries(self._total)

    def add(self, start: int, stop: int) -> None:
        """Add a part."""
        if self._rows is None:
            self._block.add(self._score, self._theta, self._included, (start, stop, self._size), self._room)
        else:
            for first in range(start, stop, self._size):
                last = min(stop, first + self._size)
                left = None if self._included is None else self._included[first:last]
                some, whole = self._block.of(self._rows[first:last], left), (0, last - first, last - first)
                some.add(self._score, self._theta, None, whole, self._room)
        add_rounded(self._block.kernels, self._room.sums, self._step, self._total)


class FactorSums:
    """Sums of numbers, of numbers times x, or of numbers times x x^T, a `PartSums`.

    Args:
        kernels: compiled.
        layout: one sum of one of the three kinds.
        records: on a CPU, without replicates; those left out have weight zero.
        factors: makes a block's numbers.
        step: a power of two.
        rows: a list of records that is read in its order; None: all are.
        included: which rows of the list count; None: all.
        size: number of rows that are read together; a multiple of four.
    """

    def __init__(
        self,
        kernels: Kernels,
        layout: AnswerLayout,
        records: Records,
        factors: Callable[[Records], Factors],
        step: float,
        rows: Tensor | None,
        included: Tensor | None,
        size: int,
    ) -> None:
        ensure(sum(layout) == 1, "one sum of one kind")
        self._kernels, self._records, self._factors, self._step = kernels, records, factors, step
        self._rows, self._included, self._size = rows, included, size
        self._width = records.features.shape[1]
        self._outer = Outer(kernels, self._width) if layout.outer else None
        plain = 1 if layout.plain else self._width
        self._sums = torch.zeros(plain, dtype=torch.float64) if self._outer is None else self._outer.sums
        self._total = torch.zeros(self._sums.shape, dtype=torch.int64)

    @property
    def total(self) -> Tensor:
        """Of its parts, int64, in steps: shape (1,), (d,) or (d * d,)."""
        return self._total[: self._width, : self._width].flatten() if self._outer is not None else self._total

    def add(self, start: int, stop: int) -> None:
        """Add a part."""
        for first in range(start, stop, self._size):
            last = min(stop, first + self._size)
            records = self._block(first, last)
            found = self._factors(records)
            if found.plain is not None:
                self._sums += found.plain.sum(-1)
            if found.linear is not None:
                self._add_rows(records.features, found.linear[0].contiguous())
            if found.outer is not None:
                assert self._outer is not None, "the layout says so"
                following = 0 if self._rows is not None else min(self._size, stop - last)
                self._outer.add(records.features, found.outer[0].contiguous(), following)
        add_rounded(self._kernels, self._sums, self._step, self._total)

    def _block(self, first: int, last: int) -> Records:
        """Return some records; zeros in place of those that a list leaves out."""
        if self._rows is None:
            return self._records.each(lambda one: one[first:last])
        left = None if self._included is None else self._included[first:last]
        return self._records.listed(self._rows[first:last], left)

    def _add_rows(self, x: Tensor, numbers: Tensor) -> None:
        units, width = x.shape
        at, others = place(numbers, torch.float64, units), 3 * [None]
        ensure(x.is_contiguous(), "rows stand one after the other")
        self._kernels.sum(x.data_ptr(), units, width, at, None, *others, self._sums.data_ptr(), None, 0)
