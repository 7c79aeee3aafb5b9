"""What is signed: certificates of jobs, heads of ledgers, and the public keys that both are checked with."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from api.body import StrictRoute
from api.cost import HEAVY_READ, PUBLIC, costs
from api.deps import Caller, Db
from api.errors import problems
from core.base.errors import Conflict, NotFound, NotReady, ScopeFrozen, Unauthenticated
from core.service import certificates as service

MEDIA_TYPE = "application/jose"
"""Of a JWS in compact form (RFC 7515, 9.2.1)."""

router = APIRouter(tags=["certificates"], route_class=StrictRoute)
_SIGNED: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            MEDIA_TYPE: {
                "schema": {
                    "type": "string",
                    "pattern": r"^[\w-]+\.[\w-]+\.[\w-]+$",
                    "examples": ["eyJhbGciOiJFZDI1NTE5In0.eyJvYmplY3QiOiJoZWFkIn0.c2lnbmF0dXJl"],
                }
            }
        }
    }
}


@router.get(
    "/v1/jobs/{job_id}/certificate",
    response_class=Response,
    responses={**_SIGNED, **problems(Unauthenticated, NotFound, Conflict, ScopeFrozen, NotReady)},
)
@costs(HEAVY_READ)
def get_certificate(job_id: Annotated[str, Path(max_length=60)], caller: Caller, db: Db) -> Response:
    """Show what an ended job drew, cost and promises, and where the ledger says so, signed (a JWS)."""
    return Response(service.certificate(db, caller, job_id), media_type=MEDIA_TYPE)


@router.get(
    "/v1/scopes/{scope_id}/head/signed",
    response_class=Response,
    responses={**_SIGNED, **problems(Unauthenticated, NotFound, ScopeFrozen, NotReady)},
)
@costs(HEAVY_READ)
def get_signed_head(scope_id: Annotated[str, Path(max_length=60)], caller: Caller, db: Db) -> Response:
    """Show where a scope's chain stands, signed (a JWS), to keep where the operator cannot reach."""
    return Response(service.signed_head(db, caller, scope_id), media_type=MEDIA_TYPE)


@router.get("/.well-known/jwks.json", responses=problems(NotReady))
@costs(PUBLIC)
def show_keys(db: Db) -> dict[str, Any]:
    """Show the public keys of certificates and heads, those that signed earlier among them; no key is needed."""
    return service.published(db)
