"""`kill -9` of trainer, supervisor and API at random points: nothing is read unpaid, every sum holds, every job ends.

What trainers read is written to a file by the trainers themselves, just before they read it, so a kill can only make
the file say too much, never too little: a job whose readings are worth more than it was charged was read unpaid.
"""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.privacy.events import compose
from core.privacy.renyi import cost_nano
from core.settings import ServiceSettings
from core.store import allowance, verification
from core.store.accounts import balance_of
from core.store.database import Database
from core.store.tables import Account, Attempt, Job, Scope
from core.training.desk import Desk
from tests.support.embedded import LINEAR, LOGISTIC, TERMINAL, Embedded, embedded, readings

TARGETS = ("trainer", "supervisor", "api")
KILLS = 3
JOBS = ({"model": LOGISTIC}, {"model": LINEAR, "optimizer": {"kind": "noisy_gd"}})


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("home"), observed={"SLOW": "0.02"}) as running:
        yield running


def unpaid(service: Embedded, job_id: str) -> bool:
    """Say whether more of a job was read, over all its attempts, than it was charged for."""
    database = service.database()
    with database.read() as session:
        job = session.get_one(Job, job_id)
        orders = balance_of(session.get_one(Account, job.scope_id)).terms.orders
        charged = allowance.charged(job, job.scope_id)
    database.dispose()
    read = cost_nano(compose(readings(service.home).get(job_id, {})), orders)
    return any(one > most for one, most in zip(read, charged, strict=False))


def check(service: Embedded, job_ids: list[str]) -> None:
    """Assert everything that a ledger promises of ended jobs."""
    database = service.database()
    with database.read() as session:
        for job_id in job_ids:
            job = session.get_one(Job, job_id)
            assert job.state in TERMINAL
            account = balance_of(session.get_one(Account, job.scope_id))
            assert not any(account.reserved)
            pairs = zip(account.spent, account.terms.caps_nano, strict=True)
            assert any(spent <= cap for spent, cap in pairs)
            found = verification.verify(session, job.scope_id)
            assert found.ok, found
            attempts = [session.get_one(Attempt, (job_id, number)) for number in range(1, job.attempt + 1)]
            assert all(attempt.ended_at is not None for attempt in attempts)
            if readings(service.home).get(job_id):
                assert any(attempt.opened_at is not None for attempt in attempts)
            assert [attempt.outcome for attempt in attempts].count("succeeded") == (job.state == "succeeded")
    database.dispose()
    for job_id in job_ids:
        assert not unpaid(service, job_id), f"{job_id} was read more than it paid for"


def kill_at_random(service: Embedded, seed: int) -> None:
    """Upload, submit, kill here and there, and check what is left."""
    chance = random.Random(seed)
    dataset = service.upload()
    jobs = [service.submit(dataset, **body) for body in JOBS]
    for _ in range(KILLS):
        time.sleep(chance.uniform(0, 2.5))
        service.kill(chance.choice(TARGETS))
    for job in jobs:
        service.wait(job)
    check(service, jobs)


@pytest.mark.parametrize("seed", range(5))
def test_kills_at_random_points_leave_nothing_unpaid(service: Embedded, seed: int) -> None:
    kill_at_random(service, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150))
def test_many_kills_at_random_points_leave_nothing_unpaid(service: Embedded, seed: int) -> None:
    kill_at_random(service, seed)


def test_a_killed_trainer_is_charged_whole_and_not_tried_again(service: Embedded) -> None:
    dataset = service.upload()
    job = service.submit(dataset)
    service.wait_until(job, lambda view: view["progress"]["step"] > 2)
    assert service.kill("trainer")
    ended = service.wait(job)
    assert (ended["state"], ended["error"], ended["attempt"]) == ("failed", {"code": "trainer-failed"}, 1)
    assert ended["cost"]["spent"]["percent"] == ended["cost"]["reserved"]["percent"]
    check(service, [job])


def test_a_killed_supervisor_costs_what_was_spent(service: Embedded) -> None:
    dataset = service.upload()
    job = service.submit(dataset)
    service.wait_until(job, lambda view: view["progress"]["step"] > 2)
    assert service.kill("supervisor")
    ended = service.wait(job)
    assert (ended["state"], ended["error"]) == ("failed", {"code": "worker-lost"})
    assert 0 < float(ended["cost"]["spent"]["percent"]) < float(ended["cost"]["reserved"]["percent"])
    check(service, [job])


def test_a_supervisor_killed_before_the_first_reading_costs_nothing(service: Embedded) -> None:
    dataset = service.upload()
    job = service.submit(dataset)
    service.wait_until(job, lambda view: view["state"] == "running")
    assert service.kill("supervisor")
    ended = service.wait(job)
    assert ended["state"] == "succeeded"
    assert ended["attempt"] == 2
    check(service, [job])


def test_a_supervisor_that_sleeps_past_its_lease_writes_nothing_more(service: Embedded) -> None:
    dataset = service.upload()
    job = service.submit(dataset)
    service.wait_until(job, lambda view: view["progress"]["step"] > 2)
    (sleeper,) = service.children("supervisor")
    sleeper.send_signal(signal.SIGSTOP)
    database = service.database()
    try:
        sweep_until_ended(Desk(database, service.settings, "another"), service, job)
        (before,) = heads(database, job)
    finally:
        sleeper.send_signal(signal.SIGCONT)
    time.sleep(2)
    assert heads(database, job) == [before]
    database.dispose()
    check(service, [job])
    assert service.wait(service.submit(dataset, model=LOGISTIC))["state"] == "succeeded"  # it works on, awake


def sweep_until_ended(desk: Desk, service: Embedded, job: str) -> None:
    """Do what another machine's sweeper would, while the only supervisor sleeps."""
    deadline = time.monotonic() + 30
    while service.get(f"/v1/jobs/{job}")["state"] not in (*TERMINAL, "queued"):
        assert time.monotonic() < deadline
        desk.sweep()
        time.sleep(0.3)


def heads(database: Database, job_id: str) -> list[tuple[str, str, int, int]]:
    """Return what a write of the old attempt would change."""
    with database.read() as session:
        job = session.get_one(Job, job_id)
        scope = session.get_one(Scope, job.scope_id)
        return [(scope.head, job.state, job.fence, job.chunks_spent)]


def test_paying_after_reading_would_be_seen(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", observed={"SLOW": "0.05", "NAIVE": "1"}) as service:
        job = service.submit(service.upload())
        service.wait_until(job, lambda view: view["progress"]["step"] > 2)
        assert service.kill("supervisor")
        service.wait(job)
        assert unpaid(service, job)


def test_settings_of_these_tests_keep_their_proportions() -> None:
    settings = ServiceSettings(lease_seconds=3.0, beat_seconds=0.4)
    assert settings.lease_seconds >= 6 * settings.beat_seconds
