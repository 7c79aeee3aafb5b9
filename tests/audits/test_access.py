"""Attacks on access: a share that shares everything, roles that help themselves, and access that lingers."""

import json
import re
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from api.routes import audit as audit_routes
from core.access import principals
from core.base.errors import LedgerBusy, NotFound, StaleAttempt, Unauthenticated
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.tables import Job
from core.jobs import jobs
from core.ledger import ledger
from core.planning.job import JobSpec
from core.service import access, intake
from core.service.context import Caller, Context
from core.service.intake import StoredAnswer, Submission
from core.training.job_repository import JobRepository
from tests.support import entry
from tests.support.api import COLUMNS, Service, csv, job, joined, metadata, running, submit, upload
from tests.support.store import give, open_place
from tests.support.verified import verified

_FILE = b"age\n1\n"
SECONDS_TO_END = 15.0
"""Within which an open answer must end; keys are looked at every five seconds."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("access"), FARTHING_VISIBLE_GRID_SECONDS="0") as found:
        yield found


@contextmanager
def store(service: Service) -> Iterator[Database]:
    """Look behind the API."""
    database = service.database()
    yield database
    database.dispose()


def place(dataset: dict[str, Any], who: dict[str, Any]) -> str:
    return f"/v1/datasets/{dataset['id']}/access/{who['principal']}"


def use_up(client: httpx.Client, dataset: str) -> int:
    """Submit jobs, large and then small, until none is admitted; return how many were."""
    made = 0
    for mu in ("0.3", "0.05"):
        while submit(client, job(dataset, mu=mu)).status_code == 202:
            made += 1
    return made


def reserved(client: httpx.Client, dataset: str) -> float:
    return float(client.get(f"/v1/datasets/{dataset}/budget").json()["budget_share"]["reserved"])


class TestCap:
    def test_nothing_is_shared_in_silence(self, service: Service) -> None:
        """Sharing a dataset requires a statement of the share of its budget that goes with it."""
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        dataset = upload(owner)
        for body in (None, {}, {"budget_cap": None}, {"budget_cap": "most"}, {"budget_cap": {"budget_share": "2"}}):
            refused = owner.put(place(dataset, who), json=body) if body is not None else owner.put(place(dataset, who))
            assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["pointer"].startswith("/budget_cap")
        assert ann.get(f"/v1/datasets/{dataset['id']}").status_code == 404
        assert submit(ann, job(dataset["id"])).status_code == 404

    def test_a_share_is_the_most_that_goes(self, service: Service) -> None:
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        dataset = upload(owner)
        given = owner.put(place(dataset, who), json={"budget_cap": {"budget_share": "0.25"}})
        assert given.status_code == 201, given.text
        assert use_up(ann, dataset["id"]) > 1
        assert 0.23 < reserved(owner, dataset["id"]) <= 0.25
        (seen,) = owner.get(f"/v1/datasets/{dataset['id']}/access").json()["data"]
        assert (seen["principal"], seen["name"], seen["budget_cap"]) == (
            who["principal"],
            "someone",
            {"budget_share": "0.25"},
        )
        assert float(seen["used"]["reserved"]) > 0.92
        own = ann.get(f"/v1/datasets/{dataset['id']}/budget").json()["cap"]
        assert own == {name: seen[name] for name in own}
        assert submit(owner, job(dataset["id"], mu="0.3")).status_code == 202

    @pytest.mark.parametrize("cap", ["all", {"epsilon": "1"}, {"epsilon": "1", "delta": "1e-7"}, {"rho": "0.02"}])
    def test_every_form_of_a_cap_is_told_again(self, service: Service, cap: Any) -> None:
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        dataset = upload(owner)
        made = owner.put(place(dataset, who), json={"budget_cap": cap})
        told = cap if cap == "all" else {"delta": "1e-6", **cap}
        assert (made.status_code, made.json()["budget_cap"]) == (201, told)
        again = owner.put(place(dataset, who), json={"budget_cap": cap})
        assert (again.status_code, again.headers["ETag"]) == (200, made.headers["ETag"])
        assert ann.get(place(dataset, who)).json() == again.json()
        assert submit(ann, job(dataset["id"], mu="0.05")).status_code == 202
        kinds = [one["kind"] for one in owner.get(f"/v1/scopes/{dataset['scope']}/entries").json()["data"]]
        assert kinds == ["open", "upload", "grant", "reserve"]
        assert verified(owner, dataset["scope"])["ok"] is True

    def test_datasets_of_one_scope_share_one_cap(self, service: Service) -> None:
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        first = upload(owner)
        second = upload(owner, shift=1, budget=None, scope=first["scope"])
        owner.put(place(first, who), json={"budget_cap": {"budget_share": "0.1"}})
        assert ann.get(f"/v1/datasets/{second['id']}").status_code == 404
        silent = owner.put(place(second, who), json={"budget_cap": "all"})
        assert (silent.status_code, silent.json()["code"]) == (412, "precondition-failed")
        assert '{"budget_share": "0.1"}' in silent.json()["errors"][0]["detail"]
        same = owner.put(place(second, who), json={"budget_cap": {"budget_share": "0.1"}})
        assert same.status_code == 201
        assert same.json()["datasets"] == sorted([first["id"], second["id"]])
        assert use_up(ann, first["id"]) > 0
        assert submit(ann, job(second["id"], mu="0.3")).json()["code"] in {
            "budget-reserved",
            "privacy-budget-exhausted",
        }
        wider = {"budget_cap": {"budget_share": "0.5"}}
        assert owner.put(place(second, who), json=wider, headers={"If-Match": '"x"'}).status_code == 412
        changed = owner.put(place(second, who), json=wider, headers={"If-Match": same.headers["ETag"]})
        assert changed.status_code == 200
        assert owner.get(place(first, who)).json()["budget_cap"] == {"budget_share": "0.5"}
        assert submit(ann, job(second["id"], mu="0.3")).status_code == 202
        lower = {"budget_cap": {"budget_share": "0.01"}}
        below = owner.put(place(second, who), json=lower, headers={"If-Match": changed.headers["ETag"]})
        assert (below.status_code, below.json()["code"]) == (409, "conflict")

    def test_there_is_no_other_such_resource(self, service: Service) -> None:
        (owner, _), (_, who) = service.someone("owner"), service.someone("analyst")
        dataset = upload(owner)
        there = f"/v1/scopes/{dataset['scope']}/grants"
        for path in (there, f"{there}/{who['principal']}"):
            assert owner.get(path).status_code == 404
            assert owner.put(path, json={"epsilon": "1"}).status_code == 404
        assert "grants" not in owner.get("/openapi.json").text


class TestEscalation:
    """The rights to give, take and use access: each role, and each owner on another's data."""

    def test_nobody_gives_himself_access(self, service: Service) -> None:
        owner, _ = service.someone("owner")
        dataset = upload(owner)
        for role, status in (("analyst", 404), ("owner", 404), ("auditor", 403), ("admin", 403)):
            client, who = service.someone(role)
            for cap in ("all", {"budget_share": "0.1"}):
                assert client.put(place(dataset, who), json={"budget_cap": cap}).status_code == status
            assert submit(client, job(dataset["id"])).status_code == (403 if role in {"auditor", "admin"} else 404)
        assert reserved(owner, dataset["id"]) == 0

    def test_who_has_access_gives_none_and_widens_none(self, service: Service) -> None:
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        (_, bob), dataset = service.someone("analyst"), upload(owner)
        tag = owner.put(place(dataset, who), json={"budget_cap": {"budget_share": "0.1"}}).headers["ETag"]
        wider = {"json": {"budget_cap": "all"}, "headers": {"If-Match": tag}}
        assert ann.put(place(dataset, who), **wider).status_code == 403
        assert ann.put(place(dataset, bob), json={"budget_cap": "all"}).status_code == 403
        assert ann.delete(place(dataset, who)).status_code == 403
        assert owner.get(place(dataset, who)).json()["budget_cap"] == {"budget_share": "0.1"}

    def test_lists_tell_a_principal_of_itself_alone(self, service: Service) -> None:
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        (_, bob), dataset = service.someone("analyst"), upload(owner)
        for one in (who, bob):
            owner.put(place(dataset, one), json={"budget_cap": "all"})
        listed = f"/v1/datasets/{dataset['id']}/access"
        assert [one["principal"] for one in ann.get(listed).json()["data"]] == [who["principal"]]
        assert ann.get(place(dataset, bob)).status_code == 404
        for role in ("auditor", "admin"):
            assert len(service.someone(role)[0].get(listed).json()["data"]) == 2
        assert service.someone("analyst")[0].get(listed).status_code == 404

    def test_an_admin_adds_no_dataset_to_somebody_s_scope(self, service: Service) -> None:
        """Its own dataset there would let it spend the owner's budget."""
        owner, _ = service.someone("owner")
        dataset = upload(owner)
        parts: list[tuple[str, Any]] = [
            ("metadata", (None, json.dumps(metadata(budget=None, scope=dataset["scope"])), "application/json")),
            ("file", ("people.csv", csv(30, 7), "text/csv")),
        ]
        assert service.client().post("/v1/datasets", files=parts).status_code == 403
        assert upload(owner, shift=2, budget=None, scope=dataset["scope"])["scope"] == dataset["scope"]

    def test_an_admin_takes_access_away_and_spends_none(self, service: Service) -> None:
        (owner, _), (admin, root) = service.someone("owner"), service.someone("admin")
        dataset = upload(owner)
        assert submit(admin, job(dataset["id"])).status_code == 403
        owner.put(place(dataset, root), json={"budget_cap": {"budget_share": "0.2"}})
        assert submit(admin, job(dataset["id"])).status_code == 202
        assert admin.delete(place(dataset, root)).status_code == 204
        assert submit(admin, job(dataset["id"])).status_code == 403


