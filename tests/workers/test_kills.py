"""`kill -9` of trainer, supervisor and API at random points: nothing is read unpaid, every sum holds, every job ends.

Trainers write their readings to a file themselves, just before each reading, so a kill can only make the file say too
much, never too little. A job whose readings are worth more than its charge was read unpaid.
"""

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.tables import Account, Attempt, Entry, Job, Scope
from core.ledger import allowance, ledger, verification
from core.ledger.accounts import balance_of
from core.privacy.events import EVENT, Event, Gaussian, Repeated, compose
from core.privacy.renyi import cost_nano
from core.training.job_repository import JobRepository
from tests.support.embedded import LINEAR, LOGISTIC, START_SECONDS, TERMINAL, Embedded, embedded, readings

TARGETS = ("trainer", "supervisor", "api")
KILLS = 3
JOBS = ({"model": LOGISTIC}, {"model": LINEAR, "optimizer": {"kind": "noisy_gd"}})


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("home"), observed={"SLOW": "0.02"}) as running:
        yield running


def unpaid(service: Embedded, job_id: str, *, stream: bool = False) -> bool:
    """Say whether more of a job was read, over all its attempts, than it was charged for.

    Batches of a stream share no record, so all of them together cost what one does.
    """
    database = service.database()
    with database.read() as session:
        job = session.get_one(Job, job_id)
        orders = balance_of(session.get_one(Account, job.scope_id)).terms.orders
        charged = allowance.charged(job, job.scope_id)
    database.dispose()
    events = readings(service.home).get(job_id, Counter())
    read = cost_nano(compose(Counter(dict.fromkeys(events, 1)) if stream else events), orders)
    return any(one > most for one, most in zip(read, charged, strict=False))


def check(service: Embedded, job_ids: list[str], *, stream: bool = False) -> None:
    """Assert everything that a ledger promises of ended jobs."""
    check_ledger(service, job_ids)
    for job_id in job_ids:
        assert not unpaid(service, job_id, stream=stream), f"{job_id} was read more than it paid for"


def check_ledger(service: Embedded, job_ids: list[str]) -> None:
    """Assert what it promises whatever was read."""
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


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """A short lease, which a busy machine loses now and then too: for tests that count no attempts."""
    with embedded(tmp_path_factory.mktemp("home"), observed={"SLOW": "0.02"}, lease_seconds=3.0) as running:
        yield running


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


@pytest.mark.parametrize("seed", [0])
@pytest.mark.slow
def test_kills_at_random_points_leave_nothing_unpaid(hasty: Embedded, seed: int) -> None:
    kill_at_random(hasty, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(1, 5), *range(100, 150)])
def test_many_kills_at_random_points_leave_nothing_unpaid(hasty: Embedded, seed: int) -> None:
    kill_at_random(hasty, seed)


def test_a_killed_trainer_is_charged_whole_and_not_tried_again(service: Embedded) -> None:
    dataset = service.upload()
    job = service.submit(dataset)
    service.wait_until(job, lambda view: view["progress"]["step"] > 2)
    assert service.kill("trainer")
    ended = service.wait(job)
    assert (ended["state"], ended["error"], ended["attempt"]) == ("failed", {"code": "trainer-failed"}, 1)
    whole = sum(float(ended["cost"][name]["budget_share"]) for name in ("reserved", "retry_allowance"))
    assert float(ended["cost"]["spent"]["budget_share"]) == pytest.approx(whole, rel=1e-3)
    check(service, [job])


@pytest.mark.slow
def test_the_job_of_a_killed_supervisor_goes_on(service: Embedded) -> None:
    dataset = service.upload()
    job = service.submit(dataset)
    service.wait_until(job, lambda view: view["progress"]["step"] > 2)
    assert service.kill("supervisor")
    ended = service.wait(job)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
    assert len(repeated(service, job)) <= 1
    check(service, [job])


MANY_STEPS = {"model": LINEAR, "optimizer": {"kind": "noisy_gd", "steps": 200}}


def repeated(service: Embedded, job_id: str) -> list[tuple[int, int]]:
    """Return the chunks that a job paid again, each with the attempt that did."""
    database = service.database()
    with database.read() as session:
        statement = select(Entry.body).where(Entry.job_id == job_id, Entry.kind == "spend").order_by(Entry.seq)
        bodies = [json.loads(body) for body in session.execute(statement).scalars()]
    database.dispose()
    return [(body["chunk"], body["attempt"]) for body in bodies if body["again"]]


def charged(service: Embedded, job_id: str) -> tuple[Counter[Event], Counter[Event]]:
    """Return a job's schedule, and all the events that it was charged."""
    database = service.database()
    with database.read() as session:
        job = session.get_one(Job, job_id)
        found = Counter(EVENT.validate_python(event) for event in job.schedule), ledger.executed_by(session, job)
    database.dispose()
    return found


