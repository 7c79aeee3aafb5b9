"""Jobs: the list, one job as it goes on, and its cancellation."""

import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Final

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from api.batcher import Batcher
from api.cost import ANYBODY, Cost, Work
from api.deps import After, Caller, Db
from api.pages import charts, words
from api.pages.rendering import fragment, render
from api.pages.routes import PageRoute, page, see_other
from api.pages.sorting import Sort, sorting
from api.routes import jobs as api
from core.base.errors import NotFound, ServiceBusy, TooManyAtOnce
from core.db.reads import JobFilter
from core.db.sorting import JOB_COLUMNS
from core.service import datasets, job_plans, mock_jobs, naming
from core.service import jobs as service
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.jobs import JobView

router = APIRouter(route_class=PageRoute)
JobId = Annotated[str, Path(max_length=60)]
A_PAGE: Final = 30
MOST_EVENTS: Final = 50
MOST_MOCK: Final = 10
"""Mock jobs at the foot of the list."""
_HOLD_SECONDS: Final = 10.0
_KEEP_ALIVE_SECONDS: Final = 15.0
_ASKED: Final = ("dataset", "model", "models", "optimizer", "privacy", "inference", "resources", "labels")


@page(router, "/jobs", api=api.list_jobs)
def list_jobs(
    request: Request,
    caller: Caller,
    db: Db,
    dataset: Annotated[str | None, Query(max_length=60)] = None,
    sort: Sort = "",
    after: After = None,
) -> Response:
    """Show jobs, newest first unless sorted otherwise; of one dataset where that is asked for."""
    order = sorting("/jobs", {"dataset": dataset} if dataset else {}, sort, JOB_COLUMNS)
    found = service.page(db, caller, JobFilter(dataset=dataset), after, A_PAGE + 1, order.order)
    shown = found[:A_PAGE]
    newest = [] if dataset or after else mock_jobs.page(db, caller, None, MOST_MOCK)
    listed = [*shown, *newest]
    facts = {
        "jobs": shown,
        "mocks": newest,
        "names": naming.names(db, caller, [one.dataset for one in listed] + [one.owner for one in listed]),
        "dataset": datasets.get(db, caller, dataset) if dataset else None,
        "sorting": order,
        "first": order.after() if after else None,
        "following": order.after(shown[-1].id) if len(found) > A_PAGE else None,
        "job_name": words.job_name,
        "spent_words": words.spent_words,
    }
    return render(request, "jobs.html", facts, at="jobs")


@page(router, "/jobs/{job_id}", api=api.get_job)
def show_job(
    job_id: JobId,
    request: Request,
    caller: Caller,
    db: Db,
    sent: Annotated[
        str | None, Query(max_length=60, description="the dataset of the form that was sent, which the browser forgets")
    ] = None,
) -> Response:
    """Show a job; where it has not ended, the page follows it."""
    job = service.get(db, caller, job_id)
    return render(request, "job.html", _facts(db, caller, job, oob=False) | {"sent": sent}, at="jobs")


def _facts(context: Context, caller: Principal, job: JobView, *, oob: bool) -> dict[str, Any]:
    """Return what the page of a job shows."""
    costs = None if job.mock else words.costs(job)
    events = service.events(context, caller, job.id, 0, 10_000)
    sites = (job.federation.sites if job.federation else None) or []
    plan = job_plans.get(context, caller, job.id) if job.dataset and not job.mock else None
    asked = {name: value for name, value in job.model_dump(mode="json").items() if name in _ASKED and value}
    return {
        "job": job,
        "oob": oob,
        "names": naming.names(context, caller, [job.dataset, job.owner, *(one.dataset for one in sites)]),
        "costs": costs,
        "paid": costs and charts.paid_bar(costs.spent, costs.price, _held(job, costs), job.progress.steps),
        "events": list(reversed(events))[:MOST_EVENTS],
        "sites": sites,
        "plan": plan,
        "draws": words.draws,
        "live": not words.is_settled(job),
        "may_cancel": job.finished_at is None and (job.owner == caller.id or caller.role in {"owner", "admin"}),
        "request_json": json.dumps(asked, indent=1, ensure_ascii=False),
        "job_name": words.job_name,
        "what": words.what,
        "event_words": words.event_words,
    }


def _held(job: JobView, costs: words.JobCosts) -> str:
    """Return what is held for lost chunks: nothing once a job has ended."""
    return "0" if job.finished_at else costs.held


@page(router, "/jobs/{job_id}/cancel", api=api.cancel_job, method="POST")
def cancel_job(job_id: JobId, caller: Caller, db: Db) -> Response:
    """Cancel a job."""
    service.cancel(db, caller, job_id)
    return see_other(f"/jobs/{job_id}")


@page(router, "/jobs/{job_id}/live", cost=Cost(ANYBODY, Work.STREAM))
async def follow_job(job_id: JobId, request: Request, caller: Caller, db: Db) -> Response:
    """Send the changing part of a job's page at each change, until the job has ended and nobody has to approve it."""
    state = request.app.state
    async with state.limits.short(request):
        if not await state.existing.ask((caller, job_id)):
            raise NotFound("There is no such job.")
    # Else nginx would collect the stream, and send it late.
    headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
    return StreamingResponse(_changes(request, db, caller, job_id), media_type="text/event-stream", headers=headers)


async def _changes(request: Request, context: Context, caller: Principal, job_id: str) -> AsyncIterator[str]:
    """Yield the part once for each change; the reader of all waiting clients is one (`api.watch`)."""
    state = request.app.state
    asks: Batcher[tuple[Principal, str], JobView] = state.jobs
    ends_at = time.monotonic() + context.settings.stream_seconds
    said_at = time.monotonic()
    shown = None
    async with state.watcher.following(job_id, page=True) as feed:
        while not state.watcher.closing and time.monotonic() < ends_at:
            # Taken once: the feed may change while the part is drawn, and `shown` must be the head before.
            head = feed.head
            if head != shown:
                try:
                    async with state.limits.short(request):
                        job = await asks.ask((caller, job_id))
                        draw = partial(_part, request, context, caller, job)
                        yield _message("job", await to_thread.run_sync(draw))
                except (TooManyAtOnce, ServiceBusy, NotFound):  # the answer has begun: the browser comes again
                    return
                shown, said_at = head, time.monotonic()
                if words.is_settled(job):
                    yield _message("end", "")
                    return
            await feed.wait(_HOLD_SECONDS)
            if not await state.limits.holds(request):
                return
            if time.monotonic() - said_at >= _KEEP_ALIVE_SECONDS:
                yield ": still here\n\n"
                said_at = time.monotonic()


def _part(request: Request, context: Context, caller: Principal, job: JobView) -> str:
    return fragment(request, "job_live.html", _facts(context, caller, job, oob=True))


def _message(event: str, text: str) -> str:
    # A line feed ends a field of an event stream, so each line is a field.
    lines = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {event}\n{lines}\n"
