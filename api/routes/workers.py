"""The supervisors that serve jobs."""

from fastapi import APIRouter

from api.body import StrictRoute
from api.cost import WATCHERS, Cost, costs
from api.deps import Caller, Db, page
from api.errors import problems
from core.base.errors import Forbidden, Unauthenticated
from core.service import workers as service
from farthing.schemas.problems import Page
from farthing.schemas.service import WorkerView

router = APIRouter(
    prefix="/v1/workers", tags=["admin"], route_class=StrictRoute, responses=problems(Unauthenticated, Forbidden)
)


@router.get("")
@costs(Cost(WATCHERS))
def list_workers(caller: Caller, db: Db) -> Page[WorkerView]:
    """List the supervisors of the last day, the last seen first; admins and auditors only."""
    found = service.page(db, caller)
    return page(found, len(found), "name")
