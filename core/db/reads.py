"""Reads of the use cases: the sight of each caller, and pages. Cursors are identifiers, which sort by time."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, String, cast, func, or_, select, true
from sqlalchemy.orm import Session, aliased

from core.base.identifiers import LETTERS
from core.db import clock
from core.db.identity_tables import Draft
from core.db.service_tables import Audit, Idempotency, Invitation
from core.db.tables import (
    Access,
    Account,
    ApiKey,
    Approval,
    Attempt,
    Dataset,
    Entry,
    Job,
    JobEvent,
    Model,
    Principal,
    Scope,
)
from core.methods.registry import CHECKERS

SEES_EVERYTHING: Final = ("admin", "auditor")
ON_THE_GRID: Final = ("progress", "succeeded", "failed")
"""Lines of a job's history whose time could tell something; they appear on a time grid only."""
_SITE: Final = aliased(Job)  # one for all statements: making one maps every column anew, which took 4 ms of a page
"""The row of a federated job that one site has."""


@dataclass(frozen=True)
class Viewer:
    """The caller of a read, by id and role."""

    id: str
    role: str

    @property
    def sees_everything(self) -> bool:
        """Whether every dataset, scope, job and entry exists for this principal."""
        return self.role in SEES_EVERYTHING


def _granted(viewer: Viewer) -> ColumnElement[bool]:
    """Tell of a dataset whether the viewer was given access to it."""
    return Dataset.id.in_(select(Access.dataset_id).where(Access.principal_id == viewer.id))


def sees_dataset(viewer: Viewer) -> ColumnElement[bool]:
    """Tell of a dataset whether it exists for the viewer."""
    own = Dataset.owner_id == viewer.id
    if viewer.sees_everything:
        return or_(own, ~select(Draft.dataset_id).where(Draft.dataset_id == Dataset.id).exists())
    return or_(own, _granted(viewer) & (Dataset.state != "pending"))


def sees_principal(viewer: Viewer) -> ColumnElement[bool]:
    """Tell of a principal whether the viewer reads its name: the own one, those let in to the own data, or all."""
    if viewer.sees_everything:
        return true()
    let_in = select(Access.principal_id).join(Dataset, Dataset.id == Access.dataset_id)
    return or_(Principal.id == viewer.id, Principal.id.in_(let_in.where(Dataset.owner_id == viewer.id)))


def sees_job(viewer: Viewer) -> ColumnElement[bool]:
    """Tell of a job whether it exists for the viewer."""
    if viewer.sees_everything:
        return true()
    owned = select(Scope.id).where(Scope.owner_id == viewer.id)
    joined = select(_SITE.federation_id).where(_SITE.place.is_not(None), _SITE.scope_id.in_(owned))
    return or_(Job.owner_id == viewer.id, Job.scope_id.in_(owned), Job.id.in_(joined))


def dataset(session: Session, viewer: Viewer, dataset_id: str) -> Dataset | None:
    """Return a dataset if it exists for the viewer."""
    return session.execute(select(Dataset).where(Dataset.id == dataset_id, sees_dataset(viewer))).scalar_one_or_none()


def hold_datasets(session: Session, wanted: Iterable[tuple[Viewer, str]]) -> dict[tuple[Viewer, str], Dataset]:
    """Return those datasets that exist for their viewers, and keep them as they are until the transaction ends.

    Their rows are locked for sharing before any principal's or scope's: others may hold them, nobody may erase them.
    """
    found: dict[tuple[Viewer, str], Dataset] = {}
    for viewer, ids in _by_viewer(wanted).items():
        statement = select(Dataset).where(Dataset.id.in_(ids), sees_dataset(viewer)).order_by(Dataset.id)
        held = statement.with_for_update(read=True, of=Dataset).execution_options(populate_existing=True)
        found |= {(viewer, dataset.id): dataset for dataset in session.execute(held).scalars()}
    return found


def _by_viewer(wanted: Iterable[tuple[Viewer, str]]) -> dict[Viewer, set[str]]:
    """Group identifiers by who asks for them."""
    grouped: dict[Viewer, set[str]] = {}
    for viewer, identifier in wanted:
        grouped.setdefault(viewer, set()).add(identifier)
    return grouped


