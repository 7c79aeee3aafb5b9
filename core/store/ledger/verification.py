"""The ledger recomputed from its entries alone: hashes, columns, sums and terms, in one snapshot.

A chain cannot tell that its whole tail was replaced by a consistent one; the witness can
(`core.store.witness.witness`).
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.privacy.budget import NANO, covers
from core.privacy.events import EVENT, Event, Zcdp
from core.store.database import Database
from core.store.ledger import chain
from core.store.ledger.accounts import SLOTS, described, difference, read_slots, terms_of
from core.store.ledger.corrections import freeze
from core.store.tables import Account, Entry, Job, Scope

Sums = dict[str, dict[str, list[int]]]


@dataclass
class _Sums:
    """What the entries of a scope add up to."""

    accounts: Sums = field(default_factory=dict)
    """Spent and reserved of each account."""
    terms: dict[str, Any] = field(default_factory=dict)
    """Of each account, as last told."""
    allowances: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What each job may pay again, by account."""
    repeats: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """What each job has taken of that."""


@dataclass(frozen=True)
class Verification:
    """The outcome of recomputing a scope's chain."""

    ok: bool
    entries: int
    head: str
    first_bad_seq: int | None = None
    """The first entry that does not follow from those before it; None where all do, or only a balance is wrong."""
    reason: str | None = None


def verify(session: Session, scope_id: str) -> Verification:
    """Recompute a scope's chain and balances from its entries; the caller freezes the scope on a mismatch.

    Args:
        session: a session of `Database.read`, so that all is of one snapshot.
        scope_id: the scope.
    """
    scope = session.get_one(Scope, scope_id, populate_existing=True)
    rows = session.execute(
        select(
            Entry.seq,
            Entry.kind,
            Entry.job_id,
            Entry.attempt,
            Entry.chunk,
            Entry.body,
            Entry.prev_hash,
            Entry.hash,
            Entry.created_at,
        )
        .where(Entry.scope_id == scope_id)
        .order_by(Entry.seq)
    )
    head, count = chain.GENESIS, 0
    sums = _Sums()
    for row in rows:
        count += 1
        reason = _fault(row, scope_id, count, head) or _add(json.loads(row.body), sums)
        if reason is not None:
            return Verification(False, scope.seq, scope.head, count, reason)
        head = row.hash
    reason = None
    if (count, head) != (scope.seq, scope.head):
        reason = f"the scope's head is entry {scope.seq}, {scope.head}; the chain ends with entry {count}, {head}"
        first = count if count == scope.seq else min(count, scope.seq) + 1
        return Verification(False, scope.seq, scope.head, first, reason)
    reason = _unbalanced(session, scope_id, sums) or _misremembered(session, scope_id, sums)
    return Verification(reason is None, count, head, None, reason)


def _fault(row: Any, scope_id: str, seq: int, previous: str) -> str | None:  # noqa: ANN401 - a row of nine columns
    """Say what is wrong with an entry by itself, None when nothing is."""
    if row.seq != seq:
        return f"entry {seq} is missing"
    if row.prev_hash != previous:
        return "it does not follow the entry before it"
    if row.hash != chain.link(previous, row.body):
        return "its hash is not that of its body"
    body = json.loads(row.body)
    told = (
        body["v"],
        body["scope"],
        body["seq"],
        body["kind"],
        body["job"],
        body["attempt"],
        body["chunk"],
        body["at"],
    )
    kept = (chain.VERSION, scope_id, seq, row.kind, row.job_id, row.attempt, row.chunk, row.created_at)
    return None if told == kept else "its columns say something else than its body"


def _add(body: dict[str, Any], sums: _Sums) -> str | None:
    """Add an entry's movements to the sums; say what is wrong, None when nothing is."""
    if body["kind"] in ("open", "grant"):
        sums.terms[body["account"]] = body["terms"]
        sums.accounts.setdefault(body["account"], {"spent": [0] * SLOTS, "reserved": [0] * SLOTS})
    for account, movement in body["accounts"].items():
        for name, change in movement.items():
            totals = sums.accounts[account][name]
            for slot, amount in enumerate(change):
                totals[slot] += amount
                if totals[slot] < 0:
                    return f"{name} of {account} would fall below zero"
    return _add_allowance(body, sums) if "allowance" in body else None


def _add_allowance(body: dict[str, Any], sums: _Sums) -> str | None:
    """Follow what a job may pay again: told at reserve, taken by repeats, and what is left of it at the end."""
    job, told = body["job"], body["allowance"]
    if body["kind"] == "reserve":
        sums.allowances[job] = told
        sums.repeats[job] = {account: [0] * SLOTS for account in told}
        return None
    if job not in sums.allowances or told.keys() != sums.allowances[job].keys():
        return f"{job} takes of an allowance that it was not given"
    for account, amounts in told.items():
        left = difference(sums.allowances[job][account], sums.repeats[job][account])
        if not covers(left, amounts) or ("reason" in body and left != amounts):
            return f"the allowance of {job} in {account} is not what its entries leave of it"
        if body["kind"] == "spend":
            pairs = zip(sums.repeats[job][account], amounts, strict=True)
            sums.repeats[job][account] = [one + more for one, more in pairs]
    return None