def take_alone(service: Service, dataset: dict[str, Any], who: dict[str, Any]) -> None:
    """Take access away as a process does that ends before it has ended what waits."""
    with store(service) as database, database.write() as session:
        principals.lock(session, who["principal"])
        access.take_in(session, dataset["owner"], dataset["id"], dataset["scope"], who["principal"])


def disable_alone(service: Service, who: dict[str, Any]) -> None:
    """Disable a principal, the same."""
    with store(service) as database, database.write() as session:
        principals.disable(session, who["principal"], "left")


class TestTakenAway:
    def test_sight_and_cap_go_and_the_lines_stay(self, service: Service) -> None:
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        dataset = upload(owner)
        owner.put(place(dataset, who), json={"budget_cap": {"budget_share": "0.5"}})
        submit(ann, job(dataset["id"]))
        with store(service) as database:
            assert drain(database), "what runs goes on"
        before = owner.get(place(dataset, who)).json()["used"]["reserved"]
        assert owner.delete(place(dataset, who)).status_code == 204
        assert owner.delete(place(dataset, who)).status_code == 204
        for path in (f"/v1/datasets/{dataset['id']}", f"/v1/scopes/{dataset['scope']}", place(dataset, who)):
            assert ann.get(path).status_code == 404, path
        assert submit(ann, job(dataset["id"])).status_code == 404
        lines = [json.loads(one["body"]) for one in owner.get(f"/v1/scopes/{dataset['scope']}/entries").json()["data"]]
        assert [one["kind"] for one in lines] == ["open", "upload", "grant", "reserve", "grant"]
        assert lines[-1]["closed"] is True
        assert verified(owner, dataset["scope"])["ok"] is True
        owner.put(place(dataset, who), json={"budget_cap": {"budget_share": "0.5"}})
        assert owner.get(place(dataset, who)).json()["used"]["reserved"] == before, "it counts on"

    def test_queued_jobs_never_start(self, service: Service) -> None:
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        kept, taken = upload(owner), upload(owner)
        for dataset in (kept, taken):
            owner.put(place(dataset, who), json={"budget_cap": "all"})
        waiting = [submit(ann, job(taken["id"])).json()["id"] for _ in range(3)]
        other = submit(ann, job(kept["id"])).json()["id"]
        take_alone(service, taken, who)
        with store(service) as database:
            claimed = drain(database)
        assert other in claimed
        assert not set(waiting) & claimed
        for one in waiting:
            view = ann.get(f"/v1/jobs/{one}").json()
            assert (view["state"], view["error"], view["cost"]["spent"]["budget_share"]) == (
                "failed", {"code": "access-withdrawn"}, "0"
            )  # fmt: skip
            assert "access" in view["failed_for"]
        assert reserved(owner, taken["id"]) == 0
        assert verified(owner, taken["scope"])["ok"] is True

    def test_what_waits_in_vain_is_given_back_without_a_worker(self, service: Service) -> None:
        """No worker takes jobs; the sweep frees what they hold of the owner's budget."""
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        (other, leaver), kept = service.someone("owner"), upload(owner)
        taken, left = upload(owner, shift=7), upload(other, shift=8)
        for dataset in (kept, taken):
            owner.put(place(dataset, who), json={"budget_cap": "all"})
        waiting = [submit(ann, job(taken["id"])).json()["id"] for _ in range(3)]
        stays = submit(ann, job(kept["id"])).json()["id"]
        of_leaver = submit(other, job(left["id"])).json()["id"]
        take_alone(service, taken, who)
        admin = service.client()
        disable_alone(service, leaver)
        assert reserved(owner, taken["id"]) > 0
        with store(service) as database:
            swept = JobRepository(database, service.settings, "w").sweep()
        assert (reserved(owner, taken["id"]), reserved(admin, left["id"])) == (0, 0)
        assert {*waiting, of_leaver} <= set(swept.withdrawn)
        assert stays not in swept.withdrawn
        assert reserved(owner, kept["id"]) > 0
        for one in waiting:
            view = ann.get(f"/v1/jobs/{one}").json()
            assert (view["state"], view["error"], view["cost"]["spent"]["budget_share"]) == (
                "failed", {"code": "access-withdrawn"}, "0"
            )  # fmt: skip
        assert ann.get(f"/v1/jobs/{stays}").json()["state"] == "queued"
        ann.post(f"/v1/jobs/{stays}/cancel")
        assert verified(owner, taken["scope"])["ok"] is True

    def test_jobs_of_a_disabled_principal_never_start(self, service: Service) -> None:
        owner, boss = service.someone("owner")
        dataset = upload(owner)
        waiting = submit(owner, job(dataset["id"])).json()["id"]
        admin = service.client()
        disable_alone(service, boss)
        with store(service) as database:
            assert waiting not in drain(database)
        assert admin.get(f"/v1/jobs/{waiting}").json()["error"] == {"code": "access-withdrawn"}
        assert reserved(admin, dataset["id"]) == 0

    @pytest.mark.parametrize(("quorum", "state"), [(1, "running"), (2, "failed")])
    @pytest.mark.parametrize("by", ["claim", "sweep"])
    def test_every_client_of_a_federated_job_is_looked_at(
        self, service: Service, quorum: int, state: str, by: str
    ) -> None:
        ann, who = service.someone("analyst")
        owners = [service.someone("owner")[0] for _ in range(2)]
        datasets = [upload(owner, shift=40 + place) for place, owner in enumerate(owners)]
        for owner, dataset in zip(owners, datasets, strict=True):
            owner.put(place(dataset, who), json={"budget_cap": "all"})
        body = job("ds_none", dataset=None, optimizer={"kind": "noisy_gd", "steps": 8}, inference={"intervals": False})
        body["federation"] = {"datasets": [one["id"] for one in datasets], "quorum": quorum}
        made = submit(ann, body)
        assert made.status_code == 202, made.text
        take_alone(service, datasets[0], who)
        with store(service) as database:
            if by == "sweep":
                JobRepository(database, service.settings, "w").sweep()
                assert reserved(owners[0], datasets[0]["id"]) == 0
            drain(database)
        view = ann.get(f"/v1/jobs/{made.json()['id']}").json()
        assert view["state"] == state
        assert view["federation"]["sites"][0]["error"] == {"code": "access-withdrawn"}
        assert reserved(owners[0], datasets[0]["id"]) == 0
        if state == "failed":
            assert view["error"] == {"code": "access-withdrawn"}
            assert reserved(owners[1], datasets[1]["id"]) == 0

    @pytest.mark.parametrize("way", ["access", "principal"])
    def test_what_comes_back_is_the_right_and_no_job(self, service: Service, way: str) -> None:
        """At 2ee9d81 a job that waited came back to life, if nobody had swept meanwhile."""
        (owner, _), (ann, who), admin = service.someone("owner"), service.someone("analyst"), service.client()
        dataset = upload(owner)
        owner.put(place(dataset, who), json={"budget_cap": "all"})
        waiting = [submit(ann, job(dataset["id"])).json()["id"] for _ in range(3)]
        headers = {"Accept": "text/event-stream"}
        with ann.stream("GET", f"/v1/jobs/{waiting[0]}/events", headers=headers) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "id: 1"
            if way == "access":
                owner.delete(place(dataset, who))
            else:
                admin.post(f"/v1/principals/{who['principal']}/disable", json={"reason": "by mistake"})
                assert ann.get("/v1/me").status_code == 401
            assert reserved(owner, dataset["id"]) == 0, "at once"
            if way == "access":
                owner.put(place(dataset, who), json={"budget_cap": "all"})
            else:
                assert admin.post(f"/v1/principals/{who['principal']}/enable").status_code == 200
            assert [line for line in lines if line.startswith("event")][-1] == "event: failed"
        assert ann.get("/v1/me").status_code == 200, "its key opens again"
        with store(service) as database:
            assert not drain(database) & set(waiting)
        for one in waiting:
            assert ann.get(f"/v1/jobs/{one}").json()["error"] == {"code": "access-withdrawn"}
        assert submit(ann, job(dataset["id"])).status_code == 202
        assert verified(owner, dataset["scope"])["ok"] is True

    def test_what_waited_as_a_process_died_ends_before_its_principal_is_back(self, service: Service) -> None:
        owner, who = service.someone("owner")
        one = submit(owner, job(upload(owner)["id"])).json()["id"]
        disable_alone(service, who)
        assert service.client().post(f"/v1/principals/{who['principal']}/enable").status_code == 200
        assert owner.get(f"/v1/jobs/{one}").json()["error"] == {"code": "access-withdrawn"}

    def test_records_that_are_erased_while_a_job_runs_are_read_no_more(self, service: Service) -> None:
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        dataset = upload(owner)
        owner.put(place(dataset, who), json={"budget_cap": "all"})
        with store(service) as database:
            drain(database)
            one = submit(ann, job(dataset["id"])).json()["id"]
            claim = database.transaction(jobs.claim, "w", 600.0)
            assert claim is not None
            assert claim.job_id == one
            headers = {"Accept": "text/event-stream"}
            with ann.stream("GET", f"/v1/jobs/{one}/events", headers=headers) as answer:
                lines = answer.iter_lines()
                assert next(lines) == "id: 1"
                assert owner.delete(f"/v1/datasets/{dataset['id']}").status_code == 202
                assert submit(ann, job(dataset["id"])).status_code in {404, 409}
                with pytest.raises(StaleAttempt):
                    database.transaction(ledger.pay, claim, 0, None, 0)
                with pytest.raises(StaleAttempt):
                    database.transaction(jobs.finish, claim, {}, "not-needed")
                database.transaction(jobs.acknowledge_cancel, claim)
                assert [line for line in lines if line.startswith("event")][-1] == "event: cancelled"
        assert reserved(owner, dataset["id"]) == 0

    def test_what_runs_is_released_to_the_owner_alone(self, service: Service) -> None:
        """A release that was seen before stays; one made after access was taken away waits for the data's owner."""
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        dataset = upload(owner)
        owner.put(place(dataset, who), json={"budget_cap": "all"})
        with store(service) as database:
            drain(database)
            made = [submit(ann, job(dataset["id"])).json()["id"] for _ in range(2)]
            first, second = (database.transaction(jobs.claim, "w", 600.0) for _ in made)
            assert first is not None
            assert second is not None
            assert {first.job_id, second.job_id} == set(made)
            early = database.transaction(jobs.finish, first, {}, "not-needed").approval
            owner.delete(place(dataset, who))
            late = database.transaction(jobs.finish, second, {}, "not-needed").approval
        assert (early, late) == ("not-needed", "pending")
        seen = {one: ann.get(f"/v1/jobs/{one}").json() for one in made}
        assert seen[first.job_id]["result"] is not None
        assert (seen[second.job_id]["result"], seen[second.job_id]["approval"]) == (None, "pending")
        assert owner.get(f"/v1/jobs/{second.job_id}").json()["result"] is not None
        report = ann.get(f"/v1/jobs/{first.job_id}/report").json()
        assert report["ledger"] is None, "where the ledger stands now is not theirs to follow any more"
        assert owner.get(f"/v1/jobs/{first.job_id}/report").json()["ledger"]["entries"] > 2


