"""The service's promises, over HTTP: the same suite for one process tree, a cluster and the compose stack."""

import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any
from uuid import uuid4

import httpx
import pytest
from pyarrow import csv, parquet

from farthing import Client, FarthingError
from farthing.schemas.datasets import Dataset
from farthing.schemas.jobs import JobView
from tests.support.embedded import COLUMNS, LOGISTIC, SEEDS, toy_csv
from tests.support.targets import Target
from tests.support.unchecked import accepting

LONG: dict[str, Any] = {"optimizer": {"kind": "noisy_gd", "steps": 20_000}}
"""A job that takes longer than any of these tests wants to wait."""
SLOPE = 1 / 20
"""Of age, in the law that the toy rows are drawn from."""


def metadata(**changes: Any) -> dict[str, Any]:
    base = {"name": f"toy {uuid4().hex[:8]}", "columns": COLUMNS, "budget": {"epsilon": "8", "delta": "1e-6"}}
    return {**base, **changes}


def upload(client: Client, kind: str = "csv", **changes: Any) -> Dataset:
    content = toy_csv(seed=next(SEEDS))
    stream = io.BytesIO(content)
    if kind == "parquet":
        stream = io.BytesIO()
        parquet.write_table(csv.read_csv(io.BytesIO(content)), stream)
        stream.seek(0)
    stream.name = f"toy.{kind}"
    return client.upload(stream, metadata(**changes))


def job(dataset: str, mu: str = "0.2", **changes: Any) -> dict[str, Any]:
    base = {"dataset": dataset, "model": LOGISTIC, "optimizer": {"kind": "noisy_newton"}, "privacy": {"mu": mu}}
    return accepting({**base, **changes})


def until(met: Any, seconds: float = 180.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := met()):
        assert time.monotonic() < deadline, "it did not get there"
        time.sleep(0.1)
    return found


def end_of(client: Client, job_id: str) -> JobView:
    return until(lambda: seen if (seen := client.job(job_id, wait_seconds=10)).ended else None)


@pytest.fixture(scope="module")
def dataset(admin: Client) -> str:
    return upload(admin).id


@pytest.fixture(scope="module")
def done(admin: Client, dataset: str) -> JobView:
    """A job that has succeeded."""
    return admin.wait(admin.submit(job(dataset, mu="1")).id)


@pytest.fixture
def analyst(service: Target, admin: Client) -> Iterator[Client]:
    with service.client(admin.create_key("ana", "analyst").key) as client:
        yield client


@pytest.mark.statistical
def test_a_job_ends_with_a_model_and_costs_what_was_quoted(admin: Client) -> None:
    made = upload(admin, "parquet")
    assert made.rows == 2000
    assert {column.name for column in admin.validation(made.id).columns} == {column["name"] for column in COLUMNS}
    quoted = admin.estimate(job(made.id, mu="1"))
    assert quoted.fits
    submitted = admin.submit(job(made.id, mu="1"))
    assert submitted.state == "queued"
    ended = admin.wait(submitted.id)
    assert ended.progress.step == ended.progress.steps > 0
    assert ended.cost.spent.mu == quoted.cost.mu == "1"
    budget = admin.budget(made.id)
    assert (budget.budget_share.reserved, budget.rho.spent) == ("0", "0.5")
    assert ended.released is not None
    table = {line.name: line for line in admin.summary(ended.released).coefficients}
    assert set(table) == {"intercept", "age", "job[b]", "job[c]"}
    age = table["age"]  # a fixed truth and six standard errors: false alarm 2e-9
    assert abs(age.estimate - SLOPE) < 6 * age.std_error


