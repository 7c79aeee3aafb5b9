"""The same bytes, declared otherwise: within their scope at any time, elsewhere only while no answer used them."""

import threading
from typing import Any

import pytest

from core.base.errors import DuplicateDataset, Forbidden, LedgerFrozen
from core.data.datasets import parse_metadata
from core.jobs import jobs as job_rows
from core.ledger import ledger
from core.ledger.claims import freeze_ledger, thaw_ledger
from core.planning.job import JobSpec
from core.service import datasets, scopes, uploads
from core.service.context import Caller, Context
from tests.service.conftest import Someone
from tests.support import entry
from tests.support.api import COLUMNS, csv, job, metadata

pytestmark = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
"""tests/ledger/test_identities.py tests the kept digests of records on both."""

BYTES = csv(100)
WIDER = [{**COLUMNS[0], "upper": 120}, *COLUMNS[1:]]
NARROWER = [{**COLUMNS[0], "upper": 80}, *COLUMNS[1:]]


def upload(context: Context, caller: Caller, **changes: Any) -> dict[str, Any]:
    view, _ = uploads.create(context, caller, parse_metadata(metadata(**changes)), None, [BYTES], None)
    return view


def refused(context: Context, caller: Caller, **changes: Any) -> DuplicateDataset:
    with pytest.raises(DuplicateDataset) as found:
        upload(context, caller, **changes)
    return found.value


def pay(context: Context, caller: Caller, dataset: str) -> None:
    """Have a job on a dataset pay for its first chunk."""
    entry.submit(context, caller, JobSpec.model_validate(job(dataset)), f"pay {dataset}")
    claim = context.database.transaction(job_rows.claim, "w", 60.0)
    assert claim is not None
    context.database.transaction(ledger.pay, claim, 0, None, 0)
    context.database.transaction(job_rows.fail, claim, "trainer-failed", charge="spent")


@pytest.mark.slow  # a decoder for each upload: one test of this file is for every day
def test_columns_are_declared_otherwise_in_the_scope_whatever_was_told(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    first = upload(context, owner)
    scope = first["scope"]
    pay(context, owner, first["id"])
    again = upload(context, owner, budget=None, scope=scope, columns=WIDER)
    assert (again["scope"], again["rows"]) == (scope, first["rows"])
    assert again["fingerprint"] != first["fingerprint"]
    assert again["id"] != first["id"]
    assert again["columns"][0]["upper"] == 120
    spent = [datasets.budget(context, owner, one["id"]).budget_share.spent for one in (first, again)]
    assert spent[0] == spent[1] != "0"
    for columns, there in ((COLUMNS, first), (WIDER, again)):
        refusal = refused(context, owner, budget=None, scope=scope, columns=columns)
        assert refusal.facts == {"dataset": there["id"], "scope": scope}
        assert "use that one" in refusal.detail
    datasets.erase(context, owner, first["id"])
    assert upload(context, owner, budget=None, scope=scope)["scope"] == scope, "its records were gone"


def test_a_budget_of_their_own_they_have_again_only_where_nothing_was_told(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    first = upload(context, owner)
    refusal = refused(context, owner, budget={"epsilon": "1"}, columns=WIDER)
    assert refusal.facts == {"dataset": first["id"], "scope": first["scope"]}
    assert refusal.fields[0].pointer == "/scope"
    assert f"once the records of {first['id']} are erased" in refusal.detail
    wider = upload(context, owner, budget=None, scope=first["scope"], columns=WIDER)
    assert wider["scope"] == first["scope"]
    datasets.erase(context, owner, first["id"])
    assert f"once the records of {wider['id']} are erased" in refused(context, owner, columns=NARROWER).detail
    datasets.erase(context, owner, wider["id"])
    context.database.transaction(freeze_ledger, "restored.")
    with pytest.raises(LedgerFrozen):
        upload(context, owner, budget={"epsilon": "1"})
    context.database.transaction(thaw_ledger)
    second = upload(context, owner, budget={"epsilon": "1"})
    assert second["scope"] != first["scope"]
    left = scopes.get(context, owner, first["scope"])
    assert left.frozen is not None
    assert second["scope"] not in left.frozen, "an analyst of it would read where the same records are"
    assert "no new budget" in refused(context, owner, budget=None, scope=first["scope"]).detail, "they left it"

    pay(context, owner, second["id"])
    datasets.erase(context, owner, second["id"])
    told = refused(context, owner)
    assert "no new budget" in told.detail
    assert "Nothing was released" not in told.detail


@pytest.mark.slow
def test_bytes_leave_no_scope_that_somebody_has_frozen(context: Context, someone: Someone) -> None:
    owner, auditor = someone("owner"), someone("auditor")
    first = upload(context, owner)
    scopes.freeze(context, auditor, first["scope"], "asked about its bounds")
    datasets.erase(context, owner, first["id"])
    assert "no new budget" in refused(context, owner).detail


@pytest.mark.slow
def test_of_rivals_one_takes_the_bytes_along(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    first = upload(context, owner)
    datasets.erase(context, owner, first["id"])
    barrier, made = threading.Barrier(4), list[str]()

    def ask(epsilon: int) -> None:
        barrier.wait()
        try:
            made.append(upload(context, owner, budget={"epsilon": str(epsilon)})["scope"])
        except DuplicateDataset:
            made.append("refused")

    threads = [threading.Thread(target=ask, args=(epsilon,)) for epsilon in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (won,) = [one for one in made if one != "refused"]
    frozen = scopes.get(context, owner, first["scope"]).frozen
    assert frozen is not None
    assert won not in frozen


@pytest.mark.slow
def test_nobody_fills_another_s_declaration(context: Context, someone: Someone, admin: Caller) -> None:
    owner = someone("owner")
    first = upload(context, owner)
    pending, _ = uploads.declare(context, owner, parse_metadata(metadata(name="later")), None)
    for content in (BYTES, csv(101)):  # whichever it is, the answer says nothing of the owner's other records
        with pytest.raises(Forbidden, match="Only the owner of a declaration"):
            uploads.fill(context, admin, pending["id"], "text/csv", [content])
    with pytest.raises(DuplicateDataset):
        uploads.fill(context, owner, pending["id"], "text/csv", [BYTES])
    filled = uploads.fill(context, owner, pending["id"], "text/csv", [csv(101, 7)])
    assert filled.scope is not None
    assert filled.scope != first["scope"]
    assert scopes.get(context, owner, filled.scope).owner == owner.id
