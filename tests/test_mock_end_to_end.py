"""A mock job through the whole service: admitted, queued, claimed, trained and read; no record, key, scope or charge."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.embedded import LOGISTIC, Embedded

WORDS = "Mock: trained on rows drawn from the declaration; says nothing about the data."


def mock(service: Embedded, dataset: str, key: str | None = None, **body: Any) -> httpx.Response:
    """Post a mock job."""
    base = {"dataset": dataset, "model": LOGISTIC, "optimizer": {"kind": "noisy_newton"}, "privacy": {"mu": "0.5"}}
    headers = {"Idempotency-Key": key or uuid4().hex}
    return service.http.post("/v1/mock-jobs", json={**base, **body}, headers=headers)


def test_a_mock_job_runs_the_whole_path_and_charges_nothing(service: Embedded) -> None:
    dataset = service.upload()
    before = service.get(f"/v1/datasets/{dataset}/budget")
    answer = mock(service, dataset, labels={"name": "practice"})
    assert answer.status_code == 202, answer.text
    view = answer.json()
    assert (view["mock"], view["scope"], view["mock_rows"], view["state"]) == (True, None, 2000, "queued")
    job = service.wait(view["id"])
    assert job["state"] == "succeeded", (job, (service.home / "stderr.txt").read_text()[-3000:])
    assert service.get(f"/v1/datasets/{dataset}/budget") == before
    model = job["result"]["model"]
    summary = service.get(f"/v1/models/{model}/summary")
    print(summary)
    assert summary["mock"] is True
    assert summary["notes"][0] == WORDS
    assert summary["methods"].startswith(WORDS)
