"""Drafts: seen by their owners alone, mended, sealed as an upload is, erased when late; and files with many gaps."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from core.db.identity_tables import Draft, Identity
from core.db.tables import Dataset, Entry, Scope
from core.service import datasets as dataset_cases
from core.service import drafts as cases
from core.service.context import Context
from tests.support.api import COLUMNS, Service, csv, job, metadata, submit, upload

NEXT = count(500_000)
ROWS = 400


def people(broken: int = 0, rows: int = ROWS, shift: int | None = None) -> bytes:
    """Return other people's records each time; the age of the first `broken` ones cannot be read."""
    head, *lines = csv(rows, 1000 * next(NEXT) if shift is None else shift).decode().splitlines()
    mended = [f"soon,{line.split(',', 1)[1]}" if place < broken else line for place, line in enumerate(lines)]
    return "\n".join([head, *mended, ""]).encode()


def send(client: httpx.Client, content: bytes, **changes: Any) -> httpx.Response:
    parts: list[tuple[str, Any]] = [
        ("metadata", (None, json.dumps(metadata(**changes)), "application/json")),
        ("file", ("people.csv", content, "text/csv")),
    ]
    return client.post("/v1/datasets", files=parts)


def draft(client: httpx.Client, content: bytes | None = None, **changes: Any) -> dict[str, Any]:
    answer = send(client, people() if content is None else content, seal=False, **changes)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def put(client: httpx.Client, dataset: str, content: bytes) -> httpx.Response:
    return client.put(f"/v1/datasets/{dataset}/content", content=content, headers={"Content-Type": "text/csv"})


def pointers(answer: httpx.Response) -> set[str]:
    return {error["pointer"] for error in answer.json()["errors"]}


@pytest.fixture
def owner(service: Service) -> httpx.Client:
    return service.someone("owner")[0]


class TestWhoSeesADraft:
    def test_it_has_a_report_and_nothing_that_costs(self, service: Service, owner: httpx.Client) -> None:
        made = draft(owner, people(30))
        assert (made["state"], made["scope"], made["fingerprint"]) == ("draft", None, None)
        place = f"/v1/datasets/{made['id']}"
        assert owner.get(place).json() == made
        assert made["id"] in [one["id"] for one in owner.get("/v1/datasets").json()["data"]]
        report = owner.get(f"{place}/validation").json()
        assert (report["rows"], report["incomplete_rows"], report["columns"][0]["unreadable"]) == (ROWS, 30, 30)
        seen = owner.get(f"{place}/draft").json()
        assert (seen["rows"], seen["excluded"], seen["many_excluded"]) == (ROWS, 30, True)
        assert seen["declared"]["seal"] is False
        assert seen["columns"][0]["unreadable"] == 30
        assert seen["expires_at"] > made["created_at"]
        with service.database().read() as session:
            assert session.execute(select(Identity).where(Identity.dataset_id == made["id"])).first() is None

    def test_it_takes_no_job_access_or_budget(self, service: Service, owner: httpx.Client) -> None:
        made = draft(owner)
        analyst, who = service.someone("analyst")
        asked = submit(owner, job(made["id"]))
        shared = owner.put(
            f"/v1/datasets/{made['id']}/access/{who['principal']}", json={"budget_cap": {"budget_share": "0.1"}}
        )
        budget = owner.get(f"/v1/datasets/{made['id']}/budget")
        estimate = owner.post("/v1/estimates", json=job(made["id"]))
        assert [answer.status_code for answer in (asked, shared, budget, estimate)] == [409] * 4
        assert all("seal" in answer.json()["detail"] for answer in (asked, shared, budget, estimate))
        assert analyst.get("/v1/datasets").json()["data"] == []

    @pytest.mark.parametrize("role", ["owner", "analyst", "auditor", "admin"])
    def test_it_does_not_exist_for_anybody_else(self, service: Service, owner: httpx.Client, role: str) -> None:
        made = draft(owner, people(30))
        other = service.client() if role == "admin" else service.someone(role)[0]
        place = f"/v1/datasets/{made['id']}"
        for path in ("", "/draft", "/validation", "/identity", "/budget", "/mock", "/access"):
            assert other.get(place + path).status_code == 404, path
        strangers = {404} if role in {"owner", "admin"} else {403}
        tries: list[Callable[[], httpx.Response]] = [
            lambda: other.patch(place, json={"name": "mine"}),
            lambda: other.post(f"{place}/seal"),
            lambda: put(other, made["id"], people()),
        ]
        assert {one().status_code for one in tries} == strangers
        assert other.delete(place).status_code == 404
        assert made["id"] not in other.get("/v1/datasets", params={"limit": 100}).text
        assert owner.get(place).json()["state"] == "draft"

    def test_an_erased_draft_exists_for_nobody_else_either(self, service: Service, owner: httpx.Client) -> None:
        made = draft(owner)
        place = f"/v1/datasets/{made['id']}"
        assert owner.delete(place).status_code == 202
        assert owner.get(place).json()["state"] == "erased"
        assert service.client().get(place).status_code == 404
        assert owner.get(f"{place}/draft").status_code == owner.post(f"{place}/seal").status_code == 409
        with service.database().read() as session:
            kept = session.get_one(Draft, made["id"])
            assert (kept.sealed, kept.declared) == (None, {})

    def test_the_first_draft_ends_other_keys_and_nobody_else_makes_more(self, service: Service) -> None:
        owner, made = service.someone("owner")
        other = owner.post("/v1/keys", json={"name": "second", "role": "owner", "principal": made["principal"]}).json()
        draft(owner)
        assert service.client(other["key"]).get("/v1/me").status_code == 401
        more = {"name": "third", "role": "owner", "principal": made["principal"]}
        assert service.client().post("/v1/keys", json=more).status_code == 403


