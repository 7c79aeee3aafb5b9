"""The audit log: written for every request that changes something or shows what came from records."""

from collections.abc import Iterator

from core.access import audit
from core.access.audit import Line
from core.db import reads as queries
from core.db.reads import Viewer
from core.db.service_tables import Audit
from core.service.context import Caller, Context
from core.service.views import AuditView, rfc3339

_BATCH = 1000


def record(context: Context, line: Line) -> None:
    """Add a line, in a transaction of its own.

    Raises:
        LedgerBusy: the database took no lock in time.
    """
    context.database.run(audit.append, [line])


def page(context: Context, caller: Caller, after: str | None, limit: int) -> list[AuditView]:
    """Return up to `limit` lines, newest first: all for admins and auditors, the caller's own otherwise."""
    with context.database.read() as session:
        viewer = Viewer(caller.id, caller.role)
        own = None if viewer.sees_everything else caller.id
        return [AuditView(**line) for line in map(_public, queries.audit(session, own, after, limit))]


def export(context: Context) -> Iterator[list[AuditView]]:
    """Yield all lines, oldest first, batch by batch; each is read in a snapshot of its own, so none is held open."""
    after: str | None = None
    while True:
        with context.database.read() as session:
            rows = audit.page(session, after=after, limit=_BATCH)
            views = [AuditView(**_public(row)) for row in rows]
            after = rows[-1].id if rows else after
        if views:
            yield views
        if len(views) < _BATCH:
            return


def _public(row: Audit) -> dict[str, str | int | None]:
    return {
        "id": row.id,
        "principal": row.principal_id,
        "action": row.action,
        "target": row.target,
        "status": row.status,
        "code": row.code,
        "request_id": row.request_id,
        "created_at": rfc3339(row.created_at),
    }
