"""Offers say what still fits, at the price that an estimate has, for the caller's own cap, from public facts alone."""

import time
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from farthing import Client
from farthing.cli import app
from tests.support.api import Service, metadata, submit, upload


@pytest.fixture(scope="module")
def owned(service: Service) -> tuple[httpx.Client, dict[str, Any], dict[str, Any]]:
    owner, made = service.someone("owner")
    return owner, made, upload(owner, rows=2000)


def offers(client: httpx.Client, dataset: str) -> dict[str, Any]:
    answer = client.get(f"/v1/datasets/{dataset}/offers")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_each_kind_is_offered_at_the_price_of_its_estimate(
    owned: tuple[httpx.Client, dict[str, Any], dict[str, Any]],
) -> None:
    owner, _, dataset = owned
    found = offers(owner, dataset["id"])
    assert [(one["kind"], one["epsilon"]) for one in found["offers"]] == [
        (kind, epsilon) for kind in ("logistic", "linear", "description", "network") for epsilon in ("0.1", "0.5", "1")
    ]
    for one in found["offers"]:
        estimate = owner.post("/v1/estimates", json=one["request"])
        assert estimate.status_code == 200, estimate.text
        told = estimate.json()
        assert one["fits"] == told["jobs_that_still_fit"], one["name"]
        assert one["budget_share"] == told["cost"]["budget_share"]
        assert float(one["reserved_share"]) > float(one["budget_share"]) > 0
        assert one["method"] == told["method"]["kind"]
        assert one["coefficients"] in {told["coefficients"], None}
    ratios = {(one["kind"], one["epsilon"]): one["width_ratio"] for one in found["offers"]}
    assert ratios["logistic", "0.1"] > ratios["logistic", "1"] > 1
    assert ratios["description", "1"] is ratios["network", "1"] is None
    assert found["capped"] is False


def test_an_offer_fits_as_often_as_it_says(service: Service) -> None:
    owner, _ = service.someone("owner")
    dataset = upload(owner, rows=2000)
    one = next(one for one in offers(owner, dataset["id"])["offers"] if one["epsilon"] == "1")
    answers = [submit(owner, one["request"]).status_code for _ in range(one["fits"] + 1)]
    assert answers == [202] * one["fits"] + [409]
    again = next(one for one in offers(owner, dataset["id"])["offers"] if one["epsilon"] == "1")
    assert again["fits"] == 0
    assert again["budget_share"] == one["budget_share"], "of the whole budget, whatever is spent"


def test_a_cap_counts(service: Service, owned: tuple[httpx.Client, dict[str, Any], dict[str, Any]]) -> None:
    owner, _, dataset = owned
    analyst, who = service.someone("analyst")
    place = f"/v1/datasets/{dataset['id']}/access/{who['principal']}"
    assert owner.put(place, json={"budget_cap": {"budget_share": "0.1"}}).status_code == 201
    mine, whole = offers(analyst, dataset["id"]), offers(owner, dataset["id"])
    assert (mine["capped"], mine["head"]) == (True, whole["head"])
    pairs = list(zip(mine["offers"], whole["offers"], strict=True))
    assert all(one["fits"] <= other["fits"] for one, other in pairs)
    assert any(one["fits"] < other["fits"] for one, other in pairs)


def test_a_small_budget_is_offered_whole(service: Service) -> None:
    owner, _ = service.someone("owner")
    dataset = upload(owner, budget={"epsilon": "0.05", "delta": "1e-6"})
    assert {one["epsilon"] for one in offers(owner, dataset["id"])["offers"]} == {"0.05"}


def test_columns_without_a_target_are_described_alone(service: Service) -> None:
    owner, _ = service.someone("owner")
    columns = [{"name": "job", "type": "category", "values": ["management", "technician", "other"]}]
    dataset = upload(owner, columns=columns, accept_excluded=True)
    assert {one["name"] for one in offers(owner, dataset["id"])["offers"]} == {"Description of one column"}


def test_roles(service: Service, owned: tuple[httpx.Client, dict[str, Any], dict[str, Any]]) -> None:
    owner, _, dataset = owned
    analyst, who = service.someone("analyst")
    owner.put(f"/v1/datasets/{dataset['id']}/access/{who['principal']}", json={"budget_cap": "all"})
    path = f"/v1/datasets/{dataset['id']}/offers"
    everybody = [
        (owner, 200),
        (analyst, 200),
        (service.someone("auditor")[0], 200),
        (service.client(), 200),
        (service.someone("owner")[0], 404),
        (service.someone("analyst")[0], 404),
    ]
    assert [client.get(path).status_code for client, _ in everybody] == [status for _, status in everybody]
    pending = owner.post("/v1/datasets", json=metadata(name="empty")).json()["id"]
    assert owner.get(f"/v1/datasets/{pending}/offers").status_code == 409


@pytest.mark.timing
def test_a_look_again_is_fast(owned: tuple[httpx.Client, dict[str, Any], dict[str, Any]]) -> None:
    owner, _, dataset = owned
    offers(owner, dataset["id"])
    started = time.perf_counter()
    offers(owner, dataset["id"])
    assert time.perf_counter() - started < 0.1


def test_the_client_and_the_command_show_the_same(
    service: Service, owned: tuple[httpx.Client, dict[str, Any], dict[str, Any]]
) -> None:
    _, made, dataset = owned
    with Client(service.url, made["key"]) as client:
        first = client.offers(dataset["id"]).offers[0]
    environment = {"FARTHING_URL": service.url, "FARTHING_KEY": made["key"], "COLUMNS": "200"}
    said = CliRunner().invoke(app, ["offers", dataset["id"]], env=environment)
    assert said.exit_code == 0, said.output
    assert first.method in said.output
    assert first.request["model"]["target"] == "y"
