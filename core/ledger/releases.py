"""Releases in the ledger: which of them wait for an owner, what the owner said, and models compared with that.

A model is compared before it is signed, served, or built on.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any, Final, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import ScopeFrozen
from core.db import clock
from core.db.tables import Entry, Job, Model
from core.ledger import chain
from core.ledger.accounts import lock_scope
from core.ledger.bodies import Body
from core.ledger.claims import refuse_if_frozen
from core.ledger.digests import digest_of
from core.ledger.job_entries import Decide, Settle, Withhold

Said = Literal["approved", "rejected"]
_TELLING: Final = (Settle.KIND, Withhold.KIND, Decide.KIND)


def withhold(session: Session, paying: Sequence[Job]) -> None:
    """Write into the chains of some jobs that their release waits for the owner; of those that wait already, nothing.

    Args:
        session: an open write transaction that holds the jobs' locks.
        paying: the jobs, of a federated job its clients, sorted by scope.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    for job in paying:
        if not _has(session, job, Withhold):
            _append(session, job, Withhold, {})


def note_decision(session: Session, paying: Sequence[Job], said: Said, reason: str, actor: str) -> None:
    """Write into the chains of some jobs what the owner says of their release, where that is not in them yet.

    Args:
        session: an open write transaction that holds the jobs' locks.
        paying: as for `withhold`; their release waits.
        said: by the owner.
        reason: for people; it stays in the chain for ever.
        actor: the owner's id.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    for job in paying:
        if not _has(session, job, Decide):
            _append(session, job, Decide, {"outcome": said, "reason": reason, "actor": actor})


def decisions(session: Session, job_ids: Collection[str]) -> dict[str, tuple[dict[str, Any], float]]:
    """Return what the owner said of the release of each of some jobs, where that is an entry, and when it was said.

    Args:
        session: a snapshot.
        job_ids: the jobs, of a federated job its clients.

    Returns:
        By job, the members `outcome`, `reason` and `actor` of its entry `decide`, and the time in seconds.
    """
    if not job_ids:
        return {}
    statement = select(Entry.job_id, Entry.body, Entry.created_at)
    found = session.execute(statement.where(Entry.job_id.in_(list(job_ids)), Entry.kind == Decide.KIND))
    return {str(row.job_id): (json.loads(row.body), row.created_at) for row in found}


def outcome(said: Collection[str]) -> str:
    """Return what becomes of a release from what each of those who judge it said, `pending` where nothing yet."""
    if not said:
        return "not-needed"
    # One rejection outweighs all else, and one open decision outweighs every approval.
    return next((word for word in ("rejected", "pending") if word in said), "approved")


def is_as_entered(session: Session, model: Model, job: Job) -> bool:
    """Return whether a model that is not retired agrees with the entries of its job; of a federated job, its sites'.

    Its release is that of their settlements, and it was approved by its owners. Entries of version 1 say neither:
    of their jobs nothing is compared but that they were settled.
    """
    ids = select(Job.id).where(Job.federation_id == job.id, Job.place.is_not(None)) if job.is_federated else [job.id]
    found = select(Entry.body).where(Entry.job_id.in_(ids), Entry.kind.in_(_TELLING))
    bodies: list[dict[str, Any]] = [json.loads(body) for body in session.execute(found).scalars()]
    settled = [body for body in bodies if body["kind"] == Settle.KIND]
    named = [body["release"] for body in settled if "release" in body]
    # A federated job's sites that released nothing name null; all others must name this release.
    if not settled or (named and {name for name in named if name is not None} != {digest_of(model.release)}):
        return False
    return all(body["v"] == 1 for body in bodies) or model.approval == outcome(_said(bodies))


def _said(bodies: Sequence[dict[str, Any]]) -> list[str]:
    """Return what was said of each release that waits, `pending` where nothing was."""
    decided = {body["job"]: body["outcome"] for body in bodies if body["kind"] == Decide.KIND}
    return [decided.get(body["job"], "pending") for body in bodies if body["kind"] == Withhold.KIND]


def refuse_changed(session: Session, model: Model, job: Job) -> None:
    """Refuse a model that is not what the entries of its job say; arguments as `is_as_entered`.

    Raises:
        ScopeFrozen: it was changed beside the ledger.
    """
    if not is_as_entered(session, model, job):
        raise ScopeFrozen(
            "This model is not what the ledger says that its job released, or that its owner approved: it was changed "
            "in the database, and is not served. The operator restores its row from a backup; a clone of the job pays "
            "anew."
        )


def _has(session: Session, job: Job, form: type[Body]) -> bool:
    mine = select(Entry.seq).where(Entry.job_id == job.id, Entry.kind == form.KIND)
    return session.execute(mine).first() is not None


def _append(session: Session, job: Job, form: type[Body], content: dict[str, Any]) -> None:
    refuse_if_frozen(session)
    scope, at = lock_scope(session, job.scope_id), clock.read(session)
    still = {"accounts": {}, **content}
    chain.append(session, scope, form, at=at, job_id=job.id, attempt=0, chunk=0, content=still)
    session.flush()
