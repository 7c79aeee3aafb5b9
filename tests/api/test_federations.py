"""Federated jobs over HTTP: asked for, shown to each as much as is theirs, followed, cancelled and cloned."""

import json
from typing import Any
from uuid import uuid4

import httpx
import pytest

from farthing import Client
from tests.support.api import Service, job, submit, upload


def federated(names: list[str], quorum: int | None = None, **changes: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "federation": {"datasets": names, "quorum": quorum},
        "optimizer": {"kind": "clipped_sgd", "steps": 20},
        "inference": {"intervals": False},
    }
    body = job("ds_none", **(asked | changes))
    del body["dataset"]
    return body


@pytest.fixture(scope="module")
def owners(service: Service) -> list[httpx.Client]:
    return [service.someone("owner", f"owner {place}")[0] for place in range(2)]


@pytest.fixture(scope="module")
def names(owners: list[httpx.Client]) -> list[str]:
    return [str(upload(owner, shift, rows=200 + 100 * shift)["id"]) for shift, owner in enumerate(owners)]


def reserved(owner: httpx.Client, name: str) -> float:
    return float(owner.get(f"/v1/datasets/{name}/budget").json()["budget_share"]["reserved"])


def test_the_life_of_a_federated_job(
    service: Service, admin: httpx.Client, owners: list[httpx.Client], names: list[str]
) -> None:
    me = admin.get("/v1/me").json()["id"]
    for owner, name in zip(owners, names, strict=True):
        assert owner.put(f"/v1/datasets/{name}/access/{me}", json={"budget_cap": "all"}).status_code == 201
    told = admin.post("/v1/estimates", json=federated(names)).json()
    assert told["fits"]
    assert [client["plan"]["batch"] for client in told["sites"]] == [200, 300]
    key = uuid4().hex
    answer = submit(admin, federated(names, 1), key)
    assert answer.status_code == 202, answer.text
    made = answer.json()
    again = submit(admin, federated(names, 1), key)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json() == made
    for told_one, client in zip(told["sites"], made["federation"]["sites"], strict=True):
        assert client["cost"]["reserved"]["budget_share"] == told_one["cost"]["budget_share"]
        assert client["cost"]["delta"] == told_one["cost"]["delta"] == "1e-6"
    assert [client["scope"] for client in made["federation"]["sites"]] == [
        owner.get(f"/v1/datasets/{name}").json()["scope"] for owner, name in zip(owners, names, strict=True)
    ]
    paid = [reserved(owner, name) for owner, name in zip(owners, names, strict=True)]
    assert all(paid)

    listed = admin.get("/v1/jobs").json()["data"]
    assert [view["id"] for view in listed if view.get("federation")] == [made["id"]], "and none of its clients"
    found = admin.get("/v1/jobs", params={"federation": made["id"]}).json()["data"]
    clients = sorted(found, key=lambda view: int(view["federation"]["place"]))
    assert [view["dataset"] for view in clients] == names
    assert admin.get("/v1/jobs", params={"dataset": names[0]}).json()["data"] == clients[:1]

    seen = owners[0].get(f"/v1/jobs/{made['id']}").json()["federation"]["sites"]
    assert [client["dataset"] for client in seen] == [names[0], None]
    assert [client["scope"] for client in seen] == [clients[0]["scope"], None]
    assert [client["cost"] is None for client in seen] == [False, True]
    assert owners[0].get(f"/v1/jobs/{clients[1]['id']}").status_code == 404
    assert owners[0].post(f"/v1/jobs/{made['id']}/cancel").status_code == 403
    assert owners[0].post(f"/v1/jobs/{clients[0]['id']}/cancel").json()["state"] == "cancelled"
    waits = admin.get(f"/v1/jobs/{made['id']}").json()
    assert waits["state"] == "queued"
    assert [client["state"] for client in waits["federation"]["sites"]] == ["cancelled", "queued"]

    with Client(service.url, service.key) as sdk:
        assert sdk.cancel(made["id"]).state == "cancelled"
        ended = sdk.job(made["id"], wait_seconds=5)
        assert ended.federation is not None
        assert ended.cost is None
    lines = admin.get(f"/v1/jobs/{made['id']}/events", headers={"Accept": "text/event-stream"}).text
    kinds = [json.loads(line[6:])["kind"] for line in lines.splitlines() if line.startswith("data: ")]
    assert kinds == ["queued", "cancelled"]
    report = admin.get(f"/v1/jobs/{made['id']}/report").json()
    assert len({client["scope"] for client in report["sites"]}) == 2
    assert admin.get(f"/v1/jobs/{made['id']}/report", headers={"Accept": "text/html"}).status_code == 200
    clone = admin.post(f"/v1/jobs/{made['id']}/clone", headers={"Idempotency-Key": uuid4().hex}).json()
    assert [reserved(owner, name) for owner, name in zip(owners, names, strict=True)] == paid
    assert clone["optimizer"] == made["optimizer"]


def test_a_refusal_names_the_dataset_and_reserves_nothing(
    service: Service, owners: list[httpx.Client], names: list[str]
) -> None:
    before = [reserved(owner, name) for owner, name in zip(owners, names, strict=True)]
    analyst, made = service.someone("analyst")
    assert submit(analyst, federated(names)).json()["errors"][0]["pointer"] == "/federation/datasets/0"
    for owner, name in zip(owners, names, strict=True):
        owner.put(f"/v1/datasets/{name}/access/{made['principal']}", json={"budget_cap": "all"})
    answer = submit(analyst, federated(names, privacy={"budget_share": "1.00"}))
    assert answer.status_code in {403, 409}
    problem = answer.json()
    assert problem["errors"][0]["pointer"] == "/federation/datasets/0"
    assert names[0] in problem["detail"]
    assert {"required_budget_share", "available_budget_share", "fits_at_mu"} <= problem.keys()
    with Client(service.url, service.key) as sdk:
        asked = job(names[0], optimizer={"kind": "noisy_newton"})
        with pytest.raises(Exception, match="cannot do that"):
            sdk.submit(asked, datasets=names, quorum=2)
    assert [reserved(owner, name) for owner, name in zip(owners, names, strict=True)] == before


@pytest.mark.parametrize(
    "broken",
    [
        {"datasets": ["ds_1"]},
        {"datasets": ["ds_1", "ds_1"]},
        {"datasets": ["ds_1", "ds_2"], "quorum": 3},
        {"datasets": ["ds_1", "ds_2"], "quorum": 0},
        {"datasets": ["ds_1", "ds_2"], "places": 2},
    ],
)
def test_a_federation_that_cannot_be_is_no_request(admin: httpx.Client, broken: dict[str, Any]) -> None:
    answer = submit(admin, federated([], federation=broken))
    assert answer.status_code == 422
    assert all(error["pointer"].startswith("/federation") for error in answer.json()["errors"]), answer.text
