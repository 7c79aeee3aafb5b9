"""Use cases of trained models as a list: which of them exist for a caller, what they come from, how long they stay."""

from core.db import model_reads as queries
from core.db import reads
from core.db.model_reads import GONE, ModelFilter, ModelRow
from core.service.context import Caller, Context
from core.service.scopes import viewer
from core.service.views import rfc3339
from farthing.schemas.models import Lineage, TrainedModel

NAME = "name"
"""The label of a job that names its model."""


def page(context: Context, caller: Caller, wanted: ModelFilter, after: str | None, limit: int) -> list[TrainedModel]:
    """Return up to `limit` models that exist for the caller, newest first; no figure of any."""
    with context.database.read() as session:
        until = reads.grid_time(session, context.settings.visible_grid_seconds)
        found = queries.models(session, viewer(caller), until, wanted, after, limit)
        return [_item(context, row) for row in found]


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
