"""Status: the state of the service in one view, for admins and auditors."""

import platform
import shutil
from collections import Counter
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.base.errors import NotReady
from core.base.version import code_version
from core.db import clock
from core.db import reads as queries
from core.db.tables import Attempt, Job, Principal
from core.jobs import workers as worker_rows
from core.operations.figures import Figures
from core.service import health, presenters
from core.service.context import Caller, Context
from core.service.failure_messages import failure_code
from core.service.scopes import viewer
from core.service.views import rfc3339
from core.service.workers import LEASES, MOST
from farthing.schemas.service import (
    FailureCountView,
    LeaseView,
    LimitsView,
    PartView,
    QueueView,
    ServiceView,
    ServingView,
    VersionsView,
    WaitingView,
)

MOST_WAITING: Final = 20
MOST_LEASES: Final = 100
DAY_SECONDS: Final = 86_400.0
API: Final = "v1"
_HELD: Final = ("running", "cancelling")


def get(context: Context, caller: Caller, agreed: dict[str, int] | None = None) -> ServiceView:
    """Return the state of the service.

    Args:
        context: the service.
        caller: an admin or an auditor, who see all jobs.
        agreed: entries that the witness was seen to know before, by scope, see `witnessing.lag`.

    Raises:
        Forbidden: the caller is neither an admin nor an auditor.
    """
    caller.require("admin", "auditor")
    try:
        checked, trouble = health.check(context), None
    except NotReady as refusal:
        checked, trouble = {"status": "not-ready"}, refusal.detail
    figures, behind = health.measure(context, {} if agreed is None else agreed)
    with context.database.read() as session:
        at, grid = clock.read(session), context.settings.visible_grid_seconds
        waiting, leases = _jobs(session, context, caller)
        serving = _serving(session, context, at, Counter(one.worker for one in leases))
        failures = _failures(session, at, queries.grid_time(session, grid), grid)
    return ServiceView(
        **_state(checked, trouble),
        **_ledgers(figures),
        free_disk_bytes=shutil.disk_usage(context.settings.home).free,
        witness_behind=behind,
        queues=_queues(figures, at),
        waiting=waiting,
        leases=leases,
        workers=serving,
        failures=failures,
        versions=_versions(context),
        limits=_limits(context),
    )


def _state(checked: dict[str, str], trouble: str | None) -> dict[str, Any]:
    parts = [PartView(name=name, state=state) for name, state in checked.items() if name != "status"]
    return {"status": checked["status"], "trouble": trouble, "parts": parts}


def _ledgers(figures: Figures) -> dict[str, Any]:
    return {
        "scopes": figures.scopes,
        "scopes_frozen": figures.scopes_frozen,
        "entries": figures.entries,
        "jobs": figures.jobs,
    }


def _queues(figures: Figures, at: float) -> list[QueueView]:
    oldest = figures.oldest_waiting_seconds
    return [
        QueueView(device=device, waiting=count, oldest_since=rfc3339(at - oldest[device]) if count else None)
        for device, count in figures.waiting.items()
    ]


def _jobs(session: Session, context: Context, caller: Caller) -> tuple[list[WaitingView], list[LeaseView]]:
    """Return the jobs that wait and those that are held, as a look at each of them shows it."""
    rows = [*_queued(session), *_held(session, queries.grid_time(session, context.settings.visible_grid_seconds))]
    shown = presenters.views(session, context, [(viewer(caller), job) for job in rows])
    people = _names(session, {job.owner_id for job in rows})
    attempts = _attempts(session, rows)
    waiting, leases = list[WaitingView](), list[LeaseView]()
    for job, view in zip(rows, shown, strict=True):
        named = {
            "job": job.id,
            "name": job.labels.get("name"),
            "principal": job.owner_id,
            "principal_name": people[job.owner_id],
            "device": job.device,
        }
        if view.state == "queued":
            waiting.append(WaitingView(**named, waits_for=view.waits_for, since=view.created_at))
        elif view.finished_at is None:
            attempt = attempts.get((job.id, job.attempt))
            leases.append(
                LeaseView(
                    **named,
                    worker=None if attempt is None else attempt.worker,
                    attempt=view.attempt,
                    step=view.progress.step,
                    steps=view.progress.steps,
                    started_at=view.started_at,
                    held_since=rfc3339(None if attempt is None else attempt.started_at),
                )
            )
    return waiting, leases


def _queued(session: Session) -> list[Job]:
    statement = select(Job).where(Job.state == "queued", Job.place.is_(None)).order_by(Job.created_at, Job.id)
    return list(session.execute(statement.limit(MOST_WAITING)).scalars())


def _held(session: Session, until: float) -> list[Job]:
    """Return the jobs that run; one that ended after the last point of the time grid still does."""
    hidden = (Job.finished_at > until) & Job.started_at.is_not(None)
    statement = select(Job).where(Job.state.in_(_HELD) | hidden, Job.place.is_(None))
    return list(session.execute(statement.order_by(Job.started_at, Job.id).limit(MOST_LEASES)).scalars())


def _attempts(session: Session, jobs: list[Job]) -> dict[tuple[str, int], Attempt]:
    """Return the attempts of some jobs: an attempt keeps its worker's name, also after its end."""
    rows = session.execute(select(Attempt).where(Attempt.job_id.in_([job.id for job in jobs]))).scalars()
    return {(one.job_id, one.number): one for one in rows}


def _names(session: Session, ids: set[str]) -> dict[str, str]:
    rows = session.execute(select(Principal.id, Principal.name).where(Principal.id.in_(ids)))
    return {row.id: row.name for row in rows}


def _serving(session: Session, context: Context, at: float, busy: Counter[str | None]) -> list[ServingView]:
    alive_since = at - LEASES * context.settings.lease_seconds
    return [
        ServingView(
            name=one.name,
            site=one.site,
            queues=one.queues.split(","),
            slots=one.slots,
            busy=busy[one.name],
            gpus=one.gpus,
            version=one.version,
            alive=one.seen_at >= alive_since,
            seen_at=rfc3339(one.seen_at),
        )
        for one in worker_rows.known(session, MOST)
    ]


def _failures(session: Session, at: float, until: float, grid_seconds: float) -> list[FailureCountView]:
    """Count the failures of the last day by code, without jobs that ended after the last point of the time grid."""
    recent = (Job.finished_at > at - DAY_SECONDS, Job.finished_at <= until, Job.place.is_(None))
    counted = select(Job.error_code, func.count()).where(*recent, Job.error_code.is_not(None))
    found = []
    for code, times in session.execute(counted.group_by(Job.error_code)).all():
        assert code is not None, "it is selected"
        latest = select(Job).where(*recent, Job.error_code == code).order_by(Job.finished_at.desc()).limit(1)
        job = session.execute(latest).scalar_one()
        assert job.finished_at is not None, "it ended"
        found.append(
            FailureCountView(
                code=failure_code(code),
                times=times,
                last_at=rfc3339(queries.on_grid(job.finished_at, grid_seconds)),
                last_job=job.id,
                last_name=job.labels.get("name"),
            )
        )
    return sorted(found, key=lambda one: one.last_at, reverse=True)


def _versions(context: Context) -> VersionsView:
    return VersionsView(
        version=code_version(),
        python=platform.python_version(),
        database_revision=context.database.revision(),
        api=API,
    )


def _limits(context: Context) -> LimitsView:
    return LimitsView(**{name: getattr(context.settings, name) for name in LimitsView.model_fields})
