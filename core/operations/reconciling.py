"""A ledger that is behind its witness, or has lost it, goes on: on the safe side, and by entries that say so."""

import secrets
from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import Conflict
from core.db import clock
from core.db.database import Database
from core.db.tables import Account, Job, Scope
from core.jobs import jobs
from core.ledger import chain, gaps, kinds
from core.ledger.accounts import lock_accounts, lock_scope, move, read_slots, terms_of
from core.ledger.bodies import slots
from core.ledger.claims import freeze_ledger, lock_job, put_secret, thaw_ledger
from core.ledger.scope_entries import draws_raised_to, raised_to
from core.ledger.tally import AccountTally
from core.ledger.witness.comparing import NAME, is_own, risen
from core.ledger.witness.witness import Witness, witnessed
from core.ledger.witness.witness_file import Name, Seen

UNDER_WAY: Final = "a reconciliation has not ended."


def unwitnessed(database: Database, witness: Witness) -> list[str]:
    """Return the scopes of which entries may be missing and nobody knows: all, or those that the witness has forgotten.

    Args:
        database: the ledger.
        witness: the remains of it.
    """
    own = is_own(database, witness)
    seen = witness.read() if own else {}
    with database.read() as session:
        scopes = list(session.execute(select(Scope.id).order_by(Scope.id)).scalars())
        return [one for one in witnessed(session, None) if one not in seen] if own else scopes


def reconcile(
    database: Database, witness: Witness, actor: str = "operator", *, without: bool = False
) -> tuple[list[str], list[str]]:
    """Bring a ledger that is behind its witness back to the safe side, and go on.

    Every live job fails at its whole reservation. A visible entry in each scope raises its spent amount to the largest
    that was witnessed. Datasets that a backup brought back are erased again. The epoch changes so that no earlier
    attempt can write, and the witness starts anew. The ledger stays frozen until all of that is done, so one that is
    killed is begun again.

    Args:
        database: the ledger.
        witness: the heads that were seen of it.
        actor: the operator who reconciles.
        without: go on also with scopes that no witness knows any more; an entry says what may be missing, and their
            owners have to accept it before they admit a job.

    Returns:
        The jobs that were failed, and the scopes that wait for their owners.

    Raises:
        Conflict: some scopes are known to no witness, and `without` is false.
    """
    unknown = unwitnessed(database, witness)
    if unknown and not without:
        raise Conflict(f"No witness knows what was spent from {len(unknown)} scopes, {unknown[0]} among them.")
    own = is_own(database, witness)
    name = witness.name() if own else None
    new = Name(secrets.token_hex(16), (*name.before, name.own) if name else ())
    seen = witness.read() if own else {}
    failed = database.transaction(_reconcile, seen, witness.erased() if own else set(), unknown, actor)
    witness.start(database, new)
    database.transaction(_go_on, new.own)
    return failed, unknown


def _go_on(session: Session, name: str) -> None:
    """End a reconciliation: the database takes the new witness for its own. A second epoch voids what was found so far.

    A process that compares in between meets a database and a witness of two names, and freezes the ledger.
    """
    put_secret(session, NAME, name)
    thaw_ledger(session)


def _reconcile(
    session: Session, seen: dict[str, Seen], erased: set[str], unknown: Collection[str], actor: str
) -> list[str]:
    """Do the database's part of a reconciliation, in one transaction, and leave the ledger frozen."""
    # Within this transaction alone: to end a job, as below, needs a ledger that is not frozen.
    thaw_ledger(session)
    for scope_id in unknown:
        # First, so that the range of time begins with the last entry that is there.
        gaps.note(session, lock_scope(session, scope_id), actor, "no witness knows what followed the entry before")
    live = session.execute(select(Job.id).where(Job.finished_at.is_(None)).order_by(Job.id)).scalars().all()
    for job_id in live:
        job = lock_job(session, job_id)
        jobs.end_failed(session, job, clock.read(session), jobs.LOST, charge="all")
    for dataset in risen(session, erased):
        dataset.state = "erasing"  # the upkeep destroys the records that a backup brought back
    for scope_id in session.execute(select(Scope.id).order_by(Scope.id)).scalars().all():
        if scope_id in unknown:
            continue
        scope = lock_scope(session, scope_id)
        known = seen.get(scope_id)
        held = session.execute(select(Account.id).where(Account.scope_id == scope_id)).scalars()
        accounts = {account.id: account for account in lock_accounts(session, held)}
        tallies = {one: _tally(account) for one, account in accounts.items()}
        raised = {} if known is None else raised_to(known.taken, tallies)
        moved = {one: move(accounts[one], spent=amount, reserved=slots([])) for one, amount in raised.items()}
        for one, draws in draws_raised_to({} if known is None else known.draws, tallies).items():
            accounts[one].draws = draws
        content: dict[str, Any] = {"accounts": moved, "actor": actor, "reason": "brought up to the witness"}
        content |= {"seen": None if known is None else _told(known)}
        chain.append(session, scope, kinds.Reconcile, at=clock.read(session), content=content)
    freeze_ledger(session, UNDER_WAY)
    session.flush()
    return list(live)


def _tally(account: Account) -> AccountTally:
    """Return an account as the rules of entries see it."""
    balance = read_slots(account, "spent"), read_slots(account, "reserved")
    return AccountTally(terms_of(account), account.declared, account.principal_id, *balance, account.draws)


def _told(known: Seen) -> dict[str, Any]:
    return {"seq": known.seq, "head": known.head, "taken": known.taken, "draws": known.draws}