@pytest.mark.slow
def test_a_federated_job_charges_each_client_and_leaves_one_model(service: Target, admin: Client) -> None:
    """Two datasets of two scopes: watched until it ends, one model with all that a model has, two ledgers charged."""
    datasets = [upload(admin).id for _ in range(2)]
    asked = job(datasets[0], mu="1", optimizer={"kind": "noisy_gd", "steps": 10}, inference={"intervals": False})
    submitted = admin.submit(asked, datasets=datasets)
    assert submitted.state == "queued"
    ended = end_of(admin, submitted.id)
    assert ended.state == "succeeded", ended
    assert ended.federation is not None
    for dataset in datasets:
        budget = admin.budget(dataset)
        assert (budget.budget_share.reserved, budget.rho.spent) == ("0", "0.5"), "each pays for its own answers"
    kinds = [line.kind for line in admin.events(submitted.id)]
    assert (kinds[0], kinds[-1]) == ("queued", "succeeded")
    assert len(admin.report(submitted.id)["sites"]) == 2
    with service.http() as http:
        left = http.get(f"/v1/jobs/{submitted.id}/artifacts").json()["data"]
        assert {one["name"] for one in left} == {"report.json", "model.json", "model.safetensors"}
        for one in left:
            found = http.get(f"/v1/jobs/{submitted.id}/artifacts/{one['name']}", follow_redirects=True)
            assert found.status_code == 200, found.text
            assert found.content
    assert ended.released is not None
    assert set(json.loads(admin.export(ended.released))["coefficients"]) >= {"intercept", "age"}


def test_a_model_is_read_in_every_form(admin: Client, done: JobView) -> None:
    assert done.released is not None
    lower, upper = next(line.interval for line in admin.intervals(done.released, level=0.9) if line.name == "age")
    wide = next(line.interval for line in admin.intervals(done.released, level=0.99) if line.name == "age")
    assert wide[0] < lower < upper < wide[1]
    young, old = admin.predict(done.released, [{"age": 20, "job": "a"}, {"age": 80, "job": "a"}])
    assert 0 <= young["probability"] < old["probability"] <= 1
    assert 0 <= admin.wald_test(done.released, ["age"]).p_value <= 1
    exported = json.loads(admin.export(done.released))
    assert set(exported["coefficients"]) >= {"intercept", "age"}
    header_bytes = int.from_bytes(admin.export(done.released, "safetensors")[:8], "little")
    assert 0 < header_bytes < 100_000
    assert "age" in admin.summary_text(done.released)
    assert admin.report(done.id)["job"]["id"] == done.id


def test_history_is_streamed_to_its_end_and_goes_on_where_a_client_left(
    service: Target, admin: Client, dataset: str
) -> None:
    submitted = admin.submit(job(dataset)).id

    def follow(**headers: str) -> list[tuple[int, str]]:
        told = {"Accept": "text/event-stream", **headers}
        with service.http() as http, http.stream("GET", f"/v1/jobs/{submitted}/events", headers=told) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = [line.partition(": ")[::2] for line in answer.iter_lines() if line and not line.startswith(":")]
        numbers = [int(value) for name, value in lines if name == "id"]
        return list(zip(numbers, [value for name, value in lines if name == "event"], strict=True))

    seen = follow()
    assert [number for number, _ in seen] == list(range(1, len(seen) + 1))
    assert (seen[0][1], seen[-1][1]) == ("queued", "succeeded")
    assert follow(**{"Last-Event-ID": "2"}) == seen[2:]
    assert [(line.seq, line.kind) for line in admin.events(submitted)] == seen


def test_what_passes_the_budget_is_403_and_what_is_reserved_by_others_409(admin: Client) -> None:
    made = upload(admin)
    before = admin.budget(made.id)
    with pytest.raises(FarthingError) as exhausted:
        admin.submit(job(made.id, privacy={"epsilon": "9"}))
    assert (exhausted.value.status, exhausted.value.code) == (403, "privacy-budget-exhausted")
    assert not exhausted.value.retryable
    assert admin.budget(made.id) == before
    running = admin.submit(job(made.id, privacy={"budget_share": "0.60"}, **LONG))
    with pytest.raises(FarthingError) as reserved:
        admin.submit(job(made.id, privacy={"budget_share": "0.60"}))
    assert (reserved.value.status, reserved.value.code) == (409, "privacy-budget-reserved")
    assert reserved.value.retryable
    admin.cancel(running.id)
    assert end_of(admin, running.id).state == "cancelled"
    fits = admin.submit(job(made.id, privacy={"budget_share": "0.20"}))
    assert end_of(admin, admin.cancel(fits.id).id).ended  # it was taken; whether it ran first does not matter


