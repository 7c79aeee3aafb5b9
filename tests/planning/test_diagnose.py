"""Figures that a plan cannot compute with: at least one is named, each is in the body, and without them it works."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from core.base.errors import Refusal
from core.planning.diagnose import figures_at_fault
from core.planning.job import JobSpec
from core.planning.planner import plan_job
from core.privacy.facts import Adjacency
from tests.planning.test_planning import COLUMNS, TERMS
from tests.support.unchecked import accepting


def fails(spec: JobSpec) -> bool:
    try:
        plan_job(spec, columns=COLUMNS, units=5000, adjacency=Adjacency.REPLACE_ONE, terms=TERMS)
    except (ValidationError, ArithmeticError):
        return True
    except Refusal:
        return False
    return False


def job(**changes: Any) -> dict[str, Any]:
    base = {"model": {"kind": "logistic", "target": "y"}, "optimizer": {"kind": "noisy_gd"}, "privacy": {"mu": "0.5"}}
    return accepting(base | changes)


LINEAR = {"kind": "linear", "target": "income", "features": ["age"]}
TINY, HUGE = 5e-324, 1.7e308


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        (job(model={"kind": "logistic", "target": "y", "weights": {"bound": HUGE}}), ["/model/weights/bound"]),
        (job(model={**LINEAR, "loss": {"c": 2.0, "scale": TINY}}), ["/model/loss/scale"]),
        (job(model={**LINEAR, "loss": {"kind": "smoothed_huber", "c": 2.0, "scale": TINY}}), ["/model/loss/scale"]),
        (job(model={**LINEAR, "loss": {}, "weights": {"kind": "schweppe", "bound": HUGE}}), ["/model/weights/bound"]),
        (job(optimizer={"kind": "noisy_gd", "mu": TINY, "steps": 5}), ["/optimizer/mu"]),
        (job(optimizer={"kind": "noisy_newton", "curvature_share": TINY}), ["/optimizer/curvature_share"]),
    ],
)
def test_the_figure_at_fault_is_named(body: dict[str, Any], pointers: list[str]) -> None:
    spec = JobSpec.model_validate(body)
    assert fails(spec)
    assert [field.pointer for field in figures_at_fault(spec, fails)] == pointers


EXTREME = st.sampled_from([TINY, 1e-300, 1e-150, 1e-12, 0.3, 1.0, 1e6, 1e150, 1e300, HUGE])
FIGURE = st.sampled_from(["1e-99", "1e-50", "1e-12", "0.001", "1", "50", "99"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


SHARE = st.sampled_from([TINY, 1e-200, 0.5, 0.9999999999999999])
POWER = st.sampled_from([1, 2, 3])
SCALED = {"c": EXTREME, "scale": EXTREME}
LOSSES = st.one_of(
    some(**SCALED),
    some(**SCALED, joint=st.just(True), scale_floor=EXTREME),
    some(**SCALED, h=EXTREME, kind=st.just("smoothed_huber")),
    *(some(**SCALED).map(lambda one, kind=kind: {"kind": kind} | one) for kind in ("pseudo_huber", "geman_mcclure")),
    some(**SCALED).map(lambda one: {"kind": "cauchy"} | one),
    some(amplitude=st.sampled_from([TINY, 0.5, 1 - 2**-53])).map(lambda one: {"kind": "sine_link"} | one),
)
PHASE = {"kind": "phase_retrieval", "target": "income", "features": ["age"]}
WEIGHTS = st.one_of(
    some(bound=EXTREME, power=POWER),
    some(bound=EXTREME).map(lambda one: {"kind": "schweppe"} | one),
    some(bound=EXTREME).map(lambda one: {"kind": "clip"} | one),
)
BODIES = st.fixed_dictionaries(
    {
        "model": some(weights=WEIGHTS, loss=LOSSES, ridge=st.sampled_from([TINY, 0.1, 1e6])).map(
            lambda one: LINEAR | one
        )
        | some(weights=some(bound=EXTREME)).map(lambda one: {"kind": "logistic", "target": "y"} | one)
        | some(weights=some(bound=EXTREME, power=POWER), loss=some(cap=EXTREME, c=EXTREME)).map(
            lambda one: {"kind": "poisson", "target": "income", "features": ["age"]} | one
        )
        | some(weights=some(bound=EXTREME)).map(lambda one: {"kind": "multinomial", "target": "job"} | one)
        | some(weights=some(bound=EXTREME), loss=some(cap=EXTREME)).map(lambda one: PHASE | one),
        "privacy": st.builds(
            lambda name, figure: {name: figure}, st.sampled_from(["mu", "rho", "budget_share"]), FIGURE
        ),
        "optimizer": some(
            steps=st.sampled_from([1, 2, 20_000]),
            step_size=EXTREME,
            radius=EXTREME,
            start=st.sampled_from(["random", [HUGE], [1e-300]]),
        ).map(lambda one: {"kind": "noisy_gd"} | one)
        | some(
            steps=st.sampled_from([1, 2, 20_000]),
            damping=st.sampled_from([TINY, 1e-9, 1.0]),
            curvature_share=SHARE,
            last_gradient_share=SHARE,
            eigenvalue_floor=EXTREME,
            radius=EXTREME,
        ).map(lambda one: {"kind": "noisy_newton"} | one),
        "inference": some(
            intervals=st.booleans(),
            curvature_floor=EXTREME,
            score_floor=EXTREME,
            shares=SHARE.map(lambda one: {"estimate": 1 - one, "curvature": one / 2, "score": one / 2}),
        ),
    }
)


@given(body=BODIES)
@settings(max_examples=150, deadline=None)
def test_what_is_named_is_in_the_body_and_the_rest_can_be_planned(body: dict[str, Any]) -> None:
    try:
        spec = JobSpec.model_validate(body)
    except ValidationError:
        return  # shares that do not sum to one
    if not fails(spec):
        return
    named = figures_at_fault(spec, fails)
    assert named
    for field in named:
        place: Any = body
        *way, last = field.pointer.split("/")[1:]
        for name in way:
            place = place[name]
        if way == ["privacy"]:
            body["privacy"] = {"mu": "1"}
        else:
            del place[last]
    assert not fails(JobSpec.model_validate(body))