def scope(session: Session, viewer: Viewer, scope_id: str) -> Scope | None:
    """Return a scope if it, or one of its datasets, exists for the viewer."""
    statement = select(Scope).where(Scope.id == scope_id)
    if not viewer.sees_everything:
        seen = select(Dataset.scope_id).where(_granted(viewer), Dataset.scope_id == scope_id)
        statement = statement.where(or_(Scope.owner_id == viewer.id, Scope.id.in_(seen)))
    return session.execute(statement).scalar_one_or_none()


def datasets_of(session: Session, scope_id: str, viewer: Viewer) -> Sequence[str]:
    """Return the identifiers of a scope's datasets that exist for the viewer."""
    statement = select(Dataset.id).where(Dataset.scope_id == scope_id, sees_dataset(viewer))
    return session.execute(statement.order_by(Dataset.id)).scalars().all()


def grant(session: Session, scope_id: str, principal_id: str, *, closed: bool = False) -> Account | None:
    """Return a principal's grant in a scope, if there is one; one that is closed only where that is asked for."""
    statement = select(Account).where(Account.scope_id == scope_id, Account.principal_id == principal_id)
    if not closed:
        statement = statement.where(Account.closed_at.is_(None))
    return session.execute(statement).scalar_one_or_none()


def accesses(session: Session, dataset: Dataset) -> list[tuple[Access, Principal, Account]]:
    """Return who has access to a dataset, and the cap of each in its scope."""
    statement = (
        select(Access, Principal, Account)
        .join(Principal, Principal.id == Access.principal_id)
        .join(Account, (Account.principal_id == Access.principal_id) & (Account.scope_id == dataset.scope_id))
        .where(Access.dataset_id == dataset.id)
        .order_by(Access.principal_id)
    )
    return [(row[0], row[1], row[2]) for row in session.execute(statement)]


def accessible(session: Session, scope_id: str, principal_id: str) -> list[str]:
    """Return the datasets of a scope that a principal was given access to."""
    statement = select(Dataset.id).join(Access, Access.dataset_id == Dataset.id)
    mine = statement.where(Dataset.scope_id == scope_id, Access.principal_id == principal_id)
    return list(session.execute(mine.order_by(Dataset.id)).scalars())


def entries(session: Session, scope_id: str, after: int, limit: int) -> Sequence[Entry]:
    """Return up to `limit` entries of a scope's chain above `after`, oldest first."""
    statement = select(Entry).where(Entry.scope_id == scope_id, Entry.seq > after)
    return session.execute(statement.order_by(Entry.seq).limit(limit)).scalars().all()


def principal(session: Session, principal_id: str) -> Principal | None:
    """Return a principal."""
    return session.get(Principal, principal_id)


def principal_names(session: Session, ids: Iterable[str]) -> dict[str, str]:
    """Return the names of some principals by their identifiers."""
    found = session.execute(select(Principal.id, Principal.name).where(Principal.id.in_(set(ids))))
    return {row.id: row.name for row in found}


def holds_records(session: Session, principal_id: str) -> bool:
    """Tell whether a principal has brought records: it has a draft with some, or a scope, and no scope goes away."""
    of_drafts = select(Draft.dataset_id).join(Dataset, Dataset.id == Draft.dataset_id)
    held = of_drafts.where(Dataset.owner_id == principal_id, Draft.sealed.is_not(None)).exists()
    owned = select(Scope.id).where(Scope.owner_id == principal_id).exists()
    return bool(session.execute(select(or_(owned, held))).scalar_one())


def principals(session: Session, after: str | None, limit: int) -> Sequence[Principal]:
    """Return up to `limit` principals, newest first."""
    statement = select(Principal)
    if after:
        statement = statement.where(Principal.id < after)
    return session.execute(statement.order_by(Principal.id.desc()).limit(limit)).scalars().all()


def keys(
    session: Session, principal_id: str | None, after: str | None, limit: int
) -> Sequence[tuple[ApiKey, Principal]]:
    """Return up to `limit` keys, newest first: of one principal, or of all."""
    statement = select(ApiKey, Principal).join(Principal, Principal.id == ApiKey.principal_id)
    if principal_id is not None:
        statement = statement.where(ApiKey.principal_id == principal_id)
    if after:
        statement = statement.where(ApiKey.id < after)
    return [(row[0], row[1]) for row in session.execute(statement.order_by(ApiKey.id.desc()).limit(limit))]


