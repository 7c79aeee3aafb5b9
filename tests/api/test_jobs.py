import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from core.jobs import jobs as rows
from core.planning.job import JobSpec, Resources
from tests.support.api import Service, job, running, submit, upload

FIGURES: dict[str, Any] = {
    "a JSON number": 0.1,
    "zero": "0",
    "negative": "-1",
    "NaN": "NaN",
    "infinite": "1e400",
    "text": "a lot",
    "null": None,
}


@pytest.fixture
def fresh(admin: httpx.Client) -> dict[str, Any]:
    """A dataset of this test's own."""
    fresh.count = getattr(fresh, "count", 100) + 1  # type: ignore[attr-defined] # a counter beside the fixture
    return upload(admin, shift=fresh.count, rows=200 + fresh.count)  # type: ignore[attr-defined] # as above


def most(view: dict[str, Any]) -> float:
    """Return all that a job reserved, in per cent: its price, and what it may pay again."""
    return sum(float(view["cost"][name]["budget_share"]) for name in ("reserved", "retry_allowance"))


class TestEstimate:
    @pytest.mark.parametrize(
        ("headers", "content", "pointer", "said"),
        [
            ({}, "{}", "#header/content-type", "application/json"),
            ({"Content-Type": "application/json"}, '{"dataset": "ds_1",\n "model" 3}', "", "line 2, column 10"),
            ({"Content-Type": "application/json"}, '{"optimizer": {"steps": NaN}}', "/optimizer/steps", "NaN"),
        ],
    )
    def test_a_body_that_cannot_be_read_says_why(
        self, admin: httpx.Client, headers: dict[str, str], content: str, pointer: str, said: str
    ) -> None:
        answer = admin.post("/v1/estimates", content=content, headers=headers)
        (wrong,) = answer.json()["errors"]
        assert (answer.status_code, wrong["pointer"]) == (422, pointer)
        assert said in wrong["detail"]

    def test_has_the_promised_shape(self, admin: httpx.Client, dataset: str) -> None:
        answer = admin.post("/v1/estimates", json=job(dataset))
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert {"cost", "plan", "bound", "fits", "jobs_that_still_fit"} <= told.keys()
        beside = told["cost"].pop("retry_allowance")
        assert told["cost"].pop("delta") == "1e-6"
        assert set(told["cost"]) == set(beside) == {"budget_share", "epsilon_alone", "rho", "mu"}
        assert told["cost"]["mu"] == "0.1"
        assert told["cost"]["rho"] == "0.005"
        assert 0 < float(beside["rho"]) < 0.005
        assert all(isinstance(figure, str) for figure in (*told["cost"].values(), *beside.values()))
        assert set(told["bound"]) == {"quantity", "value", "confidence", "trivial", "vacuous", "source"}
        assert isinstance(told["bound"]["vacuous"], bool)
        assert told["plan"]["steps"] == 8
        assert None not in {told["plan"][name] for name in ("damping", "mu", "eigenvalue_floor")}
        assert told["fits"] is True

    def test_counts_the_jobs_that_the_ledger_then_admits(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        body = job(fresh["id"], mu="0.3")
        fits = admin.post("/v1/estimates", json=body).json()["jobs_that_still_fit"]
        assert [submit(admin, body).status_code for _ in range(fits + 1)] == [202] * fits + [409]
        assert admin.post("/v1/estimates", json=body).json()["fits"] is False

    @pytest.mark.parametrize("case", FIGURES)
    @pytest.mark.parametrize("name", ["mu", "rho", "epsilon", "budget_share"])
    def test_wrong_figures_are_named(self, admin: httpx.Client, dataset: str, name: str, case: str) -> None:
        body = job(dataset, privacy={name: FIGURES[case]})
        for answer in (admin.post("/v1/estimates", json=body), submit(admin, body)):
            assert answer.status_code == 422, answer.text
            assert all(error["pointer"].startswith("/privacy") for error in answer.json()["errors"])
            assert answer.json()["errors"]

    @pytest.mark.parametrize(
        ("change", "pointer"),
        [
            ({"model": {"kind": "logistic", "target": "nope"}}, "/model/target"),
            ({"model": {"kind": "logistic", "target": "age"}}, "/model/target"),
            ({"model": {"kind": "logistic", "target": "y", "features": ["age", "nope"]}}, "/model/features/1"),
            ({"model": {"kind": "forest", "target": "y"}}, "/model/kind"),
            ({"model": {"kind": "linear", "target": "age", "loss": {"kind": "log_cosh", "c": -1}}}, "/model/loss/c"),
            ({"model": {"kind": "linear", "target": "age", "weights": {"power": 1}}}, "/model/weights/power"),
            ({"optimizer": {"kind": "noisy_newton", "steps": 0}}, "/optimizer/steps"),
            ({"optimizer": {"kind": "magic"}}, "/optimizer/kind"),
            ({"privacy": {"mu": "0.1", "rho": "0.1"}}, "/privacy"),
            ({"privacy": {}}, "/privacy"),
            ({"inference": {"level": 2}}, "/inference/level"),
            ({"labels": {"a b": "c"}}, "/labels"),
            ({"model": {"kind": "logistic", "target": "y", "weights": {"bound": 1.7e308}}}, "/model/weights/bound"),
            ({"optimizer": {"kind": "noisy_gd", "mu": 5e-324}}, "/optimizer/mu"),
            ({"dataset": None}, "/dataset"),
            ({"colour": "red"}, "/colour"),
            ({"resources": {"processes": 0}}, "/resources/processes"),
            ({"resources": {"processes": 64}}, "/resources/processes"),  # more than this machine may start
            ({"resources": {"processes": 65}}, "/resources/processes"),
            ({"resources": {"processes": 2, "device": "cuda"}}, "/resources/processes"),
            ({"resources": {"processes": 2, "gpus": 1}}, "/resources/processes"),
        ],
    )
    def test_wrong_fields_are_named(
        self, admin: httpx.Client, dataset: str, change: dict[str, Any], pointer: str
    ) -> None:
        answer = admin.post("/v1/estimates", json=job(dataset, **change))
        assert answer.status_code == 422, answer.text
        assert any(error["pointer"].startswith(pointer) for error in answer.json()["errors"]), answer.text

    def test_an_unknown_kind_of_model_is_the_models_fault_alone(self, admin: httpx.Client, dataset: str) -> None:
        for kind in ("logistik", ["logistic"]):
            body = {"dataset": dataset, "model": {"kind": kind, "target": "y"}, "privacy": {"mu": "0.1"}}
            answer = admin.post("/v1/estimates", json=body)
            assert answer.json()["detail"] == "The request is not valid at /model/kind."


class TestSubmit:
    def test_has_the_promised_shape(self, admin: httpx.Client, dataset: str) -> None:
        answer = submit(admin, job(dataset))
        assert answer.status_code == 202
        view = answer.json()
        assert answer.headers["Location"] == f"/v1/jobs/{view['id']}"
        assert answer.headers["Retry-After"] == "1"
        assert view["id"].startswith("job_")
        assert view["object"] == "job"
        assert view["state"] == "queued"
        assert view["dataset"] == dataset
        assert view["progress"] == {"step": 0, "steps": 8, "left": 8}
        assert set(view["cost"]) == {"reserved", "retry_allowance", "spent", "returned", "delta"}
        assert view["cost"]["delta"] == "1e-6"
        assert view["cost"]["returned"] is None, "nothing is, before it has ended"
        for name in ("reserved", "retry_allowance", "spent"):
            assert set(view["cost"][name]) == {"budget_share", "epsilon_alone", "rho", "mu"}
        assert view["cost"]["reserved"]["mu"] == "0.1"
        assert view["cost"]["spent"]["budget_share"] == "0"
        assert view["attempt"] == 0
        assert view["labels"] == {"study": "a"}
        assert [view[name] for name in ("started_at", "finished_at", "error", "result")] == [None] * 4
        assert view["optimizer"]["kind"] == "noisy_newton"
        assert view["optimizer"]["damping"] is not None
        assert admin.get(f"/v1/jobs/{view['id']}").json() == {**view, "waits_for": "any worker"}

    def test_needs_an_idempotency_key(self, admin: httpx.Client, dataset: str) -> None:
        answer = admin.post("/v1/jobs", json=job(dataset))
        assert answer.status_code == 400
        assert answer.json()["code"] == "idempotency-key-missing"
        assert submit(admin, job(dataset), key="x" * 201).status_code == 422

    def test_one_key_is_one_job(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        key, body = uuid4().hex, job(fresh["id"])
        one, two = submit(admin, body, key), submit(admin, body, key)
        assert one.json() == two.json()
        assert "Idempotency-Replayed" not in one.headers
        assert two.headers["Idempotency-Replayed"] == "true"
        assert two.status_code == 202
        other = submit(admin, job(fresh["id"], mu="0.2"), key)
        assert other.status_code == 422
        assert other.json()["code"] == "idempotency-key-reused"
        assert admin.get(f"/v1/datasets/{fresh['id']}/budget").json()["entries"] == 3

    def test_two_threads_with_one_key_make_one_job(self, service: Service, fresh: dict[str, Any]) -> None:
        key, answers, start = uuid4().hex, [], threading.Barrier(8)

        def send() -> None:
            with service.client() as client:
                start.wait()
                answers.append(submit(client, job(fresh["id"]), key))

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done = [answer for answer in answers if answer.status_code == 202]
        assert {answer.status_code for answer in answers} <= {202, 409}
        assert done
        assert len({answer.json()["id"] for answer in done}) == 1
        assert len(service.client().get("/v1/jobs", params={"dataset": fresh["id"]}).json()["data"]) == 1

    def test_a_refused_key_may_be_used_again(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        key = uuid4().hex
        assert submit(admin, job(fresh["id"], mu="100"), key).status_code == 403
        assert submit(admin, job(fresh["id"]), key).status_code == 202

    def test_an_exhausted_budget_says_what_would_fit(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        answer = submit(admin, job(fresh["id"], mu="5"))
        assert answer.status_code == 403
        problem = answer.json()
        assert problem["code"] == "privacy-budget-exhausted"
        assert problem["retryable"] is False
        assert problem["actor"] == "owner"
        assert float(problem["required_budget_share"]) > float(problem["available_budget_share"])
        assert submit(admin, job(fresh["id"], mu=problem["fits_at_mu"][:5])).status_code == 202

    def test_what_would_fit_without_an_allowance_is_told(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        def refused(mu: float) -> bool:
            return not admin.post("/v1/estimates", json=job(fresh["id"], mu=f"{mu:.4f}")).json()["fits"]

        mu = next(mu for mu in (0.3 + 0.01 * tick for tick in range(100)) if refused(mu))
        body = job(fresh["id"], mu=f"{mu:.4f}")
        problem = submit(admin, body).json()
        assert problem["code"] == "privacy-budget-exhausted"
        assert [field["pointer"] for field in problem["errors"]] == ["/retry_allowance"]
        bare = {**body, "retry_allowance": 0}
        quoted = admin.post("/v1/estimates", json=bare).json()
        assert quoted["fits"]
        assert quoted["jobs_that_still_fit"] >= 1
        assert quoted["cost"]["retry_allowance"]["budget_share"] == "0"
        assert submit(admin, bare).json()["cost"]["retry_allowance"]["budget_share"] == "0"

    def test_an_allowance_out_of_range_is_refused(self, admin: httpx.Client, dataset: str) -> None:
        for times in (-1, 6, "1.5"):
            answer = submit(admin, {**job(dataset), "retry_allowance": times})
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["pointer"] == "/retry_allowance"

    def test_a_reserved_budget_may_come_back(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        first = submit(admin, job(fresh["id"], mu="0.5"))
        answer = submit(admin, job(fresh["id"], mu="0.5"))
        assert (first.status_code, answer.status_code) == (202, 409)
        assert answer.json()["code"] == "privacy-budget-reserved"
        assert answer.json()["retryable"] is True
        assert int(answer.headers["Retry-After"]) > 0
        admin.post(f"/v1/jobs/{first.json()['id']}/cancel")
        assert submit(admin, job(fresh["id"], mu="0.5")).status_code == 202

    def test_clones_are_new_charges(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        first = submit(admin, job(fresh["id"])).json()
        key = {"Idempotency-Key": uuid4().hex}
        clone = admin.post(f"/v1/jobs/{first['id']}/clone", headers=key)
        assert clone.status_code == 202, clone.text
        assert clone.json()["id"] != first["id"]
        assert clone.json()["optimizer"] == first["optimizer"]
        assert admin.post(f"/v1/jobs/{first['id']}/clone", headers=key).json() == clone.json()
        held = admin.get(f"/v1/datasets/{fresh['id']}/budget").json()["budget_share"]["reserved"]
        assert float(held) == pytest.approx(2 * most(first), rel=1e-3)

    def test_a_view_tells_all_that_was_asked(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        """A stranger who has only the view submits the same job again, at the same price."""
        resources = {"device": "cpu", "processes": 2, "max_runtime_seconds": 90.0, "priority": -3}
        asked = job(fresh["id"], resources=resources, retry_allowance=2, labels={"study": "a"})
        made = submit(admin, asked).json()
        view = admin.get(f"/v1/jobs/{made['id']}").json()
        unsaid = {"gpus": None, "memory_bytes": None, "max_queue_seconds": None}
        assert view["resources"] == made["resources"] == resources | unsaid
        assert view["retry_allowance"] == made["retry_allowance"] == 2
        request = {name: view[name] for name in JobSpec.model_fields if name in view and name != "federation"}
        assert asked.keys() <= request.keys()
        again = submit(admin, request)
        assert again.status_code == 202, again.text
        apart = {"id", "created_at"}
        assert {k: v for k, v in again.json().items() if k not in apart} == {
            k: v for k, v in made.items() if k not in apart
        }

    def test_a_job_that_says_nothing_of_them_shows_what_is_meant(
        self, admin: httpx.Client, fresh: dict[str, Any]
    ) -> None:
        view = submit(admin, job(fresh["id"])).json()
        assert view["retry_allowance"] == 1
        assert view["resources"].keys() == Resources.model_fields.keys()
        assert (view["resources"]["device"], view["resources"]["processes"]) == ("auto", 1)

    def test_a_frozen_scope_admits_nothing(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        place = f"/v1/scopes/{fresh['scope']}"
        assert admin.post(f"{place}/freeze", json={"reason": "an inquiry"}).json()["frozen"] == "an inquiry"
        answer = submit(admin, job(fresh["id"]))
        assert answer.status_code == 409
        assert answer.json()["code"] == "scope-frozen"
        assert admin.post(f"{place}/unfreeze", json={"reason": "settled"}).json()["frozen"] is None
        assert submit(admin, job(fresh["id"])).status_code == 202

    def test_replace_one_and_gradient_descent(self, admin: httpx.Client) -> None:
        made = upload(admin, shift=77, adjacency="replace_one")
        answer = submit(admin, job(made["id"], optimizer={"kind": "noisy_gd"}))
        assert answer.status_code == 202, answer.text
        assert admin.get(f"/v1/datasets/{made['id']}/budget").json()["adjacency"] == "replace_one"


class TestList:
    def test_filters(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        one = submit(admin, job(fresh["id"], labels={"study": "one"})).json()["id"]
        two = submit(admin, job(fresh["id"], labels={"study": "two"}, optimizer={"kind": "noisy_gd"})).json()["id"]
        admin.post(f"/v1/jobs/{two}/cancel")

        def found(**query: str) -> list[str]:
            listed = admin.get("/v1/jobs", params={"dataset": fresh["id"], **query}).json()["data"]
            return [item["id"] for item in listed]

        assert found() == [two, one]
        assert found(label="study:one") == [one]
        assert found(label="study:three") == []
        assert found(state="cancelled") == [two]
        assert found(optimizer="noisy_newton") == [one]
        assert found(limit="1") == [two]
        assert found(limit="1", after=two) == [one]
        assert admin.get("/v1/jobs?label=study").status_code == 422
        assert admin.get("/v1/jobs?state=nowhere").status_code == 422
        assert admin.get("/v1/jobs?limit=0").json()["errors"][0]["pointer"] == "#query/limit"

    def test_others_jobs_do_not_exist(self, service: Service, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        made = submit(admin, job(fresh["id"])).json()["id"]
        stranger, who = service.someone("analyst")
        admin.put(f"/v1/datasets/{fresh['id']}/access/{who['principal']}", json={"budget_cap": "all"})
        for path in ("", "/events", "/attempts", "/artifacts", "/report", "/plan"):
            assert stranger.get(f"/v1/jobs/{made}{path}").status_code == 404
        assert stranger.post(f"/v1/jobs/{made}/cancel").status_code == 404
        own = submit(stranger, job(fresh["id"])).json()["id"]
        assert [item["id"] for item in stranger.get("/v1/jobs").json()["data"]] == [own]
        auditor, _ = service.someone("auditor")
        assert auditor.get(f"/v1/jobs/{own}").status_code == 200
        assert auditor.post(f"/v1/jobs/{own}/cancel").status_code == 403

    def test_a_plan_adds_up_to_the_price(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        """Of equal Gaussian chunks the squares of mu add up."""
        optimizer = {"kind": "whitened_newton"}
        made = submit(admin, job(fresh["id"], optimizer=optimizer)).json()
        plan = admin.get(f"/v1/jobs/{made['id']}/plan").json()
        runs = plan["runs"]
        assert [one["first"] for one in runs] == [1, *(one["last"] + 1 for one in runs[:-1])]
        assert len(runs) > 1
        assert any(one["last"] > one["first"] for one in runs), "some chunks in a row cost the same"
        assert (runs[-1]["last"], plan["steps"]) == (plan["chunks"], made["progress"]["steps"])
        squares = sum((one["last"] - one["first"] + 1) * float(one["mu"]) ** 2 for one in runs)
        assert squares == pytest.approx(float(made["cost"]["reserved"]["mu"]) ** 2, rel=1e-3)

    def test_reports_and_artifacts(self, admin: httpx.Client, fresh: dict[str, Any]) -> None:
        made = submit(admin, job(fresh["id"], labels={"name": "<script>"})).json()["id"]
        report = admin.get(f"/v1/jobs/{made}/report").json()
        assert report["privacy"]["adjacency"] == "zero_out"
        assert report["privacy"]["implies"]
        assert report["ledger"]["head"].startswith("sha256:")
        page = admin.get(f"/v1/jobs/{made}/report", headers={"Accept": "text/html"})
        assert page.headers["content-type"].startswith("text/html")
        assert "<script>" not in page.text
        assert "&lt;script&gt;" in page.text
        assert page.text.index("Parameters") < page.text.index("Composition"), "what is promised comes first"
        names = [item["name"] for item in admin.get(f"/v1/jobs/{made}/artifacts").json()["data"]]
        assert names == ["report.json"]
        assert admin.get(f"/v1/jobs/{made}/artifacts/report.json").status_code == 307
        assert admin.get(f"/v1/jobs/{made}/artifacts/model.json").status_code == 404


class Worker:
    """Moves a job by the store's own functions, as a supervisor would."""

    def __init__(self, service: Service, job_id: str) -> None:
        self.database = service.database()
        self.job_id = job_id

    def start(self) -> None:
        # Take jobs until it is ours; the others of this service are put back by nobody and stay running. A claim that
        # ends a job whose owner has lost its access takes none.
        for _ in range(1000):
            claim = self.database.transaction(rows.claim, "test", 600.0)
            if claim is not None and claim.job_id == self.job_id:
                self.claim = claim
                return
        raise AssertionError("the job is queued")

    def step(self, number: int) -> None:
        self.database.transaction(rows.progress, self.claim, number)

    def fail(self) -> None:
        self.database.transaction(rows.fail, self.claim, "limit-exceeded", charge="all")

    def stop(self) -> None:
        self.database.transaction(rows.acknowledge_cancel, self.claim)


@pytest.fixture
def worker(service: Service, admin: httpx.Client, fresh: dict[str, Any]) -> Iterator[Worker]:
    found = Worker(service, submit(admin, job(fresh["id"])).json()["id"])
    yield found
    found.database.dispose()


def lines(client: httpx.Client, job_id: str, **headers: str) -> Iterator[dict[str, str]]:
    """Yield server-sent events as dictionaries."""
    with client.stream(
        "GET", f"/v1/jobs/{job_id}/events", headers={"Accept": "text/event-stream", **headers}
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        event: dict[str, str] = {}
        for line in answer.iter_lines():
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
            elif event:
                yield event
                event = {}


class TestWatching:
    def test_a_long_poll_waits_for_the_end(self, admin: httpx.Client, worker: Worker) -> None:
        def run() -> None:
            worker.start()
            worker.step(3)
            time.sleep(1.2)
            worker.fail()

        begun = time.monotonic()
        thread = threading.Thread(target=run)
        thread.start()
        answer = admin.get(f"/v1/jobs/{worker.job_id}", headers={"Prefer": "wait=20"})
        waited = time.monotonic() - begun
        thread.join()
        assert answer.headers["Preference-Applied"] == "wait=20"
        assert answer.json()["state"] == "failed"
        assert answer.json()["error"] == {"code": "limit-exceeded"}
        assert float(answer.json()["cost"]["spent"]["budget_share"]) == pytest.approx(most(answer.json()), rel=1e-3)
        assert answer.json()["cost"]["returned"]["budget_share"] == "0"
        assert 1.0 < waited < 10

    def test_a_long_poll_ends_when_its_time_is_up(self, admin: httpx.Client, worker: Worker) -> None:
        begun = time.monotonic()
        answer = admin.get(f"/v1/jobs/{worker.job_id}", headers={"Prefer": "respond-async, wait=1"})
        assert answer.json()["state"] == "queued"
        assert 0.9 < time.monotonic() - begun < 5

    @pytest.mark.timing
    def test_progress_and_ends_appear_on_the_grid(self, admin: httpx.Client, worker: Worker) -> None:
        worker.start()
        seen: list[tuple[float, int]] = []
        for step in range(1, 9):
            worker.step(step)
            view = admin.get(f"/v1/jobs/{worker.job_id}").json()
            seen.append((time.time(), view["progress"]["step"]))
            time.sleep(0.3)
        changes = [at % 1 for (at, step), (_, before) in zip(seen[1:], seen, strict=False) if step != before]
        assert changes
        assert all(part < 0.5 for part in changes)  # looked at every .3 s: a change is seen soon after a full second
        worker.fail()
        time.sleep(1.2)
        assert admin.get(f"/v1/jobs/{worker.job_id}").json()["state"] == "failed"

    def test_events_as_pages(self, admin: httpx.Client, worker: Worker) -> None:
        worker.start()
        worker.step(1)
        worker.step(2)
        worker.fail()
        time.sleep(1.2)
        place = f"/v1/jobs/{worker.job_id}/events"
        everything = admin.get(place).json()["data"]
        assert [line["seq"] for line in everything] == [1, 2, 3, 4, 5]
        assert [line["kind"] for line in everything] == ["queued", "running", "progress", "progress", "failed"]
        first = admin.get(place, params={"limit": 2}).json()
        assert first["has_more"] is True
        assert admin.get(place, params={"after": first["next"]}).json()["data"] == everything[2:]
        attempts = admin.get(f"/v1/jobs/{worker.job_id}/attempts").json()["data"]
        assert [attempt["outcome"] for attempt in attempts] == ["limit-exceeded"]

    def test_a_stream_follows_to_the_end_and_resumes(self, admin: httpx.Client, worker: Worker) -> None:
        def run() -> None:
            time.sleep(0.5)
            worker.start()
            worker.step(1)
            time.sleep(1.1)
            worker.step(2)
            worker.fail()

        thread = threading.Thread(target=run)
        thread.start()
        followed = list(lines(admin, worker.job_id))
        thread.join()
        assert [event["event"] for event in followed] == ["queued", "running", "progress", "progress", "failed"]
        assert [event["id"] for event in followed] == ["1", "2", "3", "4", "5"]
        assert json.loads(followed[2]["data"])["step"] == 1
        resumed = list(lines(admin, worker.job_id, **{"Last-Event-ID": "3"}))
        assert [event["id"] for event in resumed] == ["4", "5"]
        unknown = list(lines(admin, worker.job_id, **{"Last-Event-ID": "nonsense"}))
        assert [event["event"] for event in unknown] == ["snapshot"]
        assert json.loads(unknown[0]["data"])["state"] == "failed"

    def test_cancelling(self, admin: httpx.Client, worker: Worker) -> None:
        worker.start()
        asked = admin.post(f"/v1/jobs/{worker.job_id}/cancel").json()
        assert asked["state"] == "cancelling"
        worker.stop()
        ended = admin.post(f"/v1/jobs/{worker.job_id}/cancel").json()
        assert ended["state"] == "cancelled"
        assert ended["finished_at"] is not None
        assert ended["cost"]["spent"]["budget_share"] == "0"
        assert ended["cost"]["returned"] == ended["cost"]["reserved"]


@pytest.mark.slow
def test_waiting_clients_go_when_the_service_stops(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(tmp_path_factory.mktemp("stopping")) as service:
        client = service.client()
        made = submit(client, job(upload(client)["id"])).json()["id"]
        answers: list[httpx.Response] = []
        thread = threading.Thread(
            target=lambda: answers.append(client.get(f"/v1/jobs/{made}", headers={"Prefer": "wait=50"}))
        )
        thread.start()
        time.sleep(1)
        begun = time.monotonic()
        service.process.terminate()
        thread.join()
        assert answers[0].json()["state"] == "queued"
        assert service.process.wait(timeout=15) == 0
        assert time.monotonic() - begun < 8
        assert service.key not in (service.home / "api.log").read_text()


def test_steps_left_follow_from_the_plan_and_the_counter(admin: httpx.Client) -> None:
    made = submit(admin, job(upload(admin, rows=310)["id"])).json()
    assert made["progress"] == {"step": 0, "steps": 8, "left": 8}
    ended = admin.post(f"/v1/jobs/{made['id']}/cancel").json()
    assert ended["progress"] == {"step": 0, "steps": 8, "left": 0}
