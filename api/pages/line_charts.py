"""Line charts: the burn-down of a budget in time, and the width of intervals against the price."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Final

from api.pages.charts import Tick, ticks_of
from farthing.schemas.curves import CurvePointView
from farthing.schemas.figures import left_per_cent, moment, number, per_cent, short_date
from farthing.schemas.history import PointView

_EDGE: Final = 4.0
"""Per cent of the width that is kept free at each side of the burn-down."""
_TOP: Final = 10.0
_HIGH: Final = 220.0
"""Pixels of the burn-down from all of the budget to nothing."""
_PIN_ROOM: Final = 3.0
"""Per cent of the width between two numbered pins; others are in the table alone."""
_MOST_DATES: Final = 5


@dataclass(frozen=True)
class Pin:
    """A numbered mark at a step."""

    number: str
    x: str
    y: str
    text_y: str
    title: str


@dataclass(frozen=True)
class Burndown:
    """The free part of a budget in time: paths in a square of 100, marks in per cent and pixels."""

    line: str
    band: str
    pins: tuple[Pin, ...]
    dates: tuple[Tick, ...]
    reserved_y: str
    reserved_height: str
    free_y: str
    free: str
    said: str


def burndown(points: Sequence[PointView], before: str, free: str, reserved: str, since: str) -> Burndown:
    """Return the geometry of a budget's steps.

    Args:
        points: the ends of jobs, oldest first.
        before: the share of the budget that was left before the first of them.
        free: the budget that is free now.
        reserved: the budget that unfinished jobs hold now; it hangs below the last step.
        since: when the chart begins, where no point is earlier.
    """
    now = datetime.now(UTC)
    begin = min([moment(since), *(moment(one.at) for one in points)])
    if points and Decimal(before) < 1:
        # Earlier ends are left out: the line begins shortly before the first that is shown.
        begin = moment(points[0].at) - (now - moment(points[0].at)) / 20
    # At least a second, since the chart divides by it.
    span = max((now - begin).total_seconds(), 1.0)

    def across(at: datetime) -> float:
        return _EDGE + (100 - 2 * _EDGE) * (at - begin).total_seconds() / span

    steps = [(across(moment(one.at)), _down(one)) for one in points]
    level = 100 - 100 * float(before)
    line = [f"M{_EDGE:.2f} {level:.2f}"] + [f"H{x:.2f} V{down:.2f}" for x, down in steps] + ["H100"]
    pins: list[Pin] = []
    # So that the first pin has room wherever it is.
    last = -_PIN_ROOM
    for place, (one, (x, down)) in enumerate(zip(points, steps, strict=True), start=1):
        if x - last >= _PIN_ROOM:
            y = _TOP + _HIGH * down / 100
            title = f"{place}: {per_cent(one.charged)}"
            pins.append(Pin(str(place), f"{x:.2f}%", f"{y:.1f}", f"{y + 3.8:.1f}", title))
            last = x
    held, left = float(reserved) * _HIGH, _TOP + _HIGH * (1 - float(free))
    drawn = " ".join(line)
    return Burndown(
        line=drawn,
        band=f"{drawn} V100 H{_EDGE:.2f} Z",
        pins=tuple(pins),
        dates=tuple(_dates(begin, now, across)),
        reserved_y=f"{left - held:.1f}",
        reserved_height=f"{held:.1f}",
        free_y=f"{min(left + 20, _TOP + _HIGH - 6):.1f}",
        free=f"{left_per_cent(free)} free",
        said=f"{len(points)} steps down to {left_per_cent(free)} free; the table below has each",
    )


def _down(one: PointView) -> float:
    """Return the line's distance below the whole budget after a job, in per cent; reserved budget is gone."""
    return 100 - 100 * float(one.remaining) - 100 * float(one.reserved)


