"""Plans of methods with rounds of escape: filled as jobs are, solved for what is left out, and never empty unsaid."""

from typing import Any

import pytest

from core.base.errors import Invalid
from core.methods.registry import SPECS
from core.methods.second_order.certify.spec import Certify
from core.methods.second_order.figures import known
from core.methods.second_order.gauss_psgd.spec import GaussPsgd
from core.privacy.conversions import gdp_mu
from core.privacy.facts import Adjacency, Facts
from public_planner.plans import REQUEST, plan
from public_planner.second_order import CertifyPlanRequest, EscapePlan, GaussPlanRequest

KNOWN = {"smoothness": 6.03, "hessian_smoothness": 6.6, "spread": 0.77, "difference_spread": 2.4}
FIGURES: dict[str, Any] = {
    "kind": "certify",
    "units": 10_000_000,
    "dimension": 20,
    "gradient_bound": 3.971,
    "epsilon": "1",
    "delta": "1e-5",
    "settings": KNOWN,
}


def told(**changes: Any) -> EscapePlan:
    found = plan(REQUEST.validate_python({**FIGURES, **changes}))
    assert isinstance(found, EscapePlan)
    return found


@pytest.mark.parametrize("kind", ["gauss_psgd", "certify"])
def test_a_plan_is_what_a_job_would_run(kind: str) -> None:
    found = told(kind=kind)
    facts = Facts(units=10_000_000, dimension=20, adjacency=Adjacency.REPLACE_ONE, gradient_bound=3.971)
    assert found.settings is not None
    request = REQUEST.validate_python({**FIGURES, "kind": kind})
    assert isinstance(request, GaussPlanRequest | CertifyPlanRequest)
    again = request.settings.plan(facts, gdp_mu(1, 1e-5))
    assert found.settings == again.model_dump(mode="json")
    assert found.alpha == found.figures["alpha"] == 4 * found.settings["error_radius"]
    assert (found.vacuous, found.because, found.confidence) == (False, None, None), "no theorem covers calibrated ones"
    assert 0.999 < float(found.privacy.epsilon_spent) <= 1
    assert found.solved is None


SPREAD_OUT = {"smoothness": 8.53, "hessian_smoothness": 12.0, "spread": 0.3, "difference_spread": 2.0}
"""Of squares of a margin: records differ far more in how they bend than in how steep they are."""


@pytest.mark.parametrize("kind", ["gauss_psgd", "certify"])
@pytest.mark.parametrize("preset", [{"preset": "strict"}, {"preset": "fast", "escape_distance": 0.1}], ids=str)
def test_where_sampling_dominates_a_round_goes_as_far_as_it_may_on_one_fresh_gradient(
    kind: str, preset: dict[str, Any]
) -> None:
    """Where the noise of both is equal, no round could: it would take several, which nothing is left for."""
    facts = {"units": 200_000, "dimension": 2, "gradient_bound": 2**0.5, "epsilon": "10"}
    found = told(kind=kind, **facts, settings={**SPREAD_OUT, **preset})
    settings = SPECS.validate_python(found.settings)
    assert isinstance(settings, GaussPsgd | Certify)
    errors = settings.errors(Facts(units=200_000, dimension=2, adjacency=Adjacency.REPLACE_ONE, gradient_bound=2**0.5))
    walk = known(settings.escape_distance) ** 2 / known(settings.round_steps)
    assert errors.balanced_drift() < walk / 5
    assert settings.restart_drift == pytest.approx(errors.even_drift())
    assert known(settings.restart_drift) > walk / 3
    assert errors.size(known(settings.restart_drift)) == pytest.approx(2**0.5 * errors.size(0.0))


def test_elsewhere_fresh_gradients_are_asked_where_the_noise_of_both_is_equal() -> None:
    settings = SPECS.validate_python(told().settings)
    assert isinstance(settings, Certify)
    errors = settings.errors(
        Facts(units=10_000_000, dimension=20, adjacency=Adjacency.REPLACE_ONE, gradient_bound=3.971)
    )
    assert settings.restart_drift == pytest.approx(errors.balanced_drift())
    assert known(settings.restart_drift) > known(settings.escape_distance) ** 2 / known(settings.round_steps)
    assert errors.balanced_drift() < errors.even_drift()


