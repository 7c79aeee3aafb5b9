"""Where the reader of a stream stands: units of one pass after the other, a batch at a time."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.base.errors import ensure


class StreamCursor:
    """Counts the units that are behind, pass after pass; no batch is of two passes.

    Where too few units are left in a pass, the next batch is the first of the next pass; the units left are not read in
    this one. A unit is so in one batch of a pass at most, whatever the sizes of the batches.

    Args:
        units: of one pass.
        passes: number of passes over the units.
        behind: units of all passes that are behind at the start.

    Attributes:
        behind: units that are behind, read or left out.
    """

    def __init__(self, units: int, passes: int = 1, behind: int = 0) -> None:
        ensure(0 <= behind <= units * passes, "no more is behind than there is")
        self._units, self._passes, self.behind = units, passes, behind

    def first(self, batch: int) -> int | None:
        """Return where the next batch begins, counted from the start of the first pass; None if there is none."""
        left = -self.behind % self._units  # in the pass under way; at the start of a pass none is under way
        first = self.behind if left == 0 or batch <= left else self.behind + left
        fits = batch <= self._units and first + batch <= self._units * self._passes
        return first if fits else None

    def pass_of(self, batch: int) -> int:
        """Return the number of the pass that the next batch is of, from 0; of the last one where there is no batch."""
        first = self.first(batch)
        return self._passes - 1 if first is None else first // self._units

    def length(self, batch: int) -> int:
        """Return how many units more are behind once the next batch is read."""
        first = self.first(batch)
        assert first is not None, "the stream has run out of units: branch on `affords`"
        return first + batch - self.behind

    def take(self, batch: int) -> tuple[int, int]:
        """Pass by the next batch; return the number of its pass, and its first place there."""
        self.behind += self.length(batch)
        return divmod(self.behind - batch, self._units)


class Stream(StreamCursor):
    """A cursor through records, which stand in orders that whoever knows the job can make again.

    Args:
        orders: of each pass, the numbers of the records in the order in which they are read; all of one length.
        behind: units of all passes that are behind at the start.
    """

    def __init__(self, orders: Sequence[NDArray[np.int64]], behind: int = 0) -> None:
        super().__init__(orders[0].size, len(orders), behind)
        self._orders = orders

    def read(self, batch: int) -> NDArray[np.int64]:
        """Pass by the next batch and return the numbers of its records, shape (batch,)."""
        number, first = self.take(batch)
        # A copy: a tensor made of it must not share the order's memory.
        return self._orders[number][first : first + batch].copy()
