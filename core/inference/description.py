"""Stored row of a description: every noised answer with the deviation of its noise; nothing else of the records.

Numbers stand as parts of their declared range, as they were asked about. Intervals at any level are made of these
answers alone (`core.inference.description_figures`).
"""

from typing import Literal

from pydantic import Field

from core.data.columns import Scalar
from core.inference.released import MARKED, Level
from core.models.description import DescriptionModel
from core.privacy.facts import Frozen
from core.privacy.reports import Report
from core.queries.tables import Cut, Partition, SplitCut


class Look(Frozen):
    """Where a number lies and how far it varies, as parts of its declared range."""

    column: int
    centre: float
    scale: float
    sparse: bool = Field(description="nothing was seen of how it varies")
    clamped: tuple[bool, bool] = Field(description="many records lie at the lower, at the upper bound")
    heaped: bool = Field(default=False, description="about half of the records or more lie at one distance from it")


class Counts(Frozen):
    """Noised counts of records, one for each cell of a partition."""

    statistic: Literal["frequencies", "missing", "histograms", "tables", "quantiles"]
    partition: Partition
    counts: tuple[float, ...]
    deviation: float = Field(description="of the noise on a count, in records")


class Sums(Frozen):
    """Noised means over all n records of a number's cut value, see `CutSums`, each without its factor."""

    cut: SplitCut
    sums: tuple[float, ...] = Field(description="of 1, z, z^2, and r, r^2 where the rest is summed")
    deviations: tuple[float, ...] = Field(description="of their noise")


class Products(Frozen):
    """Noised means over all n records of products of cut values, and the variance of the correlations' sampling."""

    columns: tuple[Cut, ...]
    products: tuple[float, ...] = Field(description="see `CutProducts`")
    deviation: float
    hidden: tuple[bool, ...] = Field(description="of each column, whether the noise hides its variance")
    correlations: tuple[float, ...] = Field(description="of pairs, row after row")
    influences: tuple[float, ...] = Field(
        description="means of squared influences, each cut to the cap; see `InfluenceSquares`"
    )
    influence_deviation: float
    cap: float = Field(description="of squared influences, which are measured as parts of it")


class Answers(Frozen):
    """All answers of a description."""

    looks: tuple[Look, ...]
    counts: tuple[Counts, ...]
    sums: tuple[Sums, ...]
    products: Products | None

    def of(self, statistic: str) -> tuple[Counts, ...]:
        """Return the counts of one statistic."""
        return tuple(one for one in self.counts if one.statistic == statistic)


class ReleasedDescription(Frozen):
    """Complete output of a job that describes columns: one row of models, as JSON."""

    kind: Literal["description"] = "description"
    optimizer: Literal["describe"] = "describe"
    units: int
    steps: int
    status: Literal["finished"] = "finished"
    level: Level
    model: DescriptionModel
    columns: tuple[Scalar, ...]
    shares: dict[str, float] = Field(description="of mu^2, by statistic")
    answers: Answers
    privacy: Report
    error_bound: None = None
    mock: bool = MARKED

    def place(self, name: str) -> int | None:
        """Return the place of a column that was described."""
        return next((place for place, column in enumerate(self.columns) if column.name == name), None)