def test_a_certificate_alone_takes_fewer_units_than_a_descent_to_it() -> None:
    alone, whole = told(), told(kind="gauss_psgd")
    assert alone.alpha is not None
    assert whole.alpha is not None
    assert alone.alpha < whole.alpha


@pytest.mark.parametrize(("kind", "units"), [("certify", 6_613_994), ("gauss_psgd", 43_406_235)])
def test_the_units_that_a_certificate_and_a_descent_to_it_take(kind: str, units: int) -> None:
    """For alpha = .1, as the page about second-order points has it."""
    found = told(kind=kind, units=None, find="units", target=0.1)
    assert found.solved is not None
    assert found.solved.units == pytest.approx(units, rel=0.005), "the search's own step"


@pytest.mark.parametrize(
    ("hole", "less"), [("units", 0.99), ("epsilon", 0.99), ("spread", 1.01)], ids=["units", "epsilon", "spread"]
)
def test_what_is_found_is_enough_and_a_little_less_is_not(hole: str, less: float) -> None:
    open_spread = {"settings": {name: value for name, value in KNOWN.items() if name != "spread"}}
    asked: dict[str, Any] = open_spread if hole == "spread" else {hole: None}
    found = told(find=hole, target=0.5, **asked)
    assert found.solved is not None
    assert found.alpha is not None
    assert found.alpha <= 0.5
    value = float(getattr(found.solved, hole)) * less
    near: dict[str, Any] = {"epsilon": f"{value:.8f}", "units": int(value), "settings": {**KNOWN, "spread": value}}
    other = told(**{name: near[name] for name in (["settings"] if hole == "spread" else [hole])})
    assert other.alpha is None or other.alpha > 0.5


GRADIENT: dict[str, Any] = {"units": 20_000, "settings": {"claims": "gradient"}}


def test_a_gradient_alone_is_planned_and_solved_for() -> None:
    """As the page about planning has it: the solution is enough, and one unit in a hundred less is not."""
    found = told(**GRADIENT)
    assert found.alpha == found.figures["tolerance"]
    assert (found.vacuous, found.confidence, found.privacy.compositions) == (False, 0.95, 1)
    for hole in ("units", "epsilon", "spread"):
        less = told(**GRADIENT | ({} if hole == "spread" else {hole: None}), find=hole, target=0.1)
        assert less.alpha is not None
        assert 0.099 < less.alpha <= 0.1 or hole == "spread"
    solved = told(**GRADIENT | {"units": None}, find="units", target=0.01).solved
    assert solved is not None
    assert solved.units == pytest.approx(944_985, rel=0.005)
    few = told(**GRADIENT | {"units": 3})
    assert few.vacuous
    assert "from about 22 units on" in str(few.because)
    with pytest.raises(Invalid) as refused:
        told(settings={"claims": "gradient", "smoothness": 1.0})
    assert [one.pointer for one in refused.value.fields] == ["/settings/smoothness"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"units": 2000}, "allow no second-order claim"),
        ({"settings": {**KNOWN, "mode": "theory", "start_gap": 1.0}}, "theory's own parameters cannot be run"),
        ({"kind": "gauss_psgd", "settings": {**KNOWN, "estimator": "period"}}, "no rounds of escape"),
    ],
)
def test_a_plan_that_allows_no_claim_says_why(changes: dict[str, Any], said: str) -> None:
    found = told(**changes)
    assert found.vacuous
    assert found.alpha is None
    assert said in str(found.because)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"units": None}, "/units"),
        ({"epsilon": None}, "/epsilon"),
        ({"find": "units", "target": 0.5}, "/units"),
        ({"find": "spread", "target": 0.5}, "/settings/spread"),
        ({"target": 0.5}, "/target"),
        ({"epsilon": None, "find": "epsilon", "target": 1e-9}, "/target"),
        ({"settings": {"smoothness": 6.03}}, "/settings/hessian_smoothness"),
        ({"settings": {**KNOWN, "preset": "fast"}}, "/settings/escape_distance"),
        ({"delta": "0.9"}, "/delta"),
        ({"epsilon": "1000"}, "/epsilon"),
        (
            {"kind": "gauss_psgd", "settings": {**KNOWN, "estimator": "period"}, "units": None, "find": "units"}
            | {"target": 1},
            "/find",
        ),
    ],
)
def test_what_cannot_be_planned_is_named(changes: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        told(**changes)
    assert refused.value.fields[0].pointer == pointer
