"""Request of a job that describes columns: columns, statistics, and the intervals of numbers."""

from itertools import pairwise
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from core.data.column_fields import Name
from core.privacy.facts import Frozen

Statistic = Literal["frequencies", "missing", "quantiles", "histograms", "means", "correlations"]
MOST_COLUMNS: Final = 200
MOST_TABLES: Final = 50
MOST_EDGES: Final = 200
Fraction = Annotated[float, Field(gt=0, lt=1)]
Edges = Annotated[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], Field(min_length=1, max_length=MOST_EDGES)]


class DescriptionModel(Frozen):
    """No model: columns described one by one and in pairs, each figure with an interval.

    `frequencies` are of categories, `quantiles`, `histograms`, `means` and `correlations` of numbers, `missing` of any
    column. `tables` counts the pairs of values of two columns.
    """

    kind: Literal["description"] = "description"
    columns: tuple[Name, ...] | None = Field(
        default=None, min_length=1, max_length=MOST_COLUMNS, description="default: all but arrays"
    )
    statistics: tuple[Statistic, ...] = Field(
        default=("frequencies", "quantiles", "means"), description="each of all columns that it is for"
    )
    tables: tuple[tuple[Name, Name], ...] = Field(
        default=(), max_length=MOST_TABLES, description="pairs of columns to cross-tabulate"
    )
    quantiles: Annotated[tuple[Fraction, ...], Field(min_length=1, max_length=9)] = Field(
        default=(0.25, 0.5, 0.75), description="rising"
    )
    bins: Annotated[int, Field(ge=2, le=MOST_EDGES)] = Field(
        default=20, description="intervals of a histogram without edges, over the range that the look finds"
    )
    edges: dict[Name, Edges] = Field(
        default_factory=dict,
        max_length=MOST_COLUMNS,
        description=(
            "rising cuts of a number's histogram and of its intervals in tables, in the column's own units (of a "
            "date, days since its lower bound). Without them a histogram has `bins`, and a table cuts at the "
            "centre and one scale on either side, as the look finds them"
        ),
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if len(set(self.statistics)) < len(self.statistics):
            raise ValueError("statistics are named once each")
        if not self.statistics and not self.tables:
            raise ValueError("name a statistic or a table")
        for name, edges in {"quantiles": self.quantiles, **self.edges}.items():
            # Equal edges would leave an empty cell between them.
            if any(one >= other for one, other in pairwise(edges)):
                raise ValueError(f"{name}: numbers rise")
        return self
