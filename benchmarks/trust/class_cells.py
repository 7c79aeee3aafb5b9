"""The cells of multinomial models: sizes, budgets, classes, structures, columns, populations, both adjacencies."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import sqrt
from typing import Final

from benchmarks.trust.class_fresh import JUDGING_SEED, NEARLY_EMPTY
from benchmarks.trust.class_shapes import FRESH_SEED, POPULATIONS, SEED, Structure
from benchmarks.trust.verdicts import Expected
from core.methods.m_estimation.whitened_newton.shares import SINGLE_CLASS_DIRECTIONS
from core.models.outlook import rarest_curvature
from core.privacy.facts import Adjacency


@dataclass(frozen=True)
class ClassCell:
    """The content of a row of the grid; its jobs differ in their data set and their noise."""

    shape: str
    units: int
    features: int
    """p, coefficients of one class, the intercept among them."""
    mu: float
    classes: int
    structure: Structure = "even"
    wide: float = 1.0
    adjacency: Adjacency = Adjacency.ZERO_OUT

    @property
    def name(self) -> str:
        """Return all of it as a text."""
        parts = ["multinomial", self.shape, f"n={self.units}", f"p={self.features}", f"mu={self.mu:g}"]
        parts += [f"K={self.classes}", *([] if self.shape in POPULATIONS else [self.structure])]
        parts += [f"bounds x{self.wide:g}"] * (self.wide != 1)
        return " ".join([*parts, *([self.adjacency.value] * (self.adjacency != "zero_out"))])

    @property
    def dimension(self) -> int:
        """Coefficients of all classes."""
        return self.features * (self.classes - 1)


@dataclass(frozen=True)
class ClassRow:
    """A cell of the grid, what ought to be flagged there, and the first number of its jobs' seeds."""

    cell: ClassCell
    expected: Expected = "sound"
    seed: int = SEED
    named: tuple[int, ...] = ()


HESSIAN_SHARE: Final = 0.30
FEW: Final = 10


def class_rows() -> Iterator[ClassRow]:
    """Yield all cells, each once."""
    for row in _all():
        expected = foretold(row.cell) if row.expected == "sound" else row.expected
        yield ClassRow(row.cell, expected, row.seed, row.named)


def foretold(cell: ClassCell) -> Expected:
    """Return whether next to nothing ought to be flagged: by budget, and events of the least frequent class, alone.

    Below the budget line the spectral noise of the Hessian is above a part of its eigenvalue along that class: s
    sqrt((p + 1) K) > .40 c. Here s = t^2/2/(n mu sqrt(.30)) and c = .85 pi (1 - pi) K/(K - 1), pi that class's rate.
    Single directions are hidden from there on, which an estimate foretells.
    """
    rate = least_rate(cell)
    moved = sqrt(2) if cell.adjacency is Adjacency.REPLACE_ONE else 1.0
    deviation = moved * (1.3 * cell.features + 1) / 2 / (cell.units * cell.mu * sqrt(HESSIAN_SHARE))
    most = SINGLE_CLASS_DIRECTIONS * rarest_curvature(rate, cell.classes)
    if deviation * sqrt((cell.features + 1) * cell.classes) > most or cell.units * rate < FEW * cell.features:
        return "below budget"
    return "sound" if rate >= 0.05 and cell.features <= 16 else "elsewhere"


def least_rate(cell: ClassCell) -> float:
    """Return how frequent the rarest class is, about."""
    if cell.structure == "uneven":
        return 0.1 / (cell.classes - 2)
    return {"rare_last": 0.02, "rare_first": 0.03}.get(cell.structure, 1 / cell.classes)