def drain(database: Database) -> set[str]:
    """Claim until nothing waits; return which jobs began."""
    found, empty = set(), 0
    while empty < 3:
        claim = database.transaction(jobs.claim, "w", 600.0)
        empty = empty + 1 if claim is None else 0
        if claim is not None:
            found.add(claim.job_id)
    return found


@pytest.mark.parametrize("change", ["taken away", "narrowed", "disabled"])
def test_what_changes_at_the_instant_of_a_submission_counts(database: Database, change: str, tmp_path: Path) -> None:
    """The submission has found the dataset and waits for a lock; the lock's holder changes its access, and commits.

    On SQLite the submission waits for the whole database, so that it begins afterwards; on PostgreSQL it is in the
    middle.
    """
    context = Context(ServiceSettings(home=tmp_path, database_url=str(database.url)), database)
    with database.write() as session:
        owner, ann = principals.create(session, "Olga", "owner").id, principals.create(session, "Ann", "analyst").id
        found = open_place(session, owner, COLUMNS, units=400)
        give(session, found.dataset_id, ann)
    caller = Caller(ann, "Ann", "analyst", "key_none")
    spec = JobSpec.model_validate(job(found.dataset_id, mu="0.3"))
    asked = intake.planned(context, caller, spec, "a", "POST /v1/jobs")
    assert isinstance(asked, Submission)
    answers: list[Any] = []

    def take() -> None:
        while not answers:
            with suppress(LedgerBusy):  # whoever holds the lock may take longer than a submission waits
                answers.extend(entry.take(context, [asked]))

    with database.write() as session:
        principals.lock(session, ann)
        thread = threading.Thread(target=take)
        thread.start()
        time.sleep(0.7)  # it has asked for the principal's lock by then, and waits two seconds for it
        if change == "taken away":
            access.take_in(session, owner, found.dataset_id, found.scope_id, ann)
        elif change == "disabled":
            principals.disable(session, ann, "left")
        else:
            terms = ledger.balance(session, found.scope_id).terms
            narrow = terms.model_copy(update={"caps_nano": tuple(1 for _ in terms.caps_nano)})
            ledger.set_grant(session, found.scope_id, ann, narrow, {"share": "1e-9"})
    thread.join()
    (answer,) = answers
    assert not isinstance(answer, StoredAnswer), "one more job came through"
    assert isinstance(answer, NotFound) == (change != "narrowed")
    with database.read() as session:
        assert session.execute(select(Job.id)).all() == []


