"""The audit log: every request, its principal and its answer."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from api.body import StrictRoute
from api.cost import HEAVY_READ, OWNERS, WATCHERS, Cost, Work, costs
from api.deps import After, Caller, Db, Limit, capped, page
from api.errors import problems
from core.base import spreadsheets
from core.base.errors import Forbidden, Unauthenticated
from core.service import audit as service
from core.service import keys
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.activity import AuditView
from farthing.schemas.problems import Page

router = APIRouter(
    prefix="/v1/audit", tags=["admin"], route_class=StrictRoute, responses=problems(Unauthenticated, Forbidden)
)
T = TypeVar("T")
LOOK_SECONDS = 2.0
"""Between two looks at the key of a download that goes on."""
TEXT = {"schema": {"type": "string"}}


@router.get("")
@costs(HEAVY_READ)
def list_audit(caller: Caller, db: Db, after: After = None, limit: Limit = 100) -> Page[AuditView]:
    """List requests, newest first: all for admins and auditors, one's own and those about one's data otherwise."""
    return page(service.page(db, caller, after, capped(limit) + 1), capped(limit))


@router.get(
    "/export", response_class=Response, responses={200: {"content": {"application/x-ndjson": TEXT, "text/csv": TEXT}}}
)
@costs(Cost(OWNERS | WATCHERS, Work.HEAVY))
def export_audit(
    caller: Caller,
    db: Db,
    request: Request,
    kind: Annotated[Literal["jsonl", "csv"], Query(alias="format")] = "jsonl",
) -> StreamingResponse:
    """Download the audit log, oldest first: all for admins and auditors, for an owner what `GET /v1/audit` has."""
    caller.require("owner", "admin", "auditor")
    batches = while_valid(db, caller, service.export(db, caller))
    lines = _csv(batches) if kind == "csv" else _jsonl(batches)
    media = "text/csv" if kind == "csv" else "application/x-ndjson"
    headers = {"Content-Disposition": f'attachment; filename="audit.{kind}"'}
    pieces = resting(lines, partial(request.app.state.limits.pause, caller.id))
    return StreamingResponse(pieces, media_type=media, headers=headers)


def while_valid(db: Context, caller: Principal, batches: Iterable[T]) -> Iterator[T]:
    """Yield batches while the caller's key opens anything.

    Raises:
        Unauthenticated: it has ended; the answer, which has begun, breaks off.
    """
    looked_at = time.monotonic()
    for batch in batches:
        if time.monotonic() > looked_at + LOOK_SECONDS:
            looked_at = time.monotonic()
            if not keys.is_valid(db, caller):
                raise Unauthenticated("The key of this request has ended, or its principal was disabled, meanwhile.")
        yield batch


def resting(pieces: Iterator[T], pause: Callable[[float], float]) -> Iterator[T]:
    """Yield pieces, each after a rest that depends on how long the one before took to make: others ask meanwhile."""
    seconds = 0.0
    while True:
        # Starlette draws a synchronous iterator in a thread, so no event loop sleeps here.
        time.sleep(seconds)
        started = time.perf_counter()
        piece = next(pieces, None)
        if piece is None:
            return
        seconds = pause(time.perf_counter() - started)
        yield piece


def _jsonl(batches: Iterable[Sequence[AuditView]]) -> Iterator[bytes]:
    """Yield a batch of lines at a time: each piece is a hop to a thread and a write to a socket."""
    for views in batches:
        yield b"".join(view.model_dump_json().encode() + b"\n" for view in views)


def _csv(batches: Iterable[Sequence[AuditView]]) -> Iterator[bytes]:
    """Yield a batch of lines at a time."""
    names = [name for name in AuditView.model_fields if name != "object"]
    yield spreadsheets.lines([names]).encode()
    for views in batches:
        yield spreadsheets.lines([getattr(view, name) for name in names] for view in views).encode()
