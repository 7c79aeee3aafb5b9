"""Laws on a few thousand events, drawn by comparing bits with a table of their cumulative distribution.

NumPy code here defines the draws and the bits that decide them. `core.mechanisms.strips` says what the events are.
"""

from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.base.errors import ensure
from core.mechanisms.generator import Generator

PROBABILITY_BITS: Final = 128
WORD_BITS: Final = 64
UNDECIDED: Final = 2**15
"""A guide's numbers from here on are those of undecided cells; no table has so many values."""

GUIDE_BITS: Final = 16
_BEHIND_GUIDE: Final = np.uint64(WORD_BITS - GUIDE_BITS)


class Words:
    """Uniform words of 64 bits, one after the other: some that are there, and then a generator's.

    Args:
        ahead: those that are there.
        generator: of all others.
    """

    __slots__ = ("_ahead", "_generator")

    def __init__(self, ahead: NDArray[np.uint64], generator: Generator) -> None:
        self._ahead, self._generator = ahead, generator

    def take(self, count: int) -> NDArray[np.uint64]:
        """Return the next ones, shape (count,)."""
        found, self._ahead = self._ahead[:count], self._ahead[count:]
        if found.size < count:
            found = np.concatenate([found, self._generator.bits(count - found.size)])
        return found


class CumulativeTable:
    """A law on events 0, 1, ..., by 2^128 times its cumulative distribution, each value rounded down.

    An event is the number of table values that 128 uniform bits reach. The first 16 of them are the number of a cell of
    a guide. Nearly all cells decide the event; the others, in ascending order, are numbered from UNDECIDED on.

    Args:
        masses: of the events, whole numbers of any unit.

    Attributes:
        high, low: the table's values, their leading and their last 64 bits.
        guide: by cell, which event it is, or the number of an undecided cell.
        first: by undecided cell, less UNDECIDED: number of values below all of its words.
    """

    __slots__ = ("first", "guide", "high", "low")

    def __init__(self, masses: list[int]) -> None:
        cumulative = list(accumulate(masses))
        scaled = [(value << PROBABILITY_BITS) // cumulative[-1] for value in cumulative[:-1]]
        mask = (1 << WORD_BITS) - 1
        self.high = np.array([value >> WORD_BITS for value in scaled], dtype=np.uint64)
        self.low = np.array([value & mask for value in scaled], dtype=np.uint64)
        ensure(self.high.size < UNDECIDED, "a guide tells events from cells")
        self.first, self.guide = self._guides()

    def _guides(self) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
        """Return what is known of undecided cells, and of all."""
        starts = np.arange(2**GUIDE_BITS, dtype=np.uint64) << _BEHIND_GUIDE
        ends = starts | np.uint64(2 ** (WORD_BITS - GUIDE_BITS) - 1)
        guide = self.high.searchsorted(starts, side="left")
        undecided = guide != self.high.searchsorted(ends, side="right")
        first = guide[undecided]
        guide[undecided] = np.arange(UNDECIDED, UNDECIDED + first.size)  # a value makes one cell undecided at most
        return first.astype(np.uint16), guide.astype(np.uint16)

    @property
    def rounded(self) -> float:
        """Bound on the total variation between the drawn law and that of the masses: 2^-128 a value.

        Each of the values is off by less, and an event's probability is a difference of two of them.
        """
        return self.high.size * 2.0**-PROBABILITY_BITS

    def events(self, leading: NDArray[np.uint16], more: Words) -> NDArray[np.int64]:
        """Return events by the first 16 bits of each, shape (count,); undecided ones take a word each, in order."""
        found = self.guide.take(leading).astype(np.int64)
        (undecided,) = (found >= UNDECIDED).nonzero()
        words = more.take(undecided.size) >> np.uint64(GUIDE_BITS)
        words |= leading[undecided].astype(np.uint64) << _BEHIND_GUIDE
        # Among words of one cell there is mostly one table value: a search would take ten times as long.
        passed = self.first.take(found[undecided] - UNDECIDED).astype(np.int64)
        passed += self.high.take(passed, mode="clip") < words
        # Behind the last value `clip` gives that one again, so that a search settles such words.
        (further,) = (self.high.take(passed, mode="clip") <= words).nonzero()
        if further.size:
            passed[further] = self.passed(words[further], more)
        found[undecided] = passed
        return found

    def passed(self, words: NDArray[np.uint64], more: Words) -> NDArray[np.int64]:
        """Return events by the first 64 bits of each, by search, and by 64 more on a tie, shape (count,)."""
        passed = self.high.searchsorted(words, side="left")
        ties = self.high.searchsorted(words, side="right") - passed
        for position in ties.nonzero()[0]:  # once in 2^49 words or so
            start = passed[position]
            second = more.take(1)[0]
            passed[position] += np.count_nonzero(self.low[start : start + ties[position]] <= second)
        return passed
