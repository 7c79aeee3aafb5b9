"""The service without the optional package `public_planner`: one route fewer, and everything else as it was."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from farthing import Client, FarthingError
from tests.api.test_plans import FIGURES
from tests.support.api import Service, job, running, submit, upload


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("bare"), module="tests.support.api_without_public_planner") as found:
        yield found


def document(service: Service) -> dict[str, Any]:
    found: dict[str, Any] = service.client().get("/openapi.json").json()
    return found


def test_the_route_is_not_there(bare: Service) -> None:
    answer = bare.client().post("/v1/plans", json=FIGURES)
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


def test_the_client_says_so(bare: Service) -> None:
    with Client(bare.url, bare.key) as client, pytest.raises(FarthingError) as refused:
        client.plan(FIGURES)
    assert refused.value.code == "not-found"


def test_everything_else_is_there(bare: Service, service: Service) -> None:
    whole, without = document(service), document(bare)
    assert whole["paths"].keys() - without["paths"].keys() == {"/v1/plans"}
    assert without["paths"] == {path: kept for path, kept in whole["paths"].items() if path != "/v1/plans"}


def test_a_job_is_estimated_submitted_and_planned_as_ever(bare: Service, admin: httpx.Client, dataset: str) -> None:
    client = bare.client()
    wanted = job(str(upload(client)["id"]))
    estimate = client.post("/v1/estimates", json=wanted)
    assert estimate.status_code == 200, estimate.text
    beside = admin.post("/v1/estimates", json=job(dataset))
    assert estimate.json()["cost"] == beside.json()["cost"]
    accepted = submit(client, wanted)
    assert accepted.status_code == 202, accepted.text
    assert client.get(f"/v1/jobs/{accepted.json()['id']}").json()["state"] == "queued"
