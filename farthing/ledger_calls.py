"""Calls of a client about a scope's ledger."""

import time
from collections.abc import Iterator
from typing import Final

from farthing.schemas.budgets import Scope
from farthing.schemas.ledger import EntryView, VerificationView
from farthing.wire import Wire

_POLL_SECONDS: Final = 1.0


class LedgerCalls:
    """The part of a client that is about scopes and their ledgers."""

    _wire: Wire

    def scope(self, scope: str) -> Scope:
        """Return a scope: its people, its terms, and whether it is frozen."""
        return Scope.model_validate(self._wire.get(f"/v1/scopes/{scope}"))

    def entries(self, scope: str) -> Iterator[EntryView]:
        """Yield a scope's ledger, oldest first."""
        return map(EntryView.model_validate, self._wire.pages(f"/v1/scopes/{scope}/entries"))

    def verify(self, scope: str, *, wait_seconds: float = 600.0) -> VerificationView:
        """Have the service recompute a scope's chain, its prices and its sums; a mismatch freezes the scope.

        Args:
            scope: `sc_...`.
            wait_seconds: for so long the end is waited for; a hundred thousand entries take about half a minute. After
                that `running` is true, and the rest is of the pass before.
        """
        until = time.monotonic() + wait_seconds
        while True:
            found = VerificationView.model_validate(self._wire.post(f"/v1/scopes/{scope}/verify"))
            if not found.running or time.monotonic() >= until:
                return found
            self._wire.pause(_POLL_SECONDS)

    def freeze(self, scope: str, reason: str) -> Scope:
        """Stop a scope from admitting jobs."""
        return Scope.model_validate(self._wire.post(f"/v1/scopes/{scope}/freeze", {"reason": reason}))

    def unfreeze(self, scope: str, reason: str) -> Scope:
        """Let a frozen scope admit jobs again."""
        return Scope.model_validate(self._wire.post(f"/v1/scopes/{scope}/unfreeze", {"reason": reason}))

    def accept(self, scope: str, entry: int, reason: str) -> Scope:
        """Let a scope go on although entries of its ledger may be missing: its owner's word.

        Args:
            scope: `sc_...`.
            entry: the number of the entry that says so, as `budget` shows it in `unwitnessed`.
            reason: for people; it stays in the ledger for ever.
        """
        told = {"entry": entry, "reason": reason}
        return Scope.model_validate(self._wire.post(f"/v1/scopes/{scope}/acceptances", told))
