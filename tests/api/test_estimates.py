"""What an estimate predicts, and the other way round: goals, as they cross the wire."""

from typing import Any

import httpx
import pytest

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
        assert set(one) == {"name", "width", "nonprivate_width", "ratio"}
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
        ({"goal": {"gradient_norm": 1}}, "/goal/width"),
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
