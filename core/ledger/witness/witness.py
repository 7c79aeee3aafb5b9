"""The witness: remembers outside the database how far each chain had come, so that a restored backup is noticed.

It keeps, per scope, the last entry seen (number and hash) and the spent + reserved of each account then, durably; and
which datasets were erased, so that a backup does not bring them back. `guard` runs at start and makes it.
`Witness.keep` runs after a reservation, between a claim and the start of its child, and between a payment and the
reading that it pays for. Nothing is therefore read whose charge is in the database alone. If the database turns out to
be behind, or the witness is gone, is another one or has lost what it knew, the ledger is frozen until an operator
reconciles. For that the two remember each other: the database the witness's name, and which scopes it has written down;
this process how far it had come.

It is a file, or objects in a store where several machines serve. On the same disk as the database it misses a rollback
of the whole machine: put it elsewhere.
"""

import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from sqlalchemy import select, text, tuple_, update
from sqlalchemy.orm import Session

from core.base.errors import LedgerBusy, LedgerFrozen, NotReady
from core.db.database import Database
from core.db.tables import Account, Entry, Job, Scope
from core.ledger.accounts import read_slots
from core.ledger.claims import freeze_ledger
from core.ledger.witness.witness_file import Change, Name, Place, Seen, WitnessFile
from core.ledger.witness.witness_objects import WitnessObjects
from core.records.bucket import SCHEME

DAMAGED: Final = "the witness cannot be read."
MISSING: Final = "the witness is missing, and the ledger is not empty."
_ROUNDS: Final = 20
"""Of a race for one scope's object; each round that is lost, somebody else has won."""
_ASKED_AT_ONCE: Final = 400