def test_one_key_at_two_servers_is_one_job(service: Target, admin: Client) -> None:
    made = upload(admin)
    body, key = job(made.id), uuid4().hex

    def post(turn: int) -> httpx.Response:
        url = (service.url, service.replica_url)[turn % 2]
        headers = {"Authorization": f"Bearer {service.key}", "Idempotency-Key": key}
        return httpx.post(f"{url}/v1/jobs", json=body, headers=headers, timeout=60)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(post, range(8)))
    assert {answer.status_code for answer in answers} <= {202, 409}
    (job_id,) = {answer.json()["id"] for answer in answers if answer.status_code == 202}
    assert [found.id for found in admin.jobs(dataset=made.id)] == [job_id]
    assert len([line for line in admin.entries(made.scope or "") if line.kind == "reserve"]) == 1
    admin.cancel(job_id)
    again = post(1)
    assert (again.headers["Idempotency-Replayed"], again.json()["id"]) == ("true", job_id)
    with pytest.raises(FarthingError) as other:
        admin.submit(job(made.id, mu="0.3"), key=key)
    assert (other.value.status, other.value.code) == (422, "idempotency-key-reused")


def test_a_queued_and_a_running_job_are_cancelled_and_give_back_the_rest(admin: Client) -> None:
    made = upload(admin)
    jobs = [admin.submit(job(made.id, **LONG)).id for _ in range(2)]
    until(lambda: any(admin.job(one).progress.step > 0 for one in jobs))
    for one in reversed(jobs):
        admin.cancel(one)
    assert {end_of(admin, one).state for one in jobs} == {"cancelled"}
    budget = admin.budget(made.id)
    assert budget.budget_share.reserved == "0"
    assert float(budget.budget_share.spent) > 0
    assert admin.cancel(jobs[0]).state == "cancelled"


def test_an_analyst_sees_and_spends_what_was_granted_and_no_more(admin: Client, analyst: Client) -> None:
    made = upload(admin)
    planned = job(made.id, mu="0.01")
    admin.cancel(admin.submit(planned).id)  # a plan that is remembered is open to nobody else
    for hidden in (
        lambda: analyst.dataset(made.id),
        lambda: analyst.estimate(planned),
        lambda: analyst.submit(planned),
    ):
        with pytest.raises(FarthingError) as refused:
            hidden()
        assert refused.value.status == 404
    admin.share(made.id, analyst.me().id, {"epsilon": "1", "delta": "1e-6"})
    with pytest.raises(FarthingError) as beyond:
        analyst.submit(job(made.id, privacy={"epsilon": "2"}))
    assert (beyond.value.status, beyond.value.code) == (403, "privacy-budget-exhausted")
    sent = analyst.submit(job(made.id, privacy={"epsilon": "0.5"}))
    assert analyst.wait(sent.id).state == "succeeded"
    assert sent.id in {found.id for found in admin.jobs(dataset=made.id)}
    own = analyst.budget(made.id).cap
    assert own is not None
    assert float(own.used.spent) > float(admin.budget(made.id).budget_share.spent) > 0
    with pytest.raises(FarthingError) as refused:
        analyst.validation(made.id)
    assert refused.value.status in (403, 404)


def test_the_ledger_is_recomputed_by_anybody_who_may_read_it(
    service: Target, admin: Client, dataset: str, done: JobView
) -> None:
    scope = admin.dataset(dataset).scope or ""
    with service.client(admin.create_key("audrey", "auditor").key) as auditor:
        entries = list(auditor.entries(scope))
        head = entries[0].prev_hash
        for number, line in enumerate(entries, start=1):
            assert (line.seq, line.prev_hash) == (number, head)
            head = "sha256:" + sha256(f"{line.prev_hash}\n{line.body}".encode()).hexdigest()
            assert line.hash == head
        assert auditor.scope(scope).head == head
        assert auditor.verify(scope).ok
    kinds = [line.kind for line in entries if line.job == done.id]
    assert (kinds[0], kinds[-1]) == ("reserve", "settle")
    assert "spend" in kinds


