"""Large files from a page: sent in parts, each checked, which go on after a broken line or a reload."""

from http import HTTPStatus
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from api.deps import Caller, Db
from api.pages.declaring import refused
from api.pages.drafts import arrived
from api.pages.routes import FormFields, PageRoute, page, value_of
from api.routes import parts as api
from api.routes.datasets import THREADS
from api.schemas import NewUpload
from core.base.errors import FieldError, Invalid, Refusal
from core.service import parted_uploads, parts
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.base import View

router = APIRouter(route_class=PageRoute)
DatasetId = Annotated[str, Path(max_length=60)]
UploadId = Annotated[str, Path(max_length=60)]


@page(router, "/datasets/{dataset_id}/uploads", api=api.list_uploads)
def list_uploads(dataset_id: DatasetId, caller: Caller, db: Db) -> Response:
    """List the open uploads of a dataset, for the script of the page."""
    return _json([one.model_dump(mode="json") for one in parted_uploads.page(db, caller, dataset_id)])


@page(router, "/datasets/{dataset_id}/uploads", api=api.open_upload, method="POST")
def open_upload(dataset_id: DatasetId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Open an upload in parts."""
    try:
        view = _begin(db, caller, dataset_id, value_of(form, "bytes"), value_of(form, "media_type"))
    except Refusal as refusal:
        return refused(request, refusal)
    return _json(view, HTTPStatus.CREATED)


def _begin(context: Context, caller: Principal, dataset_id: str, size: str, media: str) -> dict[str, Any]:
    try:
        asked = NewUpload.model_validate({"bytes": int(size), "media_type": media})
    except (ValueError, ValidationError):
        fix = FieldError("/bytes", "send the size of the file in bytes, and its media type")
        raise Invalid("This is no file that comes in parts.", fix) from None
    view, _ = parted_uploads.begin(context, caller, dataset_id, asked.bytes, asked.media_type, None, None)
    return view


@page(router, "/datasets/{dataset_id}/uploads/{upload_id}", api=api.get_upload)
def show_upload(dataset_id: DatasetId, upload_id: UploadId, caller: Caller, db: Db) -> Response:
    """Return the parts that are there, for the script of the page."""
    return _json(parted_uploads.get(db, caller, dataset_id, upload_id))


@page(
    router,
    "/datasets/{dataset_id}/uploads/{upload_id}/parts/{number}",
    api=api.put_part,
    method="POST",
    streamed=True,
)
async def send_part(
    dataset_id: DatasetId,
    upload_id: UploadId,
    number: api.Number,
    request: Request,
    caller: Caller,
    db: Db,
    content_digest: Annotated[str, Header(alias="Content-Digest", max_length=1000)],
) -> Response:
    """Take one part."""
    try:
        return _json(await api.put_part(dataset_id, upload_id, number, request, caller, db, content_digest))
    except Refusal as refusal:
        return refused(request, refusal)


@page(router, "/datasets/{dataset_id}/uploads/{upload_id}/complete", api=api.complete_upload, method="POST")
async def complete(dataset_id: DatasetId, upload_id: UploadId, request: Request, caller: Caller, db: Db) -> Response:
    """Read the file whole; the script of the page goes to the report afterwards."""
    try:
        dataset = await to_thread.run_sync(parts.complete, db, caller, dataset_id, upload_id, limiter=THREADS)
    except Refusal as refusal:
        return refused(request, refusal)
    return arrived(dataset)


def _json(value: View | dict[str, Any] | list[dict[str, Any]], status: int = HTTPStatus.OK) -> Response:
    content = value.model_dump(mode="json") if isinstance(value, View) else value
    return JSONResponse(content, status, {"Cache-Control": "no-store"})
