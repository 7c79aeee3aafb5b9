"""Which requests leave a line in the audit log, written before the first byte of their answer."""

from http import HTTPStatus

import structlog
from starlette.requests import Request

from core.access.audit import Line
from core.base.errors import Refusal
from core.service import audit
from core.service.context import Context

log = structlog.get_logger("farthing.api")

_READS = ("/v1/datasets/", "/v1/scopes/", "/v1/models/", "/v1/keys", "/v1/audit")
_JOB_READS = ("/report", "/artifacts", "/artifacts/{name}")
_UPLOADS = {
    ("POST", "/v1/datasets"),
    ("PATCH", "/v1/datasets/{dataset_id}"),
    ("PUT", "/v1/datasets/{dataset_id}/content"),
    ("POST", "/v1/datasets/{dataset_id}/uploads/{upload_id}/complete"),
    ("POST", "/v1/datasets/{dataset_id}/seal"),
}
# Statuses that depend on the records: an auditor must not learn which of them it was.
_OF_THE_FILE = {409, 413, 422}
_UPLOAD_REFUSED = (422, "upload-refused")
"""The public code of an upload that was refused for its content; its owner alone sees the reason."""


def public_outcome(method: str, route: str, status: int, code: str | None) -> tuple[int, str | None]:
    """Return status and code of an answer as everybody but its asker sees them."""
    if (method, route) in _UPLOADS and status in _OF_THE_FILE:
        return _UPLOAD_REFUSED
    return status, code


def is_upload(method: str, route: str) -> bool:
    """Return True if a request brought or removed records, or was about a draft: its duration reveals their fate."""
    return (method, route) in _UPLOADS or route.endswith("/removals")


def _is_audited(method: str, route: str) -> bool:
    """Tell whether a request changes something or shows what came from records; estimates and polls do neither."""
    if not route.startswith("/v1/"):
        return False
    if method not in {"GET", "HEAD"}:
        return not route.startswith(("/v1/estimates", "/v1/sweeps/estimates"))
    return route.startswith(_READS) or (route.startswith("/v1/jobs/") and route.endswith(_JOB_READS))


def operation(request: Request) -> tuple[str, str]:
    """Return method and route of a request; of a page those of the operation that it stands for."""
    deed = getattr(request.state, "deed", None)
    if deed is not None:
        return deed.method, deed.route
    return request.method, getattr(request.scope.get("route"), "path", "unknown")


class AuditLog:
    """Writes the audit log of one application."""

    def __init__(self, context: Context) -> None:
        """Write into this service's database."""
        self._context = context

    def line(self, request: Request, status: int, made: str | None = None) -> Line | None:
        """Return what the audit log is to say of a request; unknown callers leave a line in the log only.

        Args:
            request: with its caller, and its `target` where the path does not name what it made.
            status: of the answer.
            made: the address of what it made, as the answer's header has it.
        """
        caller = getattr(request.state, "caller", None)
        method, route = operation(request)
        path = made or request.url.path
        deed = getattr(request.state, "deed", None)
        if deed is not None:  # a page leaves the line of the operation that it stands for
            path = deed.path(request.path_params)
            # A form that succeeds redirects; the log has the status of the operation instead of 303.
            status = status if status >= HTTPStatus.BAD_REQUEST else deed.status
        if caller is None or not _is_audited(method, route):
            return None
        status, code = public_outcome(method, route, status, getattr(request.state, "code", None))
        return Line(
            principal_id=caller.id,
            action=f"{method} {route}",
            target=getattr(request.state, "target", None) or path.removeprefix("/v1/"),
            status=status,
            code=code,
            request_id=request.state.request_id,
        )

    def record(self, line: Line) -> None:
        """Write a line of a request that was answered, and whose work did not write it itself."""
        try:
            audit.record(self._context, line)
        except Refusal as refusal:  # a busy database: the answer stands, the operator's log keeps the line
            log.error("audit-not-written", action=line.action, status=line.status, code=refusal.code)  # noqa: TRY400 - expected
