"""Sweeps: several settings of one job, of which the best by a private score is released."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Body, Request, Response, status
from fastapi.openapi.models import Example

from api.body import StrictRoute
from api.cost import FEW_VALUES, QUESTION, SUBMITTERS, Cost, costs
from api.deps import Caller, Db, IdempotencyKey
from api.errors import problems
from api.routes.jobs import SUBMIT_REFUSALS, respond
from core.base.errors import AdjacencyMismatch, Conflict, Invalid, NotFound, NotOfferedYet, Unauthenticated
from core.service import estimates
from core.service import sweeps as service
from core.service.sweeps import SweepRequest
from farthing.schemas.estimates import EstimateView
from farthing.schemas.jobs import JobView

router = APIRouter(prefix="/v1/sweeps", tags=["jobs"], route_class=StrictRoute, responses=problems(Unauthenticated))
_JOB = {
    "dataset": "ds_1",
    "model": {"kind": "logistic", "target": "y"},
    "optimizer": {"kind": "noisy_gd"},
    "privacy": {"epsilon": "1"},
    "inference": {"intervals": False},
}
_EXAMPLES: dict[str, Example] = {
    "grid": {
        "summary": "One job, and values for some of its settings",
        "value": {"job": _JOB, "grid": {"/optimizer/steps": [10, 20], "/model/ridge": [0.01, 0.1]}},
    },
    "jobs": {
        "summary": "Several jobs, which differ in optimizer and ridge alone",
        "value": {"jobs": [_JOB, {**_JOB, "optimizer": {"kind": "noisy_newton", "steps": 5}}], "way": "composition"},
    },
}
Asked = Annotated[SweepRequest, Body(openapi_examples=_EXAMPLES)]


@router.post("", status_code=status.HTTP_202_ACCEPTED, response_model=JobView, responses=SUBMIT_REFUSALS)
@costs(Cost(SUBMITTERS, body_bytes=None, values=FEW_VALUES))
async def submit_sweep(spec: Asked, key: IdempotencyKey, caller: Caller, request: Request) -> Response:
    """Queue a sweep as one job, and reserve the most that it may cost.

    The job is read, watched and cancelled under `/v1/jobs`. It is one step, so that nothing shows how many settings
    were trained. The model that it releases says in `sweep` which of them won.
    """
    job = await to_thread.run_sync(spec.to_job)  # 256 candidates take longer than the event loop may stand still
    with spec.naming():
        return await respond(request, caller, job, key, service.ROUTE)


@router.post("/estimates", responses=problems(NotFound, Conflict, Invalid, NotOfferedYet, AdjacencyMismatch))
@costs(QUESTION)
def estimate_sweep(spec: Asked, caller: Caller, db: Db) -> EstimateView:
    """Price a sweep as `POST /v1/estimates` prices its job; nothing is reserved and no record is read."""
    job = spec.to_job()
    with spec.naming():
        return estimates.estimate(db, caller, estimates.EstimateSpec.model_validate(job.model_dump(exclude_unset=True)))
