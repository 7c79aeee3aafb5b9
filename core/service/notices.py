"""Notices: reads events from committed rows, and adds a delivery for each webhook and mail address that wants one.

Nothing that makes an event knows of notices. A job that ends in a trainer, or a scope that freezes in a verifier,
commits its row, and the next look finds it. A look holds the lock of its mark, so that one process looks at a time.
It begins some minutes before the end of the look before, for a transaction may commit later than its own times say.
A target has one delivery of each event at most.

An event that goes on (a low budget, a frozen ledger, a worker that is gone) has a mark with the time of its beginning.
Each target hears of it once, also one that was made after the beginning.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import ColumnElement, String, cast, delete, func, or_, select
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite
from sqlalchemy.orm import Session

from core.access import deliveries, emails, webhooks
from core.db import clock
from core.db import reads as queries
from core.db.notice_tables import MailAddress, NoticeMark, Webhook
from core.db.tables import Account, Approval, Job, Model, Scope
from core.jobs.presence import Worker
from core.ledger import gaps
from core.ledger.accounts import balance_of
from core.ledger.claims import frozen_reason
from core.privacy.budget import standing
from core.service.context import Context
from core.service.workers import LEASES

READ: Final = "read"
"""The mark of how far events were read."""
AGAIN_SECONDS: Final = 300.0
"""Time before the last look that is looked at again: longer than any transaction of ours is open."""
LOW_PER_CENT: Final = 10
KEEP_SECONDS: Final = 60.0
"""A mark that is no older than this is not written for itself alone."""
_ALL: Final = frozenset({"owner", "admin", "auditor"})
_WATCHERS: Final = frozenset({"admin", "auditor"})
_ADMINS: Final = frozenset({"admin"})


@dataclass(frozen=True)
class Happening:
    """An event, and the principals that hear of it."""

    kind: str
    source: str
    """Its name: a target has it once."""
    data: dict[str, str]
    at: float
    people: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    goes_on: bool = False
    """True: a target that is made later hears of it, too."""


@dataclass(frozen=True)
class Recipient:
    """A webhook or a mail address to which events are sent."""

    id: str
    principal_id: str
    role: str
    kinds: frozenset[str]
    since: float
    """Seconds since the epoch; earlier events are not for it."""

    def wants(self, happening: Happening) -> bool:
        """Tell whether it gets an event."""
        concerns = self.principal_id in happening.people or self.role in happening.roles
        early = happening.at < self.since and not happening.goes_on
        return concerns and happening.kind in self.kinds and not early


@dataclass
class RowsLook:
    """One look at the rows: from when to when, and for whom."""

    since: float
    until: float
    now: float
    grid_seconds: float
    lease_seconds: float
    people: frozenset[str]
    found: list[Happening] = field(default_factory=list)


def read(context: Context) -> int:
    """Look for events, and add their deliveries; return how many were added. Does nothing while nobody wants any."""
    with context.database.read() as session:
        is_wanted = bool(_targets(session))
    return context.database.transaction(_read, context) if is_wanted else 0


def _targets(session: Session) -> list[Recipient]:
    """Return who hears of events."""
    hooks: list[tuple[Webhook, str]] = webhooks.live(session)
    mails: list[tuple[MailAddress, str]] = emails.live(session)
    return [
        *(Recipient(one.id, one.principal_id, role, frozenset(one.kinds), one.created_at) for one, role in hooks),
        *(
            Recipient(one.id, one.principal_id, role, frozenset(one.kinds), one.confirmed_at or one.sent_at)
            for one, role in mails
        ),
    ]


def _read(session: Session, context: Context) -> int:
    settings = context.settings
    mark, targets = _hold(session), _targets(session)  # the lock first
    if not targets:
        return 0
    now = clock.read(session)
    look = RowsLook(
        # Events from before the oldest target are for nobody.
        since=max(mark.at - AGAIN_SECONDS, min(one.since for one in targets)),
        until=queries.grid_time(session, settings.visible_grid_seconds),
        now=now,
        grid_seconds=settings.visible_grid_seconds,
        lease_seconds=settings.lease_seconds,
        people=frozenset(one.principal_id for one in targets),
    )
    going_on = list(_going_on(session, look))
    found = [*_ended(session, look), *_waiting(session, look), *_marked(session, look, going_on)]
    rows = [_row(target, one) for one in found for target in targets if target.wants(one)]
    added = deliveries.add_all(session, rows)
    if added or now > mark.at + KEEP_SECONDS:
        mark.at = now
        deliveries.remove_old(session, [one.source for one in found])
    session.flush()
    return added


def _hold(session: Session) -> NoticeMark:
    """Return the mark of how far events were read, locked; the first look begins now."""
    insert = insert_sqlite if session.get_bind().dialect.name == "sqlite" else insert_postgresql
    session.execute(insert(NoticeMark).values(name=READ, at=clock.read(session)).on_conflict_do_nothing())
    statement = select(NoticeMark).where(NoticeMark.name == READ).with_for_update()
    return session.execute(statement.execution_options(populate_existing=True)).scalar_one()


def _row(target: Recipient, happening: Happening) -> dict[str, Any]:
    return {
        "principal_id": target.principal_id,
        "target_id": target.id,
        "kind": happening.kind,
        "source": happening.source,
        "data": happening.data,
        "happened_at": happening.at,
    }


def _ended(session: Session, look: RowsLook) -> Iterator[Happening]:
    """Yield the jobs that ended, as soon as anybody sees that they did, for their submitters and the data's owners."""
    owned = select(Scope.id).where(Scope.owner_id.in_(look.people))
    joined = select(Job.federation_id).where(Job.place.is_not(None), Job.scope_id.in_(owned))
    concerned = or_(Job.owner_id.in_(look.people), Job.scope_id.in_(owned), Job.id.in_(joined))
    statement = select(Job.id, Job.owner_id, Job.scope_id, Job.federation_id, Job.finished_at).where(
        Job.finished_at >= look.since, Job.finished_at <= look.until, Job.place.is_(None), concerned
    )
    jobs = session.execute(statement.order_by(Job.finished_at, Job.id)).all()
    owners = _owners(session, {one.scope_id for one in jobs})
    sites = _sites(session, [one.id for one in jobs if one.federation_id is not None])
    for one in jobs:
        theirs = sites.get(one.id) or {owners[one.scope_id]}
        at = queries.on_grid(one.finished_at, look.grid_seconds)
        people = frozenset({one.owner_id, *theirs})
        yield Happening("job.ended", f"job.ended:{one.id}", {"job": one.id}, at, people)


