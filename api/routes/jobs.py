"""Training jobs: submit one, watch it, cancel it."""

import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

from anyio import to_thread
from fastapi import APIRouter, Body, Header, Path, Query, Request, Response, status
from fastapi.openapi.models import Example
from fastapi.responses import JSONResponse, StreamingResponse

from api.batcher import Batcher
from api.body import StrictRoute
from api.cost import ANYBODY, CHANGE, FEW_VALUES, READ, SUBMITTERS, Cost, costs
from api.deps import After, Caller, Db, IdempotencyKey, LabelFilter, Limit, capped, page, pair_of
from api.errors import problems
from api.watch import Watcher
from core.base.errors import (
    AdjacencyMismatch,
    BudgetExhausted,
    BudgetReserved,
    Conflict,
    DatabaseAway,
    DrawsExhausted,
    Forbidden,
    GpuUnavailable,
    IdempotencyKeyInFlight,
    IdempotencyKeyMissing,
    IdempotencyKeyReused,
    Invalid,
    LedgerBusy,
    LedgerFrozen,
    NotFound,
    NotOfferedYet,
    RateLimited,
    ScopeFrozen,
    ServiceBusy,
    TooManyAtOnce,
    Unauthenticated,
)
from core.db.model_reads import ApprovalState
from core.db.reads import JobFilter
from core.planning.job import JobSpec
from core.service import intake, job_plans
from core.service import jobs as service
from core.service.context import Caller as Principal
from core.service.context import Context
from core.service.intake import StoredAnswer, Submission
from core.service.seen import Head
from farthing.schemas.job_plans import JobPlanView
from farthing.schemas.jobs import ArtifactView, AttemptView, EventView, JobView
from farthing.schemas.problems import Page

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=StrictRoute, responses=problems(Unauthenticated))
JobId = Annotated[str, Path(max_length=60)]
MAX_WAIT_SECONDS = 60
_KEEP_ALIVE_SECONDS = 15.0
_HOLD_SECONDS = 5.0
"""Seconds after which the streams of a revoked key end, at the latest."""
_RETRY_MILLISECONDS = 2000
_STREAM = "text/event-stream"
_PREFER_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?", re.ASCII)
_ALONE = {
    "dataset": "ds_1",
    "model": {"kind": "logistic", "target": "y"},
    "privacy": {"mu": "0.1"},
}
_TOGETHER = {
    "federation": {"datasets": ["ds_1", "ds_2", "ds_3"], "quorum": 2},
    "model": {"kind": "logistic", "target": "y"},
    "optimizer": {"kind": "noisy_gd"},
    "privacy": {"epsilon": "0.5"},
    "inference": {"intervals": False},
}
_EXAMPLES: dict[str, Example] = {
    "one dataset": {"summary": "A model of one dataset, with private intervals", "value": _ALONE},
    "federated": {"summary": "One model of three datasets, each of which answers for itself", "value": _TOGETHER},
}
SUBMIT_REFUSALS = problems(
    IdempotencyKeyMissing,
    IdempotencyKeyReused,
    IdempotencyKeyInFlight,
    Forbidden,
    NotFound,
    Conflict,
    Invalid,
    NotOfferedYet,
    AdjacencyMismatch,
    BudgetExhausted,
    DrawsExhausted,
    BudgetReserved,
    ScopeFrozen,
    RateLimited,
    LedgerFrozen,
    LedgerBusy,
    DatabaseAway,
    GpuUnavailable,
)


async def respond(
    request: Request, caller: Principal, spec: JobSpec, key: str, route: str, clone_of: str | None = None
) -> Response:
    """Hand a job in, and answer once it is stored, or refused."""
    answer = await accept(request, caller, spec, key, route, clone_of)
    headers = {"Location": f"/v1/jobs/{answer.body['id']}", "Retry-After": "1"}
    if answer.replayed:
        headers["Idempotency-Replayed"] = "true"
    return JSONResponse(answer.body, status_code=intake.ACCEPTED, headers=headers)


