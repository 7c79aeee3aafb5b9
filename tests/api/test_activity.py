"""The owner of a dataset sees all that was done with it, with names and ids; nobody else's data shows."""

import json
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from farthing import Client
from farthing.cli import app
from tests.support.api import Service, job, submit, upload

Line = dict[str, Any]


class Place:
    """An owner with a dataset, and an analyst with access who has sent a job."""

    def __init__(self, service: Service) -> None:
        self.owner, self.owner_key = service.someone("owner", "Olive Owner")
        self.dataset = upload(self.owner)
        self.analyst, self.who = service.someone("analyst", "Ann Lyst")
        self.access = f"/v1/datasets/{self.dataset['id']}/access/{self.who['principal']}"
        assert self.owner.put(self.access, json={"budget_cap": "all"}).status_code == 201
        self.job = submit(self.analyst, job(self.dataset["id"])).json()["id"]
        self.path = f"/v1/datasets/{self.dataset['id']}/activity"


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    return Place(service)


def lines(client: httpx.Client, path: str, **query: Any) -> list[Line]:
    answer = client.get(path, params={"limit": 100} | query)
    assert answer.status_code == 200, answer.text
    found: list[Line] = answer.json()["data"]
    return found


def test_who_did_what_and_what_it_made(place: Place) -> None:
    found = {line["action"]: line for line in lines(place.owner, place.path)}
    sent = found["POST /v1/jobs"]
    assert (sent["name"], sent["role"], sent["principal"]) == ("Ann Lyst", "analyst", place.who["principal"])
    assert (sent["job"], sent["model"], sent["outcome"], sent["status"]) == (place.job, None, "done", 202)
    given = found["PUT /v1/datasets/{dataset_id}/access/{principal_id}"]
    assert (given["name"], given["subject"], given["subject_name"]) == (
        "Olive Owner",
        place.who["principal"],
        "Ann Lyst",
    )
    assert found["POST /v1/datasets"]["target"] == f"datasets/{place.dataset['id']}"


def test_a_refusal_has_its_outcome_and_code(place: Place) -> None:
    assert place.analyst.delete(f"/v1/datasets/{place.dataset['id']}").status_code == 403
    refused = lines(place.owner, place.path)[0]
    assert (refused["outcome"], refused["code"], refused["name"]) == ("refused", "forbidden", "Ann Lyst")


def test_scope_and_job_requests_of_others_are_there_and_other_data_is_not(place: Place, service: Service) -> None:
    auditor, _ = service.someone("auditor", "Audrey")
    assert auditor.get(f"/v1/scopes/{place.dataset['scope']}/budget").status_code == 200
    assert auditor.get(f"/v1/jobs/{place.job}/report").status_code == 200
    other = Place(service)
    found = lines(place.owner, place.path)
    assert {"GET /v1/scopes/{scope_id}/budget", "GET /v1/jobs/{job_id}/report"} <= {
        line["action"] for line in found if line["name"] == "Audrey"
    }
    text = str(found)
    assert other.dataset["id"] not in text
    assert other.job not in text
    assert other.who["principal"] not in text


def test_pages_go_on_where_the_last_one_ended(place: Place) -> None:
    whole = lines(place.owner, place.path)
    read: list[Line] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = place.owner.get(place.path, params=query).json()
        read += page["data"]
        if not page["has_more"]:
            break
        query["after"] = page["next"]
    ids = {line["id"] for line in whole}
    assert [line["id"] for line in read if line["id"] in ids] == [line["id"] for line in whole]
    assert len({line["id"] for line in read}) == len(read)


def test_roles(place: Place, service: Service) -> None:
    everybody = {
        "owner": (place.owner, 200),
        "other owner": (service.someone("owner")[0], 404),
        "analyst with access": (place.analyst, 403),
        "analyst without": (service.someone("analyst")[0], 404),
        "auditor": (service.someone("auditor")[0], 200),
        "admin": (service.client(), 200),
    }
    assert {name: client.get(place.path).status_code for name, (client, _) in everybody.items()} == {
        name: status for name, (_, status) in everybody.items()
    }
    assert httpx.get(f"{service.url}{place.path}").status_code == 401
    assert place.owner.get("/v1/datasets/ds_nowhere/activity").status_code == 404


def test_the_client_and_the_command_show_the_same(place: Place, service: Service) -> None:
    with Client(service.url, place.owner_key["key"]) as client:
        first = next(client.activity(place.dataset["id"]))
        assert first.outcome == "done"
    environment = {"FARTHING_URL": service.url, "FARTHING_KEY": place.owner_key["key"], "COLUMNS": "200"}
    said = CliRunner().invoke(app, ["activity", place.dataset["id"], "--most", "100"], env=environment)
    assert said.exit_code == 0, said.output
    assert "Ann Lyst" in said.output
    said = CliRunner().invoke(app, ["activity", place.dataset["id"], "--json"], env=environment)
    assert place.job in {json.loads(line)["job"] for line in said.output.splitlines()}
