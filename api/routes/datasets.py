"""Datasets: declared and uploaded by their owner, seen by whom the owner lets, erased on request."""

from collections.abc import Iterator
from typing import Annotated, Any, get_args

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Path, Query, Request, status
from fastapi.responses import JSONResponse

from api import uploads
from api.body import StrictRoute, parse_json, read_small
from api.cost import ANYBODY, CHANGE, HEAVY_READ, MANY_VALUES, OWNERS, READ, Cost, Work, costs
from api.deps import After, Caller, Db, Limit, MaybeIdempotencyKey, capped, page
from api.errors import problems
from api.schemas import MediaType
from core.base.errors import (
    Conflict,
    DuplicateDataset,
    FieldError,
    Forbidden,
    IdempotencyKeyInFlight,
    IdempotencyKeyReused,
    Invalid,
    KeyNotOwn,
    ManyExcluded,
    NearCopy,
    NotFound,
    NotOfferedYet,
    TooLarge,
    Unauthenticated,
    UnsupportedMedia,
)
from core.data.datasets import Metadata, parse_metadata
from core.records.decoding.decode import format_of
from core.records.decoding.mock import MAX_MOCK_CELLS, MAX_MOCK_ROWS
from core.service import activity, declarations, offers
from core.service import datasets as service
from core.service import identity as identities
from core.service import uploads as incoming
from core.service.context import Caller as Principal
from core.service.context import Context
from core.service.views import DatasetView
from farthing.schemas.activity import ActivityView
from farthing.schemas.budgets import BudgetView
from farthing.schemas.datasets import IdentityView, ValidationView
from farthing.schemas.offers import OffersView
from farthing.schemas.problems import Page

router = APIRouter(prefix="/v1/datasets", tags=["data"], route_class=StrictRoute, responses=problems(Unauthenticated))
DatasetId = Annotated[str, Path(max_length=60)]
THREADS = CapacityLimiter(uploads.MOST_THREADS)
_METADATA = {"$ref": "#/components/schemas/Metadata"}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_CREATE_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "description": "two parts, the metadata before the file",
                "required": ["metadata", "file"],
                "properties": {"metadata": _METADATA, "file": {"type": "string", "format": "binary"}},
            }
        },
        "application/json": {"schema": _METADATA},
    },
}
_KINDS = get_args(MediaType)
_CONTENT = {
    "required": True,
    "description": f"The file as it is; its Content-Type is one of {', '.join(_KINDS)}, the last for whichever it is.",
    "content": {"application/octet-stream": _BINARY},
}
OF_A_FILE = (
    Forbidden,
    KeyNotOwn,
    Invalid,
    NotOfferedYet,
    ManyExcluded,
    TooLarge,
    UnsupportedMedia,
    DuplicateDataset,
    NearCopy,
    Conflict,
)
"""Refusals of records."""
_UPLOAD = problems(*OF_A_FILE)


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    response_model=DatasetView,
    openapi_extra={"requestBody": _CREATE_BODY},
    responses={
        **_UPLOAD,
        **problems(NotFound, IdempotencyKeyReused, IdempotencyKeyInFlight, DuplicateDataset, NearCopy),
    },
)
@costs(Cost(OWNERS, Work.UPLOAD, body_bytes=None, values=MANY_VALUES))
async def create_dataset(request: Request, caller: Caller, db: Db, key: MaybeIdempotencyKey = None) -> JSONResponse:
    """Upload records with their declared columns and budget.

    Send multipart, with the part `metadata` before the part `file`. Or send the metadata alone as JSON; the records
    then follow by `PUT /v1/datasets/{id}/content`. With `seal` false it is a draft: its owner alone sees it until `POST
    /v1/datasets/{id}/seal`.
    """
    kind = request.headers.get("content-type", "")
    if kind.startswith("multipart/form-data"):

        def work(body: Iterator[bytes]) -> tuple[dict[str, Any], bool]:
            return from_form(db, caller, kind, body, key)

        view, replayed = await uploads.in_thread(request, THREADS, work)
    elif kind.partition(";")[0].strip() == "application/json":
        body = await read_small(request, db.settings.max_body_bytes)
        metadata = await to_thread.run_sync(_metadata_of, body)
        view, replayed = await to_thread.run_sync(incoming.declare, db, caller, metadata, key)
    else:
        raise UnsupportedMedia("Send multipart/form-data with the parts metadata and file, or application/json.")
    headers = {"Location": f"/v1/datasets/{view['id']}"}
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    return JSONResponse(view, status_code=status.HTTP_201_CREATED, headers=headers)


def _metadata_of(raw: bytes) -> Metadata:
    return parse_metadata(parse_json(raw, MANY_VALUES))


def from_form(
    db: Context, caller: Principal, content_type: str, body: Iterator[bytes], key: str | None
) -> tuple[dict[str, Any], bool]:
    """Create a dataset from a multipart body, read part by part."""
    metadata: Metadata | None = None
    for part in uploads.parts(content_type, body):
        if part.name == "metadata" and metadata is None:
            metadata = _metadata_of(uploads.read_small(part, db.settings.max_body_bytes))
            # Checked before the file is read, so a wrong declaration costs no upload; `create` checks it again.
            declarations.parse(db, caller, metadata)
        elif part.name == "file" and metadata is not None:
            # The file is the last part that is read: its pieces come from the socket, and cannot wait.
            return incoming.create(db, caller, metadata, format_of(part.media_type), part.pieces, key)
        elif part.name == "file":
            raise Invalid("The metadata come before the file.", FieldError("/metadata", "send this part first"))
        else:
            raise Invalid("The parts are metadata and file.", FieldError("/metadata", "send each of them once"))
    missing = "metadata" if metadata is None else "file"
    raise Invalid(f"The part {missing} is missing.", FieldError(f"/{missing}", "send this part"))


