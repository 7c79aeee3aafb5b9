"""Decisions on releases that wait: an owner's word goes into the chain of each of its scopes, and the model follows."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import Conflict
from core.db.tables import Approval, Job, Model, Scope
from core.jobs import federations
from core.ledger import releases
from core.ledger.claims import lock_job
from core.ledger.releases import Said


def judge(session: Session, model: Model, job: Job, said: Said, *, reason: str, actor: str) -> None:
    """Note what an owner says of a release, for each of its scopes that asks.

    Of a federated job's, all scopes that ask must approve, and one is enough to reject.

    Args:
        session: an open write transaction.
        model: the one whose release waits.
        job: that made it.
        said: by the owner.
        reason: for people; it stays in the chain for ever.
        actor: the owner's id.

    Raises:
        Conflict: the release was judged otherwise before.
        LedgerFrozen: the ledger is behind its witness.
    """
    lock_job(session, job.id)
    if model.approval not in {"pending", said}:
        raise Conflict(f"This release is {model.approval}.")
    rows = {row.scope_id: row for row in approvals_of(session, model.id)}
    paying = federations.asked_of(federations.clients_of(session, job.id), rows) if job.is_federated else [job]
    own = [one for one in paying if session.get_one(Scope, one.scope_id).owner_id == actor]
    mine = [rows[one.scope_id] for one in own if job.is_federated]
    if any(row.verdict not in {"pending", said} for row in mine):
        raise Conflict("You have judged this release otherwise before: a decision is final.")
    releases.withhold(session, paying)  # a release from before 0.2 waits by its row alone
    releases.note_decision(session, own, said, reason, actor)
    for row in mine:
        row.verdict = said
    model.approval = releases.outcome([row.verdict for row in rows.values()]) if job.is_federated else said
    session.flush()


def approvals_of(session: Session, model_id: str) -> Sequence[Approval]:
    """Return what each scope that asks for approval has said of a federated job's model; nothing for other models."""
    statement = select(Approval).where(Approval.model_id == model_id).order_by(Approval.scope_id)
    return session.execute(statement).scalars().all()
