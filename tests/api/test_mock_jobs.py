"""Mock jobs over HTTP, without a worker: their admission, their quota, their sight, and refusals."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import update

from core.jobs import mocks
from core.jobs.mocks import MockJob
from core.ledger.claims import Claim
from tests.support.api import Service, job, running, submit, upload


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a small quota, and a time grid of an hour."""
    limits = {"MAX_MOCK_PER_DAY": "3", "VISIBLE_GRID_SECONDS": "3600", "MAX_MOCK_ROWS": "250"}
    with running(
        tmp_path_factory.mktemp("apart"), **{f"FARTHING_{name}": text for name, text in limits.items()}
    ) as made:
        yield made


def mock(client: httpx.Client, body: dict[str, Any], key: str | None = None) -> httpx.Response:
    return client.post("/v1/mock-jobs", json=body, headers={"Idempotency-Key": key or uuid4().hex})


def let_in(admin: httpx.Client, dataset: str, principal: str, epsilon: str = "0.01") -> None:
    path = f"/v1/datasets/{dataset}/access/{principal}"
    answer = admin.put(path, json={"budget_cap": {"epsilon": epsilon, "delta": "1e-6"}})
    assert answer.status_code in (200, 201), answer.text


def test_has_the_shape_of_a_job_and_is_marked(admin: httpx.Client, dataset: str) -> None:
    answer = mock(admin, job(dataset, mu="0.1"))
    assert answer.status_code == 202, answer.text
    view, real = answer.json(), submit(admin, job(dataset, mu="0.1")).json()
    assert view.keys() == real.keys()
    assert (view["mock"], view["mock_rows"], view["scope"]) == (True, 400, None)
    assert (real["mock"], real["mock_rows"]) == (False, None)
    assert view["id"].startswith("mock_")
    assert answer.headers["Location"] == f"/v1/jobs/{view['id']}"
    assert view["cost"] == real["cost"]  # what it would cost
    assert admin.get(f"/v1/jobs/{view['id']}").json() == view
    (line,) = admin.get(f"/v1/jobs/{view['id']}/events").json()["data"]
    assert (line["kind"], line["data"]) == ("queued", {"mock": True})


def test_reserves_nothing_and_leaves_the_ledger_alone(admin: httpx.Client) -> None:
    fresh = upload(admin, shift=901, rows=333)
    places = (
        f"/v1/datasets/{fresh['id']}/budget",
        f"/v1/scopes/{fresh['scope']}/entries",
        f"/v1/jobs?dataset={fresh['id']}",
    )
    before = [admin.get(place).json() for place in places]
    view = mock(admin, job(fresh["id"], mu="0.5")).json()
    assert admin.post(f"/v1/jobs/{view['id']}/cancel").json()["state"] == "cancelled"
    assert [admin.get(place).json() for place in places] == before


def test_needs_no_cap_and_fits_where_no_job_does(service: Service, admin: httpx.Client) -> None:
    fresh = upload(admin, shift=902, rows=334)
    analyst, made = service.someone("analyst")
    assert mock(analyst, job(fresh["id"])).status_code == 404  # it may not see the declaration
    let_in(admin, fresh["id"], made["principal"])
    body = job(fresh["id"], mu="0.5")
    assert submit(analyst, body).status_code in (403, 409)
    assert mock(analyst, body).status_code == 202


def test_exists_for_its_submitter_and_those_who_see_everything(service: Service, admin: httpx.Client) -> None:
    owner, _ = service.someone("owner")
    fresh = upload(owner, shift=903, rows=335)
    analyst, made = service.someone("analyst")
    other, beside = service.someone("analyst")
    for principal in (made["principal"], beside["principal"]):
        let_in(owner, fresh["id"], principal, "0.1")
    view = mock(analyst, job(fresh["id"])).json()
    auditor, _ = service.someone("auditor")
    for client, found in ((analyst, True), (admin, True), (auditor, True), (owner, False), (other, False)):
        for path in ("", "/events", "/report", "/attempts", "/artifacts"):
            status = client.get(f"/v1/jobs/{view['id']}{path}").status_code
            assert status == (200 if found else 404), (path, status)
        listed = {one["id"] for one in client.get("/v1/mock-jobs").json()["data"]}
        assert (view["id"] in listed) == found
    assert other.post(f"/v1/jobs/{view['id']}/cancel").status_code == 404
    assert auditor.post(f"/v1/jobs/{view['id']}/cancel").status_code == 403
    assert auditor.post("/v1/mock-jobs", json=job(fresh["id"]), headers={"Idempotency-Key": "k"}).status_code == 403
    assert view["id"] not in {one["id"] for one in analyst.get("/v1/jobs").json()["data"]}


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"dataset": None, "federation": {"datasets": ["ds_1", "ds_2"]}}, "/federation"),
        ({"models": ["mdl_01m7z047qwmg8dd4x4h9dm983j"]}, "/models"),
        ({"rows": 0}, "/rows"),
        ({"rows": "many"}, "/rows"),
        ({"rows": 10**12}, "/rows"),
        ({"dataset": None}, "/dataset"),
        ({"colour": "red"}, "/colour"),
        ({"mock": True}, "/mock"),
        ({"model": {"kind": "logistic", "target": "nope"}}, "/model/target"),
        ({"privacy": {"mu": "0"}}, "/privacy"),
    ],
)
def test_wrong_fields_are_named(admin: httpx.Client, dataset: str, change: dict[str, Any], pointer: str) -> None:
    answer = mock(admin, job(dataset, **change))
    assert answer.status_code == 422, answer.text
    assert any(error["pointer"].startswith(pointer) for error in answer.json()["errors"]), answer.text


