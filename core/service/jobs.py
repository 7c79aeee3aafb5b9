"""Use cases of jobs: watch one, cancel it, read what it gave. `core.service.intake` takes new ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import Conflict, Forbidden, NotFound
from core.db import lists
from core.db import reads as queries
from core.db.reads import JobFilter
from core.db.sorting import NEWEST, Order
from core.db.tables import Attempt, Job, JobEvent, Scope
from core.jobs import jobs as rows
from core.jobs import mocks
from core.planning.job import JobSpec, present_names
from core.service import budgets, guarantees, mock_jobs, presenters, witnessing
from core.service.context import Caller, Context
from core.service.failure_messages import failure_code
from core.service.scopes import viewer
from core.service.seen import Head, SeenJob
from core.service.views import rfc3339
from farthing.schemas.jobs import ArtifactView, AttemptView, EventView, JobView

ROUTE = "POST /v1/jobs"
MOST_LINES = 1000
"""Of one job's history, read at a time."""


def spec_of(context: Context, caller: Caller, job_id: str) -> JobSpec:
    """Return a job's filled settings, with which it can be submitted again: a new job with a new charge.

    Raises:
        NotFound: the job does not exist for the caller.
    """
    with context.database.read() as session:
        return JobSpec.model_validate(present_names(find(session, caller, job_id).spec))


def find(session: Session, caller: Caller, job_id: str) -> Job:
    """Return a job that exists for the caller.

    Raises:
        NotFound: it does not.
        Conflict: it is a mock job, which has no row among jobs.
    """
    if mocks.is_mock(job_id):
        raise Conflict("A mock job has no charge, plan, certificate or clone. Submit its settings as a job for those.")
    found = queries.job(session, viewer(caller), job_id)
    if found is None:
        raise _missing()
    return found


def get(context: Context, caller: Caller, job_id: str) -> JobView:
    """Return a job as it is to be seen now.

    Raises:
        NotFound: it does not exist for the caller.
    """
    (found,) = get_all(context, [(caller, job_id)])
    if isinstance(found, NotFound):
        raise found
    return found


def get_all(context: Context, wanted: Sequence[tuple[Caller, str]]) -> list[JobView | NotFound]:
    """Return, for each caller, a job as it is to be seen now, or that it does not exist: all of one snapshot."""
    with context.database.read() as session:
        found = queries.seen_jobs(session, [(viewer(caller), job_id) for caller, job_id in wanted])
        drawn = mock_jobs.views(session, context, [(viewer(caller), job_id) for caller, job_id in wanted])
        shown = presenters.views(session, context, [(who, job) for (who, _), job in found.items()])
        views = dict(zip(found, shown, strict=True)) | drawn
    return [views.get((viewer(caller), job_id)) or _missing() for caller, job_id in wanted]


def _missing() -> NotFound:
    return NotFound("There is no such job.")


def page(
    context: Context, caller: Caller, wanted: JobFilter, after: str | None, limit: int, order: Order = NEWEST
) -> list[JobView]:
    """Return up to `limit` jobs that exist for the caller."""
    with context.database.read() as session:
        until = queries.grid_time(session, context.settings.visible_grid_seconds)
        found = lists.jobs(session, viewer(caller), wanted, until, after, limit, order)
        return presenters.views(session, context, [(viewer(caller), job) for job in found])


def cancel(context: Context, caller: Caller, job_id: str) -> JobView:
    """Cancel a job: a queued one at once, a running one soon, an ended one not at all. Its spending stays spent.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is neither the caller's nor on the caller's data. The owner of one site's data in a federated job
            may cancel that site's part; the job's quorum then decides.
    """
    if mocks.is_mock(job_id):
        return mock_jobs.cancel(context, caller, job_id)

    def work(session: Session) -> JobView:
        job = find(session, caller, job_id)
        owners = {job.owner_id} | (set() if job.is_federated else {session.get_one(Scope, job.scope_id).owner_id})
        if caller.id not in owners and caller.role != "admin":
            raise Forbidden("Only who submitted this job, its data's owner or an admin may cancel it.")
        return presenters.views(session, context, [(viewer(caller), rows.cancel(session, job_id))])[0]

    view = context.database.transaction(work)
    # A cancelled part may end its federated job, so the scopes of all its sites may have moved on.
    witnessing.keep(context, view.federation.job if view.federation else job_id)
    return view


