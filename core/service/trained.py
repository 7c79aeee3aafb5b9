"""Use cases of trained models: list those that a caller may see, with origin and expiry, and take one back."""

from sqlalchemy.orm import Session

from core.base.errors import Conflict, Forbidden, NotFound
from core.db import model_reads as queries
from core.db import reads
from core.db.model_reads import GONE, OPEN, ModelFilter, ModelRow
from core.db.sorting import NEWEST, Order
from core.jobs import mocks, subjects
from core.operations.retention import RETRACTED, take_away
from core.service import models
from core.service.context import Caller, Context
from core.service.scopes import viewer
from core.service.views import rfc3339
from farthing.schemas.models import Lineage, TrainedModel

NAME = "name"
"""The label of a job that names its model."""


def page(
    context: Context, caller: Caller, wanted: ModelFilter, after: str | None, limit: int, order: Order = NEWEST
) -> list[TrainedModel]:
    """Return up to `limit` models that exist for the caller; no figure of any."""
    with context.database.read() as session:
        until = reads.grid_time(session, context.settings.visible_grid_seconds)
        found = queries.models(session, viewer(caller), until, wanted, after, limit, order)
        return [_item(context, row) for row in found]


def may_retract(context: Context, caller: Caller, model_id: str) -> bool:
    """Tell whether the caller may take a model back by now; a mock job's says nothing, and goes by itself.

    Raises:
        NotFound: it does not exist for the caller.
    """
    if mocks.job_of(model_id) is not None:
        return False
    with context.database.read() as session:
        until = reads.grid_time(session, context.settings.visible_grid_seconds)
        found = queries.model(session, viewer(caller), model_id, until)
        if found is None:
            raise NotFound("There is no such model.")
        model, job, _ = found
        return model.approval in OPEN and caller.id in {job.owner_id, *queries.data_owners(session, job)}


def retract(context: Context, caller: Caller, model_id: str) -> TrainedModel:
    """Take a model back: its figures are deleted, and nobody is served any of them. Ledger, job and report stay.

    A model that was retracted before is returned as it is.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: the caller neither submitted its job nor owns data that it read.
        Conflict: its release is not open, or a job about it has not ended.
        ModelRetired: it is kept no more.
    """

    def work(session: Session) -> TrainedModel:
        until = reads.grid_time(session, context.settings.visible_grid_seconds)
        found = queries.model(session, viewer(caller), model_id, until)
        if found is None:
            raise NotFound("There is no such model.")
        model, job, _ = found
        if caller.id not in {job.owner_id, *queries.data_owners(session, job)}:
            raise Forbidden("Only the submitter of its job, and an owner of the data, may retract this model.")
        subjects.take(session, model)
        if model.approval != RETRACTED:
            models.find(session, context, caller, model_id)
            if model.approval not in OPEN:
                raise Conflict(f"This release is {model.approval}. Only a release that can be read can be retracted.")
            # Under the model's lock, on which a new job about it waits, and then finds it gone.
            if model.id in subjects.live(session):
                raise Conflict("A job about this model has not ended: wait for it, or cancel it, and retract then.")
            take_away(session, {model.id: job.id}, RETRACTED)
        wanted = ModelFilter(job=job.id, approval=RETRACTED)
        (row,) = queries.models(session, viewer(caller), until, wanted, None, 1)
        return _item(context, row)

    return context.database.transaction(work)


def _item(context: Context, row: ModelRow) -> TrainedModel:
    shown_at = reads.on_grid(row.created_at, context.settings.visible_grid_seconds)
    kept = context.settings.model_retention_seconds
    ends = None if kept is None or row.approval in GONE else shown_at + kept
    alone = row.federation_id is None
    return TrainedModel(
        id=row.id,
        name=row.labels.get(NAME),
        job=row.job_id,
        owner=row.owner_id,
        owner_name=row.owner_name,
        dataset=row.dataset_id if alone else None,
        dataset_name=row.dataset_name if alone else None,
        kind=row.spec["model"]["kind"],
        method=row.optimizer,
        approval=row.approval,
        lineage=Lineage(models=list(row.spec.get("models", ())), clone_of=row.clone_of),
        created_at=rfc3339(shown_at),
        expires_at=rfc3339(ends),
    )