async def accept(
    request: Request, caller: Principal, spec: JobSpec, key: str, route: str, clone_of: str | None = None
) -> StoredAnswer:
    """Hand a job in with all others that wait; return the stored answer.

    Raises:
        Refusal: the job is not accepted, and nothing was reserved.
    """
    state = request.app.state
    asked: Submission | StoredAnswer | None = intake.known(caller, spec, key, route)
    if asked is None:
        async with state.limits.planning(request):
            asked = await to_thread.run_sync(intake.planned, state.context, caller, spec, key, route)
    if isinstance(asked, Submission):
        submission = replace(asked, line=state.audit_log.line(request, intake.ACCEPTED), clone_of=clone_of)
        stored: StoredAnswer = await state.intake.ask(submission)
        # The witness hears of the job before its answer leaves; the next jobs are stored meanwhile.
        answer: StoredAnswer = await state.witness.ask(stored) if stored.made else stored
    else:
        answer = asked
    # A new job's line is stored with it; a replay leaves one of its own.
    request.state.audited = answer.made is not None
    return answer


@router.post("", status_code=status.HTTP_202_ACCEPTED, response_model=JobView, responses=SUBMIT_REFUSALS)
@costs(Cost(SUBMITTERS, body_bytes=None, values=FEW_VALUES))
async def submit_job(
    spec: Annotated[JobSpec, Body(openapi_examples=_EXAMPLES)], key: IdempotencyKey, caller: Caller, request: Request
) -> Response:
    """Queue a training job and reserve the most it may cost.

    The price follows from the settings and the scope's public facts; no record is read. Sending the same key and
    body again returns the same job.
    """
    return await respond(request, caller, spec, key, service.ROUTE)


@router.get("")
@costs(READ)
def list_jobs(
    caller: Caller,
    db: Db,
    *,
    state: Annotated[
        Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled", "expired"] | None, Query()
    ] = None,
    dataset: Annotated[str | None, Query(max_length=60)] = None,
    optimizer: Annotated[str | None, Query(max_length=60)] = None,
    federation: Annotated[str | None, Query(max_length=60, description="a federated job, for its sites")] = None,
    label: LabelFilter = None,
    approval: Annotated[ApprovalState | None, Query(description="of what the job released")] = None,
    after: After = None,
    limit: Limit = 20,
) -> Page[JobView]:
    """List jobs, newest first; those of a federated job's sites by `dataset` or `federation` only."""
    wanted = JobFilter(state, dataset, optimizer, federation, pair_of(label), approval)
    return page(service.page(db, caller, wanted, after, capped(limit) + 1), capped(limit))


@router.get("/{job_id}", response_model=JobView, responses=problems(NotFound))
@costs(Cost(ANYBODY, waits=lambda headers: _wait_of(headers.get("prefer")) > 0))
async def get_job(
    job_id: JobId,
    caller: Caller,
    request: Request,
    prefer: Annotated[str | None, Header(description="`wait=30` answers once the job has ended, or after 30 s")] = None,
) -> Response:
    """Show a job; with `Prefer: wait=30`, wait for its end."""
    state = request.app.state
    asks: Batcher[tuple[Principal, str], JobView] = state.jobs
    async with state.limits.short(request):
        view = await asks.ask((caller, job_id))
    headers: dict[str, str] = {}
    seconds = _wait_of(prefer)
    if seconds >= 0:
        headers["Preference-Applied"] = f"wait={seconds}"
    if seconds > 0 and await _ended(state.watcher, job_id, seconds, partial(state.limits.holds, request)):
        async with state.limits.short(request):
            view = await asks.ask((caller, job_id))
    if view.finished_at is None:
        headers["Retry-After"] = "1"
    return Response(view.model_dump_json(), media_type="application/json", headers=headers)  # is checked already


