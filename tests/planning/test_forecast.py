"""Goals: the smallest privacy target or number of units for a width, and from where on a job is useful."""

import re
from dataclasses import replace
from decimal import Decimal
from math import log
from statistics import fmean
from typing import Any

import pytest

from core.base.errors import Invalid
from core.models.outlook import RESIDUALS_BEYOND, Signal
from core.planning.forecast import CLOSE, Asker, Goal, WantedExcess, WantedWidth, forecast, reach
from core.planning.job import JobSpec
from core.privacy.facts import Adjacency
from tests.planning.test_planning import COLUMNS, TERMS
from tests.support.unchecked import accepting


def asker(units: int = 5000, **changes: Any) -> Asker:
    body = {
        "model": {"kind": "logistic", "target": "y"},
        "optimizer": {"kind": "noisy_newton"},
        "privacy": {"mu": "0.5"},
    } | changes
    return Asker(JobSpec.model_validate(accepting(body)), COLUMNS, units, Adjacency.ZERO_OUT, TERMS)


def width(job: Asker, name: str = "age") -> float:
    found = job.attempt()
    assert found is not None
    return next(one.width for one in found if one.name == name)


def goal(at_most: float, coefficient: str = "age") -> WantedWidth:
    return WantedWidth(coefficient=coefficient, at_most=at_most)


@pytest.mark.parametrize("optimizer", [{"kind": "noisy_newton"}, {"kind": "noisy_gd", "steps": 60}])
@pytest.mark.parametrize("times", [1.5, 3.0])
def test_the_smallest_target_predicts_what_is_wanted_and_a_smaller_one_does_not(
    optimizer: dict[str, Any], times: float
) -> None:
    job = asker(optimizer=optimizer)
    wanted = times * width(job.worth(1000.0))
    planned, found = reach(job, goal(wanted), privacy_given=False)
    assert found.met
    assert found.mu is not None
    assert found.predicted <= wanted
    assert found.predicted == pytest.approx(wanted, rel=0.05)
    assert planned.spec.privacy.mu == Decimal(found.mu)
    assert width(job.worth(float(found.mu))) == found.predicted, "it can be asked for as it is"
    assert width(job.worth(float(found.mu) / CLOSE**2)) > wanted


def test_the_smallest_number_of_units_is_found_at_a_given_target() -> None:
    job = asker()
    wanted = width(job) / 2
    planned, found = reach(job, goal(wanted), privacy_given=True)
    assert planned == job.plan(), "the job as it was asked for is shown"
    assert not found.met
    assert found.units is not None
    assert found.units > 5000
    assert width(replace(job, units=found.units)) <= wanted < width(replace(job, units=int(found.units / CLOSE**2)))


def test_what_is_reached_with_fewer_units_says_so() -> None:
    job = asker()
    _, found = reach(job, goal(2 * width(job)), privacy_given=True)
    assert found.met
    assert found.units is not None
    assert found.mu is not None
    assert found.units < 5000
    assert float(found.mu) < 0.5


def test_where_sampling_alone_is_wider_no_budget_helps_and_it_is_said_how_many_units_would() -> None:
    job = asker()
    wanted = 0.9 * width(job.worth(9999.0))
    with pytest.raises(Invalid, match="no privacy target reaches it") as refusal:
        reach(job, goal(wanted), privacy_given=False)
    assert [field.pointer for field in refusal.value.fields] == ["/goal/width/at_most"]
    _, found = reach(job, goal(wanted), privacy_given=True)
    assert found.mu is None
    assert found.units is not None
    assert found.units > 5000 / 0.9**2 * 0.99


@pytest.mark.parametrize(
    ("changes", "wanted", "pointer"),
    [
        ({}, goal(0.1, "nothing"), "/goal/width/coefficient"),
        ({"inference": {"intervals": False}}, goal(0.1), "/goal/width"),
    ],
)
def test_goals_that_no_plan_has_are_named(changes: dict[str, Any], wanted: WantedWidth, pointer: str) -> None:
    with pytest.raises(Invalid) as refusal:
        reach(asker(**changes), wanted, privacy_given=False)
    assert [field.pointer for field in refusal.value.fields] == [pointer]


