"""The auditor's way: a ledger's entries and their verification, and the audit log."""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response

from api.deps import After, Caller, Db
from api.pages.datasets import head
from api.pages.entry_words import sentence
from api.pages.rendering import as_page, fragment, render
from api.pages.routes import PageRoute, page, see_other
from api.pages.sorting import Sort, sorting
from api.routes import audit as audit_api
from api.routes import certificates as certificates_api
from api.routes import scopes as api
from core.base.errors import Conflict
from core.db.sorting import AGE
from core.service import audit, datasets, jobs, naming, scopes
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.ledger import EntryView

router = APIRouter(route_class=PageRoute)
DatasetId = Annotated[str, Path(max_length=60)]
A_PAGE: Final = 50


@dataclass(frozen=True)
class Shown:
    """An entry as the table writes it."""

    seq: int
    when: str
    kind: str
    said: str
    job: str | None
    actor: str
    hash: str


@page(router, "/datasets/{dataset_id}/ledger", api=api.list_entries)
def show_ledger(
    dataset_id: DatasetId,
    request: Request,
    caller: Caller,
    db: Db,
    before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    sort: Sort = "",
    after: Annotated[int, Query(ge=0, le=2**53, description="oldest first, the number of an entry")] = 0,
) -> Response:
    """Show the newest entries of the ledger that a dataset's budget has, or those before one; or from the oldest on."""
    facts = head(db, caller, dataset_id, "Ledger")
    scope = facts["dataset"].scope
    if scope is None:
        raise Conflict("This dataset has no ledger before it has records and is sealed.")
    # The audit line is the operation's, whose path names the scope.
    request.state.target = f"scopes/{scope}/entries"
    base, count = f"/datasets/{dataset_id}/ledger", facts["budget"].entries
    order = sorting(base, {}, sort, [AGE])
    if order.order.descending:
        last = count if before is None else min(before - 1, count)
        first = max(last - A_PAGE, 0)
        older, newer = f"{base}?before={first + 1}", f"{base}?before={last + A_PAGE + 1}"
    else:
        first = min(after, count)
        last = min(first + A_PAGE, count)
        older, newer = order.after(str(max(first - A_PAGE, 0))), order.after(str(last))
    read = scopes.entries(db, caller, scope, first, max(last - first, 1))
    entries = [(one, json.loads(one.body)) for one in (reversed(read) if order.order.descending else read)]
    people = [body.get(member) for _, body in entries for member in ("actor", "principal")]
    names = facts["names"] | naming.names(db, caller, [one.job for one, _ in entries] + people)
    found = [_shown(entry, body, names) for entry, body in entries]
    facts |= {
        "entries": found,
        "mine": jobs.visible(db, caller, [one.job for one in found if one.job]),
        "names": names,
        "sorting": order,
        "older": older if first else None,
        "newer": newer if last < count else None,
        "result": None,
        "dataset_id": dataset_id,
    }
    return render(request, "ledger.html", facts, at="datasets")


def _shown(entry: EntryView, body: dict[str, Any], names: dict[str, str]) -> Shown:
    actor = body.get("actor")
    return Shown(
        seq=entry.seq,
        when=entry.created_at[:19].replace("T", " "),
        kind=entry.kind,
        said=sentence(entry.kind, body, entry.chunk, names),
        job=entry.job,
        actor=actor if isinstance(actor, str) else "",
        hash=entry.hash,
    )


@page(router, "/datasets/{dataset_id}/verify", api=api.verify_scope, method="POST")
def verify(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Recompute the ledger; return the part of the page that says what was found."""
    scope = _scope_of(db, caller, dataset_id)
    request.state.target = f"scopes/{scope}/verify"
    result = scopes.verify(db, caller, scope)
    if request.headers.get("hx-request") != "true":
        return see_other(f"/datasets/{dataset_id}/ledger")
    return as_page(fragment(request, "verification.html", {"result": result, "dataset_id": dataset_id}))


@page(router, "/datasets/{dataset_id}/head", api=certificates_api.get_signed_head)
def download_head(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Send where the ledger stands, signed; while it is being recomputed, the page that says so."""
    scope = _scope_of(db, caller, dataset_id)
    request.state.target = f"scopes/{scope}/head/signed"
    answer = certificates_api.get_signed_head(scope, caller, db)
    if answer.status_code != HTTPStatus.OK:
        return see_other(f"/datasets/{dataset_id}/ledger")
    answer.headers["Content-Disposition"] = f'attachment; filename="head-{scope}.jws"'
    return answer


def _scope_of(context: Context, caller: Principal, dataset_id: str) -> str:
    scope = datasets.get(context, caller, dataset_id).scope
    if scope is None:
        raise Conflict("This dataset has no ledger before it has records and is sealed.")
    return scope


@page(router, "/audit", api=audit_api.list_audit)
def show_audit(request: Request, caller: Caller, db: Db, after: After = None) -> Response:
    """Show the audit log, newest first."""
    found = audit.page(db, caller, after, A_PAGE + 1)
    lines = found[:A_PAGE]
    facts = {
        "lines": lines,
        "names": naming.names(db, caller, [one.principal for one in lines]),
        "older": f"/audit?after={lines[-1].id}" if len(found) > A_PAGE else None,
        "everything": caller.role in {"admin", "auditor"},
    }
    return render(request, "audit.html", facts, at="audit")