def _wait_of(prefer: str | None) -> int:
    """Return for how many seconds a client wants its answer to wait; -1 where it does not say."""
    asked = _PREFER_WAIT.search(prefer or "")
    return -1 if asked is None else min(int(asked[1]), MAX_WAIT_SECONDS)


async def _ended(watcher: Watcher, job_id: str, seconds: float, holds: Callable[[], Awaitable[bool]]) -> bool:
    """Wait until a job has ended as far as it is to be seen; say whether anything changed meanwhile.

    Raises:
        Unauthenticated: the key that `holds` asks about was good when the wait began, and is no more.
    """
    until = time.monotonic() + seconds
    async with watcher.following(job_id) as feed:
        first = feed.head
        while feed.head is not None and not feed.head.ended and not watcher.closing:
            left = until - time.monotonic()
            if left <= 0:
                break
            await feed.wait(min(left, _HOLD_SECONDS))
            if not await holds():
                raise Unauthenticated("The key of this request has ended, or its principal was disabled, meanwhile.")
        return feed.head != first or (feed.head is not None and feed.head.ended)


@router.post("/{job_id}/cancel", responses=problems(NotFound, Forbidden, LedgerFrozen, LedgerBusy, DatabaseAway))
@costs(CHANGE)
def cancel_job(job_id: JobId, caller: Caller, db: Db) -> JobView:
    """Cancel a job; the unspent part of its reservation is given back. An ended job is returned as it is."""
    return service.cancel(db, caller, job_id)


@router.post("/{job_id}/clone", status_code=status.HTTP_202_ACCEPTED, response_model=JobView, responses=SUBMIT_REFUSALS)
@costs(Cost(SUBMITTERS))
async def clone_job(job_id: JobId, key: IdempotencyKey, caller: Caller, db: Db, request: Request) -> Response:
    """Submit the same job again: a new job with a new charge."""
    spec = await to_thread.run_sync(service.spec_of, db, caller, job_id)
    return await respond(request, caller, spec, key, f"{service.ROUTE}/{job_id}/clone", job_id)


@router.get(
    "/{job_id}/events",
    response_model=Page[EventView],
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
        **problems(NotFound),
    },
)
@costs(Cost(ANYBODY, waits=lambda headers: _STREAM in headers.get("accept", "")))
async def list_events(
    job_id: JobId,
    caller: Caller,
    db: Db,
    request: Request,
    accept: Annotated[str, Header()] = "application/json",
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=40)] = None,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="`next` of the last page")] = 0,
    limit: Limit = 100,
) -> Response:
    """Show a job's history as pages, or follow it as `text/event-stream` until it ends."""
    if _STREAM not in accept:
        most = capped(limit)
        found = await to_thread.run_sync(service.events, db, caller, job_id, after, most + 1)
        return Response(page(found, most, "seq").model_dump_json(), media_type="application/json")
    state = request.app.state
    async with state.limits.short(request):
        if not await state.existing.ask((caller, job_id)):
            raise NotFound("There is no such job.")
    follower = _Follower(db, caller, job_id, partial(state.limits.holds, request), partial(state.limits.short, request))
    lines = follower.lines(state.watcher, _resume_after(last_event_id, after))
    return StreamingResponse(lines, media_type=_STREAM, headers={"X-Accel-Buffering": "no"})


def _resume_after(last_event_id: str | None, after: int) -> int | None:
    """Return the number to go on after, or None where the client's place means nothing here."""
    if last_event_id is None:
        return after
    return int(last_event_id) if re.fullmatch(r"\d{1,9}", last_event_id, re.ASCII) else None


