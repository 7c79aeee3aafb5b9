"""Each promise that keeps a crash from costing anything twice, and the plainer code that breaks it.

One scenario is run twice: by our code, which must pass, and by a naive variant of the one line that matters, which
must not. Each of these tests can thus fail, and shows the purpose of its line.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import event, select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from core.base.errors import LedgerBusy, LedgerFrozen, Refusal, StaleAttempt
from core.base.settings import ServiceSettings
from core.db import clock
from core.db.database import Database
from core.db.tables import Attempt, Job
from core.jobs import jobs
from core.ledger import ledger
from core.ledger.claims import Claim, lock_job
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.planning.job import Resources
from core.privacy.budget import Terms
from core.privacy.renyi import cost_nano
from core.service.notifier import make_notifier
from core.training.job_repository import JobRepository
from core.training.ledger_writer import FencedLedgerWriter
from tests.jobs.test_jobs import lose_lease, sweep_in_contact
from tests.ledger.test_witness import roll_back
from tests.support import naive_worker
from tests.support.store import STEP, TERMS, Place, make_place, submit
from workers.lease_loop import LeaseLoop
from workers.slots import Slot

LEASE = 60.0
NOTIFICATIONS = 10
HOUR = 3600.0


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


def queue_one(database: Database, place: Place, **options: Any) -> str:
    with database.write() as session:
        return submit(session, place, **options).id


def claim_one(database: Database, worker: str = "w") -> Claim:
    claim = database.transaction(jobs.claim, worker, LEASE)
    assert claim is not None
    return claim


class TestTenNotifications:
    """Ten supervisors are notified of one job at the same moment."""

    def runs(self, database: Database, take: Callable[[Database, threading.Barrier], object]) -> int:
        """Return how many attempts were made."""
        start = threading.Barrier(NOTIFICATIONS)
        threads = [threading.Thread(target=take, args=(database, start)) for _ in range(NOTIFICATIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with database.read() as session:
            return len(session.execute(select(Attempt)).scalars().all())

    def test_make_one_run(self, database: Database, place: Place) -> None:
        def claim(database: Database, start: threading.Barrier) -> None:
            start.wait()
            database.transaction(jobs.claim, "w", LEASE)

        queue_one(database, place)
        assert self.runs(database, claim) == 1

    def test_make_several_where_a_claim_does_not_look_at_the_state(self, database: Database, place: Place) -> None:
        def look_then_take(database: Database, start: threading.Barrier) -> None:
            with database.read() as session:
                seen = naive_worker.look(session)
            start.wait()
            assert seen is not None
            database.transaction(naive_worker.take, seen, "w", LEASE)

        queue_one(database, place)
        assert self.runs(database, look_then_take) == NOTIFICATIONS


class TestAStaleSupervisor:
    """A supervisor stood still past its lease, another took its job over, and the first one wakes up."""

    def take_over(self, database: Database, place: Place) -> tuple[Claim, Claim]:
        queue_one(database, place)
        stale = claim_one(database, "stale")
        lose_lease(database, stale.job_id)
        sweep_in_contact(database)
        return stale, claim_one(database, "fresh")

    def holders(self, database: Database, claims: tuple[Claim, Claim]) -> list[int]:
        """Return which attempts think that the job is theirs."""
        return [claim.attempt for claim in claims if database.transaction(jobs.beat, claim, LEASE).alive]

    def readings(self, database: Database, claims: tuple[Claim, Claim]) -> int:
        """Return how often the first chunk is read, by supervisors that pay before they read."""
        count = 0
        for claim in claims:
            try:
                database.transaction(ledger.pay, claim, 0, None, 0)
            except StaleAttempt:
                continue
            count += 1
        return count

    def payments(self, database: Database, place: Place) -> int:
        with database.read() as session:
            return sum(ledger.executed(session, place.scope_id).values())

    def test_holds_nothing(self, database: Database, place: Place) -> None:
        assert self.holders(database, self.take_over(database, place)) == [2]

    def test_holds_on_where_a_beat_revives_whatever_it_names(
        self, database: Database, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def revive(session: Session, claim: Claim, lease_seconds: float) -> jobs.Beat:
            until = clock.read(session) + lease_seconds
            session.execute(update(Job).where(Job.id == claim.job_id).values(lease_until=until))
            return jobs.Beat(alive=True)

        claims = self.take_over(database, place)
        monkeypatch.setattr(jobs, "beat", revive)
        assert self.holders(database, claims) == [1, 2]

    def test_reads_nothing_and_what_is_read_is_paid(self, database: Database, place: Place) -> None:
        assert self.readings(database, self.take_over(database, place)) == self.payments(database, place) == 1

    def test_reads_unpaid_where_a_payment_does_not_look_at_the_fence(
        self, database: Database, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def hold(session: Session, claim: Claim) -> tuple[Job, float]:
            return lock_job(session, claim.job_id), clock.read(session)

        claims = self.take_over(database, place)
        monkeypatch.setattr(ledger, "hold", hold)
        assert self.readings(database, claims) == 2
        assert self.payments(database, place) == 1


class TestClocksAnHourApart:
    """One machine's clock is an hour behind another's."""

    @contextmanager
    def machine(self, shift_seconds: float) -> Iterator[None]:
        """Be on a machine with such a clock."""
        real, real_ns = time.time, time.time_ns
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda: real() + shift_seconds)
            patch.setattr(time, "time_ns", lambda: real_ns() + int(shift_seconds * 1e9))
            yield

    def keeps_its_job(self, database: Database, place: Place) -> bool:
        """Claim on the slow machine, sweep on the other; say whether the claim still holds."""
        with self.machine(-HOUR):
            queue_one(database, place)
            claim = claim_one(database)
        with self.machine(0):
            sweep_in_contact(database)
        with self.machine(-HOUR):
            return database.transaction(jobs.beat, claim, LEASE).alive

    def test_take_no_job_from_its_worker(self, database: Database, place: Place) -> None:
        assert self.keeps_its_job(database, place)

    def test_do_where_leases_go_by_the_machine_s_own_clock(
        self, database: Database, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(clock, "read", lambda _: time.time())
        assert not self.keeps_its_job(database, place)


class Looking(JobRepository):
    """Tells when it has been asked for a job."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.looked = threading.Event()

    def claim(self, takes: Sequence[str]) -> tuple[Claim, Resources] | None:
        found = super().claim(takes)
        self.looked.set()
        return found


