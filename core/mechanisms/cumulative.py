"""Narrow discrete Gaussians, drawn by comparing bits with a table of their cumulative distribution.

`core.mechanisms.gaussian` says how far a draw is from its law, and makes wide laws of narrow ones. What draws are, and
which bits decide them, is written here in NumPy. The compiled twin (`core/native/noise.c`) gives the same integers for
the same words of a generator: `tests/mechanisms/test_cumulative.py` compares them draw by draw, and so does every
worker when it starts (`core.mechanisms.self_test`).
"""

from decimal import Context, Decimal
from itertools import accumulate
from math import ceil, exp, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.mechanisms.generator import ROOM_BEHIND, Generator
from core.native.library import Kernel, address
from core.native.signatures import DRAW

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
_LARGEST_SUM: Final = 2**62
_NO_WORDS: Final = np.empty(0, dtype=np.uint64)


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
        return self.settled(generator, leading.reshape(1, count), _NO_WORDS).reshape(count)

    def settled(
        self, generator: Generator, leading: NDArray[np.uint16], words: NDArray[np.uint64]
    ) -> NDArray[np.uint16]:
        """Return the same for draws whose first bits are there, with words for those that they leave undecided.

        Undecided draws take words column by column, each its first 48 bits.

        Args:
            generator: of all bits that are not given.
            leading: the first 16 bits of each draw, shape (terms, count).
            words: as many as there are; those that nothing asks for are not used.
        """
        reached = self.guide.take(leading)
        term, place = (reached >= UNDECIDED).nonzero()
        order = place.argsort(kind="stable")
        undecided = (term[order], place[order])
        lacking = max(0, order.size - words.size)
        words = np.concatenate([words[: order.size], generator.bits(lacking)]) >> np.uint64(GUIDE_BITS)
        words |= leading[undecided].astype(np.uint64) << _BEHIND_GUIDE
        # Among words of one cell there is mostly one table value: a search would take ten times as long.
        passed = self.first.take(reached[undecided] - UNDECIDED).astype(np.int64)
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
    follow words for undecided ones, sum by sum and term by term: a public number of them, which is hardly ever too
    small. Those that are left over are not used; where one is missing, it is drawn.

    Args:
        table: of the x_i.
        multipliers: K_0 to K_m.
    """

    __slots__ = ("_draw", "_high", "_integers", "_multipliers", "_offset", "_places", "_table")

    def __init__(self, table: CumulativeTable, multipliers: list[int]) -> None:
        self._table, self._multipliers = table, np.array(multipliers, dtype=np.int64)
        self._offset: Final = -table.last * sum(multipliers)
        assert sum(multipliers) * 2**GUIDE_BITS < _LARGEST_SUM, (
            "no sum overflows, with numbers of cells among its terms"
        )
        # No draw passes this, so that narrower integers, which take half the time, hold all of most laws.
        farthest = 2 * table.last * sum(multipliers)
        self._integers: Final = np.int32 if farthest <= np.iinfo(np.int32).max else np.int64
        self._high: Final = np.append(table.high, np.uint64(2**WORD_BITS - 1))
        self._places = [address(one) for one in (table.guide, table.first, self._high, self._multipliers)]
        self.use(DRAW.kernel())

    def use(self, draw: Kernel | None) -> None:
        """Draw by this function from now on, by NumPy where it is None: the same integers."""
        self._draw = draw

    def spare(self, count: int) -> int:
        """Return how many words are drawn ahead for the undecided ones of `count` sums: their mean, and much more.

        One is missing less than once in 2^20 times.
        """
        mean = self._table.first.size * len(self._multipliers) * count / 2**GUIDE_BITS
        return ceil(mean + 6 * sqrt(mean)) + 4

    def room(self, count: int) -> "Room":
        """Return room for at most `count` draws at a time."""
        return Room(self._packed(count) + self.spare(count), count)

    def _packed(self, count: int) -> int:
        """Return how many words the leading bits are."""
        return -(-len(self._multipliers) * count // LEADING_A_WORD)

    def draw(self, generator: Generator, room: "Room", count: int) -> NDArray[np.int64]:
        """Return independent draws, shape (count,), which stand in a room until the next; best one that a cache holds.

        Time depends on the random bits and the count alone.
        """
        terms, packed, sums = len(self._multipliers), self._packed(count), room.sums_of(count)
        # All words at once: for a short vector a call costs more than its draws.
        words = generator.bits_in(room.words, packed + self.spare(count))
        if self._draw and self._compiled(self._draw, words, packed, room, count):
            return sums
        leading = words[:packed].view(np.uint16)[: terms * count].reshape(terms, count)
        self._added(self._table.settled(generator, leading, words[packed:]), sums)
        return sums

    def _added(self, reached: NDArray[np.uint16], sums: NDArray[np.int64]) -> None:
        """Add up draws, shape (terms, count), by their terms."""
        added = reached[0].astype(self._integers)
        added += self._offset
        for k, one in zip(self._multipliers[1:].tolist(), reached[1:], strict=True):
            added += np.multiply(one, k, dtype=self._integers)
        sums[:] = added

    def _compiled(self, draw: Kernel, words: NDArray[np.uint64], packed: int, room: "Room", count: int) -> bool:
        """Do what NumPy would, by the same words; False where more words must decide."""
        guide, first, high, multipliers = self._places
        leading = room.at_words if words.base is room.words else address(words)
        behind, spare = leading + packed * (WORD_BITS // 8), words.size - packed
        sized = (count, len(self._multipliers))
        return not draw(leading, *sized, guide, behind, spare, first, high, multipliers, self._offset, room.at_sums)


class Room:
    """Where the words of some draws stand, and the draws: one for many, since to look for memory takes its time.

    Args:
        words: at most.
        count: of draws at most.

    Attributes:
        words: with room behind them.
        at_words, at_sums: where both begin.
    """

    __slots__ = ("_sums", "at_sums", "at_words", "words")

    def __init__(self, words: int, count: int) -> None:
        self.words, self._sums = np.empty(words + ROOM_BEHIND, dtype=np.uint64), np.empty(count, dtype=np.int64)
        self.at_words, self.at_sums = address(self.words), address(self._sums)

    def sums_of(self, count: int) -> NDArray[np.int64]:
        """Return the place of so many draws: the very same object where it is all of them."""
        assert count <= self._sums.size, "there is room"
        return self._sums if count == self._sums.size else self._sums[:count]
