"""The rule that admits a job to a budget, as pure functions on whole nano-nats, and a budget's figures for people.

A budget of (epsilon, delta) is kept at up to four fixed Renyi orders a_j with weights w_j of total at most 1. Order j
may be charged B_j nats, the price at which a mechanism is (epsilon, w_j delta)-DP (`conversions.renyi_budget`). A job
is admitted when, at SOME order, the sum of spending, reservations and the job's price stays within the cap.

Proof of (epsilon, delta). Run the whole interaction, all analysts and jobs, in the order of its draws. For each j
imagine a twin that halts just before a draw would take the charges of order j past B_j. A Renyi filter at one fixed
order is valid for adaptive and concurrent draws (Feldman and Zrnic 2021; Haney et al. 2023). The twin's transcript is
therefore (epsilon, w_j delta)-DP. The real interaction may pass caps, too, but never all of them: every admission
leaves an order at which the reservations fit, and charges never exceed reservations. The set of orders never passed
only shrinks and is never empty. It can be read off the transcript, since every charge is public; call its smallest
member J. Where J = j, the transcripts of the real interaction and of twin j are equal. Hence for every event E and
neighbouring inputs with laws P and Q

    P[E] = sum_j P_j[E, J = j] <= sum_j (e^epsilon Q_j[E, J = j] + w_j delta) <= e^epsilon Q[E] + delta.

The caps are floor(1e9 B_j) - 1 nano-nats. The weights add up to .999 and not to 1: the rest of delta, and the weight
of dropped orders, pay for draws that are only close to the laws that are priced. `core.privacy.draws` counts them and
bounds their number.

Reservations that are given back lower totals and leave the proof as it is. Taking the best order at full delta
afterwards has no such proof. Orders, weights and delta of a budget never change.

All vectors here have one integer per order of the terms, in their order.
"""

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from math import ceil, floor, log, log1p, log10, sqrt
from typing import Final

from core.base.errors import FieldError, Invalid
from core.privacy.conversions import cks_epsilon, renyi_budget
from core.privacy.facts import Frozen

NANO: Final = 10**9
MAX_ORDER: Final = 10_000
"""The largest leading order; it decides how small an epsilon can be kept."""

MAX_DELTA: Final = Decimal("0.01")
"""A larger delta would let whole records be published."""

MANY: Final = 10**9
"""Counts of jobs that still fit stop here."""

WEIGHTS: Final = (Decimal("0.699"), Decimal("0.1"), Decimal("0.1"), Decimal("0.1"))
"""Parts of delta, the leading order's first."""

_PERCENT: Final = Decimal("0.0001")


class Terms(Frozen):
    """The promise of a budget and the caps that keep it, fixed when it is made."""

    epsilon: Decimal
    delta: Decimal
    orders: tuple[int, ...]
    weights: tuple[Decimal, ...]
    caps_nano: tuple[int, ...]


class Standing(Frozen):
    """A budget in per cent of itself: at most four decimals, spent rounded up and remaining down; they sum to 100."""

    spent: Decimal
    reserved: Decimal
    remaining: Decimal


class Shortfall(Frozen):
    """The shortfall of a refused job at the present head; share, rho and mu are three figures of the room left."""

    required: Decimal
    """Per cent of the budget that the job needs."""
    available: Decimal
    """Per cent of the budget that is left, rounded down."""
    share: float
    """The largest multiple, below 1, of the job's price at which it would fit."""
    rho: float
    """The largest rho that a job of full-batch Gaussian answers could ask."""
    mu: float
    """The same as a mu."""


def default_delta(units: int) -> Decimal:
    """Return 10^-(ceil(log10 n) + 2), at most 1e-5, for n units."""
    # Digits are counted: a float logarithm errs at powers of ten.
    digits = len(str(units - 1)) if units > 1 else 0
    return Decimal(1).scaleb(-max(digits + 2, 5))


