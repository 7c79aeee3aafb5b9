"""Makers of rows, and of databases, for tests of everything that stands on the store."""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import text, update
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from core.access import principals
from core.base.identifiers import new_id
from core.db import clock
from core.db.base import Base
from core.db.database import Database
from core.db.revisions import head_revision
from core.db.tables import SEVERAL, Dataset, Job
from core.jobs import jobs
from core.jobs.sweep import CONTACT, sweep
from core.ledger import ledger
from core.ledger.claims import put_secret
from core.privacy.budget import Terms, plan_orders
from core.privacy.draws import MOST_RUNS
from core.privacy.events import Event, Gaussian
from core.records.datasets import give_access

STEP = Gaussian(sigma=20.0)
DRAWS = 1000
"""One chunk of a test's job: rho .00125."""

TERMS = plan_orders(Decimal(3), Decimal("1e-6"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between test processes."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def create_postgresql(server: str, name: str) -> str:
    """Create a database on a server and return its URL."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return make_url(server).set(database=name).render_as_string(hide_password=False)


def empty_postgresql(url: str) -> None:
    """Take every row out of a database, past the triggers, and undo what tests of tampering do to it."""
    head = head_revision()
    with psycopg.connect(url) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("ALTER TABLE entries ENABLE TRIGGER USER")
        for table in Base.metadata.sorted_tables:
            connection.execute(f'DELETE FROM "{table.name}"')
        connection.execute("UPDATE schema_revision SET version_num = %s", (head,))


Tables = dict[str, list[dict[str, Any]]]


def backed_up(database: Database) -> Tables:
    """Return every row of a database."""
    with database.read() as session:
        return {
            table.name: [dict(row) for row in session.execute(table.select()).mappings()]
            for table in Base.metadata.sorted_tables
        }


def put_back(database: Database, tables: Tables) -> None:
    """Put every row of a database back to what it was, past its triggers, as restoring a backup does."""
    with database.write() as session:
        if session.get_bind().dialect.name == "sqlite":
            session.execute(text("PRAGMA defer_foreign_keys = ON"))
            for trigger in (
                session.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
            ):
                session.execute(text(f'DROP TRIGGER "{trigger}"'))
        else:
            session.execute(text("SET LOCAL session_replication_role = replica"))
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(table.delete())
        for table in Base.metadata.sorted_tables:
            if tables[table.name]:
                session.execute(table.insert(), tables[table.name])


@dataclass(frozen=True)
class Place:
    """A principal, a scope with a budget, and a dataset in it."""

    principal_id: str
    scope_id: str
    dataset_id: str


def make_dataset(session: Session, owner_id: str, scope_id: str) -> str:
    """Store the row of a dataset that is ready."""
    dataset = Dataset(
        id=new_id("ds"),
        scope_id=scope_id,
        owner_id=owner_id,
        name="people",
        state="ready",
        request={},
        columns=[],
        rows=1000,
        fingerprint=new_id("fp"),
        created_at=clock.read(session),
    )
    session.add(dataset)
    session.flush()
    return dataset.id


def make_place(database: Database, terms: Terms = TERMS) -> Place:
    """Store somebody with a scope and a dataset."""
    with database.write() as session:
        return open_place(session, principals.create(session, "Olga", "owner").id, terms=terms)


def open_place(
    session: Session,
    owner_id: str,
    columns: Sequence[dict[str, Any]] = (),
    *,
    units: int = 1000,
    adjacency: str = "zero_out",
    terms: Terms = TERMS,
    approval: bool = False,
) -> Place:
    """Store a scope of somebody's, and a dataset of which nothing is ever read."""
    scope = ledger.open_scope(
        session,
        owner_id=owner_id,
        unit="record",
        adjacency=adjacency,
        units=units,
        terms=terms,
        declared={"epsilon": str(terms.epsilon), "delta": str(terms.delta)},
    )
    scope.approval = approval
    dataset_id = make_dataset(session, owner_id, scope.id)
    dataset = session.get_one(Dataset, dataset_id)
    dataset.columns, dataset.rows = list(columns), units
    ledger.note_upload(session, scope.id, dataset)
    return Place(owner_id, scope.id, dataset_id)


def give(session: Session, dataset_id: str, principal_id: str) -> str:
    """Let a principal use all of a dataset's budget; return the account of its cap."""
    give_access(session, dataset_id, principal_id)
    scope_id = session.get_one(Dataset, dataset_id).scope_id
    assert scope_id is not None
    terms = ledger.balance(session, scope_id).terms
    return ledger.set_grant(session, scope_id, principal_id, terms, {"cap": "all"}).id


def submit(
    session: Session,
    place: Place,
    schedule: Sequence[Event] = (STEP,) * 4,
    *,
    grant: tuple[str, str] | None = None,
    retry_allowance: int = 0,
    runs: int = MOST_RUNS,
) -> Job:
    """Make a job, reserve for it and queue it; `grant` is (principal, grant) of another caller."""
    job = jobs.draft(
        at=clock.read(session),
        owner_id=grant[0] if grant else place.principal_id,
        dataset_id=place.dataset_id,
        scope_id=place.scope_id,
        grant_id=grant[1] if grant else None,
        spec={
            "model": {"kind": "logistic"},
            "optimizer": {"kind": "noisy_newton"},
            "privacy": {"mu": "0.1"},
            "inference": {"intervals": False},
        },
        optimizer="noisy_newton",
        steps=len(schedule),
        labels={"study": "a"},
    )
    return enter(session, job, schedule, retry_allowance, runs)


def enter(
    session: Session, job: Job, schedule: Sequence[Event], retry_allowance: int = 0, runs: int = MOST_RUNS
) -> Job:
    """Reserve for a job that was drafted, and queue it."""
    reserved = ledger.Schedule(schedule, retry_allowance, draws=DRAWS, whole_runs=runs)
    ledger.reserve(ledger.accounts_of(session, [job]), job, reserved)
    jobs.enqueue(session, [job])
    return job


def queue_federated(
    session: Session,
    places: Sequence[Place],
    quorum: int | None,
    *,
    chunks: int = 3,
    sites: Sequence[str] | None = None,
) -> str:
    """Reserve for a federated job with a client at each place, and queue it; `sites` are theirs, by default one's own.

    Each site has `chunks` times `STEP` to do.
    """
    for place in places:
        if place.principal_id != places[0].principal_id:
            give(session, place.dataset_id, places[0].principal_id)
    named = [SEVERAL, *sites] if sites else [""] * (len(places) + 1)
    at = clock.read(session)
    parent, *clients = rows = [
        jobs.draft(
            at=at,
            owner_id=places[0].principal_id,
            dataset_id=place.dataset_id,
            scope_id=place.scope_id,
            grant_id=None,
            spec={
                "federation": {"datasets": [one.dataset_id for one in places], "quorum": quorum},
                "model": {},
                "optimizer": {"kind": "noisy_gd"},
                "privacy": {},
                "inference": {},
            },
            optimizer="noisy_gd",
            steps=chunks,
            labels={},
            site=site,
        )
        for site, place in zip(named, [places[0], *places], strict=True)
    ]
    jobs.federate(parent)
    for number, client in enumerate(clients):
        jobs.federate(client, parent, number)
    reservation = ledger.Reservation(ledger.accounts_of(session, clients))
    for client in clients:
        reservation.add(client, ledger.Schedule((STEP,) * chunks, 1, draws=DRAWS, whole_runs=MOST_RUNS))
    reservation.make()
    jobs.enqueue(session, rows)
    return parent.id


def lose_lease(session: Session, federation_id: str, lease_seconds: float) -> list[str]:
    """Let the leases of a federated job and its clients run out, sweep, and return what was put back."""
    leased = (Job.federation_id == federation_id, Job.lease_until.is_not(None))
    session.execute(update(Job).where(*leased).values(lease_until=1.0))
    put_secret(session, CONTACT, f"0.0 {clock.read(session)!r}")
    session.flush()
    return sweep(session, lease_seconds, 3, 1e9).requeued
