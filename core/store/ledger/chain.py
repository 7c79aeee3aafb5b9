"""The chain of a scope: each entry is hashed with the one before, over the exact bytes that are stored.

A body is canonical JSON with a version. Its columns repeat it for queries; `core.store.ledger.verification` compares
them.
"""

import hashlib
import json
from collections.abc import Mapping
from math import floor
from typing import Any, Final

from sqlalchemy.orm import Session

from core.store.tables import Entry, Scope

VERSION: Final = 1
GENESIS: Final = "sha256:" + "0" * 64


def canonical(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, ASCII, no NaN or infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def link(previous: str, body: str) -> str:
    """Return the hash of an entry: SHA-256 over the hash before it, a line feed, and its body."""
    return "sha256:" + hashlib.sha256(f"{previous}\n{body}".encode("ascii")).hexdigest()


def append(
    session: Session,
    scope: Scope,
    kind: str,
    *,
    at: float,
    job_id: str | None = None,
    attempt: int | None = None,
    chunk: int | None = None,
    content: Mapping[str, Any],
) -> Entry:
    """Append an entry to a scope's chain; the caller holds the scope's row lock.

    Args:
        session: an open write transaction.
        scope: the locked scope, whose `seq` and `head` move on.
        kind: one of `ENTRY_KINDS`.
        at: seconds since the epoch by the database's clock; whole seconds are kept.
        job_id: the job it is about.
        attempt: the job's attempt, 0 for what happens once per job.
        chunk: the chunk paid for, 0 for what happens once per job.
        content: what else the body says, JSON-ready; no personal data, for it is never erased.
    """
    seq = scope.seq + 1
    at = float(floor(at))  # how long a chunk took to compute is an output; the chain tells it to the second only
    body = canonical(
        {
            "v": VERSION,
            "scope": scope.id,
            "seq": seq,
            "kind": kind,
            "job": job_id,
            "attempt": attempt,
            "chunk": chunk,
            "at": at,
            **content,
        }
    )
    entry = Entry(
        scope_id=scope.id,
        seq=seq,
        kind=kind,
        job_id=job_id,
        attempt=attempt,
        chunk=chunk,
        body=body,
        prev_hash=scope.head,
        hash=link(scope.head, body),
        created_at=at,
    )
    session.add(entry)
    scope.seq, scope.head = seq, entry.hash
    return entry