def plan_orders(epsilon: Decimal, delta: Decimal) -> Terms:
    """Fix the orders, weights and caps of a budget.

    The leading order a is the integer at which one full-batch Gaussian job can be largest, with all of delta; the
    others are round(.75 a), round(.6 a) and 2 a. Orders that coincide, or fall below 2, pool their weights. Caps are
    floor(1e9 B) - 1; orders without one are dropped, and their weight is not given to others.

    Raises:
        Invalid: epsilon or delta is out of range, or so small that no order can be charged anything.
    """
    _check_range(epsilon, delta)
    # Floats may pick a neighbouring order, which costs room and no promise: caps are exact.
    leading = _leading_order(float(epsilon), float(delta))
    wanted = (leading, round(Fraction(3 * leading, 4)), round(Fraction(3 * leading, 5)), 2 * leading)
    pooled: dict[int, Decimal] = {}
    for order, weight in zip(wanted, WEIGHTS, strict=True):
        kept = max(order, 2)
        pooled[kept] = pooled.get(kept, Decimal(0)) + weight
    caps = {order: _cap_nano(epsilon, weight * delta, order) for order, weight in pooled.items()}
    orders = tuple(order for order in pooled if caps[order] > 0)
    if not orders:
        least = _smallest_epsilon(float(delta))
        raise Invalid(
            f"At delta {delta} no budget can be kept for so small an epsilon.",
            FieldError("/budget/epsilon", f"ask for at least {least}, or for a larger delta"),
        )
    return Terms(
        epsilon=epsilon,
        delta=delta,
        orders=orders,
        weights=tuple(pooled[order] for order in orders),
        caps_nano=tuple(caps[order] for order in orders),
    )


def terms_from_rho(rho: Decimal, delta: Decimal) -> Terms:
    """Fix the terms of a budget declared as rho: its epsilon is that of rho-zCDP at delta, rounded down.

    Raises:
        Invalid: as `plan_orders`, naming rho.
    """
    _check_range(Decimal(1), delta)
    if not rho > 0:
        raise Invalid("A budget must be above 0.", FieldError("/budget/rho", "give a number above 0"))
    # The float may lie above the true value, and a larger epsilon would promise less.
    exact = cks_epsilon(float(rho), float(delta)) * (1 - 1e-12)
    epsilon = Decimal(exact).quantize(Decimal("0.000001"), ROUND_FLOOR)
    if not epsilon > 0:
        raise Invalid("This rho is too small to keep.", FieldError("/budget/rho", "give a larger rho"))
    try:
        return plan_orders(epsilon, delta)
    except Invalid as refusal:
        details = tuple(FieldError("/budget/rho", f"it gives epsilon {epsilon}: {e.detail}") for e in refusal.fields)
        raise Invalid(refusal.detail, *details) from refusal


def renewed(terms: Terms, epsilon: Decimal) -> Terms:
    """Return terms with another epsilon on the same orders, weights and delta. A cap is 0 where epsilon leaves none."""
    caps = (
        max(_cap_nano(epsilon, weight * terms.delta, order), 0)
        for order, weight in zip(terms.orders, terms.weights, strict=True)
    )
    return terms.model_copy(update={"epsilon": epsilon, "caps_nano": tuple(caps)})


def admits(terms: Terms, spent: Sequence[int], reserved: Sequence[int], cost: Sequence[int]) -> bool:
    """Say whether a job fits: at some order, spent + reserved + cost is within the cap."""
    return any(
        gone + held + price <= cap
        for cap, gone, held, price in zip(terms.caps_nano, spent, reserved, cost, strict=True)
    )


def covers(reservation: Sequence[int], spend: Sequence[int]) -> bool:
    """Say whether a reservation covers a spending: at every order."""
    return all(held >= price for held, price in zip(reservation, spend, strict=True))


def standing(terms: Terms, spent: Sequence[int], reserved: Sequence[int]) -> Standing:
    """Return the budget in per cent: spent = 100 min_j spent_j/B_j, and the same of spent + reserved, less spent."""
    gone = _round_percent(_least_fraction(terms, spent), ROUND_CEILING)
    left = Decimal(100) - _round_percent(_least_fraction(terms, _add(spent, reserved)), ROUND_CEILING)
    return Standing(spent=gone, reserved=Decimal(100) - gone - left, remaining=left)


def percent_of(terms: Terms, spent: Sequence[int], reserved: Sequence[int], cost: Sequence[int]) -> Decimal:
    """Return a job's per cent at this head, rounded up: the rise of spent + reserved.

    Percentages add up exactly only while one order binds, so the same job may show another figure at another head.
    """
    taken = _add(spent, reserved)
    rise = _least_fraction(terms, _add(taken, cost)) - _least_fraction(terms, taken)
    return _round_percent(rise, ROUND_CEILING)


