"""Use cases of mock jobs: training jobs on rows drawn from a declaration, so that analysts may practise before paying.

They touch no scope, account or entry, and reserve nothing. Nobody but the submitter, admins and auditors sees one. A
mock job starts when a worker is free, which may be when another job ended. Its start shows on the time grid for that
reason, as all ends do.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import Forbidden, NotFound
from core.db import reads as queries
from core.db.reads import Viewer
from core.db.tables import Job, Model
from core.inference.network import read_released
from core.jobs import mocks
from core.jobs.mocks import MockJob
from core.methods.registry import source_of
from core.planning.job import Resources
from core.privacy.budget import Terms
from core.privacy.events import EVENT, compose
from core.privacy.facts import Adjacency
from core.privacy.reports import report as figures_of
from core.service import presenters
from core.service.context import Caller, Context
from core.service.failure_messages import failed_for, failure_code
from core.service.scopes import viewer
from core.service.seen import Head, SeenJob
from core.service.views import rfc3339
from farthing.schemas.jobs import AttemptView, EventView, FailureView, JobCost, JobView, ProgressView, ResultView

_HIDDEN: Final = ("running", "progress", "queued", "succeeded", "failed")
"""Lines whose time depends on workers; the first `queued` does not."""


def seen(session: Session, wanted: Sequence[tuple[Viewer, str]]) -> dict[tuple[Viewer, str], MockJob]:
    """Return those of some jobs that are mock jobs and exist for their viewers."""
    ids = {job_id for _, job_id in wanted if mocks.is_mock(job_id)}
    if not ids:
        return {}
    rows = {job.id: job for job in session.execute(select(MockJob).where(MockJob.id.in_(ids))).scalars()}
    return {(who, one): rows[one] for who, one in wanted if one in rows and _sees(who, rows[one])}


def _sees(who: Viewer, job: MockJob) -> bool:
    return who.sees_everything or who.id == job.owner_id


def find(session: Session, caller: Caller, job_id: str) -> MockJob:
    """Return a mock job that exists for the caller.

    Raises:
        NotFound: it does not.
    """
    (job,) = seen(session, [(viewer(caller), job_id)]).values() or (None,)
    if job is None:
        raise NotFound("There is no such job.")
    return job


def views(
    session: Session, context: Context, wanted: Sequence[tuple[Viewer, str]]
) -> dict[tuple[Viewer, str], JobView]:
    """Return those of some jobs that are mock jobs, as their viewers are to see them now."""
    found = seen(session, wanted)
    names = queries.principal_names(session, {job.owner_id for job in found.values()}) if found else {}
    until = queries.grid_time(session, context.settings.visible_grid_seconds) if found else 0.0
    return {one: view_of(session, context, job, names[job.owner_id], until) for one, job in found.items()}


def page(context: Context, caller: Caller, after: str | None, limit: int) -> list[JobView]:
    """Return up to `limit` mock jobs that exist for the caller, newest first."""
    who = viewer(caller)
    wanted = select(MockJob.id).order_by(MockJob.id.desc()).limit(limit)
    if not who.sees_everything:
        wanted = wanted.where(MockJob.owner_id == who.id)
    if after:
        wanted = wanted.where(MockJob.id < after)
    with context.database.read() as session:
        ids = list(session.execute(wanted).scalars())
        shown = views(session, context, [(who, one) for one in ids])
    return [shown[who, one] for one in ids]


def _visible(job: MockJob, until: float) -> list[dict[str, Any]]:
    """Return the lines of a history before the first one that is not to be seen yet."""
    lines: list[dict[str, Any]] = job.history
    hidden = (at for at, line in enumerate(lines) if at and line["kind"] in _HIDDEN and line["at"] > until)
    return lines[: next(hidden, len(lines))]


def _head(lines: Sequence[Mapping[str, Any]]) -> Head:
    return Head([line["kind"] for line in lines if line["kind"] != "progress"][-1], len(lines))


def _event(seq: int, line: Mapping[str, Any], grid_seconds: float) -> EventView:
    at = queries.on_grid(line["at"], grid_seconds) if seq > 1 and line["kind"] in _HIDDEN else line["at"]
    data = dict(line["data"])
    if "code" in data:
        data["code"] = failure_code(data["code"])
    return EventView(seq=seq, kind=line["kind"], data=data | {"mock": True}, created_at=rfc3339(at))


def events(session: Session, context: Context, caller: Caller, job_id: str) -> list[EventView]:
    """Return a mock job's visible history, each line marked as mock.

    Raises:
        NotFound: it does not exist for the caller.
    """
    grid = context.settings.visible_grid_seconds
    lines = _visible(find(session, caller, job_id), queries.grid_time(session, grid))
    return [_event(seq, line, grid) for seq, line in enumerate(lines, start=1)]


def look(session: Session, context: Context, wanted: Mapping[str, int | None]) -> dict[str, SeenJob]:
    """Return the visible states of those of some jobs that are mock jobs; as `jobs.look`."""
    ids = [job_id for job_id in wanted if mocks.is_mock(job_id)]
    if not ids:
        return {}
    grid = context.settings.visible_grid_seconds
    until = queries.grid_time(session, grid)
    found: dict[str, SeenJob] = {}
    for job in session.execute(select(MockJob).where(MockJob.id.in_(ids))).scalars():
        lines, after = _visible(job, until), wanted[job.id]
        told = [_event(seq, line, grid) for seq, line in enumerate(lines, start=1) if after is not None and seq > after]
        found[job.id] = SeenJob(_head(lines), told)
    return found


def attempts(session: Session, context: Context, caller: Caller, job_id: str) -> list[AttemptView]:
    """Return a mock job's attempts; none of them opened records.

    Raises:
        NotFound: it does not exist for the caller.
    """
    lines = events(session, context, caller, job_id)
    found: list[AttemptView] = []
    for line in lines:
        if line.kind == "running":
            start = {"number": line.data["attempt"], "started_at": line.created_at}
            found.append(AttemptView(**start, opened_at=None, ended_at=None, outcome=None))
        elif found and line.kind not in ("progress", "cancelling"):
            outcome = line.data.get("code") or line.data.get("reason") or line.kind
            found[-1] = found[-1].model_copy(update={"ended_at": line.created_at, "outcome": outcome})
    return found


def cancel(context: Context, caller: Caller, job_id: str) -> JobView:
    """Cancel a mock job: its submitter and admins may.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is neither the caller's, nor is the caller an admin.
    """

    def work(session: Session) -> JobView:
        job = find(session, caller, job_id)
        if caller.id != job.owner_id and caller.role != "admin":
            raise Forbidden("Only who submitted this job, or an admin, may cancel it.")
        mocks.cancel(session, mocks.lock(session, job_id))
        return views(session, context, [(viewer(caller), job_id)])[viewer(caller), job_id]

    return context.database.transaction(work)


def released(session: Session, caller: Caller, job_id: str, until: float) -> tuple[Model, Job]:
    """Return what a mock job released as a model and a job that are stored nowhere, and have no scope.

    Raises:
        NotFound: it does not exist for the caller, or has released nothing that is to be seen by now.
    """
    job = next(iter(seen(session, [(viewer(caller), job_id)]).values()), None)
    if job is None or _head(_visible(job, until)).state != "succeeded":
        raise NotFound("There is no such model.")
    own = {"dataset_id": job.dataset_id, "created_at": job.finished_at}
    model = Model(id=mocks.model_of(job.id), job_id=job.id, release=job.release, approval="not-needed", **own)
    return model, _transient(job)


def _transient(job: MockJob) -> Job:
    """Return a mock job for functions that read a job's settings; the ledger's find no scope in it."""
    return Job(
        id=job.id,
        owner_id=job.owner_id,
        dataset_id=job.dataset_id,
        spec=job.spec,
        optimizer=job.spec["optimizer"]["kind"],
        steps=job.steps,
        labels=job.labels,
        error_code=job.error_code,
        state=job.state,
        device="cpu",
        site="",
    )


def view_of(session: Session, context: Context, job: MockJob, owner_name: str, until: float) -> JobView:
    """Return a mock job as it is to be seen at a point of the time grid."""
    grid, spec = context.settings.visible_grid_seconds, job.spec
    lines = _visible(job, until)
    head = _head(lines)
    step = next((line["data"]["step"] for line in reversed(lines) if line["kind"] == "progress"), 0)
    step = job.steps if head.state == "succeeded" else step
    started = next((line["at"] for line in lines if line["kind"] == "running"), None)
    failed = head.state == "failed"
    waits = presenters.Waiting(session, context).words(Viewer(job.owner_id, ""), _transient(job), ())
    return JobView(
        id=job.id,
        state=head.state,
        dataset=job.dataset_id,
        scope=None,
        site=None,
        owner=job.owner_id,
        owner_name=owner_name,
        model=spec["model"],
        models=[],
        method=source_of(spec["optimizer"]["kind"]),
        optimizer=spec["optimizer"],
        privacy=spec["privacy"],
        inference=spec["inference"],
        resources=Resources.model_validate(spec["resources"]).model_dump(mode="json"),
        retry_allowance=spec["retry_allowance"],
        progress=ProgressView(step=step, steps=job.steps, left=0 if head.ended else max(0, job.steps - step)),
        cost=JobCost.model_validate(job.cost),
        attempt=sum(line["kind"] == "running" for line in lines),
        created_at=rfc3339(job.created_at),
        started_at=rfc3339(None if started is None else queries.on_grid(started, grid)),
        finished_at=rfc3339(queries.on_grid(lines[-1]["at"], grid)) if head.ended else None,
        error=FailureView(code=failure_code(job.error_code)) if failed and job.error_code else None,
        failed_for=failed_for(_transient(job)) if failed else None,
        result=ResultView(model=mocks.model_of(job.id)) if head.state == "succeeded" else None,
        approval="not-needed" if head.state == "succeeded" else None,
        labels=job.labels,
        mock=True,
        mock_rows=job.rows,
        waits_for=waits if head.state == "queued" else None,
    )


def report(context: Context, caller: Caller, view: JobView) -> dict[str, Any]:
    """Return what a job like this would promise; a mock job has no ledger, and tells nothing of any person."""
    with context.database.read() as session:
        job = find(session, caller, view.id)
        release = job.release if view.state == "succeeded" else None
        schedule = compose(Counter(EVENT.validate_python(event) for event in job.schedule))
        terms, adjacency = Terms.model_validate(job.terms), Adjacency(job.adjacency)
        expected = figures_of(schedule, terms, adjacency, declared=True)
        privacy = expected if release is None else read_released(release).privacy
        return {
            "object": "report",
            "mock": True,
            "job": view.model_dump(mode="json"),
            "scope": None,
            "units": job.rows,
            "unit": "record",
            "privacy": privacy.model_dump(mode="json"),
            "ledger": None,
            "unwitnessed": [],
        }
