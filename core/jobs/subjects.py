"""Released models that jobs are about: the sources of their figures. A model stays while such a job is live."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import ensure
from core.db.model_reads import OPEN
from core.db.tables import Job, Model
from core.inference.error_bound import Records
from core.ledger.releases import is_as_entered


@dataclass(frozen=True)
class Origin:
    """The datasets and scopes whose records some models were made of."""

    datasets: frozenset[str]
    scopes: frozenset[str]

    def relation(self, datasets: Collection[str], scopes: Collection[str]) -> Records:
        """Say whether a job that reads these datasets, of these scopes, meets records that the models have seen."""
        if not self.datasets.isdisjoint(datasets):
            return "same_dataset"
        return "different_people" if self.scopes.isdisjoint(scopes) else "same_people"


@dataclass(frozen=True)
class Subjects:
    """The models that a job is about, for its trainer."""

    releases: tuple[dict[str, Any], ...]
    """By place, as they were released."""
    records: Records
    """The dataset that the job reads, beside those that the models have seen."""


def origin(session: Session, model_ids: Iterable[str]) -> Origin:
    """Return what models were made of, the models included that their own jobs were about."""
    datasets, scopes, seen, ahead = set[str](), set[str](), set[str](), set(model_ids)
    while ahead:
        seen |= ahead
        made = session.execute(select(Job).join(Model, Model.job_id == Job.id).where(Model.id.in_(ahead)))
        jobs = list(made.scalars())
        for payer in _payers(session, jobs):
            datasets.add(payer.dataset_id)
            scopes.add(payer.scope_id)
        ahead = {name for job in jobs for name in job.spec.get("models", ())} - seen
    return Origin(frozenset(datasets), frozenset(scopes))


def _payers(session: Session, jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs that read records: of a federated one, and of a client of one, all of its clients."""
    alone = [job for job in jobs if job.federation_id is None]
    together = {job.federation_id for job in jobs if job.federation_id is not None}
    if not together:
        return alone
    clients = select(Job).where(Job.federation_id.in_(together), Job.place.is_not(None))
    return [*alone, *session.execute(clients).scalars()]


def subjects_of(session: Session, job: Job) -> Subjects | None:
    """Return the models that a job is about; None where it is about none.

    Raises:
        PrivacyInvariantError: one is gone; see `live`.
    """
    named = job.spec.get("models", ())
    if not named:
        return None
    found = {model.id: model for model in session.execute(select(Model).where(Model.id.in_(named))).scalars()}
    ensure(all(name in found and found[name].approval in OPEN for name in named), "they stay while the job is live")
    same = all(is_as_entered(session, model, session.get_one(Job, model.job_id)) for model in found.values())
    ensure(same, "they are what the ledger says that their jobs released")
    readers = _payers(session, [job])
    relation = origin(session, named).relation(
        {reader.dataset_id for reader in readers}, {reader.scope_id for reader in readers}
    )
    return Subjects(tuple(found[name].release for name in named), relation)


def hold(session: Session, model_ids: Iterable[str]) -> frozenset[str]:
    """Keep models as they are until the transaction ends; return those of them that jobs may be about.

    Their rows are locked after datasets and before principals.
    """
    wanted = sorted(set(model_ids))
    if not wanted:
        return frozenset()
    statement = select(Model).where(Model.id.in_(wanted)).order_by(Model.id).with_for_update(read=True)
    held = session.execute(statement.execution_options(populate_existing=True)).scalars()
    return frozenset(model.id for model in held if model.approval in OPEN)


def take(session: Session, model: Model) -> None:
    """Hold a model for oneself until the transaction ends, as it stands by then: of two verdicts the first counts."""
    session.refresh(model, with_for_update=True)


def live(session: Session) -> frozenset[str]:
    """Return the models that jobs are about which have not ended. A removal of models locks them first."""
    specs = session.execute(select(Job.spec).where(Job.finished_at.is_(None))).scalars()
    return frozenset(name for spec in specs for name in spec.get("models", ()))
