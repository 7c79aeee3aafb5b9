"""Figures for operators, read from the database when they are asked for: the same whichever process is asked.

Each is a few rows of an index. None names a person, a dataset or a scope. When a job ended, and when the ledger moved,
shows on the time grid only: a scrape without a key gives no finer time.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Float, case, cast, func, select
from sqlalchemy.orm import Session

from core.db import clock
from core.db import reads as queries
from core.db.tables import TERMINAL_STATES, Account, Entry, Job, Scope
from core.jobs.presence import Worker
from core.jobs.queue import DEVICES
from core.jobs.sweep import contact
from core.ledger.claims import frozen_reason

RECENT_SECONDS: Final = 3600.0
"""The period of figures of jobs that have ended, in seconds."""
BUCKETS_SECONDS: Final = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
NANO: Final = 1e9
ENTRY_SECONDS: Final = 1.0
"""The visible time of an entry: the second in which it was made."""
_LATEST: Final = 20
"""Entries of a scope that are looked at first."""


@dataclass(frozen=True)
class Durations:
    """Durations of the jobs of one outcome that ended within the last hour, from their first start."""

    count: int
    sum_seconds: float
    within: tuple[int, ...]
    """Counts of jobs that took at most each of `BUCKETS_SECONDS`."""


@dataclass(frozen=True)
class Workers:
    """Supervisors that were seen lately."""

    seen: int
    slots: int
    gpus: int


@dataclass(frozen=True)
class Figures:
    """One look at jobs, ledger and workers; ages in seconds by the database's clock, None where there is nothing."""

    jobs: dict[str, int]
    waiting: dict[str, int]
    oldest_waiting_seconds: dict[str, float]
    ended: dict[str, Durations]
    scopes: int
    scopes_frozen: int
    entries: int
    head_age_seconds: float | None
    spent_nats: float
    reserved_nats: float
    ledger_frozen: bool
    workers: dict[str, Workers]
    last_sweep_seconds: float | None
    heads: dict[str, int] = field(repr=False)
    """The number of each scope's last entry by the grid, to compare with the witness; not to be shown."""


def read(session: Session, worker_seconds: float, grid_seconds: float) -> Figures:
    """Return all figures.

    Args:
        session: one snapshot.
        worker_seconds: a supervisor that was not seen for longer does not count.
        grid_seconds: of the time grid; jobs that ended after its last point still count as running, and the ledger
            is told of as it was then. 0: as it is.
    """
    at = clock.read(session)
    until = at // grid_seconds * grid_seconds if grid_seconds else at
    hidden = (Job.finished_at > until) & Job.started_at.is_not(None)
    state = case((hidden, "running"), else_=Job.state).label("seen")
    one = Job.place.is_(None)  # a federated job is one, however many clients it has
    states = session.execute(select(state, func.count()).where(one).group_by("seen"))
    ledger = _ledger(session, until - ENTRY_SECONDS if grid_seconds else at)
    frozen = select(func.count()).select_from(Scope).where(Scope.frozen_reason.is_not(None))
    swept = contact(session)
    waiting = _waiting(session)
    return Figures(
        jobs={row[0]: row[1] for row in states},
        waiting={device: waiting.get(device, (0, at))[0] for device in DEVICES},
        oldest_waiting_seconds={device: at - waiting.get(device, (0, at))[1] for device in DEVICES},
        ended=_ended(session, at, until, grid_seconds),
        scopes=len(ledger.heads),
        scopes_frozen=session.execute(frozen).scalar_one(),
        entries=sum(ledger.heads.values()),
        head_age_seconds=None if ledger.last is None else max(0.0, at - _shown_at(ledger.last, grid_seconds)),
        spent_nats=ledger.spent / NANO,
        reserved_nats=ledger.reserved / NANO,
        ledger_frozen=frozen_reason(session) is not None,
        workers=_workers(session, at - worker_seconds),
        last_sweep_seconds=None if swept is None else at - swept[1],
        heads=ledger.heads,
    )


@dataclass(frozen=True)
class _Ledger:
    """All chains up to a second."""

    heads: dict[str, int]
    last: float | None
    spent: float
    reserved: float


