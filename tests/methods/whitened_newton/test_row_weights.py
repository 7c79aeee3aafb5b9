"""The row weights' t: it grows by public figures, and a job settles it by what it learned."""

from decimal import Decimal
from math import sqrt
from typing import Any

import pytest

from core.data.columns import BinaryColumn, NumberColumn
from core.methods.m_estimation.whitened_newton.row_weights import grown, least, settled, weight_bound_for
from core.methods.m_estimation.whitened_newton.shares import MOST_WEIGHT_GROWTH, SPARED_HESSIAN_NOISE, SPARED_NOISE
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.facts import Adjacency

TERMS = plan_orders(Decimal(8), Decimal("1e-7"))
NUMBERS = tuple(NumberColumn(name=name, type="number", lower=-5, upper=5) for name in "abcde")
KINDS = {
    "logistic": BinaryColumn(name="y", type="binary", values=("no", "yes")),
    "linear": NumberColumn(name="y", type="number", lower=-20, upper=20),
    "poisson": NumberColumn(name="y", type="number", lower=0, upper=50),
}
LEAST = sqrt(1.3 * 6 + 1)


def plan(kind: str, units: int, mu: str = "1", adjacency: Adjacency = Adjacency.ZERO_OUT, **given: Any) -> PlannedJob:
    """Return a planned job of five numbers."""
    asked = {"kind": "whitened_newton"} | given
    model = {"kind": kind, "target": "y"}
    spec = JobSpec.model_validate(
        {"dataset": "ds_" + "0" * 26, "model": model, "optimizer": asked, "privacy": {"mu": Decimal(mu)}}
    )
    return plan_job(spec, columns=(*NUMBERS, KINDS[kind]), units=units, adjacency=adjacency, terms=TERMS)


def settings(planned: PlannedJob) -> WhitenedNewtonPlan:
    found = planned.spec.optimizer
    assert isinstance(found, WhitenedNewtonPlan)
    return found


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_t_grows_with_records_and_budget_between_two_limits(kind: str) -> None:
    poor, rich, richer = (settings(plan(kind, units)).weight_bound for units in (500, 20_000, 10**7))
    assert poor == pytest.approx(LEAST)
    assert LEAST < rich < richer == pytest.approx(LEAST * sqrt(MOST_WEIGHT_GROWTH))
    assert settings(plan(kind, 50_000, "0.05")).weight_bound == pytest.approx(LEAST)
    assert settings(plan(kind, 20_000, "0.9", Adjacency.REPLACE_ONE)).weight_bound < rich


def test_counts_and_sampling_weights_keep_the_least_t() -> None:
    assert settings(plan("poisson", 10**7)).weight_bound == pytest.approx(LEAST)
    rich = plan("logistic", 50_000)
    weighted = settings(rich).model_copy(update={"weighted": True, "weight_bound": LEAST, "least_weight_bound": None})
    assert grown(weighted, rich.facts).weight_bound == pytest.approx(LEAST)


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_the_price_is_that_of_the_least_t(kind: str) -> None:
    usual = plan(kind, 50_000)
    assert settings(usual).weight_bound > LEAST
    assert plan(kind, 50_000, weight_bound=LEAST).schedule == usual.schedule


def test_a_given_t_and_a_stored_one_stay() -> None:
    given = settings(plan("logistic", 50_000, weight_bound=7.0))
    assert (given.weight_bound, given.least_weight_bound) == (7.0, None)
    planned = plan("logistic", 50_000)
    stored = settings(planned).model_dump(mode="json")
    del stored["least_weight_bound"]  # as release 0.1.0 wrote it
    before = WhitenedNewtonPlan.model_validate(stored)
    assert settled(before, planned.facts, 0.001, 1.0).weight_bound == before.weight_bound


def test_rare_outcomes_and_far_bounds_settle_for_less() -> None:
    planned = plan("logistic", 50_000)
    own = settings(planned)
    even, rare = (weight_bound_for(own, planned.facts, c, 1.0) for c in (0.2125, 0.02))
    assert LEAST < rare < even == pytest.approx(own.weight_bound)
    _, private = own.variances(planned.facts, 0.02, 1.0)
    entry = own.hessian_noise(planned.facts, 0.02) / (2 * sqrt(6))
    assert private == pytest.approx(SPARED_NOISE, rel=0.2)
    assert entry == pytest.approx(SPARED_HESSIAN_NOISE), "the tighter of both limits"
    squares = plan("linear", 50_000)
    assert weight_bound_for(settings(squares), squares.facts, 1.0, 80.0) == pytest.approx(LEAST)
    assert least(settings(squares)).weight_bound == pytest.approx(LEAST)
    assert settled(own, planned.facts, 0.02, 1.0).weight_bound == pytest.approx(rare)
