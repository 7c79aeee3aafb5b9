"""Drafts: datasets whose owners look at the report, mend the declaration, and then seal them."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path

from api.body import StrictRoute
from api.cost import MANY_VALUES, OWNERS, READ, Cost, Work, costs
from api.deps import Caller, Db
from api.errors import problems
from core.base.errors import (
    Conflict,
    DuplicateDataset,
    Forbidden,
    Invalid,
    KeyNotOwn,
    NearCopy,
    NotFound,
    NotOfferedYet,
    Unauthenticated,
)
from core.service import drafts as service
from core.service.views import DatasetView
from farthing.schemas.drafts import DraftView

router = APIRouter(prefix="/v1/datasets", tags=["data"], route_class=StrictRoute, responses=problems(Unauthenticated))
DatasetId = Annotated[str, Path(max_length=60)]
_OWN = (NotFound, Forbidden, Conflict)
_DECLARATION = (KeyNotOwn, Invalid, NotOfferedYet)
_CHANGES = "fields of the metadata that take the place of those declared before; null takes one away"
_EXAMPLES = [{"budget": {"epsilon": "2", "delta": "1e-6"}}, {"reading": {"separator": ";", "decimal": ","}}]


@router.get("/{dataset_id}/draft", responses=problems(*_OWN))
@costs(READ)
def get_draft(dataset_id: DatasetId, caller: Caller, db: Db) -> DraftView:
    """Show the owner a draft: its declaration, and how the cells of its file were read."""
    return service.get(db, caller, dataset_id)


@router.patch("/{dataset_id}", responses=problems(*_OWN, *_DECLARATION))
@costs(Cost(OWNERS, Work.HEAVY, body_bytes=None, values=MANY_VALUES))
def mend_draft(
    dataset_id: DatasetId,
    changes: Annotated[dict[str, Any], Body(description=_CHANGES, examples=_EXAMPLES)],
    caller: Caller,
    db: Db,
) -> DraftView:
    """Change the declaration of a draft.

    The whole declaration is checked again. Other columns or another reading erase the file, and the owner sends it
    again by `PUT /v1/datasets/{id}/content`. A budget takes the place of the scope to join, and a scope that
    of the budget.
    """
    return service.mend(db, caller, dataset_id, changes)


@router.post("/{dataset_id}/seal", responses=problems(*_OWN, *_DECLARATION, DuplicateDataset, NearCopy))
@costs(Cost(OWNERS, Work.HEAVY))
def seal_draft(dataset_id: DatasetId, caller: Caller, db: Db) -> DatasetView:
    """Make a draft a dataset that others may use: it opens its budget, or joins its scope.

    A dataset that is sealed already is answered as it is, so the request may be repeated.
    """
    return service.seal(db, caller, dataset_id)
