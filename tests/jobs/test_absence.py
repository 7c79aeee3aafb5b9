"""Sites that stay away: waited for, then lost where a quorum was asked for, each charged what it spent."""

from dataclasses import dataclass
from typing import Final

import pytest
from sqlalchemy import select, update

from core.db import clock
from core.db.database import Database
from core.db.tables import Account, Attempt, Entry, Job
from core.jobs import absence, federations, jobs, workers
from core.jobs.sweep import CONTACT
from core.ledger import ledger, verification
from core.ledger.accounts import balance_of
from core.ledger.claims import put_secret
from tests.support.store import Place, lose_lease, make_place, queue_federated

LEASE: Final = 60.0
PATIENCE: Final = 600.0
SITES: Final = ("north", "south", "west")


@dataclass
class Waiting:
    """A federated job of three sites that has begun, paid for a chunk at each, lost its attempt, and waits."""

    database: Database
    id: str
    places: list[Place]

    def see(self, *sites: str, ago_seconds: float = 0.0) -> None:
        """Have workers of sites be seen that long ago, and nobody else's ever."""
        with self.database.write() as session:
            for site in sites:
                name = f"worker of {site}"
                workers.see(session, name=name, queues="cpu", slots=1, gpus=0, version="1", site=site, meets=True)
                at = clock.read(session) - ago_seconds
                put_secret(session, workers._seen(site), repr(at))
                if ago_seconds > LEASE:
                    workers.leave(session, f"worker of {site}")

    def lose(self, *, contact_seconds: float = 2 * PATIENCE) -> list[str]:
        with self.database.write() as session:
            at = clock.read(session)
            put_secret(session, CONTACT, f"{at - contact_seconds!r} {at!r}")
            return absence.lose_absent(session, LEASE, PATIENCE)

    def states(self) -> list[tuple[str, str | None]]:
        with self.database.read() as session:
            rows = [session.get_one(Job, self.id), *federations.clients_of(session, self.id)]
            return [(row.state, row.error_code) for row in rows]

    def balances(self) -> list[tuple[bool, bool]]:
        """Return two flags for each site's scope: True if it has spent anything, and True if anything is reserved."""
        with self.database.read() as session:
            accounts = [balance_of(session.get_one(Account, place.scope_id)) for place in self.places]
            assert all(verification.verify(session, place.scope_id).ok for place in self.places)
            return [(any(one.spent), any(one.reserved)) for one in accounts]


def waiting(database: Database, quorum: int | None) -> Waiting:
    places = [make_place(database) for _ in SITES]
    with database.write() as session:
        job_id = queue_federated(session, places, quorum, sites=SITES)
        claim = jobs.take(session, session.get_one(Job, job_id), "worker of north", LEASE, {})
        taken = federations.claimed(session, claim)
        assert taken is not None
        for client in taken.clients:
            ledger.pay(session, client.claim, 0, None, 1)
        assert lose_lease(session, job_id, LEASE) == [job_id]
        long_ago = clock.read(session) - 1.5 * PATIENCE
        session.execute(update(Attempt).where(Attempt.job_id == job_id).values(ended_at=long_ago))
    return Waiting(database, job_id, places)


HELD = [("queued", None)] * 4


def test_a_site_that_stays_away_is_lost_and_the_quorum_goes_on(database: Database) -> None:
    job = waiting(database, 2)
    job.see("north", "west")
    assert job.lose() == [job.id]
    assert job.states() == [("queued", None), ("queued", None), ("failed", "worker-lost"), ("queued", None)]
    assert job.balances() == [(True, True), (True, False), (True, True)], "charged what it spent; nothing else moved"
    with database.read() as session:
        lost = select(Entry.kind).where(Entry.scope_id == job.places[1].scope_id).order_by(Entry.seq)
        assert list(session.execute(lost).scalars())[-2:] == ["spend", "settle"]
    assert job.lose() == [], "the others are there"


def test_below_the_quorum_all_end(database: Database) -> None:
    job = waiting(database, 3)
    job.see("north", "west")
    assert job.lose() == [job.id]
    ended = ("failed", "client-lost")
    assert job.states() == [ended, ended, ("failed", "worker-lost"), ended]
    assert job.balances() == [(True, False)] * 3


def test_without_a_quorum_the_job_waits(database: Database) -> None:
    job = waiting(database, None)
    job.see("north", "west")
    assert job.lose() == []
    assert job.states() == HELD


@pytest.mark.parametrize(
    ("seen_seconds", "contact_seconds"),
    [(0.5 * PATIENCE, 2 * PATIENCE), (1.2 * PATIENCE, 0.9 * PATIENCE)],
    ids=["it was seen since", "nobody was, for the database was away"],
)
def test_who_may_come_back_soon_is_waited_for(database: Database, seen_seconds: float, contact_seconds: float) -> None:
    job = waiting(database, 2)
    job.see("north", "west")
    job.see("south", ago_seconds=seen_seconds)
    assert job.lose(contact_seconds=contact_seconds) == []
    assert job.states() == HELD
    job.see("south", ago_seconds=1.2 * PATIENCE)
    assert job.lose() == [job.id], "later it is not"


def test_a_job_that_has_not_begun_waits_as_long_as_any(database: Database) -> None:
    places = [make_place(database) for _ in SITES]
    with database.write() as session:
        job_id = queue_federated(session, places, 2, sites=SITES)
        at = clock.read(session)
        put_secret(session, CONTACT, f"{at - 2 * PATIENCE!r} {at!r}")
        assert absence.lose_absent(session, LEASE, PATIENCE) == []
        assert session.get_one(Job, job_id).state == "queued"
