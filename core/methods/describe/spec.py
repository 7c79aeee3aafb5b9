"""Description of columns: the method's name, assumptions, price, and the division of its price among statistics.

A description begins with the same look at the numbers as whitened Newton; later answers take their cuts from it.
`core.methods.describe.fit` asks, `core.inference.description` turns answers into intervals. The shares of mu^2 are
fixed before a record is read, whatever the answers are.
"""

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import ClassVar, Final, Literal, Self

from pydantic import Field

from core.base.errors import FieldError, Invalid, contradiction
from core.losses.assumption import Assumption
from core.methods.base import Card, Plan, Spec
from core.methods.describe.layout import DescribeShares, Layout, make_layout
from core.methods.m_estimation.whitened_newton.shares import LEVELS, MOST_CELLS, SIZE_BINS
from core.models.description import DescriptionModel
from core.models.design import Design
from core.models.kinds import AnyModel
from core.privacy.arithmetic import Mu, fill
from core.privacy.events import Event
from core.privacy.facts import Adjacency, Facts
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
from farthing.schemas.estimates import Bound

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


class Describe(Spec):
    """Ask about columns as they are: a look at the numbers, counts, sums of cut values; each answer once.

    Intervals come with the answers, for no further ones.
    """

    has_covariance: ClassVar = True
    estimates: ClassVar = False

    cited: ClassVar = ""
    kind: Literal["describe"] = "describe"
    mu: Mu | None = Field(default=None, description="null: the job's")
    shares: DescribeShares | None = Field(default=None, description="of mu^2; null: planned")
    layout: Layout | None = Field(default=None, description="null: as the model and the declared columns say")

    def plan(self, facts: Facts, mu: float) -> "DescribePlan":
        """Fill what is open, from public facts alone.

        Raises:
            Invalid: shares for what is not asked, or none for what is.
        """
        del facts  # the layout says it all
        assert self.layout is not None, "`with_model` fills it"
        plan = self.closed(DescribePlan, mu=mu, shares=self.layout.planned_shares())
        plan.check_shares()
        return plan

    def with_model(self, model: AnyModel, design: Design) -> Self:
        """Say what is asked of which columns.

        Raises:
            Invalid: the layout was given, and says otherwise; edges or tables do not fit the columns; there is nothing
                to ask, or too much.
        """
        assert isinstance(model, DescriptionModel), "a description and its method go together"
        layout = make_layout(design.columns, model)
        if self.layout not in {None, layout}:
            raise contradiction("/optimizer/layout", "does not agree with the model; leave it out")
        # Any mu serves: the number of counts follows from the layout alone.
        plan = DescribePlan(mu=1.0, layout=layout, shares=layout.planned_shares())
        if max(question.shape(len(layout.columns))[0] for question in plan.questions()) > MOST_COUNTS:
            detail = f"one answer would have more than {MOST_COUNTS:,} counts: name fewer columns, tables or bins"
            raise Invalid(f"Too many cells: {detail}.", FieldError("/model/columns", detail))
        return fill(self, layout=layout)

    @property
    def steps(self) -> int:
        """One: nothing is iterated."""
        return 1

    @property
    def start(self) -> Literal["zeros"]:
        """Of no importance: questions about columns are asked at no point."""
        return "zeros"

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


class DescribePlan(Describe, Plan):
    """A description with nothing open."""

    mu: Mu
    shares: DescribeShares
    layout: Layout

    def check_shares(self) -> None:
        """Refuse shares that do not fit what is asked.

        Raises:
            Invalid: with a pointer to each.
        """
        layout = self.layout
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

    def share(self, name: str) -> float:
        """Return the share of one statistic."""
        found: float = getattr(self.shares, name)
        return found

    def sigma(self, share: float, answers: int = 1) -> float:
        """Return the noise multiplier of each of so many answers that share a part of mu^2."""
        # Squares of mu add up over answers, hence the root of the share.
        return 1 / (self.mu * sqrt(share / answers))

    def cell_sigma(self) -> float:
        """Return the noise multiplier of each level's cells in the look."""
        # The look's other half pays for the question about sizes.
        return self.sigma(self.share("look") / 2, LEVELS)

    def size_question(self) -> MagnitudeCounts | None:
        """Return the look's question about sizes; None without numbers."""
        numbers = self.layout.numbers
        if not numbers:
            return None
        return MagnitudeCounts(sigma=self.sigma(self.share("look") / 2), columns=len(numbers), bins=SIZE_BINS)

    def integer_question(self) -> None:
        """Return None: numbers are looked at by cells and sizes, integers among them."""

    def value_question(self) -> None:
        """Return None: categories are counted value by value, as frequencies."""

    def product_question(self) -> None:
        """Return None: a description has no products."""

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
        """Return all questions in their order; learned values have placeholders, as many as there may be."""
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
        layout = self.layout
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
                # Brackets may share edges later: a real question has no more edges than these.
                edges = len(layout.quantiles) * (cells + 1)
                axes = [Axis(column=at, edges=_placeholders(edges)) for at in layout.numbers]
                yield "quantiles", self.counts("quantiles", [Partition(axes=(axis,)) for axis in axes], part)

    def _summed(self) -> Iterator[CutSums | CutProducts | InfluenceSquares]:
        """Yield the questions for sums."""
        numbers = self.layout.numbers
        if "means" in self.layout.asked():
            yield self.sums([SplitCut(column=at, centre=0.5, reach=0.5, rest=1.0) for at in numbers])
        if "correlations" in self.layout.asked():
            yield self.products([Cut(column=at, centre=0.5, reach=0.5) for at in numbers])
            pairs = len(numbers) * (len(numbers) - 1) // 2
            standard = [StandardCut(column=at, centre=0.5, reach=0.5, mean=0.0, deviation=1.0) for at in numbers]
            yield self.influences(standard, (0.0,) * pairs)

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return each question's event, in order; learned values change a question's cells, never its price."""
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
