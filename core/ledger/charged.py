"""The events that were charged, counted, as reports compose them, and what they add up to.

Both stand beside the chain, so that no reader goes through the entries: each entry that charges something or gives it
back changes them in its own transaction (`note`). Verification compares them with the entries.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from core.base.canonical import canonical
from core.db.tables import Account, Entry, Job, Scope, ScopeEvent
from core.ledger.accounts import terms_of
from core.ledger.bodies import Body
from core.ledger.job_entries import Charge, Compensate, Run, Spend
from core.ledger.scope_entries import Reconcile, lost_event
from core.privacy.events import EVENT, Event
from core.privacy.totals import Totals

DRAWING: Final = (Spend.KIND, Charge.KIND)
"""Kinds of entries that say which events they pay for."""


def executed(session: Session, scope_id: str) -> Counter[Event]:
    """Return the events that were charged to a scope and stay so, for reports.

    A job whose charge was given back in full, because it never opened the records, has drawn nothing. Of what a
    reconciliation charged only amounts are known: it counts as the least rho that covers them at the scope's orders.
    """
    # A charge that was given back leaves its row with 0 times.
    kept = select(ScopeEvent.event, ScopeEvent.times).where(ScopeEvent.scope_id == scope_id, ScopeEvent.times > 0)
    counted: Counter[Event] = Counter()
    for row in session.execute(kept.order_by(ScopeEvent.digest)):
        counted[_event(row.event)] += row.times
    return counted


def totals_of(scope: Scope) -> Totals:
    """Return what all that was charged to a scope, and stays so, adds up to."""
    # Texts in the table: units of 2^-128 nats pass the range of every integer column.
    return Totals(int(scope.gaussian_rho), int(scope.other_rho), scope.unpriced)


def note(session: Session, scope: Scope, body: Body) -> None:
    """Change a scope's sums by what an entry charges or gives back.

    Args:
        session: the open write transaction that stores the entry.
        scope: the scope of the chain; the caller holds its lock.
        body: the entry.
    """
    match body:
        case Spend() | Charge():
            _add(session, scope, _texts(body.event))
        # After a smaller share all events stay counted, so that reports overstate the loss, never understate it.
        case Compensate(fraction="1"):
            back = _runs_of(_bodies(session, body.scope, body.job))
            _add(session, scope, {event: -times for event, times in back.items()})
        case Reconcile() if body.scope in body.accounts:
            _add(session, scope, _forgotten(session, body.scope, body.accounts[body.scope].spent))
        case _:
            pass


def _add(session: Session, scope: Scope, counted: Mapping[str, int]) -> None:
    """Add to a scope's sums, or take away from them what is counted below 0."""
    for event, times in counted.items():
        digest = hashlib.sha256(event.encode("ascii")).hexdigest()
        row = (ScopeEvent.scope_id == scope.id, ScopeEvent.digest == digest)
        more = update(ScopeEvent).where(*row).values(times=ScopeEvent.times + times)
        # The scope's lock, which the caller holds, keeps a rival from inserting the same row in between.
        if not session.execute(more).rowcount:  # type: ignore[attr-defined]  # of a cursor
            session.execute(insert(ScopeEvent).values(scope_id=scope.id, digest=digest, event=event, times=times))
    totals = totals_of(scope).plus({_event(event): times for event, times in counted.items()})
    scope.gaussian_rho, scope.other_rho, scope.unpriced = str(totals.gaussian), str(totals.other), totals.unpriced


def _forgotten(session: Session, scope_id: str, spent: Iterable[int]) -> Counter[str]:
    """Return what a reconciliation added to a scope's budget as one event; nothing where it added nothing there."""
    event = lost_event(tuple(spent), terms_of(session.get_one(Account, scope_id)))
    return Counter() if event is None else _texts([(1, event)])


def executed_by(session: Session, job: Job) -> Counter[Event]:
    """Return the events that were charged to one job, repeats among them, whether it was compensated or not."""
    paid = Counter(canonical(event) for event in job.schedule[: job.chunks_spent])
    # Only entries list repeats; without any, the schedule gives the same and needs no entry read.
    if any(map(any, job.allowance_spent.values())):
        paid = _runs_of(_bodies(session, job.scope_id, job.id))
    return Counter({_event(event): times for event, times in paid.items()})


def _bodies(session: Session, scope_id: str, job_id: str | None) -> Iterable[str]:
    """Return the texts of the entries that charged a job."""
    of_it = (Entry.job_id == job_id, Entry.scope_id == scope_id, Entry.kind.in_(DRAWING))
    return session.execute(select(Entry.body).where(*of_it)).scalars()


def _runs_of(bodies: Iterable[str]) -> Counter[str]:
    """Count the events that spend entries tell, as canonical texts."""
    counted: Counter[str] = Counter()
    for body in bodies:
        read: list[tuple[int, Any]] = json.loads(body)["event"]
        counted.update(_texts((times, _event(canonical(event))) for times, event in read))
    return counted


def _texts(runs: Iterable[Run]) -> Counter[str]:
    """Count events as canonical texts."""
    counted: Counter[str] = Counter()
    for times, event in runs:
        counted[canonical(EVENT.dump_python(event, mode="json"))] += times
    return counted


@lru_cache(maxsize=4096)
def _event(text: str) -> Event:
    return EVENT.validate_json(text)
