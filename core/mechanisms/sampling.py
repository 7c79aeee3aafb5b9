"""Which units a question reads, and data-free random draws, from a generator's bits.

Sampling belongs to the oracle: the rate it prices is the rate it drew with, a multiple of 2^-64. Sizes of Poisson
samples are secret and batches are never truncated (Chua et al. 2024 on shuffled batches that were priced as Poisson).
"""

from bisect import bisect_right
from ctypes import CDLL
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from math import log, log1p, pi
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.base.errors import ensure
from core.mechanisms.generator import SEEDS, WORD_BYTES, Generator, SimulationGenerator
from core.mechanisms.shuffle import compiled_shuffle, shuffle
from core.native.library import Kernel, address, library
from core.native.signatures import GROUPS, SETTLE_GROUPS, SHUFFLE, UNITS
from core.privacy.draws import LIST_BITS

RATE_UNIT: Final = 2**64
"""A Poisson rate is a whole number of these parts."""

RARE_BITS: Final = LIST_BITS
"""A sample passes its padded length with probability below 2^-84."""

_FLOAT_BITS: Final = 53
_WORD_BITS: Final = 64
_TOGETHER: Final = 8
"""Units that share a draw."""

_REST_BITS: Final = _TOGETHER * 64 - _WORD_BITS
_LEADING_BITS: Final = 16
_BEHIND_LEADING: Final = np.uint64(_WORD_BITS - _LEADING_BITS)
_REST_OF_WORD: Final = np.uint64(2 ** (_WORD_BITS - _LEADING_BITS) - 1)
_UNDECIDED: Final = -1


class ListKernels(NamedTuple):
    """The native implementations of what makes lists of units."""

    groups: Kernel
    settle: Kernel
    units: Kernel
    shuffle: Kernel


def kernels_of(found: CDLL | None) -> ListKernels | None:
    """Return a library's kernels, None where there is none."""
    several = [one.of(found) for one in (GROUPS, SETTLE_GROUPS, UNITS, SHUFFLE)]
    return None if found is None else ListKernels(*(one for one in several if one is not None))


KERNELS = kernels_of(library()[0])
"""Of this process; None: NumPy does their work."""


def rate_parts(rate: float) -> int:
    """Return k, the largest integer with k / 2^64 <= rate: the rate drawn never passes the one that is priced.

    Every float at least 2^-12 is met exactly.

    Raises:
        PrivacyInvariantError: the rate is outside [2^-64, 1]; settings refuse it long before.
    """
    ensure(0 < rate <= 1, "a Poisson rate is in (0, 1]")
    parts = int(Fraction(rate) * RATE_UNIT)
    ensure(parts > 0, "a Poisson rate is at least 2^-64")
    return parts


