"""The events that were charged, counted, as reports compose them."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.privacy.events import EVENT, Event
from core.store.ledger import chain
from core.store.ledger.accounts import terms_of
from core.store.ledger.scope_entries import lost_event
from core.store.tables import Account, Entry, Job

DRAWING: Final = ("spend", "charge")
"""Kinds of entries that say which events they pay for."""


def executed(session: Session, scope_id: str) -> Counter[Event]:
    """Return the events that were charged to a scope and stay so, for reports.

    A job whose charge was given back in full, because it never opened the records, has drawn nothing. Of what a
    reconciliation charged only amounts are known: it counts as the least rho that covers them at the scope's orders.
    """
    rows = session.execute(
        select(Entry.kind, Entry.job_id, Entry.body)
        .where(Entry.scope_id == scope_id, Entry.kind.in_((*DRAWING, "compensate", "reconcile")))
        .order_by(Entry.seq)
    )
    by_job: dict[str | None, Counter[str]] = {}
    forgotten: Counter[Event] = Counter()
    for kind, job_id, body in rows:
        if kind in DRAWING:
            by_job[job_id] = by_job.get(job_id, Counter()) + _runs_of([body])
        elif kind == "reconcile":
            forgotten += _forgotten(session, scope_id, json.loads(body)["accounts"])
        elif json.loads(body)["fraction"] == "1":
            by_job.pop(job_id, None)
    return _events(sum(by_job.values(), Counter())) + forgotten


def _forgotten(session: Session, scope_id: str, moved: dict[str, Any]) -> Counter[Event]:
    """Return what a reconciliation added to a scope's budget as one event; nothing where it added nothing there."""
    spent = moved[scope_id]["spent"] if scope_id in moved else []
    event = lost_event(spent, terms_of(session.get_one(Account, scope_id)))
    return Counter() if event is None else Counter([event])


def executed_by(session: Session, job: Job) -> Counter[Event]:
    """Return the events that were charged to one job, repeats among them, whether it was compensated or not."""
    paid = Counter(chain.canonical(event) for event in job.schedule[: job.chunks_spent])
    if any(map(any, job.allowance_spent.values())):
        of_it = (Entry.job_id == job.id, Entry.scope_id == job.scope_id, Entry.kind.in_(DRAWING))
        paid = _runs_of(session.execute(select(Entry.body).where(*of_it)).scalars())
    return _events(paid)


def _runs_of(bodies: Iterable[str]) -> Counter[str]:
    """Count the events that spend entries tell, as canonical texts."""
    counted: Counter[str] = Counter()
    for body in bodies:
        for times, event in json.loads(body)["event"]:
            counted[chain.canonical(event)] += times
    return counted


def _events(counted: Counter[str]) -> Counter[Event]:
    return Counter({EVENT.validate_json(event): times for event, times in counted.items()})