class TestALostNotification:
    """Redis has forgotten the notification of a job."""

    def claimed(self, database: Database, place: Place, home: Path, poll_seconds: float, wait_seconds: float) -> bool:
        """Say whether a supervisor that nobody notifies finds the job in time."""
        settings = ServiceSettings(home=home, poll_seconds=poll_seconds, database_url=str(database.url))
        assert guard(database, Witness(settings.witness_path)) == []
        repository, log = Looking(database, settings, "w"), structlog.get_logger("test")
        lease_loop = LeaseLoop(settings, repository, [Slot(0)], make_notifier(settings), log)
        lease_loop.start()
        lease_loop.claim_when(able=True)
        assert repository.looked.wait(60), "its first look, which finds nothing"
        queue_one(database, place)
        deadline = time.monotonic() + wait_seconds
        while lease_loop.claimed.empty() and time.monotonic() < deadline:
            time.sleep(0.02)
        lease_loop.stop()
        return not lease_loop.claimed.empty()

    def test_delays_its_job(self, database: Database, place: Place, tmp_path: Path) -> None:
        assert self.claimed(database, place, tmp_path, 0.2, 60)

    def test_loses_it_where_supervisors_only_listen(self, database: Database, place: Place, tmp_path: Path) -> None:
        assert not self.claimed(database, place, tmp_path, 1e6, 2)


class Hasty(FencedLedgerWriter):
    """The planted bug: one failure is final."""

    def __init__(self, database: Database, claim: Claim, settings: ServiceSettings) -> None:
        super().__init__(database, claim, settings)
        self.database = database  # type: ignore[misc] # one without patience


class TestADatabaseThatRestarts:
    """PostgreSQL goes away while a chunk is paid, and is back a moment later."""

    def pays(self, database: Database, place: Place, home: Path, kind: type[FencedLedgerWriter]) -> bool:
        settings = ServiceSettings(home=home, lease_seconds=LEASE)
        assert guard(database, Witness(settings.witness_path)) == []
        queue_one(database, place)
        writer = kind(database, claim_one(database), settings)
        tried = []

        def go_away(*_: object) -> None:
            tried.append(1)
            if len(tried) < 3:
                raise OperationalError("COMMIT", {}, Exception("the server closed the connection"))

        event.listen(database._writer, "before_cursor_execute", go_away)
        try:
            writer.pay(0, None, 0)
        except (OperationalError, LedgerBusy):
            return False
        finally:
            event.remove(database._writer, "before_cursor_execute", go_away)
        return True

    def test_costs_no_attempt(self, database: Database, place: Place, tmp_path: Path) -> None:
        assert self.pays(database, place, tmp_path, FencedLedgerWriter)

    def test_costs_the_attempt_where_a_payment_is_tried_once(
        self, database: Database, place: Place, tmp_path: Path
    ) -> None:
        assert not self.pays(database, place, tmp_path, Hasty)


class TestYesterdaysDump:
    """A budget for two jobs is used up, the database is put back to before both, and two more are asked for."""

    def readings(self, database: Database, home: Path, compare: Callable[[Database, Witness], object]) -> int:
        """Return how many jobs' readings one budget pays for."""
        price = cost_nano(STEP, TERMS.orders)
        place = make_place(database, Terms(**{**TERMS.model_dump(), "caps_nano": tuple(2 * one for one in price)}))
        witness = Witness(home / "elsewhere" / "witness.jsonl")
        assert guard(database, witness) == []
        read = sum(self.train(database, place, witness) for _ in range(2))
        assert (read, self.train(database, place, witness)) == (2, False), "the budget is used up"
        roll_back(database, place, 2)
        compare(database, witness)
        return read + sum(self.train(database, place, witness) for _ in range(2))

    def train(self, database: Database, place: Place, witness: Witness) -> bool:
        """Submit, claim, pay, read and end a job; say whether it was admitted."""
        try:
            queue_one(database, place, schedule=[STEP])
            claim = claim_one(database)
            database.transaction(ledger.pay, claim, 0, None, 0)
        except Refusal:
            return False
        witness.keep(database)
        database.transaction(jobs.fail, claim, "diverged", charge="spent")
        return True

    def test_pays_for_nothing_twice(self, database: Database, tmp_path: Path) -> None:
        assert self.readings(database, tmp_path, guard) == 2
        with pytest.raises(LedgerFrozen):
            claim_one(database)

    def test_pays_twice_where_nobody_compares_heads(self, database: Database, tmp_path: Path) -> None:
        assert self.readings(database, tmp_path, lambda *_: None) == 4
