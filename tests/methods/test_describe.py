"""Describing columns: the questions are those that were priced, in that order, and no answer moves a price."""

from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from core.base.errors import Invalid
from core.data.columns import BinaryColumn, CategoryColumn, NumberColumn, Scalar
from core.mechanisms.generator import SystemGenerator
from core.methods.describe import fit as describe
from core.methods.describe.layout import make_layout
from core.methods.describe.spec import Describe, DescribePlan, DescribeShares
from core.models.description import DescriptionModel
from core.oracle import Answer
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.planning.describing import description_facts
from core.privacy.events import Event, compose
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Question
from core.queries.sums.table import TableProblem

COLUMNS: tuple[Scalar, ...] = (
    NumberColumn(name="a", lower=0, upper=10),
    CategoryColumn(name="b", values=("u", "v", "w")),
    NumberColumn(name="c", lower=-1000, upper=1000),
    BinaryColumn(name="d", values=("no", "yes")),
)
MODEL = DescriptionModel(
    statistics=("frequencies", "missing", "quantiles", "histograms", "means", "correlations"),
    tables=(("a", "b"), ("b", "d")),
)
UNITS = 500
every_adjacency = pytest.mark.parametrize("adjacency", list(Adjacency))


def planned(adjacency: Adjacency = Adjacency.ZERO_OUT, model: DescriptionModel = MODEL) -> tuple[DescribePlan, Facts]:
    public = description_facts(COLUMNS, UNITS, adjacency)
    return Describe(layout=make_layout(COLUMNS, model)).plan(public, 0.5), public


def problem(seed: int = 0) -> TableProblem:
    draws = torch.Generator().manual_seed(seed)
    values = torch.rand(UNITS, 4, generator=draws, dtype=torch.float64)
    values[:, 1], values[:, 3] = (values[:, 1] * 3).floor(), (values[:, 3] * 2).floor()
    values[values[:, 0] < 0.1, 0] = torch.nan
    return TableProblem(values, torch.ones(UNITS).bool())


class Listening(FullOracle):
    """The real oracle on a privacy filter that pays for a schedule and no more; keeps what it was asked."""

    def __init__(self, records: TableProblem, public: Facts, schedule: Sequence[Event]) -> None:
        priced = CountingFilter(compose(Counter(schedule)))
        super().__init__(records, public, priced, SystemGenerator())
        self.asked = list[Question]()

    def ask(self, question: Question, theta: torch.Tensor, other: torch.Tensor | None = None) -> Answer:
        self.asked.append(question)
        return super().ask(question, theta, other)


@every_adjacency
@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_asked_is_what_was_priced_in_that_order(adjacency: Adjacency, seed: int) -> None:
    settings, public = planned(adjacency)
    oracle = Listening(problem(seed), public, settings.schedule(public))
    describe.iterate(settings, oracle)
    assert [one.event() for one in oracle.asked] == list(settings.schedule(public))
    for asked, plan in zip(oracle.asked, settings.questions(), strict=True):
        assert asked.kind == plan.kind
        assert asked.sensitivity(public) <= plan.sensitivity(public)
        assert asked.draws(4) <= plan.draws(4), "as many numbers as were reserved, at most"


def test_the_shares_add_up_to_all_of_mu() -> None:
    settings, public = planned()
    spent = sum(event.sigma**-2 for event in settings.schedule(public))
    assert spent == pytest.approx(0.25)


def test_an_unpaid_look_is_refused() -> None:
    """Planted bug: a schedule without the look."""
    settings, public = planned()
    unpaid = list(settings.schedule(public))[17:]
    with pytest.raises(AssertionError, match="never exceeds its price"):
        describe.iterate(settings, Listening(problem(), public, unpaid))


def test_a_precise_answer_at_a_low_price_is_refused() -> None:
    """Planted bug: one answer asked with half of the noise that was paid for."""
    settings, public = planned()
    schedule = list(settings.schedule(public))
    louder = settings.model_copy(update={"mu": 1.0})
    with pytest.raises(AssertionError, match="never exceeds its price"):
        describe.iterate(louder, Listening(problem(), public, schedule))


def test_plans_are_of_public_facts_alone() -> None:
    first, second = planned()[0], planned()[0]
    assert first == second
    assert Counter(one.kind for one in first.questions())["table_counts"] == 4 + 6


@pytest.mark.parametrize(
    ("shares", "field"),
    [({"means": 1.0}, "look"), ({"look": 0.5, "frequencies": 0.5}, "frequencies"), ({"look": 1.0}, "means")],
)
def test_shares_that_do_not_fit_are_refused(shares: dict[str, float], field: str) -> None:
    layout = make_layout(COLUMNS[:1], DescriptionModel(statistics=("means",)))
    public = description_facts(COLUMNS[:1], UNITS, Adjacency.ZERO_OUT)
    with pytest.raises(Invalid) as refused:
        Describe(layout=layout, shares=DescribeShares(**shares)).plan(public, 1.0)
    assert f"/optimizer/shares/{field}" in {one.pointer for one in refused.value.fields}
