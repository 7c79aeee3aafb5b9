"""Sweeps over HTTP, without a worker: admission as one job, prices, sight, and refusals that name what was sent."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from farthing.schemas.jobs import JobView
from tests.support.api import Service, job, submit, upload

GD = {"kind": "noisy_gd", "steps": 5}
GRID = {"/optimizer/steps": [5, 8], "/model/ridge": [0.01, 0.1]}


@pytest.fixture(scope="module")
def dataset(admin: httpx.Client) -> str:
    """With room for all that is queued here, which nobody trains."""
    return str(upload(admin, shift=950, budget={"epsilon": "20", "delta": "1e-6"})["id"])


def base(dataset: str, **changes: Any) -> dict[str, Any]:
    settings = {"optimizer": GD, "privacy": {"epsilon": "0.5"}, "inference": {"intervals": False}}
    return job(dataset, **{**settings, **changes})


def gridded(dataset: str, grid: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {"job": base(dataset, **changes), "grid": grid or GRID}


def jobs(dataset: str, *steps: int, **changes: Any) -> dict[str, Any]:
    return {"jobs": [base(dataset, optimizer={**GD, "steps": one}, **changes) for one in steps]}


def send(client: httpx.Client, body: dict[str, Any], key: str | None = None) -> httpx.Response:
    return client.post("/v1/sweeps", json=body, headers={"Idempotency-Key": key or uuid4().hex})


def price(client: httpx.Client, body: dict[str, Any]) -> httpx.Response:
    return client.post("/v1/sweeps/estimates", json=body)


def budget(client: httpx.Client, dataset: str) -> dict[str, Any]:
    return dict(client.get(f"/v1/datasets/{dataset}/budget").json())


def pointers(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 422, answer.text
    return [error["pointer"] for error in answer.json()["errors"]]


def test_a_sweep_is_one_job_of_one_step(admin: httpx.Client, dataset: str) -> None:
    answer = send(admin, gridded(dataset, labels={"study": "a"}))
    assert answer.status_code == 202, answer.text
    view, plain = answer.json(), submit(admin, job(dataset, mu="0.1")).json()
    assert view.keys() == plain.keys()
    assert answer.headers["Location"] == f"/v1/jobs/{view['id']}"
    assert answer.headers["Retry-After"] == "1"
    assert (view["optimizer"]["kind"], len(view["optimizer"]["candidates"])) == ("sweep", 4)
    assert (view["progress"]["steps"], view["labels"]) == (1, {"study": "a"})
    assert admin.get(f"/v1/jobs/{view['id']}").json() == {**view, "waits_for": "any worker"}
    assert view["id"] in {one["id"] for one in admin.get("/v1/jobs", params={"optimizer": "sweep"}).json()["data"]}


def test_both_forms_and_a_job_of_that_optimizer_cost_the_same(admin: httpx.Client, dataset: str) -> None:
    grid = price(admin, gridded(dataset, {"/optimizer/steps": [5, 8]})).json()
    listed = price(admin, jobs(dataset, 5, 8)).json()
    optimizer = {"kind": "sweep", "candidates": [{"optimizer": {**GD, "steps": steps}} for steps in (5, 8)]}
    inference = {"intervals": False, "accept_unchecked": True}  # as jobs of the candidates have it
    alone = admin.post("/v1/estimates", json=base(dataset, optimizer=optimizer, inference=inference)).json()
    assert grid == listed == alone
    assert grid["steps"] == 1
    sent = send(admin, jobs(dataset, 5, 8)).json()
    assert sent["cost"]["reserved"]["budget_share"] == grid["cost"]["budget_share"]


def test_a_sweep_is_sent_again_as_it_was_planned(admin: httpx.Client, dataset: str) -> None:
    made = send(admin, gridded(dataset)).json()
    clone = admin.post(f"/v1/jobs/{made['id']}/clone", headers={"Idempotency-Key": uuid4().hex})
    assert clone.status_code == 202, clone.text
    assert (clone.json()["optimizer"], clone.json()["clone_of"]) == (made["optimizer"], made["id"])
    again = submit(admin, JobView.model_validate(made).spec or {})
    assert again.status_code == 202, again.text


def test_settings_of_the_whole_sweep_are_taken(admin: httpx.Client, dataset: str) -> None:
    for way in ("selection", "composition"):
        plan = price(admin, {**gridded(dataset), "way": way}).json()["plan"]
        assert plan["way"] == way
    assert price(admin, {**gridded(dataset), "way": "selection", "runs": 2.5}).json()["plan"]["runs"] == 2.5
    assert price(admin, {**gridded(dataset), "score_share": 0.3}).json()["plan"]["score_share"] == 0.3


def test_an_estimate_reserves_nothing_and_leaves_no_line(admin: httpx.Client) -> None:
    fresh = upload(admin, shift=951, rows=333)
    before = budget(admin, fresh["id"])
    assert price(admin, gridded(fresh["id"])).status_code == 200
    assert price(admin, gridded(fresh["id"], {"/privacy/mu": ["1", "2"]})).status_code == 422
    assert budget(admin, fresh["id"]) == before
    assert "POST /v1/sweeps/estimates" not in {line["action"] for line in admin.get("/v1/audit").json()["data"]}
    made = send(admin, gridded(fresh["id"])).json()["id"]
    lines = [one for one in admin.get("/v1/audit").json()["data"] if one["action"] == "POST /v1/sweeps"]
    assert (lines[0]["target"], lines[0]["status"]) == (f"jobs/{made}", 202)


def test_one_key_is_one_sweep(admin: httpx.Client, dataset: str) -> None:
    key = uuid4().hex
    first, again = send(admin, gridded(dataset), key), send(admin, gridded(dataset), key)
    assert first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert send(admin, gridded(dataset, {"/optimizer/steps": [5, 9]}), key).json()["code"] == "idempotency-key-reused"
    assert submit(admin, job(dataset), key).status_code == 202  # another route has keys of its own
    assert admin.post("/v1/sweeps", json=gridded(dataset)).json()["code"] == "idempotency-key-missing"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"grid": {"/optimizer/steps": [5, 0]}}, "/grid/~1optimizer~1steps/1"),
        ({"grid": {"/optimizer/steps": [5, "many"]}}, "/grid/~1optimizer~1steps/1"),
        ({"grid": {"/model/ridge": [0.1, -1]}}, "/grid/~1model~1ridge/1"),
        ({"grid": {"/model/ridge": [0.1, [1]]}}, "/grid/~1model~1ridge/1"),
        ({"grid": {"/model/ridge": [-1], "/optimizer/steps": [5, 8]}}, "/grid/~1model~1ridge"),
        ({"grid": {"/optimizer/kind": ["noisy_gd", "kl_spider"]}}, "/grid/~1optimizer~1kind/1"),
        ({"grid": {"/optimizer/kind": ["noisy_gd", "sweep"]}}, "/grid/~1optimizer~1kind/1"),
        ({"grid": {"/optimizer/colour": ["red", "blue"]}}, "/grid/~1optimizer~1colour/0"),
        ({"grid": {"/optimizer/steps": [5, 5]}}, "/grid"),
        ({"grid": {"/optimizer/steps": [5, 5.0]}}, "/grid"),
        ({"grid": {"/model/ridge": [n / 1000 for n in range(300)]}}, "/grid/~1model~1ridge"),
        ({"job": {"privacy": {"mu": "0"}}}, "/job/privacy"),
        ({"job": {"model": {"kind": "logistic", "target": "nope"}}}, "/job/model/target"),
        ({"job": {"inference": {"intervals": True}}}, "/job/inference/intervals"),
        ({"job": {"optimizer": None}, "grid": {"/model/ridge": [0.1, 0.2]}}, "/job/optimizer"),
        ({"job": {"resources": {"processes": 10**6}}}, "/job/resources/processes"),
        ({"runs": 1e9}, "/runs"),
        ({"runs": "many"}, "/runs"),
        ({"jobs": 7}, "/jobs"),
    ],
)
def test_what_was_sent_is_named(admin: httpx.Client, dataset: str, change: dict[str, Any], found: str) -> None:
    body = gridded(dataset)
    whole = {name: value for name, value in change.items() if name != "job"}
    changed = {name: value for name, value in {**body["job"], **change.get("job", {})}.items() if value is not None}
    for answer in (send(admin, {**body, "job": changed, **whole}), price(admin, {**body, "job": changed, **whole})):
        assert any(one.startswith(found) for one in pointers(answer)), answer.text
        assert "candidates/" not in answer.text


@pytest.mark.parametrize(
    ("place", "change", "found"),
    [
        (1, {"optimizer": {"kind": "noisy_gd", "steps": 0}}, "/jobs/1/optimizer/steps"),
        (1, {"optimizer": {"kind": "kl_spider"}}, "/jobs/1/optimizer"),
        (1, {"optimizer": GD}, "/jobs/1"),
        (1, {"privacy": {"epsilon": "0.6"}}, "/jobs/1/privacy/epsilon"),
        (0, {"privacy": {"epsilon": "0.6"}}, "/jobs/1/privacy/epsilon"),
        (1, {"colour": "red"}, "/jobs/1/colour"),
        (1, {"optimizer": {"kind": "noisy_gd", "steps": 8, "start": [1.0]}}, "/jobs/1/optimizer/start"),
    ],
)
def test_the_job_that_was_sent_is_named(
    admin: httpx.Client, dataset: str, place: int, change: dict[str, Any], found: str
) -> None:
    body = jobs(dataset, 5, 8)
    body["jobs"][place] |= change
    for answer in (send(admin, body), price(admin, body)):
        assert any(one.startswith(found) for one in pointers(answer)), answer.text


def test_a_dataset_that_one_may_not_see_is_not_there(service: Service) -> None:
    owner, _ = service.someone("owner")
    fresh, nowhere = upload(owner, shift=952, rows=334)["id"], "ds_01m7z047qwmg8dd4x4h9dm983j"
    analyst, made = service.someone("analyst")
    auditor, _ = service.someone("auditor")
    for call in (send, price):
        answers = [call(analyst, gridded(one)) for one in (fresh, nowhere)]
        assert {answer.status_code for answer in answers} == {404}
        assert len({answer.json()["detail"] for answer in answers}) == 1
    assert send(auditor, gridded(fresh)).status_code == 403
    assert httpx.post(f"{service.url}/v1/sweeps", json=gridded(fresh)).status_code == 401
    assert httpx.post(f"{service.url}/v1/sweeps/estimates", json=gridded(fresh)).status_code == 401
    owner.put(f"/v1/datasets/{fresh}/access/{made['principal']}", json={"budget_cap": {"budget_share": "0.001"}})
    refused = send(analyst, gridded(fresh))
    assert (refused.status_code, refused.json()["code"]) == (403, "privacy-budget-exhausted")
    assert price(analyst, gridded(fresh)).json()["fits"] is False


def test_the_largest_grid_is_priced(admin: httpx.Client, dataset: str) -> None:
    grid = {"/optimizer/steps": list(range(2, 18)), "/model/ridge": [n / 100 for n in range(16)]}
    answer = price(admin, gridded(dataset, grid, privacy={"epsilon": "2"}))
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["plan"]["candidates"]) == 256


def test_many_small_faults_make_a_short_answer(admin: httpx.Client, dataset: str) -> None:
    grid = {f"/optimizer/x{n}": [1, 2] for n in range(8)}
    answer = send(admin, gridded(dataset, grid))
    assert len(pointers(answer)) <= 20
