"""What the scopes of a federated job say of its model, where they have to approve it."""

from collections.abc import Sequence
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.tables import Approval, Model
from core.ledger.claims import lock_job


def judge(session: Session, model: Model, scope_ids: Sequence[str], verdict: Literal["approved", "rejected"]) -> None:
    """Note what some scopes say of a federated job's model: all must approve, and one is enough to reject."""
    lock_job(session, model.job_id)
    rows = {row.scope_id: row for row in approvals_of(session, model.id)}
    for scope_id in scope_ids:
        rows[scope_id].verdict = verdict
    said = {row.verdict for row in rows.values()}
    model.approval = next((word for word in ("rejected", "pending") if word in said), "approved")
    session.flush()


def approvals_of(session: Session, model_id: str) -> list[Approval]:
    """Return what each scope that asks for approval has said of a federated job's model; nothing for other models."""
    statement = select(Approval).where(Approval.model_id == model_id).order_by(Approval.scope_id)
    return list(session.execute(statement).scalars())
