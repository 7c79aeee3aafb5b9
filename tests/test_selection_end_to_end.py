"""Models are trained on one dataset and one is selected on others, through HTTP: priced, charged, linked, reported."""

from typing import Any

import pytest

from tests.support.bank_jobs import brier, release_of, succeed, succeed_together, summary_of, upload
from tests.support.embedded import Embedded

pytestmark = pytest.mark.slow
"""The quick variant is `tests/methods/test_select_model.py`: the same settings, oracles and method."""

MODEL = brier("age", "duration", "campaign", "housing")
COMMON: dict[str, Any] = {"model": MODEL, "inference": {"intervals": False}, "privacy": {"mu": "0.5"}}
SELECT = {"kind": "select_model", "alpha": 0.02, "gamma_star": 0.05}


@pytest.fixture(scope="module")
def seen(service: Embedded) -> str:
    return upload(service)


@pytest.fixture(scope="module")
def held_out(service: Embedded) -> str:
    return upload(service)


@pytest.fixture(scope="module")
def models(service: Embedded, seen: str) -> list[str]:
    """One that has hardly left zero, where the gradient is long, and two trained to the end."""
    runs = ({"steps": 1, "step_size": 1e-6}, {"steps": 200}, {"steps": 300})
    jobs = [succeed(service, seen, **COMMON, optimizer={"kind": "noisy_gd", **run}) for run in runs]
    return [job["result"]["model"] for job in jobs]


def quote(service: Embedded, **body: Any) -> Any:
    return service.http.post("/v1/estimates", json={**COMMON, **body})


@pytest.mark.parametrize("mode", ["sound", "printed", "hessian_products", "above_threshold", "exponential"])
def test_a_candidate_is_returned_unchanged_and_charged_as_quoted(
    service: Embedded, held_out: str, models: list[str], mode: str
) -> None:
    about = {"dataset": held_out, "models": models, "optimizer": {**SELECT, "mode": mode}}
    answer = quote(service, **about)
    assert answer.status_code == 200, answer.text
    quoted = answer.json()
    figures = quoted["plan"]["figures"]
    assert figures["gamma_star_trivial"] > 0
    if mode in {"sound", "printed", "hessian_products"}:
        assert figures["gradient_tolerance"] > 0 < figures["curvature_noise_norm"]
    else:
        assert figures["slack_of_gradient"] > 0
    done = succeed(service, held_out, **COMMON, models=models, optimizer={**SELECT, "mode": mode})
    assert done["models"] == models
    spent, reserved = (done["cost"][name]["budget_share"] for name in ("spent", "reserved"))
    assert 0 < float(spent) <= float(reserved) == pytest.approx(float(quoted["cost"]["budget_share"]))
    release = release_of(service, done)
    found = release["error_bound"]["selection"]
    assert found["chosen"] in {1, 2}, found
    chosen = service.get(f"/v1/models/{models[found['chosen']]}")["release"]
    assert release["theta"] == chosen["theta"]
    assert release["error_bound"]["models"] == models
    assert (release["error_bound"]["value"] is None) == (mode in {"printed", "exponential"})
    assert f"number {found['chosen']}, counted from 0, was selected" in summary_of(service, done)


def test_none_passes_and_the_release_says_so(service: Embedded, held_out: str, models: list[str]) -> None:
    done = succeed(service, held_out, **COMMON, models=models[:1], optimizer=SELECT)
    release = release_of(service, done)
    assert release["status"] == "none"
    assert release["error_bound"]["selection"]["chosen"] is None
    assert not any(release["theta"])
    assert float(done["cost"]["spent"]["budget_share"]) < float(done["cost"]["reserved"]["budget_share"]), (
        "one gradient alone"
    )
    assert "none passed" in summary_of(service, done)


@pytest.mark.parametrize(
    ("change", "pointer", "said"),
    [
        ({"optimizer": {**SELECT, "alpha": None}}, "/optimizer/alpha", "required"),
        ({"optimizer": {**SELECT, "gamma_star": None}}, "/optimizer/gamma_star", "hessian_smoothness"),
        ({"optimizer": {**SELECT, "candidates": 7}}, "/optimizer/candidates", "3 points"),
        ({"models": []}, "/models", "select_model"),
        ({"optimizer": {**SELECT, "mode": "above_threshold", "epsilon": 9.0}}, "/optimizer/epsilon", "target"),
    ],
    ids=str,
)
def test_what_cannot_be_selected_is_refused_by_name(
    service: Embedded, held_out: str, models: list[str], change: dict[str, Any], pointer: str, said: str
) -> None:
    answer = quote(service, **({"dataset": held_out, "models": models, "optimizer": SELECT} | change))
    assert answer.status_code == 422, answer.text
    assert [pointer] == [one["pointer"] for one in answer.json()["errors"]]
    assert said in answer.text


def test_records_that_the_models_have_seen_are_refused(service: Embedded, seen: str, models: list[str]) -> None:
    answer = quote(service, dataset=seen, models=models, optimizer=SELECT)
    assert answer.status_code == 422, answer.text
    assert "has not seen" in answer.text


def test_clients_select_together_and_scores_are_for_one_of_them(
    service: Embedded, held_out: str, models: list[str]
) -> None:
    datasets = [held_out, upload(service)]
    refused = quote(
        service, federation={"datasets": datasets}, models=models, optimizer={**SELECT, "mode": "above_threshold"}
    )
    assert refused.status_code == 422, refused.text
    assert "from one side only" in refused.text
    done = succeed_together(service, datasets, **COMMON, models=models, optimizer=SELECT)
    release = release_of(service, done)
    found = release["error_bound"]["selection"]
    assert found["chosen"] in {1, 2}
    assert release["theta"] == service.get(f"/v1/models/{models[found['chosen']]}")["release"]["theta"]
    assert release["optimizer"] == "select_model"
