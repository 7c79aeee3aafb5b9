"""Predicted excess risk of a private run before a record is read, and the budget or units for a wanted excess.

Settings are those of a job, open fields and all; a plan that the method refuses is a prediction of nothing. All of it
is arithmetic of public figures.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), theorems 4, 8 and 13.
"""

from collections.abc import Callable
from math import ceil, sqrt
from typing import Final

from core.base.errors import Invalid
from core.methods.base import Spec
from core.privacy.conversions import mu_of_rho
from core.privacy.facts import Facts

LEAST_RHO, MOST_RHO = 1e-10, 1e8
LEAST_UNITS, MOST_UNITS = 10, 10**12
CLOSE: Final = 1.001
"""Searches end within this factor."""
GRID: Final = 10**0.25
"""Steps of a search, upwards from its least figure."""


def promised_excess(settings: Spec, facts: Facts, rho: float) -> float | None:
    """Return the promised excess risk for a budget of rho in zero-concentrated terms; None: nothing is promised.

    Args:
        settings: of a method that bounds it; fields may be open.
        facts: the public bounds.
        rho: positive.
    """
    try:
        plan = settings.plan(facts, mu_of_rho(rho))
    # Searches reach figures that overflow or have no logarithm; these promise nothing either.
    except (Invalid, ValueError, ArithmeticError):
        return None
    return plan.bound(facts).value


def smallest_rho(settings: Spec, facts: Facts, target: float) -> float | None:
    """Return the least rho whose predicted excess is at most `target`, up to a factor CLOSE; None: no rho's is."""

    def good(rho: float) -> bool:
        value = promised_excess(settings, facts, rho)
        return value is not None and value <= target

    return smallest_good(good, LEAST_RHO, MOST_RHO)


def smallest_units(settings: Spec, facts: Facts, rho: float, target: float) -> int | None:
    """Return the least n whose predicted excess is at most `target`, up to a factor CLOSE; None: above MOST_UNITS."""

    def good(units: float) -> bool:
        value = promised_excess(settings, facts.model_copy(update={"units": ceil(units)}), rho)
        return value is not None and value <= target

    found = smallest_good(good, LEAST_UNITS, MOST_UNITS)
    # `good` rounds up too, hence the whole number is as good as what was tried.
    return None if found is None else ceil(found)


def smallest_good(good: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return where something begins to be good, by bisection of the logarithm; None: nowhere on a grid.

    A plan may be refused at the far end, for it would take too many steps, so the search goes upwards.
    """
    bad, found = low, low
    while not good(found):
        if found >= high:
            return None
        bad, found = found, min(found * GRID, high)
    while found / bad > CLOSE:
        middle = sqrt(bad * found)
        bad, found = (bad, middle) if good(middle) else (middle, found)
    return found