def test_erased_records_are_gone_and_their_ledger_stays(admin: Client) -> None:
    made = upload(admin)
    running = admin.submit(job(made.id, **LONG))
    entries = list(admin.entries(made.scope or ""))
    assert admin.erase(made.id).state in ("erasing", "erased")
    until(lambda: admin.dataset(made.id).state == "erased")
    assert end_of(admin, running.id).state == "cancelled"
    with pytest.raises(FarthingError) as refused:
        admin.submit(job(made.id))
    assert refused.value.status == 409
    assert list(admin.entries(made.scope or ""))[: len(entries)] == entries
    assert admin.verify(made.scope or "").ok


def test_what_was_done_is_in_the_audit_trail_under_its_request_id(service: Target, admin: Client, dataset: str) -> None:
    with service.http() as http:
        answer = http.post("/v1/jobs", json=job(dataset, mu="1000"), headers={"Idempotency-Key": uuid4().hex})
    assert answer.status_code == 403
    lines = {line.request_id: line for line in admin.audit()}
    line = lines[answer.headers["X-Request-Id"]]
    assert (line.action, line.status, line.principal) == ("POST /v1/jobs", 403, admin.me().id)
    assert line.code == answer.json()["code"]


def test_the_service_says_how_it_is(service: Target, done: JobView) -> None:
    with service.http() as http:
        assert http.get("/healthz").json() == {"status": "ok"}
        ready = http.get("/readyz").json()
        assert (ready["status"], ready["ledger"]) == ("ready", "ok")
        assert http.get("/version").json()["api"] == "v1"
        metrics = http.get("/metrics").text
        assert any(line.startswith("farthing_") for line in metrics.splitlines())
        assert "/v1/jobs" in http.get("/openapi.json").json()["paths"]
        waited = http.get(f"/v1/jobs/{done.id}", headers={"Prefer": "wait=5"})
        assert waited.headers["Preference-Applied"] == "wait=5"


@pytest.mark.parametrize(
    ("change", "headers", "status", "code"),
    [
        ({}, {"Idempotency-Key": ""}, 422, "invalid-request"),
        ({}, {}, 400, "idempotency-key-missing"),
        ({}, {"Authorization": "Bearer nobody", "Idempotency-Key": "1"}, 401, "unauthenticated"),
        ({"dataset": "ds_none"}, {"Idempotency-Key": "2"}, 404, "not-found"),
        ({"privacy": {"mu": 0.1}}, {"Idempotency-Key": "3"}, 422, "invalid-request"),
        ({"privacy": {"mu": "0.1", "rho": "1"}}, {"Idempotency-Key": "4"}, 422, "invalid-request"),
        ({"optimizer": {"kind": "alchemy"}}, {"Idempotency-Key": "5"}, 422, "invalid-request"),
        ({"model": {"kind": "logistic", "target": "nothing"}}, {"Idempotency-Key": "6"}, 422, "invalid-request"),
        ({"surprise": 1}, {"Idempotency-Key": "7"}, 422, "invalid-request"),
    ],
)
def test_a_wrong_request_is_refused_with_a_code(
    service: Target, dataset: str, change: dict[str, Any], headers: dict[str, str], status: int, code: str
) -> None:
    with service.http() as http:
        answer = http.post("/v1/jobs", json=job(dataset) | change, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["request_id"] == answer.headers["X-Request-Id"]


@pytest.mark.parametrize(
    ("content", "declared"),
    [
        (b"", {}),
        (b"age,job\n1,a\n", {}),
        (b"\x00\x01\x02\xff", {}),
        (toy_csv(20, seed=0), {"budget": {"epsilon": "a lot"}}),
        (toy_csv(20, seed=0), {"columns": []}),
    ],
    ids=["empty", "column-missing", "binary", "budget", "no-columns"],
)
def test_a_wrong_upload_is_refused_and_leaves_nothing(admin: Client, content: bytes, declared: dict[str, Any]) -> None:
    before = [found.id for found in admin.datasets()]
    with pytest.raises(FarthingError) as refused:
        admin.upload(io.BytesIO(content), metadata(**declared))
    assert 400 <= refused.value.status < 500
    assert [found.id for found in admin.datasets()] == before
