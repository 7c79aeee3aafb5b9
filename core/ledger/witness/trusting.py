"""A ledger that is relied on at once: verified from its last mark, and in agreement with its witness.

Both lie where writers of the database do not reach: the witness in its own place, and what marks are made with under
the master key. This finds rows that are changed for the moment of a reading. Deciding rows are compared with the mark
and the entries since, and a rewritten chain lacks the entry that the witness has seen.
"""

import hmac
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf

from sqlalchemy.orm import Session

from core.base.errors import LedgerBusy, NotReady
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.ledger.marks import EVERY, MarkKey, read_mark, write_mark
from core.ledger.rereading import Rereader
from core.ledger.rules import EARLIER, rules_digest
from core.ledger.states import State
from core.ledger.tally import BrokenChain
from core.ledger.verification import Verification, Verifier
from core.ledger.witness.witness import Witness
from core.ledger.witness.witness_file import Seen
from core.records.master_key import load_master_keys

LOST = "the witness has lost what it knew of it"
UNKNOWN = "the witness does not know it"
OTHER = "it has not the entry that its witness has seen"


def mark_keys(settings: ServiceSettings) -> tuple[MarkKey, ...]:
    """Return what marks are made with: of each master key and these rules, the present one first; then of earlier ones.

    Without a master key there is none, and every chain is followed from its first entry.
    """
    try:
        keys = load_master_keys(settings).keys
    except NotReady:
        return ()
    rules = (rules_digest(), *EARLIER)
    return tuple(MarkKey(hmac.digest(key.of_marks(), one.encode(), sha256)) for one in rules for key in keys)


class LongChainError(Exception):
    """A chain has more entries that nobody has verified than its reader follows."""


@dataclass(frozen=True)
class Trust:
    """The head of it that the witness holds.

    Attributes:
        keys: under which marks count.
        seen: the witness's heads of these scopes.
        lost: of which of them it knows less than it did.
    """

    keys: Sequence[MarkKey] = field(repr=False)
    seen: Mapping[str, Seen]
    lost: Collection[str] = ()


@dataclass(frozen=True)
class Trusted:
    """A chain that was followed: the result, and the state by which earlier entries are read again."""

    found: Verification
    state: State
    entries: Rereader
    marked: int
    """The number of the entry that the mark was of; 0: there was none."""


def ask_witness(witness: Witness, scopes: Collection[str], keys: Sequence[MarkKey]) -> Trust:
    """Return the witness's state of some scopes, before anything of them is read.

    Raises:
        LedgerBusy: the witness does not answer.
    """
    try:
        seen, lost = witness.look(scopes)
    except NotReady as error:
        raise LedgerBusy(f"The witness: {error.detail}", retry_after_seconds=2) from error
    return Trust(keys, seen, lost)


def follow(session: Session, scope_id: str, trust: Trust, most: float = inf) -> Trusted:
    """Verify a chain from its last mark on, and demand the entry that the witness recorded.

    Args:
        session: a session of `Database.read`, opened after the witness was asked.
        scope_id: the scope of the chain.
        trust: the heads and marks from outside.
        most: entries to follow.

    Raises:
        LongChainError: there are more of them.
    """
    mark = read_mark(session, scope_id, trust.keys) if trust.keys else None
    marked = 0 if mark is None else mark.tally.seq
    verifier = Verifier(scope_id, mark=mark)
    found = verifier.advance(session, most)
    while found is None and verifier.place[0] == 0:  # a charge from below the mark was corrected after it
        found = verifier.advance(session, most)
    if found is None:
        raise LongChainError
    state = verifier.state
    entries = Rereader(session, state)
    if found.ok and (wrong := _wrong(scope_id, entries, trust)) is not None:
        found = Verification(False, found.entries, found.head, None, wrong)
    return Trusted(found, state, entries, marked)


def _wrong(scope_id: str, entries: Rereader, trust: Trust) -> str | None:
    """Return in what a chain and its witness disagree; None where they agree."""
    seen = trust.seen.get(scope_id)
    if seen is None:
        return UNKNOWN
    if scope_id in trust.lost:
        return LOST
    try:
        return None if entries.hash_at(seen.seq) == seen.head else OTHER
    except BrokenChain:
        return OTHER


def leave_mark(database: Database, trusted: Trusted, keys: Sequence[MarkKey]) -> None:
    """Keep how far a chain was verified, where that is news; a database that is busy does without."""
    if trusted.found.ok and keys and trusted.state.tally.seq >= trusted.marked + EVERY:
        with suppress(LedgerBusy):
            database.transaction(write_mark, trusted.state, keys[0])