def jobs_that_still_fit(terms: Terms, spent: Sequence[int], reserved: Sequence[int], cost: Sequence[int]) -> int:
    """Return the number of jobs of this price that would be admitted one after the other, at most `MANY`."""
    counts = [0]
    for cap, taken, price in zip(terms.caps_nano, _add(spent, reserved), cost, strict=True):
        if taken <= cap:
            counts.append(min((cap - taken) // price, MANY) if price else MANY)
    return max(counts)


def largest_gaussian(terms: Terms, spent: Sequence[int], reserved: Sequence[int]) -> float:
    """Return the largest rho, in nats, that one more job of full-batch Gaussian answers could ask; 0 when none."""
    room = _remaining(terms, spent, reserved)
    best = max(Fraction(left, order * NANO) for left, order in zip(room, terms.orders, strict=True))
    # `float` rounds to nearest; the factor keeps the figure within the room.
    return float(best) * (1 - 1e-15) if best > 0 else 0.0


def smallest_change(
    terms: Terms, spent: Sequence[int], reserved: Sequence[int], cost: Sequence[int]
) -> Shortfall | None:
    """Return the change after which a job would be admitted now; None if it is admitted as it is."""
    if admits(terms, spent, reserved, cost):
        return None
    room = _remaining(terms, spent, reserved)
    share = max(Fraction(left, price) for left, price in zip(room, cost, strict=True))
    rho = largest_gaussian(terms, spent, reserved)
    return Shortfall(
        required=percent_of(terms, spent, reserved, cost),
        available=standing(terms, spent, reserved).remaining,
        share=max(float(share) * (1 - 1e-15), 0.0),
        rho=rho,
        mu=sqrt(2 * rho) * (1 - 1e-15),
    )


def _add(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [one + other for one, other in zip(first, second, strict=True)]


def _remaining(terms: Terms, spent: Sequence[int], reserved: Sequence[int]) -> list[int]:
    return [cap - taken for cap, taken in zip(terms.caps_nano, _add(spent, reserved), strict=True)]


def _least_fraction(terms: Terms, amounts: Sequence[int]) -> Fraction:
    """Return the least share of a cap, without orders whose cap is 0 (`renewed`): these admit nothing."""
    shares = (Fraction(amount, cap) for amount, cap in zip(amounts, terms.caps_nano, strict=True) if cap > 0)
    return min(shares, default=Fraction(1))


def _round_percent(fraction: Fraction, rounding: str) -> Decimal:
    """Return per cent with four decimals, or with four digits where that would show too few of a small figure."""
    numerator, denominator = 100 * fraction.numerator, fraction.denominator
    size = floor(log10(100 * fraction)) if fraction > 0 else 0
    decimals = max(4, 3 - size)
    scaled = Fraction(numerator, denominator) * 10**decimals
    whole = ceil(scaled) if rounding == ROUND_CEILING else floor(scaled)
    return Decimal(whole).scaleb(-decimals)


def _check_range(epsilon: Decimal, delta: Decimal) -> None:
    if not epsilon.is_finite() or epsilon <= 0:
        raise Invalid("A budget must be above 0.", FieldError("/budget/epsilon", "give a finite number above 0"))
    if not delta.is_finite() or not 0 < delta <= MAX_DELTA:
        raise Invalid(
            f"delta must be above 0 and at most {MAX_DELTA}.",
            FieldError("/budget/delta", "leave it out for a default that suits the number of units"),
        )


def _leading_order(epsilon: float, delta: float) -> int:
    """Return the integer order at which cap/order is largest: the largest full-batch Gaussian job fits there."""
    return max(range(2, MAX_ORDER + 1), key=lambda order: (epsilon - _overhead(order, delta)) / order)


def _overhead(order: int, delta: float) -> float:
    """Return the epsilon that an order costs before anything is charged."""
    return log1p(-1 / order) - log(delta * order) / (order - 1)


def _cap_nano(epsilon: Decimal, delta: Decimal, order: int) -> int:
    return floor(renyi_budget(epsilon, delta, order) * NANO) - 1


def _smallest_epsilon(delta: float) -> Decimal:
    """Return an epsilon that can just be kept at this delta, for the text of a refusal."""
    least = min(_overhead(order, 0.699 * delta) for order in range(2, MAX_ORDER + 1))
    return Decimal(max(2 * least, 1e-6)).quantize(Decimal("0.000001"), ROUND_HALF_EVEN)
