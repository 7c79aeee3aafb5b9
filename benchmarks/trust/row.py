"""A row of the grid, and what public facts foretell of it."""

import csv
from dataclasses import dataclass
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Final

from benchmarks.trust.jobs import Cell
from benchmarks.trust.shapes import Outcome
from benchmarks.trust.verdicts import Expected, Stored
from core.methods.m_estimation.whitened_newton.shares import GRADIENT_SHARE, MOST_SLOPE_NOISE, SINGLE_DIRECTIONS
from core.privacy.facts import Adjacency

LOGISTIC: Final = Outcome("logistic")
COUNTS: Final = Outcome("poisson", 2.0)
LINEAR: Final = Outcome("linear")
SMALL: Final = Outcome("linear", noise="small")
ALIASED: Final = (1, 2)


@dataclass(frozen=True)
class Row:
    """A cell of the grid, what ought to be flagged there, and the first number of its jobs' seeds."""

    cell: Cell
    expected: Expected = "sound"
    seed: int = 1
    named: tuple[int, ...] = ()
    """Coefficients that ought to be flagged where not all of them are."""


FEW: Final = 10
"""Events a coefficient."""
LEAST_BASE, MOST_DIMENSION = 0.05, 16
HESSIAN_SHARE: Final = 0.30
_MEAN_CURVATURE: Final = 0.85
LARGEST_COUNT: Final = 6.0
COUNT_MARGIN: Final = 1.15
PROTOTYPE: Final = Path(__file__).with_name("prototype.csv")


def foretold(cell: Cell) -> Expected:
    """Return whether next to nothing ought to be flagged: by budget, events, base rate and coefficients alone.

    Below the budget line the noise of the Hessian is larger than its mean eigenvalue, 2 s sqrt(p) > c. For a logistic
    model 2 s sqrt(p) > .55 c there, or a slope's noise is above .115 logits a deviation, as its estimate foretells.
    There, and with fewer than ten events a coefficient, all may be flagged. Least squares counts its tails,
    whatever the budget.
    """
    if cell.least_squares:
        return "counted"
    kind, base, size = cell.outcome.kind, cell.outcome.base, cell.dimension
    rarer = {"logistic": min(base, 1 - base), "poisson": base}.get(kind, 1.0)
    largest = COUNT_MARGIN * (base + LARGEST_COUNT * sqrt(base) + 2)
    peak, mean = {
        "logistic": (0.25, _MEAN_CURVATURE * base * (1 - base)),
        "poisson": (largest, base),
    }.get(kind, (1.0, 0.8))
    moved = sqrt(2) if cell.adjacency is Adjacency.REPLACE_ONE else 1.0
    deviation = moved * (1.3 * size + 1) * peak / (cell.units * cell.mu * sqrt(HESSIAN_SHARE))
    hidden = 2 * deviation * sqrt(size) / mean
    if hidden > (SINGLE_DIRECTIONS if kind == "logistic" else 1.0) or cell.units * rarer < FEW * size:
        return "below budget"
    noise = moved**2 * sqrt(1.3 * size + 1) / (cell.units * cell.mu * sqrt(GRADIENT_SHARE) * mean)
    if kind == "logistic" and noise > MOST_SLOPE_NOISE:
        return "below budget"
    return "sound" if size <= MOST_DIMENSION and rarer >= LEAST_BASE else "elsewhere"


@cache
def _prototype() -> dict[tuple[str, ...], Stored]:
    with PROTOTYPE.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    names = ("kind", "shape", "noise", "lacks", "units", "dimension", "mu", "base", "wide")
    return {
        tuple(line[name] for name in names): Stored(
            prototype_width=float(line["width"]), prototype_flagged=float(line["flagged"])
        )
        for line in lines
    }


def stored_of(cell: Cell) -> Stored | None:
    """Return what the prototype made of a cell; None where it had none like it."""
    one = cell.outcome
    if cell.adjacency is not Adjacency.ZERO_OUT or cell.least_squares:
        return None
    numbers = (f"{cell.units}", f"{cell.dimension}", f"{cell.mu:g}", f"{one.base:g}", f"{cell.wide:g}")
    return _prototype().get((one.kind, cell.shape, one.noise, one.lacking, *numbers))
