"""The audit log: written for every request that changes something or shows what came from records."""

from collections.abc import Iterator

from core.access import audit
from core.access.audit import Line
from core.db import reads as queries
from core.db.reads import Viewer
from core.db.service_tables import Audit
from core.service.context import Caller, Context
from core.service.views import rfc3339
from farthing.schemas.activity import AuditView

_BATCH = 1000


def record(context: Context, line: Line) -> None:
    """Add a line, in a transaction of its own.

    Raises:
        LedgerBusy: the database took no lock in time.
    """
    context.database.transaction(audit.append, [line])


def page(context: Context, caller: Caller, after: str | None, limit: int) -> list[AuditView]:
    """Return up to `limit` lines, newest first: all for admins and auditors.

    Otherwise they are the caller's own, and those about scopes, datasets, jobs, models and keys that are the caller's.
    """
    with context.database.read() as session:
        lines = queries.audit(session, Viewer(caller.id, caller.role), after, limit)
        return [AuditView(**_public(line)) for line in lines]


def export(context: Context, caller: Caller) -> Iterator[list[AuditView]]:
    """Yield the lines that `page` has, oldest first, batch by batch; each in a snapshot of its own: none stays open."""
    viewer = Viewer(caller.id, caller.role)
    after: str | None = None
    while True:
        with context.database.read() as session:
            rows = queries.audit(session, viewer, after, _BATCH, oldest_first=True)
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
