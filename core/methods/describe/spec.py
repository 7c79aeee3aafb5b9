"""Describing columns: what the method is called, assumes, costs, and how its price is divided among statistics.

A description begins with a look at the numbers, the one that whitened Newton begins with, from which later answers take
their cuts; `core.methods.describe.fit` asks, `core.inference.description` makes intervals of the answers. mu^2 is
divided by shares that are fixed before a record is read, whatever the answers are.
"""

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from core.base.errors import FieldError, Invalid
from core.losses.assumption import Assumption
from core.methods.base import AbstractSettings, Bound, Card
from core.methods.m_estimation.whitened_newton.shares import LEVELS, MOST_CELLS, SIZE_BINS
from core.privacy.arithmetic import SLACK, Mu, fill
from core.privacy.events import Event
from core.privacy.facts import Adjacency, Facts, Frozen
from core.queries.gradients import Tabled
from core.queries.looks import CellCounts, MagnitudeCounts
from core.queries.tables import (
    Axis,
    Cut,
    CutProducts,
    CutSums,
    InfluenceSquares,
    Partition,
    SplitCut,
    StandardCut,
    TableCounts,
)

ROUNDS: Final = 5
"""Of cells that close in on a quantile, before the answer that its interval is made of."""
ROUND_CELLS: Final = 8
LAST_CELLS: Final = 16
"""In place of each quantile, in a round and in the last answer."""
LOCATING_PART: Final = 0.4
"""Of the quantiles' share, for all rounds together."""
PRODUCTS_PART: Final = 0.75
"""Of the correlations' share; the rest is for their sampling variance."""
TABLE_CELLS: Final = 4
"""A number has in a table, where no edges are given."""
INFLUENCE_CAP: Final = 100.0
MOST_COUNTS: Final = 10_000
"""In one answer."""
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
    """How mu^2 is divided among what is asked; the shares sum to 1."""

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
    """What is asked of which columns, by their places."""

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
        tabled = {place for pair in self.tables for place in pair} if self.tables else set()
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


