"""Who asked for what, and how it was answered. Rows are only ever added; a trigger refuses anything else."""

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.store import clock
from core.store.ids import new_id
from core.store.tables import Audit

PAGE: Final = 1000


def append(
    session: Session,
    *,
    principal_id: str | None,
    action: str,
    target: str | None,
    status: int,
    code: str | None,
    request_id: str,
) -> Audit:
    """Add a line.

    Args:
        session: an open write transaction.
        principal_id: who asked, None where nobody was recognised.
        action: the method and the route's pattern, for example ``POST /v1/jobs``.
        target: the id of what it was about.
        status: the HTTP status of the answer.
        code: the refusal's code, if it was one.
        request_id: also in the answer, so that the two can be matched.
    """
    row = Audit(
        id=new_id("evt"),
        principal_id=principal_id,
        action=action[:100],
        target=target and target[:200],
        status=status,
        code=code,
        request_id=request_id[:60],
        created_at=clock.now(),
    )
    session.add(row)
    session.flush()
    return row


def page(
    session: Session,
    *,
    after: str | None = None,
    limit: int = 100,
    principal_id: str | None = None,
    target: str | None = None,
) -> list[Audit]:
    """Return up to `limit` lines with an id above `after`, in order of id, all or those of a principal or a target."""
    statement = select(Audit).order_by(Audit.id).limit(limit)
    if after is not None:
        statement = statement.where(Audit.id > after)
    if principal_id is not None:
        statement = statement.where(Audit.principal_id == principal_id)
    if target is not None:
        statement = statement.where(Audit.target == target)
    return list(session.execute(statement).scalars())


def export(session: Session) -> Iterator[dict[str, Any]]:
    """Yield every line as a flat row, in order of id; pages of 1000 are read at a time."""
    after: str | None = None
    while rows := page(session, after=after, limit=PAGE):
        for row in rows:
            yield {column.name: getattr(row, column.name) for column in Audit.__table__.columns}
        after = rows[-1].id
        session.expunge_all()
