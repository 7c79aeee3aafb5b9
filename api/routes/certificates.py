"""Signed statements: certificates of jobs, heads of ledgers, and the public keys that check both."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response, status
from fastapi.responses import JSONResponse

from api.body import StrictRoute
from api.cost import HEAVY_READ, PUBLIC, QUESTION, costs
from api.deps import Caller, Db
from api.errors import problems
from api.schemas import SignedText
from core.base.errors import Conflict, Invalid, NotFound, NotReady, ScopeFrozen, Unauthenticated
from core.service import certificates as service
from core.service import checks
from core.service.backlogs import BehindView, LedgerBehindError
from farthing.schemas.checks import CertificateCheckView

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
    },
    202: {
        "model": BehindView,
        "description": "More than 10,000 entries of a ledger are still to be verified, as after some upgrades. That "
        "goes on beside requests: ask again after `Retry-After` seconds.",
        "headers": {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}},
    },
}


@router.get(
    "/v1/jobs/{job_id}/certificate",
    response_class=Response,
    responses={**_SIGNED, **problems(Unauthenticated, NotFound, Conflict, ScopeFrozen, NotReady)},
)
@costs(HEAVY_READ)
def get_certificate(job_id: Annotated[str, Path(max_length=60)], caller: Caller, db: Db) -> Response:
    """Show what an ended job drew, cost and promises, and where the ledger says so, signed (a JWS)."""
    return _signed(lambda: service.certificate(db, caller, job_id))


@router.get(
    "/v1/scopes/{scope_id}/head/signed",
    response_class=Response,
    responses={**_SIGNED, **problems(Unauthenticated, NotFound, ScopeFrozen, NotReady)},
)
@costs(HEAVY_READ)
def get_signed_head(scope_id: Annotated[str, Path(max_length=60)], caller: Caller, db: Db) -> Response:
    """Show where a scope's chain stands, signed (a JWS), to keep where the operator cannot reach."""
    return _signed(lambda: service.signed_head(db, caller, scope_id))


def _signed(made: Callable[[], str]) -> Response:
    """Return what is signed, or how far the verification is that it waits for."""
    try:
        return Response(made(), media_type=MEDIA_TYPE)
    except LedgerBehindError as behind:
        headers = {"Retry-After": str(behind.retry_after_seconds)}
        view = BehindView(verified_share=f"{behind.percent / 100:g}")
        return JSONResponse(view.model_dump(mode="json"), status.HTTP_202_ACCEPTED, headers)


@router.post("/v1/certificates/check", responses=problems(Unauthenticated, Invalid, NotReady))
@costs(QUESTION)
def check_certificate(body: SignedText, caller: Caller, db: Db) -> CertificateCheckView:
    """Check a certificate or a signed head: its signature, and its entries against the ledger here.

    A text that is not good is answered 200 as well, with `valid` false and what is wrong.
    """
    return checks.certificate(db, caller, body.certificate)


@router.get("/.well-known/jwks.json", responses=problems(NotReady))
@costs(PUBLIC)
def show_keys(db: Db) -> dict[str, Any]:
    """Show the public keys of certificates and heads, those that signed earlier among them; no key is needed."""
    return service.published(db)
