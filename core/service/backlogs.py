"""Long verifications that a signature waits for: beside requests, with a mark of how far they are every few seconds.

A ledger of which many entries were verified by nobody, as after an upgrade that changed the rules, is not signed of in
its request: that would take as long as a proxy waits. The request begins the verification, and says how far it is; one
that comes after its end goes on from the last mark. A process that dies leaves its marks, and the next request has
another process go on from there.
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.base.errors import LedgerBusy, ScopeFrozen
from core.db import clock
from core.db.database import Database
from core.db.service_tables import VerifiedHead
from core.db.tables import Scope
from core.ledger.marks import ON_THE_WAY, MarkKey, read_mark, write_mark
from core.ledger.rounds import freeze_unverified
from core.ledger.verification import PAGE, Verifier
from core.service.aside import Aside
from farthing.schemas.base import View
from farthing.schemas.provenance import Operational

AT_ONCE: Final = 10_000
"""Entries that a request verifies itself: two seconds of work."""
ABANDONED_SECONDS: Final = 10.0
"""A mark that is no older is of a process on its way: several times what lies between two of its marks."""
REFUSAL: Final = (
    "A ledger that this would speak of does not verify: nothing is signed of it, and its scope is frozen. Its "
    "owner finds the entry with `farthing verify`."
)
_A_SECOND: Final = 2_500
"""Entries that are verified in a second, with the rests."""
_LONGEST_SECONDS: Final = 5
_RESTS: Final = 1.0
_MOST: Final = 1024
"""Ledgers at a time: the verification of another one begins once one of these has ended."""


class BehindView(View):
    """The answer comes once more of a ledger is verified; ask again after the seconds of `Retry-After`."""

    object: Literal["ledger-behind"] = "ledger-behind"
    verified_share: Operational[str]
    """Of the entries, as a decimal string from 0 to 0.99."""


class LedgerBehindError(Exception):
    """A ledger has too many entries that nobody has verified; its verification goes on beside requests.

    Args:
        done: entries that are verified.
        entries: that there are.
    """

    def __init__(self, done: int, entries: int) -> None:
        """Keep how far it is."""
        super().__init__(f"{done} of {entries} entries are verified")
        done = min(done, entries)  # the ledger has grown since it was looked at, and all of it is verified meanwhile
        self.percent = min(99, 100 * done // max(entries, 1))
        self.retry_after_seconds = min(_LONGEST_SECONDS, 1 + (entries - done) // _A_SECOND)


@dataclass
class _Backlog:
    """The verification of one chain, on from its mark."""

    scope_id: str
    actor: str
    """The id of the caller that asked first; of the entry that freezes the scope."""
    key: MarkKey
    verifier: Verifier
    marked: int


class Backlogs:
    """The long verifications of this process; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aside = Aside("backlogs", _MOST, rests=_RESTS)
        self._running: dict[str, _Backlog] = {}
        self._bad: dict[str, int] = {}

    def demand_short(self, database: Database, heads: Mapping[str, int], keys: Sequence[MarkKey], actor: str) -> None:
        """Make sure that a request can verify some chains itself.

        Without a key there are no marks, so that a verification beside the request would be of no use to it.

        Args:
            database: the ledger.
            heads: the number of the last entry, by scope.
            keys: under which marks count, the present one first.
            actor: the principal that asks.

        Raises:
            LedgerBehindError: one of them is too long; its verification goes on.
            ScopeFrozen: one of them was too long, and does not verify.
        """
        if not keys:
            return
        with database.read() as session:
            marks = {scope_id: _newest(session, scope_id, keys) for scope_id in heads}
        with self._lock:
            running = set(self._running)
        # One that is under way is left to its end: following it here would do its work twice.
        long = {one: seq for one, seq in heads.items() if one in running or seq > marks[one] + AT_ONCE}
        if long:
            self.go_on(database, long, keys, actor)

    def go_on(self, database: Database, heads: Mapping[str, int], keys: Sequence[MarkKey], actor: str) -> NoReturn:
        """Begin the verification of some chains, unless it goes on here or in another process.

        Args:
            database: the ledger.
            heads: the number of the last entry, by scope.
            keys: under which marks count, the present one first; at least one.
            actor: the principal that asks.

        Raises:
            LedgerBehindError: always, but where the chain does not verify.
            ScopeFrozen: one of the chains does not verify, as was found before.
        """
        done = 0
        for scope_id, seq in heads.items():
            if self._bad.get(scope_id) == seq:  # it has not grown since it failed
                raise ScopeFrozen(REFUSAL)
            with self._lock:
                one = self._running.get(scope_id)
                is_free = one is None and len(self._running) < _MOST
                if is_free and not _is_others(database, scope_id, keys[0], seq):
                    one = self._begin(database, scope_id, keys, actor)
            done += _marked(database, scope_id, keys) if one is None else one.verifier.place[0]
        raise LedgerBehindError(done, sum(heads.values()))

    def stop(self) -> None:
        """Leave what is being verified; the marks stay."""
        self._aside.stop()

    def _begin(self, database: Database, scope_id: str, keys: Sequence[MarkKey], actor: str) -> _Backlog:
        with database.read() as session:
            mark = read_mark(session, scope_id, keys)
        marked = 0 if mark is None else mark.tally.seq
        begun = _Backlog(scope_id, actor, keys[0], Verifier(scope_id, mark=mark), marked)
        self._running[scope_id] = begun
        self._aside.put(scope_id, lambda: self._follow(database, begun))
        return begun

    def _follow(self, database: Database, one: _Backlog) -> bool:
        """Verify some entries; tell whether there are more, and no other process is further."""
        goes_on = False
        try:
            with database.read() as session:
                found = one.verifier.advance(session, PAGE)
            goes_on = found is None
            if found is not None and not found.ok:
                freeze_unverified(database, one.scope_id, found.reason or "", one.actor)
                with database.read() as session:
                    # Read anew: the freeze has added an entry, which must not count as growth.
                    self._bad[one.scope_id] = session.get_one(Scope, one.scope_id).seq
            elif found is not None or one.verifier.place[0] >= one.marked + ON_THE_WAY:
                with suppress(LedgerBusy):
                    # The call comes first, for the last mark is written too; a rival's later mark ends this one.
                    goes_on = database.transaction(write_mark, one.verifier.state, one.key) and goes_on
                    one.marked = one.verifier.place[0]
        finally:
            if not goes_on:
                with self._lock:
                    del self._running[one.scope_id]
        return goes_on


def _newest(session: Session, scope_id: str, keys: Sequence[MarkKey]) -> int:
    """Return the number that the newest mark of a chain notes, 0 where there is none; its code is not looked at."""
    makers = [key.name for key in keys]
    found = select(func.max(VerifiedHead.seq)).where(VerifiedHead.scope_id == scope_id, VerifiedHead.maker.in_(makers))
    return session.execute(found).scalar_one() or 0


def _marked(database: Database, scope_id: str, keys: Sequence[MarkKey]) -> int:
    with database.read() as session:
        return _newest(session, scope_id, keys)


def _is_others(database: Database, scope_id: str, key: MarkKey, seq: int) -> bool:
    """Say whether another process is on its way through a chain: its last mark is far from the end, and young."""
    found = select(VerifiedHead.seq, VerifiedHead.made_at)
    with database.read() as session:
        row = session.execute(
            found.where(VerifiedHead.scope_id == scope_id, VerifiedHead.maker == key.name)
        ).one_or_none()
        now = clock.read(session)
    # A mark from the future, of a clock that was set back, would keep everybody away for as long.
    return row is not None and row.seq + AT_ONCE < seq and 0 <= now - row.made_at < ABANDONED_SECONDS
