"""The summary of the grid's lines: a line for each family of cells, ladders of budgets, the bank's coefficients."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from math import sqrt
from typing import Any, Final

import numpy as np

from benchmarks.trust.class_shapes import SEED
from benchmarks.trust.grid_more import LADDER, LADDERS
from benchmarks.trust.populations import population
from benchmarks.trust.row import Row
from benchmarks.trust.verdicts import MEAN_SLACK, MEAN_VARIANCE

Line = dict[str, Any]
WIDER: Final = 1.03
"""By which a median width may grow with the budget and be called noise."""
LEVEL: Final = 0.95
KEY: Final = ("age", "duration", "campaign", "housing", "loan", "marital")
BANK: Final = "bank, all columns"
LARGE: Final = 20_000
MOST_SHOWN: Final = 999


def families(lines: list[Line], rows: dict[str, Row]) -> list[str]:
    """Return a Markdown table with a line for each family; a cell counts in each that it belongs to."""
    head = (
        "| family | cells, jobs | truth | plain truth | non-private's own | width: median, largest |"
        " beside objective perturbation | flagged | noted | silent: cells, jobs | widths as foreseen | cells that"
        " break a rule |"
    )
    said = [head, "|" + "---|" * 12]
    for name, chosen in _families():
        own = [line for line in lines if chosen(rows[line["cell"]], line)]
        if own:
            said.append(_family(name, own))
    return said


def _families() -> Iterator[tuple[str, Callable[[Row, Line], bool]]]:
    def sound(line: Line) -> bool:
        return line["expected"] in {"sound", "elsewhere", "counted"}

    def fresh(row: Row) -> bool:
        return row.seed not in {1, SEED}

    yield "all where little ought to be flagged", lambda _, line: sound(line)
    for kind in ("logistic", "poisson"):
        yield f"of these {kind}", lambda row, line, kind=kind: sound(line) and row.cell.outcome.kind == kind  # type: ignore[misc]
    yield (
        "of these Huber",
        lambda row, line: sound(line) and row.cell.outcome.kind == "linear" and not row.cell.least_squares,
    )
    yield "of these least squares", lambda row, line: sound(line) and row.cell.least_squares
    yield "of these fresh: committed before their first run", lambda row, line: sound(line) and fresh(row)
    yield "populations of statsmodels", lambda row, _: row.cell.shape.startswith("statsmodels")
    yield "populations of scikit-learn", lambda row, _: row.cell.shape.startswith("sklearn")
    yield "the bank's", lambda row, _: row.cell.shape.startswith("bank")
    yield "wrong models, against the population's fit", lambda row, _: row.cell.outcome.lacking != "nothing"
    yield "replace_one", lambda row, line: row.cell.adjacency == "replace_one" and sound(line)
    yield "20,000 records and more", lambda row, line: row.cell.units >= LARGE and sound(line)
    yield "rare outcomes, base rate below .05", lambda row, line: row.cell.outcome.base < 0.05 and sound(line)
    yield "too few events, or below the budget line", lambda _, line: line["expected"] == "below budget"
    yield "aliases and certain outcomes", lambda _, line: line["expected"] == "alias"
    yield "separated", lambda _, line: line["expected"] == "separated"


def _family(name: str, lines: list[Line]) -> str:
    counted = np.array([line["jobs"] * line["dimension"] * (1 - line["flagged"]) for line in lines])

    def mean(figure: str) -> str:
        told = np.array([np.nan if line[figure] is None else line[figure] for line in lines])
        seen = np.isfinite(told) & (counted > 0)
        return f"{np.average(told[seen], weights=counted[seen]):.3f}".removeprefix("0") if seen.any() else "-"

    widths = [line["width"] for line in lines]
    jobs = sum(line["jobs"] for line in lines)
    silent = [round(max(line["silent"], line["silent_plain"]) * line["jobs"]) for line in lines]
    foreseen = [line["foretold"]["inside"] == 1 for line in lines if line["foretold"]]
    parts = [
        name,
        f"{len(lines)}, {jobs:,}",
        mean("truth"),
        mean("plain"),
        mean("nonprivate_truth"),
        f"{np.median(widths):.2f}, {_most(max(widths))}",
        f"{np.median([line['rival'] for line in lines]):.2f}",
        *(f"{np.mean([line[one] for line in lines]):.3f}".removeprefix("0") for one in ("flagged", "noted")),
        f"{np.count_nonzero(silent)}, {sum(silent)}",
        f"{np.mean(foreseen):.2f}" if foreseen else "-",
        str(sum(bool(line["broken"]) for line in lines)),
    ]
    return f"| {' | '.join(parts)} |"


def _most(width: float) -> str:
    """Return a width; of what nothing identifies there is no measure."""
    return f"{width:.2f}" if width < MOST_SHOWN else f"over {MOST_SHOWN}"


def ladders(lines: list[Line], rows: dict[str, Row]) -> tuple[list[str], list[str]]:
    """Return a table of coverage at width for budgets on the same data sets, and where more budget did worse."""
    said = [f"| mu | {' | '.join(f'{mu:g}' for mu in LADDER)} |", "|" + "---|" * (len(LADDER) + 1)]
    worse = []
    for one in LADDERS:
        own: dict[float, Line] = {}
        for line in lines:
            cell = rows[line["cell"]].cell
            if replace(cell, mu=one.mu) == one:
                own[cell.mu] = line
        cells = [_at(own.get(mu)) for mu in LADDER]
        title = f"{one.outcome.kind} {one.shape} n={one.units} p={one.dimension} base={one.outcome.base:g}"
        said.append(f"| {title} | {' | '.join(cells)} |")
        steps = sorted(own)
        for low, high in pairwise(steps):
            worse += _worse(f"{title}, mu {low:g} to {high:g}", own[low], own[high])
    return said, worse


def _at(line: Line | None) -> str:
    if line is None or line["truth"] is None:
        return "-"
    flagged = f" ({line['flagged']:.0%})" if line["flagged"] >= 0.005 else ""
    return f"{line['truth']:.2f}".removeprefix("0") + f" @ {line['width']:.2f}" + flagged


def _worse(step: str, before: Line, after: Line) -> list[str]:
    said = []
    if after["width"] > WIDER * before["width"]:
        said.append(f"{step}: widths from {before['width']:.2f} to {after['width']:.2f}")
    if before["truth"] is not None and after["truth"] is not None:
        slack = MEAN_SLACK * sqrt(2 * MEAN_VARIANCE / after["jobs"] / sqrt(after["dimension"]))
        if after["truth"] + slack < min(before["truth"], LEVEL):
            said.append(f"{step}: coverage from {before['truth']:.3f} to {after['truth']:.3f}")
    return said


def bank(lines: list[Line], rows: dict[str, Row]) -> list[str]:
    """Return what the bank's key coefficients and all of them come to."""
    said = []
    for line in lines:
        if rows[line["cell"]].cell.shape != BANK:
            continue
        names = ("", *population(BANK).names)
        truth, width = np.array(line["each_truth"]), np.array(line["each_width"])
        key = np.array([name.split("[")[0] in KEY for name in names])
        said += [
            f"{title}: truth {truth[which].mean():.3f}, width {np.median(width[which]):.2f}, {width[which].max():.2f}"
            for title, which in (("key coefficients", key), ("all", np.ones_like(key)))
        ]
    return said
