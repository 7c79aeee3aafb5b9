"""Predictions of an estimate, and the other way round: goals, as they cross the wire."""

from typing import Any

import httpx
import pytest

from core.inference.settings import UNCHECKED
from tests.support.api import job


def told(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/v1/estimates", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def without_privacy(dataset: str, **changes: Any) -> dict[str, Any]:
    return {name: value for name, value in job(dataset, **changes).items() if name != "privacy"}


def test_widths_are_predicted_beside_those_without_privacy(admin: httpx.Client, dataset: str) -> None:
    found = told(admin, job(dataset, mu="2"))
    assert found["goal"] is None
    prediction = found["prediction"]
    assert prediction["level"] == 0.95
    assert len(prediction["coefficients"]) == found["coefficients"]
    for one in prediction["coefficients"]:
        assert set(one) == {"name", "width", "nonprivate_width", "ratio", "lowest", "highest"}
        assert one["ratio"] == pytest.approx(one["width"] / one["nonprivate_width"])
    assert set(prediction["useful_from"]) == {"mu", "units"}
    assert told(admin, job(dataset, mu="2", inference={"intervals": False}))["prediction"] is None


def test_what_is_assumed_moves_a_prediction_and_is_no_part_of_a_plan(admin: httpx.Client, dataset: str) -> None:
    usual, rare = told(admin, job(dataset, mu="2")), told(admin, job(dataset, mu="2", assume={"base_rate": 0.05}))
    assert rare["plan"] == usual["plan"]
    first, other = (found["prediction"]["coefficients"][0]["nonprivate_width"] for found in (usual, rare))
    assert other > 1.5 * first


def test_a_goal_without_a_target_is_answered_by_the_smallest_job(admin: httpx.Client, dataset: str) -> None:
    wanted = told(admin, job(dataset, mu="2"))["prediction"]["coefficients"][1]
    goal = {"width": {"coefficient": wanted["name"], "at_most": wanted["width"]}}
    found = told(admin, without_privacy(dataset) | {"goal": goal})
    assert found["goal"]["met"] is True
    assert float(found["goal"]["mu"]) == pytest.approx(2.0, rel=0.05)
    assert found["cost"]["mu"] == found["goal"]["mu"], "the cost is that job's"
    assert found["goal"]["predicted"] == found["prediction"]["coefficients"][1]["width"] <= wanted["width"]
    again = told(admin, job(dataset, mu=found["goal"]["mu"]))
    assert again["plan"] == found["plan"], "it can be submitted as it is"
    assert again["fits"] == found["fits"]


def test_unchecked_intervals_are_refused_unless_accepted_and_then_said(admin: httpx.Client, dataset: str) -> None:
    wrong = admin.post("/v1/estimates", json=job(dataset) | {"inference": {}})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/inference/accept_unchecked")
    assert "set it to true" in wrong.json()["errors"][0]["detail"]
    assert told(admin, job(dataset))["notes"] == [UNCHECKED]
    assert told(admin, job(dataset, inference={"intervals": False}))["notes"] == []


def test_steps_are_those_of_the_plan_that_reaches_the_goal(admin: httpx.Client, dataset: str) -> None:
    method = {"kind": "noisy_gd"}
    steps = [told(admin, job(dataset, mu=mu, optimizer=method))["steps"] for mu in ("1", "9")]
    assert steps[0] != steps[1]
    wanted = told(admin, job(dataset, mu="9", optimizer=method))["prediction"]["coefficients"][1]
    goal = {"width": {"coefficient": wanted["name"], "at_most": wanted["width"]}}
    found = told(admin, without_privacy(dataset, optimizer=method) | {"goal": goal})
    assert found["steps"] == found["plan"]["steps"] != steps[0]


def test_a_goal_beside_a_target_tells_how_many_units_it_takes(admin: httpx.Client, dataset: str) -> None:
    wanted = told(admin, job(dataset, mu="1"))["prediction"]["coefficients"][1]
    goal = {"width": {"coefficient": wanted["name"], "at_most": wanted["width"] / 3}}
    found = told(admin, job(dataset, mu="1", goal=goal))
    assert found["cost"]["mu"] == "1"
    assert found["goal"]["met"] is False
    assert found["goal"]["units"] > found["rows"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({}, "/privacy"),
        ({"goal": {"width": {"coefficient": "nothing", "at_most": 1}}}, "/goal/width/coefficient"),
        ({"goal": {"width": {"coefficient": "intercept", "at_most": 1e-9}}}, "/goal/width/at_most"),
        ({"goal": {"width": {"coefficient": "intercept", "at_most": 0}}}, "/goal/width/at_most"),
        ({"goal": {"width": {"coefficient": "intercept"}}}, "/goal/width/at_most"),
        ({"goal": {"gradient_norm": 1}}, "/goal/gradient_norm"),
        ({"goal": {}}, "/goal"),
        ({"goal": {"excess_risk": {"at_most": 0.1}}}, "/goal/excess_risk"),
        ({"privacy": {"mu": "1"}, "assume": {"deviations": {"nothing": 1}}}, "/assume/deviations/nothing"),
    ],
)
def test_what_cannot_be_answered_is_named(
    admin: httpx.Client, dataset: str, changes: dict[str, Any], pointer: str
) -> None:
    answer = admin.post("/v1/estimates", json=without_privacy(dataset) | changes)
    assert answer.status_code == 422, answer.text
    assert pointer in {one["pointer"] for one in answer.json()["errors"]}