def _misremembered(session: Session, scope_id: str, sums: _Sums) -> str | None:
    """Compare what jobs remember of their allowances with the entries; say what differs, None when nothing does."""
    statement = select(Job.id, Job.allowance, Job.allowance_spent).where(Job.scope_id == scope_id)
    for job_id, promised, taken in session.execute(statement):
        for kept, told in ((promised, sums.allowances), (taken, sums.repeats)):
            remembered = {account: amounts for account, amounts in kept.items() if any(amounts)}
            recorded = {account: amounts for account, amounts in told.get(job_id, {}).items() if any(amounts)}
            if remembered != recorded:
                return f"the allowance that {job_id} remembers is not that of its entries"
    return None


def _unbalanced(session: Session, scope_id: str, sums: _Sums) -> str | None:
    """Compare the accounts with the sums; say what differs, None when nothing does."""
    accounts = session.execute(
        select(Account).where(Account.scope_id == scope_id).execution_options(populate_existing=True)
    ).scalars()
    found = {account.id: account for account in accounts}
    if found.keys() != sums.accounts.keys():
        return "there are accounts that no entry opened, or the other way round"
    for account_id, account in found.items():
        kept = {name: read_slots(account, name) for name in ("spent", "reserved")}
        if kept != sums.accounts[account_id]:
            return f"the balance of {account_id} is not the sum of its entries"
        if described(terms_of(account), account.declared) != sums.terms[account_id]:
            return f"the terms of {account_id} are not those of its entries"
    return None


def resum(database: Database, checked: dict[str, int]) -> list[str]:
    """Verify each scope whose chain has grown since the last call, and freeze those that fail.

    Args:
        database: the database.
        checked: scope id to the number of entries already verified; kept by the caller between calls.

    Returns:
        The scopes that were frozen.
    """
    with database.read() as session:
        scopes = session.execute(select(Scope.id, Scope.seq).where(Scope.frozen_reason.is_(None))).all()
    frozen = []
    for scope_id, seq in scopes:
        if checked.get(scope_id) == seq:
            continue
        with database.read() as session:
            found = verify(session, scope_id)
        if found.ok:
            checked[scope_id] = found.entries
        else:
            database.run(freeze, scope_id, f"verification failed: {found.reason}", "sweeper")
            frozen.append(scope_id)
    return frozen


def executed(session: Session, scope_id: str) -> Counter[Event]:
    """Return the events that were charged to a scope and stay so, for reports.

    A job whose charge was given back in full, because it never opened the records, has drawn nothing. Of what a
    reconciliation charged only amounts are known: it counts as the least rho that covers them at the scope's orders.
    """
    rows = session.execute(
        select(Entry.kind, Entry.job_id, Entry.body)
        .where(Entry.scope_id == scope_id, Entry.kind.in_(("spend", "compensate", "reconcile")))
        .order_by(Entry.seq)
    )
    by_job: dict[str | None, Counter[str]] = {}
    forgotten: Counter[Event] = Counter()
    for kind, job_id, body in rows:
        if kind == "spend":
            by_job[job_id] = by_job.get(job_id, Counter()) + _runs_of([body])
        elif kind == "reconcile":
            forgotten += _forgotten(session, scope_id, json.loads(body)["accounts"])
        elif json.loads(body)["fraction"] == "1":
            by_job.pop(job_id, None)
    return _events(sum(by_job.values(), Counter())) + forgotten


def _forgotten(session: Session, scope_id: str, moved: dict[str, Any]) -> Counter[Event]:
    """Return what a reconciliation added to a scope's budget as one event; nothing where it added nothing there."""
    spent = moved[scope_id]["spent"] if scope_id in moved else []
    if not any(spent):
        return Counter()
    orders = terms_of(session.get_one(Account, scope_id)).orders
    return Counter([Zcdp(rho=max(amount / (order * NANO) for amount, order in zip(spent, orders, strict=False)))])


def executed_by(session: Session, job: Job) -> Counter[Event]:
    """Return the events that were charged to one job, repeats among them, whether it was compensated or not."""
    paid = Counter(chain.canonical(event) for event in job.schedule[: job.chunks_spent])
    if any(map(any, job.allowance_spent.values())):
        spent = select(Entry.body).where(Entry.job_id == job.id, Entry.scope_id == job.scope_id, Entry.kind == "spend")
        paid = _runs_of(session.execute(spent).scalars())
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
