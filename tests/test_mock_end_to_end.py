"""A mock job through the whole service: admitted, claimed, trained and read, without record, key, scope or charge."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.embedded import LINEAR, LOGISTIC, Embedded
from tests.support.unchecked import accepting

WORDS = "Mock: trained on rows drawn from the declaration; says nothing about the data."
NETWORK = {
    "model": {
        "kind": "network",
        "target": "y",
        "features": ["age", "balance"],
        "layers": [{"kind": "linear", "units": 4}, {"kind": "activation"}, {"kind": "linear", "units": 2}],
    },
    "optimizer": {"kind": "clipped_sgd", "steps": 5},
    "inference": {"intervals": False},
}
KINDS: dict[str, dict[str, Any]] = {
    "logistic": {"model": LOGISTIC, "optimizer": {"kind": "noisy_newton"}},
    "linear": {"model": LINEAR},
    "description": {"model": {"kind": "description"}, "optimizer": {"kind": "describe"}},
    "network": NETWORK,
}


def mock(service: Embedded, dataset: str, **body: Any) -> httpx.Response:
    """Post a mock job."""
    headers = {"Idempotency-Key": uuid4().hex}
    asked = accepting({"dataset": dataset, "privacy": {"mu": "0.5"}, **body})
    return service.http.post("/v1/mock-jobs", json=asked, headers=headers)


@pytest.fixture(scope="module")
def dataset(service: Embedded) -> str:
    return service.upload()


@pytest.mark.parametrize("kind", KINDS)
def test_a_mock_job_runs_the_whole_path_and_charges_nothing(service: Embedded, dataset: str, kind: str) -> None:
    before = service.get(f"/v1/datasets/{dataset}/budget")
    answer = mock(service, dataset, **KINDS[kind])
    assert answer.status_code == 202, answer.text
    view = answer.json()
    assert (view["mock"], view["scope"], view["mock_rows"], view["state"]) == (True, None, 2000, "queued")
    job = service.wait(view["id"])
    assert job["state"] == "succeeded", job
    assert service.get(f"/v1/datasets/{dataset}/budget") == before
    lines = service.get(f"/v1/jobs/{view['id']}/events")["data"]
    assert [line["kind"] for line in lines if line["kind"] != "progress"] == ["queued", "running", "succeeded"]
    assert all(line["data"]["mock"] for line in lines)
    model = job["result"]["model"]
    assert model.startswith("mockmdl_")
    shown = service.get(f"/v1/models/{model}")
    assert (shown["mock"], shown["release"]["mock"], shown["job"]) == (True, True, view["id"])
    assert service.get(f"/v1/models/{model}/export")["released"]["mock"] is True
    summary = service.get(f"/v1/models/{model}/summary")
    assert summary["mock"] is True
    assert summary["title"].startswith("Mock: ")
    assert summary["notes"][0] == WORDS
    assert summary["methods"].startswith(WORDS)
    for form in ("text", "html"):
        text = service.http.get(f"/v1/models/{model}/summary", params={"format": form}).text
        assert f"Note: {WORDS}" in " ".join(text.split()), form
        assert "Mock: " in text[:3000], form
    report = service.get(f"/v1/jobs/{view['id']}/report")
    assert (report["mock"], report["scope"], report["ledger"]) == (True, None, None)
    assert float(report["privacy"]["promise"]["epsilon"]) > 0


def test_it_predicts_and_its_summary_has_intervals(service: Embedded, dataset: str) -> None:
    job = service.wait(mock(service, dataset, **KINDS["logistic"]).json()["id"])
    model = job["result"]["model"]
    rows = [{"age": 40, "job": "a"}]
    answer = service.http.post(f"/v1/models/{model}/predict", json={"rows": rows})
    assert 0 <= answer.json()["predictions"][0]["probability"] <= 1, answer.text
    assert answer.json()["mock"] is True
    csv = {"Content-Type": "text/csv"}
    file = service.http.post(f"/v1/models/{model}/predict", content="age,job\n40,a\n", headers=csv)
    assert file.headers["Farthing-Mock"] == "true", file.text
    assert service.get(f"/v1/models/{model}/summary")["coefficients"][0]["interval"]
    again = service.wait(mock(service, dataset, **KINDS["logistic"]).json()["id"])["result"]["model"]
    assert service.get(f"/v1/models/{model}/compare/{again}")["relation"] == "different_people"
    for verdict in ("approve", "retract"):
        answer = service.http.post(f"/v1/models/{model}/{verdict}")
        assert answer.status_code in (403, 404), answer.text


def test_a_mock_model_is_compared_with_none_of_records(service: Embedded, dataset: str) -> None:
    made = service.wait(mock(service, dataset, **KINDS["logistic"]).json()["id"])["result"]["model"]
    real = service.wait(service.submit(dataset, privacy={"mu": "0.5"}))["result"]["model"]
    assert "mock" not in service.get(f"/v1/models/{real}")["release"]
    rows = [{"age": 40, "job": "a"}]
    assert service.http.post(f"/v1/models/{real}/predict", json={"rows": rows}).json()["mock"] is False
    for one, other in ((made, real), (real, made)):
        answer = service.http.get(f"/v1/models/{one}/compare/{other}")
        assert answer.status_code == 422, answer.text
        assert "made-up rows" in answer.json()["detail"]


def test_a_mock_job_can_be_followed_and_cancelled(service: Embedded, dataset: str) -> None:
    long = {**KINDS["logistic"], "optimizer": {"kind": "noisy_gd", "steps": 20_000}}
    made = mock(service, dataset, **long).json()["id"]
    service.wait_until(made, lambda view: view["state"] == "running")
    assert service.http.post(f"/v1/jobs/{made}/cancel").status_code == 200
    answer = service.http.get(f"/v1/jobs/{made}", headers={"Prefer": "wait=60"})
    assert answer.json()["state"] == "cancelled"


def test_a_running_mock_job_gives_way_to_a_job_of_records(service: Embedded, dataset: str) -> None:
    long = {**KINDS["logistic"], "optimizer": {"kind": "noisy_gd", "steps": 20_000}}
    made = mock(service, dataset, **long).json()["id"]
    service.wait_until(made, lambda view: view["state"] == "running")
    real = service.submit(dataset)
    assert service.wait(real)["state"] == "succeeded"
    service.http.post(f"/v1/jobs/{made}/cancel")
    assert service.wait(made)["state"] == "cancelled"
    kinds = [line["kind"] for line in service.get(f"/v1/jobs/{made}/events")["data"] if line["kind"] != "progress"]
    assert kinds[:3] == ["queued", "running", "queued"], kinds
