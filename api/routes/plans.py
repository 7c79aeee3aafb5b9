"""Plans from public figures alone, before there is a dataset or a budget."""

from fastapi import APIRouter

from api.body import StrictRoute
from api.deps import Caller
from api.errors import problems
from core.catalogue.clipped.plans import ClippedPlan
from core.catalogue.clipped.request import ClippedPlanRequest
from core.errors import AdjacencyMismatch, Invalid, NotOfferedYet, Unauthenticated
from core.service import plans as service

router = APIRouter(prefix="/v1/plans", tags=["planning"], route_class=StrictRoute)


@router.post("", responses=problems(Unauthenticated, Invalid, NotOfferedYet, AdjacencyMismatch))
def plan(request: ClippedPlanRequest, caller: Caller) -> ClippedPlan:
    """Plan clipped descent: step size, clip, batch, steps and noise with the least certified bound.

    What is left out and named in `find` is solved for: the smallest number of units, the smallest epsilon, or the
    largest sigma that brings the bound down to the target. Nothing is read or reserved; the same request has the same
    answer.
    """
    del caller  # whoever has a key may plan
    return service.plan(request)
