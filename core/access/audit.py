"""The audit log: each request, its caller and its answer. Rows are only ever added; a trigger refuses anything else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from core.base.identifiers import new_id
from core.db import clock
from core.db.service_tables import Audit

PAGE: Final = 1000


@dataclass(frozen=True)
class Line:
    """One request: its caller, its subject and its answer."""

    principal_id: str | None
    """None where nobody was recognised."""
    action: str
    """The method and the route's pattern, for example ``POST /v1/jobs``."""
    target: str | None
    """The id of what it was about."""
    status: int
    code: str | None
    """The refusal's code, if it was one."""
    request_id: str
    """Also in the answer, so that the two can be matched."""


def append(session: Session, lines: Sequence[Line], at: float | None = None) -> None:
    """Add lines, in their order.

    Args:
        session: an open write transaction.
        lines: the lines to add.
        at: the database's time; read where it is left out.
    """
    if not lines:
        return
    at = clock.read(session) if at is None else at
    rows = [
        {
            "id": new_id("evt"),
            "principal_id": line.principal_id,
            "action": line.action[:100],  # cut to the lengths of columns, which PostgreSQL enforces
            "target": line.target and line.target[:200],
            "status": line.status,
            "code": line.code,
            "request_id": line.request_id[:60],
            "created_at": at,
        }
        for line in lines
    ]
    session.execute(insert(Audit), rows)


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
