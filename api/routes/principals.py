"""Principals: the holders of keys, and their suspension."""

from typing import Annotated

from fastapi import APIRouter, Path

from api.body import StrictRoute
from api.cost import FEW_VALUES, READ, WATCHERS, Cost, by, costs
from api.deps import After, Caller, Db, Limit, capped, page
from api.errors import problems
from api.schemas import WithReason
from core.base.errors import Forbidden, NotFound, Unauthenticated
from core.service import principals as service
from farthing.schemas.keys import PrincipalStateView
from farthing.schemas.problems import Page

router = APIRouter(
    prefix="/v1/principals", tags=["admin"], route_class=StrictRoute, responses=problems(Unauthenticated, Forbidden)
)
PrincipalId = Annotated[str, Path(max_length=60)]


@router.get("")
@costs(Cost(WATCHERS))
def list_principals(caller: Caller, db: Db, after: After = None, limit: Limit = 20) -> Page[PrincipalStateView]:
    """List principals, newest first; admins and auditors only."""
    return page(service.page(db, caller, after, capped(limit) + 1), capped(limit))


@router.get("/{principal_id}", responses=problems(NotFound))
@costs(READ)
def get_principal(principal_id: PrincipalId, caller: Caller, db: Db) -> PrincipalStateView:
    """Show one principal, and whether it is disabled: any for admins and auditors, otherwise one's own."""
    return service.get(db, caller, principal_id)


@router.post("/{principal_id}/disable", responses=problems(NotFound))
@costs(Cost(by("admin"), body_bytes=None, values=FEW_VALUES))
def disable_principal(principal_id: PrincipalId, body: WithReason, caller: Caller, db: Db) -> PrincipalStateView:
    """Shut a principal out; all its keys answer 401 from now on, and its queued jobs end. Admins only."""
    return service.disable(db, caller, principal_id, body.reason)


@router.post("/{principal_id}/enable", responses=problems(NotFound))
@costs(Cost(by("admin")))
def enable_principal(principal_id: PrincipalId, caller: Caller, db: Db) -> PrincipalStateView:
    """Let a principal in again, with the keys that were neither revoked nor have expired. Admins only.

    Nothing else comes back: jobs that waited have ended as `access-withdrawn`, and are submitted anew.
    """
    return service.enable(db, caller, principal_id)
