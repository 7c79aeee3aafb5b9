"""A chain recomputed from its entries alone: hashes, columns, prices, caps and sums, in one snapshot.

Every amount is priced anew from the schedule that its reservation froze, every cap derived from the budget as it was
declared, and each entry must follow from those before it (`core.store.ledger.kinds`). A chain cannot tell that its
whole tail was replaced by a consistent one; the witness can (`core.store.witness.witness`).

What was verified is remembered by the process that did it, never in the database: whoever can rewrite the entries could
rewrite that, too.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from core.store.database import Database
from core.store.ledger import chain, kinds
from core.store.ledger.corrections import freeze, mark_frozen
from core.store.ledger.remembered import (
    ForgottenError,
    compare_accounts,
    compare_charged,
    compare_datasets,
    compare_jobs,
    compare_scope,
    jobs_where,
)
from core.store.ledger.tally import BrokenChain, JobTally, Tally, demand
from core.store.tables import Entry, Job, Scope

_REPLACED: Final = "entries that were verified before are gone, or are others"
PAGE: Final = 500
"""Entries that are read at once."""
_COLUMNS: Final = (
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


@dataclass(frozen=True)
class Verification:
    """The outcome of recomputing a scope's chain."""

    ok: bool
    entries: int
    head: str
    first_bad_seq: int | None = None
    """The first entry that does not follow from those before it; None where all do, or only a balance is wrong."""
    reason: str | None = None
    unchecked: tuple[str, ...] = ()
    """What the entries do not say, so that it could not be checked."""


class Verifier:
    """Follows one chain; called again, it goes on behind the last entry that it has verified.

    Args:
        scope_id: whose chain.
        known: the number and the hash of an entry that was verified before, which must be there again.
    """

    def __init__(self, scope_id: str, known: tuple[int, str] | None = None) -> None:
        self._scope_id = scope_id
        self._known = known
        self._tally = Tally(scope_id, self._over_before, lambda job: job in self._seen_before)
        self._head = chain.GENESIS
        self._seen_before: set[str] = set()
        self._open: Session | None = None

    @property
    def place(self) -> tuple[int, str]:
        """The number and the hash of the last entry that was verified."""
        return self._tally.seq, self._head

    @property
    def _session(self) -> Session:
        assert self._open is not None, "only used within `verify`"
        return self._open

    def verify(self, session: Session) -> Verification:
        """Follow the chain to its end, and compare accounts and jobs with it.

        Whatever goes wrong inside, but for the database itself, is a chain that cannot be verified: it is not ok. This
        object has then lost its place, and is of no further use.

        Args:
            session: a session of `Database.read`, so that all is of one snapshot.
        """
        self._open = session
        scope = session.get_one(Scope, self._scope_id, populate_existing=True)
        told = scope.seq, scope.head
        found = self._tally
        try:
            demand(self._is_where_we_were(), _REPLACED)
            for rows in self._pages():
                self._follow_all(rows)
            demand(self._known is None or found.seq >= self._known[0], _REPLACED)
            _compare_head(scope, found.seq, self._head)
        except DBAPIError:
            raise
        except ForgottenError as error:
            return Verification(False, *told, None, str(error))
        except Exception as error:  # noqa: BLE001 - what cannot be followed is not verified, whatever the reason
            return Verification(False, *told, self._first_bad(scope), _reason_of(error))
        try:
            compare_scope(scope, found)
            compare_datasets(session, self._scope_id, found)
            compare_accounts(session, self._scope_id, found)
            compare_charged(session, scope, found)
            live = jobs_where(session, Job.scope_id == self._scope_id, Job.finished_at.is_(None))
            compare_jobs(self._scope_id, found.live, live)
        except DBAPIError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            return Verification(False, *told, None, _reason_of(error))
        return Verification(True, *told, unchecked=tuple(sorted(found.remarks)))

    def _first_bad(self, scope: Scope) -> int:
        """Return the entry that could not be followed; the last one where the head is not its own."""
        seq = self._tally.seq
        return seq if seq == scope.seq else seq + 1

    def _is_where_we_were(self) -> bool:
        """Say whether the last entry that was verified still is the one it was."""
        if not self._tally.seq:
            return True
        last = select(Entry.hash).where(Entry.scope_id == self._scope_id, Entry.seq == self._tally.seq)
        return self._session.execute(last).scalar_one_or_none() == self._head

    def _pages(self) -> Iterator[Sequence[Any]]:
        """Yield the entries that are not verified yet, some at a time."""
        after = self._tally.seq
        while True:
            page = select(*_COLUMNS).where(Entry.scope_id == self._scope_id, Entry.seq > after)
            rows = self._session.execute(page.order_by(Entry.seq).limit(PAGE)).all()
            if rows:
                yield rows
            if len(rows) < PAGE:
                return
            after = rows[-1].seq

    def _follow_all(self, rows: Sequence[Any]) -> None:
        """Follow some entries, and compare the jobs that they end with what the database remembers of them."""
        reserved = {row.job_id for row in rows if row.kind == kinds.Reserve.KIND and row.job_id is not None}
        before = select(Entry.job_id).where(Entry.job_id.in_(reserved), Entry.scope_id == self._scope_id)
        before = before.where(Entry.seq < rows[0].seq).distinct()
        self._seen_before = {job for job in self._session.execute(before).scalars() if job is not None}
        for row in rows:
            self._follow(row)
        over = self._tally.over
        compare_jobs(self._scope_id, over, jobs_where(self._session, Job.id.in_(over.keys())))
        over.clear()

    def _follow(self, row: Any) -> None:  # noqa: ANN401 - a row of nine columns
        """Follow one entry."""
        self._head = follow(self._tally, self._head, row)
        demand(self._known is None or self._known[0] != self._tally.seq or self._known == self.place, _REPLACED)

    def _over_before(self, job_id: str) -> JobTally | None:
        """Return a job that was over before this page: its entries are followed again, without their movements."""
        of_it = select(Entry.body).where(
            Entry.job_id == job_id, Entry.scope_id == self._scope_id, Entry.seq <= self._tally.seq
        )
        shadow = self._tally.shadow()
        for text in self._session.execute(of_it.order_by(Entry.seq)).scalars():
            kinds.read(text).follow(shadow)
        return shadow.live.get(job_id) or shadow.over.get(job_id)


