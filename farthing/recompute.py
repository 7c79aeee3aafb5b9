"""A scope's ledger recomputed by whoever reads it: hashes, sums and caps, from its entries alone.

Nothing of the service has a part in it. Each entry's body is the JSON text that was hashed; it says what the entry
moved, `spent` and `reserved`, in nano-nats at each of the scope's Renyi orders. The first one says the terms and caps.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

from farthing.views import Entry

GENESIS = "sha256:" + "0" * 64
_STEP = Decimal("0.0001")


class BrokenLedgerError(ValueError):
    """An entry that does not follow from those before it."""

    def __init__(self, seq: int, fault: str) -> None:
        """Name the entry and what is wrong with it."""
        super().__init__(f"entry {seq}: {fault}")
        self.seq = seq


@dataclass(frozen=True)
class Recomputed:
    """What a scope's entries add up to."""

    scope: str
    entries: int
    head: str
    """The hash of the last entry: what the service, a note or the witness says must be this."""
    spent_percent: Decimal
    """Of the budget, rounded up."""
    taken_percent: Decimal
    """The same of spent and reserved together."""


def recompute(entries: Iterable[Entry]) -> Recomputed:
    """Follow a scope's ledger from its first entry.

    Args:
        entries: all of them, oldest first, as `Client.entries` brings them.

    Raises:
        BrokenLedgerError: an entry is missing, was changed, moves what is not there, or passes every cap.
    """
    head, seq = GENESIS, 0
    totals: _Totals | None = None
    for seq, entry in enumerate(entries, start=1):
        body = _read(entry, seq, head)
        head = entry.hash
        if totals is None:
            totals = _Totals(body)
        elif body["scope"] != totals.scope:
            raise BrokenLedgerError(seq, f"it is of {body['scope']}, not of {totals.scope}")
        totals.move(body)
        fault = totals.fault
        if fault is not None:
            raise BrokenLedgerError(seq, fault)
    if totals is None:
        raise BrokenLedgerError(1, "there is none")
    return Recomputed(totals.scope, seq, head, totals.spent_percent, totals.taken_percent)


def standing(bodies: Iterable[dict[str, Any]]) -> Iterator[tuple[Decimal, Decimal]]:
    """Yield what is spent, and what is taken with reservations, after each of a ledger's entries, in per cent.

    Args:
        bodies: of all entries, oldest first; whether they belong together is for `recompute` to say.
    """
    totals: _Totals | None = None
    for body in bodies:
        totals = totals or _Totals(body)
        totals.move(body)
        yield totals.spent_percent, totals.taken_percent


class _Totals:
    """What a scope's entries add up to, one after the other, in nano-nats at each of its orders.

    Args:
        first: the body of its first entry, which says the caps.
    """

    def __init__(self, first: dict[str, Any]) -> None:
        self.scope = str(first["scope"])
        self._caps: list[int] = list(first["terms"]["caps_nano"])
        self._spent, self._reserved = [0] * len(self._caps), [0] * len(self._caps)

    def move(self, body: dict[str, Any]) -> None:
        """Add what an entry moved; entries that moved nothing of the scope's own account change nothing."""
        moved = body["accounts"].get(self.scope, {})
        for totals, name in ((self._spent, "spent"), (self._reserved, "reserved")):
            for slot, amount in enumerate(moved.get(name, [])[: len(self._caps)]):
                totals[slot] += amount

    @property
    def fault(self) -> str | None:
        """What no ledger may come to; None where it is whole."""
        for totals, name in ((self._spent, "spent"), (self._reserved, "reserved")):
            if min(totals) < 0:
                return f"{name} would fall below zero"
        if not any(taken <= cap for taken, cap in zip(self._taken, self._caps, strict=True)):
            return "spent and reserved pass the cap at every order"
        return None

    @property
    def spent_percent(self) -> Decimal:
        """The least share of a cap that is spent, in per cent."""
        return _percent(self._spent, self._caps)

    @property
    def taken_percent(self) -> Decimal:
        """The same of spent and reserved together."""
        return _percent(self._taken, self._caps)

    @property
    def _taken(self) -> list[int]:
        return [one + two for one, two in zip(self._spent, self._reserved, strict=True)]


def _read(entry: Entry, seq: int, previous: str) -> dict[str, Any]:
    """Return an entry's body, if it is the next one and its hash is that of its text."""
    if entry.seq != seq:
        raise BrokenLedgerError(seq, "it is missing")
    if entry.prev_hash != previous:
        raise BrokenLedgerError(seq, "it does not follow the entry before it")
    if entry.hash != "sha256:" + hashlib.sha256(f"{previous}\n{entry.body}".encode()).hexdigest():
        raise BrokenLedgerError(seq, "its hash is not that of its body")
    body: dict[str, Any] = json.loads(entry.body)
    told = (body["seq"], body["kind"], body["job"], body["attempt"], body["chunk"])
    if told != (entry.seq, entry.kind, entry.job, entry.attempt, entry.chunk):
        raise BrokenLedgerError(seq, "what is shown of it is not what its body says")
    return body


def _percent(amounts: list[int], caps: list[int]) -> Decimal:
    """Return the least share of a cap, in per cent."""
    least = min(Decimal(amount) / cap for amount, cap in zip(amounts, caps, strict=True))
    return (100 * least).quantize(_STEP, rounding=ROUND_CEILING)
