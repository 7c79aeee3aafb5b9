"""The ledger and its witness compared: at start, while serving, and before a child begins."""

import secrets
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import LedgerBusy, NotReady
from core.db.database import Database
from core.db.service_tables import Secret
from core.db.tables import Dataset, Job, Scope
from core.ledger.claims import epoch_seen, freeze_found, frozen_reason, put_secret
from core.ledger.witness.witness import DAMAGED, MISSING, Witness, hashes_at, mark_witnessed, server_identity, witnessed
from core.ledger.witness.witness_file import Name

ANOTHER: Final = "the witness is another one, or was emptied."
NAME: Final = "ledger-witness"
"""Of the secret that keeps the witness's name."""


def compare(database: Database, witness: Witness, job_id: str | None = None) -> list[str]:
    """Return in what the ledger is behind its witness; empty where it is not.

    Args:
        database: the ledger.
        witness: the heads that were seen of it.
        job_id: look at the scopes that pay for this job only.
    """
    scopes = None if job_id is None else witness.scopes_of(database, job_id)
    if job_id is None and not witness.is_readable():
        return [DAMAGED]
    # The witness first: all that it holds must be in a snapshot that is opened later.
    seen, lost = witness.look(scopes)
    problems = [f"the witness has lost what it knew of {one}." for one in lost]
    with database.read() as session:
        if not witness.exists():
            return [MISSING] if _needs_witness(session) else []
        remembered, name = _remembered(session), witness.name()
        if remembered is not None and (name is None or name.own != remembered):
            back = name is not None and remembered in name.before
            problems.append("the ledger was put back to before a reconciliation." if back else ANOTHER)
        forgotten = witness.forgotten([one for one in witnessed(session, scopes) if one not in seen])
        problems += [f"the witness does not know {one} any more." for one in forgotten]
        if witness.identity() != server_identity(session):
            problems.append("the database server is another one, or was restored to another timeline.")
        hashes = hashes_at(session, {scope_id: known.seq for scope_id, known in seen.items()})
        for scope_id, known in seen.items():
            if scope_id not in hashes:
                problems.append(f"{scope_id} has lost entries: entry {known.seq} was witnessed.")
            elif hashes[scope_id] != known.head:
                problems.append(f"{scope_id} has another history: entry {known.seq} is not the one witnessed.")
        if job_id is None:
            found = risen(session, witness.erased())
            problems += [f"{dataset.id}, or this file of it, was erased, and is back." for dataset in found]
    return problems


def guard(database: Database, witness: Witness) -> list[str]:
    """Compare at start; freeze a ledger that is behind, and give a new one its witness.

    Raises:
        NotReady: the witness does not answer, or its place could lose a head.
    """
    witness.check()
    problems = _freeze_where_behind(database, witness)
    if not problems:
        _acquaint(database, witness)
    return problems


def _freeze_where_behind(database: Database, witness: Witness, job_id: str | None = None) -> list[str]:
    """Compare, and freeze a ledger that is behind; return what is wrong.

    A reconciliation may end between the two. Its new epoch then makes the finding void, and both are compared again.
    """
    while True:
        with database.read() as session:
            seen = epoch_seen(session)
        problems = compare(database, witness, job_id)
        if not problems or database.transaction(freeze_found, problems[0], seen):
            return problems


def _needs_witness(session: Session) -> bool:
    """Say whether a ledger is not empty: it has had a witness and has a scope, or it has a job."""
    had = _remembered(session) is not None
    return session.execute(select(Scope.id if had else Job.id).limit(1)).first() is not None


def _acquaint(database: Database, witness: Witness) -> None:
    """Have a ledger and a witness that agree remember each other: a new one is made, one without a name is given one.

    The database decides on the name, so that processes that start at once come to the same one.
    """
    name = witness.name() if witness.exists() else None

    def remember(session: Session) -> str:
        put_secret(session, NAME, secrets.token_hex(16) if name is None else name.own, keep=True)
        own = _remembered(session)
        assert own is not None, "it was stored above"
        return own

    with database.read() as session:
        own = _remembered(session)
    own = own or database.transaction(remember)
    if not witness.exists():
        witness.start(database, Name(own))
    elif name is None:
        witness.call(own)
    seen = witness.read()
    with database.read() as session:
        # A process may have died between its write to the witness and the mark in the database.
        fresh = seen.keys() - witnessed(session, None)
    if fresh:
        database.transaction(mark_witnessed, list(fresh))


def watch(database: Database, witness: Witness, job_id: str | None = None) -> list[str]:
    """Compare while serving, since a database may be put back at any time; freeze a ledger that is behind.

    Args:
        database: the ledger.
        witness: the heads that were seen of it.
        job_id: look at the scopes that pay for this job only.

    Raises:
        LedgerBusy: the witness does not answer.
    """
    try:
        return _freeze_where_behind(database, witness, job_id)
    except NotReady as error:
        raise LedgerBusy(f"The witness: {error.detail}", retry_after_seconds=2) from error


def is_own(database: Database, witness: Witness) -> bool:
    """Say whether a witness is there and is the database's own, by its name of now or of before a reconciliation."""
    if not witness.exists() or not witness.is_readable():
        return False
    with database.read() as session:
        remembered = _remembered(session)
    name = witness.name()
    return name is None if remembered is None else name is not None and remembered in (name.own, *name.before)


def refuse_strange(database: Database, witness: Witness) -> None:
    """Refuse a witness that is not the ledger's own, before a comparison with it would freeze the ledger.

    Raises:
        NotReady: a place without it; a ledger that never had one, or is frozen already, is served.
    """
    with database.read() as session:
        settled = _remembered(session) is None or frozen_reason(session) is not None
    if not settled and not is_own(database, witness):
        raise NotReady(
            f"The ledger's witness is not at {witness.path}. Give FARTHING_WITNESS the place that the API has, and see "
            "that this machine can read it. If it was lost, run `farthing reconcile`."
        )


def _remembered(session: Session) -> str | None:
    """Return the name of the database's own witness; None where it never had one, or before witnesses had names."""
    return session.execute(select(Secret.value).where(Secret.name == NAME)).scalar_one_or_none()


def risen(session: Session, erased: set[str]) -> list[Dataset]:
    """Return the datasets that were erased, or whose file was destroyed, and that are here all the same."""
    if not erased:
        return []
    present = session.execute(select(Dataset).where(Dataset.state.in_(("pending", "ready"))).order_by(Dataset.id))
    return [dataset for dataset in present.scalars() if erased & {dataset.id, dataset.location}]
