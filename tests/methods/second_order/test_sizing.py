"""Jobs of which nothing is said but the model and the privacy: figures that lead down, or what would be needed."""

import re
from decimal import Decimal
from typing import Any

import pytest

from core.base.errors import Invalid
from core.data.columns import BinaryColumn, Column, NumberColumn
from core.methods.second_order.check_bound.spec import CheckBoundPlan
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.facts import Adjacency

TERMS = plan_orders(Decimal(100), Decimal("1e-6"))
COLUMNS: tuple[Column, ...] = (
    NumberColumn(name="a", lower=-1, upper=1),
    NumberColumn(name="b", lower=-1, upper=1),
    NumberColumn(name="y", lower=0, upper=1),
    BinaryColumn(name="v", values=("no", "yes")),
)
SQUARES = {"kind": "phase_retrieval", "target": "y", "features": ["a", "b"]}
BRIER = {"kind": "logistic", "target": "v", "features": ["a", "b"], "loss": {"kind": "brier"}}
ROBUST = {"kind": "linear", "target": "y", "features": ["a", "b"], "loss": {"kind": "cauchy"}}


def planned(units: int, model: dict[str, Any], kind: str = "gauss_psgd", epsilon: str = "1", **more: Any) -> PlannedJob:
    body = {
        "dataset": "ds_records",
        "model": model,
        "inference": {"intervals": False},
        "privacy": {"epsilon": epsilon},
        "optimizer": {"kind": kind, **more},
        "models": ["mdl_one"] if kind == "check_bound" else [],
    }
    spec = JobSpec.model_validate(body)
    return plan_job(spec, columns=COLUMNS, units=units, adjacency=Adjacency.REPLACE_ONE, terms=TERMS)


def settings_of(job: PlannedJob) -> GaussPsgdPlan | CheckBoundPlan:
    assert isinstance(job.spec.optimizer, GaussPsgdPlan | CheckBoundPlan)
    return job.spec.optimizer


def test_phase_retrieval_is_planned_from_nothing() -> None:
    """It starts at random, rho is the loss's, and a fresh gradient for each step down leaves the certificate paid."""
    job = planned(1_000_000, SQUARES)
    settings = settings_of(job)
    assert (settings.start, settings.preset) == ("random", "curved")
    assert settings.hessian_smoothness == pytest.approx(6 * 1.3247179572 * 2**1.5), "m^3 - m = 1, |x|^2 = 2"
    figures = settings.figures(job.facts)
    assert figures["gamma_star_trivial"] == pytest.approx(2.0), "the largest target times |x|^2"
    assert settings.sharpest() < 2.0
    steps, fresh = settings.descent(job.facts)
    assert fresh == steps
    assert 2 * settings.phase_units() + fresh * settings.batch <= 1_000_000
    assert figures["units_of_a_descent"] == fresh * settings.batch
    again = plan_job(job.spec, columns=COLUMNS, units=1_000_000, adjacency=Adjacency.REPLACE_ONE, terms=TERMS)
    assert again == job, "a planned job stays as it is"


def test_where_zero_has_a_slope_it_is_the_start() -> None:
    assert settings_of(planned(4_000_000, BRIER)).start == "zeros"


@pytest.mark.parametrize("model", [BRIER, ROBUST], ids=["brier", "cauchy"])
def test_a_released_model_of_a_loss_that_bends_down_is_certified_without_constants(model: dict[str, Any]) -> None:
    job = planned(4_000_000, model, "check_bound")
    settings = settings_of(job)
    assert settings.sharpest() < (job.facts.weak_convexity or 0), "no more than the loss bends down anyway"


def test_what_is_refused_says_how_many_units_would_do() -> None:
    with pytest.raises(Invalid, match="allow no second-order claim") as refused:
        planned(50_000, SQUARES)
    needed = [float(text) for text in re.findall(r"about ([0-9.e+]+) units would do", refused.value.detail)]
    assert len(needed) == 2, "by strict figures and by curved ones"
    settings = settings_of(planned(round(1.03 * min(needed)), SQUARES))
    assert settings.preset == "curved"
    with pytest.raises(Invalid):
        planned(round(0.8 * min(needed)), SQUARES)


@pytest.mark.parametrize(("epsilon", "said"), [("1", "no target is enough"), ("0.01", "raise the target")])
def test_whether_less_noise_would_do_is_said(epsilon: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        planned(50_000 if epsilon == "1" else 400_000, SQUARES, epsilon=epsilon)
    assert said in {field.pointer: field.detail for field in refused.value.fields}["/privacy"]


def test_a_preset_that_is_named_may_leave_less_room() -> None:
    assert settings_of(planned(130_000, SQUARES, preset="curved")).preset == "curved"
    with pytest.raises(Invalid):
        planned(130_000, SQUARES)


def test_convex_losses_are_told_to_declare_what_nobody_needs_there() -> None:
    with pytest.raises(Invalid) as refused:
        planned(1_000_000, {**BRIER, "loss": {"kind": "logistic"}})
    assert [field.pointer for field in refused.value.fields] == ["/optimizer/hessian_smoothness"]
