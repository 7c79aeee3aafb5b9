"""Work on un-noised values that takes a time of its own, held to public deadlines.

The time to compute eigenvalues, or with big integers, depends on their values; that of sums does not. Therefore turning
sums into a score, and scores into a choice, ends at a deadline that does not depend on records. The deadline is four
times the slowest of some public examples of the same size on this machine, measured at the first question of that size.

A busy machine, or a matrix slower than all examples, may miss a deadline. The next one is then at twice the time, and
so on. The answer is given, since a failed job would reveal the same. The number of the deadline is then visible. As a
rule load decides it; no price covers it.
"""

import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.mechanisms.enclosure import least_eigenvalue
from core.mechanisms.exponential import choose
from core.mechanisms.generator import SystemGenerator
from core.mechanisms.laplace import first_below
from core.mechanisms.lattice import integer_norm
from core.mechanisms.sampling import public_generator

ROOM: Final = 4
"""Times the slowest example."""
LEAST_SECONDS: Final = 0.001
"""Clocks wake up within a fraction of it."""
_TRIES: Final = 5
_ENTRY_BITS: Final = 30
_WIDE: Final = 2**20
_MOST_TRIED: Final = 256
"""Points of an example; more take as many times as long."""

T = TypeVar("T")


def paced(seconds: float, act: Callable[[], T]) -> T:
    """Return what an act returns, at its deadline: after `seconds`, or twice that where it is missed, and so on."""
    begun = time.monotonic()
    made = act()
    while time.monotonic() > begun + seconds:
        seconds *= 2
    while (left := begun + seconds - time.monotonic()) > 0:
        time.sleep(left)
    return made


@lru_cache(maxsize=64)
def score_seconds(dimension: int) -> float:
    """Return the deadline of one point's score: a norm and a least eigenvalue of so many dimensions."""
    vector = _entries(dimension)
    cap = float(dimension * 2**_ENTRY_BITS)

    def score(matrix: NDArray[np.int64]) -> None:
        integer_norm(vector)
        least_eigenvalue(matrix, cap)

    return _deadline([partial(score, matrix) for matrix in _matrices(dimension)])


@lru_cache(maxsize=64)
def choice_seconds(points: int, dimension: int = 1) -> float:
    """Return the deadline of a choice among so many points by their scores, or by the norms of their sums.

    Args:
        points: K.
        dimension: of the sums.
    """
    vector, generator, tried = _entries(dimension), SystemGenerator(), min(points, _MOST_TRIED)
    scores = [[0] * tried, [number * _WIDE for number in range(tried)], [2**62 - number for number in range(tried)]]

    def choice(some: list[int]) -> None:
        for _ in some:
            integer_norm(vector)
        choose(generator, some, float(_WIDE))
        first_below(generator, some, 0, moved=_WIDE, sigma=1.0)

    return _deadline([partial(choice, some) for some in scores], points / tried)


def _deadline(examples: list[Callable[[], None]], times: float = 1.0) -> float:
    """Return some times what the slowest of some examples takes, each so many times as short as what is meant."""
    slowest = max(min(_seconds(example) for _ in range(_TRIES)) for example in examples)
    return max(ROOM * times * slowest, LEAST_SECONDS)


def _seconds(act: Callable[[], None]) -> float:
    """Return how long an act takes; the least of several is its own time, the others are what else the machine did."""
    begun = time.monotonic()
    act()
    return time.monotonic() - begun


def _entries(count: int) -> NDArray[np.int64]:
    """Return public integers of either sign, shape (count,)."""
    words: NDArray[np.uint64] = public_generator("pace").bits(count) >> np.uint64(63 - _ENTRY_BITS)
    return np.asarray(words.astype(np.int64) - 2**_ENTRY_BITS, dtype=np.int64)


def _matrices(dimension: int) -> list[NDArray[np.int64]]:
    """Return public symmetric matrices: zero, of rank one, with a spectrum all over, and with clusters."""
    square = _entries(dimension * dimension).reshape(dimension, dimension) // 2
    full = np.triu(square) + np.triu(square, 1).T
    ones = np.full_like(full, 2 ** (_ENTRY_BITS - 1))
    banded = np.triu(np.tril(full, 1), -1)
    return [np.zeros_like(full), ones, full, banded, np.diag(np.diagonal(full)) + ones // dimension]
