"""The table of a model's coefficients with its forest plot, as a page of the console and a file of HTML show it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages import charts
from core.inference.coefficient_document import with_intervals
from core.inference.forest import Effect, plot_levels
from core.service.readings import Whole
from farthing.schemas.figures import MINUS, interval_words, level_words, number, p_words, statistic


@dataclass(frozen=True)
class Row:
    """A coefficient as the table writes it, or the residual scale."""

    name: str
    step: str
    estimate: str
    std_error: str
    z: str
    p: str
    intervals: tuple[str, ...]
    """One for each level that is shown; empty where they are withheld or there are none."""
    flags: tuple[str, ...]
    notes: tuple[str, ...]
    ratio: str
    ratio_interval: str
    drawn: charts.Drawn | None
    """None: not in the plot."""


@dataclass(frozen=True)
class Coefficients:
    """All rows of the table, and the axis that their plots share."""

    rows: tuple[Row, ...]
    plot: charts.Forest | None
    """None: no coefficient has an effect to draw."""
    levels: tuple[str, ...]
    """Of the intervals, in words; empty where there are none."""
    inner: str
    """The level of the thick lines."""
    outer: str
    """The level of the thin ones."""
    flagged: int
    """Coefficients whose interval is withheld."""
    noted: int
    """Coefficients with a remark."""


def coefficients_of(whole: Whole) -> Coefficients | None:
    """Return the table of a model's coefficients; None of a network or a description."""
    shown = whole.summary
    if not whole.effects:
        return None
    ratios = {one["name"]: one for one in whole.ratios}
    is_drawn = any(not one.is_intercept and not one.is_withheld for one in whole.effects)
    plot = charts.forest(whole.effects) if is_drawn else None
    rows = [
        _row(line, effect, ratios.get(line["name"]), whole.ratio, plot.rows[place] if plot else None)
        for place, (line, effect) in enumerate(zip(shown["coefficients"], whole.effects, strict=True))
    ]
    if shown["scale"] is not None:
        rows.append(_row_of_scale(shown["scale"]))
    outer, inner = sorted(plot_levels(shown["levels"]), reverse=True)
    return Coefficients(
        rows=tuple(rows),
        plot=plot,
        levels=tuple(map(level_words, shown["levels"])) if with_intervals(shown) else (),
        inner=level_words(inner),
        outer=level_words(outer),
        flagged=sum(bool(one.flags) for one in whole.effects),
        noted=sum(bool(one.notes) for one in whole.effects),
    )


def _row(
    line: Mapping[str, Any], effect: Effect, ratio: Mapping[str, Any] | None, kind: str, drawn: charts.Drawn | None
) -> Row:
    return Row(
        name=line["name"],
        step="" if effect.step is None else number(f"{effect.step:.10g}"),
        estimate=statistic(line["estimate"]),
        std_error=statistic(line["std_error"]),
        # The z of the format turns -0.00 into 0.00.
        z="" if line["z"] is None else f"{line['z']:z.2f}".replace("-", MINUS),
        p=p_words(line["p_value"]),
        intervals=_intervals(line),
        flags=effect.flags,
        notes=effect.notes,
        ratio=statistic(ratio[kind]) if ratio else "",
        ratio_interval=interval_words(ratio["interval"]) if ratio else "",
        drawn=drawn,
    )


def _row_of_scale(line: Mapping[str, Any]) -> Row:
    """Return the row of an estimated residual scale, which is tested against nothing and not drawn."""
    return Row(
        name="(residual scale)",
        step="",
        estimate=statistic(line["estimate"]),
        std_error=statistic(line["std_error"]),
        z="",
        p="",
        intervals=_intervals(line),
        flags=(),
        notes=(),
        ratio="",
        ratio_interval="",
        drawn=None,
    )


def _intervals(line: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the intervals of a line at all levels that are shown."""
    return tuple(interval_words(one["interval"]) for one in line.get("intervals") or [line] if one["interval"])
