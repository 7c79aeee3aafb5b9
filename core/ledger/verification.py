"""A chain recomputed from its entries alone: hashes, columns, prices, caps and sums.

Every amount is priced anew from the schedule that its reservation froze, every cap derived from the budget as it was
declared, and each entry must follow from those before it (`core.ledger.kinds`). A chain cannot tell that its
whole tail was replaced by a consistent one; the witness can (`core.ledger.witness.witness`).

A verified state is remembered by the process that verified it, and in the database under a code that its writers cannot
make (`core.ledger.marks`). Entries are only ever added, so a chain is followed in slices, each in a snapshot of its
own. In the snapshot of the last slice, the database's other rows are compared with the chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from core.db.tables import Entry, Job, Scope
from core.ledger import chain, kinds
from core.ledger.remembered import (
    ForgottenError,
    compare_accounts,
    compare_charged,
    compare_datasets,
    compare_jobs,
    compare_scope,
    jobs_where,
)
from core.ledger.states import BLOCK, State
from core.ledger.tally import BrokenChain, JobTally, Tally, demand

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
    """The number of the last entry, of the snapshot in which the chain ended."""
    head: str
    """Its hash."""
    first_bad_seq: int | None = None
    """The first entry that does not follow from those before it; None where all do, or only a balance is wrong."""
    reason: str | None = None


class _CorrectedError(Exception):
    """An entry is about a job that had ended before and was let go of."""


class Verifier:
    """Follows one chain; called again, it goes on behind the last entry that it has verified.

    Of jobs that have ended nothing is kept but of those that were corrected later. Where that is new, the chain is
    followed again from its first entry: entries that were read once are never believed unread.

    Args:
        scope_id: the scope of the chain.
        known: the number and the hash of an entry that was verified before, which must be there again.
        mark: the state to go on from, which somebody vouches for; None: the first entry is the first to follow.
    """

    def __init__(self, scope_id: str, known: tuple[int, str] | None = None, mark: State | None = None) -> None:
        self._scope_id = scope_id
        self._known = known
        self._corrected: set[str] = set()
        self._open: Session | None = None
        self._verified = (0, "")
        self._begin(mark)

    def _begin(self, mark: State | None = None) -> None:
        """Go back to before the first entry, or to a state."""
        self._tally = Tally(self._scope_id) if mark is None else mark.tally
        self._tally.look_up(self._ended_before, lambda job: job in self._seen_before)
        self._head = chain.GENESIS if mark is None else mark.head
        self._heads = [] if mark is None else list(mark.heads)
        self._seen_before: set[str] = set()
        self._ended: dict[str, JobTally] = {}

    @property
    def place(self) -> tuple[int, str]:
        """The number and the hash of the last entry that was verified."""
        return self._tally.seq, self._head

    @property
    def state(self) -> State:
        """The tally up to there; it changes with each entry."""
        return State(self._tally, self._head, self._heads)

    @property
    def _session(self) -> Session:
        assert self._open is not None, "only used within `advance`"
        return self._open

    def verify(self, session: Session) -> Verification:
        """Follow the chain to its end in one snapshot; see `advance`."""
        while (found := self.advance(session)) is None:
            pass
        return found

    def advance(self, session: Session, most: float = inf) -> Verification | None:
        """Follow some entries; at the end of the chain, compare what the database remembers beside it.

        Any fault inside, other than the database's, is a chain that cannot be verified: it is not ok. This
        object has then lost its place, and is of no further use.

        Args:
            session: a session of `Database.read`, so that all is of one snapshot.
            most: entries to follow.

        Returns:
            The outcome; None while there are more entries.
        """
        self._open = session
        scope = session.get_one(Scope, self._scope_id, populate_existing=True)
        told, found = (scope.seq, scope.head), self._tally
        try:
            demand(self._is_where_we_were(), _REPLACED)
            if not self._follow_some(most):
                return None
            demand(self._known is None or found.seq >= self._known[0], _REPLACED)
            _compare_head(scope, found.seq, self._head)
        # A database that does not answer says nothing of the chain.
        except DBAPIError:
            raise
        except _CorrectedError:
            # The pass from the first entry must meet the verified one again, or the chain was rewritten.
            self._known = max(self._known or (0, ""), self._verified)
            self._begin()
            return None
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
        return Verification(True, *told)

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

    def _follow_some(self, most: float) -> bool:
        """Follow entries that are not verified yet, at most so many; tell whether that was the last of them."""
        if not self._tally.seq:
            made = select(Entry.job_id).where(Entry.scope_id == self._scope_id, Entry.kind == kinds.Compensate.KIND)
            # Of ended jobs, only those that a later entry corrects are worth their memory.
            self._corrected |= {job for job in self._session.execute(made).scalars() if job is not None}
        until = self._tally.seq + most
        while self._tally.seq < until:
            page = select(*_COLUMNS).where(Entry.scope_id == self._scope_id, Entry.seq > self._tally.seq)
            wanted = min(PAGE, until - self._tally.seq)
            rows = self._session.execute(page.order_by(Entry.seq).limit(int(wanted))).all()
            if rows:
                self._follow_all(rows)
            if len(rows) < wanted:
                return True
        return False

    def _follow_all(self, rows: Sequence[Any]) -> None:
        """Follow some entries, and compare the jobs that they end with what the database remembers of them."""
        reserved = {row.job_id for row in rows if row.kind == kinds.Reserve.KIND and row.job_id is not None}
        # By jobs alone: with the scope beside them SQLite goes through all entries of the scope.
        firsts = select(Entry.job_id, Entry.scope_id, func.min(Entry.seq)).where(Entry.job_id.in_(reserved))
        found = self._session.execute(firsts.group_by(Entry.job_id, Entry.scope_id)).all() if reserved else ()
        own = [(job, seq) for job, scope_id, seq in found if scope_id == self._scope_id]
        # Jobs of earlier pages are let go of, so their numbers are looked up.
        self._seen_before = {job for job, seq in own if job is not None and seq < rows[0].seq}
        for row in rows:
            self._follow(row)
        over = self._tally.over
        compare_jobs(self._scope_id, over, jobs_where(self._session, Job.id.in_(over.keys())))
        self._ended |= {job: tally for job, tally in over.items() if job in self._corrected}
        over.clear()
        self._verified = self.place

    def _follow(self, row: Any) -> None:  # noqa: ANN401 - a row of nine columns
        """Follow one entry."""
        self._head = follow(self._tally, self._head, row)
        if self._tally.seq % BLOCK == 0:
            self._heads.append(self._head)
        demand(self._known is None or self._known[0] != self._tally.seq or self._known == self.place, _REPLACED)

    def _ended_before(self, job_id: str) -> JobTally | None:
        """Return a job that had ended before this page.

        Raises:
            _CorrectedError: it was not kept.
        """
        if job_id not in self._corrected:
            self._corrected.add(job_id)
            raise _CorrectedError(job_id)
        return self._ended.get(job_id)


def follow(tally: Tally, head: str, row: Any) -> str:  # noqa: ANN401 - a row of nine columns
    """Follow an entry by what its row has, and return its hash.

    Args:
        tally: the sums of the entries before it.
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
