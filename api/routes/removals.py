"""Removals: one record of a dataset taken out of it for good, at its owner's request."""

from typing import Annotated

from fastapi import APIRouter, Path

from api.body import StrictRoute
from api.cost import FEW_VALUES, OWNERS, SMALL_BODY_BYTES, Cost, Work, costs
from api.deps import Caller, Db
from api.errors import problems
from api.schemas import NewRemoval
from core.base.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from core.service import removals as service
from farthing.schemas.datasets import RemovalView

router = APIRouter(prefix="/v1/datasets", tags=["data"], route_class=StrictRoute, responses=problems(Unauthenticated))


@router.post("/{dataset_id}/removals", responses=problems(NotFound, Forbidden, Conflict, Invalid))
@costs(Cost(OWNERS, Work.UPLOAD, body_bytes=SMALL_BODY_BYTES, values=FEW_VALUES))
def remove_record(
    dataset_id: Annotated[str, Path(max_length=60)], body: NewRemoval, caller: Caller, db: Db
) -> RemovalView:
    """Remove the record of one row: it is excluded from every job that begins from now on. For the owner alone.

    Number of records, scope and budget stay as they are, and nobody else sees the removal. A row that is excluded
    already is answered alike, so the request may be repeated. The answer says whether the earlier file is destroyed.
    """
    return service.remove(db, caller, dataset_id, body.row)
