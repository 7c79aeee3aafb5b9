"""Integers of few values: counted one by one where a plan says so, priced as asked, looked at as numbers where not."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter

from benchmarks.trust.jobs import TERMS, trained
from core.base.errors import Invalid
from core.data.columns import BinaryColumn, CategoryColumn, Column, IntegerColumn, NumberColumn
from core.inference.checks import Checks
from core.methods.fits import iterate
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.models.modelling import encoded_loss
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.planning.job import JobSpec, PlannedSpec
from core.planning.planner import PlannedJob, plan_job, read_planned
from core.privacy.events import Gaussian, compose
from core.privacy.facts import Adjacency
from core.queries.sums import make_problem
from tests.methods.test_whitened_newton import Noting
from tests.support.problems import repeatable_generator

UNITS = 3000
COLUMNS: tuple[Column, ...] = (
    IntegerColumn(name="item", lower=1, upper=5),
    NumberColumn(name="x", lower=-5, upper=5),
    IntegerColumn(name="month", lower=1, upper=12, centre=3),
    IntegerColumn(name="visits", lower=0, upper=64),
    BinaryColumn(name="two", values=("no", "yes")),
)
TARGETS: dict[str, Column] = {
    "logistic": BinaryColumn(name="y", values=("no", "yes")),
    "poisson": IntegerColumn(name="y", lower=0, upper=50),
    "linear": NumberColumn(name="y", lower=-20, upper=20),
    "multinomial": CategoryColumn(name="y", values=("a", "b", "c")),
}
every = pytest.mark.parametrize("kind", TARGETS)


def plan(kind: str = "logistic", mu: float = 1.0, *, crossed: bool = False, **settings: object) -> PlannedJob:
    model: dict[str, Any] = {"kind": kind, "target": "y"} | ({"interactions": [["item", "two"]]} if crossed else {})
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_" + "0" * 26,
            "model": model,
            "optimizer": {"kind": "whitened_newton", **settings},
            "privacy": {"mu": str(mu)},
        }
    )
    columns = (*COLUMNS, TARGETS[kind])
    return plan_job(spec, columns=columns, units=UNITS, adjacency=Adjacency.ZERO_OUT, terms=TERMS)


def settings_of(planned: PlannedJob) -> WhitenedNewtonPlan:
    assert isinstance(planned.spec.optimizer, WhitenedNewtonPlan)
    return planned.spec.optimizer


def records(kind: str, planned: PlannedJob) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, Any]]:
    draws = np.random.default_rng(4)
    values = {
        "item": np.where(draws.random(UNITS) < 0.9, 5, draws.integers(1, 5, UNITS)),
        "x": draws.normal(size=UNITS),
        "month": draws.integers(1, 13, UNITS),
        "visits": draws.poisson(2, UNITS),
        "two": draws.integers(0, 2, UNITS),
    }
    predictor = 0.3 * (values["item"] - 5) + 0.5 * values["x"]
    features = np.empty((UNITS, planned.design.dimension))
    floats = {name: one if name == "two" else one.astype(float) for name, one in values.items()}
    planned.design.encode_columns(floats, features)
    target = {
        "logistic": (draws.random(UNITS) < 1 / (1 + np.exp(-predictor))).astype(float),
        "poisson": draws.poisson(np.exp(predictor)).astype(float),
        "linear": (predictor + draws.normal(size=UNITS)) / 20,
        "multinomial": draws.integers(0, 3, UNITS).astype(float),
    }[kind]
    return features, target, values


def oracle(planned: PlannedJob, features: NDArray[np.float64], target: NDArray[np.float64]) -> FullOracle:
    model: Any = planned.spec.model
    problem = make_problem(
        torch.from_numpy(features.copy()),
        torch.from_numpy(target),
        torch.ones(UNITS, dtype=torch.bool),
        encoded_loss(model, planned.design),
        model.weights,
    )
    priced = CountingFilter(compose({one: planned.schedule.count(one) for one in planned.schedule}))
    return FullOracle(problem, planned.facts, priced, repeatable_generator())


@every
def test_it_asks_what_was_priced_in_that_order_and_spends_all_of_it(kind: str) -> None:
    planned = plan(kind)
    settings = settings_of(planned)
    assert (settings.numbers, settings.few_valued, settings.two_valued) == (2, (5, 12), 1)
    noting = Noting(oracle(planned, *records(kind, planned)[:2]))
    iterate(settings, noting)  # type: ignore[arg-type] # it passes everything else on
    assert [one.event() for one in noting.questions] == list(planned.schedule)
    assert [one.kind for one in noting.questions] == [one.kind for one in settings.questions()]
    pairs = zip(noting.questions, settings.questions(), strict=True)
    assert all(one.draws(9) <= planned.draws(9) for one, planned in pairs), "no answer draws more than planned"
    worth = sum(event.sigma**-2 for event in planned.schedule if isinstance(event, Gaussian))
    assert worth == pytest.approx(1.0, rel=1e-9), "mu is 1"
    shares = settings.column_shares()
    np.testing.assert_allclose(shares, np.array([2, 2, 1, 0, 0]) * settings.shares.look / 5)


def test_values_counted_once_more_for_free_would_be_refused() -> None:
    """Planted bug: the look asks for the integers' values twice."""
    planned = plan()
    first = oracle(planned, *records("logistic", planned)[:2])
    iterate(settings_of(planned), first)
    question = settings_of(planned).integer_question()
    assert question is not None
    with pytest.raises(AssertionError, match="never exceeds its price"):
        first.ask(question, torch.zeros(planned.facts.dimension).double())


