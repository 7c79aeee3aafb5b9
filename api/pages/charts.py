"""Charts: all geometry of the console's SVG, from figures that a use case gives; in per cent, so that they stretch."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Protocol

from markupsafe import Markup

from farthing.schemas.figures import per_cent

LOW: Final = Decimal("0.1")
"""Of a budget: below this it is said to be low."""


class Shares(Protocol):
    """Shares of a budget, each a decimal string from 0 to 1."""

    @property
    def spent(self) -> str:
        """Drawn and gone."""

    @property
    def reserved(self) -> str:
        """Held by jobs that have not ended."""

    @property
    def remaining(self) -> str:
        """Free."""


def _width(share: str) -> str:
    """Return a share as a length in per cent, within the chart."""
    return f"{float(min(max(Decimal(share), Decimal(0)), Decimal(1)) * 100):.4f}%"


def is_low(remaining: str) -> bool:
    """Say whether so little of a budget is left that it is told apart by a sign and a word."""
    return Decimal(remaining) < LOW


@dataclass(frozen=True)
class Bar:
    """The widths of a budget's bar, in per cent of its own width."""

    spent: str
    reserved: str
    fill: str
    """The class of the part that is spent: red where little is left."""


def bar(shares: Shares) -> Bar:
    """Return the geometry of the small bar at the side; the text beside it has its figures."""
    used = "g-low" if is_low(shares.remaining) else "g-spent"
    return Bar(_width(shares.spent), _width(shares.reserved), used)


def gauge(shares: Shares, *, slim: bool = False) -> Markup:
    """Return the bar of a budget: spent is solid, reserved is hatched, free is the track."""
    said = ", ".join(
        f"{per_cent(share)} {word}"
        for share, word in ((shares.spent, "spent"), (shares.reserved, "reserved"), (shares.remaining, "free"))
        if Decimal(share) or word == "free"
    )
    ticks = Markup("").join(
        Markup('<line class="g-tick" x1="{0}%" x2="{0}%" y1="70%" y2="100%"/>').format(at) for at in (25, 50, 75)
    )
    return Markup(
        '<svg class="gauge{}" role="img" aria-label="{}"><rect class="g-track" width="100%" height="100%"/>'
        '<rect class="g-spent" width="{}" height="100%"/>'
        '<rect class="g-reserved" x="{}" width="{}" height="100%"/>{}</svg>'
    ).format(" slim" if slim else "", said, _width(shares.spent), _width(shares.spent), _width(shares.reserved), ticks)