class TestMending:
    def test_the_file_is_replaced(self, service: Service, owner: httpx.Client) -> None:
        made = draft(owner, people(30))
        before = service.files()
        answer = put(owner, made["id"], people(1, rows=300))
        assert (answer.status_code, answer.json()["state"], answer.json()["rows"]) == (200, "draft", 300), answer.text
        assert len(service.files()) == len(before)
        assert set(service.files()) != set(before)
        seen = owner.get(f"/v1/datasets/{made['id']}/draft").json()
        assert (seen["rows"], seen["excluded"], seen["many_excluded"]) == (300, 1, False)

    def test_a_part_of_the_declaration_changes_and_the_file_stays(self, owner: httpx.Client) -> None:
        first = upload(owner)
        made = draft(owner)
        place = f"/v1/datasets/{made['id']}"
        answer = owner.patch(place, json={"name": "better", "scope": first["scope"], "distinct_because": None})
        assert answer.status_code == 200, answer.text
        assert answer.json()["declared"]["name"] == "better"
        assert "budget" not in answer.json()["declared"]
        assert answer.json()["rows"] == ROWS
        assert owner.get(place).json()["name"] == "better"
        sealed = owner.post(f"{place}/seal")
        assert (sealed.status_code, sealed.json()["scope"]) == (200, first["scope"]), sealed.text

    def test_other_columns_need_the_file_again(self, service: Service, owner: httpx.Client) -> None:
        made = draft(owner)
        files = service.files()
        place = f"/v1/datasets/{made['id']}"
        columns = [{**COLUMNS[0], "upper": 90}, *COLUMNS[1:]]
        answer = owner.patch(place, json={"columns": columns})
        assert (answer.status_code, answer.json()["rows"], answer.json()["columns"]) == (200, None, []), answer.text
        assert len(service.files()) == len(files) - 1
        assert owner.get(place).json()["state"] == "draft"
        assert owner.get(f"{place}/validation").status_code == 409
        empty = owner.post(f"{place}/seal")
        assert (empty.status_code, "send its file" in empty.json()["detail"]) == (409, True)
        assert put(owner, made["id"], people()).status_code == 200
        assert owner.post(f"{place}/seal").json()["columns"][0]["upper"] == 90

    @pytest.mark.parametrize(
        ("changes", "pointer"),
        [
            ({"nam": "x"}, "/nam"),
            ({"budget": None}, "/budget"),
            ({"budget": {"epsilon": "-1"}}, "/budget/epsilon"),
            ({"rows": 7}, "/rows"),
            ({"seal": True}, "/seal"),
            ({"accept_excluded": True}, "/accept_excluded"),
            ({"distinct_because": "no idea"}, "/distinct_because"),
            ({"scope": "sc_01kywryqe8h5hm5yrsa6mn4bcg"}, "/scope"),
            ({"columns": []}, "/columns"),
        ],
    )
    def test_a_wrong_change_names_its_field_and_changes_nothing(
        self, owner: httpx.Client, changes: dict[str, Any], pointer: str
    ) -> None:
        made = draft(owner)
        place = f"/v1/datasets/{made['id']}"
        before = owner.get(f"{place}/draft").json()
        answer = owner.patch(place, json=changes)
        assert answer.status_code in {404, 422}, answer.text
        assert pointer in pointers(answer)
        assert owner.get(f"{place}/draft").json() == before

    def test_a_sealed_dataset_is_not_mended(self, owner: httpx.Client) -> None:
        made = upload(owner)
        place = f"/v1/datasets/{made['id']}"
        assert owner.patch(place, json={"name": "x"}).status_code == 409
        assert owner.get(f"{place}/draft").status_code == 409
        assert put(owner, made["id"], people()).status_code == 409
        waiting = owner.post("/v1/datasets", json=metadata()).json()
        assert owner.post(f"/v1/datasets/{waiting['id']}/seal").status_code == 409


