"""API keys and who they speak for."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response, status

from api.body import StrictRoute
from api.cost import CHANGE, POST, READ, costs
from api.deps import After, Caller, Db, Limit, MaybeIdempotencyKey, capped, page
from api.errors import problems
from api.schemas import NewKey
from core.base.errors import (
    Conflict,
    Forbidden,
    IdempotencyKeyInFlight,
    IdempotencyKeyReused,
    NotFound,
    Unauthenticated,
)
from core.service import keys as service
from core.service import quotas
from farthing.schemas.keys import KeyView, NewKeyView, PrincipalView, UsageView
from farthing.schemas.problems import Page

router = APIRouter(prefix="/v1", tags=["keys"], route_class=StrictRoute, responses=problems(Unauthenticated))
KeyId = Annotated[str, Path(max_length=60)]


@router.post(
    "/keys",
    status_code=status.HTTP_201_CREATED,
    responses=problems(Forbidden, NotFound, Conflict, IdempotencyKeyReused, IdempotencyKeyInFlight),
)
@costs(POST)
def create_key(
    body: NewKey, caller: Caller, db: Db, request: Request, response: Response, key: MaybeIdempotencyKey = None
) -> NewKeyView:
    """Make a key: of one's own principal, or as an admin of a new one or of one that holds no records.

    The secret is in this answer and nowhere else.
    """
    view, replayed = service.create(
        db,
        caller,
        name=body.name,
        role=body.role,
        principal_id=body.principal,
        lasts_seconds=body.expires_in_seconds,
        idempotency_key=key,
    )
    request.state.target = f"keys/{view.id}"
    if replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return view


@router.get("/keys")
@costs(READ)
def list_keys(
    caller: Caller,
    db: Db,
    principal: Annotated[str | None, Query(max_length=60, description="a principal; default: every listed one")] = None,
    after: After = None,
    limit: Limit = 20,
) -> Page[KeyView]:
    """List keys, newest first: all of them for an admin, one's own otherwise."""
    return page(service.page(db, caller, after, capped(limit) + 1, principal), capped(limit))


@router.post("/keys/{key_id}/revoke", responses=problems(NotFound, Forbidden))
@costs(CHANGE)
def revoke_key(key_id: KeyId, caller: Caller, db: Db) -> KeyView:
    """Stop a key for good."""
    return service.revoke(db, caller, key_id)


@router.post("/keys/{key_id}/rotate", responses=problems(NotFound, Forbidden))
@costs(CHANGE)
def rotate_key(key_id: KeyId, caller: Caller, db: Db, request: Request) -> NewKeyView:
    """Replace a key by a fresh one; the old one stops at once."""
    view = service.rotate(db, caller, key_id)
    request.state.target = f"keys/{key_id}/rotate/{view.id}"
    return view


@router.get("/me")
@costs(READ)
def who_am_i(caller: Caller) -> PrincipalView:
    """Tell who the key of this request speaks for."""
    return service.whoami(caller)


@router.get("/usage")
@costs(READ)
def show_usage(caller: Caller, db: Db) -> UsageView:
    """Show what the caller's files take on the disk, and may take."""
    return quotas.usage(db, caller)
