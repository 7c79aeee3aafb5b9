"""Activity: everything that was done with a dataset, with names and with the ids of the jobs and models made."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from sqlalchemy.orm import Session

from core.base.errors import Forbidden
from core.db import activity
from core.db import reads as queries
from core.db.service_tables import Audit
from core.db.tables import Job, Principal
from core.service.context import Caller, Context
from core.service.presenters import visible
from core.service.scopes import viewer
from core.service.views import rfc3339
from core.service.visibility import find_dataset
from farthing.schemas.activity import ActivityView

_ID: Final = re.compile(r"\b(?:job|mdl|pr)_[0-9a-z]+")
_REFUSED, _FAILED = 400, 500


def page(context: Context, caller: Caller, dataset_id: str, after: str | None, limit: int) -> list[ActivityView]:
    """Return up to `limit` requests that concern a dataset, newest first: for its owner, auditors and admins.

    A refused submission names no job, so it is in its sender's part of the audit log alone.

    Raises:
        NotFound: the dataset does not exist for the caller.
        Forbidden: the caller may use the dataset, and does not own it.
    """
    with context.database.read() as session:
        dataset = find_dataset(session, caller, dataset_id)
        if dataset.owner_id != caller.id and caller.role not in {"auditor", "admin"}:
            raise Forbidden("Only the owner of this dataset, an auditor or an admin may see its activity.")
        is_own = dataset.owner_id == caller.id
        found = activity.lines(session, dataset, after, limit, with_removals=is_own)
        return _views(session, context, caller, found)


def _views(session: Session, context: Context, caller: Caller, lines: Sequence[Audit]) -> list[ActivityView]:
    """Return lines as views; names and models are looked up once for all of them."""
    ids = {line.id: _ids(line.target) for line in lines}
    named = {one for found in ids.values() for one in found.values()}
    jobs, made_by = activity.jobs(session, _those(named, "job_"), _those(named, "mdl_"))
    models = _models(session, context, caller, jobs)
    senders = {line.principal_id for line in lines if line.principal_id is not None}
    people = activity.people(session, senders | set(_those(named, "pr_")))

    def view(line: Audit) -> ActivityView:
        about = ids[line.id]
        model = about.get("mdl")
        job = made_by.get(model) if model else about.get("job")
        sender, subject = people.get(line.principal_id or ""), people.get(about.get("pr", ""))
        return _view(line, sender, subject, job if job in jobs else None, model or models.get(job or ""))

    return [view(line) for line in lines]


def _ids(target: str | None) -> dict[str, str]:
    """Return the identifiers in a target by their prefix."""
    return {one.partition("_")[0]: one for one in _ID.findall(target or "")}


def _those(ids: Iterable[str], prefix: str) -> list[str]:
    return [one for one in ids if one.startswith(prefix)]


def _models(session: Session, context: Context, caller: Caller, jobs: dict[str, Job]) -> dict[str, str]:
    """Return the model of each job, by the job's id, where a look at the job would show it to the caller."""
    ended = [job.id for job in jobs.values() if job.state == "succeeded"]
    until = queries.grid_time(session, context.settings.visible_grid_seconds)
    hidden = queries.first_hidden(session, ended, until)
    # A model that shows before the time grid would tell when exactly its job ended.
    models = queries.models_of(session, [one for one in ended if one not in hidden])
    seen = viewer(caller)
    return {
        job_id: model.id for job_id, model in models.items() if visible(session, seen, jobs[job_id], model) is not None
    }


def _view(
    line: Audit, sender: Principal | None, subject: Principal | None, job: str | None, model: str | None
) -> ActivityView:
    return ActivityView(
        id=line.id,
        principal=line.principal_id,
        name=None if sender is None else sender.name,
        role=None if sender is None else sender.role,
        action=line.action,
        target=line.target,
        outcome=outcome_of(line.status),
        status=line.status,
        code=line.code,
        job=job,
        model=model,
        subject=None if subject is None else subject.id,
        subject_name=None if subject is None else subject.name,
        request_id=line.request_id,
        created_at=rfc3339(line.created_at),
    )


def outcome_of(status: int) -> Literal["done", "refused", "failed"]:
    """Say in a word what a status means."""
    if status >= _FAILED:
        return "failed"
    return "refused" if status >= _REFUSED else "done"
