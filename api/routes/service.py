"""The service itself: its state, for operators and auditors."""

from fastapi import APIRouter, Request

from api.body import StrictRoute
from api.cost import WATCHERS, Cost, Work, costs
from api.deps import Caller, Db
from api.errors import problems
from api.metrics import Metrics
from core.base.errors import Forbidden, Unauthenticated
from core.service import status
from farthing.schemas.service import ServiceView

router = APIRouter(
    prefix="/v1/service", tags=["admin"], route_class=StrictRoute, responses=problems(Unauthenticated, Forbidden)
)


@router.get("")
@costs(Cost(WATCHERS, Work.HEAVY))
def get_service(request: Request, caller: Caller, db: Db) -> ServiceView:
    """Show the queue, workers, leases, what the service stands on, and its last failures; admins and auditors only.

    The answer is 200 as well where the service is not ready: `status` and `trouble` say so.
    """
    metrics: Metrics = request.app.state.metrics
    return status.get(db, caller, metrics.agreed)
