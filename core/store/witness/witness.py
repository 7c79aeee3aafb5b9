"""What lies outside the database and remembers how far each chain had come, so that a restored backup is noticed.

It keeps, per scope, the last entry seen (number and hash) and the spent + reserved of each account then, durably; and
which datasets were erased, so that a backup does not bring them back. `guard` runs at start and makes it;
`Witness.keep` runs after a reservation and again between a claim and the start of its child, and between a payment and
the reading that it pays for, so that nothing is ever read whose charge only the database knows. If the database turns
out to be behind, or the witness is gone while the ledger is not empty, the ledger is frozen until an operator
reconciles.

It is a file, or objects in a store where several machines serve. On the same disk as the database it misses a rollback
of the whole machine: put it elsewhere.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sqlalchemy import select, text, tuple_
from sqlalchemy.orm import Session

from core.errors import LedgerBusy, LedgerFrozen, NotReady
from core.store import clock
from core.store.claims import freeze_ledger, lock_job, thaw_ledger
from core.store.database import Database
from core.store.jobs import jobs
from core.store.ledger import chain, kinds
from core.store.ledger.accounts import lock_accounts, lock_scope, move, read_slots, terms_of
from core.store.ledger.bodies import slots
from core.store.ledger.scope_entries import raised_to
from core.store.ledger.tally import AccountTally
from core.store.records.bucket import SCHEME
from core.store.tables import TERMINAL_STATES, Account, Dataset, Entry, Job, Scope
from core.store.witness.witness_file import Change, Place, Seen, WitnessFile
from core.store.witness.witness_objects import WitnessObjects

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
            known = self._place.known(scopes)
            gone = any(change.before is not None and one not in known for one, change in refused.items())
            if gone or not self._place.exists(certain=False):
                database.run(freeze_ledger, MISSING)
                raise LedgerFrozen(f"The ledger is frozen: {MISSING} An operator must run `farthing reconcile`.")
            if entries and all(one in known and known[one].seq >= seq for one, seq in entries.items()):
                return {}
            with database.read() as session:
                changes = _moved(session, known, scopes)
            again = self._place.write(changes) if changes else set()
            return {one: changes[one] for one in again}

    def start(self, database: Database) -> None:
        """Make it, and write down all scopes as they are: of a new ledger, or one that was reconciled."""
        with self._place.turn():
            refused = True
            while refused:
                known = self._place.known()
                with database.read() as session:
                    server = server_identity(session)
                    moved = _moved(session, {}, None)
                changes = {one: Change(known.get(one), change.after) for one, change in moved.items()}
                refused = bool(self._place.renew(server, changes))

    def scopes_of(self, database: Database, job_id: str) -> frozenset[str]:
        """Return the scopes that pay for a job, or its clients; they never change, and the last are remembered."""
        if self._scopes is None or self._scopes[0] != job_id:
            with database.read() as session:
                clients = select(Job.id).where(Job.federation_id == job_id)
                pays = (Entry.job_id == job_id) | Entry.job_id.in_(clients)
                found = session.execute(select(Entry.scope_id).where(pays).distinct()).scalars()
                self._scopes = (job_id, frozenset(found))
        return self._scopes[1]


def compare(database: Database, witness: Witness, job_id: str | None = None) -> list[str]:
    """Return in what the ledger is behind its witness; empty where it is not.

    Args:
        database: the ledger.
        witness: what was seen of it.
        job_id: look at the scopes that pay for this job only.
    """
    seen = witness.read(None if job_id is None else witness.scopes_of(database, job_id))
    problems = []
    with database.read() as session:
        if not witness.exists():
            anything = session.execute(select(Job.id).limit(1)).first()
            return [MISSING] if anything else []
        if witness.identity() != server_identity(session):
            problems.append("the database server is another one, or was restored to another timeline.")
        hashes = _hashes(session, {scope_id: known.seq for scope_id, known in seen.items()})
        for scope_id, known in seen.items():
            if scope_id not in hashes:
                problems.append(f"{scope_id} has lost entries: entry {known.seq} was witnessed.")
            elif hashes[scope_id] != known.head:
                problems.append(f"{scope_id} has another history: entry {known.seq} is not the one witnessed.")
        if job_id is None:
            problems += [f"{dataset.id} was erased, and is back." for dataset in _risen(session, witness.erased())]
    return problems


def guard(database: Database, witness: Witness) -> list[str]:
    """Compare at start; freeze a ledger that is behind, and give a new one its witness.

    Raises:
        NotReady: the witness does not answer, or its place could lose a head.
    """
    witness.check()
    problems = compare(database, witness)
    if problems:
        database.run(freeze_ledger, problems[0])
    elif not witness.exists():
        witness.start(database)
    return problems


def watch(database: Database, witness: Witness, job_id: str | None = None) -> list[str]:
    """Compare while serving, since a database may be put back at any time; freeze a ledger that is behind.

    Args:
        database: the ledger.
        witness: what was seen of it.
        job_id: look at the scopes that pay for this job only.

    Raises:
        LedgerBusy: the witness does not answer.
    """
    try:
        problems = compare(database, witness, job_id)
    except NotReady as error:
        raise LedgerBusy(f"The witness: {error.detail}", retry_after_seconds=2) from error
    if problems:
        database.run(freeze_ledger, problems[0])
    return problems


def reconcile(database: Database, witness: Witness, actor: str = "operator") -> list[str]:
    """Bring a ledger that is behind its witness back to the safe side, and go on.

    Every live job fails at its whole reservation, spent is raised to the largest that was witnessed, by a visible
    entry in each scope, datasets that a backup brought back are erased again, the epoch changes so that no attempt
    from before can write, and the witness starts anew.

    Returns:
        The jobs that were failed.
    """
    failed = database.run(_reconcile, witness.read(), witness.erased(), actor)
    witness.start(database)
    return failed


def _reconcile(session: Session, seen: dict[str, Seen], erased: set[str], actor: str) -> list[str]:
    """Do the database's part of a reconciliation, in one transaction."""
    thaw_ledger(session)
    live = session.execute(select(Job.id).where(Job.state.not_in(TERMINAL_STATES)).order_by(Job.id)).scalars().all()
    for job_id in live:
        job = lock_job(session, job_id)
        jobs.end_failed(session, job, clock.read(session), jobs.LOST, charge="all")
    for dataset in _risen(session, erased):
        dataset.state = "erasing"  # the upkeep destroys the records that a backup brought back
    for scope_id in session.execute(select(Scope.id).order_by(Scope.id)).scalars().all():
        scope = lock_scope(session, scope_id)
        known = seen.get(scope_id)
        held = session.execute(select(Account.id).where(Account.scope_id == scope_id)).scalars()
        accounts = {account.id: account for account in lock_accounts(session, held)}
        tallies = {one: _tally(account) for one, account in accounts.items()}
        raised = {} if known is None else raised_to(known.taken, tallies)
        moved = {one: move(accounts[one], spent=amount, reserved=slots([])) for one, amount in raised.items()}
        content: dict[str, Any] = {"accounts": moved, "actor": actor, "reason": "brought up to the witness"}
        content |= {"seen": None if known is None else {"seq": known.seq, "head": known.head, "taken": known.taken}}
        chain.append(session, scope, kinds.Reconcile, at=clock.read(session), content=content)
    session.flush()
    return list(live)


