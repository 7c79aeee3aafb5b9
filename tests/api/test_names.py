"""Names that clients see: a retired one is refused with the name that took its place, and no answer has it."""

from pathlib import Path

import httpx
import pytest
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from core.data.columns import Column, centre_of
from core.db.tables import Job
from core.inference.network import present_release
from core.planning.job import present_names
from core.service.failure_messages import failure_code
from tests.support.api import job, running, submit, upload


@pytest.mark.parametrize("route", ["/v1/estimates", "/v1/jobs"])
@pytest.mark.parametrize("old", ["percent", "share"])
def test_a_target_by_an_old_name_is_told_the_present_one(
    admin: httpx.Client, dataset: str, route: str, old: str
) -> None:
    answer = admin.post(route, json=job(dataset, privacy={old: "20"}), headers={"Idempotency-Key": f"{route}{old}"})
    (wrong,) = answer.json()["errors"]
    assert (answer.status_code, wrong["pointer"]) == (422, "/privacy")
    assert f'give budget_share in place of {old}, a decimal string from 0 to 1: "0.2" is 20 %' in wrong["detail"]


@pytest.mark.parametrize("old", ["percent", "share"])
def test_a_cap_by_an_old_name_is_told_the_present_one(admin: httpx.Client, dataset: str, old: str) -> None:
    who = admin.post("/v1/keys", json={"name": "someone", "role": "analyst"}).json()["principal"]
    answer = admin.put(f"/v1/datasets/{dataset}/access/{who}", json={"budget_cap": {old: "0.2"}})
    (wrong,) = answer.json()["errors"]
    assert (answer.status_code, wrong["pointer"]) == (422, "/budget_cap")
    assert f"give budget_share in place of {old}" in wrong["detail"]


def test_a_share_above_one_is_refused(admin: httpx.Client, dataset: str) -> None:
    answer = admin.post("/v1/estimates", json=job(dataset, privacy={"budget_share": "20"}))
    (wrong,) = answer.json()["errors"]
    assert (answer.status_code, wrong["pointer"]) == (422, "/privacy")
    assert "budget_share is at most 1" in wrong["detail"]


def test_a_job_that_an_earlier_release_stored_is_shown_by_present_names(tmp_path: Path) -> None:
    """The service is its own, for a changed row freezes the scope of a ledger that this release wrote."""
    with running(tmp_path / "home") as service, service.client() as admin:
        made = submit(admin, job(upload(admin)["id"], privacy={"budget_share": "0.075"})).json()

        def age(session: Session) -> None:
            row = session.get_one(Job, made["id"])
            row.spec = {**row.spec, "privacy": {"percent": "7.5"}}

        database = service.database()
        database.transaction(age)
        database.dispose()
        assert admin.get(f"/v1/jobs/{made['id']}").json()["privacy"] == {"budget_share": "0.075"}
        again = admin.post(f"/v1/jobs/{made['id']}/clone", headers={"Idempotency-Key": "again"})
        assert again.json()["privacy"] == {"budget_share": "0.075"}, again.text


@pytest.mark.parametrize(
    ("percent", "share"),
    [
        ("7.5", "0.075"),
        ("100", "1"),
        ("1", "0.01"),
        ("0.000000000001", "1e-14"),
        ("12.123456789012", "0.12123456789012"),
    ],
)
def test_a_stored_target_is_read_exactly(percent: str, share: str) -> None:
    told = present_names({"privacy": {"percent": percent}, "optimizer": {}})
    assert told["privacy"].keys() == {"budget_share"}
    assert float(told["privacy"]["budget_share"]) == float(share)
    assert present_names(told) == told


def test_a_method_s_old_setting_is_told_the_present_one(admin: httpx.Client, dataset: str) -> None:
    method = {"kind": "gauss_psgd", "clients": 2}
    answer = admin.post("/v1/estimates", json=job(dataset, optimizer=method))
    (wrong,) = (one for one in answer.json()["errors"] if one["pointer"] == "/optimizer/clients")
    assert (answer.status_code, wrong["detail"]) == (422, "there is no such field here; give sites in its place")


@pytest.mark.parametrize(
    ("old", "present"), [("certified_clipped_sgd", "one_pass_clipped_sgd"), ("certify", "check_bound")]
)
def test_a_method_s_old_kind_is_refused_with_the_present_one(
    admin: httpx.Client, dataset: str, old: str, present: str
) -> None:
    answer = admin.post("/v1/estimates", json=job(dataset, optimizer={"kind": old}))
    (wrong,) = answer.json()["errors"]
    assert (answer.status_code, wrong["pointer"]) == (422, "/optimizer/kind")
    assert wrong["detail"] == f"there is no such kind; give {present} in its place"


def test_a_columns_old_field_is_refused_with_the_present_one(admin: httpx.Client) -> None:
    column = {"name": "age", "type": "number", "lower": 18, "upper": 95, "typical": 40}
    body = {"name": "toy", "budget": {"epsilon": "1"}, "columns": [{**column, "name": "x", "centre": 40}, column]}
    body["columns"][0].pop("typical")
    answer = admin.post("/v1/datasets", json=body, headers={"Idempotency-Key": "typical"})
    (wrong,) = answer.json()["errors"]
    assert (answer.status_code, wrong["pointer"]) == (422, "/columns/1/typical")
    assert wrong["detail"] == "there is no such field here; give centre in its place"


@pytest.mark.parametrize("kind", ["number", "integer", "date", "array"])
def test_a_stored_column_is_read_under_its_present_name(kind: str) -> None:
    bounds = ["2003-01-01", "2003-01-31", "2003-01-11"] if kind == "date" else [0, 30, 10]
    stored = {"type": kind, "name": "x", "lower": bounds[0], "upper": bounds[1], "typical": bounds[2]}
    column = TypeAdapter(Column).validate_python(stored | ({"shape": [2]} if kind == "array" else {}))
    assert centre_of(column) == 10
    assert "typical" not in column.model_dump()


@pytest.mark.parametrize(
    ("method", "present"), [("clipped_sgd", "learning_rate_schedule"), ("proximal_point", "round_schedule")]
)
def test_a_stored_pace_is_shown_by_its_present_name(method: str, present: str) -> None:
    shown = present_names({"privacy": {"mu": "1"}, "optimizer": {"kind": method, "pace": "cosine"}})
    assert shown["optimizer"] == {"kind": method, present: "cosine"}


def test_a_stored_release_is_read_by_present_names() -> None:
    told = present_release({"kind": "linear", "optimizer": "certify", "certificate": None})
    assert told == {"kind": "linear", "optimizer": "check_bound", "error_bound": None}
    assert present_release(told) == told


def test_a_stored_method_and_a_stored_code_are_shown_by_present_names() -> None:
    told = present_names({"privacy": {"mu": "1"}, "optimizer": {"kind": "gauss_psgd", "clients": 2}})
    assert told["optimizer"] == {"kind": "gauss_psgd", "sites": 2}
    told = present_names({"privacy": {"mu": "1"}, "optimizer": {"kind": "certified_clipped_sgd", "steps": 1}})
    assert told["optimizer"] == {"kind": "one_pass_clipped_sgd", "steps": 1}
    told = present_names({"privacy": {"mu": "1"}, "optimizer": {"kind": "certify"}})
    assert told["optimizer"] == {"kind": "check_bound"}
    assert (failure_code("client-lost"), failure_code("diverged")) == ("site-lost", "diverged")
