"""Ledgers: the lines of a scope's chain, its head, and the outcome of a verification."""

from collections.abc import Iterator
from typing import Any, Literal

from farthing.schemas.base import Shown, View
from farthing.schemas.budgets import GapView
from farthing.schemas.provenance import Drawn, Operational, Paid, Timed


class HeadView(View):
    """Where a scope's chain stands."""

    scope: Drawn[str]
    """`sc_...`."""
    seq: Paid[int]
    """The last line's number, from 1; 0: none yet."""
    head: Drawn[str]
    """SHA-256 of the last line, over all before it."""


class EntryView(View):
    """One line of the ledger; `body` is the exact text that `hash` covers, after `prev_hash`."""

    object: Literal["entry"] = "entry"
    seq: Operational[int]
    """Its number in the scope's chain, from 1."""
    kind: Operational[str]
    """Kind of entry: open, upload, grant, reserve, read, spend, charge, settle, compensate, freeze, unfreeze,
    reconcile, unwitnessed or accept."""
    job: Drawn[str | None]
    """That it is about; null: none."""
    attempt: Paid[int | None]
    """Of that job, from 1; 0 for what happens once a job; null: it is about no job."""
    chunk: Paid[int | None]
    """That was paid, from 0; 0 for what happens once a job; null: it is about no job."""
    body: Drawn[str]
    """Canonical JSON: amounts, events, who and why."""
    prev_hash: Drawn[str]
    """Of the line before."""
    hash: Drawn[str]
    """SHA-256 of `prev_hash`, a line feed and `body`."""
    created_at: Timed[str]
    """When it was written."""


class VerificationView(Shown):
    """Whether a chain and its sums recompute, as the last pass over all of it has found; `running`: another goes on.

    A pass is done beside requests. The answer comes within seconds. It has the outcome of the requested pass if that
    has ended, and else that of the one before; ask again to get the outcome.
    """

    scope: Drawn[str]
    """`sc_...`."""
    running: Operational[bool]
    """Whether the pass that was asked for goes on; the rest is of the last one before it."""
    ok: Operational[bool | None]
    """Whether all of it recomputes; null: this process has ended no pass yet, and neither has the rest a value."""
    entries: Paid[int | None]
    """Lines that were read; null: no pass has ended yet."""
    head: Drawn[str | None]
    """SHA-256 of the last line that was read; null: no pass has ended yet."""
    verified_at: Timed[str | None]
    """When the last line was read, and the sums were compared; null: no pass has ended yet."""
    first_bad: Operational[int | None]
    """Number of the first line that does not recompute; null: all do."""
    reason: Operational[str | None]
    """Its fault; null: none."""
    unwitnessed: list[GapView]
    """Ranges where entries may be missing: the rest of the chain recomputes, and does not show their content."""

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from (("scope", self.scope), ("ok", self.ok), ("entries", self.entries), ("running", self.running))
        yield "reason", self.reason
