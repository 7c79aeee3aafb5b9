"""Estimates: the cost of a job and the predictions of the theory."""

from fastapi import APIRouter

from api.body import StrictRoute
from api.cost import QUESTION, costs
from api.deps import Caller, Db
from api.errors import problems
from core.base.errors import AdjacencyMismatch, Conflict, Invalid, NotFound, NotOfferedYet, Unauthenticated
from core.service import curves, federations
from core.service import estimates as service
from farthing.schemas.curves import CurveView
from farthing.schemas.estimates import EstimateView

router = APIRouter(prefix="/v1/estimates", tags=["planning"], route_class=StrictRoute)


_REFUSALS = problems(Unauthenticated, NotFound, Conflict, Invalid, NotOfferedYet, AdjacencyMismatch)


@router.post("", responses=_REFUSALS)
@costs(QUESTION)
def estimate(spec: service.EstimateSpec, caller: Caller, db: Db) -> EstimateView:
    """Price a job and predict its intervals; nothing is reserved and no record is read.

    The body is a job's, or one with a `goal`. Without a privacy target, the plan is the smallest that is predicted to
    reach the goal. With one, the answer gives the smallest target and the smallest number of units that would. A
    federated job's answer has the plan that its sites share, and each site's own price and whether it fits.

    Before an upload, `declaration` stands in place of `dataset`. The answer is the one that the same declaration has
    once it is uploaded with a budget of its own; its `head` is null.
    """
    if spec.federation is not None:
        return federations.estimate(db, caller, spec)
    return service.estimate(db, caller, spec)


@router.post("/curve", responses=_REFUSALS)
@costs(QUESTION)
def get_curve(spec: service.AppraisedSpec, caller: Caller, db: Db) -> CurveView:
    """Predict a job's widths at nine privacy targets around its own, so that one sees what more budget would buy.

    The body is a job's on one dataset, or on a `declaration` as in an estimate. Nothing is reserved and no record is
    read.
    """
    return curves.get(db, caller, spec.job(), spec.declaration)
