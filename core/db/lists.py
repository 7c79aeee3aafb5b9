"""Pages of jobs and datasets, sorted; a cursor is the id of the last row."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.reads import JobFilter, Viewer, reads_records, sees_dataset, sees_job
from core.db.sorting import NEWEST, Order, cut, dataset_keys, job_keys
from core.db.tables import Dataset, Job, Label, Model


def datasets(
    session: Session, viewer: Viewer, after: str | None, limit: int, order: Order = NEWEST
) -> Sequence[Dataset]:
    """Return up to `limit` datasets that exist for the viewer."""
    visible = select(Dataset).where(sees_dataset(viewer))
    found = cut(session, visible, visible, lambda: dataset_keys(viewer), Dataset.id, order, after)
    return session.execute(found.limit(limit)).scalars().all()


def jobs(
    session: Session,
    viewer: Viewer,
    wanted: JobFilter,
    until: float,
    after: str | None,
    limit: int,
    order: Order = NEWEST,
) -> Sequence[Job]:
    """Return up to `limit` jobs that exist for the viewer; `until` is the last point of the time grid.

    Clients of federated jobs are listed by their dataset, or by the job that they are clients of; else that job is.
    """
    visible = select(Job).where(sees_job(viewer))
    by_client = wanted.dataset or wanted.federation
    statement = visible.where(reads_records() if by_client else Job.place.is_(None))
    if wanted.federation:
        statement = statement.where(Job.federation_id == wanted.federation)
    if wanted.state:
        statement = statement.where(Job.state == wanted.state)
    if wanted.dataset:
        statement = statement.where(Job.dataset_id == wanted.dataset)
    if wanted.optimizer:
        statement = statement.where(Job.optimizer == wanted.optimizer)
    if wanted.label:
        key, value = wanted.label
        labelled = select(Label.job_id).where(Label.key == key, Label.value == value)
        statement = statement.where(Job.id.in_(labelled))
    if wanted.approval:
        released = (Model.approval == wanted.approval, Model.created_at <= until)
        statement = statement.where(Job.id.in_(select(Model.job_id).where(*released)))
    found = cut(session, statement, visible, lambda: job_keys(viewer), Job.id, order, after)
    return session.execute(found.limit(limit)).scalars().all()
