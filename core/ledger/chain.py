"""The chain of a scope: each entry is hashed with the one before, over the exact bytes that are stored.

A body is canonical JSON with a version. Its columns repeat it for queries; `core.ledger.verification` compares
them.
"""

import hashlib
from collections.abc import Mapping
from math import floor
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.canonical import canonical
from core.db.tables import Entry, Scope
from core.ledger import charged
from core.ledger.bodies import VERSION, Body

__all__ = ["GENESIS", "append", "canonical", "link"]

GENESIS: Final = "sha256:" + "0" * 64
_TIMES: Final = "times of last entries"
"""In a session: the hash and the time of the last entry that it has appended, by scope."""


def link(previous: str, body: str) -> str:
    """Return the hash of an entry: SHA-256 over the hash before it, a line feed, and its body."""
    # Canonical JSON has no line feed, so no other pair of texts gives these bytes.
    return "sha256:" + hashlib.sha256(f"{previous}\n{body}".encode("ascii")).hexdigest()


def append(
    session: Session,
    scope: Scope,
    form: type[Body],
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
        form: the kind of entry, one of `core.ledger.kinds.KINDS`; a body of another form is never stored.
        at: seconds since the epoch by the database's clock. Whole seconds are kept, never less than those of the entry
            before: a clock that is set back moves no entry before another.
        job_id: the job it is about.
        attempt: the job's attempt, 0 for what happens once per job.
        chunk: the chunk paid for, 0 for what happens once per job.
        content: the other members of the body, JSON-ready; no personal data, for it is never erased.
    """
    seq = scope.seq + 1
    # How long a chunk took to compute is an output; the chain tells it to the second only.
    at = max(float(floor(at)), last_time(session, scope))
    heading = {"v": VERSION, "scope": scope.id, "seq": seq, "kind": form.KIND, "at": at}
    body = canonical({**heading, "job": job_id, "attempt": attempt, "chunk": chunk, **content})
    # A trigger forbids to change an entry: one that no verifier reads would break the chain for good.
    read = form.read(body)
    entry = Entry(
        scope_id=scope.id,
        seq=seq,
        kind=form.KIND,
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
    session.info.setdefault(_TIMES, {})[scope.id] = entry.hash, at
    charged.note(session, scope, read)
    return entry


def last_time(session: Session, scope: Scope) -> float:
    """Return the time of a scope's last entry, 0 where it has none.

    Entries that this session has appended are not read back: a query would first write each entry by itself, and
    sixteen jobs that are stored together would take sixty statements more than one.
    """
    times: dict[str, tuple[str, float]] = session.info.get(_TIMES, {})
    head, at = times.get(scope.id, ("", 0.0))
    if head == scope.head:  # it hashes the entry with its time
        return at
    last = select(Entry.created_at).where(Entry.scope_id == scope.id, Entry.seq == scope.seq)
    with session.no_autoflush:  # what was appended here is not asked for, and the rest is written in one go
        return session.execute(last).scalar_one_or_none() or 0.0
