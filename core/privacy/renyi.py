r"""What an event costs in Renyi differential privacy at an integer order, in nats and in whole nano-nats.

| event | cost at order a, nats | source |
|---|---|---|
| Gaussian(s) | a / (2 s^2) | Mironov (2017), proposition 7 |
| Sampled(q, s) | log(sum_k C(a,k) (1-q)^(a-k) q^k exp((k^2-k)/(2 s^2))) / (a-1) | Mironov, Talwar, Zhang (2019), 3.3 |
| Zcdp(rho) | rho a | Bun and Steinke (2016), definition 1.1 |
| Pure(e) | min(e, a e^2 / 2) | Bun and Steinke (2016), proposition 3.3 |
| BoundedRange(e) | a e^2 / 8 | Dong, Durfee and Rogers (2020); Cesar and Rogers (2021) |
| Repeated, Composed | sums | Mironov (2017), proposition 1; adaptive at a fixed order |
| Disjoint | the largest, order by order | a unit is read by one of them only |

Arithmetic. Every leaf is an integer number of 1e-30 nats, rounded up; sums, multiples and maxima of integers are
exact, so the price of a set of draws does not depend on how it is grouped or ordered, and it never lies below the
real one. All leaves are rational and rounded exactly, but the sampled one. There the series is written as

    1 + sum_{k >= 2} C(a,k) (1-q)^(a-k) q^k (exp((k^2-k)/(2 s^2)) - 1),

a sum of positive terms, so a tiny price keeps its digits. The logarithm of a term is a sum of four floats, each good
to two units in the last place; with the rounding of q and of the sums its absolute error is below 2^-50 (order + the
sum of their magnitudes), and the largest such bound is added to the logarithm of the whole sum. One more factor
1 + 2^-50 covers the last operations.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, fsum, inf, log, log1p
from typing import assert_never

from core.privacy.events import BoundedRange, Composed, Disjoint, Event, Gaussian, Pure, Repeated, Sampled, Zcdp

MAX_NANO = 2**62
"""Nano-nats at which every price saturates: it fits a signed 64-bit column and passes every cap."""

Leaf = Gaussian | Sampled | Zcdp | Pure | BoundedRange
"""One draw."""

_PER_NANO = 10**21
_PER_NAT = 10**30
_MAX_FINE = MAX_NANO * _PER_NANO
_ONE = 2**64  # the numerator of probability one
_MARGIN = 2.0**-50
_LARGEST_EXPONENT = 1e18  # nats; such a price saturates long before


def cost(event: Event, order: int) -> float:
    """Return the price of an event in nats at an integer order of at least 2.

    It is rounded up by at most a few parts in 1e13 (see the module), and saturates at `MAX_NANO` nano-nats.
    """
    assert order >= 2, "Renyi prices are kept at integer orders from 2"  # noqa: PLR2004 - the smallest integer above 1
    return min(_fine(event, order), _MAX_FINE) / _PER_NAT


def cost_nano(event: Event, orders: Sequence[int]) -> tuple[int, ...]:
    """Return the price in whole nano-nats at each order, never below the real one, at most `MAX_NANO`."""
    return tuple(_to_nano(_fine(event, order)) for order in orders)


def prefix_costs(events: Sequence[Event], orders: Sequence[int]) -> list[tuple[int, ...]]:
    """Return C(1), ..., C(K), where C(k) is the price in nano-nats of the first k events together, at each order.

    Spending number k charges C(k) - C(k - 1): each is rounded once, as a total, so that spendings never sum past the
    reservation C(K). Totals never fall, and C(k) equals `cost_nano` of the first k events composed in any grouping.
    """
    totals = [0] * len(orders)
    prices = []
    for event in events:
        totals = [total + _fine(event, order) for total, order in zip(totals, orders, strict=True)]
        prices.append(tuple(_to_nano(total) for total in totals))
    return prices


def _to_nano(fine: int) -> int:
    """Round up to nano-nats and saturate."""
    return min(-(-fine // _PER_NANO), MAX_NANO)


def _fine(event: Event, order: int) -> int:
    """Return the price in units of 1e-30 nats, rounded up at the leaves."""
    match event:
        case Repeated(event=repeated, times=times):
            return times * _fine(repeated, order)
        case Composed(events=events):
            return sum(_fine(part, order) for part in events)
        case Disjoint(events=events):
            return max((_fine(part, order) for part in events), default=0)
        case _:
            return _leaf(event, order)


def _leaf(event: Leaf, order: int) -> int:
    """Price one draw."""
    match event:
        case Gaussian(sigma=sigma):
            return _gaussian(sigma, order)
        case Sampled(numerator=numerator, sigma=sigma):
            return _sampled(numerator, sigma, order)
        case Zcdp(rho=rho):
            return _up(Fraction(rho) * order)
        case Pure(epsilon=epsilon):
            return _up(min(Fraction(epsilon), Fraction(epsilon) ** 2 * order / 2))
        case BoundedRange(epsilon=epsilon):
            return _up(Fraction(epsilon) ** 2 * order / 8)
    assert_never(event)


def _up(nats: Fraction) -> int:
    """Round an exact number of nats up."""
    return ceil(nats * _PER_NAT)


@lru_cache(maxsize=2**17)  # adaptive methods draw thousands of different ones, and price all of them at each step
def _gaussian(sigma: float, order: int) -> int:
    """Price a Gaussian answer exactly."""
    return _up(order / (2 * Fraction(sigma) ** 2))


@lru_cache(maxsize=4096)
def _sampled(numerator: int, sigma: float, order: int) -> int:
    """Price a Gaussian answer about a Poisson sample."""
    if numerator == 0:
        return 0
    if numerator == _ONE:
        return _gaussian(sigma, order)
    log_excess, error = _log_excess(numerator, sigma, order)
    if log_excess == inf:
        return _MAX_FINE
    upper = log_excess + error
    log_moment = upper + log1p(exp(-upper)) if upper > 0 else log1p(exp(upper))
    return max(1, _up(Fraction(log_moment / (order - 1) * (1 + _MARGIN))))


def _log_excess(numerator: int, sigma: float, order: int) -> tuple[float, float]:
    """Return the logarithm of the sampled moment less one, and a bound on its absolute error."""
    log_in = log(numerator / _ONE)
    log_out = log1p(-numerator / _ONE) if 2 * numerator < _ONE else log((_ONE - numerator) / _ONE)
    half_precision = 0.5 / sigma / sigma if sigma > 1 / _LARGEST_EXPONENT else inf
    if half_precision * order > _LARGEST_EXPONENT:
        return inf, 0.0
    choose = _log_choose(order)
    terms = []
    magnitude = 0.0
    for drawn in range(2, order + 1):
        exponent = (drawn * drawn - drawn) * half_precision
        shift = exponent + log1p(-exp(-exponent)) if exponent > 1 else log(expm1(exponent))
        inside, outside = drawn * log_in, (order - drawn) * log_out
        terms.append(choose[drawn] + inside + outside + shift)
        magnitude = max(magnitude, choose[drawn] - inside - outside + abs(shift))
    top = max(terms)
    return top + log(fsum(exp(term - top) for term in terms)), _MARGIN * (order + magnitude)


@lru_cache(maxsize=64)
def _log_choose(order: int) -> tuple[float, ...]:
    """Return the logarithms of the binomial coefficients C(order, 0..order), each of an exact integer."""
    coefficient, logarithms = 1, [0.0]
    for drawn in range(1, order + 1):
        coefficient = coefficient * (order - drawn + 1) // drawn
        logarithms.append(log(coefficient))
    return tuple(logarithms)
