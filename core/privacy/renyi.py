r"""The price of an event in Renyi differential privacy at an integer order, in nats and in whole nano-nats.

| event | cost at order a, nats | source |
|---|---|---|
| Gaussian(s) | a / (2 s^2) | Mironov (2017), proposition 7 |
| Sampled(q, s) | log(sum_k C(a,k) (1-q)^(a-k) q^k exp((k^2-k)/(2 s^2))) / (a-1) | Mironov, Talwar, Zhang (2019), 3.3 |
| Zcdp(rho) | rho a | Bun and Steinke (2016), definition 1.1 |
| Pure(e) | min(e, a e^2 / 2) | Bun and Steinke (2016), proposition 3.3 |
| BoundedRange(e) | min(e, a e^2 / 8) | Dong, Durfee and Rogers (2020); Cesar and Rogers (2021); see below |
| Repeated, Composed | sums | Mironov (2017), proposition 1; adaptive at a fixed order |
| Disjoint | the largest, order by order | a unit is read by one of them only |
| Selected | see `core.privacy.selection` | Papernot and Steinke (2022), theorem 6, and the proof there |

A mechanism of bounded range e is e-differentially private, too (Durfee and Rogers 2019, corollary 4.2). The logarithm
of the ratio of two probabilities has a range over all outputs of at most e. Both laws add up to one. The logarithm is
thus nowhere above e or below -e. A Renyi divergence is a mean of powers of that ratio, so it exceeds e at no order.

Arithmetic. A price is an integer: the real price of a leaf in units of 1e-30 nats, rounded up, and nothing else. Sums,
multiples and maxima of integers are exact. Therefore the price of a set of draws does not depend on their grouping or
order, and it never lies below the real one. Another implementation gets the same integer (docs/ledger-format.md). All
leaves except the sampled one are rational and rounded exactly. The best of several runs is rounded up as a leaf is. The
series of the sampled one is

    1 + sum_{k >= 2} C(a,k) (1-q)^(a-k) q^k (exp((k^2-k)/(2 s^2)) - 1),

a sum of positive terms. It is computed in decimal arithmetic, with more digits until both ends of its error bound round
up to the same integer.
"""

from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final, assert_never

from core.base.errors import ensure
from core.privacy.events import (
    BoundedRange,
    Composed,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    Repeated,
    Sampled,
    Selected,
    Zcdp,
)
from core.privacy.selection import best_price

MAX_NANO = 2**62
"""Nano-nats at which every price saturates: it fits a signed 64-bit column and passes every cap."""

Leaf = Gaussian | Sampled | Zcdp | Pure | BoundedRange
"""One draw."""

PER_NANO: Final = 10**21
"""Units of an exact price in a nano-nat."""

_PER_NAT = 10**30
_MAX_FINE = MAX_NANO * PER_NANO
_ONE = 2**64  # the numerator of probability one
_DIGITS: Final = 60  # 40 that a price can have, and 20 more: one in 10^20 is worked out a second time
_SATURATED: Final = 4_700_000_000  # nats of a Gaussian answer, from where a sampled one saturates at any rate


def cost(event: Event, order: int) -> float:
    """Return the price of an event in nats at an integer order of at least 2.

    It is rounded up to 1e-30 nats, then to the nearest float, and saturates at `MAX_NANO` nano-nats.
    """
    ensure(order >= 2, "Renyi prices are kept at integer orders from 2")  # noqa: PLR2004 - the smallest integer above 1
    return min(cost_fine(event, order), _MAX_FINE) / _PER_NAT


def cost_nano(event: Event, orders: Sequence[int]) -> tuple[int, ...]:
    """Return the price in whole nano-nats at each order, never below the real one, at most `MAX_NANO`."""
    return tuple(_to_nano(cost_fine(event, order)) for order in orders)


