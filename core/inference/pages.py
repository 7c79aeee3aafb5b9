"""A model's summary as one HTML page that needs nothing else: no script, no font, no picture from anywhere.

Every text is escaped, whoever wrote it. Colours follow the reader's choice of light or dark; the plot is SVG with a
title and a description, and all it shows is in the table too.
"""

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any, Final

from core.inference.released import Released
from core.inference.rendering import Head, bounds, foot_of, head_of, number, p_words, plain, with_intervals

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--rule:#c9ced6;--soft:#56606d;--band:#1f5fae}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--paper:#14171b;--rule:#3b424c;--soft:#a3adba;--band:#7db2f2}}
body{margin:2rem auto;max-width:60rem;padding:0 1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.3rem;margin:0 0 1rem}h2{font-size:1.05rem;margin:2rem 0 .5rem}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(17rem,1fr));gap:.2rem 2rem;margin:0}
dl div{display:flex;justify-content:space-between;gap:1rem}dt{color:var(--soft)}dd{margin:0;text-align:right}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption,figcaption{text-align:left;color:var(--soft);padding:.3rem 0}
th,td{padding:.2rem .6rem;text-align:right;white-space:nowrap}
th:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere}
thead th{border-bottom:2px solid var(--rule)}tbody tr{border-bottom:1px solid var(--rule)}tbody th{font-weight:400}
figure{margin:0}svg{width:100%;height:auto;font:12px system-ui,sans-serif}svg text{fill:var(--ink)}
.grid{stroke:var(--rule)}.zero{stroke:var(--soft);stroke-dasharray:4 3}
.wide{stroke:var(--band);stroke-width:2}.narrow{stroke:var(--band);stroke-width:6;stroke-opacity:.55}
.dot{fill:var(--band)}svg .withheld{fill:var(--soft)}
"""
MOST_LINES: Final = 60
"""Coefficients in the plot; the table has all."""
_LEFT, _RIGHT, _WIDTH, _LINE, _TOP = 210, 20, 760, 24, 10
_NAME: Final = 32
"""Letters of a name in the plot; its tooltip has all."""
SECOND_LEVEL: Final = 0.8
"""Of the plot's narrower intervals."""
Mark = tuple[str, float | None, list[float]]
"""A name, an estimate, None where its interval is withheld, and the ends of its intervals."""


def plot_levels(levels: Sequence[float]) -> list[float]:
    """Return the two levels of the plot: the first one shown, and another one of those shown or SECOND_LEVEL."""
    other = next((level for level in levels[1:] if level != levels[0]), None)
    if other is None:
        other = SECOND_LEVEL if levels[0] > SECOND_LEVEL else (1 + levels[0]) / 2
    return [levels[0], other]


def summary_page(released: Released, shown: Mapping[str, Any], plotted: Sequence[Mapping[str, Any]]) -> str:
    """Return a summary as an HTML document.

    Args:
        released: a model's row.
        shown: what `results.summary` returned for it, with `model` and `job`.
        plotted: the lines of its table at `plot_levels`.
    """
    middle = f"<h2>Coefficients</h2>\n{_table(shown)}\n{_figure(released, plotted, plot_levels(shown['levels']))}"
    return document(shown["title"], head_of(shown), middle, foot_of(shown), shown["methods"])


def document(title: str, facts: Head, middle: str, foot: Sequence[str], methods: str) -> str:
    """Return an HTML document: facts, what stands in the middle, which is HTML already, and what is said below it."""
    head = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in facts)
    said = "".join(f"<li>{_text(line)}</li>" for line in foot)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{_text(title)}</h1>\n<dl>{head}</dl>\n"
        f"{middle}<h2>Privacy, flags and notes</h2>\n<ul>{said}</ul>\n"
        f"<h2>For a methods section</h2>\n<p>{_text(methods)}</p>\n</main>\n</body>\n</html>\n"
    )


def _table(shown: Mapping[str, Any]) -> str:
    """Return the coefficient table."""
    levels = shown["levels"]
    told = with_intervals(shown)
    names = ["std err", "z", "P&gt;|z|", *(_text(name) for level in levels for name in bounds(level))] if told else []
    head = '<th scope="col">coefficient</th><th scope="col">estimate</th>' + "".join(
        f'<th scope="col">{name}</th>' for name in names
    )
    lines = list(shown["coefficients"])
    if shown["scale"] is not None:
        lines.append({"name": "(residual scale)", **shown["scale"]})
    body = "".join(_row(line, len(levels), len(names)) for line in lines)
    said = f"; intervals at {' and '.join(f'{100 * level:g}' for level in levels)} %" if told else ""
    return (
        f'<div class="scroll"><table>\n<caption>In the units of the declared columns{said}.'
        f"</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>\n</table></div>"
    )


