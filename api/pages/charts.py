"""Charts: all geometry of the console's SVG, from figures that a use case gives; in per cent, so that they stretch."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import ceil, floor, log2, log10
from typing import Final, Protocol

from markupsafe import Markup

from core.inference.forest import Effect
from core.privacy.conversions import dp_power, gdp_mu, gdp_power
from farthing.schemas.estimates import RangedWidth
from farthing.schemas.figures import number, per_cent, statistic

LOW: Final = Decimal("0.1")
"""Of a budget: below this it is said to be low."""


class OfBudget(Protocol):
    """OfBudget of a budget, each a decimal string from 0 to 1."""

    @property
    def spent(self) -> str:
        """Drawn and gone."""

    @property
    def reserved(self) -> str:
        """Held by jobs that have not ended."""

    @property
    def remaining(self) -> str:
        """Free."""


def width_of(share: str) -> str:
    """Return a share as a length in per cent, within the chart."""
    return f"{float(min(max(Decimal(share), Decimal(0)), Decimal(1)) * 100):.4f}%"


def is_low(remaining: str) -> bool:
    """Say whether so little of a budget is left that a sign and a word mark it."""
    return Decimal(remaining) < LOW


@dataclass(frozen=True)
class Bar:
    """The widths of a budget's bar, in per cent of its own width."""

    spent: str
    reserved: str
    fill: str
    """The class of the part that is spent: red where little is left."""
    others_from: str
    """Where the part begins that is free for others alone; it reaches to the end."""


def bar(shares: OfBudget) -> Bar:
    """Return the geometry of the small bar at the side; the text beside it has its figures."""
    used = "g-low" if is_low(shares.remaining) else "g-spent"
    return Bar(width_of(shares.spent), width_of(shares.reserved), used, _others_from(shares))


def _others_from(shares: OfBudget) -> str:
    """Return where the part beyond the caller's cap begins; an account that knows no cap has none."""
    return width_of(str(1 - Decimal(getattr(shares, "others", "0"))))


def gauge(shares: OfBudget, *, slim: bool = False) -> Markup:
    """Return the bar of a budget: spent is solid, reserved is hatched, free is the track."""
    said = ", ".join(
        f"{per_cent(share)} {word}"
        for share, word in ((shares.spent, "spent"), (shares.reserved, "reserved"), (shares.remaining, "free"))
        if Decimal(share) or word == "free"
    )
    ticks = Markup("").join(
        Markup('<line class="g-tick" x1="{0}%" x2="{0}%" y1="70%" y2="100%"/>').format(at) for at in (25, 50, 75)
    )
    spent = width_of(shares.spent)
    return Markup(
        '<svg class="gauge{}" role="img" aria-label="{}"><rect class="g-track" width="100%" height="100%"/>'
        '<rect class="g-spent" width="{}" height="100%"/>'
        '<rect class="g-reserved" x="{}" width="{}" height="100%"/>'
        '<rect class="g-others" x="{}" width="100%" height="100%"/>{}</svg>'
    ).format(" slim" if slim else "", said, spent, spent, width_of(shares.reserved), _others_from(shares), ticks)


@dataclass(frozen=True)
class Tick:
    """A rule of an axis."""

    at: str
    text: str


@dataclass(frozen=True)
class Drawn:
    """A row of a forest plot, in per cent of the plot's width."""

    dot: str | None
    """None: outside the plot, see `arrow`."""
    thin: tuple[str, str] | None
    thick: tuple[str, str] | None
    arrow: str
    """left or right where all of it lies outside; else empty."""


@dataclass(frozen=True)
class Forest:
    """A forest plot: an axis and a row for each coefficient."""

    ticks: tuple[Tick, ...]
    zero: str
    rows: tuple[Drawn, ...]


_EDGE: Final = 5.0
"""Per cent of the width that is kept free at each side of the axis."""
_MOST_TICKS: Final = 6


def ticks_of(least: float, most: float) -> list[float]:
    """Return at most about six round numbers that hold a range between them, zero among them."""
    least, most = min(least, 0.0), max(most, 0.0)
    if most <= least:
        return [-1.0, 0.0, 1.0]
    rough = (most - least) / (_MOST_TICKS - 1)
    size = 10.0 ** floor(log10(rough))
    # The last factor always fits: `rough` lies below ten times `size`.
    step = next(size * by for by in (1, 2, 5, 10) if size * by >= rough)
    return [step * at for at in range(floor(least / step), ceil(most / step) + 1)]


def forest(effects: Sequence[Effect]) -> Forest:
    """Return the plot of a model's effects; the intercept and what lies far outside become arrows.

    The axis holds zero and every interval of an effect that is no intercept and is not withheld.
    """
    shown = [one for one in effects if not one.is_intercept and not one.is_withheld]
    ends = [end for one in shown for pair in one.ends or ((one.middle, one.middle),) for end in pair]
    ticks = ticks_of(min(ends, default=0.0), max(ends, default=0.0))
    least, most = ticks[0], ticks[-1]

    def at(value: float) -> float:
        return _EDGE + (100 - 2 * _EDGE) * (value - least) / (most - least)

    def row(one: Effect) -> Drawn:
        middle = at(one.middle)
        if not 0 <= middle <= 100:  # noqa: PLR2004 - per cent
            return Drawn(None, None, None, "left" if middle < 0 else "right")
        pairs = [(_within(at(low)), _within(at(high))) for low, high in one.ends]
        # Padded: a model may have fewer than two intervals to draw.
        thin, thick = (*pairs, None, None)[:2]
        return Drawn(f"{middle:.2f}%", thin, thick, "")

    marks = tuple(Tick(f"{at(tick):.1f}%", number(f"{tick:.10g}")) for tick in ticks)
    return Forest(marks, f"{at(0.0):.2f}%", tuple(row(one) for one in effects))