def test_goals_are_for_estimates_and_no_job_has_one(admin: httpx.Client, dataset: str) -> None:
    goal = {"width": {"coefficient": "intercept", "at_most": 1}}
    answer = admin.post("/v1/jobs", json=job(dataset, goal=goal), headers={"Idempotency-Key": "a-goal"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/goal"


def test_an_estimate_whose_forecast_is_remembered_shows_the_budget_as_it_is_now(
    admin: httpx.Client, dataset: str
) -> None:
    first = told(admin, job(dataset, mu="0.05"))
    assert (
        admin.post("/v1/jobs", json=job(dataset, mu="0.05"), headers={"Idempotency-Key": "spends"}).status_code == 202
    )
    second = told(admin, job(dataset, mu="0.05"))
    assert second["prediction"] == first["prediction"]
    assert second["jobs_that_still_fit"] < first["jobs_that_still_fit"]


PLAIN = {"kind": "logistic", "target": "y"}
RIDGE = {**PLAIN, "ridge": 0.05}
SPIDER = {"kind": "kl_spider", "variant": "calibrated"}
ADAPTIVE = {"kind": "adaptive_gd", "condition": {"gamma": 3.0, "kappa": 2}}
NONE = {"intervals": False}


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [(RIDGE, SPIDER), (PLAIN, ADAPTIVE), (RIDGE, {"kind": "adaptive_gd"})],
    ids=["spider", "adaptive", "adaptive with a ridge"],
)
def test_a_wanted_excess_risk_is_answered_by_the_smallest_job(
    admin: httpx.Client, dataset: str, model: dict[str, Any], optimizer: dict[str, Any]
) -> None:
    body = without_privacy(dataset, model=model, optimizer=optimizer, inference=NONE)
    found = told(admin, body | {"goal": {"excess_risk": {"at_most": 0.1}}})
    assert found["goal"]["met"] is True
    assert 0.09 < found["goal"]["predicted"] <= 0.1
    assert found["goal"]["predicted"] == found["bound"]["value"] == found["excess"]["value"]
    again = told(admin, body | {"privacy": {"mu": found["goal"]["mu"]}})
    assert again["plan"] == found["plan"], "it can be submitted as it is"
    less = told(admin, body | {"privacy": {"mu": f"{0.97 * float(found['goal']['mu']):.6g}"}})
    assert less["bound"]["value"] > 0.1
    assert found["excess"]["lower"]["value"] < 0.1 < found["excess"]["trivial"]


def test_a_wanted_excess_beside_a_target_tells_how_many_units_it_takes(admin: httpx.Client, dataset: str) -> None:
    body = job(dataset, mu="6", model=PLAIN, optimizer=ADAPTIVE, inference=NONE)
    found = told(admin, body | {"goal": {"excess_risk": {"at_most": 0.1}}})
    assert found["goal"]["met"] is False
    assert found["goal"]["units"] > found["rows"]
    assert float(found["goal"]["mu"]) > 6
    regimes = found["excess"]["regimes"]
    assert max(regimes.values()) == found["bound"]["value"]
    assert regimes["noise_on_norms"] > regimes["noise_on_gradients"], "three parameters are few"


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"optimizer": {"kind": "adaptive_gd"}}, "/optimizer/condition"),
        ({"optimizer": {"kind": "noisy_gd"}}, "/goal/excess_risk"),
        ({"optimizer": {"kind": "kl_spider"}}, "/optimizer/condition"),
        ({"optimizer": {"kind": "kl_spider", "condition": {"gamma": 1, "kappa": 3}}}, "/optimizer/condition/kappa"),
        ({"optimizer": {"kind": "proximal_point"}, "model": RIDGE}, "/goal/excess_risk/at_most"),
        ({"inference": {"intervals": True}, "model": RIDGE, "optimizer": SPIDER}, "/inference/intervals"),
    ],
)
def test_an_excess_risk_that_no_plan_has_is_refused_with_its_field(
    admin: httpx.Client, dataset: str, changes: dict[str, Any], pointer: str
) -> None:
    body = without_privacy(dataset, model=PLAIN, inference=NONE) | changes
    answer = admin.post("/v1/estimates", json=body | {"goal": {"excess_risk": {"at_most": 0.1}}})
    assert answer.status_code == 422, answer.text
    assert pointer in {one["pointer"] for one in answer.json()["errors"]}


def test_a_regime_in_which_nothing_is_promised_is_refused_with_the_ways_out(admin: httpx.Client, dataset: str) -> None:
    body = job(dataset, mu="0.1", model=RIDGE, optimizer={"kind": "kl_spider"}, inference=NONE)
    answer = admin.post("/v1/estimates", json=body)
    assert answer.status_code == 422
    assert "trivial_regime" in answer.json()["detail"]
    assert {one["pointer"] for one in answer.json()["errors"]} >= {"/privacy", "/optimizer/variant", "/optimizer/kind"}


@pytest.mark.parametrize(
    "optimizer",
    [
        {"kind": "kl_spider", "condition": {"gamma": 1e-300, "kappa": 1.9}, "force": True},
        {"kind": "proximal_point", "condition": {"gamma": 1e-300, "kappa": 3}, "clip": 1e-30},
    ],
    ids=["spider", "proximal"],
)
@pytest.mark.parametrize("goal", [None, {"excess_risk": {"at_most": 0.1}}], ids=["job", "goal"])
def test_figures_that_no_schedule_can_be_computed_with_are_named(
    admin: httpx.Client, dataset: str, optimizer: dict[str, Any], goal: dict[str, Any] | None
) -> None:
    body = job(dataset, mu="0.01", model=PLAIN, optimizer=optimizer, inference=NONE)
    answer = admin.post("/v1/estimates", json=body | ({} if goal is None else {"goal": goal}))
    assert answer.status_code == 422, answer.text
    assert any(one["pointer"].startswith("/optimizer") for one in answer.json()["errors"]), answer.text
