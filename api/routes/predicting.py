"""Predictions of files at the address of predictions: CSV, Arrow and Parquet, by Content-Type and Accept."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

from anyio import CapacityLimiter
from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from starlette.background import BackgroundTask
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

from api import uploads
from api.body import StrictRoute
from api.cost import ANYBODY, Cost, Work, costs
from api.deps import Caller, Db
from core.base.errors import FieldError, Invalid
from core.records.answering import Kind, Media
from core.records.decoding.decode import format_of
from core.records.encryption import Decrypting
from core.service import predicting as service
from core.service.models import is_mock

CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
PARQUET: Final = "application/vnd.apache.parquet"
KINDS: Final[dict[str, Kind]] = {CSV: "csv", ARROW: "arrow-stream", PARQUET: "parquet"}
"""Formats of an answer by their media types."""
ALIKE: Final[dict[Media, Kind]] = {
    "csv": "csv",
    "parquet": "parquet",
    "arrow-file": "arrow-stream",
    "arrow-stream": "arrow-stream",
}
"""Formats of an answer by those of the rows, where nothing else is wanted."""
THREADS: Final = CapacityLimiter(uploads.MOST_THREADS)
_PIECE_BYTES: Final = 2**18
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
BODIES: Final[dict[str, Any]] = {
    "requestBody": {"content": {CSV: _BINARY, ARROW: _BINARY, PARQUET: _BINARY}},
    "parameters": [
        {
            "name": "level",
            "in": "query",
            "required": False,
            "schema": {"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 1},
            "description": "of a file's intervals; JSON has it in its body",
        }
    ],
}
"""Bodies and the parameter that a file may have beside JSON, for the OpenAPI document."""
ANSWERS: Final[dict[str, Any]] = {CSV: _BINARY, ARROW: _BINARY, PARQUET: _BINARY}


class FileRoute(StrictRoute):
    """A route of requests whose body is a file; another route of the same path takes the others."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the path and a Content-Type that names a format of files."""
        match, child = super().matches(scope)
        if match is Match.FULL and format_of(Headers(scope=scope).get("content-type")) not in ALIKE:
            return Match.NONE, {}
        return match, child


router = APIRouter(route_class=FileRoute)


@router.post("/v1/models/{model_id}/predict", include_in_schema=False)
@costs(Cost(ANYBODY, Work.UPLOAD, body_bytes=None, answered=True))
async def predict_file(
    model_id: str,
    request: Request,
    caller: Caller,
    db: Db,
    level: Annotated[float | None, Query(gt=0.5, lt=1)] = None,
) -> StreamingResponse:
    """Predict the rows of a file; the answer has them all with the predictions beside them."""
    (media,) = (one for one in ALIKE if one == format_of(request.headers.get("content-type")))
    kind = wanted(request.headers.getlist("accept"), media)

    def work(body: Iterator[bytes]) -> Decrypting:
        return service.predict(db, caller, model_id, body, media=media, kind=kind, level=level)

    answer = sent(await uploads.in_thread(request, THREADS, work), kind)
    if is_mock(model_id):
        answer.headers["Farthing-Mock"] = "true"
    return answer


def sent(answer: Decrypting, kind: Kind) -> StreamingResponse:
    """Return an answer as it is sent: in pieces, and closed at its end."""
    (media_type,) = (name for name, one in KINDS.items() if one == kind)
    pieces = iter(lambda: answer.read(_PIECE_BYTES), b"")
    headers = {"Content-Length": str(answer.size)}
    return StreamingResponse(pieces, media_type=media_type, headers=headers, background=BackgroundTask(answer.close))


def wanted(accept: list[str], media: Media) -> Kind:
    """Return the format that a client wants most of an answer; that of its rows where it takes any.

    Raises:
        Invalid: it takes none of them.
    """
    said = []
    for one in ",".join(accept).split(","):
        name, *details = one.strip().lower().split(";")
        quality = next((text.strip()[2:] for text in details if text.strip().startswith("q=")), "1")
        said.append((name.strip(), quality))
    # Stable: of two with the same weight the first wins.
    for name, quality in sorted(said, key=lambda one: one[1], reverse=True):
        if quality.strip("0.") == "":
            continue
        kind = format_of(name)
        if kind is not None and kind in ALIKE:
            return ALIKE[kind]
        if name in {"", "*/*"}:
            return ALIKE[media]
        if name in {"text/*", "application/*"}:
            return "csv" if name == "text/*" else ("parquet" if media == "parquet" else "arrow-stream")
    fix = f"ask for one of {', '.join(KINDS)}, or leave the header out"
    raise Invalid("A file is answered with a file.", FieldError("#header/accept", fix))