class Witness:
    """The witness of one ledger; used by one process for as long as it lives, since it remembers what it has read.

    Args:
        place: a file, or s3://bucket/prefix.

    Raises:
        NotReady: it is no such address.
    """

    def __init__(self, place: Path | str) -> None:
        self.path = place
        is_object = isinstance(place, str) and place.startswith(SCHEME)
        self._place: Place = WitnessObjects(str(place)) if is_object else WitnessFile(Path(place))
        self._scopes: tuple[str, frozenset[str]] | None = None
        self._raising = threading.Lock()
        self._newest: dict[str, int] = {}
        self._newest_of: str | None = None

    def check(self) -> None:
        """Refuse a place in which an older head could replace a newer one.

        Raises:
            NotReady: it is such a place, or does not answer.
        """
        self._place.check()

    def exists(self) -> bool:
        """Tell whether anything was ever witnessed."""
        return self._place.exists()

    def read(self, scopes: Collection[str] | None = None) -> dict[str, Seen]:
        """Return what is known of each scope, or of some."""
        return dict(self._place.known(scopes))

    def identity(self) -> str | None:
        """Return the identity of the server that was witnessed, None where it has none."""
        return self._place.identity()

    def is_readable(self) -> bool:
        """Say whether all that is there can be read; half a witness may be a cut one."""
        try:
            self._place.name()
            self._place.known()
        except (ValueError, KeyError, TypeError):
            return False
        return True

    def name(self) -> Name | None:
        """Return which witness it is; None where it does not say.

        One that was renewed has lower numbers: those of before are forgotten.
        """
        found = self._place.name()
        if found is not None and found.own != self._newest_of:
            with self._raising:
                self._newest = self._newest if self._newest_of is None else {}
                self._newest_of = found.own
        return found

    def call(self, name: str) -> None:
        """Give a name to a witness that has none yet."""
        with self._place.turn():
            if self._place.name() is None:
                self._place.call(Name(name))

    def look(self, scopes: Collection[str] | None = None) -> tuple[dict[str, Seen], list[str]]:
        """Return what is known of each scope, or of some, and which of them the witness has gone back in.

        A scope has gone back where this process had seen a newer entry before it looked; reconciling is the only way
        back that counts. Other threads write meanwhile, so what may have gone back is read again.
        """
        if self._newest_of is None:
            self.name()  # before its numbers, so that they are known for this one's
        with self._raising:
            of = self._newest_of
            newest = dict(self._newest) if scopes is None else {one: self._newest.get(one, 0) for one in scopes}
        known = dict(self._place.known(scopes))
        lost = [one for one, seen in known.items() if seen.seq < newest.get(one, 0)]
        if lost:
            known |= self._place.known(lost, certain=True)
            lost = [one for one in lost if known[one].seq < newest.get(one, 0)]
        if lost:
            name = self.name()
            # A reconciliation came in between: the numbers of a renewed witness may be lower.
            if name is not None and name.own != of:
                lost = []
        self._raise({one: seen.seq for one, seen in known.items() if one not in lost}, of)
        return known, lost

    def forgotten(self, scopes: Collection[str]) -> list[str]:
        """Return which of some scopes, written down once, are unknown now: another may have written them just now."""
        known = self._place.known(scopes, certain=True) if scopes else {}
        return [one for one in scopes if one not in known]

    def _raise(self, newest: Mapping[str, int], of: str | None) -> None:
        """Remember the newest entry seen of each scope; a slow thread never lowers it.

        Args:
            newest: the numbers.
            of: the witness that was read. Numbers of one that was renewed since are dropped: the new one's are lower.
        """
        with self._raising:
            if self._newest_of != of:
                return
            self._newest |= {one: max(seq, self._newest.get(one, 0)) for one, seq in newest.items()}

    def erased(self) -> set[str]:
        """Return the datasets whose records were destroyed."""
        return self._place.erased()

    def bury(self, dataset_id: str) -> None:
        """Write down, durably, that a dataset's records are about to be destroyed; nothing where there is no witness.

        Raises:
            NotReady: the witness does not answer.
        """
        self._place.bury(dataset_id)

    def keep(self, database: Database, job_id: str | None = None, *, entries: Mapping[str, int] | None = None) -> None:
        """Write down, durably, every scope that has moved on since the last time. Any number of processes may.

        A scope whose history is not the one witnessed is left as it was seen, for `guard` to find.

        Args:
            database: the ledger.
            job_id: look at the scopes that pay for this job only; the others are left to those who moved them.
            entries: the numbers of entries, by scope, that must be known afterwards: no other scope is looked at, and
                nothing is read where a rival who had the turn before has written down as much.

        Raises:
            LedgerFrozen: the witness is gone.
            LedgerBusy: it does not answer.
        """
        try:
            if entries is not None:
                scopes: Collection[str] | None = entries.keys()
            else:
                scopes = None if job_id is None else self.scopes_of(database, job_id)
            refused: dict[str, Change] = {}
            for _ in range(_ROUNDS):
                refused = self._keep(database, scopes, refused, entries or {})
                if not refused:
                    return
        except (ValueError, KeyError, TypeError) as error:
            raise _frozen(database, DAMAGED) from error
        except NotReady as error:
            raise LedgerBusy(f"The witness: {error.detail}", retry_after_seconds=2) from error
        raise LedgerBusy("The witness is busy; try again.", retry_after_seconds=1)

    def _keep(
        self,
        database: Database,
        scopes: Collection[str] | None,
        refused: Mapping[str, Change],
        entries: Mapping[str, int],
    ) -> dict[str, Change]:
        """Try once; return what somebody else was faster with. The database is read after the place, never before."""
        with self._place.turn():
            known, lost = self.look(scopes)
            of = self._newest_of
            # A scope that the round before has read and that is unknown now was erased.
            gone = any(change.before is not None and one not in known for one, change in refused.items())
            if gone or not self._place.exists(certain=False):
                raise _frozen(database, MISSING)
            if lost:
                raise _frozen(database, f"the witness has lost what it knew of {lost[0]}.")
            if entries and all(one in known and known[one].seq >= seq for one, seq in entries.items()):
                return {}
            with database.read() as session:
                changes = _moved(session, known, scopes)
                new = [one for one, change in changes.items() if change.before is None]
                # New to this process, yet marked as written: a rival was first, or the witness has lost it.
                rivals = witnessed(session, new) if new else []
            if rivals and (forgotten := self.forgotten(rivals)):
                raise _frozen(database, f"the witness does not know {forgotten[0]} any more.")
            mine = {one: change for one, change in changes.items() if one not in rivals}
            again = self._place.write(mine) if mine else set()
            self._raise({one: change.after.seq for one, change in mine.items() if one not in again}, of)
            # After the write: a mark without a record would freeze the ledger.
            if new:
                database.transaction(mark_witnessed, [one for one in new if one in mine and one not in again])
            return {one: changes[one] for one in (*again, *rivals)}

    def start(self, database: Database, name: Name) -> None:
        """Make it, and write down all scopes as they are: of a new ledger, or one that was reconciled."""
        with self._place.turn():
            refused = True
            while refused:
                known = self._place.known()
                with database.read() as session:
                    server = server_identity(session)
                    moved = _moved(session, {}, None)
                changes = {one: Change(known.get(one), change.after) for one, change in moved.items()}
                refused = bool(self._place.renew(server, name, changes))
            with self._raising:
                self._newest, self._newest_of = {}, name.own
        if changes:
            database.transaction(mark_witnessed, list(changes))

    def scopes_of(self, database: Database, job_id: str) -> frozenset[str]:
        """Return the scopes that pay for a job, or its clients; they never change, and the last are remembered."""
        if self._scopes is None or self._scopes[0] != job_id:
            with database.read() as session:
                clients = select(Job.id).where(Job.federation_id == job_id)
                pays = (Entry.job_id == job_id) | Entry.job_id.in_(clients)
                found = session.execute(select(Entry.scope_id).where(pays).distinct()).scalars()
                self._scopes = (job_id, frozenset(found))
        return self._scopes[1]


