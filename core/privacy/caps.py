"""Budget caps: the ceiling of one principal inside a scope's budget, as terms of the ledger.

A cap given as an epsilon or a rho gets orders and weights of its own, as a budget does. Its delta is the scope's unless
it names another, and is stored with it. A share s of the budget keeps the scope's orders, weights and delta, with
floor(s cap_j) at order j. A principal is then admitted while, at some order, its use is at most the share s of that
order's cap. In the ledger's own per cent, that means a use of at most the share s of the budget. "all" is the share 1.
The scope's own budget is checked beside every cap: a cap promises nothing more.

Draws of noise (`core.privacy.draws`) are held to the same part of the scope's room: `part_of_draws`. That part protects
no record; the scope's own room does. It prevents one principal's many cheap jobs from using up the room of all others.

A cap that was used keeps its orders, weights and delta, because its charges are counted at these.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import floor

from core.base.errors import Conflict, FieldError, Invalid
from core.privacy.amounts import BudgetCap, write_figure
from core.privacy.budget import Terms, plan_orders, renewed, terms_from_rho
from core.privacy.draws import most_draws

POINTER = "/budget_cap"


def declared_cap(asked: BudgetCap, scope: Terms) -> dict[str, str]:
    """Return a cap in its stored form. That form and the scope's terms alone determine the terms of the cap."""
    if asked == "all":
        return {"cap": "all"}
    if asked.budget_share is not None:
        return {"share": write_figure(asked.budget_share)}
    return {"delta": write_figure(scope.delta), **asked.model_dump(mode="json")}


def shown_cap(declared: Mapping[str, str]) -> str | dict[str, str]:
    """Return a stored cap in the form that its owner asked for."""
    if declared.get("cap") == "all":
        return "all"
    return {"budget_share" if name == "share" else name: figure for name, figure in declared.items()}


def terms_of_cap(asked: BudgetCap, scope: Terms) -> Terms:
    """Return the terms of a new cap.

    Args:
        asked: "all", or a share, an epsilon or a rho.
        scope: the terms of the scope's own budget.

    Raises:
        Invalid: the figure is out of range, or too small to keep.
    """
    if asked == "all":
        return scope
    delta = scope.delta if asked.delta is None else asked.delta
    try:
        if asked.budget_share is not None:
            return part_of(scope, Fraction(asked.budget_share))
        if asked.rho is not None:
            return terms_from_rho(asked.rho, delta)
        assert asked.epsilon is not None, "one of the three is given"
        return plan_orders(asked.epsilon, delta)
    except Invalid as refusal:
        fields = (FieldError(one.pointer.replace("/budget", POINTER, 1), one.detail) for one in refusal.fields)
        raise Invalid(refusal.detail, *fields) from refusal


def changed_terms(asked: BudgetCap, scope: Terms, held: Terms) -> Terms:
    """Return new terms for a cap that was used; `held` are its present terms, the other arguments as above.

    Raises:
        Invalid: as `terms_of_cap`.
        Conflict: the new cap would be counted at other orders, or at another delta.
    """
    fresh = terms_of_cap(asked, scope)
    if (fresh.orders, fresh.weights, fresh.delta) == (held.orders, held.weights, held.delta):
        return fresh
    if asked == "all" or asked.budget_share is not None:
        raise Conflict(
            "This cap was given as an epsilon or a rho, and was used: it is counted at Renyi orders of its own.",
            FieldError(POINTER, "give another epsilon or rho; a large one leaves the budget itself as the only limit"),
        )
    if fresh.delta != held.delta:
        raise Conflict("This cap was used: its delta is fixed.", FieldError(f"{POINTER}/delta", f"give {held.delta}"))
    return renewed(held, fresh.epsilon)


def part_of_draws(cap: Terms, scope: Terms) -> int:
    """Return the units of draws that a cap has room for: as large a part of the scope's as the cap is of the budget.

    Cap and budget are each measured by the largest rho that they admit at one of their orders. A cap as large as the
    budget has all of its room.
    """
    worth, whole = (max(map(Fraction, one.caps_nano, one.orders)) for one in (cap, scope))
    return most_draws(scope) if worth >= whole else floor(worth / whole * most_draws(scope))


def part_of(scope: Terms, share: Fraction) -> Terms:
    """Return a share of a budget, at its own orders."""
    caps = tuple(floor(share * cap) for cap in scope.caps_nano)
    if not any(caps):
        raise Invalid(
            "This share of the budget is too small to count.", FieldError("/budget/budget_share", "give more")
        )
    return scope.model_copy(update={"caps_nano": caps})
