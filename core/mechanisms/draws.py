"""Many draws of one discrete Gaussian at once, compiled or by NumPy.

The native implementation (`core/native/noise.c`) gives the same integers for the same words of a generator:
`tests/mechanisms/test_draws.py` compares them draw by draw, and so does every worker when it starts
(`core.mechanisms.self_test`).
"""

import ctypes
from math import ceil, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.base.errors import ensure
from core.mechanisms.cumulative import GUIDE_BITS, WORD_BITS, Words
from core.mechanisms.generator import ROOM_BEHIND, Generator
from core.mechanisms.strips import Strips
from core.native.library import Kernel, address
from core.native.signatures import DRAW

_WIDTHS: Final[dict[int, type[np.unsignedinteger[Any]]]] = {16: np.uint16, 32: np.uint32, 64: np.uint64}
_BYTES: Final = WORD_BITS // 8
_LEAST_SPARE: Final = 8


class _Law(ctypes.Structure):
    """`struct law` of `core/native/noise.c`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("guide", "first", "high", "begins", "layers", "ends")),
        *((name, ctypes.c_int64) for name in ("width", "fine", "below", "test")),
        ("twice", ctypes.c_double),
    )


class Draws:
    """Draws of a law.

    Of the words for `count` of them, the first bits of all draws come first, in 16, 32 or 64 bits: the first 16 for the
    event, the last k for the place. Then follow words for what is undecided or tested: a public number of them, which
    is hardly ever too small. Those that are left over are not used; where one is missing, it is drawn.

    Args:
        strips: the law.
    """

    __slots__ = ("_bits", "_draw", "_kept", "_law", "_strips", "_width")

    def __init__(self, strips: Strips) -> None:
        self._strips = strips
        self._bits: Final = next(bits for bits in _WIDTHS if strips.fine + GUIDE_BITS <= bits)
        self._width: Final[type[np.unsignedinteger[Any]]] = _WIDTHS[self._bits]
        table, tests = strips.table, strips.tests
        largest = np.uint64(2**WORD_BITS - 1)
        layers = np.append(np.empty(0, dtype=np.uint64) if tests is None else tests.high, largest)
        # For each first byte of a word how many values are below all words that begin with it.
        begins = layers.searchsorted(np.arange(256, dtype=np.uint64) << np.uint64(WORD_BITS - 8)).astype(np.uint16)
        # Kept alive here: the structure below has their bare addresses.
        self._kept: list[NDArray[Any]] = [
            table.guide,
            table.first,
            # The kernel reads one value further than there are: none is larger than this.
            np.append(table.high, largest),
            begins,
            layers,
            strips.ends,
        ]
        places = [address(one) for one in self._kept]
        self._law = _Law(*places, self._bits, strips.fine, strips.below, strips.test, strips.twice)
        self.use(DRAW.kernel())

    def use(self, draw: Kernel | None) -> None:
        """Draw by this function from now on, by NumPy where it is None: the same integers."""
        self._draw = draw

    def spare(self, count: int) -> int:
        """Return how many words are drawn ahead for all that the first bits of `count` draws leave open.

        Their mean, and much more: one is missing less than once in 2^20 times. An undecided event takes one, and a test
        two; every second test fails, and takes one for an attempt anew, and what that takes.
        """
        undecided = self._strips.table.first.size / 2**GUIDE_BITS
        tested = self._strips.tested
        mean = (undecided + 2.5 * tested) / (1 - tested)
        return ceil(mean * count + 6 * sqrt((undecided + 10 * tested) * count)) + _LEAST_SPARE

    def room(self, count: int) -> "Room":
        """Return room for at most `count` draws at a time."""
        return Room(self._packed(count) + self.spare(count), count)

    def _packed(self, count: int) -> int:
        """Return how many words the first bits are."""
        return -(-count * self._bits // WORD_BITS)

    def draw(self, generator: Generator, room: "Room", count: int) -> NDArray[np.int64]:
        """Return independent draws, shape (count,), which stand in a room until the next; best one that a cache holds.

        Time depends on the random bits and the count alone.
        """
        packed, drawn = self._packed(count), room.drawn(count)
        # All words at once: for a short vector a call costs more than its draws.
        words = generator.bits_in(room.words, packed + self.spare(count))
        if self._draw and self._compiled(self._draw, words, packed, room, count):
            return drawn
        first = words[:packed].view(self._width)[:count].astype(np.uint64)
        leading = (first >> np.uint64(self._bits - GUIDE_BITS)).astype(np.uint16)
        drawn[:] = self._strips.settled(leading, self._strips.place(first), Words(words[packed:], generator))
        return drawn

    def _compiled(self, draw: Kernel, words: NDArray[np.uint64], packed: int, room: "Room", count: int) -> bool:
        """Do what NumPy would, by the same words; False where more words must decide."""
        # A generator may return words of its own in place of the room's.
        at = room.at_words if words.base is room.words else address(words)
        law = ctypes.addressof(self._law)
        return not draw(law, at, count, at + packed * _BYTES, words.size - packed, room.at_listed, room.at_drawn)


class Room:
    """Where the words of some draws stand, and the draws: one for many, since to look for memory takes its time.

    Args:
        words: at most.
        count: of draws at most.

    Attributes:
        words: with room behind them.
        at_words, at_drawn: where both begin.
        at_listed: room for the numbers of all draws.
    """

    __slots__ = ("_drawn", "_listed", "at_drawn", "at_listed", "at_words", "words")

    def __init__(self, words: int, count: int) -> None:
        self.words, self._drawn = np.empty(words + ROOM_BEHIND, dtype=np.uint64), np.empty(count, dtype=np.int64)
        self._listed = np.empty(count, dtype=np.uint32)
        self.at_words, self.at_drawn, self.at_listed = address(self.words), address(self._drawn), address(self._listed)

    def drawn(self, count: int) -> NDArray[np.int64]:
        """Return the place of so many draws: the very same object where it is all of them."""
        ensure(count <= self._drawn.size, "there is room")
        return self._drawn if count == self._drawn.size else self._drawn[:count]
