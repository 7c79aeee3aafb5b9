"""The jobs that may wait, and the waiting job that is next, on SQLite and on PostgreSQL."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import insert, select, text, update
from sqlalchemy.orm import Session

from core.access import principals
from core.base.errors import RateLimited
from core.db import clock
from core.db.database import Database
from core.db.tables import Account, Job
from core.jobs import jobs, queue
from core.jobs.queue import DEVICES, RUNNING, next_job
from core.jobs.sweep import sweep
from core.ledger.claims import Claim
from tests.support.store import STEP, Place, enter, give, make_dataset, make_place, submit

LEASE = 60.0
MANY = 10_000


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


def waiting(
    database: Database,
    place: Place,
    *,
    owner: str | None = None,
    priority: int = 0,
    device: str = "auto",
    max_queue_seconds: float | None = None,
) -> str:
    """Reserve a job that waits; return its identifier."""
    with database.write() as session:
        if owner is not None:
            give(session, place.dataset_id, owner)
        job = jobs.draft(
            at=clock.read(session),
            owner_id=owner or place.principal_id,
            dataset_id=place.dataset_id,
            scope_id=place.scope_id,
            grant_id=None,
            spec={},
            optimizer="noisy_newton",
            steps=1,
            labels={},
            device=device,
            priority=priority,
            max_queue_seconds=max_queue_seconds,
        )
        return enter(session, job, [STEP]).id


def somebody(database: Database, name: str = "Ada") -> str:
    with database.write() as session:
        return principals.create(session, name, "analyst").id


def take(database: Database, devices: Sequence[str] = DEVICES, most_running: int = 64) -> str | None:
    claim = claim_one(database, devices, most_running)
    return None if claim is None else claim.job_id


def claim_one(database: Database, devices: Sequence[str] = DEVICES, most_running: int = 64) -> Claim | None:
    return database.transaction(jobs.claim, "w", LEASE, takes=devices, most_running=most_running)


def count_running(database: Database, owner: str) -> int:
    with database.read() as session:
        found = select(Job.id).where(Job.owner_id == owner, Job.state.in_(RUNNING))
        return len(session.execute(found).all())


class TestWhoIsNext:
    def test_the_oldest_of_equals(self, database: Database, place: Place) -> None:
        made = [waiting(database, place) for _ in range(3)]
        assert [take(database) for _ in range(4)] == [*made, None]

    def test_a_higher_priority_first(self, database: Database, place: Place) -> None:
        later = [waiting(database, place, priority=priority) for priority in (-10, 0, 10, 3)]
        assert [take(database) for _ in later] == [later[2], later[3], later[1], later[0]]

    def test_one_principal_with_many_jobs_does_not_keep_others_waiting(self, database: Database, place: Place) -> None:
        busy = [waiting(database, place) for _ in range(6)]
        ada = somebody(database)
        hers = [waiting(database, place, owner=ada) for _ in range(2)]
        assert [take(database) for _ in range(5)] == [busy[0], hers[0], busy[1], hers[1], busy[2]]

    def test_a_principal_runs_no_more_than_the_cap(self, database: Database, place: Place) -> None:
        busy = [waiting(database, place) for _ in range(3)]
        ada = somebody(database)
        hers = waiting(database, place, owner=ada, priority=-10)
        first = claim_one(database, most_running=1)
        assert first is not None
        assert take(database, most_running=1) == hers, "a job at the cap does not hide those behind it"
        assert take(database, most_running=1) is None
        database.transaction(jobs.finish, first, {}, "not-needed")
        assert take(database, most_running=1) == busy[1]

    def test_a_job_that_is_being_cancelled_still_counts(self, database: Database, place: Place) -> None:
        first, _ = waiting(database, place), waiting(database, place)
        assert take(database, most_running=1) == first
        database.transaction(jobs.cancel, first)
        assert take(database, most_running=1) is None

    def test_only_for_the_devices_there_are(self, database: Database, place: Place) -> None:
        cuda = waiting(database, place, device="cuda", priority=10)
        cpu = waiting(database, place, device="cpu")
        either = waiting(database, place, device="auto")
        assert [take(database, ("auto", "cpu")) for _ in range(3)] == [cpu, either, None]
        assert take(database, ("auto", "cuda")) == cuda


class TestDeadline:
    def test_one_that_waited_too_long_is_never_started_and_gives_its_reservation_back(
        self, database: Database, place: Place
    ) -> None:
        late = waiting(database, place, priority=10, max_queue_seconds=0.001)
        patient = waiting(database, place, max_queue_seconds=1000.0)
        time.sleep(0.01)
        assert take(database) == patient
        assert database.transaction(sweep, LEASE, 3, 1e9).expired == [late]
        with database.read() as session:
            assert session.get_one(Job, late).state == "expired"
            account = session.get_one(Account, place.scope_id)
            cost = session.get_one(Job, patient).chunks[place.scope_id][-1]
            assert [account.reserved_1, account.reserved_2] == cost[:2]

    def test_one_that_has_started_does_not_expire_when_it_is_put_back(self, database: Database, place: Place) -> None:
        made = waiting(database, place, max_queue_seconds=1000.0)
        claim = claim_one(database)
        assert claim is not None
        database.transaction(jobs.release_claim, claim)
        with database.write() as session:
            session.get_one(Job, made).expires_at = time.time() - 1  # as if it had waited so long
        assert database.transaction(sweep, LEASE, 3, 1e9).expired == []
        assert take(database) == made


def naive(session: Session, devices: Sequence[str], most_running: int) -> Job | None:
    """The planted bug: the cap is checked, and nothing keeps a rival from checking it at the same time."""
    owners = queue._owners_in_turn(session, devices, most_running, "")
    return queue._best_of(session, owners[0], devices, "") if owners else None


Next = Callable[[Session, Sequence[str], int], Job | None]


def race(database: Database, choose: Next) -> list[str]:
    """Let one supervisor claim, and a second one while the first has not committed; return what both took."""
    chosen, second = threading.Event(), threading.Event()

    def claim(session: Session) -> str | None:
        job = choose(session, DEVICES, 1)
        if job is not None:
            session.execute(update(Job).where(Job.id == job.id).values(state="running"))
        return None if job is None else job.id

    def first() -> str | None:
        with database.write() as session:
            taken = claim(session)
            chosen.set()
            second.wait(0.5)
            return taken

    def rival() -> str | None:
        chosen.wait(10)
        with database.write() as session:
            taken = claim(session)
            second.set()
            return taken

    with ThreadPoolExecutor(2) as pool:
        taken = [pool.submit(first), pool.submit(rival)]
        return [job for one in taken if (job := one.result()) is not None]


class TestRaces:
    def test_two_claims_at_once_keep_to_the_cap(self, database: Database, place: Place) -> None:
        made = [waiting(database, place) for _ in range(2)]
        assert race(database, next_job) == made[:1]

    def test_a_count_without_a_lock_does_not(self, database: Database, place: Place) -> None:
        if database.is_sqlite:
            pytest.skip("SQLite has one writer: claims cannot race")
        made = [waiting(database, place) for _ in range(2)]
        assert race(database, naive) == made

    def test_many_claims_at_once_keep_to_the_cap_and_take_nothing_twice(self, database: Database, place: Place) -> None:
        people = [place.principal_id, somebody(database), somebody(database, "Eve")]
        for owner in people:
            for _ in range(8):
                waiting(database, place, owner=owner)
        with ThreadPoolExecutor(8) as pool:
            # A machine at work makes eight of them wait longer than a lock may be waited for.
            patient = database.patient(30.0)
            taken = list(pool.map(lambda _: take(patient, most_running=3), range(16)))
        found = [job for job in taken if job is not None]
        assert len(found) == len(set(found)) == 9
        assert [count_running(database, owner) for owner in people] == [3, 3, 3]

    def test_many_submissions_at_once_keep_to_the_cap_of_waiting_jobs(self, database: Database, place: Place) -> None:
        def try_submit(_: int) -> bool:
            def work(session: Session) -> None:
                queue.admit(queue.lock_live(session, [place.principal_id])[place.principal_id], 5)
                submit(session, place)

            try:
                database.patient(30.0).transaction(work)
            except RateLimited:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert Counter(pool.map(try_submit, range(16))) == {True: 5, False: 11}


def fill(database: Database, place: Place, many: int, owners: int = 50) -> list[str]:
    """Store waiting jobs in bulk, and as many that have ended; return the owners."""
    with database.write() as session:
        people = [principals.create(session, f"p{number}", "analyst").id for number in range(owners)]
        dataset = make_dataset(session, place.principal_id, place.scope_id)
        for person in people:
            give(session, dataset, person)
        at = clock.read(session)
        shared = {
            "dataset_id": dataset, "scope_id": place.scope_id, "spec": {}, "optimizer": "x", "price": {},
            "schedule": [], "chunks": {}, "steps": 1, "fence_epoch": "", "labels": {}, "device": "auto",
        }  # fmt: skip
        rows = [
            {
                **shared,
                "id": f"job_{number}",
                "owner_id": people[number % owners],
                "state": "queued" if number < many else "succeeded",
                "priority": number % 3,
                "created_at": at + number / 1000,
                "finished_at": None if number < many else at,
            }
            for number in range(2 * many)
        ]
        for start in range(0, len(rows), 1000):
            session.execute(insert(Job), rows[start : start + 1000])
    with database.engine.connect() as connection:
        connection.execute(text("ANALYZE jobs"))
        connection.commit()
    return people


@pytest.mark.timing
def test_ten_thousand_waiting_jobs_do_not_make_claims_slow(database: Database, place: Place) -> None:
    people = fill(database, place, MANY)
    seconds = []
    for _ in range(30):
        started = time.perf_counter()
        assert take(database, most_running=1) is not None
        seconds.append(time.perf_counter() - started)
    assert sorted(seconds)[15] < 0.5, "12 ms on SQLite and 28 ms on PostgreSQL were measured on a busy machine"
    assert max(count_running(database, owner) for owner in people) == 1


def test_claims_use_the_index_of_waiting_jobs(database: Database, place: Place) -> None:
    fill(database, place, 2000)
    with database.engine.connect() as connection:
        asked = queue._heads(DEVICES).compile(connection, compile_kwargs={"literal_binds": True})
        explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
        plan = [str(row) for row in connection.exec_driver_sql(f"{explain} {asked}")]
    assert sum("ix_jobs_queued" in line for line in plan) >= 2
    assert not [line for line in plan if "SCAN jobs" in line or "Seq Scan on jobs" in line]
