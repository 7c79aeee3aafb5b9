"""A scope's ledger recomputed by whoever reads it: hashes, sums and caps, from its entries alone.

Nothing of the service has a part in it. Each entry's body is the JSON text that was hashed; it says what the entry
moved, `spent` and `reserved`, in nano-nats at each of the scope's Renyi orders. The first one says the terms and caps.
"""

import hashlib
import json
from collections.abc import Iterable
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
    head, seq, scope = GENESIS, 0, ""
    caps: list[int] = []
    spent: list[int] = []
    reserved: list[int] = []
    for seq, entry in enumerate(entries, start=1):
        body = _read(entry, seq, head)
        head = entry.hash
        if seq == 1:
            scope, caps = str(body["scope"]), list(body["terms"]["caps_nano"])
            spent, reserved = [0] * len(caps), [0] * len(caps)
        elif body["scope"] != scope:
            raise BrokenLedgerError(seq, f"it is of {body['scope']}, not of {scope}")
        moved = body["accounts"].get(scope, {})
        for totals, name in ((spent, "spent"), (reserved, "reserved")):
            for slot, amount in enumerate(moved.get(name, [])[: len(caps)]):
                totals[slot] += amount
            if min(totals) < 0:
                raise BrokenLedgerError(seq, f"{name} would fall below zero")
        if not any(one + two <= cap for one, two, cap in zip(spent, reserved, caps, strict=True)):
            raise BrokenLedgerError(seq, "spent and reserved pass the cap at every order")
    if not seq:
        raise BrokenLedgerError(1, "there is none")
    taken = [one + two for one, two in zip(spent, reserved, strict=True)]
    return Recomputed(scope, seq, head, _percent(spent, caps), _percent(taken, caps))


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
