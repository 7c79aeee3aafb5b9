"""The secret number of runs of a group: Poisson, given that it is at most a public number."""

from bisect import bisect_right
from functools import lru_cache
from typing import Final

from core.mechanisms.generator import Generator
from core.privacy.selection import run_law

_WORD: Final = 64
_BITS: Final = 3 * _WORD
"""Of the uniform integer that decides: a draw is within 2^-175 of its law, for each of at most 2^16 numbers."""


def number_of_runs(generator: Generator, mean: float, slots: int) -> int:
    """Draw K, 0 to `slots`, from the Poisson law of a mean, given that it is at most `slots`."""
    drawn = 0
    for word in generator.bits(_BITS // _WORD):
        drawn = drawn << _WORD | int(word)
    return bisect_right(_law(mean, slots), drawn)


@lru_cache(maxsize=256)
def _law(mean: float, slots: int) -> tuple[int, ...]:
    """Return P(K <= k) for k below `slots`, in units of 2^-192."""
    return run_law(mean, slots, _BITS)
