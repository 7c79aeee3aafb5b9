"""Questions about the declared columns themselves: counts of records in cells, and sums of bounded functions of values.

A record is a row of numbers, one for each column that the job reads: numbers as parts of their declared range, from 0
to 1, categories as the number of their value. A value may be missing, and each question says what a record adds then.
Edges, centres and reaches are public values, which may follow from earlier answers; no sensitivity depends on them.

An excluded row adds nothing to any sum.
"""

from itertools import pairwise
from math import prod, sqrt
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from core.privacy.facts import Adjacency, Facts, Frozen
from core.queries.bases import AbstractQuestion
from core.queries.looks import AbstractCounts, Number, Positive

Place = Annotated[int, Field(ge=0)]
MOST_AXES = 2
SUM_PARTS = {"one": 0.1, "value": 0.7, "square": 0.2}
"""Of a record's squared length in `CutSums`: the constant, the cut value and its square."""
SPLIT_PARTS = {"one": 0.06, "value": 0.42, "square": 0.12, "rest": 0.28, "rest_square": 0.12}
"""The same where the rest beyond the cut is summed as well."""


class Axis(Frozen):
    """One column cut into cells: a category's values, or a number's intervals between edges.

    Cell k of a number holds values from edge k-1 up to and without edge k; the first and the last have no end.
    """

    column: Place
    values: Annotated[int, Field(ge=2)] | None = Field(default=None, description="of a category")
    edges: Annotated[tuple[Number, ...], Field(min_length=1)] | None = Field(
        default=None, description="of a number, rising, as parts of its declared range"
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.values is None) == (self.edges is None):
            raise ValueError("an axis has either values or edges")
        if any(one >= other for one, other in pairwise(self.edges or ())):
            raise ValueError("edges rise")
        return self

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.values if self.values is not None else len(self.edges or ()) + 1


class Partition(Frozen):
    """Disjoint cells: of one column, or the pairs of two columns' cells; and one for records without a value there."""

    axes: Annotated[tuple[Axis, ...], Field(min_length=1, max_length=MOST_AXES)]
    only_missing: bool = Field(default=False, description="count records without a value, and nothing else")

    @property
    def cells(self) -> int:
        """Number of counts; the last one is that of records without a value."""
        return 1 if self.only_missing else prod(axis.cells for axis in self.axes) + 1


class TableCounts(AbstractCounts):
    """Shares of records in the cells of several partitions, one after the other.

    Cells of one partition are disjoint and every record lies in exactly one of them, that of missing values included.
    Sensitivity: see `AbstractCounts`, with P partitions. Attained by two records that share no cell; where a
    partition counts missing values alone, by a record that has none of them.
    """

    kind: Literal["table_counts"] = "table_counts"
    partitions: Annotated[tuple[Partition, ...], Field(min_length=1)]

    @property
    def sets(self) -> int:
        """All cells of all partitions."""
        return sum(partition.cells for partition in self.partitions)

    @property
    def read(self) -> int:
        """P, the number of partitions."""
        return len(self.partitions)

    def diameter(self, facts: Facts) -> float:
        """Return sqrt(2 P), or less for partitions of one cell, whose count moves by 1 at most."""
        del facts  # a count is a count
        return sqrt(sum(1 if partition.cells == 1 else 2 for partition in self.partitions))


class Cut(Frozen):
    """Where one number is cut: z = (value - centre)/reach, drawn in to [-1, 1]."""

    column: Place
    centre: Number
    reach: Positive


class SplitCut(Cut):
    """A cut, and what is done with what lies beyond: r = ((value - centre)/reach - z)/rest, drawn in to [-1, 1]."""

    rest: Positive | None = Field(default=None, description="null: values beyond are not summed")


