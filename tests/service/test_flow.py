"""The use cases in the order in which people meet them, on SQLite and on PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from core.access.audit import Line
from core.base.errors import Conflict, Forbidden, IdempotencyKeyReused, NotFound, PreconditionFailed, Refusal
from core.data.datasets import parse_metadata
from core.db.reads import JobFilter
from core.jobs import jobs as rows
from core.planning.job import JobSpec
from core.privacy.amounts import CapRequest
from core.service import access, audit, datasets, estimates, health, jobs, keys, scopes, uploads
from core.service.context import Caller, Context
from core.service.estimates import EstimateSpec
from tests.service.conftest import Someone
from tests.support import entry
from tests.support.api import csv, job, metadata
from tests.support.verified import verified_here


def upload(context: Context, caller: Caller, shift: int = 0, **changes: Any) -> dict[str, Any]:
    view, _ = uploads.create(context, caller, parse_metadata(metadata(**changes)), None, [csv(100, shift)], None)
    return view


def submit(context: Context, caller: Caller, dataset: str, mu: str = "0.1", key: str | None = None) -> dict[str, Any]:
    spec = JobSpec.model_validate(job(dataset, mu=mu))
    return entry.submit(context, caller, spec, key or uuid4().hex).body


def test_from_upload_to_erasure(context: Context, admin: Caller, someone: Someone) -> None:
    owner, analyst, auditor = someone("owner"), someone("analyst"), someone("auditor")
    made = upload(context, owner)
    spec = EstimateSpec.model_validate(job(made["id"]))
    with pytest.raises(NotFound):
        estimates.estimate(context, analyst, spec)
    _, is_new = access.give(context, owner, made["id"], analyst.id, "all", None)
    _, is_still_new = access.give(context, owner, made["id"], analyst.id, "all", None)
    assert (is_new, is_still_new) == (True, False)
    told = estimates.estimate(context, analyst, spec)
    first = submit(context, analyst, made["id"], key="one")
    assert submit(context, analyst, made["id"], key="one") == first
    with pytest.raises(IdempotencyKeyReused):
        submit(context, analyst, made["id"], mu="0.2", key="one")
    assert first["cost"]["reserved"]["budget_share"] == told.cost.budget_share

    assert [view.id for view in jobs.page(context, owner, JobFilter(label=("study", "a")), None, 10)] == [first["id"]]
    assert jobs.page(context, owner, JobFilter(state="running"), None, 10) == []
    budget = datasets.budget(context, analyst, made["id"])
    beside = told.cost.retry_allowance.budget_share
    assert first["cost"]["retry_allowance"]["budget_share"] == beside
    assert budget.entries == 4
    assert float(budget.budget_share.reserved) == pytest.approx(float(told.cost.budget_share) + float(beside), abs=2e-6)
    assert [entry.kind for entry in scopes.entries(context, auditor, made["scope"], 0, 10)] == [
        "open",
        "upload",
        "grant",
        "reserve",
    ]
    assert verified_here(context, auditor, made["scope"]).ok
    assert jobs.report(context, owner, first["id"])["privacy"]["promise"]["epsilon"] == "0"
    assert health.check(context)["ledger"] == "ok"

    datasets.erase(context, owner, made["id"])
    assert datasets.get(context, owner, made["id"]).state == "erased"
    assert jobs.get(context, analyst, first["id"]).state == "cancelled"
    assert list(context.settings.records_path.iterdir()) == []
    with pytest.raises(Conflict):
        submit(context, analyst, made["id"])
    assert verified_here(context, auditor, made["scope"]).ok
    assert [view.id for view in datasets.page(context, admin, None, 10)] == [made["id"]]


def test_caps_have_versions(context: Context, someone: Someone) -> None:
    owner, analyst = someone("owner"), someone("analyst")
    made = upload(context, owner)
    ask = CapRequest.model_validate({"epsilon": "1", "delta": "1e-6"})
    view, is_new = access.give(context, owner, made["id"], analyst.id, ask, None)
    assert is_new
    again, is_new = access.give(context, owner, made["id"], analyst.id, ask, frozenset({view.version}))
    assert (again, is_new) == (view, False)
    with pytest.raises(PreconditionFailed):
        access.give(context, owner, made["id"], analyst.id, ask, frozenset({"other"}))
    with pytest.raises(Forbidden):
        access.give(context, analyst, made["id"], analyst.id, ask, None)
    submit(context, analyst, made["id"])
    other_delta = CapRequest.model_validate({"epsilon": "1", "delta": "1e-5"})
    with pytest.raises(Conflict):
        access.give(context, owner, made["id"], analyst.id, other_delta, frozenset({"*"}))
    wider = CapRequest.model_validate({"epsilon": "2"})
    changed, _ = access.give(context, owner, made["id"], analyst.id, wider, frozenset({view.version}))
    assert changed.epsilon == "2"
    assert verified_here(context, owner, made["scope"]).ok


def test_rivals_with_one_key_make_one_job(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)

    def send(_: int) -> str:
        try:
            return str(submit(context, owner, made["id"], key="same")["id"])
        except Refusal as refusal:
            return refusal.code

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(send, range(8)))
    created = {answer for answer in answers if answer.startswith("job_")}
    assert len(created) == 1
    assert answers - created <= {"idempotency-key-in-flight", "ledger-busy"}
    assert len(jobs.page(context, owner, JobFilter(), None, 10)) == 1


def test_no_job_slips_in_while_a_dataset_is_erased(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)

    def send(number: int) -> None:
        if number == 5:
            datasets.erase(context, owner, made["id"])
            return
        try:
            submit(context, owner, made["id"], mu="0.01")
        except Refusal as refusal:
            assert refusal.code in {"conflict", "ledger-busy"}  # noqa: PT017 - some succeed

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(send, range(12)))
    datasets.finish_erasures(context)
    assert datasets.get(context, owner, made["id"]).state == "erased"
    states = {view.state for view in jobs.page(context, owner, JobFilter(), None, 50)}
    assert states <= {"cancelled"}
    assert datasets.budget(context, owner, made["id"]).budget_share.reserved == "0"


def test_an_erasure_waits_for_the_running_job(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    submit(context, owner, made["id"])
    claim = context.database.transaction(rows.claim, "test", 60.0)
    assert claim is not None
    assert datasets.erase(context, owner, made["id"]).state == "erasing"
    assert datasets.get(context, owner, made["id"]).state == "erasing"
    assert len(list(context.settings.records_path.iterdir())) == 1
    context.database.transaction(rows.acknowledge_cancel, claim)
    assert datasets.finish_erasures(context) == [made["id"]]
    assert list(context.settings.records_path.iterdir()) == []


def test_the_trail_is_paged_and_exported(context: Context, admin: Caller, someone: Someone) -> None:
    analyst = someone("analyst")
    for caller in (admin, analyst, admin):
        audit.record(context, Line(caller.id, "GET /v1/x", "x", 200, None, f"req_{caller.id}"))
    assert [line.principal for line in audit.page(context, admin, None, 10)] == [admin.id, analyst.id, admin.id]
    assert [line.principal for line in audit.page(context, analyst, None, 10)] == [analyst.id]
    newest = audit.page(context, admin, None, 1)[0]
    assert [line.principal for line in audit.page(context, admin, newest.id, 10)] == [analyst.id, admin.id]
    assert [line.principal for lines in audit.export(context, admin) for line in lines] == [
        admin.id,
        analyst.id,
        admin.id,
    ]
    assert len(keys.page(context, admin, None, 10)) == 3, "one of them has ended"