class TestOfOthers:
    """Requests with others' keys at the same time, and the answers to requests for others' things."""

    def test_caps_hold_while_two_principals_submit_at_once(self, service: Service) -> None:
        (owner, _), (ann, first), (bob, second) = (service.someone(role) for role in ("owner", "analyst", "analyst"))
        dataset = upload(owner)
        owner.put(place(dataset, first), json={"budget_cap": {"budget_share": "0.2"}})
        owner.put(place(dataset, second), json={"budget_cap": "all"})
        codes: list[Any] = []

        def send(client: httpx.Client, mu: str) -> None:
            codes.extend(submit(client, job(dataset["id"], mu=mu)).json().get("code") for _ in range(4))

        together([lambda: send(ann, "0.12")] * 6 + [lambda: send(bob, "0.15")] * 6)
        assert set(codes) == {None, "privacy-budget-reserved"}
        used = {
            one["principal"]: float(one["used"]["reserved"])
            for one in owner.get(f"/v1/datasets/{dataset['id']}/access").json()["data"]
        }
        assert 0.8 < used[first["principal"]] <= 1
        assert used[second["principal"]] == pytest.approx(
            reserved(owner, dataset["id"]) - used[first["principal"]] / 5, abs=0.02
        )
        assert reserved(owner, dataset["id"]) <= 1
        assert verified(owner, dataset["scope"])["ok"] is True

    def test_access_that_comes_and_goes_admits_nothing_beside_its_cap(self, service: Service) -> None:
        (owner, _), (bob, who) = service.someone("owner"), service.someone("analyst")
        dataset, done = upload(owner), threading.Event()
        statuses: list[int] = []

        def flip() -> None:
            while not done.is_set():
                owner.put(place(dataset, who), json={"budget_cap": {"budget_share": "0.1"}})
                owner.delete(place(dataset, who))

        def send() -> None:
            statuses.extend(submit(bob, job(dataset["id"], mu="0.03")).status_code for _ in range(8))
            done.set()

        together([flip, *[send] * 4])
        assert set(statuses) <= {202, 404, 409}
        owner.put(place(dataset, who), json={"budget_cap": {"budget_share": "0.1"}})
        assert float(owner.get(place(dataset, who)).json()["used"]["reserved"]) <= 100
        assert reserved(owner, dataset["id"]) <= 10
        assert verified(owner, dataset["scope"])["ok"] is True

    def test_a_key_sent_again_after_access_went_makes_nothing(self, service: Service) -> None:
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        dataset = upload(owner)
        owner.put(place(dataset, who), json={"budget_cap": "all"})
        body = job(dataset["id"], mu="0.05")
        made = submit(ann, body, key="once")
        owner.delete(place(dataset, who))
        held = reserved(owner, dataset["id"])
        again = submit(ann, body, key="once")
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.json() == made.json(), "what was answered before, and nothing of what came since"
        clone = ann.post(f"/v1/jobs/{made.json()['id']}/clone", headers={"Idempotency-Key": "twice"})
        assert clone.status_code == submit(ann, body, key="thrice").status_code == 404
        assert ann.post("/v1/estimates", json=body).status_code == 404
        assert reserved(owner, dataset["id"]) == held

    @pytest.mark.parametrize("role", ["analyst", "owner"])
    def test_what_is_anothers_is_as_if_it_were_not(self, service: Service, role: str) -> None:
        (owner, _), (_, who), (stranger, _) = (service.someone(one) for one in ("owner", "analyst", role))
        dataset = upload(owner)
        owner.put(place(dataset, who), json={"budget_cap": "all"})
        made = submit(owner, job(dataset["id"])).json()["id"]
        draft = owner.post("/v1/datasets", json=metadata(seal=False)).json()["id"]
        real = {
            "dataset_id": dataset["id"],
            "scope_id": dataset["scope"],
            "job_id": made,
            "principal_id": who["principal"],
            "key_id": who["id"],
            "name": "report.json",
            "upload_id": owner.post(f"/v1/datasets/{draft}/uploads", json={"bytes": len(_FILE)}).json()["id"],
            "number": "1",
        }
        same = {"name", "number"}
        other = {name: value if name in same else value[:-4] + "0000" for name, value in real.items()}
        asked = 0
        for path, operations in stranger.get("/openapi.json").json()["paths"].items():
            names = re.findall(r"\{(\w+)\}", path)
            if not names or not set(names) <= real.keys():
                continue
            for method in operations:
                told = {self._told(stranger, method, path, names) for names in (real, other)}
                assert len(told) == 1, (method, path, told)
                (status, _), asked = *told, asked + 1
                assert status in {403, 404}, (method, path, told)  # 403: the role may not, whatever is named
        assert asked > 25

    def _told(self, client: httpx.Client, method: str, path: str, names: dict[str, str]) -> tuple[int, str]:
        bodies: dict[str, Any] = {
            "access": {"budget_cap": "all"},
            "freeze": {"reason": "mine now"},
            "acceptances": {"entry": 1, "reason": "mine now"},
            "adjustments": {"job": names["job_id"], "reason": "mine now"},
            "removals": {"row": 1},
        } | ({"/uploads": {"bytes": 7}} if path.endswith("/uploads") else {})
        body = next((body for word, body in bodies.items() if word in path), None)
        content: dict[str, Any] = {} if body is None else {"json": body}
        if path.endswith("/content") or "/parts/" in path:
            content = {"content": _FILE}
        if method == "patch":
            content = {"json": {"name": "mine now"}}
        digest = f"sha-256=:{b64encode(sha256(_FILE).digest()).decode()}:"
        headers = {"Idempotency-Key": "x", "Content-Digest": digest} | (
            {"Content-Type": "text/csv"} if "content" in content else {}
        )
        answer = client.request(method, path.format(**names), headers=headers, **(content if method != "get" else {}))
        return answer.status_code, re.sub(r"(req|ds|sc|job|pr|key)_[0-9a-z]{26}", r"\1", answer.text)

    def test_a_full_queue_tells_nothing_of_anothers_dataset(self, tmp_path: Path) -> None:
        """At 6675922 it answered 429 where somebody had asked for the same job, and 404 else."""
        with running(tmp_path, FARTHING_MAX_QUEUED_PER_PRINCIPAL="1") as full:
            (owner, _), (stranger, _) = full.someone("owner"), full.someone("owner")
            theirs, own = upload(owner)["id"], upload(stranger)["id"]
            assert submit(owner, job(theirs)).status_code == 202, "planned, and remembered"
            assert submit(stranger, job(own)).status_code == 202
            assert submit(stranger, job(own)).status_code == 429
            assert [submit(stranger, job(one)).status_code for one in (theirs, theirs[:-4] + "0000")] == [404, 404]


