"""Narrow discrete Gaussians, drawn by comparing bits with a table of their cumulative distribution.

`core.mechanisms.gaussian` says how far a draw is from its law, and makes wide laws of narrow ones. What draws are, and
which bits decide them, is written here in NumPy. The compiled twin (`core/native/noise.c`) gives the same integers for
the same words of a generator: `tests/mechanisms/test_cumulative.py` compares them draw by draw, and so does every
worker when it starts (`core.mechanisms.self_test`).
"""

from decimal import Context, Decimal
from itertools import accumulate
from math import ceil, exp
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.mechanisms.generator import Generator
from core.native.library import Kernel, address
from core.native.signatures import DECIDE, SETTLE

TAIL: Final = 14
"""A table ends at this many parameters."""

PROBABILITY_BITS: Final = 128
WORD_BITS: Final = 64
UNDECIDED: Final = 2**15
"""A guide's numbers from here on are those of undecided cells; no table has so many values."""

WORKING_BITS: Final = 256
GUIDE_BITS: Final = 16
LEADING_A_WORD: Final = WORD_BITS // GUIDE_BITS
_BEHIND_GUIDE: Final = np.uint64(WORD_BITS - GUIDE_BITS)
MOST_AT_ONCE: Final = 2**16
_LARGEST_SUM: Final = 2**62


def _weights(parameter: float, last: int) -> list[int]:
    """Return exp(-x^2 / (2 s^2)) for x = 0..last in fixed point, each within 2^-200.

    From q = exp(-1/(2 s^2)): the weight grows by q^(2x+1), which grows by q^2. Every product loses less than
    2^-255, and the losses of x <= 14 * 1024 steps add up to less than x^2 2^-254 < 2^-226.
    """
    context = Context(prec=120)
    exponent = context.divide(Decimal(-1), context.multiply(Decimal(2), context.power(Decimal(parameter), 2)))
    ratio = int(context.multiply(context.exp(exponent), Decimal(1 << WORKING_BITS)))
    squared = (ratio * ratio) >> WORKING_BITS
    weights = [1 << WORKING_BITS]
    for _ in range(last):
        weights.append((weights[-1] * ratio) >> WORKING_BITS)
        ratio = (ratio * squared) >> WORKING_BITS
    return weights


