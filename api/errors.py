"""Refusals as `application/problem+json` (RFC 9457): one dict gives each its status."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from core.base import errors
from core.base.errors import FieldError, Refusal
from core.base.validation_errors import field_errors, said

STATUS: dict[type[Refusal], int] = {
    errors.Invalid: 422,
    errors.DigestMismatch: 422,
    errors.NotOfferedYet: 422,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.KeyNotOwn: 403,
    errors.NotFound: 404,
    errors.ModelRetired: 410,
    errors.ModelRetracted: 410,
    errors.Conflict: 409,
    errors.DuplicateDataset: 409,
    errors.NearCopy: 409,
    errors.ManyExcluded: 422,
    errors.PreconditionFailed: 412,
    errors.IdempotencyKeyMissing: 400,
    errors.IdempotencyKeyReused: 422,
    errors.IdempotencyKeyInFlight: 409,
    errors.AdjacencyMismatch: 422,
    errors.BudgetExhausted: 403,
    errors.DrawsExhausted: 403,
    errors.BudgetReserved: 409,
    errors.ScopeFrozen: 409,
    errors.LedgerFrozen: 503,
    errors.LedgerBusy: 503,
    errors.DatabaseAway: 503,
    errors.StaleAttempt: 409,
    errors.TooLarge: 413,
    errors.UnsupportedMedia: 415,
    errors.UnsupportedCoding: 415,
    errors.RateLimited: 429,
    errors.TooManyAtOnce: 429,
    errors.ServiceBusy: 503,
    errors.BodyTooSlow: 408,
    errors.QuotaExceeded: 413,
    errors.DiskFull: 503,
    errors.GpuUnavailable: 409,
    errors.NotReady: 503,
    errors.Diverged: 409,
}

MEDIA_TYPE = "application/problem+json"
_RETRY_SECONDS = {429: 1, 503: 1, 409: 5}


class ProblemResponse(JSONResponse):
    """A problem on the wire."""

    media_type = MEDIA_TYPE


def status_of(refusal: type[Refusal]) -> int:
    """Return the HTTP status of a refusal, or that of its nearest ancestor that has one."""
    return next((STATUS[kind] for kind in refusal.__mro__ if kind in STATUS), 422)


def problems(*refusals: type[Refusal]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of these refusals, to be shown beside an endpoint's answer."""
    by_status: dict[int, list[str]] = {}
    for refusal in refusals:
        by_status.setdefault(status_of(refusal), []).append(f"`{refusal.code}`: {refusal.__doc__}")
    return {status: _shown(" ".join(texts)) for status, texts in by_status.items()}


def _shown(text: str) -> dict[str, Any]:
    return {"description": text, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


UNREADABLE: Final[dict[int | str, dict[str, Any]]] = {
    400: _shown(
        "`invalid-request`: The request cannot be read: its head is too long, or says twice what it may say once."
    )
}
"""The OpenAPI response that any endpoint may give, for what is refused before it is known which endpoint was asked."""


def problem(
    request: Request,
    status: int,
    code: str,
    detail: str,
    *,
    retryable: bool = False,
    actor: str = "client",
    fields: Sequence[dict[str, str]] = (),
    facts: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return a problem response, or a page where people look, and leave its code where the access log finds it."""
    request.state.code = code
    if getattr(request.state, "is_page", False):
        shown: Response = request.app.state.problem_page(request, status, code, detail, retryable=retryable)
        return shown
    body = {
        "type": f"urn:farthing:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "retryable": retryable,
        "actor": actor,
        "errors": list(fields),
        "request_id": request.state.request_id,
    }
    # Facts come first, so that none can replace a member of the problem.
    return ProblemResponse({**(facts or {}), **body}, status_code=status, headers=headers)


def _refused(request: Request, refusal: Refusal) -> Response:
    status = status_of(type(refusal))
    headers = {}
    if refusal.retryable or refusal.retry_after_seconds is not None:
        seconds = refusal.retry_after_seconds or _RETRY_SECONDS.get(status, 1)
        headers["Retry-After"] = str(seconds)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(refusal, errors.UnsupportedCoding):
        headers["Accept-Encoding"] = "identity"  # RFC 9110, 15.5.16: what would be read
    return problem(
        request,
        status,
        refusal.code,
        refusal.detail,
        retryable=refusal.retryable,
        actor=refusal.actor,
        fields=[{"pointer": field.pointer, "detail": field.detail} for field in refusal.fields],
        facts=refusal.facts,
        headers=headers,
    )


_PARAMETERS = frozenset({"path", "query", "header", "cookie"})


def fields_of(found: Sequence[dict[str, Any]], body: Any) -> list[dict[str, str]]:  # noqa: ANN401 - any JSON
    """Return pydantic's errors as pointers and texts, without echoing what was sent; parameters as `#query/limit`."""
    parameters = [error for error in found if error["loc"] and error["loc"][0] in _PARAMETERS]
    inside = [{**error, "loc": error["loc"][1:]} for error in found if error not in parameters]
    named = [FieldError("#" + "/".join(map(str, error["loc"])), said(error)) for error in parameters]
    return [{"pointer": field.pointer, "detail": field.detail} for field in (*named, *field_errors(inside, body))]


def _invalid(request: Request, error: RequestValidationError) -> Response:
    fields = fields_of(error.errors(), error.body)
    named = ", ".join(dict.fromkeys(field["pointer"] or "the body" for field in fields[:3]))
    detail = f"The request is not valid at {named}." if fields else "The request is not valid."
    # FastAPI's own validation of parameters has no limit of errors, so one stands here.
    return problem(request, 422, errors.Invalid.code, detail, fields=fields[:100])


_HTTP_CODES = {404: errors.NotFound.code, 405: "method-not-allowed", 400: errors.Invalid.code}


def _http(request: Request, error: HTTPException) -> Response:
    code = _HTTP_CODES.get(error.status_code, errors.Invalid.code)
    headers = dict(error.headers) if error.headers else None
    nowhere = error.status_code == HTTPStatus.NOT_FOUND
    # No page route has matched here, so only the Accept header shows that a person looks.
    if nowhere and not request.url.path.startswith("/v1/") and "text/html" in request.headers.get("accept", ""):
        request.state.is_page = True
    detail = "There is nothing at this address; /openapi.json has every call." if nowhere else str(error.detail)
    return problem(request, error.status_code, code, detail, headers=headers)


def install(app: FastAPI) -> None:
    """Make every refusal, validation error and routing error a problem."""
    app.add_exception_handler(Refusal, _refused)  # type: ignore[arg-type] # Starlette types handlers by Exception
    app.add_exception_handler(RequestValidationError, _invalid)  # type: ignore[arg-type] # as above
    app.add_exception_handler(HTTPException, _http)  # type: ignore[arg-type] # as above
