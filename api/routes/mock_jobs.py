"""Mock jobs: training jobs on rows drawn from a declaration, free of charge."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Body, Request, Response, status
from fastapi.responses import JSONResponse

from api.body import StrictRoute
from api.cost import FEW_VALUES, READ, SUBMITTERS, Cost, costs
from api.deps import After, Caller, Db, IdempotencyKey, Limit, capped, page
from api.errors import problems
from core.base.errors import (
    AdjacencyMismatch,
    Conflict,
    Forbidden,
    IdempotencyKeyInFlight,
    IdempotencyKeyMissing,
    IdempotencyKeyReused,
    Invalid,
    NotFound,
    NotOfferedYet,
    RateLimited,
    Unauthenticated,
)
from core.service import mock_intake, mock_jobs
from core.service.mock_intake import MockSpec
from farthing.schemas.jobs import JobView
from farthing.schemas.problems import Page

router = APIRouter(prefix="/v1/mock-jobs", tags=["jobs"], route_class=StrictRoute, responses=problems(Unauthenticated))


@router.post(
    "",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=JobView,
    responses=problems(
        IdempotencyKeyMissing,
        IdempotencyKeyReused,
        IdempotencyKeyInFlight,
        Forbidden,
        NotFound,
        Conflict,
        Invalid,
        NotOfferedYet,
        AdjacencyMismatch,
        RateLimited,
    ),
)
@costs(Cost(SUBMITTERS, body_bytes=None, values=FEW_VALUES))
async def submit_mock_job(
    spec: Annotated[MockSpec, Body()], key: IdempotencyKey, caller: Caller, db: Db, request: Request
) -> Response:
    """Queue a mock job: the whole path of a job, on rows drawn from the dataset's declaration alone.

    Every column is drawn uniformly and independently of the others, the target too, so nothing predicts it. No record
    is opened, nothing is reserved or charged, and no cap is needed; `cost` says what the same job would cost. Its job
    and its model are marked `mock`, and are read under `/v1/jobs` and `/v1/models`.
    """
    async with request.app.state.limits.planning(request):
        body, replayed = await to_thread.run_sync(mock_intake.submit, db, caller, spec, key)
    headers = {"Location": f"/v1/jobs/{body['id']}", "Retry-After": "1"}
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    return JSONResponse(body, status_code=mock_intake.ACCEPTED, headers=headers)


@router.get("")
@costs(READ)
def list_mock_jobs(caller: Caller, db: Db, *, after: After = None, limit: Limit = 20) -> Page[JobView]:
    """List mock jobs, newest first: the caller's own; all of them for auditors and admins."""
    return page(mock_jobs.page(db, caller, after, capped(limit) + 1), capped(limit))