class CumulativeTable:
    """The narrow law: 2^128 times its cumulative distribution over -last..last, each value rounded down.

    A draw is -last plus the number of table values that 128 uniform bits reach. The first 16 of them are the number of
    a cell of a guide. Nearly all cells decide the draw; the others, in ascending order, are numbered from UNDECIDED on.

    Args:
        parameter: s, in [0.5, 1024].

    Attributes:
        high, low: the table's values, their leading and their last 64 bits.
        guide: by cell, how many values are reached, or the number of an undecided cell.
        first: by undecided cell, less UNDECIDED: how many values are below all of its words.
    """

    __slots__ = ("first", "guide", "high", "last", "low", "parameter")

    def __init__(self, parameter: float) -> None:
        self.parameter = parameter
        self.last = ceil(TAIL * parameter)
        half = _weights(parameter, self.last)
        cumulative = list(accumulate(half[:0:-1] + half))
        scaled = [(value << PROBABILITY_BITS) // cumulative[-1] for value in cumulative[:-1]]
        mask = (1 << WORD_BITS) - 1
        self.high = np.array([value >> WORD_BITS for value in scaled], dtype=np.uint64)
        self.low = np.array([value & mask for value in scaled], dtype=np.uint64)
        assert self.high.size < UNDECIDED, "a guide tells values from cells"
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

    def draw(self, generator: Generator, count: int) -> NDArray[np.int64]:
        """Return `count` independent draws, shape (count,)."""
        return self.reached(generator, count).astype(np.int64) - self.last

    def reached(self, generator: Generator, count: int) -> NDArray[np.uint16]:
        """Return how many table values each of `count` draws reaches, shape (count,).

        The first 16 of a draw's bits decide nearly all of them; 48 more are drawn where they do not, and 64 on a tie.
        """
        leading = generator.bits(-(-count // LEADING_A_WORD)).view(np.uint16)[:count]
        return self.settled(generator, leading, None)

    def settled(
        self, generator: Generator, leading: NDArray[np.uint16], words: NDArray[np.uint64] | None
    ) -> NDArray[np.uint16]:
        """Return the same for draws whose first bits are there, and maybe the words of those that they leave undecided.

        Args:
            generator: of all bits that are not given.
            leading: the first 16 bits of each draw, shape (count,).
            words: one for each undecided draw, or None.
        """
        reached = self.guide.take(leading)
        (undecided,) = (reached >= UNDECIDED).nonzero()
        words = (generator.bits(undecided.size) if words is None else words) >> np.uint64(GUIDE_BITS)
        words |= leading.take(undecided).astype(np.uint64) << _BEHIND_GUIDE
        # Among words of one cell there is mostly one table value: a search would take ten times as long.
        passed = self.first.take(reached.take(undecided) - UNDECIDED).astype(np.int64)
        passed += self.high.take(passed, mode="clip") < words
        (more,) = (self.high.take(passed, mode="clip") <= words).nonzero()
        if more.size:
            passed[more] = self._passed(generator, words[more])
        reached[undecided] = passed
        return reached

    def _passed(self, generator: Generator, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return how many table values are reached, by search, and by 64 more bits on a tie."""
        passed = self.high.searchsorted(words, side="left")
        ties = self.high.searchsorted(words, side="right") - passed
        for position in ties.nonzero()[0]:  # once in 2^49 words or so
            start = passed[position]
            second = generator.bits(1)[0]
            passed[position] += np.count_nonzero(self.low[start : start + ties[position]] <= second)
        return passed

    def distance(self) -> float:
        """Return a bound on the distance of one draw from the ideal law: tail and rounding."""
        return exp(-(TAIL**2) / 2) + (2 * self.last + 1) * 2.0**-PROBABILITY_BITS


class NarrowSums:
    """Draws of x_0 + K_1 x_1 + ... + K_m x_m, the x_i from one table.

    Of the words for `count` of them, the leading bits of all x_0 come first, then those of all x_1, and so on; then
    follow the words of undecided ones in that order.

    Args:
        table: of the x_i.
        multipliers: K_0 to K_m.
    """

    __slots__ = ("_decide", "_integers", "_multipliers", "_offset", "_places", "_settle", "_table")

    def __init__(self, table: CumulativeTable, multipliers: list[int]) -> None:
        self._table, self._multipliers = table, np.array(multipliers, dtype=np.int64)
        self._offset: Final = -table.last * sum(multipliers)
        assert sum(multipliers) * 2**GUIDE_BITS < _LARGEST_SUM, (
            "no sum overflows, with numbers of cells among its terms"
        )
        # No draw passes this, so that narrower integers, which take half the time, hold all of most laws.
        farthest = 2 * table.last * sum(multipliers)
        self._integers: Final = np.int32 if farthest <= np.iinfo(np.int32).max else np.int64
        self._places = [address(one) for one in (table.guide, table.first, table.high, self._multipliers)]
        self.use(DECIDE.kernel(), SETTLE.kernel())

    def use(self, decide: Kernel | None, settle: Kernel | None) -> None:
        """Draw by these functions from now on, by NumPy where they are None: the same integers."""
        self._decide, self._settle = decide, settle

    def draw(self, generator: Generator, sums: NDArray[np.int64]) -> None:
        """Fill an array with at most 2^16 independent draws, shape (count,); best a chunk that stays in the cache.

        Time depends on the random bits and the count alone.
        """
        terms = len(self._multipliers)
        # All narrow draws at once: for a short vector a call costs more than its draws.
        leading = generator.bits(-(-terms * sums.size // LEADING_A_WORD)).view(np.uint16)[: terms * sums.size]
        if self._decide and self._settle:
            self._compiled(self._decide, self._settle, generator, leading, sums)
        else:
            self._added(self._table.settled(generator, leading, None), sums)

    def _added(self, reached: NDArray[np.uint16], sums: NDArray[np.int64]) -> None:
        """Add up draws, shape (terms * count,), by their terms."""
        narrow = reached.reshape(-1, sums.size)
        added = narrow[0].astype(self._integers)
        added += self._offset
        for k, one in zip(self._multipliers[1:].tolist(), narrow[1:], strict=True):
            added += np.multiply(one, k, dtype=self._integers)
        sums[:] = added

    def _compiled(
        self,
        decide: Kernel,
        settle: Kernel,
        generator: Generator,
        leading: NDArray[np.uint16],
        sums: NDArray[np.int64],
    ) -> None:
        """Do what NumPy would, by the same words."""
        table, terms = self._table, len(self._multipliers)
        assert sums.dtype == np.int64, "draws are added up in 64 bits"
        assert leading.size == terms * sums.size, "every draw has its first bits"
        assert sums.size <= MOST_AT_ONCE, "a place has 16 bits"
        pending, pended = np.empty(leading.size, dtype=np.uint32), np.empty(terms, dtype=np.int64)
        guide, first, high, multipliers = self._places
        into, listed, sized = address(sums), (address(pending), address(pended)), (address(leading), sums.size, terms)
        decide(*sized, guide, multipliers, self._offset, into, *listed)
        words = generator.bits(sum(pended.tolist()))
        if settle(*sized, address(words), first, high, table.high.size, multipliers, into, *listed):
            self._added(table.settled(generator, leading, words), sums)