@pytest.mark.parametrize(
    ("moment", "chunk", "body"),
    [
        pytest.param("paid", 3, {}, id="hessian-paid", marks=pytest.mark.slow),
        pytest.param("told", 3, {}, id="hessian-told", marks=pytest.mark.slow),
        pytest.param("told", 0, {}, id="first-told"),
        pytest.param("told", 20, MANY_STEPS, id="several-told", marks=pytest.mark.slow),
        pytest.param("paid", 0, {}, id="first-paid", marks=pytest.mark.slow),
        pytest.param("paid", 20, MANY_STEPS, id="several-paid", marks=pytest.mark.slow),
    ],
)
def test_a_chunk_lost_with_its_supervisor_is_paid_and_drawn_again(
    service: Embedded, moment: str, chunk: int, body: dict[str, Any]
) -> None:
    """Killed between payment and reading, or between reading and keeping, in any place of a step."""
    ended = service.lose_worker(f"{moment} {chunk}", service.upload(), **body)
    job = ended["id"]
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
    assert repeated(service, job) == [(chunk, 2)]
    schedule, paid = charged(service, job)
    (again,) = (paid - schedule).elements()
    read = readings(service.home)[job]
    if isinstance(again, Gaussian):  # a chunk of one answer: what is drawn is what is paid, to the last event
        assert read == (paid if moment == "told" else schedule)
    else:
        assert isinstance(again, Repeated)
        assert sum(read.values()) == 202 + (moment == "told")  # 200 steps and two matrices; one answer was lost
    model = service.get(f"/v1/models/{ended['result']['model']}")
    assert model["release"]["privacy"]["promise"]["mu"] == ended["cost"]["spent"]["mu"]
    assert float(ended["cost"]["spent"]["mu"]) > float(ended["cost"]["reserved"]["mu"])
    check(service, [job])


@pytest.mark.slow
def test_without_an_allowance_a_lost_chunk_ends_the_job(service: Embedded) -> None:
    ended = service.lose_worker("told 3", service.upload(), retry_allowance=0)
    assert (ended["state"], ended["error"], ended["attempt"]) == ("failed", {"code": "worker-lost"}, 1)
    assert 0 < float(ended["cost"]["spent"]["budget_share"]) < float(ended["cost"]["reserved"]["budget_share"])
    check(service, [ended["id"]])


@pytest.mark.slow
def test_a_supervisor_killed_before_the_first_reading_costs_nothing(service: Embedded) -> None:
    dataset = service.upload()
    job = service.submit(dataset)
    service.wait_until(job, lambda view: view["state"] == "running")
    assert service.kill("supervisor")
    ended = service.wait(job)
    assert ended["state"] == "succeeded"
    assert ended["attempt"] == 2
    check(service, [job])


@pytest.mark.slow
def test_a_supervisor_that_sleeps_past_its_lease_writes_nothing_more(service: Embedded) -> None:
    dataset = service.upload()
    job = service.submit(dataset, retry_allowance=0)  # so that the job ends here, and nobody takes it up again
    service.wait_until(job, lambda view: view["progress"]["step"] > 2)
    (sleeper,) = service.children("supervisor")
    sleeper.send_signal(signal.SIGSTOP)
    database = service.database()
    try:
        sweep_until_ended(JobRepository(database, service.settings, "another"), service, job)
        (before,) = heads(database, job)
    finally:
        sleeper.send_signal(signal.SIGCONT)
    time.sleep(2)
    assert heads(database, job) == [before]
    database.dispose()
    check(service, [job])
    assert service.wait(service.submit(dataset, model=LOGISTIC))["state"] == "succeeded"  # it works on, awake


def sweep_until_ended(repository: JobRepository, service: Embedded, job: str) -> None:
    """Do what another machine's sweeper would, while the only supervisor sleeps."""
    deadline = time.monotonic() + START_SECONDS
    while service.get(f"/v1/jobs/{job}")["state"] not in (*TERMINAL, "queued"):
        assert time.monotonic() < deadline
        repository.sweep()
        time.sleep(0.3)


def heads(database: Database, job_id: str) -> list[tuple[str, str, int, int]]:
    """Return what a write of the old attempt would change."""
    with database.read() as session:
        job = session.get_one(Job, job_id)
        scope = session.get_one(Scope, job.scope_id)
        return [(scope.head, job.state, job.fence, job.chunks_spent)]


@pytest.mark.slow
def test_paying_after_reading_would_be_seen(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", observed={"SLOW": "0.05", "NAIVE": "1"}) as service:
        job = service.submit(service.upload())
        service.wait_until(job, lambda view: view["progress"]["step"] > 2)
        assert service.kill("supervisor")
        service.wait(job)
        assert unpaid(service, job)


@pytest.mark.slow
def test_a_resume_that_does_not_pay_again_would_be_seen(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", observed={"FREE": "1"}) as service:
        ended = service.lose_worker("told 3", service.upload())
        assert unpaid(service, ended["id"])


def test_settings_of_these_tests_keep_their_proportions() -> None:
    settings = ServiceSettings(lease_seconds=3.0, beat_seconds=0.4)
    assert settings.lease_seconds >= 6 * settings.beat_seconds
