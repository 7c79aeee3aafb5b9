"""Federated jobs of several sites: begun for all or for none, lost with any, and never waited for in a ring."""

import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import select

from core.base.errors import StaleAttempt
from core.db import clock
from core.db.database import Database
from core.db.tables import Account, Dataset, Job
from core.jobs import federations, jobs, seats, workers
from core.jobs.presence import SiteSlot
from core.jobs.queue import DEVICES
from core.ledger.claims import Claim
from core.records.encryption import Tampered
from core.records.sealing import Reader
from tests.support.store import STEP, Place, enter, lose_lease, make_place, queue_federated

LEASE: Final = 60.0
CHUNKS: Final = 3


@dataclass
class Worker:
    """A site's worker, with what it offers under."""

    database: Database
    site: str
    name: str = ""
    readers: dict[str, Reader] = field(default_factory=dict)

    @property
    def party(self) -> seats.Party:
        return seats.Party(self.name or f"worker of {self.site}", self.site)

    def see(self) -> None:
        told = {"queues": "cpu", "slots": 1, "gpus": 0, "version": "1", "meets": True}
        self.database.transaction(workers.see, name=self.party.worker, site=self.site, **told)

    def offer(self, skip: Sequence[str] = (), seat_seconds: float = 30.0) -> str | None:
        self.see()
        reader = Reader()
        job_id = self.database.transaction(
            seats.offer,
            self.party,
            reader.public_key,
            takes=DEVICES,
            most_running=9,
            seat_seconds=seat_seconds,
            lease_seconds=LEASE,
            skip=skip,
        )
        if job_id is not None:
            self.readers[job_id] = reader
        return job_id

    def taken(self, job_id: str) -> seats.ClaimedSlot | None:
        with self.database.read() as session:
            return seats.taken(session, self.party, job_id)

    def key(self, job_id: str) -> bytes:
        found = self.taken(job_id)
        assert found is not None
        context = seats.context_of(job_id, found.federation.claim.attempt, self.site)
        return self.readers[job_id].open(found.sealed_key, context)

    def claim(self, job_id: str) -> Claim:
        found = self.taken(job_id)
        assert found is not None
        return found.federation.claim

    def beat(self, claim: Claim) -> jobs.Beat:
        return self.database.transaction(seats.beat, claim, self.party, LEASE)

    def leave(self, claim: Claim, outcome: str) -> list[str] | None:
        return self.database.transaction(seats.leave, claim, self.party, outcome)


@dataclass
class Stage:
    """Two sites, the service's own place, and their workers."""

    database: Database
    places: dict[str, Place]
    a: Worker
    b: Worker

    def queue(self, sites: Sequence[str] = ("a", "b"), quorum: int | None = None) -> str:
        """Reserve for a federated job with a client at each of these sites, and queue it."""
        with self.database.write() as session:
            return queue_federated(session, [self.places[site] for site in sites], quorum, sites=sites)

    def states(self, job_id: str) -> list[str]:
        """Return the states of a federated job and of its clients."""
        with self.database.read() as session:
            rows = [session.get_one(Job, job_id), *federations.clients_of(session, job_id)]
            return [row.state for row in rows]

    def begun(self) -> tuple[str, Claim]:
        """Begin an attempt at a new job; return both."""
        job_id = self.queue()
        self.b.see()
        assert (self.a.offer(), self.b.offer()) == (job_id, job_id)
        return job_id, self.a.claim(job_id)

    def pass_lease(self, job_id: str) -> list[str]:
        """Let the job's lease run out, and sweep."""
        with self.database.write() as session:
            return lose_lease(session, job_id, LEASE)


def set_up(database: Database) -> Stage:
    places = {site: make_place(database) for site in ("", "a", "b", "c")}
    with database.write() as session:
        for site, place in places.items():
            session.get_one(Dataset, place.dataset_id).site = site
    return Stage(database, places, Worker(database, "a"), Worker(database, "b"))


@pytest.fixture
def each(database: Database) -> Stage:
    """A stage on each kind of database."""
    return set_up(database)


@pytest.fixture
def stage(sqlite_template: Path, tmp_path: Path) -> Iterator[Stage]:
    """A stage on one kind, for what hangs on none."""
    shutil.copy(sqlite_template, tmp_path / "farthing.sqlite")
    database = Database(f"sqlite+pysqlite:///{tmp_path / 'farthing.sqlite'}")
    yield set_up(database)
    database.dispose()