class CutSums(AbstractQuestion):
    """For each column the mean of (a, b z, c z^2), and of (a, b z, c z^2, d r, e r^2) where its rest is summed.

    z and r are the parts of the value within and beyond the cut, see `SplitCut`; a record without a value adds zeros.
    The squares of a to e are `SUM_PARTS` or `SPLIT_PARTS`, which sum to 1.

    Sensitivity. |z| <= 1 and |r| <= 1, so a column's vector has norm at most 1, that of P columns at most sqrt(P);
    attained by a value at its bound. Two values: let s and d be the sum and the difference of z and z', so |s| + |d| <=
    2. Then b^2 d^2 + c^2 d^2 s^2 <= d^2 (b^2 + c^2 (2 - |d|)^2) <= 4 b^2, for c^2 <= b^2/2; likewise r, with e^2 <=
    d^2/2. A value and none are at distance 1 at most. Two records are thus at most sqrt(4 (b^2 + d^2) P) = sqrt(2.8 P)
    apart; attained by values at opposite bounds.
    """

    kind: Literal["cut_sums"] = "cut_sums"
    columns: Annotated[tuple[SplitCut, ...], Field(min_length=1)]

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (number of sums,)."""
        del dimension  # each column has sums of its own
        return (sum(len(parts_of(column)) for column in self.columns),)

    def bound(self, facts: Facts) -> float:
        """Return sqrt(P), the norm of one unit's term."""
        del facts  # the cut bounds it
        return sqrt(len(self.columns))

    def diameter(self, facts: Facts) -> float:
        """Return the largest distance of two units' terms."""
        del facts  # as above
        odd = (parts["value"] + parts.get("rest", 0.0) for parts in (parts_of(column) for column in self.columns))
        return 2 * sqrt(sum(odd))

    def sensitivity(self, facts: Facts) -> float:
        """Return bound/n, or the diameter over n when a unit may change into any other."""
        moved = self.diameter(facts) if facts.adjacency is Adjacency.REPLACE_ONE else self.bound(facts)
        return moved / self.consumed(facts)


def parts_of(column: SplitCut) -> dict[str, float]:
    """Return the squares of the factors of a column's sums, in their order."""
    return SUM_PARTS if column.rest is None else SPLIT_PARTS


class CutProducts(AbstractQuestion):
    """The mean of the entries on and above the diagonal of u u', u = (1, z_1, ..., z_k), row after row.

    z is a cut value, see `Cut`. A record that lacks one of the k values adds zeros.

    Sensitivity. Each of the m = (k + 1)(k + 2)/2 entries has size at most 1, so a record's vector has norm at most
    sqrt(m), attained at a corner of the cube. Two records u and v, with a and b their squared entries: the squared
    distance is (|uu' - vv'|^2 + sum (a - b)^2)/2 <= ((sum a)^2 + (sum b)^2 + sum (a - b)^2)/2. This convex function is
    largest where entries are 0 or 1, and there at most (k + 1)^2. Attained for odd k by corners that differ in half of
    their signs, the constant counted.
    """

    kind: Literal["cut_products"] = "cut_products"
    columns: Annotated[tuple[Cut, ...], Field(min_length=2)]

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return ((k + 1)(k + 2)/2,)."""
        del dimension  # as above
        size = len(self.columns) + 1
        return (size * (size + 1) // 2,)

    def bound(self, facts: Facts) -> float:
        """Return sqrt(m), the norm of one unit's term."""
        return sqrt(self.shape(facts.dimension)[0])

    def diameter(self, facts: Facts) -> float:
        """Return k + 1, the largest distance of two units' terms."""
        del facts  # the cut bounds it
        return len(self.columns) + 1.0

    def sensitivity(self, facts: Facts) -> float:
        """Return bound/n, or the diameter over n when a unit may change into any other."""
        moved = self.diameter(facts) if facts.adjacency is Adjacency.REPLACE_ONE else self.bound(facts)
        return moved / self.consumed(facts)


class StandardCut(Cut):
    """A cut with a public mean and deviation of z, so that s = (z - mean)/deviation."""

    mean: Number
    deviation: Positive


class InfluenceSquares(AbstractQuestion):
    """For each pair of columns the mean of min(1, (s s' - rho (s^2 + s'^2)/2)^2/cap).

    The square is that of the influence of one record on the correlation rho; its mean over n is the variance of a
    sampled correlation. A record that lacks one of the values adds zeros.

    Sensitivity. Every entry lies between 0 and 1, so one unit's term and the difference of any two have norm at most
    the root of the number of pairs. Attained by a value far from the mean.
    """

    kind: Literal["influence_squares"] = "influence_squares"
    columns: Annotated[tuple[StandardCut, ...], Field(min_length=2)]
    correlations: tuple[Annotated[float, Field(ge=-1, le=1)], ...] = Field(description="of pairs, row after row")
    cap: Positive

    @model_validator(mode="after")
    def _each_pair(self) -> Self:
        if len(self.correlations) != len(self.columns) * (len(self.columns) - 1) // 2:
            raise ValueError("every pair of columns has a correlation")
        return self

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (number of pairs,)."""
        del dimension  # as above
        return (len(self.correlations),)

    def bound(self, facts: Facts) -> float:
        """Return the root of the number of pairs."""
        del facts  # the cap bounds it
        return sqrt(len(self.correlations))

    def diameter(self, facts: Facts) -> float:
        """Return the same: every entry is at least zero."""
        return self.bound(facts)

    def sensitivity(self, facts: Facts) -> float:
        """Return bound/n under both adjacencies."""
        return self.bound(facts) / self.consumed(facts)
