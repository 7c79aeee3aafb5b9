"""The exponential mechanism on integer scores: a choice that small scores make likely.

Index k is drawn with probability in proportion to exp(-s_k / P), for integer scores s_k and a public float P > 0, taken
as the rational number that it is. Let no score move by more than D between neighbours. The logarithm of a probability
then moves by (s_k - s'_k)/P plus an amount that is the same for all k. These moves have a range over k of at most 2 D/P
(Durfee and Rogers 2019; Dong, Durfee and Rogers 2020).

Draw. Scores count from the least of them, which no law of this kind notices. The exponent x_k is a fixed-point number
with 168 bits after the point, rounded down, and at most 256. The weight exp(-x_k) is a product of one factor for each
of its 44 hexadecimal digits, in fixed point with 256 bits. An index is the number of cumulative weights at or below u A
/ 2^256, rounded down, with A the sum of all weights and u of 256 uniform bits. The numbers of random bits and of
operations thus depend on K alone.

Distance from the ideal law, in total variation. With v_k = exp(-(s_k - least)/P), the largest of which is 1:

* the exponent: rounding it down by less than 2^-168 moves v_k by less than that; cutting it at 256 by less than
  exp(-256) < 2^-369;
* the product: every factor is within 2^-255 of its exact value, each of 44 products is rounded down by less than
  2^-256, and factors are at most 1. The errors add up to less than 2^-248;
* the quotients: weights a_k within e = 2^-167 of v_k, whose sum V is at least 1, have a law within
  (1/2) sum |a_k/A - v_k/V| <= sum |a_k - v_k| / V <= K e of the ideal one;
* the draw: each index has floor-or-ceiling of 2^256 a_k/A of the values of u, or one off: less than K 2^-256 in all.

Altogether less than K 2^-166: `distance_per_choice`, below the 2^-108 of a coordinate of Gaussian noise for any K that
fits a machine.
"""

from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import isfinite
from typing import Final

from core.base.errors import ensure
from core.mechanisms.generator import Generator

POINT_BITS: Final = 168
"""Bits of an exponent after its point."""

WHOLE_BITS: Final = 8
"""Bits of an exponent before its point: beyond 2^8, exp is below 2^-369."""

WORKING_BITS: Final = 256
WORD_BITS: Final = 64
DIGIT_BITS: Final = 4


def choose(generator: Generator, scores: Sequence[int], parameter: float) -> int:
    """Draw an index with probability in proportion to exp(-score / parameter).

    Args:
        generator: the job's own; an oracle passes it through `require_system`.
        scores: K integers, at least one.
        parameter: P; 2/epsilon times the sensitivity of a score, for a bounded range of epsilon.

    Returns:
        An index in [0, K), after drawing 256 random bits.
    """
    edges = list(accumulate(weights(scores, parameter)))
    uniform = 0
    for word in generator.bits(WORKING_BITS // WORD_BITS).tolist():
        uniform = uniform << WORD_BITS | word
    drawn = (uniform * edges[-1]) >> WORKING_BITS
    # Every edge is compared: to stop at the first would show the choice in the time.
    return sum(edge <= drawn for edge in edges)


def weights(scores: Sequence[int], parameter: float) -> list[int]:
    """Return 2^256 exp(-(score - least) / parameter), each within 2^-167 of it relative to the largest."""
    ensure(len(scores) > 0, "there is something to choose")
    ensure(isfinite(parameter), "a parameter is a number")
    ensure(parameter > 0, "a parameter is positive")
    exact, least, largest = Fraction(parameter), min(scores), (1 << (WHOLE_BITS + POINT_BITS)) - 1
    numerator, denominator = exact.denominator << POINT_BITS, exact.numerator
    return [_exponential(min(largest, (score - least) * numerator // denominator)) for score in scores]


def distance_per_choice(count: int) -> float:
    """Return a bound on the total-variation distance of one choice among so many from the ideal law."""
    return count * 2.0 ** (2 - POINT_BITS)


def _exponential(exponent: int) -> int:
    """Return exp(-exponent) in fixed point: as many products whatever the exponent."""
    product = 1 << WORKING_BITS
    for factors in _factors():
        exponent, digit = divmod(exponent, 1 << DIGIT_BITS)
        product = (product * factors[digit]) >> WORKING_BITS
    return product


@lru_cache(maxsize=1)
def _factors() -> tuple[tuple[int, ...], ...]:
    """Return what every value of every digit of an exponent multiplies by, the least digit first."""
    context, one, unit = Context(prec=120), Decimal(1 << POINT_BITS), Decimal(1 << WORKING_BITS)

    def factor(value: int) -> int:
        return int(context.multiply(context.exp(context.divide(Decimal(-value), one)), unit))

    places = range(0, WHOLE_BITS + POINT_BITS, DIGIT_BITS)
    return tuple(tuple(factor(digit << place) for digit in range(1 << DIGIT_BITS)) for place in places)
