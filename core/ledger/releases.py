"""Models compared with the entry that says what their job released: before they are signed, served, or built on."""

import json

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import ScopeFrozen
from core.db.tables import Entry, Job, Model
from core.ledger.digests import digest_of
from core.ledger.job_entries import Settle


def is_as_settled(session: Session, model: Model, job: Job) -> bool:
    """Say whether a model that is not retired is what its job's settlement names: of a federated job, its clients'.

    Entries of version 1 name none: of their jobs nothing is compared but that they were settled.
    """
    ids = select(Job.id).where(Job.federation_id == job.id, Job.place.is_not(None)) if job.is_federated else [job.id]
    found = select(Entry.body).where(Entry.job_id.in_(ids), Entry.kind == Settle.KIND)
    bodies = [json.loads(body) for body in session.execute(found).scalars()]
    named = [body["release"] for body in bodies if "release" in body]
    released = {name for name in named if name is not None}
    return bool(bodies) and (not named or released == {digest_of(model.release)})


def refuse_changed(session: Session, model: Model, job: Job) -> None:
    """Refuse a model that is not what its job's settlement names; arguments as `is_as_settled`.

    Raises:
        ScopeFrozen: it was changed beside the ledger.
    """
    if not is_as_settled(session, model, job):
        raise ScopeFrozen(
            "This model is not what the ledger says that its job released: it was changed in the database, and is not "
            "served. The operator restores its row from a backup; a clone of the job pays anew."
        )