@dataclass
class _Follower:
    """A client that follows a job's history as server-sent events."""

    db: Context
    caller: Principal
    job_id: str
    holds: Callable[[], Awaitable[bool]]
    """Whether its key is still good."""
    short: Callable[[], AbstractAsyncContextManager[None]]
    """Holds a place for what is read for this client alone."""

    async def lines(self, watcher: Watcher, place: int | None) -> AsyncIterator[str]:
        """Yield the history after `place`, then what happens, the terminal line last."""
        try:
            async for line in self._lines(watcher, place):
                yield line
        except (TooManyAtOnce, ServiceBusy):  # of places for what is read; the answer has begun
            yield f"retry: {_RETRY_MILLISECONDS}\n\n"

    async def _lines(self, watcher: Watcher, place: int | None) -> AsyncIterator[str]:
        ends_at = time.monotonic() + self.db.settings.stream_seconds
        async with watcher.following(self.job_id, lines=True) as feed:
            # No head after the wait: the process is about to end, and the loop below sends `retry` at once.
            head = feed.head or Head("queued", 0)
            if place is None or place > head.seq:
                async with self.short():
                    view = await to_thread.run_sync(service.get, self.db, self.caller, self.job_id)
                yield f"id: {head.seq}\nevent: snapshot\ndata: {view.model_dump_json()}\n\n"
                place = head.seq
            said_at = checked_at = time.monotonic()
            while True:
                for line in feed.after(place):
                    yield await self._told(line)
                    place, said_at = line.seq, time.monotonic()
                if feed.head is not None and feed.head.ended and place >= feed.head.seq:
                    return
                if watcher.closing or time.monotonic() > ends_at:
                    yield f"retry: {_RETRY_MILLISECONDS}\n\n"  # whoever goes on, goes on after the last id
                    return
                await feed.wait(_HOLD_SECONDS)
                if time.monotonic() - checked_at >= _HOLD_SECONDS:
                    if not await self.holds():
                        return  # the next request with this key says why
                    checked_at = time.monotonic()
                if time.monotonic() - said_at >= _KEEP_ALIVE_SECONDS:
                    yield ": still here\n\n"
                    said_at = time.monotonic()

    async def _told(self, line: EventView) -> str:
        """Return a line for this client: whether it may see the job's model, nobody else's sight says."""
        # The feed is shared, and has its lines as those who may see everything read them.
        if "model" in line.data:
            async with self.short():
                own = await to_thread.run_sync(service.events, self.db, self.caller, self.job_id, line.seq - 1, 1)
            line = own[0] if own else line.model_copy(update={"data": {}})
        data = json.dumps({"kind": line.kind, "created_at": line.created_at, **line.data})
        return f"id: {line.seq}\nevent: {line.kind}\ndata: {data}\n\n"


@router.get("/{job_id}/plan", responses=problems(NotFound, Conflict))
@costs(READ)
def get_plan(job_id: JobId, caller: Caller, db: Db) -> JobPlanView:
    """Show what each chunk of a job draws and costs: fixed when it was submitted."""
    return job_plans.get(db, caller, job_id)


@router.get("/{job_id}/attempts", responses=problems(NotFound))
@costs(READ)
def list_attempts(job_id: JobId, caller: Caller, db: Db) -> Page[AttemptView]:
    """List a job's attempts."""
    found = service.attempts(db, caller, job_id)
    return page(found, len(found), "number")


@router.get("/{job_id}/artifacts", responses=problems(NotFound))
@costs(READ)
def list_artifacts(job_id: JobId, caller: Caller, db: Db) -> Page[ArtifactView]:
    """List what a job left behind."""
    found = service.artifacts(db, caller, job_id)
    return page(found, len(found), "name")


@router.get(
    "/{job_id}/artifacts/{name}",
    status_code=status.HTTP_307_TEMPORARY_REDIRECT,
    response_class=Response,
    responses=problems(NotFound),
)
@costs(READ)
def get_artifact(job_id: JobId, name: Annotated[str, Path(max_length=60)], caller: Caller, db: Db) -> Response:
    """Go to an artifact."""
    for artifact in service.artifacts(db, caller, job_id):
        if artifact.name == name:
            return Response(status_code=status.HTTP_307_TEMPORARY_REDIRECT, headers={"Location": artifact.href})
    raise NotFound("There is no such artifact.")