def together(work: list[Callable[[], None]]) -> None:
    """Do all of it at the same time."""
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class TestStreams:
    def test_a_stream_ends_with_its_key_on_every_process(self, service: Service) -> None:
        """A request to one process ends the streams that are open in another."""
        with joined(service) as other:
            for way in ("revoke", "disable"):
                owner, who = service.someone("owner")
                one = submit(owner, job(upload(owner)["id"])).json()["id"]
                there = other.client(who["key"])
                with there.stream("GET", f"/v1/jobs/{one}/events", headers={"Accept": "text/event-stream"}) as answer:
                    lines = answer.iter_lines()
                    assert next(lines).startswith("id: 1")
                    end(service, who, way)
                    began = time.monotonic()
                    told = [line for line in lines if line.startswith("event")]
                    # Whoever is disabled has waiting jobs ended at once, which the stream may tell before it ends.
                    assert told in [["event: queued"], ["event: queued", "event: failed"]][: 1 + (way == "disable")]
                assert time.monotonic() - began < SECONDS_TO_END

    def test_a_long_poll_ends_with_its_key(self, service: Service) -> None:
        owner, who = service.someone("owner")
        one = submit(owner, job(upload(owner)["id"])).json()["id"]
        threading.Timer(1.0, end, (service, who, "revoke")).start()
        began = time.monotonic()
        assert owner.get(f"/v1/jobs/{one}", headers={"Prefer": "wait=30"}).status_code == 401
        assert time.monotonic() - began < 1 + SECONDS_TO_END

    def test_a_download_of_the_trail_breaks_off(self, service: Service) -> None:
        _, who = service.someone("auditor")
        with store(service) as database:
            context = Context(ServiceSettings(home=service.home), database)
            caller = Caller(who["principal"], "someone", "auditor", who["id"])
            lines = audit_routes.while_valid(context, caller, repeat(None))  # as many as there may be
            assert next(lines) is None
            end(service, who, "revoke")
            time.sleep(audit_routes.LOOK_SECONDS + 0.1)
            with pytest.raises(Unauthenticated):
                next(lines)


