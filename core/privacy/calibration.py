"""Calibration: the noise for a privacy target where the price has no closed form (Gaussian answers about samples).

A target limits a job's cost in its own currency, and every noise multiplier has a price that can be computed.
Bisection finds the smallest multiplier that is allowed. Both ends are exact or on the safe side: the decision uses
prices that are rounded up, and the multiplier that is returned was itself found to be allowed.

A target allows an event of Renyi price r(a) at integer orders a in these cases.

* budget_share s: r(a) is at most s times the cap at SOME order of the budget. An empty budget admits it then.
* rho, and mu with rho = mu^2/2: r(a) is at most rho a at EVERY order of the budget. At these orders it costs no more
  than a rho-zCDP mechanism.
* epsilon: some integer order from 2 to 256 converts r(a) to at most epsilon, at the budget's delta. The conversion is
  that of Canonne, Kamath and Steinke (2020). Every order gives a valid epsilon, so none need be the best.
"""

from collections.abc import Callable
from fractions import Fraction
from math import sqrt
from typing import Final

from core.base.errors import FieldError, Invalid
from core.privacy.amounts import PrivacyTarget
from core.privacy.budget import NANO, Terms
from core.privacy.conversions import renyi_epsilon
from core.privacy.events import Event
from core.privacy.renyi import cost, cost_nano

LARGEST_ORDER: Final = 256
"""The largest order at which an epsilon is converted."""

SMALLEST_SIGMA: Final = 2.0**-20
LARGEST_SIGMA: Final = 2.0**30
"""All multipliers that the integer lattice can carry lie between these two."""

Fits = Callable[[Event], bool]
"""A test of an event: True where the target allows it."""

_CLOSENESS: Final = 1 + 2.0**-24
_SAFE: Final = 1 - 1e-12


def allowed(target: PrivacyTarget, terms: Terms) -> Fits:
    """Return the test of a target under the terms of the scope that pays.

    Args:
        target: of the whole job.
        terms: orders, caps and delta.
    """
    if target.budget_share is not None:
        rooms = tuple(int(Fraction(target.budget_share) * cap) for cap in terms.caps_nano)  # int rounds down
        return lambda event: any(
            price <= room for price, room in zip(cost_nano(event, terms.orders), rooms, strict=True)
        )
    if target.epsilon is not None:
        # A float may lie above the figure as it was written.
        epsilon, delta = float(target.epsilon) * _SAFE, float(terms.delta)
        return lambda event: smallest_epsilon(event, delta) <= epsilon
    rho = Fraction(target.rho) if target.rho is not None else Fraction(target.mu or 0) ** 2 / 2
    bounds = tuple(int(rho * order * NANO) for order in terms.orders)
    return lambda event: all(
        price <= bound for price, bound in zip(cost_nano(event, terms.orders), bounds, strict=True)
    )


def smallest_epsilon(event: Event, delta: float) -> float:
    """Return an epsilon that holds at `delta`: the conversion of an event's price at about the best integer order.

    The logarithm of a moment is convex in the order and zero at order one. Apart from a small term, the conversion
    therefore falls up to some order and rises from there. Halving the range of orders finds that order.
    """

    def at(order: int) -> float:
        return renyi_epsilon(cost(event, order), order, delta)

    first, last = 2, LARGEST_ORDER
    while first < last:
        middle = (first + last) // 2
        if at(middle) <= at(middle + 1):
            last = middle
        else:
            first = middle + 1
    return at(first)


def smallest_sigma(event_of: Callable[[float], Event], fits: Fits) -> float:
    """Return the smallest noise multiplier whose event is allowed, found from above to one part in 2^24.

    Args:
        event_of: the job's event for a multiplier; its price falls as the multiplier grows.
        fits: from `allowed`.

    Raises:
        Invalid: no multiplier that integers carry is allowed.
    """
    if not fits(event_of(LARGEST_SIGMA)):
        raise Invalid(
            "No noise is enough for this privacy target.",
            FieldError("/privacy", "asks for more noise than integers carry; raise it, or ask fewer steps"),
        )
    high = 1.0 if fits(event_of(1.0)) else LARGEST_SIGMA
    low = SMALLEST_SIGMA if high == 1.0 else 1.0
    if fits(event_of(low)):
        return low
    while high > low * _CLOSENESS:
        # The middle of the logarithms, for the range spans up to thirty powers of two.
        middle = sqrt(low * high)
        low, high = (low, middle) if fits(event_of(middle)) else (middle, high)
    return high
