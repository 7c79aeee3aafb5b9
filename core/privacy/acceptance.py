"""Budgets that protect hardly anybody: refused, or taken only where their owner says in so many words that they are.

A mechanism that publishes each record whole with probability delta is (0, delta)-private: with a delta of 1/n it
publishes one record of n on average, and all of its promise is kept. So a delta of 1/n or more is refused, and one
above 1/(10 n) is a decision of the owner's. An epsilon above 20 lets somebody who sees the releases guess nearly always
right; it may suit public data, or a rehearsal.
"""

from decimal import ROUND_FLOOR, Context, Decimal
from typing import Final

from core.base.errors import FieldError, Invalid

LARGEST_EPSILON: Final = Decimal(20)
"""A larger one asks for `accept_weak_privacy`."""
DELTA_PARTS: Final = 10
"""A delta above 1/(10 n) asks for `accept_delta`."""
_SHOWN: Final = Context(prec=3, rounding=ROUND_FLOOR)


def refuse_weak(epsilon: Decimal, *, accepted: bool, pointer: str = "/budget/accept_weak_privacy") -> None:
    """Refuse an epsilon that protects hardly anybody, unless that is accepted.

    Raises:
        Invalid: names the field that accepts it.
    """
    if epsilon > LARGEST_EPSILON and not accepted:
        raise Invalid(
            f"An epsilon of {epsilon} hides hardly anything: somebody who sees the releases may find out "
            "whose records were used.",
            FieldError(pointer, f"set it to true if that is meant, or ask for an epsilon of at most {LARGEST_EPSILON}"),
        )


def refuse_large_delta(
    delta: Decimal,
    units: int,
    *,
    accepted: bool,
    pointer: str = "/budget/accept_delta",
    fixed: str = "/budget/delta",
    fix: str = "give at most {safe}, or leave it out for a default that suits the number of units",
) -> None:
    """Refuse a delta that does not suit a number of units: 1/n or more always, above 1/(10 n) unless it is accepted.

    Args:
        delta: of the budget.
        units: n.
        accepted: whether the owner says that it may be above 1/(10 n).
        pointer: the field that says so.
        fixed: the field that sets delta.
        fix: what to do about it, with `{safe}` for the largest delta that nobody has to accept.

    Raises:
        Invalid: names the field to change.
    """
    least, safe = (str(_SHOWN.divide(Decimal(1), Decimal(parts * units))).lower() for parts in (1, DELTA_PARTS))
    shown = str(delta).lower()
    if delta * units >= 1:
        raise Invalid(
            f"A delta of {shown} is 1/n or more for {units} units: it would allow to publish a whole record.",
            FieldError(fixed, fix.format(safe=safe)),
        )
    if delta * units * DELTA_PARTS > 1 and not accepted:
        raise Invalid(
            f"A delta of {shown} is more than a tenth of 1/n for {units} units, 1/n being {least}.",
            FieldError(pointer, f"set it to true if that is meant; else {fix.format(safe=safe)}"),
        )