def _ledger(session: Session, until: float) -> _Ledger:
    """Sum up all chains without what was made after a second: the present sums less what those entries moved."""
    head = (Entry.scope_id == Scope.id) & (Entry.seq == Scope.seq)
    rows = session.execute(select(Scope.id, Scope.seq, Entry.created_at).outerjoin(Entry, head)).all()
    made = {row[0]: row[2] for row in rows if row[2] is not None}
    own = Account.principal_id.is_(None)
    # As floats: SQLite refuses a sum of integers that passes 64 bits.
    sums = select(func.sum(cast(Account.spent_1, Float)), func.sum(cast(Account.reserved_1, Float))).where(own)
    spent, reserved = session.execute(sums).one()
    busy = [scope for scope, at in made.items() if at > until]
    latest = _latest(session, busy, until)
    later = [entry for entry in latest if entry.created_at > until]
    accounts = select(Account.id).where(own, Account.scope_id.in_({entry.scope_id for entry in later}))
    mine = set(session.execute(accounts).scalars()) if later else set()
    moved = Counter[str]()
    for entry in later:
        for account, movement in json.loads(entry.body).get("accounts", {}).items():
            if account in mine:
                moved.update({name: movement[name][0] for name in ("spent", "reserved")})
    hidden = Counter(entry.scope_id for entry in later)
    older = [at for at in (*made.values(), *(entry.created_at for entry in latest)) if at <= until]
    return _Ledger(
        heads={row[0]: row[1] - hidden[row[0]] for row in rows},
        last=max(older, default=None),
        spent=max(0.0, (spent or 0.0) - moved["spent"]),
        reserved=max(0.0, (reserved or 0.0) - moved["reserved"]),
    )


def _latest(session: Session, scopes: list[str], until: float) -> list[Entry]:
    """Return the last entries of some scopes, so many that all which were made after a second are among them."""
    most = _LATEST
    while scopes:
        last = (Entry.scope_id == Scope.id) & (Entry.seq > Scope.seq - most)
        found = session.execute(select(Entry).join(Scope, last).where(Scope.id.in_(scopes))).scalars().all()
        later = Counter(entry.scope_id for entry in found if entry.created_at > until)
        # Fewer than were read of a scope, so no later entry can be missing.
        if max(later.values(), default=0) < most:
            return list(found)
        most *= 10
    return []


def _shown_at(second: float, grid_seconds: float) -> float:
    """Return when an entry of some second showed."""
    return queries.on_grid(second + ENTRY_SECONDS, grid_seconds) if grid_seconds else second


def _waiting(session: Session) -> dict[str, tuple[int, float]]:
    """Return how many jobs wait for each kind of device, and since when the oldest has."""
    waiting = select(Job.device, func.count(), func.min(Job.created_at)).where(
        Job.state == "queued", Job.place.is_(None)
    )
    return {row[0]: (row[1], row[2]) for row in session.execute(waiting.group_by(Job.device))}


def _ended(session: Session, at: float, until: float, grid_seconds: float) -> dict[str, Durations]:
    """Return how long the jobs took that ended within the last hour, by outcome; sums are on the time grid, too."""
    seconds = Job.finished_at - Job.started_at
    within = [func.sum(case((seconds <= bound, 1), else_=0)) for bound in BUCKETS_SECONDS]
    recent = Job.finished_at > at - RECENT_SECONDS, Job.finished_at <= until, Job.started_at.is_not(None)
    statement = select(Job.state, func.count(), func.sum(seconds), *within).where(*recent, Job.place.is_(None))
    rows = session.execute(statement.group_by(Job.state))
    found = {row[0]: Durations(row[1], queries.on_grid(row[2], grid_seconds), tuple(row[3:])) for row in rows}
    nothing = Durations(0, 0.0, (0,) * len(BUCKETS_SECONDS))
    return {state: found.get(state, nothing) for state in TERMINAL_STATES}


def _workers(session: Session, since: float) -> dict[str, Workers]:
    """Return the supervisors that were seen since then, by the queues they serve."""
    alive = select(Worker.queues, func.count(), func.sum(Worker.slots), func.sum(Worker.gpus))
    found = session.execute(alive.where(Worker.seen_at >= since).group_by(Worker.queues))
    return {row[0]: Workers(row[1], row[2], row[3]) for row in found}
