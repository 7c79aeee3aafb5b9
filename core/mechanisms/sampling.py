"""Which units a question reads, and data-free random draws, from a generator's bits.

Sampling belongs to the door: the rate it prices is the rate it drew with, a multiple of 2^-64. Sizes of Poisson samples
are secret and batches are never truncated (Chua et al. 2024 on shuffled batches that were priced as Poisson).
"""

from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from math import log, log1p, pi
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.mechanisms.generator import SEEDS, Generator, SimulationGenerator

RATE_UNIT: Final = 2**64
"""A Poisson rate is a whole number of these parts."""

RARE_BITS: Final = 64
"""A sample passes its padded length with probability below 2^-64."""

_FLOAT_BITS: Final = 53
_LEADING_BITS: Final = 16
_APART: Final = 8
"""Places from one entry of a padding to the next: zeros are skipped by eight, and those of a sample lie apart too."""


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

    A unit is in if 64 uniform bits of its own, read as a number, are below `parts`. Sixteen of them nearly always
    decide; a unit whose sixteen are those of `parts` draws the other 48.

    Args:
        generator: the job's own.
        parts: k in [0, 2^64], from `rate_parts`.
        units: n.

    Returns:
        The mask, shape (n,). Its sum is secret: select by it, or by a list of a public length.
    """
    assert 0 <= parts <= RATE_UNIT, "a rate is at most one"
    words = generator.bits(-(-units * _LEADING_BITS // 64)).view(np.uint16)[:units]
    if parts == RATE_UNIT:
        return np.ones(units, dtype=np.bool_)
    leading, rest = divmod(parts, 2 ** (64 - _LEADING_BITS))
    mask = words < np.uint16(leading)
    tied = np.flatnonzero(words == np.uint16(leading))
    mask[tied] = generator.bits(tied.size) >> np.uint64(_LEADING_BITS) < np.uint64(rest)
    return mask


@lru_cache(maxsize=64)
def padded_length(parts: int, units: int) -> int:
    """Return a public length that a Poisson sample passes with probability below 2^-64.

    Proof. The size X is binomial in n trials of probability q = k / 2^64. For q < a <= 1 Chernoff's bound is
    P[X >= a n] <= exp(-n D(a, q)), D(a, q) = a log(a/q) + (1 - a) log((1 - a)/(1 - q)) (Hoeffding 1963, theorem 1).
    D(a, q) grows in a from zero at q. The length P is the least integer, n at most, with n D((P + 1)/n, q) above
    64 log 2, and the size passes P where X >= P + 1. The floats err by parts in 1e15, for which a millionth is kept
    back. No size passes n.

    Args:
        parts: k, in (0, 2^64].
        units: n.
    """
    assert 0 < parts <= RATE_UNIT, "a rate is in (0, 1]"
    rate = parts / RATE_UNIT
    first, last = min(int(units * rate), units), units
    while first < last:
        middle = (first + last) // 2
        rare = middle + 1 > units * rate and _exponent(middle + 1, units, parts) > RARE_BITS * log(2) * (1 + 1e-6)
        first, last = (first, middle) if rare else (middle + 1, last)
    return first


def _exponent(size: int, units: int, parts: int) -> float:
    """Return n D(size/n, q) of Chernoff's bound, for n q < size <= n."""
    rate, out = parts / RATE_UNIT, units - size
    inside = size * log(size / (units * rate))
    return inside + (out * (log(out / units) - log1p(-rate)) if out else 0.0)


class Listed(NamedTuple):
    """A sample as a list of a public length: its rows in ascending order, then padding that is not included."""

    rows: NDArray[np.int64]
    included: NDArray[np.bool_]


def listed(mask: NDArray[np.bool_], length: int) -> Listed | None:
    """Return a sample as a list of `length` rows, padded; None where it is larger.

    Each step works on arrays of public shapes: the mask is made to have `length` ones by further entries behind it. And
    what pads the list costs what the sample does: entries that lie as far apart, and rows from all over the records,
    which are read and left out.

    Args:
        mask: bool, shape (n,).
        length: public; see `padded_length`.
    """
    spare = length - int(np.count_nonzero(mask))
    if spare < 0:
        return None
    padding = np.zeros(_APART * length, dtype=np.bool_)
    padding[: _APART * spare : _APART] = True
    places = np.flatnonzero(np.concatenate([mask, padding]))
    included = places < mask.size
    return Listed(np.where(included, places, _spread(mask.size, length)), included)


@lru_cache(maxsize=8)
def _spread(units: int, length: int) -> NDArray[np.int64]:
    """Return rows from all over the records, shape (length,)."""
    return np.arange(length, dtype=np.int64) * units // length


def public_order(name: str, units: int) -> NDArray[np.int64]:
    """Return an order of 0..n-1, shape (n,), that everybody can repeat who knows a name: no secret is in it.

    Streams are read in it. Their promise holds for each order that no record decides, and the same one for all
    attempts at a job keeps them from reading a record twice.

    Args:
        name: of the job.
        units: n.
    """
    return permutation(public_generator(name), units)


def public_generator(name: str) -> SimulationGenerator:
    """Return a generator of bits that everybody can repeat who knows a name: no secret may hang on them."""
    return SimulationGenerator(int.from_bytes(sha256(name.encode()).digest()[:8], "big") % SEEDS)


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
