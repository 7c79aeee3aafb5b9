"""Questions that tell a method where columns lie, how they vary together, and how much its weights count.

Counts of disjoint sets and weighted second moments, all of them sums over records. Cells, centres and encodings are
public values, so they may follow from earlier answers.

A record's term does not hang on what a question names, so each sensitivity holds for any cells, any centres and any
encoding. With P columns read together, a record adds at most 1 to the counts of each: norm sqrt(P).
"""

from collections.abc import Iterable
from itertools import pairwise
from math import sqrt
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from core.privacy.facts import Adjacency, Facts
from core.queries.bases import AbstractQuestion, SamplingCut

MOST_VALUES: Final = 64
"""A column of integers that may have so many values, at most, is counted value by value."""
Columns = Annotated[int, Field(gt=0)]
FewValues = Annotated[int, Field(ge=2, le=MOST_VALUES)]
Level = Annotated[int, Field(gt=0, le=52)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Cells = tuple[Annotated[int, Field(ge=0)], ...]


class AbstractCounts(AbstractQuestion):
    """Shares of records that lie in sets, shape (number of sets,): counts over the public number of units.

    The sets of one column are disjoint, so a record is in one of them at most.

    Sensitivity. A record of P columns is a vector of zeros with at most one 1 for each column: norm at most sqrt(P).
    Zeroing it moves the counts by that vector. Changing it moves a 1 of each column to another set at most, by
    sqrt(2): sqrt(2 P) together. Attained by two records that share no set.
    """

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (number of sets,)."""
        del dimension  # sets are named, not numbered by parameters
        return (self.sets,)

    @property
    def sets(self) -> int:
        """Number of counts."""
        raise NotImplementedError

    @property
    def read(self) -> int:
        """P, the number of columns that a record is counted in."""
        raise NotImplementedError

    def bound(self, facts: Facts) -> float:
        """Return sqrt(P), the norm of one unit's term."""
        del facts  # a count is a count
        return sqrt(self.read)

    def diameter(self, facts: Facts) -> float:
        """Return the largest distance of two units' terms: sqrt(2 P)."""
        return sqrt(2) * self.bound(facts)

    def sensitivity(self, facts: Facts) -> float:
        """Return sqrt(P)/n, or the diameter over n when a unit may change into any other."""
        moved = self.diameter(facts) if facts.adjacency is Adjacency.REPLACE_ONE else self.bound(facts)
        return moved / self.consumed(facts)


class CellCounts(AbstractCounts):
    """Shares of records in named dyadic cells of one level, column after column.

    Level l cuts a column's declared range into 2^l equal cells, numbered from 0 at the lower end. A value at or beyond
    an end lies in the cell at that end. `cells` names some for each numeric column, in the order of the features, or
    for the target alone. Sensitivity: see `AbstractCounts`.
    """

    kind: Literal["cell_counts"] = "cell_counts"
    of: Literal["columns", "target"] = "columns"
    level: Level
    cells: Annotated[tuple[Cells, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _disjoint(self) -> Self:
        _refuse_shared(self.cells, self.level)
        if self.of == "target" and len(self.cells) != 1:
            raise ValueError("the target is one column")
        return self

    @property
    def sets(self) -> int:
        """Number of named cells."""
        return sum(len(cells) for cells in self.cells)

    @property
    def read(self) -> int:
        """P, the number of columns whose cells are named."""
        return len(self.cells)


class IntegerCounts(AbstractCounts):
    """Shares of records with each value of each column of few values, column after column, values in rising order.

    A column's values are equally far apart, from one end of its declared range to the other. A number counts as the
    nearest one. Sensitivity: see `AbstractCounts`; a record has one value of each column.
    """

    kind: Literal["integer_counts"] = "integer_counts"
    values: Annotated[tuple[FewValues, ...], Field(min_length=1)]
    """Number of values of each column, in the order of the features."""

    @property
    def sets(self) -> int:
        """All values of all columns."""
        return sum(self.values)

    @property
    def read(self) -> int:
        """P, the number of columns."""
        return len(self.values)


class LinearResidualCounts(AbstractCounts):
    """Shares of records by the size of their residual: `bins` intervals of sizes whose ends fall by a constant ratio.

    The residual is (y - target_centre)/target_unit - (E x).theta at a point theta and an encoding E, see
    `core.queries.reencoded`. Interval k holds sizes from top/r^(k+1) to top/r^k with r = 2^(1/per_octave). The first
    interval holds all larger ones, the last all smaller ones.

    Sensitivity: see `AbstractCounts`, with one column.
    """

    places: ClassVar = "encoded"

    kind: Literal["linear_residual_counts"] = "linear_residual_counts"
    bins: Annotated[int, Field(gt=1, le=200)]
    per_octave: Annotated[int, Field(gt=0, le=16)] = 1
    top: Positive
    target_centre: Number
    target_unit: Positive

    @property
    def sets(self) -> int:
        """Number of intervals."""
        return self.bins

    @property
    def read(self) -> int:
        """1: a record has one residual."""
        return 1


class MagnitudeCounts(AbstractCounts):
    """Shares of records by the size of a number: `bins` intervals of sizes whose ends fall by a constant ratio.

    Of a column, the size is its distance from that column's entry of theta, a public centre, and the first interval
    begins at the width of the declared range. Of the target it is y + 1/2, and the first begins at the largest one. Of
    sampling weights it is the weight, and the first begins at the declared upper bound.
    Interval k holds sizes from top/r^(k+1) to top/r^k with r = 2^(1/per_octave); the last holds all smaller ones.
    Sensitivity: see `AbstractCounts`.
    """

    kind: Literal["magnitude_counts"] = "magnitude_counts"
    of: Literal["columns", "target", "weights"] = "columns"
    columns: Columns
    bins: Annotated[int, Field(gt=1, le=200)]
    per_octave: Annotated[int, Field(gt=0, le=16)] = 1

    @property
    def sets(self) -> int:
        """All intervals of all columns."""
        return self.columns * self.bins

    @property
    def read(self) -> int:
        """P, the number of numeric columns; 1 for the target, and for weights."""
        return self.columns


class ProductMagnitudeCounts(AbstractCounts):
    """Shares of records by the size of each product of centred columns, in `bins` intervals, product after product.

    E is an encoding, see `core.queries.reencoded`, and a product's size is that of its entry of E x, which is a product
    of centred numbers where E multiplies it out. Interval k, from 0, holds sizes from 2^-(k+1) to 2^-k. The first one
    also holds all larger sizes, the last all smaller ones. Sensitivity: see `AbstractCounts`.
    """

    places: ClassVar = "encoded"

    kind: Literal["product_magnitude_counts"] = "product_magnitude_counts"
    columns: Columns
    bins: Annotated[int, Field(gt=1, le=200)]

    @property
    def per_octave(self) -> int:
        """1: ends of intervals fall by halves."""
        return 1

    @property
    def sets(self) -> int:
        """All intervals of all products."""
        return self.columns * self.bins

    @property
    def read(self) -> int:
        """P, the number of products."""
        return self.columns


class ResidualMagnitudeCounts(AbstractCounts):
    """Shares of records by |v (y - mu)|, their size, in `bins` intervals.

    theta is a point and E an encoding, see `core.queries.reencoded`. Then mu = exp((E x).theta), with an offset added
    to the exponent where there is one, and v = min(1, M/mu) with M = `rate_cap`. Interval k, from 0, holds sizes from
    top/r^(k+1) to top/r^k, r = 2^(1/per_octave). The first interval also holds all larger sizes, the last all smaller
    ones. Sensitivity: see `AbstractCounts`, with one column.
    """

    places: ClassVar = "encoded"

    kind: Literal["residual_magnitude_counts"] = "residual_magnitude_counts"
    rate_cap: Positive
    top: Positive
    bins: Annotated[int, Field(gt=1, le=200)]
    per_octave: Annotated[int, Field(gt=0, le=16)] = 1

    @property
    def sets(self) -> int:
        """All intervals."""
        return self.bins

    @property
    def read(self) -> int:
        """1: a record has one residual."""
        return 1


class ValueCounts(AbstractCounts):
    """Shares of records with the second value of each two-valued column, or of the target.

    Sensitivity. A record is a vector of P zeros and ones: norm at most sqrt(P), and so is the difference of any two.
    Attained by a record of second values only.
    """

    kind: Literal["value_counts"] = "value_counts"
    of: Literal["columns", "target"] = "columns"
    columns: Columns

    @property
    def sets(self) -> int:
        """One for each column."""
        return self.columns

    @property
    def read(self) -> int:
        """P, the number of two-valued columns; 1 for the target."""
        return self.columns

    def diameter(self, facts: Facts) -> float:
        """Return sqrt(P): every entry lies between 0 and 1."""
        return self.bound(facts)


class SecondMoments(AbstractQuestion):
    """The weighted mean of u u', u = (E x, y0), shape (p + 1, p + 1), symmetric; noise on and above the diagonal.

    E is an encoding, y0 = (y - target_centre)/target_unit cut to [-1, 1], and the weight w = min(1, t^2/|E x|^2). With
    `offset_unit`, u = (E x, y0, o0) with o0 the record's offset, less `offset_centre`, over that unit, cut alike.

    Sensitivity. w (|E x|^2 + y0^2) <= t^2 + 1, the Frobenius norm of one unit's matrix, and t^2 + 2 with an offset.
    Zeroing a unit moves the sum by at most that; changing it by sqrt(2) times that, both matrices being positive
    semidefinite (see `Curvature`). Attained by a long row along an axis; two of them on orthogonal axes, up to what
    their targets add.
    """

    places: ClassVar = "encoded"

    kind: Literal["second_moments"] = "second_moments"
    weight_bound: Positive
    target_centre: Number
    target_unit: Positive
    offset_centre: Number = 0.0
    offset_unit: Positive | None = None
    sampling_cut: SamplingCut = 1.0

    @property
    def beside(self) -> int:
        """Number of numbers beside E x."""
        return 1 if self.offset_unit is None else 2

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (p + 1, p + 1), or (p + 2, p + 2)."""
        return (dimension + self.beside, dimension + self.beside)

    def bound(self, facts: Facts) -> float:
        """Return t^2 + 1, or t^2 + 2: the bound on the Frobenius norm of one unit's matrix."""
        del facts  # weights and cuts bound it
        return self.weight_bound**2 + self.beside

    def sensitivity(self, facts: Facts) -> float:
        """Return bound/n, or sqrt(2) bound/n when a unit may change into any other."""
        factor = sqrt(2) if facts.adjacency is Adjacency.REPLACE_ONE else 1.0
        return factor * self.bound(facts) / self.consumed(facts)


class WeightSums(AbstractQuestion):
    """The means of w |E x|^2 and of w^2 |E x|^2, shape (2,), w = min(1, t^2/|E x|^2) and E an encoding.

    With `sampled`, w has the record's sampling weight a in it, cut to a factor between 0 and 1, and the means of t^2 a
    and of t^2 a^2 follow: shape (4,).

    Sensitivity. All numbers lie between 0 and t^2, so one unit's term and the difference of any two have norm at most
    sqrt(2) t^2, or 2 t^2. Attained by a row of norm t.
    """

    places: ClassVar = "encoded"

    kind: Literal["weight_sums"] = "weight_sums"
    weight_bound: Positive
    sampled: bool = False
    sampling_cut: SamplingCut = 1.0

    @property
    def sums(self) -> int:
        """Number of means."""
        return 4 if self.sampled else 2

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (2,) or (4,)."""
        del dimension  # as many for any number of parameters
        return (self.sums,)

    def bound(self, facts: Facts) -> float:
        """Return sqrt(2) t^2, or 2 t^2: the norm of one unit's term."""
        del facts  # the weights bound it
        return sqrt(self.sums) * self.weight_bound**2

    def diameter(self, facts: Facts) -> float:
        """Return the same: no number is below zero."""
        return self.bound(facts)

    def sensitivity(self, facts: Facts) -> float:
        """Return bound/n under both adjacencies."""
        return self.bound(facts) / self.consumed(facts)


def _refuse_shared(columns: Iterable[Cells], level: int) -> None:
    """Refuse cells of one column that are named twice, out of order, or that the level does not have."""
    for cells in columns:
        if any(one >= other for one, other in pairwise(cells)):
            raise ValueError("a column's cells are named once each, in rising order")
        if not cells or cells[-1] >= 2**level:
            raise ValueError("every column names a cell that its level has")