@pytest.mark.parametrize("kind", ["logistic", "multinomial"])
def test_without_noise_it_learns_medians_and_second_moments_in_declared_units(kind: str) -> None:
    planned = plan(kind, mu=1e5)
    features, target, values = records(kind, planned)
    estimate = iterate(settings_of(planned), oracle(planned, features, target))[0]
    checks = estimate.checks
    assert isinstance(checks, Checks)
    for name, feature, column in zip(
        planned.design.names, planned.design.features, checks.learned.columns, strict=True
    ):
        if name in {"item", "month"}:
            centre = column.centre * feature.scale + feature.centre
            assert centre == pytest.approx(np.median(values[name]))
            moment = np.sqrt(((values[name] - centre) ** 2).mean())
            assert column.scale * feature.scale == pytest.approx(moment, rel=1e-3)
        if name == "visits":
            assert column.centre * feature.scale + feature.centre == pytest.approx(2, abs=1e-9), "rounded to an integer"


def test_ranges_say_how_many_values_there_are_and_where_zero_is() -> None:
    planned = plan(crossed=True)
    ranges = planned.facts.ranges
    assert ranges is not None
    assert ranges.kinds == ("constant", "few", "number", "few", "number", "two", "product")
    assert ranges.values == (0, 5, 0, 12, 65, 0, 0), "a product is any number"
    assert ranges.few == (5, 12)
    assert ranges.step(3) * 11 == pytest.approx(ranges.upper[3] - ranges.lower[3])
    assert ranges.factors == ((), (), (), (), (), (), (1, 5))
    np.testing.assert_allclose(ranges.origin, planned.design.to_declared()[0][0])
    alone = plan()
    assert alone.facts.ranges is not None
    matrix, _ = alone.design.to_declared()
    np.testing.assert_allclose(alone.facts.ranges.origin, matrix[0])
    assert alone.facts.ranges.origin[1] == pytest.approx((0 - 3) / 2)


def test_a_stored_plan_that_release_0_1_0_made_counts_integers_as_numbers() -> None:
    planned = plan()
    stored = planned.spec.model_dump(mode="json")
    del stored["optimizer"]["few_valued"]
    stored["optimizer"]["numbers"] = 4
    again = read_planned(
        TypeAdapter(PlannedSpec).validate_python(stored),
        columns=(*COLUMNS, TARGETS["logistic"]),
        units=UNITS,
        adjacency=Adjacency.ZERO_OUT,
    )
    settings, ranges = settings_of(again), again.facts.ranges
    assert ranges is not None
    assert ranges.kinds == ("constant", "number", "number", "number", "number", "two")
    assert settings.integer_question() is None
    np.testing.assert_allclose(settings.column_shares(), np.array([4, 0, 1, 0, 0]) * settings.shares.look / 5)
    estimate = trained(again, *records("logistic", again)[:2])
    assert estimate.checks is not None


def test_a_plan_is_read_as_it_was_stored() -> None:
    planned = plan()
    spec = PlannedSpec.model_validate_json(planned.spec.model_dump_json())
    columns = (*COLUMNS, TARGETS["logistic"])
    assert read_planned(spec, columns=columns, units=UNITS, adjacency=Adjacency.ZERO_OUT) == planned


@pytest.mark.parametrize("wrong", [{"numbers": 4}, {"few_valued": [5]}, {"few_valued": [5, 13]}, {"two_valued": 0}])
def test_counts_of_columns_that_are_not_declared_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Invalid, match=f"/optimizer/{next(iter(wrong))}"):
        plan(**wrong)


def test_integers_may_be_looked_at_as_numbers() -> None:
    planned = plan(few_valued=[])
    assert settings_of(planned).numbers == 4
    assert trained(planned, *records("logistic", planned)[:2]).checks is not None