def job(session: Session, viewer: Viewer, job_id: str) -> Job | None:
    """Return a job if it exists for the viewer: its owner, the owners of scopes that pay, admins and auditors."""
    return session.execute(select(Job).where(Job.id == job_id, sees_job(viewer))).scalar_one_or_none()


def seen_jobs(session: Session, wanted: Iterable[tuple[Viewer, str]]) -> dict[tuple[Viewer, str], Job]:
    """Return the wanted jobs that each viewer may see, by viewer and identifier."""
    found: dict[tuple[Viewer, str], Job] = {}
    for viewer, ids in _by_viewer(wanted).items():
        jobs = session.execute(select(Job).where(Job.id.in_(ids), sees_job(viewer))).scalars()
        found |= {(viewer, job.id): job for job in jobs}
    return found


@dataclass(frozen=True)
class JobFilter:
    """Which jobs a list shows."""

    state: str | None = None
    dataset: str | None = None
    optimizer: str | None = None
    federation: str | None = None
    label: tuple[str, str] | None = None
    approval: str | None = None


def live_jobs(session: Session, dataset_id: str) -> Sequence[str]:
    """Return the identifiers of the jobs and clients that read a dataset and have not ended."""
    statement = select(Job.id).where(Job.dataset_id == dataset_id, reads_records(), Job.finished_at.is_(None))
    return session.execute(statement.order_by(Job.id)).scalars().all()


def reads_records() -> ColumnElement[bool]:
    """Tell of a job whether it reads records itself; of a federated job its clients do."""
    return or_(Job.federation_id.is_(None), Job.place.is_not(None))


def clients_of(session: Session, job_ids: Sequence[str]) -> dict[str, list[Job]]:
    """Return the clients of some federated jobs, by place."""
    found: dict[str, list[Job]] = {job_id: [] for job_id in job_ids}
    if found:
        statement = select(Job).where(Job.federation_id.in_(job_ids), Job.place.is_not(None))
        for client in session.execute(statement.order_by(Job.federation_id, Job.place)).scalars():
            found[str(client.federation_id)].append(client)
    return found


def judges(session: Session, model: Model, job: Job) -> set[str]:
    """Return who may judge a release: the owner of the job's scope, of a federated job of each scope that asks."""
    scopes = select(Approval.scope_id).where(Approval.model_id == model.id) if job.is_federated else [job.scope_id]
    return set(session.execute(select(Scope.owner_id).where(Scope.id.in_(scopes))).scalars())


def waiting(session: Session, limit: int) -> list[tuple[str, str]]:
    """Return the jobs that have been queued longest, and the device that each asks for."""
    statement = (
        select(Job.id, Job.device).where(Job.state == "queued", Job.place.is_(None)).order_by(Job.created_at, Job.id)
    )
    return [(row[0], row[1]) for row in session.execute(statement.limit(limit))]


def requests_of(session: Session, job_ids: Iterable[str]) -> dict[str, str | None]:
    """Return, for each of these jobs, the request that made it."""
    found = session.execute(select(Job.id, Job.request_id).where(Job.id.in_(list(job_ids))))
    return {row.id: row.request_id for row in found}


def attempts(session: Session, job_id: str) -> Sequence[Attempt]:
    """Return a job's attempts, first to last."""
    return session.execute(select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number)).scalars().all()


def models_of(session: Session, job_ids: Sequence[str]) -> dict[str, Model]:
    """Return what each job released, if it did."""
    if not job_ids:
        return {}
    return {model.job_id: model for model in session.execute(select(Model).where(Model.job_id.in_(job_ids))).scalars()}


def error_bounds(session: Session, viewer: Viewer, model_id: str) -> list[tuple[Model, Job]]:
    """Return what jobs that check models, and exist for the viewer, released about one, each with its job."""
    about = (Job.optimizer.in_(CHECKERS), cast(Job.spec, String).contains(model_id), sees_job(viewer))
    found = select(Model, Job).join(Job, Job.id == Model.job_id).where(*about).order_by(Model.id)
    # A job may have the name elsewhere, too, such as in a label.
    return [(row[0], row[1]) for row in session.execute(found) if model_id in row[1].spec.get("models", ())]


def grid_time(session: Session, grid_seconds: float) -> float:
    """Return the last point of the time grid, by the database's clock."""
    at = clock.read(session)
    return math.floor(at / grid_seconds) * grid_seconds if grid_seconds else at


