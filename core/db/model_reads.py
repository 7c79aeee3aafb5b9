"""Reads of trained models: which of them exist for a viewer, and pages of them without their figures."""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, or_, select
from sqlalchemy.orm import Session

from core.db.reads import Viewer, sees_dataset, sees_job
from core.db.sorting import NEWEST, Order, cut, model_keys
from core.db.tables import Approval, Dataset, Job, Label, Model, Principal, Scope

ApprovalState = Literal["not-needed", "pending", "approved", "rejected", "retired", "retracted"]
OPEN: Final = ("not-needed", "approved")
"""States of a model that everybody may read for whom its job exists."""
GONE: Final = ("retired", "retracted")
"""States of a model whose figures were taken away."""


@dataclass(frozen=True)
class ModelFilter:
    """Which models a list shows; those whose figures were taken away are listed by their state alone."""

    dataset: str | None = None
    job: str | None = None
    optimizer: str | None = None
    label: tuple[str, str] | None = None
    approval: ApprovalState | None = None


class ModelRow(NamedTuple):
    """A model as a list needs it: its figures stay in the database."""

    id: str
    approval: str
    created_at: float
    job_id: str
    owner_id: str
    owner_name: str
    dataset_id: str
    dataset_name: str | None
    federation_id: str | None
    spec: dict[str, Any]
    optimizer: str
    labels: dict[str, str]
    clone_of: str | None


def sees_model(viewer: Viewer, until: float) -> ColumnElement[bool]:
    """Tell of a model, joined with its job, whether it exists for the viewer.

    A release that waits for approval, or was rejected, exists for the owners who judge it. No role changes that.

    Args:
        viewer: the caller.
        until: the last point of the time grid; later releases exist for nobody yet.
    """
    shown = or_(Model.approval.in_((*OPEN, *GONE)), _judges(viewer))
    return and_(Model.created_at <= until, sees_job(viewer), shown)


def _judges(viewer: Viewer) -> ColumnElement[bool]:
    """Tell of a model, joined with its job, whether the viewer judges it; the same as `reads.judges`."""
    owned = select(Scope.id).where(Scope.owner_id == viewer.id)
    asked = select(Approval.model_id).where(Approval.scope_id.in_(owned))
    return or_(Job.federation_id.is_(None) & Job.scope_id.in_(owned), Model.id.in_(asked))


def model(session: Session, viewer: Viewer, model_id: str, until: float) -> tuple[Model, Job, Scope] | None:
    """Return a model, its job and its scope if it exists for the viewer; of a federated job its first client's scope.

    Args:
        session: a snapshot.
        viewer: the caller.
        model_id: `mdl_...`.
        until: as `sees_model` takes it.
    """
    statement = (
        select(Model, Job, Scope)
        .join(Job, Job.id == Model.job_id)
        .join(Scope, Scope.id == Job.scope_id)
        .where(Model.id == model_id, sees_model(viewer, until))
    )
    row = session.execute(statement).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


def data_owners(session: Session, job: Job) -> set[str]:
    """Return who owns data that a job read: of a federated job, the owners of all its sites' scopes."""
    sites = select(Job.scope_id).where(Job.federation_id == job.id, Job.place.is_not(None))
    scopes = sites if job.is_federated else [job.scope_id]
    return set(session.execute(select(Scope.owner_id).where(Scope.id.in_(scopes))).scalars())


def models(
    session: Session,
    viewer: Viewer,
    until: float,
    wanted: ModelFilter,
    after: str | None,
    limit: int,
    order: Order = NEWEST,
) -> list[ModelRow]:
    """Return up to `limit` models that exist for the viewer."""
    visible = (
        select(
            Model.id,
            Model.approval,
            Model.created_at,
            Model.job_id,
            Job.owner_id,
            Principal.name,
            Model.dataset_id,
            Dataset.name,
            Job.federation_id,
            Job.spec,
            Job.optimizer,
            Job.labels,
            Job.clone_of,
        )
        .select_from(Model)
        .join(Job, Job.id == Model.job_id)
        .join(Principal, Principal.id == Job.owner_id)
        .outerjoin(Dataset, and_(Dataset.id == Model.dataset_id, sees_dataset(viewer)))
        .where(sees_model(viewer, until))
    )
    statement = visible.where(*_wanted(viewer, wanted))
    found = cut(session, statement, visible, model_keys, Model.id, order, after)
    return [ModelRow(*row) for row in session.execute(found.limit(limit))]


def _wanted(viewer: Viewer, wanted: ModelFilter) -> list[ColumnElement[bool]]:
    """Return what a filter asks of a model, joined with its job."""
    found = [Model.approval.not_in(GONE) if wanted.approval is None else Model.approval == wanted.approval]
    if wanted.dataset:
        found.append(_of_dataset(viewer, wanted.dataset))
    if wanted.job:
        found.append(Model.job_id == wanted.job)
    if wanted.optimizer:
        found.append(Job.optimizer == wanted.optimizer)
    if wanted.label:
        key, value = wanted.label
        found.append(Job.id.in_(select(Label.job_id).where(Label.key == key, Label.value == value)))
    return found


def _of_dataset(viewer: Viewer, dataset_id: str) -> ColumnElement[bool]:
    """Tell of a model whether its job read a dataset; of a federated job by the sites that the viewer may see."""
    client = (Job.place.is_not(None), Job.dataset_id == dataset_id, sees_job(viewer))
    together = select(Job.federation_id).where(*client).correlate(None)
    return or_(Job.federation_id.is_(None) & (Model.dataset_id == dataset_id), Job.id.in_(together))


def awaiting(owner_id: str, until: float) -> Select[str]:
    """Return the ids of releases that wait for an owner's approval, of federated jobs, too.

    Args:
        owner_id: of the scopes.
        until: the newest time that is shown, on the visible grid.
    """
    owned = select(Scope.id).where(Scope.owner_id == owner_id)
    asked = select(Approval.model_id).where(Approval.scope_id.in_(owned), Approval.verdict == "pending")
    mine = or_(Job.scope_id.in_(owned), Model.id.in_(asked))
    waiting = Model.approval == "pending", Model.created_at <= until
    return select(Model.id).join(Job, Job.id == Model.job_id).where(*waiting, mine)
