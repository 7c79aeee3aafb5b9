"""Scopes: the budget of the people behind some datasets, its ledger, and what its owner may do with it."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, status

from api.body import StrictRoute
from api.cost import HEAVY_READ, POST, READ, costs
from api.deps import Caller, Db, Limit, capped, page
from api.errors import problems
from api.schemas import Acceptance, Adjustment, WithReason
from core.base.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from core.service import history
from core.service import scopes as service
from core.service.views import ScopeView
from farthing.schemas.budgets import BudgetView
from farthing.schemas.history import PointView
from farthing.schemas.ledger import EntryView, HeadView, VerificationView
from farthing.schemas.problems import Page

router = APIRouter(
    prefix="/v1/scopes", tags=["budget"], route_class=StrictRoute, responses=problems(Unauthenticated, NotFound)
)
ScopeId = Annotated[str, Path(max_length=60)]


@router.get("/{scope_id}")
@costs(READ)
def get_scope(scope_id: ScopeId, caller: Caller, db: Db) -> ScopeView:
    """Show a scope and the terms of its budget, which never change."""
    return service.get(db, caller, scope_id)


@router.get("/{scope_id}/budget")
@costs(HEAVY_READ)
def get_budget(scope_id: ScopeId, caller: Caller, db: Db) -> BudgetView:
    """Show what is left of a budget, at the ledger's present head."""
    return service.budget(db, caller, scope_id)


@router.get("/{scope_id}/entries")
@costs(HEAVY_READ)
def list_entries(
    scope_id: ScopeId,
    caller: Caller,
    db: Db,
    after: Annotated[int, Query(ge=0, le=2**62, description="`next` of the last page")] = 0,
    limit: Limit = 100,
) -> Page[EntryView]:
    """List the ledger's lines, oldest first. Each `hash` covers `prev_hash`, a line feed and `body`."""
    return page(service.entries(db, caller, scope_id, after, capped(limit) + 1), capped(limit), "seq")


@router.get("/{scope_id}/history")
@costs(HEAVY_READ)
def list_history(
    scope_id: ScopeId,
    caller: Caller,
    db: Db,
    after: Annotated[int, Query(ge=0, le=2**62, description="`next` of the last page")] = 0,
    limit: Limit = 100,
) -> Page[PointView]:
    """List how a budget was used, oldest first: one point for each job that ended, and what was left after it.

    Jobs that go on are not in it; `GET /v1/scopes/{id}/budget` has what they spent and reserved by now.
    """
    return page(history.page(db, caller, scope_id, after, capped(limit) + 1), capped(limit), "seq")


@router.get("/{scope_id}/head")
@costs(READ)
def get_head(scope_id: ScopeId, caller: Caller, db: Db) -> HeadView:
    """Show where the chain stands, to keep beside one's own notes."""
    return service.head(db, caller, scope_id)


@router.post("/{scope_id}/verify")
@costs(HEAVY_READ)
def verify_scope(scope_id: ScopeId, caller: Caller, db: Db) -> VerificationView:
    """Recompute the chain and its sums; a mismatch freezes the scope.

    The answer comes within seconds. Where `running` is true the recomputation goes on: ask again for its outcome.
    """
    return service.verify(db, caller, scope_id)


@router.post("/{scope_id}/freeze", responses=problems(Forbidden))
@costs(POST)
def freeze_scope(scope_id: ScopeId, body: WithReason, caller: Caller, db: Db) -> ScopeView:
    """Stop a scope from admitting jobs."""
    return service.freeze(db, caller, scope_id, body.reason)


@router.post("/{scope_id}/unfreeze", responses=problems(Forbidden))
@costs(POST)
def unfreeze_scope(scope_id: ScopeId, body: WithReason, caller: Caller, db: Db) -> ScopeView:
    """Let a frozen scope admit jobs again."""
    return service.unfreeze(db, caller, scope_id, body.reason)


@router.post("/{scope_id}/acceptances", responses=problems(Forbidden, Conflict, Invalid))
@costs(POST)
def accept_gap(scope_id: ScopeId, body: Acceptance, caller: Caller, db: Db) -> ScopeView:
    """Let a scope go on although entries of its ledger may be missing, since its witness was lost: its owner's word."""
    return service.accept(db, caller, scope_id, body.entry, body.reason)


@router.post(
    "/{scope_id}/adjustments", status_code=status.HTTP_201_CREATED, responses=problems(Forbidden, Conflict, Invalid)
)
@costs(POST)
def adjust_scope(scope_id: ScopeId, body: Adjustment, caller: Caller, db: Db) -> HeadView:
    """Give back a charge whose records were never opened, by a visible entry; once per charge."""
    return service.adjust(db, caller, scope_id, body.job, body.reason)