def events(context: Context, caller: Caller, job_id: str, after: int, limit: int) -> list[EventView]:
    """Return up to `limit` lines of a job's history above `after` that are to be seen by now.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        if mocks.is_mock(job_id):
            return mock_jobs.events(session, context, caller, job_id)[after:][:limit]
        job = find(session, caller, job_id)
        until = queries.grid_time(session, context.settings.visible_grid_seconds)
        before = queries.first_hidden(session, [job.id], until).get(job.id)
        model = queries.models_of(session, [job.id]).get(job.id)
        shown = presenters.visible(session, viewer(caller), job, model) is not None
        grid = context.settings.visible_grid_seconds
        return [
            _event(line, model_shown=shown, grid_seconds=grid)
            for line in queries.history(session, job.id, after, before, limit)
        ]


def _event(line: JobEvent, *, model_shown: bool, grid_seconds: float) -> EventView:
    data = {name: value for name, value in line.data.items() if model_shown or name != "model"}
    if "code" in data:
        data["code"] = failure_code(data["code"])
    # Exact times of progress and ends would tell how long the work on records took.
    at = queries.on_grid(line.created_at, grid_seconds) if line.kind in queries.ON_THE_GRID else line.created_at
    return EventView(seq=line.seq, kind=line.kind, data=data, created_at=rfc3339(at))


def look(context: Context, wanted: Mapping[str, int | None]) -> dict[str, SeenJob]:
    """Return the visible states of jobs; for the watcher, which has checked its readers' access.

    Args:
        context: the service.
        wanted: by job, the number after which the lines of its history are wanted; None: none of them are.
    """
    grid = context.settings.visible_grid_seconds
    with context.database.read() as session:
        until = queries.grid_time(session, grid)
        last = queries.last_lines(session, wanted)
        hidden = queries.first_hidden(session, wanted, until)
        # What is hidden is at most a grid step old; a job with such lines counts as running until it shows them.
        heads = {
            job_id: Head("running", hidden[job_id] - 1) if job_id in hidden else Head(state, seq, approval)
            for job_id, (state, seq, approval) in last.items()
        }
        lines = {
            job_id: queries.history(session, job_id, after, hidden.get(job_id), MOST_LINES)
            for job_id, after in wanted.items()
            if after is not None and job_id in heads and after < heads[job_id].seq
        }
        return mock_jobs.look(session, context, wanted) | {
            job_id: SeenJob(head, [_event(line, model_shown=True, grid_seconds=grid) for line in lines.get(job_id, ())])
            for job_id, head in heads.items()
        }


def exist_all(context: Context, wanted: Sequence[tuple[Caller, str]]) -> list[bool]:
    """Return, for each caller, whether a job exists for them: all of one snapshot."""
    with context.database.read() as session:
        asked = [(viewer(caller), job_id) for caller, job_id in wanted]
        found = queries.seen_jobs(session, asked).keys() | mock_jobs.seen(session, asked).keys()
    return [(viewer(caller), job_id) in found for caller, job_id in wanted]


def visible(context: Context, caller: Caller, job_ids: Sequence[str]) -> set[str]:
    """Return those of some jobs that exist for the caller."""
    shown = select(Job.id).where(Job.id.in_(set(job_ids)), queries.sees_job(viewer(caller)))
    with context.database.read() as session:
        return set(session.execute(shown).scalars())


def has_ended(context: Context, caller: Caller, job_id: str) -> bool:
    """Say whether the end of a job is to be seen by now.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        job = find(session, caller, job_id)
        until = queries.grid_time(session, context.settings.visible_grid_seconds)
        return job.finished_at is not None and job.id not in queries.first_hidden(session, [job.id], until)


def attempts(context: Context, caller: Caller, job_id: str) -> list[AttemptView]:
    """Return a job's attempts.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        if mocks.is_mock(job_id):
            return mock_jobs.attempts(session, context, caller, job_id)
        job = find(session, caller, job_id)
        grid = context.settings.visible_grid_seconds
        until = queries.grid_time(session, grid)
        return [
            AttemptView(
                number=attempt.number,
                started_at=rfc3339(attempt.started_at),
                opened_at=rfc3339(attempt.opened_at),
                ended_at=rfc3339(_seen_at(attempt.ended_at, until, grid)),
                outcome=_outcome(attempt) if _seen_at(attempt.ended_at, until, grid) is not None else None,
            )
            for attempt in queries.attempts(session, job.id)
        ]


def _outcome(attempt: Attempt) -> str | None:
    return None if attempt.outcome is None else failure_code(attempt.outcome)


def _seen_at(at: float | None, until: float, grid_seconds: float) -> float | None:
    return queries.on_grid(at, grid_seconds) if at is not None and at <= until else None


def artifacts(context: Context, caller: Caller, job_id: str) -> list[ArtifactView]:
    """Return what a job left behind that the caller may have.

    Raises:
        NotFound: it does not exist for the caller.
    """
    view = get(context, caller, job_id)
    left = [ArtifactView(name="report.json", media_type="application/json", href=f"/v1/jobs/{job_id}/report")]
    if view.result is not None:
        base = f"/v1/models/{view.result.model}/export?format="
        left += [
            ArtifactView(name="model.json", media_type="application/json", href=f"{base}json"),
            ArtifactView(name="model.safetensors", media_type="application/octet-stream", href=f"{base}safetensors"),
        ]
        if view.model["kind"] == "network":
            left.append(ArtifactView(name="model.onnx", media_type="application/octet-stream", href=f"{base}onnx"))
    return left


def report(context: Context, caller: Caller, job_id: str) -> dict[str, Any]:
    """Return a job's privacy report: its reservation and spending, their promise, and the head of the ledger.

    A federated job's has one for each site that the caller may see: no promise is made to several scopes together.

    Raises:
        NotFound: it does not exist for the caller.
    """
    view = get(context, caller, job_id)
    if view.mock:
        return mock_jobs.report(context, caller, view)
    if view.federation is None or view.federation.sites is None:
        return _report(context, caller, view)
    told = [get(context, caller, client.job) for client in view.federation.sites if client.job is not None]
    return {
        "object": "report",
        "job": view.model_dump(mode="json"),
        "sites": [_report(context, caller, client) for client in told],
    }


def _report(context: Context, caller: Caller, view: JobView) -> dict[str, Any]:
    """Return the report of a job, or of a client, that pays from one scope."""
    with context.database.read() as session:
        job = find(session, caller, view.id)
        scope = session.get_one(Scope, job.scope_id)
        seen = queries.scope(session, viewer(caller), scope.id) is not None
        return {
            "object": "report",
            "job": view.model_dump(mode="json"),
            "scope": scope.id,
            "units": scope.units,
            "unit": scope.unit,
            "privacy": guarantees.guarantee_of(session, job).model_dump(mode="json"),
            # Where the ledger stands is for those who may look at it now, and access may have been taken away.
            "ledger": {"entries": scope.seq, "head": scope.head} if seen else None,
            "unwitnessed": [gap.model_dump(mode="json") for gap in budgets.gap_views(scope)],
        }
