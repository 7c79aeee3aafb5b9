"""Which units a question reads, and data-free random draws, from a generator's bits.

Sampling belongs to the door: the rate it prices is the rate it drew with, a multiple of 2^-64. Sizes of Poisson samples
are secret and batches are never truncated (Chua et al. 2024 on shuffled batches that were priced as Poisson).
"""

from fractions import Fraction
from math import pi
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.mechanisms.generator import Generator

RATE_UNIT: Final = 2**64
"""A Poisson rate is a whole number of these parts."""

_FLOAT_BITS: Final = 53


def rate_parts(rate: float) -> int:
    """Return k, the largest integer with k / 2^64 <= rate: the rate drawn never passes the one that is priced.

    Every float at least 2^-12 is met exactly.

    Raises:
        AssertionError: the rate is outside [2^-64, 1]; settings refuse it long before.
    """
    assert 0 < rate <= 1, "a Poisson rate is in (0, 1]"
    parts = int(Fraction(rate) * RATE_UNIT)
    assert parts > 0, "a Poisson rate is at least 2^-64"
    return parts


def poisson_mask(generator: Generator, parts: int, units: int) -> NDArray[np.bool_]:
    """Include every unit independently with probability exactly parts / 2^64.

    Args:
        generator: the job's own.
        parts: k in [0, 2^64], from `rate_parts`.
        units: n.

    Returns:
        The mask, shape (n,). Its sum is secret: select by it, do not index with it.
    """
    assert 0 <= parts <= RATE_UNIT, "a rate is at most one"
    words = generator.bits(units)
    if parts == RATE_UNIT:
        return np.ones(units, dtype=np.bool_)
    return words < np.uint64(parts)


def permutation(generator: Generator, count: int) -> NDArray[np.int64]:
    """Return a uniformly random order of 0..count-1, shape (count,).

    Sorts independent 64-bit keys, all drawn again when two are equal: given that they differ, every order is equally
    likely. A million keys collide once in 37 million tries.
    """
    while True:
        keys = generator.bits(count)
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        if not bool((ordered[1:] == ordered[:-1]).any()):
            return order.astype(np.int64)


def disjoint_batches(generator: Generator, units: int, sizes: list[int]) -> list[NDArray[np.int64]]:
    """Cut a random order of the units into batches of fixed public sizes; no unit is in two.

    Returns:
        One array of unit indices per size. Units beyond the sum of the sizes are in none.
    """
    assert all(size > 0 for size in sizes), "a batch has at least one unit"
    assert sum(sizes) <= units, "the batches together have at most all units"
    order = permutation(generator, units)
    ends = np.cumsum(sizes, dtype=np.int64)
    return [order[end - size : end] for size, end in zip(sizes, ends.tolist(), strict=True)]


def integer(generator: Generator, below: int) -> int:
    """Return a uniform integer in [0, below), by rejection."""
    assert 0 < below <= RATE_UNIT, "the range has 1 to 2^64 values"
    last = RATE_UNIT - RATE_UNIT % below
    while True:
        word = int(generator.bits(1)[0])
        if word < last:
            return word % below


def uniform(generator: Generator, size: int) -> NDArray[np.float64]:
    """Return uniform draws in (0, 1], multiples of 2^-53, shape (size,)."""
    words = generator.bits(size) >> np.uint64(64 - _FLOAT_BITS)
    return (words.astype(np.float64) + 1.0) * 2.0**-_FLOAT_BITS


def normal(generator: Generator, size: int) -> NDArray[np.float64]:
    """Return standard normal draws, shape (size,), by the method of Box and Muller (1958).

    For data-free starts only: float draws never noise private sums.
    """
    half = (size + 1) // 2
    radius = np.sqrt(-2.0 * np.log(uniform(generator, half)))
    angle = 2.0 * pi * uniform(generator, half)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]


def direction(generator: Generator, dimension: int) -> NDArray[np.float64]:
    """Return a uniformly random unit vector, shape (dimension,)."""
    assert dimension > 0, "a direction has at least one coordinate"
    while True:
        vector = normal(generator, dimension)
        length = float(np.linalg.norm(vector))
        if length > 0:
            return np.asarray(vector / length, dtype=np.float64)