def _risen(session: Session, erased: set[str]) -> list[Dataset]:
    """Return the datasets that were erased and are here all the same."""
    if not erased:
        return []
    present = session.execute(select(Dataset).where(Dataset.state.in_(("pending", "ready"))).order_by(Dataset.id))
    return [dataset for dataset in present.scalars() if dataset.id in erased]


def _taken(account: Account) -> list[int]:
    """Return spent + reserved of an account, by slot."""
    return [one + two for one, two in zip(read_slots(account, "spent"), read_slots(account, "reserved"), strict=True)]


def _tally(account: Account) -> AccountTally:
    """Return an account as the rules of entries see it."""
    balance = read_slots(account, "spent"), read_slots(account, "reserved")
    return AccountTally(terms_of(account), account.declared, account.principal_id, *balance)


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
    hashes = _hashes(session, {one: known[one].seq for one, _, _ in grown if one in known})
    return {
        scope_id: Change(known.get(scope_id), Seen(seq, head, _taken_of(session, scope_id)))
        for scope_id, seq, head in grown
        if scope_id not in known or hashes.get(scope_id) == known[scope_id].head
    }


def _taken_of(session: Session, scope_id: str) -> dict[str, list[int]]:
    accounts = session.execute(select(Account).where(Account.scope_id == scope_id)).scalars()
    return {account.id: _taken(account) for account in accounts}


def _hashes(session: Session, places: Mapping[str, int]) -> dict[str, str]:
    """Return the hashes of one entry of each scope, where it is there."""
    found: dict[str, str] = {}
    for some in _batches(list(places.items())):
        statement = select(Entry.scope_id, Entry.hash).where(tuple_(Entry.scope_id, Entry.seq).in_(some))
        found.update((scope_id, entry_hash) for scope_id, entry_hash in session.execute(statement))
    return found


def _batches(items: list[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    rest = iter(items)
    while some := list(islice(rest, _ASKED_AT_ONCE)):
        yield some


def server_identity(session: Session) -> str | None:
    """Return what tells one PostgreSQL server, and one line of its history, from another; None for SQLite."""
    if session.get_bind().dialect.name == "sqlite":
        return None
    statement = "SELECT system_identifier, timeline_id FROM pg_control_system(), pg_control_checkpoint()"
    system, timeline = session.execute(text(statement)).one()
    return f"{system}/{timeline}"