def test_nothing_is_claimed_until_all_sites_are_there_and_then_everything_is(each: Stage) -> None:
    job_id = each.queue()
    each.b.see()
    assert each.a.offer() == job_id
    assert each.a.taken(job_id) is None
    assert each.states(job_id) == ["queued"] * 3
    assert each.b.offer() == job_id
    assert each.states(job_id) == ["running"] * 3
    with each.database.read() as session:
        clients = federations.clients_of(session, job_id)
        assert [client.worker for client in clients] == ["worker of a", "worker of b"]
        assert len({client.fence for client in clients} | {client.id for client in clients}) == 4
    for worker in (each.a, each.b):
        found = worker.taken(job_id)
        assert found is not None
        assert [client.site for client in found.federation.clients] == ["a", "b"]


def test_each_seat_learns_one_key_and_no_other_seat_s_message_opens(stage: Stage) -> None:
    job_id, _ = stage.begun()
    assert stage.a.key(job_id) == stage.b.key(job_id)
    theirs = stage.b.taken(job_id)
    assert theirs is not None
    with pytest.raises(Tampered):
        stage.a.readers[job_id].open(theirs.sealed_key, seats.context_of(job_id, 1, "b"))
    with stage.database.read() as session:
        stored = "".join(str(seat.sealed_key) for seat in session.execute(select(SiteSlot)).scalars())
    assert stage.a.key(job_id).hex() not in stored