def _waiting(session: Session, look: RowsLook) -> Iterator[Happening]:
    """Yield the releases that wait for approval, for the owners who are asked."""
    statement = (
        select(Model.id, Model.job_id, Model.created_at, Job.scope_id, Job.federation_id)
        .join(Job, Job.id == Model.job_id)
        .where(Model.approval == "pending", Model.created_at >= look.since, Model.created_at <= look.until)
    )
    models = session.execute(statement.order_by(Model.created_at, Model.id)).all()
    owners = _owners(session, {one.scope_id for one in models})
    asked = _asked(session, [one.id for one in models if one.federation_id is not None])
    for one in models:
        people = asked.get(one.id, set()) if one.federation_id is not None else {owners[one.scope_id]}
        at = queries.on_grid(one.created_at, look.grid_seconds)
        data = {"model": one.id, "job": one.job_id}
        yield Happening("approval.waiting", f"approval.waiting:{one.id}", data, at, frozenset(people))


def _owners(session: Session, scopes: Iterable[str]) -> dict[str, str]:
    found = session.execute(select(Scope.id, Scope.owner_id).where(Scope.id.in_(list(scopes))))
    return {row.id: row.owner_id for row in found}


def _sites(session: Session, jobs: Iterable[str]) -> dict[str, set[str]]:
    """Return the owners of the data of each of some federated jobs."""
    statement = select(Job.federation_id, Scope.owner_id).join(Scope, Scope.id == Job.scope_id)
    found: dict[str, set[str]] = {}
    for row in session.execute(statement.where(Job.federation_id.in_(list(jobs)), Job.place.is_not(None))):
        found.setdefault(str(row.federation_id), set()).add(row.owner_id)
    return found


