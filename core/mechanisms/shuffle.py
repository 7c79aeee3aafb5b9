"""A uniformly random order of the slots of a list, from a generator's bits: Fisher and Yates.

Places are chosen from the last one down, place i among m = i + 1 by a word w as floor(w m / 2^64). Of the words whose
product with m has a lower half of at least 2^64 mod m, each place has equally many, floor(2^64 / m) of them (Lemire
2019, "Fast random integer generation in an interval"). Where a list meets another word, which happens once in 2^63 /
L^2 lists, it is shuffled again with fresh words, which make every order equally likely whatever it was before. Every
order of L slots thus has probability exactly 1 / L!.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.base.errors import ensure
from core.mechanisms.generator import Generator
from core.native.library import Kernel, address

_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(2**32 - 1)


def shuffle(generator: Generator, rows: NDArray[np.int64], included: NDArray[np.bool_]) -> None:
    """Put the slots of a list in a fresh, uniformly random order, in place.

    Args:
        generator: the job's own; nobody can repeat the order.
        rows: shape (L,), contiguous.
        included: shape (L,), contiguous, reordered alike.
    """
    ensure(included.shape == rows.shape == (len(rows),), "every slot counts or does not")
    ensure(len(rows) > 0, "a list has slots")
    again = True
    while again:
        places, again = _places_by(generator.bits(len(rows) - 1))
        order = _order(places)
        rows[:], included[:] = rows[order], included[order]


def compiled_shuffle(kernel: Kernel, generator: Generator, length: int, rows: int, included: int) -> None:
    """Do the same with the same words, in compiled code (`farthing_shuffle`).

    Args:
        kernel: of `core/native/samples.c`.
        generator: as above.
        length: L.
        rows: where they stand.
        included: where these do.
    """
    again = True
    while again:
        words = generator.bits(length - 1)  # a name of their own: they must last as long as their place is used
        again = bool(kernel(address(words), length, rows, included))


def _places_by(words: NDArray[np.uint64]) -> tuple[list[int], bool]:
    """Return which place changes with place i, for i from 1 on, and whether some word is one too many."""
    places = np.arange(2, len(words) + 2, dtype=np.uint64)
    low = words * places
    near = np.flatnonzero(low < places)  # hardly any
    spare = any(int(low[at]) < 2**64 % int(places[at]) for at in near)
    high, rest = words >> _HALF, words & _LOW
    carried = high * places + (rest * places >> _HALF)  # below 2^64, for there are less than 2^32 places
    return (carried >> _HALF).tolist(), spare


def _order(chosen: list[int]) -> NDArray[np.int64]:
    """Return the order that these changes make of 0..L-1."""
    order = list(range(len(chosen) + 1))
    for last in range(len(chosen), 0, -1):
        at = chosen[last - 1]
        order[last], order[at] = order[at], order[last]
    return np.array(order, dtype=np.int64)
