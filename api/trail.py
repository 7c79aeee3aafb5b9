"""Which requests leave a line in the audit trail, written before the first byte of their answer."""

import structlog
from starlette.requests import Request

from core.errors import Refusal
from core.service import audit
from core.service.context import Context

log = structlog.get_logger("farthing.api")

_READS = ("/v1/datasets/", "/v1/scopes/", "/v1/models/", "/v1/keys", "/v1/audit")
_JOB_READS = ("/report", "/artifacts", "/artifacts/{name}")


def _is_audited(method: str, route: str) -> bool:
    """Tell whether a request changes something or shows what came from records; estimates and polls do neither."""
    if not route.startswith("/v1/"):
        return False
    if method not in {"GET", "HEAD"}:
        return route != "/v1/estimates"
    return route.startswith(_READS) or (route.startswith("/v1/jobs/") and route.endswith(_JOB_READS))


class Trail:
    """Writes the trail of one application."""

    def __init__(self, context: Context) -> None:
        """Write into this service's database."""
        self._context = context

    def wants(self, request: Request, route: str) -> bool:
        """Tell whether a request leaves a line: unknown callers leave one in the log only."""
        return getattr(request.state, "caller", None) is not None and _is_audited(request.method, route)

    def record(self, request: Request, route: str, status: int) -> None:
        """Record one answered request that is wanted."""
        caller = request.state.caller
        target = getattr(request.state, "target", None) or request.url.path.removeprefix("/v1/")
        try:
            audit.record(
                self._context,
                caller,
                action=f"{request.method} {route}",
                target=target[:200],
                status=status,
                code=getattr(request.state, "code", None),
                request_id=request.state.request_id,
            )
        except Refusal as refusal:  # a busy database: the answer stands, the operator's log keeps the line
            log.error("audit-not-written", route=route, status=status, code=refusal.code)  # noqa: TRY400 - expected
