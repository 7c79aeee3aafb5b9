"""Line charts as SVG text, without a plotting library."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

WIDTH, HEIGHT = 700, 380
LEFT, RIGHT, TOP, BOTTOM = 62, 240, 34, 46
COLOURS = ("#0b5fa5", "#c2410c", "#15803d", "#7c3aed", "#b91c1c", "#0f766e", "#525252", "#a16207")
TICKS = 6
MANY_DECADES = 1e4
"""From here on a logarithmic axis has ticks at powers of ten alone."""


@dataclass(frozen=True)
class Series:
    """A line through points; `marks` draws the points themselves too, `dashed` the paper's, say."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    marks: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class Axis:
    """One direction of a chart."""

    label: str
    low: float
    high: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies between 0 and 1."""
        low, high, at = (log10(one) if self.logarithmic else one for one in (self.low, self.high, value))
        return (at - low) / (high - low)

    def ticks(self) -> list[float]:
        """Return round numbers inside."""
        if self.logarithmic:
            powers = range(floor(log10(self.low)) - 1, floor(log10(self.high)) + 2)
            digits = (1, 2, 5) if self.high / self.low < MANY_DECADES else (1,)
            steps = [10.0**power * digit for power in powers for digit in digits]
            return [step for step in steps if self.low <= step <= self.high]
        raw = (self.high - self.low) / TICKS
        power = 10.0 ** floor(log10(raw))
        step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= raw)
        first = floor(self.low / step)
        return [
            number * step
            for number in range(first, first + 3 * TICKS)
            if self.low - 1e-9 * step <= number * step <= self.high + 1e-9 * step
        ]


def line_chart(title: str, x: Axis, y: Axis, series: Sequence[Series], guides: Sequence[float] = ()) -> str:
    """Return an SVG: lines over axes, a legend on the right, and thin level lines at `guides`."""
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def across(value: float) -> float:
        return LEFT + inner_width * min(1.0, max(0.0, x.place(value)))

    def up(value: float) -> float:
        return TOP + inner_height * (1 - min(1.0, max(0.0, y.place(value))))

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'font-family="sans-serif" font-size="11" role="img" aria-label="{_text(title)}">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" font-size="13" font-weight="bold">{_text(title)}</text>',
    ]
    for tick in x.ticks():
        at = across(tick)
        parts.append(f'<path d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>')
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{tick:g}</text>')
    for tick in y.ticks():
        at = up(tick)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#eee"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick:.4g}</text>')
    parts += [f'<path d="M{LEFT} {up(one):.1f}H{WIDTH - RIGHT}" stroke="#888" stroke-width=".8"/>' for one in guides]
    parts.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#333"/>')
    middle = LEFT + inner_width / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{_text(x.label)}</text>')
    centre = TOP + inner_height / 2
    parts.append(
        f'<text x="14" y="{centre}" text-anchor="middle" transform="rotate(-90 14 {centre})">{_text(y.label)}</text>'
    )
    for number, one in enumerate(series):
        colour = COLOURS[(number if one.colour is None else one.colour) % len(COLOURS)]
        points = [(across(a), up(b)) for a, b in zip(one.x, one.y, strict=True) if isfinite(b)]
        dash = ' stroke-dasharray="5 3"' if one.dashed else ""
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        if path:
            parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>')
        if one.marks:
            parts += [f'<peers cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{colour}"/>' for a, b in points]
        at = TOP + 10 + 18 * number
        start = WIDTH - RIGHT + 10
        parts.append(f'<path d="M{start} {at}h20" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{start + 26}" y="{at + 4}">{_text(one.name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _text(words: str) -> str:
    """Escape what XML reads as its own."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