def follow(tally: Tally, head: str, row: Any) -> str:  # noqa: ANN401 - a row of nine columns
    """Follow an entry by what its row has, and return its hash.

    Args:
        tally: what the entries before it add up to.
        head: the hash of the last of them.
        row: `seq`, `kind`, `job_id`, `attempt`, `chunk`, `body`, `prev_hash`, `hash`, `created_at`.

    Raises:
        BrokenChain: it does not follow.
        ArithmeticError, AssertionError, KeyError, TypeError, ValueError: it is no entry, or none that could follow.
    """
    demand(row.seq == tally.seq + 1, f"entry {tally.seq + 1} is missing")
    demand(row.prev_hash == head, "it does not follow the entry before it")
    demand(row.hash == chain.link(head, row.body), "its hash is not that of its body")
    body = kinds.read(row.body)
    told = (body.seq, body.kind, body.job, body.attempt, body.chunk, body.at)
    kept = (row.seq, row.kind, row.job_id, row.attempt, row.chunk, row.created_at)
    demand(told == kept, "its columns say something else than its body")
    kinds.follow(tally, body)
    return str(row.hash)


def _reason_of(error: Exception) -> str:
    return str(error) if isinstance(error, BrokenChain) else f"it cannot be read ({type(error).__name__})"


def _compare_head(scope: Scope, seq: int, head: str) -> None:
    demand(
        (seq, head) == (scope.seq, scope.head),
        f"the scope's head is entry {scope.seq}, {scope.head}; the chain ends with entry {seq}, {head}",
    )


def verify(session: Session, scope_id: str) -> Verification:
    """Verify a scope's chain whole; the caller freezes the scope on a mismatch.

    Args:
        session: a session of `Database.read`, so that all is of one snapshot.
        scope_id: the scope.
    """
    return Verifier(scope_id).verify(session)


def freeze_unverified(database: Database, scope_id: str, reason: str, actor: str) -> None:
    """Freeze a scope whose chain was not verified, by an entry, or, where the chain takes none, without one."""
    told = f"verification failed: {reason}"
    try:
        database.run(freeze, scope_id, told, actor)
    except (IntegrityError, ValueError, AssertionError):  # a chain that was tampered with may take no entry
        database.run(mark_frozen, scope_id, told)


class Rounds:
    """Verifies the chains of a database again and again: what is new each time, and all of it now and then.

    How far it has come is kept here, in this process's memory: a process that starts verifies every chain whole.

    Args:
        database: the database.
        whole_seconds: after so long a chain is verified whole again.
    """

    def __init__(self, database: Database, whole_seconds: float) -> None:
        self._database = database
        self._whole_seconds = whole_seconds
        self._verifiers: dict[str, tuple[float, Verifier]] = {}
        self._bad: dict[str, int] = {}

    def go(self, is_over: Callable[[], bool] = lambda: False) -> dict[str, str]:
        """Verify each scope whose chain has grown since the last time, or is due; freeze those that fail.

        Args:
            is_over: asked between two scopes; where it says so, the others are left for the next time.

        Returns:
            Why each scope failed that did not fail before at the same entry.
        """
        with self._database.read() as session:
            scopes = {row.id: row.seq for row in session.execute(select(Scope.id, Scope.seq).order_by(Scope.id))}
        failed: dict[str, str] = {}
        for scope_id, seq in scopes.items():
            if is_over():
                break
            if self._bad.get(scope_id) != seq and self._is_due(scope_id, seq):
                found = self._verify(scope_id)
                if not found.ok:
                    failed[scope_id] = found.reason or ""
        return failed

    def _is_due(self, scope_id: str, seq: int) -> bool:
        begun, verifier = self._verifiers.get(scope_id, (-inf, None))
        if verifier is None:
            return True
        if time.monotonic() - begun >= self._whole_seconds:
            self._verifiers[scope_id] = (time.monotonic(), Verifier(scope_id, verifier.place))
            return True
        return verifier.place[0] != seq

    def _verify(self, scope_id: str) -> Verification:
        _, verifier = self._verifiers.setdefault(scope_id, (time.monotonic(), Verifier(scope_id)))
        with self._database.read() as session:
            found = verifier.verify(session)
        if not found.ok:
            del self._verifiers[scope_id]
            freeze_unverified(self._database, scope_id, found.reason or "", "verifier")
            with self._database.read() as session:
                self._bad[scope_id] = session.get_one(Scope, scope_id).seq
        return found
