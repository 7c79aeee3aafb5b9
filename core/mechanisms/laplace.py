"""Discrete Laplace noise on the integers, and the first of several noised scores that is below a noised threshold.

The law of scale b gives the integer x the probability tanh(1/(2 b)) exp(-|x|/b); for an integer shift m the ratio of
two probabilities is at most exp(|m|/b), and nothing else about it is used.

Draw. The law is that of G - G', two independent geometric draws, P(G = x) = (1 - q) q^x, q = exp(-1/b). With x = sum_i
x_i 2^i that probability is a product over the bits of x, so the bits of G are independent, bit i being 1 with
probability 1/(1 + exp(2^i/b)). There are as many bits as carry 2^7 b; each is 1 where 128 uniform bits are below that
probability, rounded down to a multiple of 2^-128. The number of random bits depends on b alone.

Distance of one draw from the ideal law, in total variation. Each bit is off by less than 2^-128. Leaving out the bits
from 2^m on, 2^m >= 128 b, moves G with probability at most exp(-2^m/b) <= exp(-128) < 2^-184. Twice both, for G and G':
`distance_per_draw`, below 2^-120 for every scale.

AboveThreshold, here for scores that are to be small, of which no one moves by more than the integer D between
neighbours. With independent noise t ~ Laplace(s D) on the threshold T and n_k ~ Laplace(2 s D) on each score q_k, the
answer is the first k with q_k + n_k <= T + t, or none. It is (2/s)-differentially private however many scores there
are. Proof. Fix n_1, ..., n_{k-1} and let g = min over i < k of q_i + n_i: the answer is k iff T + t < g and q_k + n_k
<= T + t. For the neighbour's scores q', g' differs from g by an integer of at most D. The pair (t, n_k) answers k on q
iff (t + g' - g, n_k + g' - g + q_k - q'_k) does on q'. This bijection of pairs of integers moves t by at most D and n_k
by at most 2 D. Probabilities change by at most exp(D/(s D) + 2 D/(2 s D)) = exp(2/s). The answer none needs the shift
of t alone. (Dwork and Roth 2014, theorem 3.23, on integers.) Scores and their integer D are whatever they are: nothing
is rounded here.
"""

from collections.abc import Sequence
from decimal import Context, Decimal
from functools import lru_cache
from math import isfinite
from typing import Final

from core.base.errors import ensure
from core.mechanisms.generator import Generator

PROBABILITY_BITS: Final = 128
WORD_BITS: Final = 64
TAIL_BITS: Final = 7
"""Draws are cut at 2^7 scales, where exp(-128) is left."""

SMALLEST_SCALE: Final = 2.0**-10
LARGEST_SCALE: Final = 2.0**60
NONE: Final = -1
"""The answer where no score is below the threshold."""


def draw(generator: Generator, scale: float, count: int) -> list[int]:
    """Return independent draws of the discrete Laplace law.

    Args:
        generator: the job's own; an oracle passes it through `require_system`.
        scale: b, taken as the rational number that it is, between 2^-10 and 2^60.
        count: number of draws.
    """
    ensure(isfinite(scale), "a scale is a number")
    ensure(SMALLEST_SCALE <= scale <= LARGEST_SCALE, "a scale is an ordinary number")
    chances = _chances(scale)
    words = generator.bits(count * 2 * len(chances) * (PROBABILITY_BITS // WORD_BITS)).tolist()
    bits = iter([high << WORD_BITS | low for high, low in zip(words[::2], words[1::2], strict=True)])

    def geometric() -> int:
        return sum((next(bits) < chance) << place for place, chance in enumerate(chances))

    return [geometric() - geometric() for _ in range(count)]


def first_below(generator: Generator, scores: Sequence[int], threshold: int, *, moved: int, sigma: float) -> int:
    """Return the number of the first score whose noised value is at most the noised threshold, `NONE` for none.

    All noise is drawn and all scores are compared, whichever is the first.

    Args:
        generator: the job's own; an oracle passes it through `require_system`.
        scores: K integers, at least one.
        threshold: T, public.
        moved: D, by how much a score moves at most between neighbours.
        sigma: s; the answer is (2/s)-differentially private.
    """
    ensure(len(scores) > 0, "there is something to choose")
    ensure(moved > 0, "scores move by something")
    (shift,) = draw(generator, sigma * moved * _UP, 1)
    noises = draw(generator, 2 * sigma * moved * _UP, len(scores))
    below = [score + noise <= threshold + shift for score, noise in zip(scores, noises, strict=True)]
    return next((number for number, is_below in enumerate(below) if is_below), NONE)


def distance_per_draw(scale: float) -> float:
    """Return a bound on the total-variation distance of one draw from the ideal law."""
    return 2 * (len(_chances(scale)) * 2.0**-PROBABILITY_BITS + 2.0**-184)


@lru_cache(maxsize=64)
def _chances(scale: float) -> tuple[int, ...]:
    """Return 2^128 times the probability of a 1 at each place, the last place first, each rounded down."""
    context = Context(prec=80)
    exact, chances, place = Decimal(scale), [], 0
    # One bit at least: without any, a tiny scale would add no noise at all.
    while place == 0 or 2 ** (place - TAIL_BITS) < scale:
        weight = context.exp(context.divide(Decimal(2**place), exact))
        chances.append(int(context.divide(Decimal(2**PROBABILITY_BITS), context.add(Decimal(1), weight))))
        place += 1
    return tuple(chances)


_UP: Final = 1 + 2.0**-50
"""Above the roundings of a scale's two products."""
