"""Passes over whole chains on request: they run beside requests, and are reported when they have ended.

An answer is never later than `WAIT_SECONDS`: it is the outcome of the pass that was asked for, if that has ended by
then, and else that of the last one before it. The next request gets the outcome once, and the one after begins another
pass.
"""

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from core.base.errors import LedgerBusy
from core.db import clock
from core.db.database import Database
from core.ledger.rounds import freeze_unverified
from core.ledger.verification import PAGE, Verification, Verifier
from core.service.aside import Aside

WAIT_SECONDS: Final = 2.0
KEPT_SECONDS: Final = 60.0
"""For so long an outcome waits for who asked for it."""
_MOST: Final = 1024


@dataclass(frozen=True)
class PassResult:
    """The result of a pass, and the time at which the last entries were read, in seconds since the epoch."""

    found: Verification
    at: float


@dataclass
class Pass:
    """A pass over one scope's chain, from its first entry on."""

    scope_id: str
    actor: str
    """The principal that asked for it first; the entry that freezes the scope names it."""
    verifier: Verifier
    outcome: PassResult | None = None
    ended: float | None = None
    """By the process's own clock."""
    is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def is_fresh(self) -> bool:
        """Whether it goes on, or its outcome still waits for who asked for it."""
        return self.ended is None or time.monotonic() < self.ended + KEPT_SECONDS


class Passes:
    """The passes of this process; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aside = Aside("passes", _MOST)
        self._running: dict[str, Pass] = {}
        self._last: OrderedDict[str, PassResult] = OrderedDict()
        self._asked: OrderedDict[tuple[str, str], Pass] = OrderedDict()

    def ask(
        self, database: Database, scope_id: str, caller_id: str, wait_seconds: float = WAIT_SECONDS
    ) -> tuple[PassResult | None, bool]:
        """Begin a pass over a scope's chain, or go on waiting for the one that this caller has asked for.

        Args:
            database: the ledger.
            scope_id: the scope of the chain.
            caller_id: the principal that asks.
            wait_seconds: for so long the end is waited for.

        Returns:
            The outcome, and whether the pass still goes on; then it is that of the last pass before it, None where
            there was none.

        Raises:
            LedgerBusy: the database went away meanwhile, or too many chains are being verified.
        """
        key = scope_id, caller_id
        with self._lock:
            mine = self._asked.get(key)
            if mine is None or not mine.is_fresh:
                if len(self._running) >= _MOST:
                    raise LedgerBusy("Too many ledgers are being verified; ask again later.", retry_after_seconds=30)
                # Callers share a pass that is under way, and each of them gets its outcome.
                mine = self._asked[key] = self._running.get(scope_id) or self._begin(database, scope_id, caller_id)
                while len(self._asked) > _MOST:
                    self._asked.popitem(last=False)
        is_over = mine.is_over.wait(wait_seconds)
        with self._lock:
            if not is_over:
                return self._last.get(scope_id), True
            # The outcome is given once; a newer pass of this caller stays.
            if self._asked.get(key) is mine:
                del self._asked[key]
        if mine.outcome is None:
            raise LedgerBusy("The ledger could not be read to its end; ask again.", retry_after_seconds=2)
        return mine.outcome, False

    def stop(self) -> None:
        """Leave the running verification; the stored state is whole at any time."""
        self._aside.stop()

    def _begin(self, database: Database, scope_id: str, actor: str) -> Pass:
        begun = self._running[scope_id] = Pass(scope_id, actor, Verifier(scope_id))
        self._aside.put(scope_id, lambda: self._go_on(database, begun))
        return begun

    def _go_on(self, database: Database, one: Pass) -> bool:
        """Verify some entries; tell whether there are more."""
        goes_on = False
        try:
            with database.read() as session:
                found = one.verifier.advance(session, PAGE)
                at = clock.read(session)
            if found is not None:
                if not found.ok:
                    freeze_unverified(database, one.scope_id, found.reason or "", one.actor)
                one.outcome = PassResult(found, at)
            goes_on = found is None
        finally:
            if not goes_on:
                self._end(one)
        return goes_on

    def _end(self, one: Pass) -> None:
        with self._lock:
            del self._running[one.scope_id]
            if one.outcome is not None:
                self._last[one.scope_id] = one.outcome
                self._last.move_to_end(one.scope_id)
                while len(self._last) > _MOST:
                    self._last.popitem(last=False)
            one.ended = time.monotonic()
        # Last, for whoever waits reads the outcome at once.
        one.is_over.set()
