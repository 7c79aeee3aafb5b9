"""Periodic verification of all chains: new entries each time, and whole chains at a longer period."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Final

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from core.base.errors import LedgerBusy
from core.db.database import Database
from core.db.tables import Scope
from core.ledger.corrections import freeze, mark_frozen
from core.ledger.marks import EVERY, ON_THE_WAY, MarkKey, marked_seq, write_mark
from core.ledger.verification import Verification, Verifier

SLICE: Final = 2000
"""Entries that are verified in one snapshot: a few tenths of a second, so that none is held for long."""


def freeze_unverified(database: Database, scope_id: str, reason: str, actor: str) -> None:
    """Freeze a scope whose chain was not verified, by an entry, or, where the chain takes none, without one."""
    told = f"verification failed: {reason}"
    try:
        database.transaction(freeze, scope_id, told, actor)
    except (IntegrityError, ValueError, AssertionError):  # a chain that was tampered with may take no entry
        database.transaction(mark_frozen, scope_id, told)


class Rounds:
    """Verifies the chains of a database periodically: new entries each time, whole chains at a longer period.

    Its progress is kept in this process's memory: a process that starts verifies every chain whole. Its marks in the
    database serve requests that need an answer at once (`core.ledger.marks`).

    Args:
        database: the database.
        whole_seconds: after so long a chain is verified whole again.
        keys: returns what marks are made with, the present key first; nothing where there is none.
    """

    def __init__(
        self, database: Database, whole_seconds: float, keys: Callable[[], Sequence[MarkKey]] = lambda: ()
    ) -> None:
        self._database = database
        self._whole_seconds = whole_seconds
        self._keys = keys
        self._verifiers: dict[str, tuple[float, Verifier]] = {}
        self._bad: dict[str, int] = {}

    def go(self, is_over: Callable[[], bool] = lambda: False) -> dict[str, str]:
        """Verify each scope whose chain has grown since the last time, or is due; freeze those that fail.

        Args:
            is_over: asked between two slices; where it says so, the rest is left for the next time.

        Returns:
            Why each scope failed that did not fail before at the same entry.
        """
        with self._database.read() as session:
            scopes = {row.id: row.seq for row in session.execute(select(Scope.id, Scope.seq).order_by(Scope.id))}
        failed: dict[str, str] = {}
        for scope_id, seq in scopes.items():
            if is_over():
                break
            # A chain that failed is looked at again only after it has grown.
            if self._bad.get(scope_id) != seq and self._is_due(scope_id, seq):
                found = self._verify(scope_id, is_over)
                if found is not None and not found.ok:
                    failed[scope_id] = found.reason or ""
        return failed

    def _is_due(self, scope_id: str, seq: int) -> bool:
        begun, verifier = self._verifiers.get(scope_id, (-inf, None))
        if verifier is None:
            return True
        if time.monotonic() - begun >= self._whole_seconds:
            # The new pass must meet the entry that was verified last: a replaced chain lacks it.
            self._verifiers[scope_id] = (time.monotonic(), Verifier(scope_id, verifier.place))
            return True
        return verifier.place[0] != seq

    def _verify(self, scope_id: str, is_over: Callable[[], bool]) -> Verification | None:
        _, verifier = self._verifiers.setdefault(scope_id, (time.monotonic(), Verifier(scope_id)))
        found = None
        while found is None and not is_over():
            with self._database.read() as session:
                found = verifier.advance(session, SLICE)
            if found is None:
                self._mark(scope_id, verifier, ON_THE_WAY)
        if found is not None and not found.ok:
            del self._verifiers[scope_id]
            freeze_unverified(self._database, scope_id, found.reason or "", "verifier")
            with self._database.read() as session:
                # Read anew: the freeze has added an entry, which must not count as growth.
                self._bad[scope_id] = session.get_one(Scope, scope_id).seq
        elif found is not None:
            self._mark(scope_id, verifier, EVERY)
        return found

    def _mark(self, scope_id: str, verifier: Verifier, every: int) -> None:
        """Leave in the database how far a chain was verified, where so many entries are new; the first at its end."""
        # Only the present master key makes marks; without one there are none.
        for key in self._keys()[:1]:
            with self._database.read() as session:
                marked = marked_seq(session, scope_id, key)
            is_first = marked == 0 and every == EVERY
            if is_first or verifier.place[0] >= marked + every:
                # A mark only saves time, so a busy database does without.
                with suppress(LedgerBusy):
                    self._database.transaction(write_mark, verifier.state, key)