class Describe(AbstractSettings):
    """Ask about columns as they are: a look at the numbers, counts, sums of cut values; each answer once.

    Intervals come with the answers, for no further ones.
    """

    has_covariance: ClassVar = True
    estimates: ClassVar = False

    kind: Literal["describe"] = "describe"
    mu: Mu | None = Field(default=None, description="null: the job's")
    shares: DescribeShares | None = Field(default=None, description="of mu^2; null: planned")
    layout: Layout | None = Field(default=None, description="null: as the model and the declared columns say")

    def plan(self, facts: Facts, mu: float) -> Self:
        """Fill what is open, from public facts alone.

        Raises:
            Invalid: shares for what is not asked, or none for what is.
        """
        del facts  # the layout says it all
        filled = fill(self, mu=mu, shares=self.planned_layout.planned_shares())
        filled.check_shares()
        return filled

    @property
    def planned_layout(self) -> Layout:
        """What is asked, once it is filled."""
        assert self.layout is not None, "the planner says what is asked"
        return self.layout

    def check_shares(self) -> None:
        """Refuse shares that do not fit what is asked.

        Raises:
            Invalid: with a pointer to each.
        """
        assert self.shares is not None, "plan first"
        layout = self.planned_layout
        asked, wrong = {*layout.asked(), *(("look",) if layout.numbers else ())}, []
        for name, share in self.shares.model_dump().items():
            pointer = f"/optimizer/shares/{name}"
            if share and name not in asked:
                wrong.append(FieldError(pointer, "is for nothing that this job asks: give 0 or leave it out"))
            if not share and name in asked and (name != "look" or layout.needs_look):
                why = "later answers are cut by what the look finds" if name == "look" else "the job asks for it"
                wrong.append(FieldError(pointer, f"must be above 0: {why}"))
        if wrong:
            raise Invalid(f"The shares do not fit the statistics: see {wrong[0].pointer}.", *wrong)

    @property
    def steps(self) -> int:
        """One: nothing is iterated."""
        return 1

    @property
    def start(self) -> Literal["zeros"]:
        """Of no importance: questions about columns are asked at no point."""
        return "zeros"

    def share(self, name: str) -> float:
        """Return the share of one statistic."""
        assert self.shares is not None, "plan first"
        found: float = getattr(self.shares, name)
        return found

    def sigma(self, share: float, answers: int = 1) -> float:
        """Return the noise multiplier of each of so many answers that share a part of mu^2."""
        assert self.mu is not None, "plan first"
        return 1 / (self.mu * sqrt(share / answers))

    def cell_sigma(self) -> float:
        """Return the noise multiplier of each level's cells in the look."""
        return self.sigma(self.share("look") / 2, LEVELS)

    def size_question(self) -> MagnitudeCounts | None:
        """Return the look's question about sizes; None without numbers."""
        numbers = self.planned_layout.numbers
        if not numbers:
            return None
        return MagnitudeCounts(sigma=self.sigma(self.share("look") / 2), columns=len(numbers), bins=SIZE_BINS)

    def value_question(self) -> None:
        """Return None: categories are counted value by value, as frequencies."""

    def counts(self, statistic: str, partitions: Sequence[Partition], part: float = 1.0) -> TableCounts:
        """Return a question for counts at a part of a statistic's share."""
        return TableCounts(sigma=self.sigma(self.share(statistic) * part), partitions=tuple(partitions))

    def sums(self, columns: Sequence[SplitCut]) -> CutSums:
        """Return the question that means are made of."""
        return CutSums(sigma=self.sigma(self.share("means")), columns=tuple(columns))

    def products(self, columns: Sequence[Cut]) -> CutProducts:
        """Return the question that correlations are made of."""
        return CutProducts(sigma=self.sigma(self.share("correlations") * PRODUCTS_PART), columns=tuple(columns))

    def influences(self, columns: Sequence[StandardCut], correlations: Sequence[float]) -> InfluenceSquares:
        """Return the question that their sampling variance is made of."""
        sigma = self.sigma(self.share("correlations") * (1 - PRODUCTS_PART))
        return InfluenceSquares(
            sigma=sigma, columns=tuple(columns), correlations=tuple(correlations), cap=INFLUENCE_CAP
        )

    def questions(self) -> tuple[CellCounts | MagnitudeCounts | Tabled, ...]:
        """Return all questions in the order they are asked; what is learned has placeholders, as many as may be."""
        return (*self._look(), *(question for _, question in self._counted()), *self._summed())

    def _look(self) -> Iterator[CellCounts | MagnitudeCounts]:
        """Yield the questions of the look."""
        sizes = self.size_question() if self.share("look") else None
        if sizes is not None:
            cells = (MOST_CELLS,) * sizes.columns
            yield from [CellCounts(sigma=self.cell_sigma(), level=LEVELS, cells=cells)] * LEVELS
            yield sizes

    def _counted(self) -> Iterator[tuple[str, TableCounts]]:
        """Yield the questions for counts, each with its statistic."""
        layout = self.planned_layout
        asked = layout.asked()
        if "frequencies" in asked:
            axes = [layout_axis(layout, at) for at in layout.categories]
            yield "frequencies", self.counts("frequencies", [Partition(axes=(axis,)) for axis in axes])
        if "missing" in asked:
            yield "missing", self.counts("missing", missing_partitions(layout))
        if "histograms" in asked:
            axes = [layout_axis(layout, at, layout.bins + 1) for at in layout.numbers]
            yield "histograms", self.counts("histograms", [Partition(axes=(axis,)) for axis in axes])
        if "tables" in asked:
            pairs = [tuple(layout_axis(layout, at, TABLE_CELLS - 1) for at in pair) for pair in layout.tables]
            yield "tables", self.counts("tables", [Partition(axes=pair) for pair in pairs])
        if "quantiles" in asked:
            for cells, part in quantile_rounds():
                edges = len(layout.quantiles) * (cells + 1)
                axes = [Axis(column=at, edges=_placeholders(edges)) for at in layout.numbers]
                yield "quantiles", self.counts("quantiles", [Partition(axes=(axis,)) for axis in axes], part)

    def _summed(self) -> Iterator[CutSums | CutProducts | InfluenceSquares]:
        """Yield the questions for sums."""
        numbers = self.planned_layout.numbers
        if "means" in self.planned_layout.asked():
            yield self.sums([SplitCut(column=at, centre=0.5, reach=0.5, rest=1.0) for at in numbers])
        if "correlations" in self.planned_layout.asked():
            yield self.products([Cut(column=at, centre=0.5, reach=0.5) for at in numbers])
            pairs = len(numbers) * (len(numbers) - 1) // 2
            standard = [StandardCut(column=at, centre=0.5, reach=0.5, mean=0.0, deviation=1.0) for at in numbers]
            yield self.influences(standard, (0.0,) * pairs)

    def asked(self) -> frozenset[CellCounts | MagnitudeCounts | Tabled]:
        """Return every question that is asked, with placeholders for what is learned."""
        return frozenset(self.questions())

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return each question's event, in order; what is learned changes what a question names, never its price."""
        del facts  # a multiplier of the sensitivity means the same for every scope
        return [question.event() for question in self.questions()]

    def passes(self, facts: Facts) -> int:
        """Return one for each question: each reads the columns once."""
        del facts  # as the sentence says
        return len(self.questions())

    def figures(self, facts: Facts) -> dict[str, float | int | None]:
        """Return the standard deviation of the noise on counts, in records, by statistic."""
        found: dict[str, float | int | None] = {}
        for name, question in self._counted():  # of quantiles the last answer stays
            found[f"{name}_noise"] = question.sigma * question.sensitivity(facts) * facts.units
        return found

    def bound(self, facts: Facts) -> Bound:
        """Predict the noise on the least precise count, as a share of the records."""
        worst = max((one.sigma * one.sensitivity(facts) for _, one in self._counted()), default=None)
        return Bound(
            quantity="standard deviation of the noise on a count of the least precise answer, as a part of the records",
            value=worst,
            confidence=None,
            trivial=1.0,
            vacuous=worst is not None and worst >= 1.0,
            source="the law of the noise, which is public",
        )

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="describe",
            title="Description of columns",
            paper="ours: counts and cut sums with Gaussian noise",
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(text="a record lies in one cell of each partition", checked="static"),
                Assumption(text="values are cut before they are summed", checked="static"),
                Assumption(text="records are independent draws, for claims about a population", checked="declared"),
            ),
            default_for=("description",),
            returns="means, quantiles, histograms, frequencies, tables and correlations, each with intervals",
        )


def quantile_rounds() -> tuple[tuple[int, float], ...]:
    """Return for each of the quantiles' answers how many cells stand in place of a quantile, and its part."""
    return (*[(ROUND_CELLS, LOCATING_PART / ROUNDS)] * ROUNDS, (LAST_CELLS, 1 - LOCATING_PART))


def layout_axis(layout: Layout, place: int, edges: int = 0) -> Axis:
    """Return a column's cells: its values, the edges that were given, or so many that are learned later."""
    shape = layout.columns[place]
    if shape.values is not None:
        return Axis(column=place, values=shape.values)
    return Axis(column=place, edges=shape.edges or _placeholders(edges))


def missing_partitions(layout: Layout) -> list[Partition]:
    """Return one count for each column: of records without a value there."""
    axes = [layout_axis(layout, place, 1) for place in range(len(layout.columns))]
    return [Partition(axes=(axis,), only_missing=True) for axis in axes]


def _placeholders(edges: int) -> tuple[float, ...]:
    return tuple((at + 1) / (edges + 1) for at in range(edges))