class TestSealing:
    def test_it_is_then_as_an_upload_is(self, service: Service, owner: httpx.Client) -> None:
        made = draft(owner, people(30))
        place = f"/v1/datasets/{made['id']}"
        sealed = owner.post(f"{place}/seal")
        assert sealed.status_code == 200, sealed.text
        again = owner.post(f"{place}/seal")
        assert again.json() == sealed.json()
        view = sealed.json()
        assert (view["state"], view["rows"], view["created_at"]) == ("ready", ROWS, made["created_at"])
        assert owner.get(f"{place}/budget").status_code == 200
        assert submit(owner, job(made["id"])).status_code == 202
        assert service.client().get(place).json() == view
        assert owner.get(f"{place}/validation").json()["incomplete_rows"] == 30
        entries = owner.get(f"/v1/scopes/{view['scope']}/entries").json()["data"]
        direct = upload(owner)
        same = owner.get(f"/v1/scopes/{direct['scope']}/entries").json()["data"]
        assert [one["kind"] for one in entries][: len(same)] == [one["kind"] for one in same]
        with service.database().read() as session:
            assert session.get(Draft, made["id"]) is None
            request = session.get_one(Dataset, made["id"]).request
            assert not {"seal", "accept_excluded", "distinct_because"} & set(request)

    def test_the_same_records_find_no_second_budget(self, service: Service, owner: httpx.Client) -> None:
        content = people()
        first = send(owner, content).json()
        made = draft(owner, content)
        place = f"/v1/datasets/{made['id']}"
        answer = owner.post(f"{place}/seal")
        assert (answer.status_code, answer.json()["code"]) == (409, "duplicate-dataset")
        assert answer.json()["scope"] == first["scope"]
        assert owner.get(place).json()["state"] == "draft"
        with service.database().read() as session:
            owned = session.execute(select(Scope.id).where(Scope.owner_id == made["owner"])).scalars().all()
        assert owned == [first["scope"]]
        near = draft(owner, content.rsplit(b"\n", 2)[0] + b"\n")
        refused = owner.post(f"/v1/datasets/{near['id']}/seal")
        assert (refused.status_code, refused.json()["code"]) == (409, "near-copy")
        reason = {"distinct_because": "these are other people, who answered alike"}
        assert owner.patch(f"/v1/datasets/{near['id']}", json=reason).status_code == 200
        assert owner.post(f"/v1/datasets/{near['id']}/seal").status_code == 200

    def test_two_drafts_of_the_same_records_open_one_budget(self, owner: httpx.Client) -> None:
        content = people()
        two = [draft(owner, content)["id"] for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda one: owner.post(f"/v1/datasets/{one}/seal"), two))
        assert sorted(answer.status_code for answer in answers) == [200, 409]

    def test_sealing_at_once_twice_makes_one_entry(self, service: Service, owner: httpx.Client) -> None:
        made = draft(owner)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: owner.post(f"/v1/datasets/{made['id']}/seal"), range(4)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.text for answer in answers}) == 1
        with service.database().read() as session:
            scope = answers[0].json()["scope"]
            kinds = session.execute(select(Entry.kind).where(Entry.scope_id == scope)).scalars().all()
        assert len(kinds) == len(set(kinds))

    def test_the_audit_log_does_not_say_why_it_was_refused(self, service: Service, owner: httpx.Client) -> None:
        content = people()
        send(owner, content)
        made = draft(owner, content)
        assert owner.post(f"/v1/datasets/{made['id']}/seal").status_code == 409
        assert send(owner, people(30)).status_code == 422
        lines = service.client().get("/v1/audit", params={"limit": 100}).json()["data"]
        codes = {line["code"] for line in lines if line["principal"] == made["owner"] and line["status"] >= 400}
        assert codes == {"upload-refused"}

    def test_the_key_of_the_scope_to_join_decides_unit_and_adjacency(self, owner: httpx.Client) -> None:
        first = upload(owner, adjacency="replace_one")
        made = draft(owner, budget=None, scope=first["scope"])
        sealed = owner.post(f"/v1/datasets/{made['id']}/seal")
        assert (sealed.status_code, sealed.json()["adjacency"]) == (200, "replace_one"), sealed.text


