"""Removals over HTTP: for the owner alone, and without a trace that anybody else could see."""

import json
import re
from typing import Any

import httpx
import pytest

from tests.support.api import Service, job, submit, upload
from tests.support.windows import csrf

ROW = 42
_SIGNED = re.compile(r"^(\d+ {.*} )[\w-]+\.([\w-]+)\.[\w-]+$")
"""A signed head: its first part has the time, and the last one signs that."""
_VARIES = re.compile(r'"(request_id|last_used_at|created_at|verified_at|as_of|signature)": ?("[^"]*"|\d+(\.\d+)?)')


class Place:
    """An owner with a dataset, an analyst with access and a queued job, and an auditor."""

    def __init__(self, service: Service) -> None:
        self.owner, made = service.someone("owner")
        self.owner_key = made["key"]
        self.made = upload(self.owner)
        self.analyst, who = service.someone("analyst")
        self.auditor, _ = service.someone("auditor")
        self.admin = service.client()
        access = f"/v1/datasets/{self.made['id']}/access/{who['principal']}"
        assert self.owner.put(access, json={"budget_cap": "all"}).status_code == 201
        self.job = submit(self.analyst, job(self.made["id"])).json()["id"]
        self.path = f"/v1/datasets/{self.made['id']}/removals"

    def remove(self, client: httpx.Client, row: Any = ROW) -> httpx.Response:
        return client.post(self.path, json={"row": row})

    def views(self, client: httpx.Client, operations: list[str]) -> dict[str, str]:
        """Return all that a client reads, without clocks: each operation whose names are known here."""
        names = {"dataset_id": self.made["id"], "scope_id": self.made["scope"], "job_id": self.job}
        found = {}
        for route in operations:
            if set(re.findall(r"{(\w+)}", route)) <= names.keys() and "wait" not in route:
                answer = client.get(route.format(**names), headers={"Accept": "application/json"})
                kept = {name: text for name, text in answer.headers.items() if name in {"etag", "last-modified"}}
                text = f"{answer.status_code} {kept} {answer.text}"
                found[route] = _SIGNED.sub(r"\1\2", _VARIES.sub("", text))
        return found


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    return Place(service)


@pytest.fixture(scope="module")
def operations(service: Service) -> list[str]:
    """Return all routes that answer a GET with an answer that does not stay open."""
    paths = service.client().get("/openapi.json").json()["paths"]
    return [path for path, found in paths.items() if "get" in found and path not in OPEN]


OPEN = {"/v1/jobs/{job_id}/events", "/metrics", "/readyz", "/healthz", "/v1/workers", "/v1/service"} | {
    "/v1/audit",
    "/v1/audit/export",
}
"""Streams, figures of the process such as its free disk, and the audit log, in which a look leaves its own line."""


def test_nobody_but_the_owner_sees_it(service: Service, operations: list[str]) -> None:
    place = Place(service)
    watchers = {"analyst": place.analyst, "auditor": place.auditor, "admin": place.admin}
    before = {name: place.views(client, operations) for name, client in watchers.items()}
    answer = place.remove(place.owner)
    assert (answer.status_code, answer.json()) == (
        200,
        {"object": "removal", "dataset": place.made["id"], "row": ROW, "destroyed": True},
    )
    for name, client in watchers.items():
        after = place.views(client, operations)
        assert len(after) > 20
        seen = {route for route in after if after[route] != before[name][route]}
        assert seen <= {"/v1/datasets/{dataset_id}/activity"}, name  # there it does, too
        lines = client.get("/v1/audit", params={"limit": 100}).json()["data"]
        assert not [line for line in lines if "removals" in line["action"] and line["status"] == 200]
        assert "removals" not in client.get("/v1/audit/export").text
        assert "removals" not in after["/v1/datasets/{dataset_id}/activity"]


def test_a_changed_fact_would_be_seen(place: Place, operations: list[str], service: Service) -> None:
    """The planted bug: a removal that lowers the public number of records."""
    before = place.views(place.analyst, operations)
    assert place.views(place.analyst, operations) == before
    database = service.database()
    with database.write() as session:
        from core.db.tables import Dataset  # noqa: PLC0415 - only here

        found = session.get_one(Dataset, place.made["id"])
        found.rows = (found.rows or 0) - 1
    try:
        assert place.views(place.analyst, operations) != before
    finally:
        with database.write() as session:
            session.get_one(Dataset, place.made["id"]).rows = place.made["rows"]


def test_the_owner_finds_it_in_the_activity_without_the_row(place: Place) -> None:
    assert place.remove(place.owner).status_code == 200
    for path in (f"/v1/datasets/{place.made['id']}/activity", "/v1/audit"):
        line = next(one for one in place.owner.get(path).json()["data"] if one["action"].endswith("/removals"))
        assert line["target"] == place.path.removeprefix("/v1/")
        assert str(ROW) not in json.dumps({name: line[name] for name in ("action", "target", "code")})


def test_the_operators_log_and_database_hold_no_row(service: Service) -> None:
    place = Place(service)
    row = 397
    assert place.remove(place.owner, row).status_code == 200
    log = [line for line in (service.home / "api.log").read_text().splitlines() if place.made["id"] in line]
    assert not [line for line in log if re.search(rf"\b{row}\b", line)]


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({}, 422, "/row"),
        ({"row": 0}, 422, "/row"),
        ({"row": -1}, 422, "/row"),
        ({"row": 401}, 422, "/row"),
        ({"row": 2**60}, 422, "/row"),
        ({"row": 1.0}, 422, "/row"),
        ({"row": "17"}, 422, "/row"),
        ({"row": True}, 422, "/row"),
        ({"row": None}, 422, "/row"),
        ({"row": [1]}, 422, "/row"),
        ({"row": 1, "why": "asked"}, 422, "/why"),
    ],
)
def test_a_strange_row_names_its_field(place: Place, body: dict[str, Any], status: int, pointer: str) -> None:
    answer = place.owner.post(place.path, json=body)
    assert answer.status_code == status, answer.text
    assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]


def test_others_are_refused(place: Place, service: Service) -> None:
    stranger, _ = service.someone("owner")
    refused = {place.analyst: 403, place.auditor: 403, place.admin: 403, stranger: 404}
    for client, status in refused.items():
        assert place.remove(client).status_code == status
    assert place.owner.post(place.path.replace("ds_", "ds_x"), json={"row": 1}).status_code == 404


@pytest.mark.parametrize("row", ["", "0", "401", "-1", "+1", "1.5", "\u0661", "9" * 5000, "<b>"])
def test_the_page_says_which_rows_there_are(place: Place, service: Service, row: str) -> None:
    window = service.window(place.owner_key)
    path = f"/datasets/{place.made['id']}/remove-record"
    answer = window.post(path, data={"csrf": csrf(window), "row": row})
    assert answer.status_code == 422
    assert "Write a whole number from 1 to 400." in answer.text
    assert "<b>" not in answer.text.partition("Write a whole")[2][:200]


def test_the_page_removes_and_says_so(place: Place, service: Service) -> None:
    window = service.window(place.owner_key)
    path = f"/datasets/{place.made['id']}/remove-record"
    assert path in window.get(f"/datasets/{place.made['id']}").text
    answer = window.post(path, data={"csrf": csrf(window), "row": " 44 "})
    assert answer.status_code == 200
    assert "Row 44 is removed" in answer.text
    assert "The earlier file is destroyed." in answer.text
    assert window.post(path, data={"row": "45"}).status_code == 403
