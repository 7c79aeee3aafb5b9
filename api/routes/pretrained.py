"""Public weights that networks start from. `GET /v1/weights` lists the weights that losses have, which are others."""

from collections.abc import Iterator
from typing import Annotated

from anyio import CapacityLimiter
from fastapi import APIRouter, Path, Query, Request, Response, status
from fastapi.responses import JSONResponse

from api import uploads
from api.body import StrictRoute
from api.cost import READ, SUBMITTERS, Cost, Work, costs
from api.deps import After, Caller, Db, Limit, capped, page
from api.errors import problems
from core.base.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge, Unauthenticated, UnsupportedMedia
from core.base.patterns import Pattern
from core.records.weights import MOST_BYTES
from core.service import weights as service
from farthing.schemas.models import WeightsView
from farthing.schemas.problems import Page

router = APIRouter(
    prefix="/v1/pretrained", tags=["pretrained"], route_class=StrictRoute, responses=problems(Unauthenticated)
)
WeightsId = Annotated[str, Path(max_length=60)]
_Name = Annotated[
    str,
    Pattern(r"^[^\x00-\x1f\x7f]{1,200}$", "1 to 200 characters, none of them a control character", "digits"),
]
MEDIA = frozenset({"application/octet-stream", "application/vnd.safetensors"})
_BODY = {
    "required": True,
    "description": "The bytes of a safetensors file; application/vnd.safetensors is taken, too.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
_threads = CapacityLimiter(uploads.MOST_THREADS)


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    response_model=WeightsView,
    openapi_extra={"requestBody": _BODY},
    responses=problems(Forbidden, Invalid, TooLarge, UnsupportedMedia),
)
@costs(Cost(SUBMITTERS, Work.UPLOAD, body_bytes=MOST_BYTES))
async def create_pretrained(
    request: Request,
    caller: Caller,
    db: Db,
    name: Annotated[_Name, Query()] = "weights",
) -> JSONResponse:
    """Upload weights that are public: a safetensors file, tensors named by their layer's place, such as `0.weight`.

    The uploader declares that no record of a dataset here has a part in them; they cost no budget.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in MEDIA:
        raise UnsupportedMedia("Send the bytes of a safetensors file as application/octet-stream.")

    def work(body: Iterator[bytes]) -> tuple[WeightsView, bool]:
        return service.create(db, caller, name, body)

    view, replayed = await uploads.in_thread(request, _threads, work)
    headers = {"Location": f"/v1/pretrained/{view.id}"} | ({"Idempotency-Replayed": "true"} if replayed else {})
    return JSONResponse(view.model_dump(mode="json"), status_code=status.HTTP_201_CREATED, headers=headers)


@router.get("")
@costs(READ)
def list_pretrained(caller: Caller, db: Db, after: After = None, limit: Limit = 20) -> Page[WeightsView]:
    """List one's own weights, newest first."""
    return page(service.page(db, caller, after, capped(limit) + 1), capped(limit))


@router.get("/{weights_id}", responses=problems(NotFound))
@costs(READ)
def get_pretrained(weights_id: WeightsId, caller: Caller, db: Db) -> WeightsView:
    """Show the tensors of some weights and their shapes."""
    return service.get(db, caller, weights_id)


@router.delete(
    "/{weights_id}",
    status_code=status.HTTP_204_NO_CONTENT,
    response_class=Response,
    responses=problems(NotFound, Forbidden, Conflict),
)
@costs(Cost(SUBMITTERS))
def delete_pretrained(weights_id: WeightsId, caller: Caller, db: Db) -> None:
    """Forget weights; models trained from them stay."""
    service.delete(db, caller, weights_id)