class TestLate:
    def test_an_unsealed_draft_is_erased_after_a_week(self, service: Service, owner: httpx.Client) -> None:
        late, young = draft(owner), draft(owner)
        files = service.files()
        context = Context(service.settings, service.database())

        def age(session: Any) -> None:
            session.get_one(Dataset, late["id"]).created_at -= cases.KEPT_SECONDS

        context.database.transaction(age)
        assert cases.erase_late(context) == [late["id"]]
        dataset_cases.finish_erasures(context)
        assert len(service.files()) == len(files) - 1
        assert owner.get(f"/v1/datasets/{late['id']}").json()["state"] == "erased"
        assert owner.get(f"/v1/datasets/{young['id']}").json()["state"] == "draft"


class TestManyExcluded:
    def test_it_is_refused_with_counts_and_nothing_is_made(self, service: Service, owner: httpx.Client) -> None:
        files, listed = service.files(), owner.get("/v1/datasets").json()["data"]
        answer = send(owner, people(21))
        assert (answer.status_code, answer.json()["code"]) == (422, "many-excluded")
        assert pointers(answer) == {"/accept_excluded", "/seal"}
        assert (answer.json()["rows"], answer.json()["excluded"]) == (ROWS, 21)
        assert answer.json()["columns"] == [
            {"name": "age", "unreadable": 21, "missing": 21, "filled": 0, "unknown": 0},
            {"name": "job", "unreadable": 0, "missing": 0, "filled": 0, "unknown": 133},
        ]
        assert service.files() == files
        assert owner.get("/v1/datasets").json()["data"] == listed == []
        assert owner.get("/v1/usage").json()["stored_bytes"] == 0

    def test_a_twentieth_is_not_many(self, owner: httpx.Client) -> None:
        assert send(owner, people(20)).status_code == 201

    def test_its_owner_may_accept_it(self, owner: httpx.Client) -> None:
        answer = send(owner, people(40), accept_excluded=True)
        assert answer.status_code == 201, answer.text
        both = send(owner, people(40), accept_excluded=True, seal=False)
        assert pointers(both) == {"/accept_excluded"}

    def test_a_declaration_waits_for_a_better_file(self, owner: httpx.Client) -> None:
        made = owner.post("/v1/datasets", json=metadata()).json()
        answer = put(owner, made["id"], people(40))
        assert (answer.status_code, answer.json()["code"]) == (422, "many-excluded")
        assert owner.get(f"/v1/datasets/{made['id']}").json()["state"] == "pending"
        assert put(owner, made["id"], people()).status_code == 200
        accepting = owner.post("/v1/datasets", json=metadata(accept_excluded=True)).json()
        assert put(owner, accepting["id"], people(40)).status_code == 200

    def test_a_draft_without_a_file_waits_for_one(self, owner: httpx.Client) -> None:
        made = owner.post("/v1/datasets", json=metadata(seal=False)).json()
        assert made["state"] == "draft"
        assert put(owner, made["id"], people(40)).json()["state"] == "draft"
        assert owner.post(f"/v1/datasets/{made['id']}/seal").json()["state"] == "ready"
