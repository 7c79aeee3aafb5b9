"""The chain of a scope's ledger, followed by whoever has its entries: each hash is that of its text, after the last.

That amounts are right prices, and keep within the caps, is for `examples/verify_ledger.py` to say.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from farthing.schemas.ledger import EntryView

VERSIONS: Final = (1, 2)
"""Of entries; none of a lower one follows one of a higher."""
GENESIS: Final = "sha256:" + "0" * 64


class BrokenChainError(ValueError):
    """An entry that does not follow the one before it."""

    def __init__(self, seq: int, fault: str) -> None:
        """Name the entry and what is wrong with it."""
        super().__init__(f"entry {seq}: {fault}")
        self.seq = seq


@dataclass(frozen=True)
class Followed:
    """A chain that was followed to its end."""

    scope: str
    hashes: dict[int, str]
    """Of each entry, by number; 0 is the place before the first."""


def follow(entries: Iterable[EntryView]) -> Followed:
    """Follow a chain from its first entry.

    Args:
        entries: all of them, oldest first, as `Client.entries` brings them.

    Raises:
        BrokenChainError: an entry is missing, was changed, or is of another scope or of no known version.
    """
    hashes, scope, version = {0: GENESIS}, "", VERSIONS[0]
    for seq, entry in enumerate(entries, start=1):
        body = _read(entry, seq, hashes[seq - 1])
        scope = scope or body["scope"]
        if body["scope"] != scope:
            raise BrokenChainError(seq, f"it is of {body['scope']}, not of {scope}")
        if type(body["v"]) is not int or body["v"] not in VERSIONS:
            raise BrokenChainError(seq, f"it is of version {body['v']}, and this program reads {VERSIONS}")
        # Rules of an older version ask for less, so nobody may go back to them.
        if body["v"] < version:
            raise BrokenChainError(seq, f"it is of version {body['v']}, after one of version {version}")
        hashes[seq], version = entry.hash, body["v"]
    if not scope:
        raise BrokenChainError(1, "there is none")
    return Followed(scope, hashes)


def _read(entry: EntryView, seq: int, previous: str) -> dict[str, Any]:
    """Return an entry's body, if it is the next one and its hash is that of its text."""
    if entry.seq != seq:
        raise BrokenChainError(seq, "it is missing")
    if entry.prev_hash != previous:
        raise BrokenChainError(seq, "it does not follow the entry before it")
    # The same text that the ledger hashes: the hash before, a line feed, the body.
    if entry.hash != "sha256:" + hashlib.sha256(f"{previous}\n{entry.body}".encode()).hexdigest():
        raise BrokenChainError(seq, "its hash is not that of its body")
    try:
        body: dict[str, Any] = json.loads(entry.body)
        told = (body["seq"], body["kind"], body["job"], body["attempt"], body["chunk"])
        has_scope = isinstance(body["scope"], str) and "v" in body
    except (KeyError, RecursionError, TypeError, ValueError):
        has_scope = False
    if not has_scope:
        raise BrokenChainError(seq, "its body is none of an entry")
    # The hash covers the body alone, so the fields beside it are compared with it.
    if told != (entry.seq, entry.kind, entry.job, entry.attempt, entry.chunk):
        raise BrokenChainError(seq, "its shown fields differ from its body")
    return body