def _dates(begin: datetime, now: datetime, across: Callable[[datetime], float]) -> Iterable[Tick]:
    """Yield at most five dates within the chart, or times where it spans less than two days."""
    span = now - begin
    if span < timedelta(days=2):
        written = ""
        for place in range(_MOST_DATES - 1):
            at = begin + span * place / (_MOST_DATES - 1)
            if f"{at:%H:%M}" != written:
                written = f"{at:%H:%M}"
                yield Tick(f"{across(at):.2f}%", written)
        return
    # The span has two days here, so this is at least 1, and the loop ends.
    days = ceil(span.days / _MOST_DATES)
    at = begin.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    while at < now:
        yield Tick(f"{across(at):.2f}%", short_date(at, now))
        at += timedelta(days=days)


_CURVE_TOP: Final = 10.0
_CURVE_HIGH: Final = 180.0
_LEAST_WIDTH: Final = 1.0
_TIMES_ASKED: Final = 5.0
"""Multiple of the asked price; dearer jobs stand in the table alone."""


@dataclass(frozen=True)
class Curve:
    """The width of intervals against the price: paths in a square of 100, marks in per cent and pixels."""

    line: str
    band: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    off_from: str
    off: str
    dot_x: str
    dot_y: str
    said: str


def curve(points: Sequence[CurvePointView], free: str) -> Curve | None:
    """Return the geometry of the predicted widths at several prices; None where there are too few.

    Args:
        points: in rising order of price; those without a prediction are left out.
        free: the free share of the budget; where the points say more, they decide.
    """
    asked = next((one for one in points if one.asked and one.ratio is not None), None)
    if asked is None:
        return None
    most_shown = _TIMES_ASKED * float(asked.budget_share)
    known = [one for one in points if one.ratio is not None and float(one.budget_share) <= most_shown]
    if len(known) < 3:  # noqa: PLR2004 - two points are no curve
        return None
    widest = max(one.ratio or 0.0 for one in known)
    y_ticks = [one for one in ticks_of(0.0, min(widest, 4.0) - _LEAST_WIDTH) if one >= 0]
    most = y_ticks[-1] or 1.0
    dearest = max(float(one.budget_share) for one in known)
    x_ticks = [one for one in ticks_of(0.0, 100 * dearest) if one >= 0]
    end = x_ticks[-1]

    def across(share: str | float) -> float:
        return min(100 * 100 * float(share) / end, 100.0)

    def down(ratio: float | None) -> float:
        return 100 - 100 * min(max(((ratio if ratio is not None else 99.0) - _LEAST_WIDTH) / most, 0.0), 1.0)

    line = [(across(one.budget_share), down(one.ratio)) for one in known]
    highest = [(across(one.budget_share), down(one.highest)) for one in known]
    lowest = [(across(one.budget_share), down(one.lowest or 0.0)) for one in known]
    last = max((float(one.budget_share) for one in known if one.fits), default=0.0)
    refused = min((float(one.budget_share) for one in known if not one.fits), default=None)
    # Where a cap decides before the budget does, the end lies somewhere between two points.
    start = across(free if refused is None or last <= float(free) <= refused else (last + refused) / 2)
    return Curve(
        line="M" + " L".join(f"{x:.2f} {y:.2f}" for x, y in line),
        band="M" + " L".join(f"{x:.2f} {y:.2f}" for x, y in [*highest, *reversed(lowest)]) + " Z",
        x_ticks=tuple(Tick(f"{100 * one / end:.2f}%", number(f"{one:.10g}")) for one in x_ticks),
        y_ticks=tuple(
            Tick(f"{_CURVE_TOP + _CURVE_HIGH * (1 - one / most):.1f}", f"{one + _LEAST_WIDTH:g}") for one in y_ticks
        ),
        off_from=f"{start:.2f}%",
        off=f"{100 - start:.2f}%",
        dot_x=f"{across(asked.budget_share):.2f}%",
        dot_y=f"{_CURVE_TOP + _CURVE_HIGH * down(asked.ratio) / 100:.1f}",
        said=f"Intervals are {asked.ratio:.2f} times as wide as without privacy; the table below has other prices",
    )