def _frozen(database: Database, problem: str) -> LedgerFrozen:
    """Freeze the ledger, and return the refusal that says so."""
    database.transaction(freeze_ledger, problem)
    return LedgerFrozen(f"The ledger is frozen: {problem} An operator must run `farthing reconcile`.")


def mark_witnessed(session: Session, scopes: Collection[str]) -> None:
    """Remember that the witness has written these scopes down, so that it must know them from here on."""
    session.execute(update(Scope).where(Scope.id.in_(scopes), ~Scope.witnessed).values(witnessed=True))


def witnessed(session: Session, scopes: Collection[str] | None) -> list[str]:
    """Return which of some scopes, or of all, the witness has written down once."""
    if scopes is not None and not scopes:
        return []
    statement = select(Scope.id).where(Scope.witnessed).order_by(Scope.id)
    return list(session.execute(statement if scopes is None else statement.where(Scope.id.in_(scopes))).scalars())


def _moved(session: Session, known: Mapping[str, Seen], scopes: Collection[str] | None) -> dict[str, Change]:
    """Return the scopes that have grown, and whose witnessed entry is still the one that was seen."""
    statement = select(Scope.id, Scope.seq, Scope.head).order_by(Scope.id)
    if scopes is not None:
        statement = statement.where(Scope.id.in_(scopes))
    grown = [
        (scope_id, seq, head)
        for scope_id, seq, head in session.execute(statement)
        if scope_id not in known or seq > known[scope_id].seq
    ]
    hashes = hashes_at(session, {one: known[one].seq for one, _, _ in grown if one in known})
    return {
        scope_id: Change(known.get(scope_id), _seen_of(session, scope_id, seq, head))
        for scope_id, seq, head in grown
        if scope_id not in known or hashes.get(scope_id) == known[scope_id].head
    }


def _seen_of(session: Session, scope_id: str, seq: int, head: str) -> Seen:
    accounts = session.execute(select(Account).where(Account.scope_id == scope_id)).scalars().all()
    slots = {one.id: zip(read_slots(one, "spent"), read_slots(one, "reserved"), strict=True) for one in accounts}
    taken = {account_id: [spent + reserved for spent, reserved in pairs] for account_id, pairs in slots.items()}
    draws = {one.id: one.draws for one in accounts}
    return Seen(seq, head, taken, draws)


def hashes_at(session: Session, places: Mapping[str, int]) -> dict[str, str]:
    """Return the hashes of one entry of each scope, where it is there."""
    found: dict[str, str] = {}
    items = list(places.items())
    for start in range(0, len(items), _ASKED_AT_ONCE):
        some = items[start : start + _ASKED_AT_ONCE]
        statement = select(Entry.scope_id, Entry.hash).where(tuple_(Entry.scope_id, Entry.seq).in_(some))
        found.update((scope_id, entry_hash) for scope_id, entry_hash in session.execute(statement))
    return found


def server_identity(session: Session) -> str | None:
    """Return what tells one PostgreSQL server, and one line of its history, from another; None for SQLite."""
    if session.get_bind().dialect.name == "sqlite":
        return None
    statement = "SELECT system_identifier, timeline_id FROM pg_control_system(), pg_control_checkpoint()"
    system, timeline = session.execute(text(statement)).one()
    return f"{system}/{timeline}"
