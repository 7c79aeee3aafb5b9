"""Entries read again long after they were verified: hashed anew, between two hashes that are known.

Code that shows an entry, or relies on its text, reads it like this: a row that was changed since it was verified does
not lead from the one known hash to the other.
"""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.canonical import canonical
from core.db.tables import Entry
from core.ledger import chain
from core.ledger.states import BLOCK, State
from core.ledger.tally import demand

_CHANGED = "entries that were verified before are gone, or are others"
_AT_ONCE = 1000


class Rereader:
    """Reads entries of one chain again, in one snapshot; blocks that were hashed once are not hashed again.

    Args:
        session: the snapshot.
        state: where the chain ends in it, as verified.
    """

    def __init__(self, session: Session, state: State) -> None:
        self._session = session
        self._state = state
        self._known: dict[int, str] = {}

    def hash_at(self, seq: int) -> str:
        """Return the hash of one entry.

        Raises:
            BrokenChain: it is not what was verified.
        """
        if seq == self._state.tally.seq:
            return self._state.head
        if seq % BLOCK == 0:
            demand(0 < seq < self._state.tally.seq, f"there is no entry {seq}")
            return self._state.heads[seq // BLOCK - 1]
        if seq not in self._known:
            self.follow(seq, seq)
        return self._known[seq]

    def follow(self, first: int, last: int, job: str | None = None) -> list[int]:
        """Hash all entries from one to another, and those beside them up to a known hash.

        Args:
            first: the number of the first one.
            last: of the last one.
            job: the one whose entries are wanted.

        Returns:
            The numbers of all entries in between whose texts are about that job.

        Raises:
            BrokenChain: they are not what was verified.
        """
        state = self._state
        demand(1 <= first <= last <= state.tally.seq, _CHANGED)
        begin, end = (first - 1) // BLOCK * BLOCK, min(-(-last // BLOCK) * BLOCK, state.tally.seq)
        head = state.heads[begin // BLOCK - 1] if begin else chain.GENESIS
        # Canonical JSON writes the member in this one form; inside a string its quotes are escaped.
        seq, about, name = begin, list[int](), f'"job":{canonical(job)}'
        rows = select(Entry.seq, Entry.body).where(
            Entry.scope_id == state.tally.scope, Entry.seq > begin, Entry.seq <= end
        )
        with self._session.execute(rows.order_by(Entry.seq), execution_options={"yield_per": _AT_ONCE}) as found:
            for row in found:
                seq += 1
                # `link` can only encode ASCII, and a changed row may hold any text.
                demand(row.seq == seq and row.body.isascii(), _CHANGED)
                head = self._known[seq] = chain.link(head, row.body)
                if job is not None and first <= seq <= last and name in row.body:
                    about.append(seq)
        due = state.head if end == state.tally.seq else state.heads[end // BLOCK - 1]
        demand((seq, head) == (end, due), _CHANGED)
        return about

    def confirm(self, row: Any) -> None:  # noqa: ANN401 - an entry
        """Demand that a row is the entry that was verified under its number: its text and both of its hashes.

        Raises:
            BrokenChain: it is another.
        """
        before = self.hash_at(row.seq - 1) if row.seq > 1 else chain.GENESIS
        own = row.hash, row.prev_hash
        demand(own == (self.hash_at(row.seq), before) and row.hash == chain.link(before, row.body), _CHANGED)
