"""Marks: points up to which chains were verified, kept in the database under a code that needs the master key.

A mark is the state of a chain at one of its entries (`core.ledger.states`). A writer into the database can remove a
mark, or put an older one back. Then more entries are followed, and nothing else changes. Nobody without the key can
change what a mark says, or make one of a chain that was not verified. The key is of one text of the rules, too
(`core.ledger.rules`): under others a chain is verified from its first entry, unless their release is listed there.

A mark says nothing of rows that were changed below it since. Decisions do not read them: amounts, terms and n are the
mark's own. Code that shows entries from below it hashes them again (`core.ledger.rereading`); the pass over all
entries that every supervisor makes at its start and each `FARTHING_VERIFY_SECONDS` finds the rest.
"""

import hmac
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite
from sqlalchemy.orm import Session

from core.db import clock
from core.db.service_tables import VerifiedHead
from core.ledger.states import State, UnreadableStateError, read_state

EVERY: Final = 32
"""Entries: a mark is made where so many are new since the last one."""
ON_THE_WAY: Final = 5_000
"""Entries: a pass that is not at the end of its chain leaves a mark each time it has gone so far, about a second."""
KEPT_SECONDS: Final = 7 * 86400.0
"""After which a mark under another key, which nobody has renewed, is taken away."""


@dataclass(frozen=True)
class MarkKey:
    """The key that makes marks and checks them; it opens nothing."""

    secret: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """Sixteen hexadecimal digits that name this key and tell nothing of it."""
        return hmac.digest(self.secret, b"name", sha256).hex()[:16]

    def code(self, text: str) -> str:
        """Return the code of a state's text, which names its scope."""
        # The prefix keeps codes apart from `name`, which the same key makes and the database shows.
        return hmac.digest(self.secret, b"state\n" + text.encode("ascii"), sha256).hex()


def read_mark(session: Session, scope_id: str, keys: Sequence[MarkKey]) -> State | None:
    """Return the newest state of a chain that was marked under one of these keys; None where there is none.

    Args:
        session: a session.
        scope_id: the scope of the chain.
        keys: under any of which a mark counts.
    """
    named = {key.name: key for key in keys}
    found = select(VerifiedHead).where(VerifiedHead.scope_id == scope_id, VerifiedHead.maker.in_(named))
    for row in session.execute(found.order_by(VerifiedHead.seq.desc())).scalars():
        # A writer may store any text, and neither `code` nor the comparison takes letters beyond ASCII.
        if not (row.state + row.code).isascii():
            continue
        if hmac.compare_digest(named[row.maker].code(row.state), row.code):
            with suppress(UnreadableStateError):
                state = read_state(row.state)
                # The code vouches for the text alone, which may be copied from another scope's row.
                if state.tally.scope == scope_id:
                    return state
    return None


def marked_seq(session: Session, scope_id: str, key: MarkKey) -> int:
    """Return the number that is noted of a chain's mark under a key, 0 where there is none; nobody vouches for it."""
    found = select(VerifiedHead.seq).where(VerifiedHead.scope_id == scope_id, VerifiedHead.maker == key.name)
    return session.execute(found).scalar_one_or_none() or 0


def write_mark(session: Session, state: State, key: MarkKey) -> bool:
    """Keep the state of a chain, in the place of an older one under the same key.

    Args:
        session: an open write transaction.
        state: of a chain that was verified up to there.
        key: of this process.

    Returns:
        Whether it is kept: not where another process has left a mark of a later entry.
    """
    if marked_seq(session, state.tally.scope, key) > state.tally.seq:  # nobody vouches for that number
        kept = read_mark(session, state.tally.scope, [key])
        if kept is not None and kept.tally.seq > state.tally.seq:
            return False
    at, text = clock.read(session), state.text()
    made = {"seq": state.tally.seq, "state": text, "code": key.code(text), "made_at": at}
    insert = insert_sqlite if session.get_bind().dialect.name == "sqlite" else insert_postgresql
    statement = insert(VerifiedHead).values(scope_id=state.tally.scope, maker=key.name, **made)
    # Two processes may verify one chain at a time: the second finds a row that it did not see before.
    session.execute(statement.on_conflict_do_update(index_elements=["scope_id", "maker"], set_=made))
    old = VerifiedHead.scope_id == state.tally.scope, VerifiedHead.made_at < at - KEPT_SECONDS
    session.execute(delete(VerifiedHead).where(*old, VerifiedHead.maker != key.name))
    session.flush()
    return True
