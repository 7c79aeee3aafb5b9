"""Budgets that protect hardly anybody: refused, or taken only where their owner accepts that in a field of its own.

A mechanism that publishes each record whole with probability delta is (0, delta)-private: with a delta of 1/n it
publishes one record of n on average and still keeps its promise. A delta of 1/n or more is therefore refused, and the
owner decides on one above 1/(10 n). An epsilon above 20 lets a reader of the releases guess right nearly always; it may
suit public data, or a rehearsal.
"""

from decimal import ROUND_FLOOR, Context, Decimal
from typing import Final

from core.base.errors import FieldError, Invalid

LARGEST_EPSILON: Final = Decimal(20)
"""A larger epsilon needs `accept_weak_privacy`."""
DELTA_PARTS: Final = 10
"""A delta above 1/(10 n) needs `accept_delta`."""
# Rounded down, so that the figure shown passes the check.
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
        accepted: whether the owner accepts one above 1/(10 n).
        pointer: the field of that acceptance.
        fixed: the field that sets delta.
        fix: the advice, with `{safe}` for the largest delta that needs no acceptance.

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