def _asked(session: Session, models: Iterable[str]) -> dict[str, set[str]]:
    """Return the owners that have still to judge each of some releases of federated jobs."""
    statement = select(Approval.model_id, Scope.owner_id).join(Scope, Scope.id == Approval.scope_id)
    found: dict[str, set[str]] = {}
    for row in session.execute(statement.where(Approval.model_id.in_(list(models)), Approval.verdict == "pending")):
        found.setdefault(row.model_id, set()).add(row.owner_id)
    return found


def _going_on(session: Session, look: RowsLook) -> Iterator[Happening]:
    """Yield what holds now; its times are set from its marks."""
    for scope_id, owner_id in _low(session):
        people = frozenset({owner_id})
        yield Happening("budget.low", f"budget.low:{scope_id}", {"scope": scope_id}, look.now, people, goes_on=True)
    for scope_id, owner_id in _frozen(session):
        people, data = frozenset({owner_id}), {"scope": scope_id}
        yield Happening("ledger.frozen", f"ledger.frozen:{scope_id}", data, look.now, people, _WATCHERS, goes_on=True)
    if frozen_reason(session) is not None:
        yield Happening("ledger.frozen", "ledger.frozen:all", {}, look.now, frozenset(), _ALL, goes_on=True)
    silent = Worker.seen_at < look.now - LEASES * look.lease_seconds
    for name in session.execute(select(Worker.name).where(silent).order_by(Worker.name)).scalars():
        # A worker's name may be longer than the columns that keep the source.
        source = f"worker.gone:{sha256(name.encode()).hexdigest()[:32]}"
        yield Happening("worker.gone", source, {"worker": name}, look.now, frozenset(), _ADMINS, goes_on=True)


def _low(session: Session) -> list[tuple[str, str]]:
    """Return scopes with less than a tenth of their budget left, and their owners."""
    taken = (Account.spent_1 + Account.reserved_1) * 1.0
    perhaps: ColumnElement[bool] = (Account.cap_1 > 0) & (taken > 0.85 * Account.cap_1)  # decimals decide below
    statement = select(Account, Scope.owner_id).join(Scope, Scope.id == Account.scope_id)
    found = session.execute(statement.where(Account.principal_id.is_(None), perhaps).order_by(Account.scope_id))
    low = list[tuple[str, str]]()
    for account, owner_id in found:
        held = balance_of(account)
        if standing(held.terms, held.spent, held.reserved).remaining < LOW_PER_CENT:
            low.append((account.scope_id, owner_id))
    return low


def _frozen(session: Session) -> list[tuple[str, str]]:
    """Return scopes that admit no jobs, and their owners."""
    # The text of a list with any gap is longer than that of an empty one; `why_stopped` decides below.
    perhaps = or_(Scope.frozen_reason.is_not(None), func.length(cast(Scope.unwitnessed, String)) > len("[]"))
    found = session.execute(select(Scope).where(perhaps).order_by(Scope.id)).scalars()
    return [(one.id, one.owner_id) for one in found if gaps.why_stopped(one) is not None]


def _marked(session: Session, look: RowsLook, going_on: list[Happening]) -> list[Happening]:
    """Keep one mark for each event that goes on, and none for others; return the events with their beginnings."""
    marks = {one.name: one.at for one in session.execute(select(NoticeMark).where(NoticeMark.name != READ)).scalars()}
    current = {one.source for one in going_on}
    if over := marks.keys() - current:
        session.execute(delete(NoticeMark).where(NoticeMark.name.in_(over)))
    for name in sorted(current - marks.keys()):
        session.add(NoticeMark(name=name, at=look.now))
    begun = {one.source: marks.get(one.source, look.now) for one in going_on}
    return [
        Happening(
            one.kind,
            # With its beginning, so that the same trouble at a later time is another event.
            f"{one.source}:{begun[one.source]:.3f}",
            one.data,
            begun[one.source],
            one.people,
            one.roles,
            goes_on=True,
        )
        for one in going_on
    ]
