"""Curves: predicted widths of intervals against the privacy budget."""

from typing import Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn, Paid


class CurvePointView(View):
    """A job at one privacy target; ratios are geometric means over its coefficients."""

    mu: Declared[str]
    """Privacy target of the job."""
    epsilon_alone: Declared[str]
    """Its epsilon at the scope's delta, had nothing else been drawn."""
    budget_share: Declared[str]
    """Price, as a share of the whole budget from 0 to 1."""
    asked: Declared[bool]
    """Whether this is the target that the request asks for."""
    fits: Paid[bool]
    """Whether the budget, and the caller's cap, admit it now."""
    ratio: Declared[float | None]
    """Predicted width of the private intervals, in widths without privacy; null: none is predicted."""
    lowest: Declared[float | None]
    """Lower end of that ratio, whatever the columns are within what is declared; null: none is predicted."""
    highest: Declared[float | None]
    """Upper end of that ratio; null: there is none until something is declared or learned."""


class CurveView(View):
    """Predicted widths at targets around the one that is asked for, in rising order; no record is read."""

    object: Literal["curve"] = "curve"
    level: Declared[float | None]
    """Of the intervals, such as 0.95; null: the job asks for none."""
    head: Drawn[str | None]
    """Of the ledger when it was priced; null of data that are not uploaded yet."""
    points: list[CurvePointView]
    """One a target; a target at which the job cannot be planned is left out."""
