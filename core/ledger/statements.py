"""Statements: one job in a scope's chain, with its entries, charged events, moved amounts and dataset."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.canonical import canonical
from core.db.tables import Entry, Job
from core.ledger.charged import DRAWING


@dataclass(frozen=True)
class Statement:
    """One job's entries in the scope that pays for it, oldest first."""

    entries: Sequence[Entry]
    bodies: Sequence[dict[str, Any]]

    @property
    def events(self) -> list[list[Any]]:
        """The charged events, as runs of equal ones, in the order of payment."""
        runs: list[list[Any]] = []
        for body in self._of(*DRAWING):
            for times, event in body["event"]:
                if runs and canonical(runs[-1][1]) == canonical(event):
                    runs[-1][0] += times
                else:
                    runs.append([times, event])
        return runs

    def amounts(self, orders: int) -> dict[str, list[int]]:
        """Return what was reserved, spent, given back at the end, and corrected later, at each of so many orders."""
        account = self.entries[0].scope_id

        def total(name: str, *kinds: str, sign: int = 1) -> list[int]:
            moved = [body["accounts"][account][name] for body in self._of(*kinds)]
            # The zeros give each order a sum where no entry moved anything.
            return [sign * sum(amounts) for amounts in zip([0] * orders, *(one[:orders] for one in moved), strict=True)]

        return {
            "reserved": total("reserved", "reserve"),
            "spent": total("spent", *DRAWING),
            "returned": total("reserved", "settle", sign=-1),
            "corrected": total("spent", "compensate", sign=-1),
        }

    def _of(self, *kinds: str) -> list[dict[str, Any]]:
        return [body for body in self.bodies if body["kind"] in kinds]


def statement_of(session: Session, job: Job) -> Statement:
    """Return what the chain says of a job, or of a federated job's client."""
    # By the job alone: with the scope beside it SQLite goes through all entries of the scope.
    found = session.execute(select(Entry).where(Entry.job_id == job.id)).scalars()
    entries = sorted((entry for entry in found if entry.scope_id == job.scope_id), key=lambda entry: entry.seq)
    return Statement(entries, [json.loads(entry.body) for entry in entries])


def scopes_of(session: Session, job_id: str) -> Sequence[str]:
    """Return the scopes that say anything of a job or of its clients, or that these name as theirs, in order."""
    is_one = (Job.id == job_id) | (Job.federation_id == job_id)
    pays = is_one & (Job.federation_id.is_(None) | Job.place.is_not(None))
    named = select(Job.scope_id).where(pays)
    telling = select(Entry.scope_id).join(Job, Job.id == Entry.job_id).where(is_one)
    return sorted(session.execute(named.union(telling)).scalars())


def jobs_telling(session: Session, job_id: str, scope_id: str) -> Sequence[Job]:
    """Return the jobs, of a job and its clients, that pay from a scope, or that its entries speak of, in order."""
    is_one = (Job.id == job_id) | (Job.federation_id == job_id)
    pays = Job.federation_id.is_(None) | Job.place.is_not(None)
    told = select(Entry.job_id).where(Entry.scope_id == scope_id, Entry.job_id == Job.id).exists()
    found = select(Job).where(is_one, ((Job.scope_id == scope_id) & pays) | told)
    return session.execute(found.order_by(Job.id)).scalars().all()


def before(entry: Entry) -> dict[str, Any]:
    """Return where the chain stood before an entry."""
    return {"seq": entry.seq - 1, "hash": entry.prev_hash}


def told_of_gap(entry: Entry) -> dict[str, Any]:
    """Return a reconciliation, or what an owner said of one, with the range of time in which entries may be missing."""
    body = json.loads(entry.body)
    missing = {name: body[name] for name in ("since", "until") if name in body}
    return {"seq": entry.seq, "kind": body["kind"], "hash": entry.hash, **missing}
