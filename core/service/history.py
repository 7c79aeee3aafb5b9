"""History of a budget: its burn-down, one point for each job that ended, read from the ledger's entries.

A ledger is only added to, so each process keeps the points of a scope and reads the entries that are new. A head that
is no longer in the chain, as after a restore, has the points read again from the start.
"""

import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from threading import Lock
from typing import Any, Final, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db import reads as queries
from core.db.tables import Entry, Job, Principal, Scope
from core.ledger.ledger import balance
from core.privacy.amounts import write_share
from core.privacy.budget import Terms, percent_of, standing
from core.service.context import Caller, Context
from core.service.scopes import find, viewer
from core.service.views import rfc3339
from farthing.schemas.history import PointView

_MOST_SCOPES: Final = 256
_BATCH: Final = 1000
_ALL: Final = 2**31
_ENDS: Final = ("settle", "charge", "compensate")
Vector = tuple[int, ...]


@dataclass(frozen=True)
class JobEnd:
    """The end of a job in the ledger, in nano-nats at the orders of the scope."""

    seq: int
    at: float
    kind: Literal["settle", "charge", "compensate"]
    job: str
    dataset: str
    principal: str
    held: Vector
    charged: Vector
    spent: Vector
    reserved: Vector


@dataclass
class _Live:
    """A job that reserved, and what it spent by now."""

    dataset: str
    principal: str
    held: Vector
    charged: Vector


@dataclass
class Burndown:
    """The points of one scope up to an entry, and what is needed to go on from there."""

    seq: int = 0
    head: str = ""
    spent: Vector = ()
    reserved: Vector = ()
    jobs: dict[str, _Live] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    """By job that ended; a job keeps its method."""
    points: list[JobEnd] = field(default_factory=list)

    def add(self, entry: Entry, orders: int) -> None:
        """Count one more entry."""
        body: dict[str, Any] = json.loads(entry.body)
        moved = body["accounts"].get(entry.scope_id)
        spent, reserved = (_first(moved[name], orders) if moved else (0,) * orders for name in ("spent", "reserved"))
        self.spent, self.reserved = _sum(self.spent, spent), _sum(self.reserved, reserved)
        self.seq, self.head = entry.seq, entry.hash
        if entry.job_id is None:
            return
        if entry.kind == "reserve":
            self.jobs[entry.job_id] = _Live(body["dataset"], body["actor"], reserved, (0,) * orders)
        job = self.jobs.get(entry.job_id)
        if job is None:
            return
        job.charged = _sum(job.charged, spent)
        if entry.kind in _ENDS:
            self.points.append(_point(entry, job, self.spent, self.reserved))


def _point(entry: Entry, job: _Live, spent: Vector, reserved: Vector) -> JobEnd:
    assert entry.job_id is not None, "a job's entries name it"
    kind: Any = entry.kind
    return JobEnd(
        seq=entry.seq,
        at=entry.created_at,
        kind=kind,
        job=entry.job_id,
        dataset=job.dataset,
        principal=job.principal,
        held=job.held,
        charged=job.charged,
        spent=spent,
        reserved=reserved,
    )


def _first(slots: Sequence[int], orders: int) -> Vector:
    return tuple(slots[:orders])


def _sum(one: Vector, other: Vector) -> Vector:
    return tuple(a + b for a, b in zip(one, other, strict=True)) if one else other


class Burndowns:
    """The histories that were asked for last, by scope."""

    def __init__(self, most: int) -> None:
        """Remember those of `most` scopes."""
        self._most = most
        self._kept: OrderedDict[str, Burndown] = OrderedDict()
        self._lock = Lock()

    def points(self, session: Session, scope: Scope, orders: int, after: int, limit: int) -> list[JobEnd]:
        """Return up to `limit` points above an entry, oldest first, after reading the entries that are new."""
        kept = self._read(session, scope, orders)
        begin = bisect_right(kept.points, after, key=lambda one: one.seq)
        return kept.points[begin : begin + limit]

    def methods(self, session: Session, scope: Scope, orders: int) -> dict[str, str]:
        """Return the method of each job that ended, whoever may see it."""
        return self._read(session, scope, orders).methods

    def _read(self, session: Session, scope: Scope, orders: int) -> Burndown:
        """Return what is kept of a scope, with the entries that are new."""
        # One lock over the reading too, for what is kept is changed in place.
        with self._lock:
            kept = self._kept.get(scope.id)
            if kept is None or not _goes_on(session, scope.id, kept):
                kept = self._kept[scope.id] = Burndown()
            self._kept.move_to_end(scope.id)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
            while found := queries.entries(session, scope.id, kept.seq, _BATCH):
                for entry in found:
                    kept.add(entry, orders)
                # Else the session keeps every entry of a long ledger in memory.
                session.expunge_all()
            # A job has one method and may have several points, so this slice misses no job.
            new = [*({one.job for one in kept.points[len(kept.methods) :]} - kept.methods.keys())]
            for begin in range(0, len(new), _BATCH):
                some = select(Job.id, Job.optimizer).where(Job.id.in_(new[begin : begin + _BATCH]))
                kept.methods.update((row.id, row.optimizer) for row in session.execute(some))
            return kept


