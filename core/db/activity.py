"""Activity: the lines of the audit log that concern one dataset."""

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from core.base.identifiers import LETTERS
from core.db.reads import is_removal
from core.db.service_tables import Audit
from core.db.tables import Dataset, Job, Model, Principal


def lines(
    session: Session, dataset: Dataset, after: str | None, limit: int, *, with_removals: bool = True
) -> Sequence[Audit]:
    """Return up to `limit` lines about a dataset, its scope, its jobs and their models, newest first."""
    jobs = _jobs_on(dataset.id)
    about = [
        named("datasets/ds_") == dataset.id,
        named("jobs/job_").in_(jobs),
        named("models/mdl_").in_(select(Model.id).where(Model.job_id.in_(jobs))),
    ]
    if dataset.scope_id is not None:
        about.append(named("scopes/sc_") == dataset.scope_id)
    statement = select(Audit).where(or_(*about))
    if not with_removals:
        statement = statement.where(~is_removal())
    if after:
        statement = statement.where(Audit.id < after)
    return session.execute(statement.order_by(Audit.id.desc()).limit(limit)).scalars().all()


def named(start: str) -> ColumnElement[str | None]:
    """Return the identifier that a target has after its room; all identifiers of a kind have one length."""
    room, prefix = start.split("/")
    return func.substr(Audit.target, len(room) + 2, len(prefix) + LETTERS)


def _jobs_on(dataset_id: str) -> ColumnElement[str]:
    """Select the jobs that read a dataset: its own, and federated jobs of which one site reads it."""
    own = select(Job.id).where(Job.dataset_id == dataset_id)
    joined = select(Job.federation_id).where(Job.dataset_id == dataset_id, Job.place.is_not(None))
    return own.union(joined).scalar_subquery()


def jobs(session: Session, job_ids: Iterable[str], model_ids: Iterable[str]) -> tuple[dict[str, Job], dict[str, str]]:
    """Return jobs by their id, with those of some models, and the job of each of these models."""
    of_models = session.execute(select(Model.id, Model.job_id).where(Model.id.in_(list(model_ids)))).all()
    made_by = {row.id: row.job_id for row in of_models}
    wanted = {*job_ids, *made_by.values()}
    return {job.id: job for job in session.execute(select(Job).where(Job.id.in_(wanted))).scalars()}, made_by


def people(session: Session, ids: Iterable[str]) -> dict[str, Principal]:
    """Return principals by their id."""
    found = session.execute(select(Principal).where(Principal.id.in_(list(ids)))).scalars()
    return {one.id: one for one in found}
