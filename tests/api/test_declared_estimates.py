"""Estimates of data that are declared and not uploaded yet: those that the same data have once they are there."""

from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from core.db.tables import Base
from tests.support.api import COLUMNS, Service, job, running, submit, upload

ROWS = 400
BUDGET = {"epsilon": "3", "delta": "1e-6"}
DECLARED: dict[str, Any] = {"columns": COLUMNS, "rows": ROWS, "budget": BUDGET}
PLAIN = {"kind": "logistic", "target": "y"}
NONE = {"intervals": False}
WIDTH = {"width": {"coefficient": "intercept", "at_most": 40}}
EXCESS = {"excess_risk": {"at_most": 0.1}}
SPIDER = {"kind": "kl_spider", "variant": "calibrated"}
OPEN: dict[str, Any] = {"privacy": None}


def asked(source: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a job on some source of records in place of a dataset; a change to None leaves a field out."""
    body = {name: value for name, value in job("", **changes).items() if name != "dataset" and value is not None}
    return body | source


def estimate(client: httpx.Client, body: dict[str, Any], path: str = "/v1/estimates") -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize(
    ("declared", "changes"),
    [
        ({}, {}),
        ({"adjacency": "replace_one"}, {}),
        ({"budget": {"rho": "0.2"}}, {"privacy": {"budget_share": "0.5"}}),
        ({}, OPEN | {"goal": WIDTH}),
        ({}, OPEN | {"goal": EXCESS, "model": PLAIN | {"ridge": 0.05}, "optimizer": SPIDER, "inference": NONE}),
        ({}, {"model": {"kind": "description"}, "optimizer": {"kind": "describe"}}),
        ({}, {"model": PLAIN, "optimizer": {"kind": "clipped_sgd", "batch": 50, "steps": 20}, "inference": NONE}),
    ],
    ids=["job", "replace one", "share of rho", "width", "excess risk", "description", "samples"],
)
def test_a_declaration_has_the_estimate_that_it_has_once_it_is_uploaded(
    admin: httpx.Client, declared: dict[str, Any], changes: dict[str, Any]
) -> None:
    before = estimate(admin, asked({"declaration": DECLARED | declared}, **changes))
    dataset = upload(admin, rows=ROWS, **{"budget": BUDGET, **declared})
    after = estimate(admin, asked({"dataset": dataset["id"]}, **changes))
    assert before.pop("head") is None
    assert after.pop("head")
    assert before == after


def test_so_has_its_curve(admin: httpx.Client) -> None:
    before = estimate(admin, asked({"declaration": DECLARED}), "/v1/estimates/curve")
    after = estimate(admin, asked({"dataset": upload(admin, rows=ROWS)["id"]}), "/v1/estimates/curve")
    assert before.pop("head") is None
    assert after.pop("head")
    assert before == after


def test_it_says_whether_the_budget_would_admit_the_job(admin: httpx.Client) -> None:
    found = [estimate(admin, asked({"declaration": DECLARED}, privacy={"mu": mu})) for mu in ("0.1", "9")]
    assert [(one["fits"], one["jobs_that_still_fit"] > 0) for one in found] == [(True, True), (False, False)]


def test_an_estimate_of_a_declaration_leaves_nothing_behind(service: Service) -> None:
    analyst, _ = service.someone("analyst")

    def stored() -> dict[str, int]:
        with service.database().read() as session:
            tables = {name: table for name, table in Base.metadata.tables.items() if name != "audit"}
            return {name: session.scalar(select(func.count()).select_from(one)) or 0 for name, one in tables.items()}

    before = stored(), service.files()
    estimate(analyst, asked({"declaration": DECLARED}))
    assert (stored(), service.files()) == before


def test_it_needs_a_key(service: Service) -> None:
    assert httpx.post(f"{service.url}/v1/estimates", json=asked({"declaration": DECLARED})).status_code == 401


def _column(**changes: Any) -> dict[str, Any]:
    return {"columns": [COLUMNS[0] | changes, *COLUMNS[1:]]}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/dataset"),
        ({"dataset": "ds_00000000000000000000000000", "declaration": DECLARED}, "/declaration"),
        (
            {"federation": {"datasets": ["ds_0000000000000000000000000" + one for one in "01"]}}
            | {"declaration": DECLARED},
            "/declaration",
        ),
        ({"declaration": {**DECLARED, "rows": None}}, "/declaration/rows"),
        ({"declaration": {**DECLARED, "rows": 10**12}}, "/declaration/rows"),
        ({"declaration": {**DECLARED, **_column(lower=100)}}, "/declaration/columns/0/upper"),
        ({"declaration": {**DECLARED, **_column(typical=40)}}, "/declaration/columns/0/typical"),
        ({"declaration": {**DECLARED, "adjacency": "add_remove"}}, "/declaration/adjacency"),
        ({"declaration": {**DECLARED, "budget": None}}, "/declaration/budget"),
        ({"declaration": {**DECLARED, "budget": {"epsilon": "3", "delta": "0.01"}}}, "/declaration/budget/delta"),
        ({"declaration": {**DECLARED, "budget": {"epsilon": "99"}}}, "/declaration/budget/accept_weak_privacy"),
        ({"declaration": {**DECLARED, "name": "people"}}, "/declaration/name"),
        ({"declaration": DECLARED, "model": {"kind": "logistic", "target": "z"}}, "/model/target"),
        ({"declaration": DECLARED, "resources": {"memory_bytes": 1}}, "/resources/memory_bytes"),
    ],
)
def test_each_wrong_field_is_named(admin: httpx.Client, body: dict[str, Any], pointer: str) -> None:
    answer = admin.post("/v1/estimates", json=asked(body, **{name: body[name] for name in body if name == "model"}))
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == "invalid-request"
    assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]


def test_more_columns_than_an_upload_may_have_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(tmp_path_factory.mktemp("narrow"), FARTHING_MAX_COLUMNS="2") as few:
        answer = few.client().post("/v1/estimates", json=asked({"declaration": DECLARED}))
        assert [one["pointer"] for one in answer.json()["errors"]] == ["/declaration/columns"]


def test_a_job_reads_records_and_takes_no_declaration(admin: httpx.Client) -> None:
    answer = submit(admin, asked({"declaration": DECLARED}))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/declaration"