class _Groups:
    """The law of which of eight units are in a sample, each with probability k / 2^64, as a byte, a bit for each.

    A byte with c ones has probability k^c (2^64 - k)^(8 - c) / 2^512. The drawn byte is thus the number of the first
    255 cumulative numerators that a number of 512 uniform bits reaches. The leading 16 bits nearly always decide.

    Args:
        parts: k in [0, 2^64].
    """

    def __init__(self, parts: int) -> None:
        weights = (parts**ones * (RATE_UNIT - parts) ** (_TOGETHER - ones) for ones in map(int.bit_count, range(256)))
        self._exact = list(accumulate(weights))[:-1]
        # The leading word of 2^512 is none: what ties with the last one is decided by all bits.
        self._high = np.array([min(one >> _REST_BITS, RATE_UNIT - 1) for one in self._exact], dtype=np.uint64)
        starts = np.arange(2**_LEADING_BITS, dtype=np.uint64) << _BEHIND_LEADING
        first = self._high.searchsorted(starts, side="left")
        decided = first == self._high.searchsorted(starts | _REST_OF_WORD, side="right")
        self._guide = np.where(decided, first, _UNDECIDED).astype(np.int16)
        self._at = address(self._guide), address(self._high)
        self.least = np.uint16(min(int(self._high[0]) >> int(_BEHIND_LEADING), 2**_LEADING_BITS - 1))
        """No unit of a group whose leading bits are below it is in the sample."""

    @staticmethod
    def leading(generator: Generator, count: int) -> NDArray[np.uint16]:
        """Return the leading bits of `count` groups, shape (count,)."""
        return generator.bits(-(-count * _LEADING_BITS // _WORD_BITS)).view(np.uint16)[:count]

    def decide(
        self, generator: Generator, leading: NDArray[np.uint16], words: NDArray[np.uint64] | None = None
    ) -> NDArray[np.uint8]:
        """Return the bytes of groups by their leading bits, drawing more where these do not decide.

        The words for that may be given; ties draw all the same.
        """
        drawn = self._guide.take(leading)
        (undecided,) = (drawn == _UNDECIDED).nonzero()
        words = (generator.bits(undecided.size) if words is None else words) & _REST_OF_WORD
        words |= leading.take(undecided).astype(np.uint64) << _BEHIND_LEADING
        reached = self._high.searchsorted(words, side="left")
        ties = self._high.searchsorted(words, side="right") != reached
        for place in ties.nonzero()[0]:  # once in 2^48 groups or so: all bits decide
            rest = int.from_bytes(generator.bits(_REST_BITS // _WORD_BITS).tobytes(), "big")
            reached[place] = bisect_right(self._exact, int(words[place]) << _REST_BITS | rest)
        drawn[undecided] = reached
        return drawn.astype(np.uint8)

    def compiled(
        self, kernels: ListKernels, generator: Generator, leading: NDArray[np.uint16], length: int
    ) -> "_Found | None":
        """Return what `listed` does, compiled; None, and nothing drawn, where there are more than `length`."""
        count, first = leading.size, address(leading)
        # Places, those that are pending with their number behind them, and bytes: to ask where they are takes time.
        room = np.empty(2 * length + 3 + -(-length // WORD_BYTES), dtype=np.int64)
        at = address(room)
        into = (at, at + WORD_BYTES * (2 * length + 3), at + WORD_BYTES * (length + 1))
        pended = at + WORD_BYTES * (2 * length + 2)
        if kernels.groups(first, count, int(self.least), self._at[0], length, *into, pended) > length:
            return None
        words = generator.bits(int(room[2 * length + 2]))
        # Words that tie with a value are for NumPy, which decides by all bits.
        if kernels.settle(first, count, address(words), self._at[1], *into, words.size):
            drawn = self.decide(generator, leading.take(room[:length], mode="clip"), words)
            return _Found(room[:length], drawn, (at, address(drawn)))
        return _Found(room[:length], room[2 * length + 3 :].view(np.uint8)[:length], into[:2])

    def listed(self, generator: Generator, leading: NDArray[np.uint16], length: int) -> "_Found":
        """Return which groups may have units in the sample, padded to a length or more, and the bytes of these."""
        places = _places(leading >= self.least, length)
        drawn = self.decide(generator, leading.take(places, mode="clip"))
        return _Found(places, drawn, (address(places), address(drawn)))


class _Found(NamedTuple):
    """Groups that may have units in a sample, and their bytes."""

    places: NDArray[np.int64]
    drawn: NDArray[np.uint8]
    at: tuple[int, int]
    """Where both stand."""


@lru_cache(maxsize=8)
def _groups(parts: int) -> _Groups:
    """Return the law for a rate; making it takes milliseconds."""
    return _Groups(parts)


def poisson_mask(generator: Generator, parts: int, units: int) -> NDArray[np.bool_]:
    """Include every unit independently with probability exactly parts / 2^64.

    Eight units share a draw of who of them is in, whose law is that of eight independent ones: two bits a unit nearly
    always decide.

    Args:
        generator: the job's own.
        parts: k in [0, 2^64], from `rate_parts`.
        units: n.

    Returns:
        The mask, shape (n,). Its sum is secret: select by it, or by a list of a public length.
    """
    ensure(0 <= parts <= RATE_UNIT, "a rate is at most one")
    groups = _groups(parts)
    return _mask(groups.decide(generator, groups.leading(generator, -(-units // _TOGETHER))), units)


def _mask(drawn: NDArray[np.uint8], units: int) -> NDArray[np.bool_]:
    return np.unpackbits(drawn, count=units).view(np.bool_)


@lru_cache(maxsize=64)
def padded_length(parts: int, units: int) -> int:
    """Return a public length that a Poisson sample passes with probability below 2^-84.

    Proof. The size X is binomial in n trials of probability q = k / 2^64. For q < a <= 1 Chernoff's bound is
    P[X >= a n] <= exp(-n D(a, q)), D(a, q) = a log(a/q) + (1 - a) log((1 - a)/(1 - q)) (Hoeffding 1963, theorem 1).
    D(a, q) grows in a from zero at q. The length P is the least integer, n at most, with n D((P + 1)/n, q) above
    84 log 2, and the size passes P where X >= P + 1. The floats err by parts in 1e15, for which a millionth is kept
    back. No size passes n.

    Args:
        parts: k, in (0, 2^64].
        units: n.
    """
    ensure(0 < parts <= RATE_UNIT, "a rate is in (0, 1]")
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


class ListedSample(NamedTuple):
    """A sample as a list of a public length: L slots in an order that is uniformly random, secret and fresh.

    The slots that are not included are padding. Their rows only select the memory that is read: before any arithmetic,
    a sum over the list replaces these records by zeros, and excluded rows are zeros already. A slot with an excluded
    row and a slot with padding thus hold the same bytes.

    Law. Let S be a sample of at most L units without the unit x. Given S, the list puts S and L - |S| paddings into the
    L slots in a uniformly random order. Given S and x, at most L units, x has one of these paddings' places, and the
    order is uniformly random again. With x excluded, "x in the sample" and "x not in it" thus give the same law of the
    L slots' bytes. The orders are the same; in the first case x stands in the place of a padding.
    """

    rows: NDArray[np.int64]
    """Which record is read for each slot, shape (L,)."""
    included: NDArray[np.bool_]
    """Which slots hold units of the sample, shape (L,)."""


def poisson_list(generator: Generator, parts: int, units: int, length: int) -> ListedSample | NDArray[np.bool_]:
    """Draw a sample with the law of `poisson_mask`, as a list of `length` rows; as a mask where it is larger.

    Each step works on arrays of public shapes: groups that may have units in the sample are listed with padding first,
    then these units are, and then all slots are shuffled. A slot of padding costs as much as one of the sample: its
    row, from all over the records, is read and overwritten. Compiled, the same words give the same list, and all loops
    are as long as these arrays.

    Args:
        generator: the job's own.
        parts: k in (0, 2^64].
        units: n.
        length: public; see `padded_length`.
    """
    return list_by(KERNELS, generator, parts, units, length)


def list_by(
    kernels: ListKernels | None, generator: Generator, parts: int, units: int, length: int
) -> ListedSample | NDArray[np.bool_]:
    """Return what `poisson_list` does, by these kernels, by NumPy where there are none."""
    groups, count = _groups(parts), -(-units // _TOGETHER)
    leading = groups.leading(generator, count)
    # Groups that may have units are a sample themselves, whose size is as secret.
    most = padded_length((2**_LEADING_BITS - int(groups.least)) << 48, count)
    found = None if kernels is None else groups.compiled(kernels, generator, leading, most)
    found = groups.listed(generator, leading, most) if found is None else found
    if kernels is None:
        listed = _units_of(generator, found, count, units, length)
    else:
        listed = _compiled_units(kernels, generator, found, count, units, length)
    if listed is not None:
        return listed
    places, drawn, _ = found
    whole = np.zeros(count, dtype=np.uint8)
    whole[places[places < count]] = drawn[places < count]
    return _mask(whole, units)


def _units_of(generator: Generator, found: _Found, count: int, units: int, length: int) -> ListedSample | None:
    """Return the units of groups as a list, None where they are more; padding leaves the bytes."""
    places, drawn, _ = found
    drawn *= places < count
    if spare := count * _TOGETHER - units:  # bits of the last group that are no units
        drawn[places == count - 1] &= (0xFF << spare) & 0xFF
    inside = _mask(drawn, drawn.size * _TOGETHER)
    chosen = _places(inside, length)
    if chosen.size > length:
        return None
    included = chosen < inside.size
    read = places.take(chosen >> 3, mode="clip") * _TOGETHER + (chosen & 7)
    rows = np.where(included, read, _spread(units, length)[0])
    shuffle(generator, rows, included)
    return ListedSample(rows, included)


def _compiled_units(
    kernels: ListKernels, generator: Generator, found: _Found, count: int, units: int, length: int
) -> ListedSample | None:
    """Return what `_units_of` does, in compiled code."""
    # The row behind all slots takes whatever is too much for the list.
    room = np.empty(length + 1 + -(-length // WORD_BYTES), dtype=np.int64)  # rows, and which of them are units
    at = address(room)
    into = (at, at + WORD_BYTES * (length + 1))
    if kernels.units(*found.at, found.places.size, count, units, _spread(units, length)[1], length, *into) > length:
        return None
    compiled_shuffle(kernels.shuffle, generator, length, *into)
    return ListedSample(room[:length], room[length + 1 :].view(np.bool_)[:length])


def _places(flags: NDArray[np.bool_], length: int) -> NDArray[np.int64]:
    """Return where flags are set, ascending, and places behind all flags up to a length; more where more are set.

    With a ninth of all flags set numpy lists them without a branch, so in a time that depends on shapes alone.
    """
    ones, count = max(length, flags.size // 8 + 1), int(np.count_nonzero(flags))
    padded = np.zeros(flags.size + ones, dtype=np.bool_)
    padded[: flags.size] = flags
    padded[flags.size : flags.size + max(0, ones - count)] = True
    return padded.nonzero()[0][: max(length, count)]


@lru_cache(maxsize=8)
def _spread(units: int, length: int) -> tuple[NDArray[np.int64], int]:
    """Return rows from all over the records, shape (length,), and where they stand."""
    rows = np.arange(length, dtype=np.int64) * units // length
    return rows, address(rows)


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
    ensure(0 < below <= RATE_UNIT, "the range has 1 to 2^64 values")
    # Words from here on would make small results likelier than others.
    last = RATE_UNIT - RATE_UNIT % below
    while True:
        word = int(generator.bits(1)[0])
        if word < last:
            return word % below


def uniform(generator: Generator, size: int) -> NDArray[np.float64]:
    """Return uniform draws in (0, 1], multiples of 2^-53, shape (size,)."""
    words = generator.bits(size) >> np.uint64(64 - _FLOAT_BITS)
    # Never zero, for `normal` takes logarithms.
    return (words.astype(np.float64) + 1.0) * 2.0**-_FLOAT_BITS


def normal(generator: Generator, size: int) -> NDArray[np.float64]:
    """Return standard normal draws, shape (size,), by the method of Box and Muller (1958).

    For data-free starts only: float draws never noise private sums.
    """
    half = (size + 1) // 2
    radius = np.sqrt(-2.0 * np.log(uniform(generator, half)))
    angle = 2.0 * pi * uniform(generator, half)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]
