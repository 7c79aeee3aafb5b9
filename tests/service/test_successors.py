"""The dataset of the next year: it joins the scope of the last one, or its owner says why its people are others."""

from typing import Any
from uuid import uuid4

import pytest

from core.base.errors import Invalid, NearCopy
from core.data.datasets import parse_metadata
from core.jobs import jobs as job_rows
from core.ledger import ledger
from core.planning.job import JobSpec
from core.service import access, datasets, jobs, scopes, uploads
from core.service.context import Caller, Context
from tests.service.conftest import Someone
from tests.support import entry
from tests.support.api import csv, job, metadata

pytestmark = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
LAST = csv(200)
NEXT = csv(300)
"""The 200 people of the last year and 100 new ones."""


def upload(context: Context, caller: Caller, content: bytes, **changes: Any) -> dict[str, Any]:
    view, _ = uploads.create(context, caller, parse_metadata(metadata(**changes)), None, [content], None)
    return view


def submit(context: Context, caller: Caller, dataset: str) -> str:
    spec = JobSpec.model_validate(job(dataset, mu="0.05"))
    return str(entry.submit(context, caller, spec, uuid4().hex).body["id"])


def test_both_years_spend_one_budget_and_each_has_its_own_n(context: Context, someone: Someone) -> None:
    owner, analyst = someone("owner"), someone("analyst")
    last = upload(context, owner, LAST)
    access.give(context, owner, last["id"], analyst.id, "all", None)
    running = submit(context, analyst, last["id"])
    claim = context.database.transaction(job_rows.claim, "w", 60.0)
    assert claim is not None
    context.database.transaction(ledger.pay, claim, 0, None, 0)
    before = datasets.budget(context, owner, last["id"]).budget_share

    made = upload(context, owner, NEXT, budget=None, scope=last["scope"])
    assert (made["rows"], datasets.get(context, owner, last["id"]).rows) == (300, 200)
    assert datasets.budget(context, owner, made["id"]).budget_share == before
    assert jobs.get(context, owner, running).state == "running", "an upload ends no job"
    access.give(context, owner, made["id"], analyst.id, "all", None)
    later = submit(context, analyst, made["id"])
    after = datasets.budget(context, owner, last["id"]).budget_share
    assert after.spent == before.spent
    assert float(after.reserved) > float(before.reserved)

    queued = submit(context, analyst, last["id"])
    datasets.erase(context, owner, last["id"])
    assert jobs.get(context, owner, running).state == "cancelling"
    assert jobs.get(context, owner, queued).state == "cancelled"
    assert jobs.get(context, owner, later).state == "queued", "the other dataset goes on"
    context.database.transaction(job_rows.acknowledge_cancel, claim)
    assert datasets.finish_erasures(context) == [last["id"]]
    assert datasets.get(context, owner, made["id"]).state == "ready"
    assert datasets.budget(context, owner, made["id"]).budget_share.spent == before.spent
    assert scopes.verify(context, owner, last["scope"]).ok


def test_a_scope_of_its_own_needs_a_reason_where_most_rows_are_equal(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    last = upload(context, owner, LAST)
    with pytest.raises(NearCopy) as found:
        upload(context, owner, NEXT)
    assert {field.pointer for field in found.value.fields} == {"/scope", "/distinct_because"}
    assert found.value.facts["scope"] == last["scope"]
    made = upload(context, owner, NEXT, distinct_because="a lottery of another town, drawn anew")
    assert made["scope"] != last["scope"]


def test_a_delta_that_is_too_large_for_the_larger_year_is_refused(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    last = upload(context, owner, LAST, budget={"epsilon": "3", "delta": "4e-4"})
    with pytest.raises(Invalid) as found:
        upload(context, owner, NEXT, budget=None, scope=last["scope"])
    assert "/accept_delta" in {field.pointer for field in found.value.fields}
    accepted = upload(context, owner, NEXT, budget=None, scope=last["scope"], accept_delta=True)
    assert accepted["rows"] == 300
