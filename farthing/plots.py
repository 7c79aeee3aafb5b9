"""Plots of models, budgets and estimates with matplotlib, which `farthing[notebook]` brings.

Each draws on given axes, or a figure of its own, and returns the axes. Names are drawn as they are, also with `$`.
"""

from collections.abc import Sequence
from math import log10
from typing import Any, Final

from farthing.errors import WrongInput
from farthing.extras import needed
from farthing.results import Coefficient
from farthing.schemas.budgets import BudgetView
from farthing.schemas.estimates import EstimateView

_ROW_INCHES: Final = 0.32
_WIDTH_INCHES: Final = 7.0
_DARK, _LIGHT, _RED = "#1f4e79", "#9fb8d0", "#b03a2e"


def plot_coefficients(lines: Sequence[Coefficient], level: float, axes: Any = None) -> Any:  # noqa: ANN401 - matplotlib's
    """Draw estimates with their intervals, one a row; those without an interval are open dots.

    Numbers of different units are drawn per power of ten of them, so that all are seen; the label says which.

    Args:
        lines: of a model's table, with one interval each.
        level: of the intervals.
        axes: to draw on; None: new ones.

    Raises:
        WrongInput: there is nothing to draw.
    """
    drawn = [one for one in lines if one.estimate is not None]
    if not drawn:
        raise WrongInput("There is no coefficient to draw.", "/coefficients", "name some that the summary prints")
    steps = _steps([_reach(one) for one in drawn])
    axes = _axes(axes, len(drawn))
    for place, (one, step) in enumerate(zip(drawn, steps, strict=True)):
        ends = [end for end in one.interval or () if end is not None]
        if ends:
            axes.plot([end * step for end in ends], [place] * len(ends), color=_DARK, linewidth=2)
        axes.plot([(one.estimate or 0.0) * step], [place], "o", color=_DARK, fillstyle="full" if ends else "none")
    axes.axvline(0.0, color="grey", linewidth=0.8)
    _rows(
        axes, [one.name if step == 1 else f"{one.name}, per {step:g}" for one, step in zip(drawn, steps, strict=True)]
    )
    axes.set_xlabel(f"estimate, {100 * level:g} % interval with privacy noise")
    return axes


def plot_budget(found: BudgetView, axes: Any = None) -> Any:  # noqa: ANN401 - as above
    """Draw what is spent, reserved and left of a budget, in parts of it; `axes` as for `plot_coefficients`."""
    shares, epsilon = found.budget_share, found.epsilon
    parts = {"spent": shares.spent, "reserved": shares.reserved, "remaining": shares.remaining}
    axes = _axes(axes, len(parts))
    axes.barh(range(len(parts)), [float(share) for share in parts.values()], color=[_RED, _LIGHT, _DARK])
    _rows(axes, [f"{name}, {100 * float(share):.4g} %" for name, share in parts.items()])
    axes.set_xlim(0.0, 1.0)
    title = f"epsilon: {epsilon.spent} of {epsilon.total} spent at delta {found.delta}, {epsilon.remaining} left"
    axes.set_title(title, parse_math=False)
    axes.set_xlabel("part of the budget")
    return axes


def plot_estimate(found: EstimateView, axes: Any = None) -> Any:  # noqa: ANN401 - as above
    """Draw the interval widths to expect, in multiples of those without privacy; `axes` as for `plot_coefficients`.

    Raises:
        WrongInput: the estimate predicts no widths.
    """
    widths = [] if found.prediction is None else found.prediction.coefficients
    drawn = [one for one in widths if one.nonprivate_width]
    if not drawn:
        fix = "estimate a job with intervals, by a method that predicts them"
        raise WrongInput("This estimate predicts no widths.", "/prediction", fix)
    axes = _axes(axes, len(drawn))
    for place, one in enumerate(drawn):
        base = one.nonprivate_width or 1.0
        highest = one.highest or one.width
        if highest is not None:
            axes.plot([one.lowest / base, highest / base], [place, place], color=_LIGHT, linewidth=4)
        if one.width is not None:
            axes.plot([one.width / base], [place], "o", color=_DARK)
    axes.axvline(1.0, color="grey", linewidth=0.8)
    # Powers of two as numbers: ticks of base 10 write over one another within a decade.
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    _rows(axes, [one.name for one in drawn])
    axes.set_xlabel("interval width with privacy, over that without")
    return axes


def _axes(axes: Any, rows: int) -> Any:  # noqa: ANN401 - as above
    if axes is not None:
        return axes
    pyplot = needed("matplotlib.pyplot", "a plot")
    _, made = pyplot.subplots(figsize=(_WIDTH_INCHES, 1.2 + _ROW_INCHES * rows), layout="constrained")
    return made


def _rows(axes: Any, labels: Sequence[str]) -> None:  # noqa: ANN401 - as above
    axes.set_yticks(range(len(labels)), labels=labels, parse_math=False)
    # The first of the table is at the top.
    axes.set_ylim(len(labels) - 0.5, -0.5)


def _reach(one: Coefficient) -> float:
    return max(float(abs(end)) for end in (one.estimate, *(one.interval or ())) if end is not None)


def _steps(reaches: Sequence[float]) -> list[float]:
    """Return for each row the power of ten that brings it near the middle one."""
    there = sorted(reach for reach in reaches if reach > 0)
    if not there:
        return [1.0] * len(reaches)
    middle = log10(there[len(there) // 2])
    return [float(f"1e{round(middle - log10(reach))}") if reach > 0 else 1.0 for reach in reaches]