def test_a_claim_for_some_of_the_sites_would_be_seen(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the site that offers first does not wait for the others."""
    genuine = federations.clients_of
    monkeypatch.setattr(seats, "clients_of", lambda session, job_id: genuine(session, job_id)[:1])
    job_id = stage.queue()
    stage.b.see()
    stage.a.offer()
    assert stage.states(job_id) != ["queued"] * 3


def test_nobody_waits_for_a_site_that_is_not_there(stage: Stage) -> None:
    absent, present = stage.queue(("a", "b", "c")), stage.queue(("a", "b"))
    stage.b.see()
    assert stage.a.offer() == present, "the older one has nobody at c"
    stage.database.transaction(workers.see, name="c", queues="cpu", slots=1, gpus=0, version="1", site="c", meets=False)
    assert stage.b.offer(skip=[present]) is None, "whom nobody can reach is not there either"
    assert stage.states(absent) == ["queued"] * 4


def test_two_sites_that_wait_for_each_other_in_two_jobs_meet_in_the_end(stage: Stage) -> None:
    first, second = stage.queue(), stage.queue()
    stage.b.see()
    assert stage.a.offer(skip=[first]) == second
    assert stage.b.offer() == first
    assert stage.states(first) == stage.states(second) == ["queued"] * 3, "as a ring would have it"
    for worker, job_id in ((stage.a, second), (stage.b, first)):
        assert stage.database.transaction(seats.withdraw, worker.party, job_id)
    assert (stage.a.offer(), stage.b.offer()) == (first, first)
    assert stage.states(first) == ["running"] * 3


def test_an_offer_that_has_passed_counts_for_nothing(stage: Stage) -> None:
    job_id = stage.queue()
    stage.b.see()
    stage.a.offer(seat_seconds=-1.0)
    stage.b.offer()
    assert stage.states(job_id) == ["queued"] * 3
    stage.a.offer()
    assert stage.states(job_id) == ["running"] * 3


def test_a_seat_that_was_taken_is_not_withdrawn_and_one_of_a_colleague_is_left_alone(stage: Stage) -> None:
    job_id = stage.queue()
    stage.b.see()
    stage.a.offer()
    assert Worker(stage.database, "a", "another").offer() is None
    stage.b.offer()
    assert not stage.database.transaction(seats.withdraw, stage.a.party, job_id)
    with pytest.raises(StaleAttempt):
        Worker(stage.database, "a", "another").taken(job_id)


def test_ordinary_jobs_are_claimed_by_their_own_site_alone(each: Stage) -> None:
    with each.database.write() as session:
        for site in ("", "a"):
            place = each.places[site]
            job = jobs.draft(
                at=clock.read(session),
                owner_id=place.principal_id,
                dataset_id=place.dataset_id,
                scope_id=place.scope_id,
                grant_id=None,
                spec={},
                optimizer="noisy_gd",
                steps=1,
                labels={},
                site=site,
            )
            enter(session, job, (STEP,))

    def claimed(site: str) -> str | None:
        claim = each.database.transaction(jobs.claim, "w", LEASE, DEVICES, 9, site)
        if claim is None:
            return None
        with each.database.read() as session:
            return session.get_one(Job, claim.job_id).site

    each.queue()
    assert claimed("b") is None
    assert [claimed("a"), claimed("a")] == ["a", None]
    assert [claimed(""), claimed("")] == ["", None], "nor is a federated job of several sites anybody's alone"


def test_the_lease_is_that_of_the_site_that_was_silent_longest(stage: Stage) -> None:
    job_id, claim = stage.begun()
    with stage.database.write() as session:
        session.get_one(SiteSlot, (job_id, "b")).until -= LEASE / 2
    told = stage.a.beat(claim)
    assert told.alive
    assert told.left_seconds is not None
    with stage.database.write() as session:
        session.get_one(Job, job_id).lease_until = session.get_one(SiteSlot, (job_id, "b")).until
    told = stage.a.beat(claim)
    assert told.left_seconds is not None
    assert told.left_seconds < 0.6 * LEASE, "another one's silence is told"
    told = stage.b.beat(claim)
    assert told.left_seconds is not None
    assert told.left_seconds > 0.9 * LEASE


def test_one_site_that_is_lost_ends_the_attempt_for_all_and_all_may_meet_again(each: Stage) -> None:
    job_id, claim = each.begun()
    assert each.pass_lease(job_id) == [job_id]
    assert each.states(job_id) == ["queued"] * 3
    assert not each.a.beat(claim).alive
    for worker in (each.a, each.b):
        with pytest.raises(StaleAttempt):
            worker.taken(job_id)
        with pytest.raises(StaleAttempt):
            worker.leave(claim, "stopped")
    assert (each.a.offer(), each.b.offer()) == (job_id, job_id)
    assert each.a.claim(job_id).attempt == 2
    with each.database.read() as session:
        for site in ("a", "b"):
            account = session.get_one(Account, each.places[site].scope_id)
            assert account.spent_1 == 0, "nobody paid"
            assert account.reserved_1 > 0, "and it is still reserved, once"


def test_the_last_to_leave_is_told_what_all_have_said(stage: Stage) -> None:
    _, claim = stage.begun()
    assert stage.a.leave(claim, "trainer-failed") is None
    assert not stage.a.beat(claim).alive, "who has left beats no more"
    assert stage.b.beat(claim).alive
    told = stage.b.leave(claim, "peer-lost")
    assert told is not None
    assert sorted(told) == ["peer-lost", "trainer-failed"]


def test_where_clients_meet_is_noted_by_one_and_read_by_all(stage: Stage) -> None:
    job_id, _ = stage.begun()
    found = stage.a.taken(job_id)
    assert found is not None
    first, second = (client.claim for client in found.federation.clients)
    with stage.database.read() as session:
        assert seats.address(session, second) is None
    stage.database.transaction(seats.announce, first, "10.0.0.1:4000")
    with stage.database.read() as session:
        assert seats.address(session, second) == "10.0.0.1:4000"
    stage.pass_lease(job_id)
    with stage.database.read() as session, pytest.raises(StaleAttempt):
        seats.address(session, second)
    with pytest.raises(StaleAttempt):
        stage.database.transaction(seats.announce, first, "10.0.0.1:4001")


def test_offers_at_one_moment_begin_one_attempt(each: Stage) -> None:
    job_id = each.queue()
    each.a.see()
    each.b.see()
    barrier = threading.Barrier(2)

    def act(worker: Worker) -> None:
        barrier.wait()
        while worker.offer() is None and "running" not in each.states(job_id):
            pass

    threads = [threading.Thread(target=act, args=(worker,)) for worker in (each.a, each.b)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    if "running" not in each.states(job_id):  # both had looked away while the other held the job
        each.a.offer(), each.b.offer()
    assert each.states(job_id) == ["running"] * 3
    assert each.a.claim(job_id).attempt == 1
