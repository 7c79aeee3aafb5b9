"""Signed statements on ledgers: chains are followed from their last marks, and earlier entries are hashed again."""

from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from core.base.canonical import canonical
from core.base.errors import ScopeFrozen
from core.db import clock
from core.db.model_reads import GONE
from core.db.tables import Entry, Job, Model, Scope
from core.ledger.ended import compare_ended
from core.ledger.releases import is_as_entered
from core.ledger.rounds import freeze_unverified
from core.ledger.signing import installation, load_signing_keys
from core.ledger.statements import jobs_telling, statement_of
from core.ledger.tally import BrokenChain, demand
from core.ledger.witness.trusting import LongChainError, Trust, Trusted, follow, leave_mark, mark_keys
from core.service import backlogs, witnessing
from core.service.context import Caller, Context

Ledgers = Mapping[str, Trusted]
"""The chains that something signed speaks of, by scope."""


def signed(
    context: Context,
    kind: str,
    caller: Caller,
    scopes: Callable[[Session], Collection[str]],
    told: Callable[[Session, str, Ledgers], dict[str, Any]],
    *,
    job_id: str | None = None,
) -> str:
    """Return a payload signed, where the ledgers that it speaks of verify in the snapshot that it is of.

    Args:
        context: the service.
        kind: of what is signed.
        caller: the principal that asks.
        scopes: the scopes of the ledgers that it speaks of.
        told: makes the payload for this installation.
        job_id: the job that it speaks of, with its clients.

    Raises:
        LedgerBehindError: one of them has too many entries that nobody has verified; that goes on beside requests.
        ScopeFrozen: one of them does not verify, and is frozen now.
        NotReady: there is no key to sign with.
        LedgerBusy, LedgerFrozen: the witness does not answer, or is gone.
    """
    keys = load_signing_keys(context.settings)  # first: without a key all the rest is in vain
    issuer = installation(context.database)
    with context.database.read() as session:
        heads = {scope_id: session.get_one(Scope, scope_id).seq for scope_id in scopes(session)}
    marking = mark_keys(context.settings)
    context.backlogs.demand_short(context.database, heads, marking, caller.id)
    # The witness before the snapshot: all that it holds must be found in there.
    trust = witnessing.ask(context, heads)
    with context.database.read() as session:
        try:
            # Without a master key there are no marks, so work beside the request would not shorten the next one.
            most = backlogs.AT_ONCE if marking else inf
            ledgers = {scope_id: follow(session, scope_id, trust, most) for scope_id in scopes(session)}
        except LongChainError:  # a charge of long ago was corrected, or the newest mark is forged
            long = {scope_id: seq for scope_id, seq in heads.items() if seq >= backlogs.AT_ONCE}
            context.backlogs.go_on(context.database, long, marking, caller.id)
        bad = {scope_id: one.found.reason or "" for scope_id, one in ledgers.items() if not one.found.ok}
        if not bad and job_id is not None:
            bad = _changed(session, ledgers, job_id)
        if not bad:
            # In the snapshot that was verified, so that nothing else is signed.
            text = keys.sign(kind, canonical(told(session, issuer, ledgers)), clock.read(session))
    if not bad:
        _leave_marks(context, ledgers, trust)
        return text
    for scope_id, reason in bad.items():
        freeze_unverified(context.database, scope_id, reason, caller.id)
    raise ScopeFrozen(backlogs.REFUSAL)


def _changed(session: Session, ledgers: Ledgers, job_id: str) -> dict[str, str]:
    """Return why entries or rows of a job, or of its clients, are not what was verified, by scope."""
    bad = {}
    for scope_id, one in ledgers.items():
        tally = one.state.tally
        try:
            shown = list(tally.reconciled)
            for model, made in _models(session, job_id):
                demand(is_as_entered(session, model, made), f"{model.id} is not what the ledger says of it")
            for job in jobs_telling(session, job_id, scope_id):
                # Rows of live jobs were compared as the chain was followed.
                if job.id not in tally.live:
                    compare_ended(one.entries, tally, job, statement_of(session, job))
                if job.dataset_id in tally.uploads:
                    shown.append(tally.uploads[job.dataset_id].seq)
            for entry in entries_at(session, scope_id, shown):
                one.entries.confirm(entry)
        # A database that does not answer says nothing of the ledger.
        except DBAPIError:
            raise
        except Exception as error:  # noqa: BLE001 - what cannot be read is not what was verified
            bad[scope_id] = str(error) if isinstance(error, BrokenChain) else "an entry or a job cannot be read"
    return bad


def _models(session: Session, job_id: str) -> list[tuple[Model, Job]]:
    """Return what a job, or the federated job that it is a client of, has released and is kept."""
    ids = select(func.coalesce(Job.federation_id, Job.id)).where(Job.id == job_id).scalar_subquery()
    found = select(Model, Job).join(Job, Job.id == Model.job_id).where(Job.id == ids, Model.approval.not_in(GONE))
    return [(row[0], row[1]) for row in session.execute(found)]


def entries_at(session: Session, scope_id: str, places: Collection[int]) -> list[Entry]:
    """Return the entries of some numbers, oldest first.

    Raises:
        BrokenChain: one of them is gone.
    """
    wanted = select(Entry).where(Entry.scope_id == scope_id, Entry.seq.in_(places)).order_by(Entry.seq)
    found = list(session.execute(wanted).scalars()) if places else []
    if len(found) != len(set(places)):
        raise BrokenChain("entries that were verified before are gone")
    return found


def _leave_marks(context: Context, ledgers: Ledgers, trust: Trust) -> None:
    for one in ledgers.values():
        leave_mark(context.database, one, trust.keys)