@router.put(
    "/{dataset_id}/content",
    openapi_extra={"requestBody": _CONTENT},
    responses={**_UPLOAD, **problems(NotFound)},
)
@costs(Cost(OWNERS, Work.UPLOAD, body_bytes=None))
async def put_content(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> DatasetView:
    """Send the records of a declared dataset as they are: CSV, Parquet, Arrow or NPZ; as octets, whichever it is.

    A draft may be sent others, which take the place of those that it has. A large file may come in parts:
    `POST /v1/datasets/{id}/uploads`.
    """
    kind = request.headers.get("content-type", "")

    def work(body: Iterator[bytes]) -> DatasetView:
        return filled(db, caller, dataset_id, kind, body)

    return await uploads.in_thread(request, THREADS, work)


def filled(db: Context, caller: Principal, dataset_id: str, kind: str, body: Iterator[bytes]) -> DatasetView:
    """Give a dataset its records, from a body of a content type that is known."""
    if format_of(kind) is None and kind.partition(";")[0].strip().lower() != "application/octet-stream":
        raise UnsupportedMedia(f"Send one of {', '.join(_KINDS)}.")
    return incoming.fill(db, caller, dataset_id, kind, body)


@router.get("")
@costs(READ)
def list_datasets(caller: Caller, db: Db, after: After = None, limit: Limit = 20) -> Page[DatasetView]:
    """List the datasets that exist for this key, newest first."""
    return page(service.page(db, caller, after, capped(limit) + 1), capped(limit))


@router.get("/{dataset_id}", responses=problems(NotFound))
@costs(READ)
def get_dataset(dataset_id: DatasetId, caller: Caller, db: Db) -> DatasetView:
    """Show a dataset's public facts."""
    return service.get(db, caller, dataset_id)


@router.get("/{dataset_id}/validation", responses=problems(NotFound, Forbidden, Conflict))
@costs(READ)
def get_validation(dataset_id: DatasetId, caller: Caller, db: Db) -> ValidationView:
    """Show the owner how the cells of each column were read."""
    return service.validation(db, caller, dataset_id)


@router.get("/{dataset_id}/identity", responses=problems(NotFound, Forbidden, Conflict))
@costs(HEAVY_READ)
def get_identity(dataset_id: DatasetId, caller: Caller, db: Db) -> IdentityView:
    """Show the owner what the upload had in common with their earlier ones, and what they stated of it."""
    return identities.identity(db, caller, dataset_id)


@router.get("/{dataset_id}/mock", responses=problems(NotFound))
@costs(Cost(ANYBODY, Work.HEAVY, cells=MAX_MOCK_CELLS))
def get_mock(
    dataset_id: DatasetId, caller: Caller, db: Db, rows: Annotated[int, Query(ge=1, le=MAX_MOCK_ROWS)] = 10
) -> dict[str, Any]:
    """Show synthetic rows, made from the declared columns alone, to try a job's code on."""
    return {"object": "list", "data": service.mock(db, caller, dataset_id, rows), "has_more": False, "next": None}


@router.get("/{dataset_id}/budget", responses=problems(NotFound, Conflict))
@costs(HEAVY_READ)
def get_budget(dataset_id: DatasetId, caller: Caller, db: Db) -> BudgetView:
    """Show what is left of the budget of the people behind a dataset."""
    return service.budget(db, caller, dataset_id)


@router.get("/{dataset_id}/offers", responses=problems(NotFound, Conflict))
@costs(HEAVY_READ)
def get_offers(dataset_id: DatasetId, caller: Caller, db: Db) -> OffersView:
    """Show what still fits: the price of typical jobs, and how many of each the budget and the caller's cap admit.

    Jobs are planned from the declared columns and the public number of rows; no record is read.
    """
    return offers.get(db, caller, dataset_id)


@router.get("/{dataset_id}/activity", responses=problems(NotFound, Forbidden))
@costs(HEAVY_READ)
def list_activity(
    dataset_id: DatasetId, caller: Caller, db: Db, after: After = None, limit: Limit = 100
) -> Page[ActivityView]:
    """List everything that was done with a dataset, newest first: for its owner, auditors and admins.

    Lines concern the dataset, its scope, its jobs and their models, whoever sent the request.
    """
    return page(activity.page(db, caller, dataset_id, after, capped(limit) + 1), capped(limit))


@router.delete("/{dataset_id}", status_code=status.HTTP_202_ACCEPTED, responses=problems(NotFound, Forbidden, Conflict))
@costs(CHANGE)
def erase_dataset(dataset_id: DatasetId, caller: Caller, db: Db) -> DatasetView:
    """Erase the records: no new jobs, live ones are cancelled, the ledger stays."""
    return service.erase(db, caller, dataset_id)