def _goes_on(session: Session, scope_id: str, kept: Burndown) -> bool:
    """Tell whether the last entry that was read is still in the chain."""
    statement = select(Entry.hash).where(Entry.scope_id == scope_id, Entry.seq == kept.seq)
    return session.execute(statement).scalar_one_or_none() == kept.head


KEPT: Final = Burndowns(_MOST_SCOPES)


def page(context: Context, caller: Caller, scope_id: str, after: int, limit: int) -> list[PointView]:
    """Return up to `limit` points of a budget's history above the entry `after`, oldest first.

    The ledger shows jobs, senders and amounts to everybody who sees the scope. Names and methods are for those who see
    the jobs.

    Raises:
        NotFound: the scope does not exist for the caller.
    """
    with context.database.read() as session:
        scope = find(session, caller, scope_id)
        terms = balance(session, scope_id).terms
        return _views(session, caller, scope, terms, KEPT.points(session, scope, len(terms.orders), after, limit))


def _views(session: Session, caller: Caller, scope: Scope, terms: Terms, points: Sequence[JobEnd]) -> list[PointView]:
    everybody = _sees_jobs(caller, scope)
    names = _names(session, {one.principal for one in points if everybody or one.principal == caller.id})
    methods = _methods(session, caller, scope, terms, {one.job for one in points})
    return [_view(one, terms, names.get(one.principal), methods.get(one.job)) for one in points]


@dataclass(frozen=True)
class Latest:
    """The newest points of a budget's history, and where all of it went."""

    points: list[PointView]
    """Oldest first."""
    before: str
    """Remaining budget before the first of them, as a share."""
    first: int
    """The number of the first of them among all, from 1."""
    by_principal: dict[str, str]
    """Shares that ended jobs were charged, by sender."""
    by_method: dict[str, str]
    """The same by method, of the jobs that exist for the caller."""


def latest(context: Context, caller: Caller, scope_id: str, limit: int) -> Latest:
    """Return the newest points of a budget's history, for a page.

    Raises:
        NotFound: the scope does not exist for the caller.
    """
    with context.database.read() as session:
        scope = find(session, caller, scope_id)
        terms = balance(session, scope_id).terms
        every = KEPT.points(session, scope, len(terms.orders), 0, _ALL)
        charged = {one.job: one for one in every}  # of a charge that was given back, the last word
        methods = _methods(session, caller, scope, terms, set(charged))
        shown = _views(session, caller, scope, terms, every[-limit:])
    whole = len(every) <= limit
    before = "1" if whole or not shown else write_share(100 * (Decimal(shown[0].remaining) + Decimal(shown[0].charged)))
    return Latest(
        points=shown,
        before=before,
        first=len(every) - len(shown) + 1,
        by_principal=_added(terms, [(one.principal, one.charged) for one in charged.values()]),
        by_method=_added(terms, [(methods[one.job], one.charged) for one in charged.values() if one.job in methods]),
    )


def _added(terms: Terms, charges: Sequence[tuple[str, Vector]]) -> dict[str, str]:
    """Return charges added up by name, as shares, the largest first."""
    sums: dict[str, Vector] = {}
    for name, charge in charges:
        sums[name] = _sum(sums.get(name, ()), charge)
    nothing = (0,) * len(terms.orders)
    # Of the empty budget: at another head the same charge would show another share.
    shares = {name: percent_of(terms, nothing, nothing, charge) for name, charge in sums.items()}
    return {name: write_share(shares[name]) for name in sorted(shares, key=lambda one: shares[one], reverse=True)}


def _names(session: Session, ids: set[str]) -> dict[str, str]:
    rows = session.execute(select(Principal.id, Principal.name).where(Principal.id.in_(ids)))
    return {row.id: row.name for row in rows}


def _sees_jobs(caller: Caller, scope: Scope) -> bool:
    """Say whether every job of the scope exists for the caller."""
    return viewer(caller).sees_everything or caller.id == scope.owner_id


def _methods(session: Session, caller: Caller, scope: Scope, terms: Terms, ids: set[str]) -> dict[str, str]:
    """Return the method of each of the scope's jobs `ids` that exist for the caller."""
    if not _sees_jobs(caller, scope):
        seen = select(Job.id).where(Job.id.in_(ids), queries.sees_job(viewer(caller)))
        ids = {row.id for row in session.execute(seen)}
    methods = KEPT.methods(session, scope, len(terms.orders))
    return {one: methods[one] for one in ids}


@lru_cache(maxsize=4096)
def _shares(point: JobEnd, terms: Terms) -> dict[str, str]:
    """Return the amounts of a point as shares: neither changes, and a page asks for 30 of them."""
    nothing = (0,) * len(terms.orders)
    after = standing(terms, point.spent, point.reserved)
    return {
        "held": write_share(percent_of(terms, nothing, nothing, point.held)),
        "charged": write_share(percent_of(terms, nothing, nothing, point.charged)),
        "spent": write_share(after.spent),
        "reserved": write_share(after.reserved),
        "remaining": write_share(after.remaining),
    }


def _view(point: JobEnd, terms: Terms, name: str | None, method: str | None) -> PointView:
    return PointView(
        seq=point.seq,
        at=rfc3339(point.at),
        kind=point.kind,
        job=point.job,
        dataset=point.dataset,
        principal=point.principal,
        name=name,
        method=method,
        **_shares(point, terms),
    )
