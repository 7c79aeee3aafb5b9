import hashlib
import json
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from tests.support.api import Service, job, submit, upload

_made = iter(range(300, 400))


@pytest.fixture
def fresh(admin: httpx.Client) -> dict[str, Any]:
    number = next(_made)
    return upload(admin, shift=number, rows=number)


class TestLedger:
    def test_lines_can_be_checked_by_anybody(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        for _ in range(3):
            made = submit(admin, job(fresh["id"])).json()["id"]
        admin.post(f"/v1/jobs/{made}/cancel")
        place = f"/v1/scopes/{fresh['scope']}"
        entries: list[dict[str, Any]] = []
        query = {"limit": 2}
        while True:
            page = admin.get(f"{place}/entries", params=query).json()
            entries += page["data"]
            if not page["has_more"]:
                break
            query["after"] = page["next"]
        assert [entry["kind"] for entry in entries] == ["open", "upload", "reserve", "reserve", "reserve", "settle"]
        previous = entries[0]["prev_hash"]
        for number, entry in enumerate(entries, start=1):
            assert entry["seq"] == number
            assert entry["prev_hash"] == previous
            previous = "sha256:" + hashlib.sha256(f"{previous}\n{entry['body']}".encode()).hexdigest()
            assert entry["hash"] == previous
            assert json.loads(entry["body"])["seq"] == number
        assert admin.get(f"{place}/head").json() == {"scope": fresh["scope"], "seq": 6, "head": previous}
        checked = admin.post(f"{place}/verify").json()
        assert (checked["ok"], checked["entries"], checked["head"]) == (True, 6, previous)

    def test_tampering_is_named_and_freezes(self, service: Service, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        submit(admin, job(fresh["id"]))
        database = service.database()
        with database.engine.begin() as connection:
            triggers = connection.execute(
                text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'entries'")
            ).all()
            for name, _ in triggers:
                connection.execute(text(f"DROP TRIGGER {name}"))
            connection.execute(
                text("UPDATE entries SET body = replace(body, 'reserve', 'settle') WHERE scope_id = :id AND seq = 3"),
                {"id": fresh["scope"]},
            )
            for _, statement in triggers:
                connection.execute(text(statement))
        database.dispose()
        auditor, _ = service.someone("auditor")
        checked = auditor.post(f"/v1/scopes/{fresh['scope']}/verify").json()
        assert checked["ok"] is False
        assert checked["first_bad"] == 3
        assert submit(admin, job(fresh["id"])).json()["code"] == "scope-frozen"

    def test_freezing_is_for_owners_and_auditors(self, service: Service, fresh: dict[str, Any]) -> None:
        place = f"/v1/scopes/{fresh['scope']}"
        auditor, _ = service.someone("auditor")
        owner, _ = service.someone("owner")
        assert owner.post(f"{place}/freeze", json={"reason": "mine"}).status_code == 404
        assert auditor.post(f"{place}/freeze", json={"reason": "x"}).status_code == 422
        assert auditor.post(f"{place}/freeze", json={"reason": "an inquiry"}).status_code == 200
        assert auditor.post(f"{place}/unfreeze", json={"reason": "settled"}).status_code == 403

    def test_adjustments_need_a_charge_that_read_nothing(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        made = submit(admin, job(fresh["id"])).json()["id"]
        place = f"/v1/scopes/{fresh['scope']}/adjustments"
        refused = admin.post(place, json={"job": made, "reason": "a fault of ours"})
        assert refused.status_code == 409
        assert admin.post(place, json={"job": "job_nowhere", "reason": "a fault"}).status_code == 404

    def test_nowhere(self, admin: httpx.Client) -> None:
        for path in ("", "/budget", "/entries", "/head", "/grants"):
            assert admin.get(f"/v1/scopes/sc_nowhere{path}").status_code == 404


class TestGrants:
    def test_a_ceiling_is_charged_beside_the_scope(
        self, service: Service, admin: httpx.Client, fresh: dict[str, Any]
    ) -> None:
        analyst, who = service.someone("analyst")
        place = f"/v1/scopes/{fresh['scope']}/grants/{who['principal']}"
        assert analyst.get(f"/v1/datasets/{fresh['id']}").status_code == 404
        made = admin.put(place, json={"epsilon": "1", "delta": "1e-6"})
        assert made.status_code == 201, made.text
        assert analyst.get(f"/v1/datasets/{fresh['id']}").status_code == 200
        told = analyst.post("/v1/estimates", json=job(fresh["id"])).json()
        free = admin.post("/v1/estimates", json=job(fresh["id"])).json()
        assert told["jobs_that_still_fit"] < free["jobs_that_still_fit"]
        answers = [submit(analyst, job(fresh["id"])) for _ in range(told["jobs_that_still_fit"] + 1)]
        assert [answer.status_code for answer in answers] == [202] * told["jobs_that_still_fit"] + [409]
        assert submit(admin, job(fresh["id"])).status_code == 202
        budget = analyst.get(f"/v1/datasets/{fresh['id']}/budget").json()
        assert float(budget["grant"]["percent"]["reserved"]) > float(budget["percent"]["reserved"])
        assert admin.get(f"/v1/datasets/{fresh['id']}/budget").json()["grant"] is None
        assert analyst.get(f"/v1/scopes/{fresh['scope']}/grants").json()["data"] == [budget["grant"]]
        wider = admin.put(place, json={"epsilon": "2", "delta": "1e-6"})
        assert wider.status_code == 200, wider.text
        assert submit(analyst, job(fresh["id"])).status_code == 202
        narrower = admin.put(place, json={"epsilon": "0.5", "delta": "1e-6"})
        assert narrower.status_code == 409

    def test_if_match(self, service: Service, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        _, who = service.someone("analyst")
        place = f"/v1/scopes/{fresh['scope']}/grants/{who['principal']}"
        assert admin.put(place, json={"epsilon": "1"}, headers={"If-Match": "*"}).status_code == 412
        tag = admin.put(place, json={"epsilon": "1"}).headers["ETag"]
        assert admin.get(place).headers["ETag"] == tag
        changed = admin.put(place, json={"epsilon": "2"}, headers={"If-Match": tag})
        assert changed.status_code == 200
        assert changed.headers["ETag"] != tag
        stale = admin.put(place, json={"epsilon": "3"}, headers={"If-Match": tag})
        assert stale.status_code == 412
        assert stale.json()["code"] == "precondition-failed"

    def test_wrong_grants(self, service: Service, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        analyst, who = service.someone("analyst")
        place = f"/v1/scopes/{fresh['scope']}/grants"
        assert admin.put(f"{place}/pr_nobody", json={"epsilon": "1"}).status_code == 404
        assert admin.get(f"{place}/pr_nobody").status_code == 404
        number = admin.put(f"{place}/{who['principal']}", json={"epsilon": 1})
        assert number.json()["errors"][0]["pointer"] == "/epsilon"
        tiny = admin.put(f"{place}/{who['principal']}", json={"epsilon": "1e-9"})
        assert tiny.json()["errors"][0]["pointer"] == "/epsilon"
        admin.put(f"/v1/datasets/{fresh['id']}/access/{who['principal']}")
        assert analyst.put(f"{place}/{who['principal']}", json={"epsilon": "1"}).status_code == 403