def _within(place: float) -> str:
    return f"{min(max(place, 0.0), 100.0):.2f}%"


@dataclass(frozen=True)
class Paid:
    """The bar of a job's cost: the part paid, the part held for retries, and a cut for each step."""

    paid: str
    held_from: str
    held: str
    cuts: tuple[str, ...]


_MOST_CUTS: Final = 40


def paid_bar(spent: str, price: str, held: str, steps: int) -> Paid:
    """Return the geometry of a job's cost, in per cent of all that it reserved."""
    whole = Decimal(price) + Decimal(held)
    # Nothing has no shares, and the division below would fail.
    if not whole:
        return Paid("0%", "100%", "0%", ())
    per = [Decimal(one) / whole * 100 for one in (spent, price, held)]
    cuts = () if steps > _MOST_CUTS else tuple(f"{float(per[1]) * step / steps:.2f}%" for step in range(1, steps + 1))
    return Paid(f"{per[0]:.2f}%", f"{per[1]:.2f}%", f"{per[2]:.2f}%", cuts)


@dataclass(frozen=True)
class Rule:
    """A rule of both axes of the attacker's chart."""

    text: str
    x: float
    y: float


@dataclass(frozen=True)
class Roc:
    """The trade of people wrongly accused for people found, as paths in a square of 300."""

    rules: tuple[Rule, ...]
    gaussian: str
    any: str


_LEFT: Final = 46.0
_BOTTOM: Final = 308.0
_SIDE: Final = 300.0


def roc(epsilon: float, delta: float) -> Roc:
    """Return an attacker's best trade under (epsilon, delta): with Gaussian answers alone, and whatever is run."""
    mu = gdp_mu(epsilon, delta)
    # Closer at the left, where the curve rises fastest.
    rates = [rate / 1000 for rate in (1, 2, 5, 10, 20)] + [rate / 50 for rate in range(2, 50)]
    rules = [Rule(f"{rate:g}", _LEFT + rate / 100 * _SIDE, _BOTTOM - rate / 100 * _SIDE) for rate in range(0, 101, 25)]
    return Roc(
        tuple(rules),
        _path([(rate, gdp_power(mu, rate)) for rate in rates]),
        _path([(rate, dp_power(epsilon, delta, rate)) for rate in rates]),
    )


def _path(points: Sequence[tuple[float, float]]) -> str:
    whole = [(0.0, 0.0), *points, (1.0, 1.0)]
    return "M" + " L".join(f"{_LEFT + x * _SIDE:.1f} {_BOTTOM - y * _SIDE:.1f}" for x, y in whole)


@dataclass(frozen=True)
class Standing:
    """OfBudget of a budget that are taken."""

    spent: str
    reserved: str


@dataclass(frozen=True)
class Price:
    """The bar of a budget with a job that may come, in per cent of its width."""

    spent: str
    reserved: str
    this_from: str
    this: str
    retry_from: str
    retry: str


def price_bar(taken: Standing, price: str, held: str) -> Price:
    """Return the geometry of a budget with one more job; the part beyond the budget is cut."""
    ends = [Decimal(0)]
    for part in (taken.spent, taken.reserved, price, held):
        ends.append(min(ends[-1] + Decimal(part) * 100, Decimal(100)))
    parts = [f"{end - start:.4f}%" for start, end in pairwise(ends)]
    return Price(parts[0], parts[1], f"{ends[2]:.4f}%", parts[2], f"{ends[3]:.4f}%", parts[3])


_HALF_AT: Final = 2.0
_DOUBLING: Final = 28.3
"""Per cent of the plot's width from one multiple to its double; a half lies at its left edge."""


def width_place(ratio: float) -> str:
    """Return where a multiple of the width without privacy lies on the logarithmic axis, within the plot."""
    # Zero has no logarithm.
    place = _HALF_AT + _DOUBLING * (log2(ratio) + 1) if ratio > 0 else 0.0
    # `width_row` takes the end of the plot, 99.0%, for a row that is open.
    return f"{min(max(place, 0.0), 99.0):.1f}%"


WIDTH_TICKS: Final = tuple(
    Tick(width_place(ratio), text) for ratio, text in ((0.5, "½"), (1.0, "1"), (2.0, "2"), (4.0, "4 times"))
)


@dataclass(frozen=True)
class Width:
    """A row of the forest of predicted widths."""

    name: str
    at: str
    low: str
    high: str
    is_open: bool
    """True where nothing bounds it from above, or the bound lies outside the plot."""
    width: str
    between: str


def width_row(one: RangedWidth) -> Width:
    """Return how one predicted width is drawn and written; one that has no figure is a range alone, not drawn."""
    base = one.nonprivate_width
    between = f"{statistic(one.lowest)} .. {statistic(one.highest) or '?'}"
    if base is None or one.ratio is None:
        return Width(one.name, "", "", "", is_open=False, width="not known", between=between)
    at_high = "99.0%" if one.highest is None else width_place(one.highest / base)
    return Width(
        name=one.name,
        at=width_place(one.ratio),
        low=width_place(one.lowest / base),
        high=at_high,
        is_open=at_high == "99.0%",
        width=statistic(one.width),
        between=between,
    )