def test_a_job_of_records_takes_no_rows(admin: httpx.Client, dataset: str) -> None:
    for field in ({"rows": 10}, {"mock": True}):
        assert submit(admin, job(dataset, **field)).status_code == 422


def test_resources_are_those_of_one_process_on_a_cpu(admin: httpx.Client, dataset: str) -> None:
    resources = {"device": "cuda", "processes": 1, "priority": 10, "max_queue_seconds": 60}
    view = mock(admin, job(dataset, resources=resources)).json()
    kept = {name: view["resources"][name] for name in resources}
    assert kept == {"device": "cpu", "processes": 1, "priority": 0, "max_queue_seconds": 60}


def test_one_key_is_one_mock_job(admin: httpx.Client, dataset: str) -> None:
    key = uuid4().hex
    first, again = mock(admin, job(dataset), key), mock(admin, job(dataset), key)
    assert first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert mock(admin, job(dataset, mu="0.2"), key).json()["code"] == "idempotency-key-reused"
    assert submit(admin, job(dataset), key).json()["id"].startswith("job_")  # another route has keys of its own
    assert admin.post("/v1/mock-jobs", json=job(dataset)).json()["code"] == "idempotency-key-missing"


def test_what_only_jobs_of_records_have_is_refused_with_a_reason(admin: httpx.Client, dataset: str) -> None:
    made = mock(admin, job(dataset)).json()["id"]
    answers = [
        admin.get(f"/v1/jobs/{made}/certificate"),
        admin.get(f"/v1/jobs/{made}/plan"),
        admin.post(f"/v1/jobs/{made}/clone", headers={"Idempotency-Key": uuid4().hex}),
    ]
    for answer in answers:
        assert answer.status_code == 409, answer.text
        assert "mock job" in answer.json()["detail"]


def test_hostile_identifiers_are_no_job_and_no_model(admin: httpx.Client) -> None:
    for name in ("mock_", "mock_%", "mock_' OR 1=1", "mock_01m7z047qwmg8dd4x4h9dm983j", "mock_job_1"):
        assert admin.get(f"/v1/jobs/{name}").status_code == 404
    for name in ("mockmdl_", "mockmdl_01m7z047qwmg8dd4x4h9dm983j", "mockmdl_mdl_1"):
        for path in ("", "/summary", "/export"):
            assert admin.get(f"/v1/models/{name}{path}").status_code == 404
    named = job("ds_1", models=["mockmdl_01m7z047qwmg8dd4x4h9dm983j"])
    assert submit(admin, named).status_code == 422


def test_lists_go_page_by_page(service: Service) -> None:
    owner, _ = service.someone("owner")
    fresh = upload(owner, shift=904, rows=336)
    made = [mock(owner, job(fresh["id"])).json()["id"] for _ in range(3)]
    first = owner.get("/v1/mock-jobs", params={"limit": 2}).json()
    rest = owner.get("/v1/mock-jobs", params={"limit": 2, "after": first["next"]}).json()
    assert [one["id"] for one in (*first["data"], *rest["data"])] == made[::-1]
    assert rest["next"] is None


def test_a_day_has_a_quota_and_a_job_a_number_of_rows(apart: Service) -> None:
    owner, _ = apart.someone("owner")
    fresh = upload(owner, shift=905, rows=300)
    assert mock(owner, job(fresh["id"], rows=251)).json()["errors"][0]["pointer"] == "/rows"
    assert mock(owner, job(fresh["id"])).json()["mock_rows"] == 250  # of 300
    assert mock(owner, job(fresh["id"], rows=20)).json()["mock_rows"] == 20
    last = mock(owner, job(fresh["id"])).json()["id"]
    refused = mock(owner, job(fresh["id"]))
    assert (refused.status_code, refused.json()["code"]) == (429, "rate-limited")
    assert 86000 < int(refused.headers["Retry-After"]) <= 86401
    assert submit(owner, job(fresh["id"])).status_code == 202  # jobs of records have a quota of their own
    database = apart.database()
    with database.write() as session:
        session.execute(update(MockJob).where(MockJob.id == last).values(created_at=MockJob.created_at - 90_000))
    database.dispose()
    assert mock(owner, job(fresh["id"])).status_code == 202


def test_nothing_that_hangs_on_a_worker_shows_before_the_grid(apart: Service) -> None:
    """A mock job begins when a slot is free: when another's job ended, which shows on the grid alone."""
    owner, _ = apart.someone("owner")
    fresh = upload(owner, shift=906, rows=301)
    made = mock(owner, job(fresh["id"])).json()
    database = apart.database()
    with database.write() as session:
        row = mocks.claim(session, "w", 60.0, 10)
        while row is not None and row.id != made["id"]:
            row = mocks.claim(session, "w", 60.0, 10)
        assert row is not None
        claim: Claim = mocks.claim_of(row)
    for act in (
        lambda: database.transaction(mocks.progress, claim, 3),
        lambda: database.transaction(mocks.finish, claim, {"mock": True}),
    ):
        act()
        assert owner.get(f"/v1/jobs/{made['id']}").json() == made
        assert len(owner.get(f"/v1/jobs/{made['id']}/events").json()["data"]) == 1
        assert owner.get(f"/v1/jobs/{made['id']}/attempts").json()["data"] == []
        assert owner.get(f"/v1/models/{mocks.model_of(made['id'])}").status_code == 404
    database.dispose()