class TestUnderWay:
    @pytest.mark.parametrize("way", ["revoke", "disable"])
    def test_an_upload_under_way_is_not_stored(self, service: Service, way: str) -> None:
        owner, who = service.someone("owner")
        content = csv(500, 3)

        def body() -> Iterator[bytes]:
            declared = json.dumps(metadata())
            yield (
                '--x\r\nContent-Disposition: form-data; name="metadata"\r\nContent-Type: application/json\r\n\r\n'
                f"{declared}\r\n--x\r\n"
                'Content-Disposition: form-data; name="file"; filename="a.csv"\r\nContent-Type: text/csv\r\n\r\n'
            ).encode()
            yield content[:1000]
            time.sleep(0.5)
            end(service, who, way)
            yield content[1000:] + b"\r\n--x--\r\n"

        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        before = service.files()
        assert owner.post("/v1/datasets", content=body(), headers=kind).status_code == 401
        assert service.files() == before


def end(service: Service, who: dict[str, Any], way: str) -> None:
    """Revoke a key, or disable its principal."""
    admin = service.client()
    if way == "revoke":
        assert admin.post(f"/v1/keys/{who['id']}/revoke").status_code == 200
    else:
        told = admin.post(f"/v1/principals/{who['principal']}/disable", json={"reason": "left"})
        assert told.status_code == 200