def test_a_forecast_says_from_where_on_a_job_is_useful() -> None:
    job = asker()
    found = forecast(job, job.plan())
    assert found is not None
    assert found.useful_from.mu is not None
    assert found.useful_from.units is not None

    def ratio(other: Asker) -> float:
        widths = other.attempt()
        assert widths is not None
        return fmean(log(one.ratio) for one in widths)

    for at in (job.worth(float(found.useful_from.mu)), replace(job, units=found.useful_from.units)):
        assert ratio(at) <= log(2)
        assert ratio(at) == pytest.approx(log(2), abs=0.1)
    assert [one.name for one in found.coefficients] == ["intercept", "age", "income", "job[b]", "job[c]"]
    assert all(one.ratio >= 1 for one in found.coefficients)
    assert found.spread == ("age", "income")
    known = asker(assume={"deviations": {"age": 10.0}})
    told = forecast(known, known.plan())
    assert told is not None
    assert told.spread == ("income",)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ({"kind": "multinomial", "target": "job"}, ("b: intercept", "b: age", "c: intercept", "c: age")),
        ({"kind": "poisson", "target": "income", "loss": {"cap": 10}}, ("intercept", "age")),
        ({"kind": "linear", "target": "income"}, ("intercept", "age")),
        ({"kind": "linear", "target": "income", "loss": {"joint": True}}, ("intercept", "age")),
        (
            {"kind": "linear", "target": "income", "loss": {"kind": "huber"}, "weights": {"kind": "schweppe"}},
            ("intercept", "age"),
        ),
        ({"kind": "linear", "target": "income", "loss": {"kind": "log_cosh"}}, ("intercept", "age")),
    ],
)
@pytest.mark.parametrize("kind", ["noisy_gd", "noisy_newton"])
def test_every_model_has_a_forecast(model: dict[str, Any], names: tuple[str, ...], kind: str) -> None:
    job = asker(20_000, model=model | {"features": ["age"]}, optimizer={"kind": kind}, privacy={"mu": "2"})
    found = forecast(job, job.plan())
    assert found is not None
    assert [one.name for one in found.coefficients] == list(names)
    assert all(1 <= one.ratio < 100 for one in found.coefficients)


def squares(units: int = 5000, **changes: Any) -> Asker:
    body = {"model": {"kind": "linear", "target": "income"}, "optimizer": {"kind": "whitened_newton"}}
    return asker(units, **body | {"assume": {"residual_scale": 500.0}} | changes)


def test_least_squares_says_what_its_targets_bounds_cost_and_which_would_be_cheap() -> None:
    """The bound that it names makes intervals 1.5 times as wide, by the formula of the plan."""
    job = squares()
    cost, cheaper = job.price_notes(job.plan())
    assert "residuals deviate by 500 (as assumed)" in cost
    within = float(re.findall(r"Bounds within ([\d,.]+) of", cheaper)[0].replace(",", ""))
    plan = job.plan()
    assert plan.spec.optimizer.widening_by(Signal(1.0, within / 500 + RESIDUALS_BEYOND), plan.facts) == pytest.approx(
        1.5, abs=0.01
    )
    assert "No bounds would cost 1.5 times" in squares(200).price_notes(squares(200).plan())[1]
    light = squares(optimizer={"kind": "whitened_newton", "tails": "assumed_light"})
    assert light.price_notes(light.plan())[0].startswith("Assumed: no record lies beyond")
    robust = squares(model={"kind": "linear", "target": "income", "loss": {"kind": "huber"}})
    assert robust.price_notes(robust.plan()) == []
    counted, assumed = (one.attempt() for one in (job, light))
    assert counted is not None
    assert assumed is not None
    assert counted[0].width > 1.05 * assumed[0].width


def test_tails_are_of_least_squares() -> None:
    job = squares(
        model={"kind": "linear", "target": "income", "loss": {"kind": "huber"}},
        optimizer={"kind": "whitened_newton", "tails": "assumed_light"},
    )
    with pytest.raises(Invalid) as caught:
        job.plan()
    assert [one.pointer for one in caught.value.fields] == ["/optimizer/tails"]


def test_jobs_without_intervals_have_none() -> None:
    job = asker(inference={"intervals": False})
    assert forecast(job, job.plan()) is None


@pytest.mark.parametrize("wanted", [{}, {"width": goal(1.0), "excess_risk": WantedExcess(at_most=1.0)}])
def test_a_goal_is_one_thing(wanted: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give one of width, effect and excess_risk"):
        Goal(**wanted)
