"""The cells of the grid: shapes the constants were found on, shapes nobody tuned on, and the few of the fast gate."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from benchmarks.trust.fresh import FRESH
from benchmarks.trust.fresh import SEED as FRESH_SEED
from benchmarks.trust.fresh_second import LEVELS, SECOND, UNIDENTIFIED
from benchmarks.trust.fresh_second import SEED as SECOND_SEED
from benchmarks.trust.grid_more import more_rows
from benchmarks.trust.jobs import Cell
from benchmarks.trust.row import ALIASED, COUNTS, LINEAR, LOGISTIC, SMALL, Row, foretold
from benchmarks.trust.shapes import Noise, Outcome
from benchmarks.trust.verdicts import Stored
from core.privacy.facts import Adjacency


@dataclass(frozen=True)
class Gated(Row):
    """A cell of the fast gate, with what it came to when it was judged last."""

    jobs: int = 40
    stored: Stored | None = None


HUNDREDTH: Final = Outcome("linear", noise="hundredth")
GATE: Final = {
    "loud": Gated(Cell("normal", 2000, 6, 0.3, LOGISTIC), stored=Stored(1.54, 1.06)),
    "noisy": Gated(Cell("normal", 2000, 3, 0.1, LOGISTIC), jobs=60, stored=Stored(2.79, 1.03)),
    "rare": Gated(Cell("normal", 4000, 6, 1.0, Outcome("logistic", 0.03)), stored=Stored(1.26, 1.08)),
    "tails": Gated(Cell("zero_inflated", 2000, 4, 1.0, LOGISTIC, wide=100.0), stored=Stored(1.08, 1.03)),
    "small residuals": Gated(Cell("normal", 2000, 4, 1.0, SMALL, wide=10.0), stored=Stored(1.05, 1.03)),
    "close columns": Gated(Cell("close_pair", 2000, 5, 0.5, HUNDREDTH, wide=10.0), stored=Stored(1.12, 1.01)),
    "counts": Gated(Cell("normal", 2000, 4, 1.0, COUNTS, adjacency=Adjacency.REPLACE_ONE), stored=Stored(1.31, 1.06)),
    "short of budget": Gated(
        Cell("normal", 500, 6, 0.3, LOGISTIC), "below budget", jobs=80, stored=Stored(6.2, flagged=0.6)
    ),
    "alias": Gated(Cell("alias", 2000, 4, 1.0, LOGISTIC), "alias", named=ALIASED, jobs=30),
    "separated": Gated(Cell("separated", 2000, 4, 1.0, LOGISTIC), "separated", jobs=10),
    "decided": Gated(Cell("all_decide", 1000, 5, 0.3, LOGISTIC), "separated"),
    "certain": Gated(Cell("sure_fifth", 2000, 4, 1.0, LOGISTIC), "alias", named=(1,), jobs=30),
}
"""Under a minute. Stored figures are those of 200 jobs."""


def rows() -> Iterator[Row]:
    """Yield the whole grid, each cell once, with what ought to be flagged there."""
    seen: set[str] = set()
    for row in _all():
        if row.cell.name not in seen:
            seen.add(row.cell.name)
            yield replace(row, expected=foretold(row.cell)) if row.expected == "sound" else row


def _all() -> Iterator[Row]:
    yield from _ordinary()
    yield from _shaped()
    yield from _linear()
    yield from _counts()
    yield from _fresh()
    yield from _fresh_second()
    yield from more_rows()


def _ordinary() -> Iterator[Row]:
    """Yield logistic models on normal columns: sizes, budgets, base rates, bounds, both adjacencies."""
    sizes = (
        (500, (3, 6), (0.3, 1.0, 3.0, 10.0)),
        (2000, (3, 6, 16), (0.1, 0.3, 1.0, 3.0)),
        (8000, (6, 16, 31), (0.3, 1.0, 3.0)),
        (20_000, (6, 16, 31, 61), (0.5, 1.0)),
    )
    for units, dimensions, mus in sizes:
        for dimension, mu in product(dimensions, mus):
            yield Row(Cell("normal", units, dimension, mu, LOGISTIC))
    for units, base, mu in product((2000, 8000), (0.1, 0.01), (0.3, 1.0, 3.0)):
        yield Row(Cell("normal", units, 6, mu, Outcome("logistic", base)))
    bounded = ((2000, 6, 1.0), (20_000, 6, 0.3), (8000, 16, 1.0))
    for wide, (units, dimension, mu) in product((3.0, 10.0, 100.0), bounded):
        yield Row(Cell("normal", units, dimension, mu, LOGISTIC, wide=wide))
    for units, dimension, mu in ((2000, 6, 1.0), (8000, 16, 1.0), (2000, 3, 0.3)):
        yield Row(Cell("normal", units, dimension, mu, LOGISTIC, adjacency=Adjacency.REPLACE_ONE))


def _shaped() -> Iterator[Row]:
    """Yield logistic models on other columns."""
    sizes = ((2000, 6, 1.0), (8000, 6, 0.3), (8000, 6, 1.0), (8000, 16, 1.0), (20_000, 6, 3.0))
    for shape, (units, dimension, mu) in product(
        ("correlated", "lognormal", "zero_inflated", "rare_indicators", "indicators"), sizes
    ):
        yield Row(Cell(shape, units, dimension, mu, LOGISTIC))
    for units, dimension, mu in sizes:
        yield Row(Cell("alias", units, dimension, mu, LOGISTIC), "alias", named=ALIASED)
        yield Row(Cell("separated", units, dimension, mu, LOGISTIC), "separated")


def _linear() -> Iterator[Row]:
    """Yield linear models: sizes, tails, small residuals in wide bounds, least squares."""
    for units, dimension, mu in ((500, 3, 1.0), (2000, 6, 0.3), (2000, 6, 1.0), (8000, 16, 1.0), (20_000, 31, 1.0)):
        yield Row(Cell("normal", units, dimension, mu, LINEAR))
    noises: tuple[Noise, ...] = ("t2", "heteroskedastic", "small", "contaminated")
    for noise in noises:
        for wide, squares in product((1.0, 10.0), (False, True)):
            if squares and noise in {"t2", "contaminated"}:
                continue  # the mean is another than what is cut
            yield Row(Cell("normal", 2000, 6, 1.0, Outcome("linear", noise=noise), wide, least_squares=squares))
    for shape in ("correlated", "lognormal", "zero_inflated", "rare_indicators"):
        yield Row(Cell(shape, 8000, 6, 1.0, LINEAR))


def _counts() -> Iterator[Row]:
    """Yield Poisson models: mean counts, columns, dispersion, bounds."""
    for base, (units, dimension, mu) in product((0.5, 2.0, 8.0), ((2000, 6, 1.0), (8000, 6, 0.3), (8000, 16, 3.0))):
        yield Row(Cell("normal", units, dimension, mu, Outcome("poisson", base)))
    for shape in ("correlated", "lognormal", "zero_inflated"):
        yield Row(Cell(shape, 8000, 6, 1.0, COUNTS))
    yield Row(Cell("normal", 8000, 6, 1.0, Outcome("poisson", 2.0, "overdispersed")))
    yield Row(Cell("normal", 8000, 6, 1.0, COUNTS, wide=100.0))


def _fresh() -> Iterator[Row]:
    """Yield shapes that nothing was tuned on, with all three kinds of outcomes."""
    for shape in FRESH:
        yield Row(Cell(shape, 2000, 6, 1.0, LOGISTIC), seed=FRESH_SEED)
        yield Row(Cell(shape, 8000, 9, 0.5, LOGISTIC), seed=FRESH_SEED)
        yield Row(Cell(shape, 4000, 6, 1.0, LINEAR), seed=FRESH_SEED)
        yield Row(Cell(shape, 4000, 6, 1.0, COUNTS), seed=FRESH_SEED)
        yield Row(Cell(shape, 4000, 6, 1.0, Outcome("logistic", 0.1)), seed=FRESH_SEED)


def _fresh_second() -> Iterator[Row]:
    """Yield the second set of such shapes, in sizes of their own where the first's do not suit them."""
    many, rare = Outcome("poisson", 0.05), Outcome("logistic", 0.02)
    own = {
        "forty_levels": [(20_000, LEVELS + 3, 1.0, one) for one in (LOGISTIC, LINEAR, COUNTS)]
        + [(8000, LEVELS + 3, 1.0, LOGISTIC), (45_000, LEVELS + 3, 0.5, Outcome("logistic", 0.1))],
        "rare_both": [(8000, 6, 1.0, rare), (20_000, 6, 0.5, rare), (20_000, 6, 1.0, rare), (20_000, 6, 1.0, many)],
    }
    usual = [(2000, 6, 1.0, LOGISTIC), (8000, 9, 0.5, LOGISTIC), (4000, 6, 1.0, Outcome("logistic", 0.1))]
    usual += [(4000, 6, 1.0, LINEAR), (4000, 6, 1.0, COUNTS)]
    for shape in SECOND:
        for units, dimension, mu, outcome in own.get(shape, usual):
            if (shape, outcome.kind) in {("quasi_separated", "linear"), ("strong_score", "poisson")}:
                continue  # nothing separates there; means of thousands
            named, far = UNIDENTIFIED.get(shape, ()), {"lab_values": "poisson", "balances": "poisson"}
            wide = 10.0 if (far | {"strong_score": "linear"}).get(shape) == outcome.kind else 1.0  # targets reach far
            cell = Cell(shape, units, dimension, mu, outcome, wide)
            yield Row(cell, "alias" if named else "sound", SECOND_SEED, named)
