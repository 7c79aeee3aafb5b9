"""Plans over HTTP: from public figures to a run, or to the figure that was left out; wrong figures named."""

import time
from typing import Any

import httpx
import pytest

from tests.support.api import Service

FIGURES: dict[str, Any] = {
    "kind": "clipped_sgd",
    "problem": "convex",
    "units": 1_000_000,
    "dimension": 10,
    "smoothness": 1,
    "distance": 1,
    "moments": [{"order": 1.5, "size": 0.01}],
    "epsilon": "2",
    "delta": "1e-7",
}


def told(client: httpx.Client, **changes: Any) -> dict[str, Any]:
    answer = client.post("/v1/plans", json={**FIGURES, **changes})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refused(client: httpx.Client, body: dict[str, Any]) -> tuple[int, str, str]:
    answer = client.post("/v1/plans", json=body)
    problem = answer.json()
    return answer.status_code, problem["code"], problem["errors"][0]["pointer"]


def test_a_plan_tells_the_run_what_is_certified_of_it_and_what_it_costs(admin: httpx.Client) -> None:
    found = told(admin)
    assert found["object"] == "plan"
    assert found["certified_bound"] == max(found["terms"].values()) < found["trivial_bound"] == 0.5
    assert found["trained_by"] == "certified_clipped_sgd"
    assert found["privacy"]["adjacency"] == "zero_out"
    assert found["privacy"]["delta"] == "1e-7"
    assert 1.999 < float(found["privacy"]["epsilon_spent"]) <= 2
    assert found["assumptions"]
    assert all(cap is None or cap >= found["step_size"] for cap in found["caps"].values())


def test_caps_that_limit_nothing_are_null_and_no_infinity(admin: httpx.Client) -> None:
    found = told(admin, epsilon=None, delta=None)
    assert found["caps"]["noise_drift"] is None
    assert found["privacy"] is None
    assert found["noise"] == 0


def test_the_same_figures_have_the_same_plan_and_leave_nothing_behind(admin: httpx.Client) -> None:
    before = [admin.get(path).json() for path in ("/v1/jobs", "/v1/datasets")]
    assert told(admin) == told(admin)
    assert [admin.get(path).json() for path in ("/v1/jobs", "/v1/datasets")] == before
    assert admin.post("/v1/plans", json=FIGURES).status_code == 200, "no Idempotency-Key is asked for"


def test_what_is_left_out_is_found(admin: httpx.Client) -> None:
    figures = {name: value for name, value in FIGURES.items() if name != "units"}
    answer = admin.post("/v1/plans", json={**figures, "find": "units", "target": 0.1})
    found = answer.json()
    assert found["solved"] == {"target": 0.1, "units": found["units"], "epsilon": None, "sigma": None}
    assert found["certified_bound"] <= 0.1
    assert told(admin, units=found["units"])["certified_bound"] == found["certified_bound"]


def test_an_answer_comes_within_seconds_for_the_largest_grid_there_may_be(admin: httpx.Client) -> None:
    """About one where the machine has nothing else to do, of the scheme whose prices take longest."""
    steps = [10, 100, 1000, 10_000, 100_000, 200_000, 300_000, 400_000]
    fractions = [0.001 * 1.3**place for place in range(12)]
    started = time.monotonic()
    told(admin, scheme="fixed_batch", batch_fractions=fractions, steps=steps)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("changes", "status", "code", "pointer"),
    [
        ({"problem": "strongly_convex"}, 422, "invalid-request", "/problem"),
        ({"distance": None}, 422, "invalid-request", "/distance"),
        ({"moments": []}, 422, "invalid-request", "/moments"),
        ({"moments": [{"order": 1.0, "size": 1}]}, 422, "invalid-request", "/moments/0/order"),
        ({"moments": [{"order": 1.5, "size": -1}]}, 422, "invalid-request", "/moments/0/size"),
        ({"smoothness": 0}, 422, "invalid-request", "/smoothness"),
        ({"beta": 0}, 422, "invalid-request", "/beta"),
        ({"epsilon": 2}, 422, "invalid-request", "/epsilon"),
        ({"epsilon": "0"}, 422, "invalid-request", "/epsilon"),
        ({"delta": None}, 422, "invalid-request", "/delta"),
        ({"batches": [10**7]}, 422, "invalid-request", "/batches/0"),
        ({"steps": [100]}, 422, "invalid-request", "/steps"),
        ({"clips": [1.0] * 65}, 422, "invalid-request", "/clips"),
        ({"lambda": 4}, 422, "invalid-request", "/lambda"),
        ({"find": "epsilon"}, 422, "invalid-request", "/epsilon"),
        ({"proxy": {"gradients": [[1.0], [2.0]], "factors": [[1.0], [2.0, 3.0]]}}, 422, "invalid-request", "/proxy"),
        ({"adjacency": "add_remove"}, 422, "adjacency-mismatch", "/adjacency"),
        ({"output": "last"}, 422, "not-offered-yet", "/output"),
        (
            {"scheme": "poisson", "batches": list(range(1, 17)), "steps": list(range(1, 17))},
            422,
            "invalid-request",
            "/batches",
        ),
    ],
)
def test_wrong_figures_are_named(
    admin: httpx.Client, changes: dict[str, Any], status: int, code: str, pointer: str
) -> None:
    assert refused(admin, {**FIGURES, **changes}) == (status, code, pointer)


@pytest.mark.parametrize("figure", [1e-30, 1e30])
@pytest.mark.parametrize("certificate", ["refined", "paper", "order"])
def test_extreme_figures_have_a_plan_or_a_refusal(admin: httpx.Client, figure: float, certificate: str) -> None:
    for changes in (
        {"smoothness": figure},
        {"distance": figure},
        {"moments": [{"order": 1.0000001, "size": figure}]},
        {"clips": [figure]},
        {"smoothness": figure, "distance": 1 / figure, "clips": [figure]},
    ):
        answer = admin.post("/v1/plans", json={**FIGURES, **changes, "certificate": certificate})
        assert answer.status_code in {200, 422}, answer.text


def test_whoever_plans_has_a_key(service: Service) -> None:
    assert httpx.post(f"{service.url}/v1/plans", json=FIGURES).status_code == 401


ESCAPE: dict[str, Any] = {
    "kind": "certify",
    "units": 10_000_000,
    "dimension": 20,
    "gradient_bound": 3.971,
    "epsilon": "1",
    "delta": "1e-5",
    "settings": {"smoothness": 6.03, "hessian_smoothness": 6.6, "spread": 0.77, "difference_spread": 2.4},
}


def test_certificates_are_planned_too_and_empty_ones_say_so(admin: httpx.Client) -> None:
    answer = admin.post("/v1/plans", json=ESCAPE)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["kind"], found["vacuous"]) == ("certify", False)
    assert found["alpha"] < found["trivial"]
    assert admin.post("/v1/plans", json=ESCAPE | {"units": 2000}).json()["vacuous"] is True
    assert refused(admin, ESCAPE | {"settings": {"smoothness": "a"}})[2] == "/settings/smoothness"
    assert refused(admin, ESCAPE | {"units": None})[2] == "/units"
    assert refused(admin, ESCAPE | {"kind": "other"})[2] == "/kind"
    gradient = admin.post("/v1/plans", json=ESCAPE | {"settings": {"claims": "gradient"}}).json()
    assert (gradient["vacuous"], gradient["confidence"]) == (False, 0.95)
    assert gradient["alpha"] == gradient["figures"]["tolerance"] < found["alpha"]
