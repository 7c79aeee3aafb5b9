"""The envelope of every request: an id, headers, the access log, metrics, and a problem when something broke."""

import errno
import re
from collections.abc import Sequence
from http import HTTPStatus
from time import perf_counter
from typing import Any

import structlog
from anyio import to_thread
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.audit_log import AuditLog, is_upload, operation, public_outcome
from api.errors import problem
from api.metrics import Metrics
from core.base.errors import DiskFull, Invalid, NotFound
from core.base.identifiers import new_id
from core.base.logs import describe

log = structlog.get_logger("farthing.api")

JOB_ID = re.compile(r"job_[0-9a-z]{26}")
MOST_PARAMETERS = 100
"""Of a query; parsing each takes as long as a small request."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


_SEALS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer: a page of ours loads nothing and runs nothing, whatever its texts say, and no other frames it."""


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_SAID_ONCE = (b"authorization", b"content-type", b"idempotency-key", b"if-match", b"last-event-id", b"content-digest")
"""Headers of which two servers in a row could each heed another one."""


def _is_framed_twice(names: Sequence[bytes]) -> bool:
    """Tell whether two servers in a row could see the end of a request at two places."""
    framing = names.count(b"transfer-encoding"), names.count(b"content-length")
    return all(framing) or max(framing) > 1


def _unreadable(scope: Scope) -> tuple[int, str] | None:
    """Return status and text for a request that two servers in a row could read in two ways, or that nobody can."""
    names = [name for name, _ in scope["headers"]]
    if _is_framed_twice(names):
        return 400, "A request says where its body ends once: by Content-Length or by Transfer-Encoding."
    twice = [name.decode() for name in _SAID_ONCE if names.count(name) > 1]
    if twice:
        return 400, f"A request has one header {twice[0]} at most."
    path, query = scope.get("raw_path", b""), scope["query_string"]
    if b"%00" in path or b"%00" in query:
        return 422, "A path or a query holds no NUL; databases could not store it."
    # Routes match the decoded path, where such a slash would divide a name.
    if b"%2f" in path.lower():
        return 404, "There is nothing at this address: no name in a path has a slash in it."
    if query.count(b"&") >= MOST_PARAMETERS:
        return 422, f"A query has {MOST_PARAMETERS} parameters at most."
    return None


class Envelope:
    """Pure ASGI, so that uploads and event streams pass through without being collected."""

    def __init__(self, app: ASGIApp, metrics: Metrics, audit_log: AuditLog) -> None:
        """Wrap `app`; `audit_log` is written in a thread before the first byte of an answer."""
        self._app = app
        self._metrics = metrics
        self._audit_log = audit_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        request.state.request_id = new_id("req")
        request.state.ends = False
        started = perf_counter()
        begun = False

        async def reply(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                # Taken before the delay below, which would make refusals look slow in the metrics.
                seconds = perf_counter() - started
                if HTTPStatus.BAD_REQUEST <= message["status"] != HTTPStatus.INTERNAL_SERVER_ERROR:
                    await request.app.state.limits.delay(request)
                await self._answered(request, message, seconds)
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request.state.request_id):
            try:
                wrong = _unreadable(scope)
                if wrong is not None:
                    status, text = wrong
                    # It is not certain where such a request ends, so nothing more may be read from its connection.
                    request.state.ends = status == HTTPStatus.BAD_REQUEST
                    code = NotFound.code if status == HTTPStatus.NOT_FOUND else Invalid.code
                    await problem(request, status, code, text)(scope, receive, reply)
                    return
                await self._app(scope, receive, reply)
            except ClientDisconnect:  # in the middle of a body: there is nobody left to answer
                log.info("client-gone")
            except Exception as error:  # noqa: BLE001 - the last net: the answer must not carry the error's text
                log.error("unhandled", **describe(error))  # noqa: TRY400 - a traceback may hold data
                if not begun and isinstance(error, OSError) and error.errno in _NO_ROOM:
                    full = DiskFull("The service's disk is full; try again later.")
                    answer = problem(
                        request, 503, full.code, full.detail, retryable=True, actor="operator",
                        headers={"Retry-After": "60"},
                    )  # fmt: skip
                    await answer(scope, receive, reply)
                elif not begun:
                    answer = problem(
                        request, 500, "internal-error", "Something broke here; the operator's log has the request id.",
                        actor="operator",
                    )  # fmt: skip
                    await answer(scope, receive, reply)

    async def _answered(self, request: Request, message: Message, seconds: float) -> None:
        status: int = message["status"]
        route = getattr(request.scope.get("route"), "path", "unknown")
        # Any other method is text of the sender; as labels of metrics such texts would grow without bound.
        method = request.method if request.method in _METHODS else "OTHER"
        headers = MutableHeaders(scope=message)
        headers["X-Request-Id"] = request.state.request_id
        for name, value in _SEALS.items():
            # Pages and assets have set policies of their own, which stay.
            headers.setdefault(name, value)
        if request.state.ends:
            headers["Connection"] = "close"
        for name, value in getattr(request.state, "rate_headers", {}).items():
            headers[name] = value
        line = (
            None
            # The job's own transaction has written this line (`core.service.intake`).
            if getattr(request.state, "audited", False)
            else self._audit_log.line(request, status, headers.get("Location"))
        )
        if line is not None:
            await to_thread.run_sync(self._audit_log.record, line)
        done = operation(request)
        # Log and metrics are read by operators, who must not learn the fate of an upload's records.
        status, code = public_outcome(*done, status, getattr(request.state, "code", None))
        self._metrics.seen(method, route, status, None if is_upload(*done) else seconds, code)
        fields: dict[str, Any] = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
        caller = getattr(request.state, "caller", None)
        if caller is not None:
            fields["principal"] = caller.id
        if code is not None:
            fields["code"] = code
        if (job := _job_of(request, headers)) is not None:
            fields["job"] = job
        log.info("request", **fields)


def _job_of(request: Request, headers: MutableHeaders) -> str | None:
    """Return the job that a request is about or has made; text that only looks like an id is the client's own."""
    named = request.path_params.get("job_id") or headers.get("Location", "").removeprefix("/v1/jobs/")
    return named if re.fullmatch(JOB_ID, named) else None
