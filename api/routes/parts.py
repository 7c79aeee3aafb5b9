"""Uploads in parts: a large file that goes on after a broken connection, a reload of the page or a restart."""

import base64
import binascii
from collections.abc import Iterator
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Header, Path, Request, Response, status
from fastapi.responses import JSONResponse

from api import uploads
from api.body import StrictRoute
from api.cost import FEW_VALUES, OWNERS, READ, Cost, Work, costs
from api.deps import Caller, Db, MaybeIdempotencyKey
from api.errors import problems
from api.routes.datasets import OF_A_FILE, THREADS, DatasetId
from api.schemas import NewUpload
from core.base.errors import (
    Conflict,
    DigestMismatch,
    FieldError,
    Forbidden,
    IdempotencyKeyInFlight,
    IdempotencyKeyReused,
    Invalid,
    KeyNotOwn,
    NotFound,
    NotOfferedYet,
    TooLarge,
    Unauthenticated,
)
from core.service import parted_uploads as service
from core.service import parts
from core.service.views import DatasetView
from farthing.schemas.problems import Page
from farthing.schemas.uploads import UploadPartView, UploadView, UploadWithPartsView

router = APIRouter(
    prefix="/v1/datasets/{dataset_id}/uploads",
    tags=["data"],
    route_class=StrictRoute,
    responses=problems(Unauthenticated),
)
UploadId = Annotated[str, Path(max_length=60)]
Number = Annotated[int, Path(ge=1, le=service.MOST_PARTS, description="from 1")]
_OWN = (NotFound, Forbidden, Conflict)
_ALGORITHM = "sha-256"
_DIGEST_BYTES = 32
_EXAMPLE = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"
_Digest = Annotated[
    str,
    Header(
        alias="Content-Digest",
        max_length=1000,
        description="SHA-256 of the body, as RFC 9530 writes it: `sha-256=:base64:`",
        examples=[_EXAMPLE],
    ),
]
_PART = {
    "required": True,
    "description": "The bytes of the part as they are, of exactly the length that the upload has for it.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    response_model=UploadView,
    responses=problems(
        *_OWN, KeyNotOwn, Invalid, NotOfferedYet, TooLarge, IdempotencyKeyReused, IdempotencyKeyInFlight
    ),
)
@costs(Cost(OWNERS, body_bytes=None, values=FEW_VALUES))
def open_upload(
    dataset_id: DatasetId, body: NewUpload, caller: Caller, db: Db, key: MaybeIdempotencyKey = None
) -> JSONResponse:
    """Announce a file that comes in parts, for a declared dataset or a draft of one's own.

    Send each part by `PUT`, in any order, then `complete`. The file counts against its owner's disk from here on. An
    upload is erased a day after its last part, seven days after this request at the latest.
    """
    view, replayed = service.begin(db, caller, dataset_id, body.bytes, body.media_type, body.part_bytes, key)
    headers = {"Location": f"/v1/datasets/{dataset_id}/uploads/{view['id']}"}
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    return JSONResponse(view, status_code=status.HTTP_201_CREATED, headers=headers)


@router.get("", responses=problems(NotFound, Forbidden))
@costs(READ)
def list_uploads(dataset_id: DatasetId, caller: Caller, db: Db) -> Page[UploadView]:
    """List the open uploads of a dataset or draft of one's own, newest first."""
    return Page(data=service.page(db, caller, dataset_id), has_more=False)


@router.get("/{upload_id}", responses=problems(*_OWN))
@costs(READ)
def get_upload(dataset_id: DatasetId, upload_id: UploadId, caller: Caller, db: Db) -> UploadWithPartsView:
    """Show an upload with the parts that are there, so that a client goes on with the others."""
    return service.get(db, caller, dataset_id, upload_id)


@router.put(
    "/{upload_id}/parts/{number}",
    openapi_extra={"requestBody": _PART},
    responses=problems(*_OWN, Invalid, DigestMismatch, TooLarge),
)
@costs(Cost(OWNERS, Work.UPLOAD, body_bytes=service.MOST_PART_BYTES, announced=True))
async def put_part(
    dataset_id: DatasetId,
    upload_id: UploadId,
    number: Number,
    request: Request,
    caller: Caller,
    db: Db,
    content_digest: _Digest,
) -> UploadPartView:
    """Send one part. The same bytes again change nothing; others take the place of those that are there.

    All parts are of the length that the upload says, and the last one has the rest. A body that is shorter, longer or
    of another digest is refused, and the stored part stays.
    """
    digest = digest_of(content_digest)

    def work(body: Iterator[bytes]) -> UploadPartView:
        return parts.put(db, caller, dataset_id, upload_id, number, digest, body)

    return await uploads.in_thread(request, THREADS, work)


def digest_of(header: str) -> bytes:
    """Return the SHA-256 that a Content-Digest header names, 32 bytes.

    Raises:
        Invalid: it names none.
    """
    # RFC 9530 lets a header name several digests; the first good one of this kind counts.
    for member in header.split(","):
        name, _, value = member.strip().partition("=")
        if name == _ALGORITHM and value.startswith(":") and value.endswith(":"):
            try:
                # Without `validate` characters that are no base64 would be dropped in silence.
                found = base64.b64decode(value[1:-1], validate=True)
            except (binascii.Error, ValueError):
                continue
            if len(found) == _DIGEST_BYTES:
                return found
    fix = f"send the SHA-256 of the body in base64 between colons, such as {_EXAMPLE}"
    raise Invalid("Content-Digest names no SHA-256.", FieldError("#header/Content-Digest", fix))


@router.post("/{upload_id}/complete", responses=problems(*_OWN, *OF_A_FILE))
@costs(Cost(OWNERS, Work.UPLOAD, announced=True))
async def complete_upload(dataset_id: DatasetId, upload_id: UploadId, caller: Caller, db: Db) -> DatasetView:
    """Give the dataset its records once all parts are there, as if the file had come whole.

    A file that is refused keeps its parts: mend the draft, or send parts again, and repeat this. Repeating it after it
    succeeded answers the dataset.
    """
    return await to_thread.run_sync(parts.complete, db, caller, dataset_id, upload_id, limiter=THREADS)


@router.delete(
    "/{upload_id}",
    status_code=status.HTTP_204_NO_CONTENT,
    response_class=Response,
    responses=problems(*_OWN),
)
@costs(Cost(OWNERS))
def end_upload(dataset_id: DatasetId, upload_id: UploadId, caller: Caller, db: Db) -> None:
    """End an upload and erase its parts; the dataset or draft stays as it is."""
    service.end(db, caller, dataset_id, upload_id)
