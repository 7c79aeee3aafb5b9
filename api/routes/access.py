"""Access to datasets: the principals that may send jobs to one, each with a share of its budget."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Response, status

from api.body import StrictRoute
from api.cost import CHANGE, POST, READ, costs
from api.deps import Caller, Db, page
from api.errors import problems
from api.schemas import AccessRequest
from core.base.errors import Conflict, Forbidden, Invalid, NotFound, PreconditionFailed, Unauthenticated
from core.service import access as service
from farthing.schemas.budgets import AccessView
from farthing.schemas.problems import Page

router = APIRouter(
    prefix="/v1/datasets/{dataset_id}/access",
    tags=["data"],
    route_class=StrictRoute,
    responses=problems(Unauthenticated, NotFound),
)
DatasetId = Annotated[str, Path(max_length=60)]
PrincipalId = Annotated[str, Path(max_length=60)]


@router.get("")
@costs(READ)
def list_access(dataset_id: DatasetId, caller: Caller, db: Db) -> Page[AccessView]:
    """List who may use a dataset, under which cap, and what each has used: all for its owner, one's own otherwise."""
    found = service.page(db, caller, dataset_id)
    return page(found, len(found), "principal")


@router.get("/{principal_id}")
@costs(READ)
def get_access(
    dataset_id: DatasetId, principal_id: PrincipalId, caller: Caller, db: Db, response: Response
) -> AccessView:
    """Show one principal's access; its ETag goes into If-Match to change the cap."""
    view = service.get(db, caller, dataset_id, principal_id)
    response.headers["ETag"] = f'"{view.version}"'
    return view


@router.put(
    "/{principal_id}",
    responses={201: {"model": AccessView}, **problems(Forbidden, Invalid, Conflict, PreconditionFailed)},
)
@costs(POST)
def give_access(
    dataset_id: DatasetId,
    principal_id: PrincipalId,
    body: AccessRequest,
    caller: Caller,
    db: Db,
    response: Response,
    if_match: Annotated[str | None, Header(max_length=500)] = None,
) -> AccessView:
    """Let a principal see a dataset and use its budget up to a cap, or change the cap.

    The cap is one per scope and principal: where the principal may use several datasets of the scope, it is the same
    for all, and their jobs count against it together. A cap that is there is stated as it is, or changed with If-Match.
    """
    versions = None if if_match is None else _tags(if_match)
    view, is_new = service.give(db, caller, dataset_id, principal_id, body.budget_cap, versions)
    response.headers["ETag"] = f'"{view.version}"'
    response.status_code = status.HTTP_201_CREATED if is_new else status.HTTP_200_OK
    return view


@router.delete(
    "/{principal_id}",
    status_code=status.HTTP_204_NO_CONTENT,
    response_class=Response,
    responses=problems(Forbidden),
)
@costs(CHANGE)
def take_access(dataset_id: DatasetId, principal_id: PrincipalId, caller: Caller, db: Db) -> None:
    """Take a principal's access away: it sees the dataset no more, and reserves nothing; the ledger's lines stay.

    Queued jobs end with `access-withdrawn` at the next sweep, or where a worker would take them, and what they reserved
    is given back. A job that runs goes on, unless somebody
    cancels it, and its release waits for the owner's approval.
    """
    service.take(db, caller, dataset_id, principal_id)


def _tags(if_match: str) -> frozenset[str]:
    """Return the entity tags of an If-Match header; `*` stands for any."""
    return frozenset(tag.strip().removeprefix("W/").strip('"') for tag in if_match.split(","))
