import hashlib
import json
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from tests.support.api import Service, job, metadata, submit, upload
from tests.support.verified import verified

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
        checked = verified(admin, fresh["scope"])
        assert (checked["ok"], checked["entries"], checked["head"]) == (True, 6, previous)
        assert checked["running"] is False
        assert checked["verified_at"] is not None

    def test_tampering_is_named_and_freezes(self, service: Service) -> None:
        owner, _ = service.someone("owner")  # whose later uploads are refused
        fresh = upload(owner)
        submit(owner, job(fresh["id"]))
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
        checked = verified(auditor, fresh["scope"])
        assert checked["ok"] is False
        assert checked["first_bad"] == 3
        assert submit(owner, job(fresh["id"])).json()["code"] == "scope-frozen"

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
        for path in ("", "/budget", "/entries", "/head"):
            assert admin.get(f"/v1/scopes/sc_nowhere{path}").status_code == 404


class TestCaps:
    def test_a_cap_is_charged_beside_the_scope(
        self, service: Service, admin: httpx.Client, fresh: dict[str, Any]
    ) -> None:
        analyst, who = service.someone("analyst")
        place = f"/v1/datasets/{fresh['id']}/access/{who['principal']}"
        assert analyst.get(f"/v1/datasets/{fresh['id']}").status_code == 404
        made = admin.put(place, json={"budget_cap": {"epsilon": "1", "delta": "1e-6"}})
        assert made.status_code == 201, made.text
        assert analyst.get(f"/v1/datasets/{fresh['id']}").status_code == 200
        told = analyst.post("/v1/estimates", json=job(fresh["id"])).json()
        free = admin.post("/v1/estimates", json=job(fresh["id"])).json()
        assert told["jobs_that_still_fit"] < free["jobs_that_still_fit"]
        answers = [submit(analyst, job(fresh["id"])) for _ in range(told["jobs_that_still_fit"] + 1)]
        assert [answer.status_code for answer in answers] == [202] * told["jobs_that_still_fit"] + [409]
        assert submit(admin, job(fresh["id"])).status_code == 202
        budget = analyst.get(f"/v1/datasets/{fresh['id']}/budget").json()
        assert float(budget["cap"]["used"]["reserved"]) > float(budget["budget_share"]["reserved"])
        assert admin.get(f"/v1/datasets/{fresh['id']}/budget").json()["cap"] is None
        wider = admin.put(place, json={"budget_cap": {"epsilon": "2"}}, headers={"If-Match": made.headers["ETag"]})
        assert wider.status_code == 200, wider.text
        assert wider.json()["delta"] == "1e-6", "the scope's, where none is given"
        assert submit(analyst, job(fresh["id"])).status_code == 202
        tag = {"If-Match": wider.headers["ETag"]}
        for other, pointer in (
            ({"epsilon": "0.5"}, None),
            ({"epsilon": "2", "delta": "1e-7"}, "/budget_cap/delta"),
            ({"budget_share": "0.9"}, "/budget_cap"),
            ("all", "/budget_cap"),
        ):
            refused = admin.put(place, json={"budget_cap": other}, headers=tag)
            assert refused.status_code == 409, other
            assert pointer is None or refused.json()["errors"][0]["pointer"] == pointer

    def test_if_match(self, service: Service, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        _, who = service.someone("analyst")
        place = f"/v1/datasets/{fresh['id']}/access/{who['principal']}"
        one, two, three = ({"budget_cap": {"epsilon": epsilon}} for epsilon in "123")
        assert admin.put(place, json=one, headers={"If-Match": "*"}).status_code == 412
        tag = admin.put(place, json=one).headers["ETag"]
        assert admin.get(place).headers["ETag"] == tag
        assert admin.put(place, json=two).status_code == 412
        changed = admin.put(place, json=two, headers={"If-Match": tag})
        assert changed.status_code == 200
        assert changed.headers["ETag"] != tag
        stale = admin.put(place, json=three, headers={"If-Match": tag})
        assert stale.status_code == 412
        assert stale.json()["code"] == "precondition-failed"
        assert admin.put(place, json=three, headers={"If-Match": "*"}).status_code == 200

    def test_a_refusal_by_budget_and_cap_names_a_price_that_fits_both(
        self, service: Service, admin: httpx.Client, fresh: dict[str, Any]
    ) -> None:
        analyst, who = service.someone("analyst")
        cap = {"budget_cap": {"budget_share": "0.2"}}
        assert admin.put(f"/v1/datasets/{fresh['id']}/access/{who['principal']}", json=cap).status_code == 201
        assert submit(admin, job(fresh["id"], privacy={"budget_share": "0.3"})).status_code == 202
        large = job(fresh["id"], privacy={"mu": "5"}, retry_allowance=0)
        refused = submit(analyst, large).json()
        assert refused["code"] == "privacy-budget-exhausted"
        assert "budget cap" in refused["detail"]
        accepted = submit(analyst, large | {"privacy": {"mu": refused["fits_at_mu"]}})
        assert accepted.status_code == 202, accepted.text

    def test_wrong_caps(self, service: Service, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        _, who = service.someone("analyst")
        place = f"/v1/datasets/{fresh['id']}/access"
        assert admin.put(f"{place}/pr_nobody", json={"budget_cap": "all"}).status_code == 404
        assert admin.get(f"{place}/pr_nobody").status_code == 404
        for cap, pointer in (
            ({"epsilon": 1}, "/budget_cap/epsilon"),
            ({"epsilon": "1e-9"}, "/budget_cap/epsilon"),
            ({"budget_share": "1e-12"}, "/budget_cap/budget_share"),
            ({"budget_share": "0.5", "delta": "1e-6"}, "/budget_cap"),
            ({"budget_share": "0.5", "rho": "1"}, "/budget_cap"),
            ({"part": "0.5"}, "/budget_cap"),
            (0.5, "/budget_cap"),
        ):
            refused = admin.put(f"{place}/{who['principal']}", json={"budget_cap": cap})
            assert refused.status_code == 422, cap
            assert refused.json()["errors"][0]["pointer"].startswith(pointer), refused.text
        me = admin.get("/v1/me").json()["id"]
        assert admin.put(f"{place}/{me}", json={"budget_cap": "all"}).status_code == 409

    def test_a_dataset_without_records_has_no_budget_to_share(self, service: Service, admin: httpx.Client) -> None:
        _, who = service.someone("analyst")
        pending = admin.post("/v1/datasets", json=metadata()).json()["id"]
        refused = admin.put(f"/v1/datasets/{pending}/access/{who['principal']}", json={"budget_cap": "all"})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