def prefix_costs(events: Sequence[Event], orders: Sequence[int]) -> list[tuple[int, ...]]:
    """Return C(1), ..., C(K), where C(k) is the price in nano-nats of the first k events together, at each order.

    Spending number k charges C(k) - C(k - 1). Each total is rounded once, so that spendings never exceed the
    reservation C(K) together. Totals never fall, and C(k) equals `cost_nano` of the first k events composed in any
    grouping.
    """
    totals = [0] * len(orders)
    prices = []
    for event in events:
        totals = [total + cost_fine(event, order) for total, order in zip(totals, orders, strict=True)]
        prices.append(tuple(_to_nano(total) for total in totals))
    return prices


def _to_nano(fine: int) -> int:
    """Round up to nano-nats and saturate."""
    return min(-(-fine // PER_NANO), MAX_NANO)


def cost_fine(event: Event, order: int) -> int:
    """Return the price in units of 1e-30 nats, rounded up at the leaves."""
    match event:
        case Repeated(event=repeated, times=times):
            return times * cost_fine(repeated, order)
        case Composed(events=events):
            return sum(cost_fine(part, order) for part in events)
        case Disjoint(events=events):
            return max((cost_fine(part, order) for part in events), default=0)
        case Selected():
            return _selected(event, order)
        case _:
            return _leaf(event, order)


@lru_cache(maxsize=4096)
def _selected(event: Selected, order: int) -> int:
    """Price the best of several runs, as a saturated price where one of them has one."""
    if cost_fine(event.event, order) >= _MAX_FINE:
        return _MAX_FINE
    return min(best_price(lambda at: cost_fine(event.event, at), event.means, event.slots, order), _MAX_FINE)


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
            return _up(min(Fraction(epsilon), Fraction(epsilon) ** 2 * order / 8))
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
    """Price a Gaussian answer about a Poisson sample exactly."""
    if numerator == 0:
        return 0
    # The odds below would divide by zero.
    if numerator == _ONE:
        return _gaussian(sigma, order)
    precision = 1 / Fraction(sigma) ** 2
    if precision * order > 2 * _SATURATED:  # its largest term alone makes it a / (2 s^2) - 89 at least, as q >= 2^-64
        return _MAX_FINE
    digits = _DIGITS
    while True:
        low, high = _enclosed(numerator, precision, order, digits)
        if low == high:
            return low
        digits *= 2


def _enclosed(numerator: int, precision: Fraction, order: int, digits: int) -> tuple[int, int]:
    """Return both ends of an interval of relative width 2e-digits around a sampled price, rounded up to 1e-30 nats.

    Each operation errs by less than 10^(1-p) at p digits, and so does 1/s^2, which exp multiplies by itself. A power
    of exp(1/s^2) is a product of fewer than a^2 factors, and taking 1 away multiplies its error by s^2 at most.
    """
    magnitude = len(str(ceil(precision))) + len(str(ceil(1 / precision)))  # of 1/s^2 and of s^2
    with localcontext(Context(prec=digits + magnitude + 3 * len(str(order)) + 3, Emax=MAX_EMAX, Emin=MIN_EMIN)) as wide:
        drawn, left_out = Decimal(numerator), Decimal(_ONE - numerator)
        step = (Decimal(precision.numerator) / Decimal(precision.denominator)).exp()
        odds, weight = drawn / left_out, (left_out / _ONE) ** order * order * drawn / left_out
        power, raised, excess = Decimal(1), Decimal(1), Decimal(0)
        for count in range(2, order + 1):
            weight *= odds * (order - count + 1) / count
            power *= step
            raised *= power  # exp((k^2 - k) / (2 s^2))
            excess += weight * (raised - 1)
        # Adding 1 drops as many digits as the excess has leading zeros.
        wide.prec += max(0, -excess.adjusted())
        price = (1 + excess).ln().scaleb(30) / (order - 1)
        wide.prec = digits + 5
        ends = [price * (1 + sign * Decimal(10) ** -digits) for sign in (-1, 1)]
        low, high = (int(end.to_integral_value(ROUND_CEILING)) for end in ends)
    return min(low, _MAX_FINE), min(high, _MAX_FINE)
