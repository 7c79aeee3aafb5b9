"""Plans from public figures alone, before there is a dataset or a budget."""

from typing import Annotated

from fastapi import APIRouter, Body

from api.body import StrictRoute
from api.cost import QUESTION, costs
from api.deps import Caller
from api.errors import problems
from core.base.errors import AdjacencyMismatch, Invalid, NotOfferedYet, Unauthenticated
from public_planner import plans as service

router = APIRouter(prefix="/v1/plans", tags=["planning"], route_class=StrictRoute)


@router.post("", responses=problems(Unauthenticated, Invalid, NotOfferedYet, AdjacencyMismatch))
@costs(QUESTION)
def plan(request: Annotated[service.PlanRequest, Body()], caller: Caller) -> service.AnyPlan:
    """Plan clipped descent with the least certified bound, or Gauss-PSGD and certificates with their alpha.

    `kind` says which; without one it is clipped_sgd. What is left out and named in `find` is solved for: the smallest
    number of units, the smallest epsilon, or the largest sigma or spread that brings the bound down to the target.
    Nothing is read or reserved; the same request has the same answer.
    """
    del caller  # whoever has a key may plan
    return service.plan(request)