def _all() -> Iterator[ClassRow]:
    for units, features, classes, mu in product((2000, 8000), (3, 6, 16), (3, 4, 6), (0.3, 1.0, 3.0)):
        yield ClassRow(ClassCell("normal", units, features, mu, classes))
    for features, classes, mu in product((6, 16), (3, 4, 6), (0.3, 1.0)):
        yield ClassRow(ClassCell("normal", 50_000, features, mu, classes))
    for units, classes, mu in product((4000, 20_000), (3, 4, 6), (0.3, 1.0, 3.0)):
        yield ClassRow(ClassCell("normal", units, 6, mu, classes, "uneven"))
    for shape, classes in product(
        ("correlated", "lognormal", "zero_inflated", "indicators", "rare_indicators"), (3, 4)
    ):
        yield ClassRow(ClassCell(shape, 8000, 6, 1.0, classes))
        yield ClassRow(ClassCell(shape, 4000, 6, 1.0, classes, "uneven"))
    for features, classes in ((6, 3), (6, 4), (16, 3)):
        yield ClassRow(ClassCell("normal", 8000, features, 1.0, classes, wide=10.0))
        yield ClassRow(ClassCell("normal", 8000, features, 1.0, classes, adjacency=Adjacency.REPLACE_ONE))
    yield ClassRow(ClassCell("normal", 8000, 6, 1.0, 4, wide=100.0))
    yield from _not_identified()
    yield from _fresh()
    yield from _judging()
    for name, features, classes, expected in (
        ("iris", 5, 3, "separated"),
        ("iris_versicolor", 3, 3, "elsewhere"),
        ("wine", 5, 3, "elsewhere"),
        ("digits", 6, 4, "elsewhere"),
    ):
        for mu in (1.0, 3.0):
            cell = ClassCell(name, 4000, features, mu, classes)
            yield ClassRow(cell, "separated" if expected == "separated" else "elsewhere", FRESH_SEED)


def _not_identified() -> Iterator[ClassRow]:
    for classes in (3, 4):
        both = tuple(place + 6 * block for block in range(classes - 1) for place in (1, 2))
        yield ClassRow(ClassCell("alias", 4000, 6, 1.0, classes), "alias", named=both)
        yield ClassRow(ClassCell("normal", 4000, 6, 1.0, classes, "decided"), "separated")
        last = (1 + 6 * (classes - 2),)
        yield ClassRow(ClassCell("indicators", 4000, 6, 1.0, classes, "never"), "alias", named=last)


def _fresh() -> Iterator[ClassRow]:
    """Yield structures and columns that nothing was tuned on."""
    structures: tuple[Structure, ...] = ("ordered", "twins", "rare_last", "rare_first", "strong", "none")
    for structure, classes in product(structures, (3, 5)):
        yield ClassRow(ClassCell("normal", 8000, 6, 1.0, classes, structure), seed=FRESH_SEED)
    shapes = (
        "mixture",
        "ordinal",
        "dates",
        "capped_counts",
        "many_levels",
        "confounded",
        "noisy_copies",
        "uniform_sums",
    )
    yield ClassRow(ClassCell("missing_cells", 8000, 6, 1.0, 3, "ordered"), "nearly", FRESH_SEED, (8,))
    yield ClassRow(ClassCell("missing_cells", 4000, 6, 1.0, 4), "nearly", FRESH_SEED, (2,))
    for shape in (*shapes, "lab_values", "odds_of_eight", "heavy"):
        yield ClassRow(ClassCell(shape, 8000, 6, 1.0, 3, "ordered"), seed=FRESH_SEED)
        yield ClassRow(ClassCell(shape, 4000, 6, 1.0, 4), seed=FRESH_SEED)


def _judging() -> Iterator[ClassRow]:
    """Yield the cells that judge nearly empty cells and the budget line, on columns and sizes that no other has."""
    sizes = ((6000, 6, 1.0, 3), (12_000, 7, 1.0, 4), (20_000, 6, 0.4, 3))
    for shape, places in NEARLY_EMPTY.items():
        for units, features, mu, classes in sizes:
            named = tuple(block * features + place for block in range(1, classes - 1) for place in places)
            yield ClassRow(ClassCell(shape, units, features, mu, classes, "own"), "nearly", JUDGING_SEED, named)
    for units, features, mu, classes in sizes:
        yield ClassRow(ClassCell("quiet_ward", units, features, mu, classes, "own"), "sound", JUDGING_SEED)
    for units, features, mu, classes in (
        (3000, 4, 0.2, 3),
        (3000, 8, 0.3, 3),
        (3000, 8, 0.5, 4),
        (3000, 5, 0.5, 6),
        (5000, 12, 0.4, 3),
        (5000, 12, 0.6, 3),
        (5000, 7, 0.25, 5),
        (5000, 7, 0.5, 5),
        (10_000, 14, 0.3, 4),
        (10_000, 14, 0.6, 4),
        (10_000, 10, 0.2, 6),
        (10_000, 10, 0.4, 6),
    ):
        yield ClassRow(ClassCell("normal", units, features, mu, classes), seed=JUDGING_SEED)
    for units, features, mu, classes in (
        (6000, 5, 0.3, 4),
        (6000, 5, 0.6, 4),
        (10_000, 8, 0.3, 3),
        (10_000, 8, 0.6, 5),
    ):
        yield ClassRow(ClassCell("normal", units, features, mu, classes, "uneven"), seed=JUDGING_SEED)
