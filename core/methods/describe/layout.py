"""Statistics that a description asks of each column, by place, and their weights in the usual division of mu^2."""

from collections.abc import Sequence
from math import sqrt
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from core.base.errors import FieldError, Invalid
from core.data.columns import Coded, Ordered, Scalar, bounds_of
from core.models.description import DescriptionModel
from core.privacy.arithmetic import SLACK
from core.privacy.facts import Frozen

MOST_CORRELATED: Final = 40
"""Numbers whose correlations one job asks for."""


_WEIGHTS: Final = {
    "look": 0.5,
    "frequencies": 1.0,
    "missing": 0.25,
    "quantiles": 1.5,
    "histograms": 1.0,
    "means": 1.5,
    "correlations": 2.0,
}
"""Of the planned division; a table weighs TABLE_WEIGHT."""
_TABLE_WEIGHT: Final = 0.5
Part = Annotated[float, Field(ge=0, le=1)]


class DescribeShares(Frozen):
    """Division of mu^2 among the statistics; the shares sum to 1."""

    look: Part = 0.0
    frequencies: Part = 0.0
    missing: Part = 0.0
    quantiles: Part = 0.0
    histograms: Part = 0.0
    means: Part = 0.0
    correlations: Part = 0.0
    tables: Part = 0.0

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if abs(sum(self.model_dump().values()) - 1) > SLACK:
            raise ValueError("the shares must sum to 1")
        return self


class ColumnShape(Frozen):
    """One column as the questions see it."""

    values: Annotated[int, Field(ge=2)] | None = Field(default=None, description="of a category; null: a number")
    edges: tuple[float, ...] | None = Field(
        default=None, description="that were given, as parts of the declared range; null: they are learned"
    )


class Layout(Frozen):
    """Statistics that are asked of each column, by place."""

    columns: Annotated[tuple[ColumnShape, ...], Field(min_length=1)]
    statistics: tuple[str, ...]
    tables: tuple[tuple[int, int], ...]
    quantiles: tuple[float, ...]
    bins: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """Places of numbers."""
        return tuple(place for place, column in enumerate(self.columns) if column.values is None)

    @property
    def categories(self) -> tuple[int, ...]:
        """Places of categories."""
        return tuple(place for place, column in enumerate(self.columns) if column.values is not None)

    def asked(self) -> tuple[str, ...]:
        """Return which statistics there is a column for, tables among them."""
        fit = {
            "frequencies": bool(self.categories),
            "missing": True,
            "quantiles": bool(self.numbers),
            "histograms": bool(self.numbers),
            "means": bool(self.numbers),
            "correlations": len(self.numbers) > 1,
        }
        named = tuple(name for name in fit if fit[name] and name in self.statistics)
        return (*named, *(("tables",) if self.tables else ()))

    @property
    def needs_look(self) -> bool:
        """Whether some answer is cut by what the look finds."""
        if not self.numbers:
            return False
        tabled = {place for pair in self.tables for place in pair}
        cut = set(self.numbers) if "histograms" in self.statistics else tabled & set(self.numbers)
        open_edges = any(self.columns[place].edges is None for place in cut)
        return open_edges or "means" in self.asked() or "correlations" in self.asked()

    def planned_shares(self) -> DescribeShares:
        """Return the usual division: a tenth or so for the look, the rest by weight."""
        weights = {name: _WEIGHTS[name] for name in self.asked() if name != "tables"}
        if self.tables:
            weights["tables"] = _TABLE_WEIGHT * sqrt(len(self.tables))
        if self.numbers:
            weights["look"] = _WEIGHTS["look"]
        total = sum(weights.values())
        return DescribeShares(**{name: weight / total for name, weight in weights.items()})


def part_of_range(column: Ordered, value: float) -> float:
    """Return a number in the column's own units as a part of its declared range."""
    lower, upper = bounds_of(column)
    return (value - lower) / (upper - lower)


def make_layout(columns: Sequence[Scalar], model: DescriptionModel) -> Layout:
    """Return what is asked of which columns.

    Raises:
        Invalid: edges or tables do not fit the columns, or there is nothing to ask.
    """
    places = {column.name: place for place, column in enumerate(columns)}
    shapes = [
        ColumnShape(values=len(column.values))
        if isinstance(column, Coded)
        else ColumnShape(edges=_edges(column, model.edges.get(column.name)))
        for column in columns
    ]
    for name in model.edges:
        if name not in places or isinstance(columns[places[name]], Coded):
            detail = "edges are for numbers, integers and dates that this job describes"
            raise Invalid(f"`{name}` has no edges: {detail}.", FieldError(f"/model/edges/{name}", detail))
    tables = []
    for at, pair in enumerate(model.tables):
        for side, name in enumerate(pair):
            if name not in places:
                detail = f"`{name}` is none of the columns that this job describes"
                raise Invalid(
                    f"A table's columns are described too: {detail}.", FieldError(f"/model/tables/{at}/{side}", detail)
                )
        if pair[0] == pair[1]:
            raise Invalid("A table is of two columns.", FieldError(f"/model/tables/{at}/1", f"names `{pair[0]}` again"))
        tables.append((places[pair[0]], places[pair[1]]))
    layout = Layout(
        columns=tuple(shapes),
        statistics=tuple(sorted(model.statistics)),
        tables=tuple(tables),
        quantiles=model.quantiles,
        bins=model.bins,
    )
    _check_sizes(layout)
    return layout


def _check_sizes(layout: Layout) -> None:
    """Refuse a layout that asks for nothing, or for too many correlations.

    Raises:
        Invalid: with a pointer.
    """
    if not layout.asked():
        detail = f"none of {', '.join(layout.statistics)} is for columns of these types"
        raise Invalid(f"There is nothing to describe: {detail}.", FieldError("/model/statistics", detail))
    if "correlations" in layout.asked() and len(layout.numbers) > MOST_CORRELATED:
        detail = f"correlations are of at most {MOST_CORRELATED} numbers: name fewer columns"
        raise Invalid(f"Too many columns: {detail}.", FieldError("/model/columns", detail))


def _edges(column: Ordered, given: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Return given edges as parts of the declared range.

    Raises:
        Invalid: one lies at or beyond a bound.
    """
    if given is None:
        return None
    lower, upper = bounds_of(column)
    if not lower < given[0] <= given[-1] < upper:
        detail = f"must lie within the declared bounds, {lower:g} to {upper:g}, where every value lies"
        raise Invalid(f"The edges of `{column.name}` {detail}.", FieldError(f"/model/edges/{column.name}", detail))
    return tuple(part_of_range(column, edge) for edge in given)
