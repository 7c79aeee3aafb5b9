"""Trained models over HTTP: listed to those who may read them, judged with a reason, retracted."""

from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import Engine, event

from core.db.model_reads import ModelFilter
from core.service import trained
from core.service.context import Caller, Context
from tests.api.test_models import finish
from tests.support.api import Service, job, submit, upload


class House:
    """An owner whose data two analysts use, with a release that waits, one that needs no approval, and their jobs."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.admin = service.client()
        self.auditor = service.someone("auditor")[0]
        self.owner, self.owner_key = service.someone("owner", "Ona Owner")
        self.other_owner = service.someone("owner")[0]
        self.analyst, self.analyst_key = service.someone("analyst", "Ana Lyst")
        self.colleague, colleague_key = service.someone("analyst")
        self.stranger = service.someone("analyst")[0]
        self.open = upload(self.owner, name="open data")
        self.guarded = upload(self.owner, name="guarded data", approval=True)
        for key in (self.analyst_key, colleague_key):
            for one in (self.open, self.guarded):
                path = f"/v1/datasets/{one['id']}/access/{key['principal']}"
                assert self.owner.put(path, json={"budget_cap": "all"}).status_code == 201
        self.open_job = submit(self.analyst, self.named("readmission")).json()["id"]
        self.open_model = finish(service, self.open_job)
        self.waiting_job = submit(self.analyst, job(self.guarded["id"])).json()["id"]
        self.waiting = finish(service, self.waiting_job, approval="pending")

    def named(self, name: str) -> dict[str, Any]:
        return job(self.open["id"], labels={"name": name, "study": "b"})

    def released(self, submitter: httpx.Client) -> tuple[str, str]:
        """Return a job of the guarded data and its model, which waits for approval."""
        made = submit(submitter, job(self.guarded["id"])).json()["id"]
        return made, finish(self.service, made, approval="pending")

    def everybody(self) -> dict[str, httpx.Client]:
        return {
            "owner": self.owner,
            "other owner": self.other_owner,
            "analyst": self.analyst,
            "colleague": self.colleague,
            "stranger": self.stranger,
            "auditor": self.auditor,
            "admin": self.admin,
        }


@pytest.fixture(scope="module")
def house(service: Service) -> House:
    return House(service)


def ids(client: httpx.Client, **query: Any) -> list[str]:
    """Return the models that a client finds, page by page."""
    found: list[str] = []
    while True:
        answer = client.get("/v1/models", params={"limit": 2, **query})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += [one["id"] for one in page["data"]]
        if not page["has_more"]:
            return found
        query["after"] = page["next"]


class TestList:
    def test_the_list_of_each_person_is_what_they_may_read(self, house: House) -> None:
        for who, client in house.everybody().items():
            listed = ids(client)
            for model in (house.open_model, house.waiting):
                readable = client.get(f"/v1/models/{model}").status_code == 200
                assert (model in listed) == readable, (who, model)
        assert house.waiting in ids(house.owner, approval="pending")
        for who in ("analyst", "colleague", "auditor", "admin", "other owner", "stranger"):
            assert house.waiting not in ids(house.everybody()[who], approval="pending"), who
        assert house.open_model in ids(house.analyst)
        assert ids(house.colleague) == ids(house.stranger) == []

    def test_an_item_says_what_a_model_is_and_none_of_its_figures(self, house: House) -> None:
        (item,) = house.owner.get("/v1/models", params={"approval": "pending", "job": house.waiting_job}).json()["data"]
        created_at = item.pop("created_at")
        assert item == {
            "id": house.waiting,
            "object": "trained-model",
            "name": None,
            "job": house.waiting_job,
            "owner": house.analyst_key["principal"],
            "owner_name": "Ana Lyst",
            "dataset": house.guarded["id"],
            "dataset_name": "guarded data",
            "kind": "logistic",
            "method": "noisy_newton",
            "approval": "pending",
            "lineage": {"models": [], "clone_of": None},
            "expires_at": None,
        }
        assert created_at == house.owner.get(f"/v1/models/{house.waiting}").json()["created_at"]

    def test_filters_narrow_the_list(self, house: House) -> None:
        mine, waits = house.open_model, house.waiting
        assert ids(house.owner) == [waits, mine]
        assert ids(house.owner, dataset=house.open["id"]) == [mine]
        assert ids(house.owner, job=house.waiting_job) == [waits]
        assert ids(house.owner, optimizer="noisy_newton") == [waits, mine]
        assert ids(house.owner, optimizer="noisy_gd") == []
        assert ids(house.owner, label="name:readmission") == [mine]
        assert ids(house.owner, label="study:b", dataset=house.guarded["id"]) == []
        assert ids(house.owner, approval="not-needed") == [mine]
        assert ids(house.owner, approval="rejected") == []
        for wrong, pointer in (({"label": "b"}, "#query/label"), ({"approval": "maybe"}, "#query/approval")):
            refused = house.owner.get("/v1/models", params=wrong)
            assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)

    def test_a_clone_names_the_job_that_it_repeats(self, house: House) -> None:
        answer = house.analyst.post(f"/v1/jobs/{house.open_job}/clone", headers={"Idempotency-Key": uuid4().hex})
        model = finish(house.service, answer.json()["id"])
        (item,) = house.analyst.get("/v1/models", params={"job": answer.json()["id"]}).json()["data"]
        assert (item["id"], item["name"]) == (model, "readmission")
        assert item["lineage"] == {"models": [], "clone_of": house.open_job}
        assert ids(house.analyst, label="name:readmission")[:2] == [model, house.open_model]

    def test_a_page_costs_as_many_statements_as_one_model(self, house: House) -> None:
        database = house.service.database()
        context = Context(house.service.settings, database)
        who = Caller(house.owner_key["principal"], "Ona Owner", "owner", house.owner_key["id"])
        sent: list[str] = []

        def note(*call: Any) -> None:
            sent.append(call[2])

        event.listen(Engine, "before_cursor_execute", note)
        counts = []
        for limit in (1, 100):
            sent.clear()
            found = trained.page(context, who, ModelFilter(), None, limit)
            counts.append((len(found) > 1, len([text for text in sent if text.lstrip().startswith("SELECT")])))
        event.remove(Engine, "before_cursor_execute", note)
        database.dispose()
        assert 1 <= counts[0][1] == counts[1][1] <= 2
        assert counts[1][0]


class TestDecisions:
    def test_a_reason_reaches_owner_and_submitter(self, house: House) -> None:
        job_id, model = house.released(house.analyst)
        refused = house.owner.post(f"/v1/models/{model}/reject")
        assert refused.status_code == 422
        assert house.owner.post(f"/v1/models/{model}/reject", json={"reason": "x" * 501}).status_code == 422
        assert house.owner.get(f"/v1/models/{model}").json()["decision"] is None
        answer = house.owner.post(f"/v1/models/{model}/reject", json={"reason": "too few people"})
        assert answer.status_code == 200, answer.text
        said = answer.json()["decision"]
        assert (said["outcome"], said["reason"], said["by"]) == (
            "rejected",
            "too few people",
            house.owner_key["principal"],
        )
        for who in (house.owner, house.analyst):
            seen = who.get(f"/v1/jobs/{job_id}").json()
            assert (seen["approval"], seen["decision"], seen["owner_name"]) == ("rejected", said, "Ana Lyst")
        (listed,) = house.analyst.get("/v1/jobs", params={"approval": "rejected"}).json()["data"]
        assert (listed["id"], listed["decision"]) == (job_id, said)
        assert house.colleague.get(f"/v1/jobs/{job_id}").status_code == 404

    @pytest.mark.parametrize("body", [None, {}, {"reason": "it is fine"}])
    def test_an_approval_may_have_a_reason(self, house: House, body: dict[str, str] | None) -> None:
        job_id, model = house.released(house.analyst)
        answer = house.owner.post(f"/v1/models/{model}/approve", json=body)
        assert answer.status_code == 200, answer.text
        wanted = (body or {}).get("reason", "")
        assert answer.json()["decision"]["reason"] == wanted
        assert house.analyst.get(f"/v1/models/{model}").json()["decision"]["reason"] == wanted
        assert model in ids(house.analyst, approval="approved", job=job_id)

    def test_jobs_are_found_by_what_became_of_their_release(self, house: House) -> None:
        for client in (house.owner, house.analyst, house.admin):
            found = client.get("/v1/jobs", params={"approval": "pending", "limit": 100}).json()["data"]
            assert house.waiting_job in [one["id"] for one in found]
            assert {one["approval"] for one in found} == {"pending"}
        assert house.colleague.get("/v1/jobs", params={"approval": "pending"}).json()["data"] == []
        assert house.owner.get("/v1/jobs", params={"approval": "maybe"}).status_code == 422

    def test_an_owners_own_release_is_the_owners_alone(self, house: House) -> None:
        job_id, model = house.released(house.owner)
        asked: dict[str, Any] = {"approve": None, "reject": {"reason": "not mine"}}
        for who, client in house.everybody().items():
            if who == "owner":
                continue
            assert model not in ids(client), who
            for part in ("", "/summary", "/export", "/methods", "/intervals"):
                assert client.get(f"/v1/models/{model}{part}").status_code == 404, (who, part)
            for verdict, body in asked.items():
                assert client.post(f"/v1/models/{model}/{verdict}", json=body).status_code == 404, (who, verdict)
        assert house.admin.get(f"/v1/jobs/{job_id}").json()["result"] is None
        assert house.owner.post(f"/v1/models/{model}/approve").json()["approval"] == "approved"