def on_grid(at: float, grid_seconds: float) -> float:
    """Return the point of the time grid at which something shows; a finer time would tell what the grid hides."""
    return math.ceil(at / grid_seconds) * grid_seconds if grid_seconds else at


def first_hidden(session: Session, job_ids: Iterable[str], until: float) -> dict[str, int]:
    """Return, for each job that has one, the number of the first line of its history that is not to be seen yet."""
    statement = (
        select(JobEvent.job_id, func.min(JobEvent.seq))
        .where(JobEvent.job_id.in_(list(job_ids)), JobEvent.created_at > until, JobEvent.kind.in_(ON_THE_GRID))
        .group_by(JobEvent.job_id)
    )
    return {row[0]: row[1] for row in session.execute(statement)}


def history(session: Session, job_id: str, after: int, before: int | None, limit: int) -> Sequence[JobEvent]:
    """Return up to `limit` lines of a job's history with numbers above `after` and below `before`, oldest first."""
    statement = select(JobEvent).where(JobEvent.job_id == job_id, JobEvent.seq > after)
    if before is not None:
        statement = statement.where(JobEvent.seq < before)
    return session.execute(statement.order_by(JobEvent.seq).limit(limit)).scalars().all()


def last_lines(session: Session, job_ids: Iterable[str]) -> dict[str, tuple[str, int, str | None]]:
    """Return each job's state, the number of its history's last line, and the approval of its model, if any."""
    statement = select(Job.id, Job.state, Job.event_seq, Model.approval).outerjoin(Model, Model.job_id == Job.id)
    found = session.execute(statement.where(Job.id.in_(list(job_ids))))
    return {job_id: (state, seq, approval) for job_id, state, seq, approval in found}


def audit(
    session: Session, viewer: Viewer, after: str | None, limit: int, *, oldest_first: bool = False
) -> Sequence[Audit]:
    """Return up to `limit` lines of the audit log that exist for the viewer, newest first unless asked otherwise."""
    statement = select(Audit).where(_sees_line(viewer))
    if after:
        statement = statement.where(Audit.id > after if oldest_first else Audit.id < after)
    order = Audit.id if oldest_first else Audit.id.desc()
    return session.execute(statement.order_by(order).limit(limit)).scalars().all()


def _sees_line(viewer: Viewer) -> ColumnElement[bool]:
    """Tell of a line of the audit log whether it exists for the viewer: one's own, and what is about one's own data.

    A line names what it is about as a path: the room, the identifier, and what follows.
    """
    own = select(Dataset.id).where(Dataset.owner_id == viewer.id)
    if viewer.sees_everything:
        return or_(~is_removal(), _named("datasets/ds_").in_(own))
    scopes = select(Scope.id).where(Scope.owner_id == viewer.id)
    joined = select(_SITE.federation_id).where(_SITE.place.is_not(None), _SITE.scope_id.in_(scopes))
    jobs_there = select(Job.id).where(or_(Job.scope_id.in_(scopes), Job.id.in_(joined)))
    about = {
        "scopes/sc_": scopes,
        "datasets/ds_": own,
        "jobs/job_": jobs_there,
        "models/mdl_": select(Model.id).where(Model.job_id.in_(jobs_there)),
        "keys/key_": select(ApiKey.id).where(ApiKey.principal_id == viewer.id),
        "invitations/inv_": select(Invitation.id).where(Invitation.made_by == viewer.id),
        "principals/pr_": select(Principal.id).where(Principal.id == viewer.id),
    }
    named = [
        _named(start).in_(owned) & Audit.target.startswith(start, autoescape=True) for start, owned in about.items()
    ]
    return or_(Audit.principal_id == viewer.id, *named)


def is_removal() -> ColumnElement[bool]:
    """Tell of a line of the audit log whether it is about the removal of a record, which the owner alone sees."""
    return Audit.action.endswith("/removals")


def _named(start: str) -> ColumnElement[str]:
    """Return the identifier that a line's target has after its room; all identifiers of a kind are of one length."""
    room, prefix = start.split("/")
    return func.substr(Audit.target, len(room) + 2, len(prefix) + LETTERS)


def is_answered(session: Session, principal_id: str, route: str, key: str) -> bool:
    """Tell whether a create request with this key was answered, whatever its body was."""
    found = session.get(Idempotency, (principal_id, route, key))
    return found is not None and found.status is not None
