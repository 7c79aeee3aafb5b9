"""A file outside the database that remembers how far each chain had come, so that a restored backup is noticed.

It keeps, per scope, the last entry seen (number and hash) and the spent + reserved of each account then, and is
synced to disk; and which datasets were erased, so that a backup does not bring them back. `guard` runs at start and
makes the file; `Witness.keep` runs after a reservation and again between a claim and the start of its child, so that
nothing is ever read whose charge only the database knows. If the database turns out to be behind, or the witness is
gone while the ledger is not empty, the ledger is frozen until an operator reconciles.

A witness on the same disk as the database misses a rollback of the whole machine: put it elsewhere.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from core.errors import LedgerFrozen
from core.store import chain, clock, jobs
from core.store.accounts import lock_accounts, lock_scope, move, read_slots, slots
from core.store.claims import freeze_ledger, lock_job, thaw_ledger
from core.store.database import Database
from core.store.tables import TERMINAL_STATES, Account, Dataset, Entry, Job, Scope

COMPACT_BYTES: Final = 4 * 2**20
MISSING: Final = "the witness is missing, and the ledger is not empty."


@dataclass(frozen=True)
class Seen:
    """What the witness knows of one scope."""

    seq: int
    head: str
    taken: dict[str, list[int]]
    """Spent + reserved of each account at that entry, by slot."""


class Witness:
    """The file. Lines are appended and synced; it is rewritten when it has grown large."""

    def __init__(self, path: Path | str) -> None:
        """Name the file; it is made by the first `keep`."""
        self.path = Path(path)

    def exists(self) -> bool:
        """Tell whether anything was ever witnessed."""
        return self.path.exists()

    def read(self) -> dict[str, Seen]:
        """Return what is known of each scope; an unfinished last line, of a crash while appending, does not count."""
        if not self.path.exists():
            return {}
        seen: dict[str, Seen] = {}
        for line in self.path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break
            told = json.loads(line)
            if "scope" in told:
                seen[told["scope"]] = Seen(told["seq"], told["head"], told["taken"])
        return seen

    def identity(self) -> str | None:
        """Return the identity of the server that was witnessed, None where it has none."""
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        told = [json.loads(line) for line in lines if line.endswith("\n")]
        return next((line["server"] for line in reversed(told) if "server" in line), None)

    def erased(self) -> set[str]:
        """Return the datasets whose records were destroyed."""
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        told = [json.loads(line) for line in lines if line.endswith("\n")]
        return {line["erased"] for line in told if "erased" in line}

    def bury(self, dataset_id: str) -> None:
        """Write down that a dataset's records are about to be destroyed, and sync; nothing where the file is gone."""
        with self._locked():
            if self.exists():
                self._append([{"erased": dataset_id}])

    def keep(self, database: Database) -> None:
        """Write down every scope that has moved on since the last time, and sync. Several processes may do so at once.

        A scope whose history is not the one witnessed is left as it was seen, for `guard` to find.

        Raises:
            LedgerFrozen: the file is gone.
        """
        with self._locked():
            if not self.exists():
                database.run(freeze_ledger, MISSING)
                raise LedgerFrozen(f"The ledger is frozen: {MISSING} An operator must run `farthing reconcile`.")
            seen = self.read()
            with database.read() as session:
                server = server_identity(session)
                lines = [_look(session, scope) for scope in _moved(session, seen)]
            if lines:
                self._append(lines)
                self._compact(server)

    def start(self, database: Database) -> None:
        """Make the file, and write down all scopes as they are: of a new ledger, or one that was reconciled."""
        with self._locked():
            with database.read() as session:
                lines = [{"server": server_identity(session)}]
                lines += [_look(session, scope) for scope in _moved(session, {})]
            lines += [{"erased": dataset} for dataset in sorted(self.erased())]
            self.path.unlink(missing_ok=True)
            self._append(lines)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file's lock between processes of this machine."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _append(self, lines: list[dict[str, Any]]) -> None:
        """Append lines and sync, after cutting off what a crash left of an unfinished one."""
        with self.path.open("a+b") as file:
            file.seek(0)
            whole = file.read()
            file.truncate(whole.rfind(b"\n") + 1)
            file.write("".join(chain.canonical(line) + "\n" for line in lines).encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self.path.parent)

    def _compact(self, server: str | None) -> None:
        """Rewrite a file that has grown large, atomically."""
        if self.path.stat().st_size < COMPACT_BYTES:
            return
        fresh = self.path.with_suffix(".new")
        lines: list[dict[str, Any]] = [{"server": server}]
        lines += [{"scope": key, **vars(seen)} for key, seen in self.read().items()]
        lines += [{"erased": dataset} for dataset in sorted(self.erased())]
        with fresh.open("wb") as file:
            file.write("".join(chain.canonical(line) + "\n" for line in lines).encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        _sync_folder(self.path.parent)


def compare(database: Database, witness: Witness) -> list[str]:
    """Return in what the database is behind its witness; empty where it is not."""
    seen = witness.read()
    problems = []
    with database.read() as session:
        if not witness.exists():
            anything = session.execute(select(Job.id).limit(1)).first()
            return [MISSING] if anything else []
        if witness.identity() != server_identity(session):
            problems.append("the database server is another one, or was restored to another timeline.")
        for scope_id, known in seen.items():
            statement = select(Entry.hash).where(Entry.scope_id == scope_id, Entry.seq == known.seq)
            found = session.execute(statement).scalar_one_or_none()
            if found is None:
                problems.append(f"{scope_id} has lost entries: entry {known.seq} was witnessed.")
            elif found != known.head:
                problems.append(f"{scope_id} has another history: entry {known.seq} is not the one witnessed.")
        problems += [f"{dataset.id} was erased, and is back." for dataset in _risen(session, witness.erased())]
    return problems


def guard(database: Database, witness: Witness) -> list[str]:
    """Compare at start and on reconnecting; freeze a ledger that is behind, and give a new one its witness."""
    problems = compare(database, witness)
    if problems:
        database.run(freeze_ledger, problems[0])
    elif not witness.exists():
        witness.start(database)
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
        taken = seen[scope_id].taken if scope_id in seen else {}
        held = session.execute(select(Account.id).where(Account.scope_id == scope_id)).scalars()
        moved = {}
        for account in lock_accounts(session, held):
            totals = _taken(account)
            missing = [max(0, one - two) for one, two in zip(taken.get(account.id, totals), totals, strict=True)]
            if any(missing):
                missing = _within_cap(account, missing)
                moved[account.id] = move(account, spent=missing, reserved=slots([]))
        content = {"accounts": moved, "actor": actor, "reason": "brought up to the witness"}
        chain.append(session, scope, "reconcile", at=clock.read(session), content=content)
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


def _within_cap(account: Account, missing: list[int]) -> list[int]:
    """Return what may be added to spent: all of it, or, where no order could hold that, as much as exhausts one."""
    room = [cap - taken for cap, taken in zip(read_slots(account, "cap"), _taken(account), strict=True)]
    excess = {slot: missing[slot] - left for slot, left in enumerate(room) if left >= 0}
    slot = min(excess, key=lambda at: excess[at])
    return [min(part, room[at]) if at == slot else part for at, part in enumerate(missing)]


def _moved(session: Session, seen: dict[str, Seen]) -> list[Scope]:
    """Return the scopes that have grown, and whose witnessed entry is still the one that was seen."""
    scopes = session.execute(select(Scope).order_by(Scope.id)).scalars()
    return [scope for scope in scopes if scope.id not in seen or _continues(session, scope, seen[scope.id])]


def _continues(session: Session, scope: Scope, known: Seen) -> bool:
    if scope.seq <= known.seq:
        return False
    statement = select(Entry.hash).where(Entry.scope_id == scope.id, Entry.seq == known.seq)
    return session.execute(statement).scalar_one_or_none() == known.head


def _look(session: Session, scope: Scope) -> dict[str, Any]:
    """Return a scope as a line of the witness."""
    accounts = session.execute(select(Account).where(Account.scope_id == scope.id)).scalars()
    return {
        "scope": scope.id,
        "seq": scope.seq,
        "head": scope.head,
        "taken": {account.id: _taken(account) for account in accounts},
    }


def server_identity(session: Session) -> str | None:
    """Return what tells one PostgreSQL server, and one line of its history, from another; None for SQLite."""
    if session.get_bind().dialect.name == "sqlite":
        return None
    statement = "SELECT system_identifier, timeline_id FROM pg_control_system(), pg_control_checkpoint()"
    system, timeline = session.execute(text(statement)).one()
    return f"{system}/{timeline}"


def _sync_folder(folder: Path) -> None:
    """Make a new or renamed file's name survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