def _row(line: Mapping[str, Any], levels: int, beside: int) -> str:
    """Return a line of the table, with so many cells beside the estimate."""
    several = line.get("intervals") or [line]
    ends = [number(end) for one in several for end in one["interval"] or (None, None)]
    ends += [""] * (2 * levels - len(ends))
    z = "" if line.get("z") is None else f"{line['z']:z.3f}"
    told = [number(line["std_error"]), z, p_words(line.get("p_value")), *ends][:beside]
    cells = [number(line["estimate"]), *told]
    return f'<tr><th scope="row">{_text(line["name"])}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"


def _figure(released: Released, plotted: Sequence[Mapping[str, Any]], levels: Sequence[float]) -> str:
    """Return the coefficients without intercepts as a plot, numbers for half their declared range."""
    features = list(released.design.features) * (len(released.levels) or 1)
    every: list[Mark] = [
        (line["name"], None, [])
        if place in released.withheld
        else (line["name"], *_times(line, feature.scale if feature.level is None else 1.0))
        for place, (line, feature) in enumerate(zip(plotted, features, strict=True))
        if feature.column is not None
    ]
    if all(middle is None for _, middle, _ in every):
        return ""
    wide, narrow = sorted(levels, reverse=True)
    shown = any(ends for _, _, ends in every)
    bars = f"thin bars are {100 * wide:g} % intervals, thick ones {100 * narrow:g} %" if shown else "no intervals"
    text = f"Effect of a change by half the declared range for numbers, of the level itself for categories; {bars}."
    left = len(every) - MOST_LINES
    more = f" {left} more coefficients are in the table." if left > 0 else ""
    return f"<figure>\n{_drawing(every[:MOST_LINES], text)}\n<figcaption>{text}{more}</figcaption>\n</figure>\n"


def _drawing(lines: Sequence[Mark], text: str) -> str:
    """Return a plot of estimates and intervals as SVG, described by a text."""
    numbers = [0.0, *(number for _, middle, ends in lines if middle is not None for number in (middle, *ends))]
    least, most = min(numbers), max(numbers)
    ticks = _ticks(least, most) if most > least else [-1.0, 0.0, 1.0]
    bottom = _TOP + _LINE * len(lines)

    def across(value: float) -> float:
        return round(_LEFT + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (_WIDTH - _LEFT - _RIGHT), 2)

    drawn = [
        f'<line class="{"zero" if tick == 0 else "grid"}" x1="{across(tick)}" x2="{across(tick)}" y1="{_TOP}" '
        f'y2="{bottom}"/><text x="{across(tick)}" y="{bottom + 18}" text-anchor="middle">{number(tick)}</text>'
        for tick in ticks
    ]
    for index, (name, middle, ends) in enumerate(lines):
        at = None if middle is None else across(middle)
        drawn.append(_mark(name, at, [across(end) for end in ends], _TOP + _LINE * index + _LINE // 2))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {bottom + 26}" role="img" aria-labelledby="plot-title plot-text">\n'
        f'<title id="plot-title">Coefficients and their intervals</title>\n<desc id="plot-text">{text}</desc>\n'
        + "\n".join(drawn)
        + "\n</svg>"
    )


def _times(line: Mapping[str, Any], unit: float) -> tuple[float, list[float]]:
    """Return an estimate and the ends of its intervals at both levels, the wide one first, times a unit."""
    several = sorted(line.get("intervals") or [], key=lambda one: one["level"], reverse=True)
    return line["estimate"] * unit, [end * unit for one in several for end in one["interval"]]


def _mark(name: str, middle: float | None, ends: Sequence[float], height: int) -> str:
    """Return one line of the plot: its name, its bars and its dot; a word in place of a dot that is withheld."""
    short = plain(name) if len(plain(name)) <= _NAME else plain(name)[: _NAME - 1] + "…"
    drawn = "".join(
        f'<line class="{kind}" x1="{low}" x2="{high}" y1="{height}" y2="{height}"/>'
        for kind, low, high in zip(("wide", "narrow"), ends[::2], ends[1::2], strict=False)
    )
    if middle is None:
        drawn += f'<text class="withheld" x="{_LEFT + 6}" y="{height + 4}">withheld</text>'
    else:
        drawn += f'<circle class="dot" cx="{middle}" cy="{height}" r="3.5"/>'
    return (
        f'<g><title>{_text(name)}</title><text x="{_LEFT - 12}" y="{height + 4}" text-anchor="end">{escape(short)}'
        f"</text>{drawn}</g>"
    )


def _ticks(least: float, most: float) -> list[float]:
    """Return about six round numbers that hold a range between them, zero among them."""
    rough = (most - least) / 5
    size = 10.0 ** floor(log10(rough))
    step = next(size * by for by in (1, 2, 5, 10) if size * by >= rough)
    return [round(step * at, 12) if step > 1e-9 else step * at  # noqa: PLR2004 - smaller ones keep their digits
            for at in range(floor(least / step), ceil(most / step) + 1)]  # fmt: skip


def _text(text: str) -> str:
    return escape(plain(text))
