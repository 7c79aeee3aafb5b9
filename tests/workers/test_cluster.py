"""Celery, Redis and PostgreSQL as real processes: messages arrive, twice, or never; servers and workers come and go."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from sqlalchemy import select

from core.db.tables import Entry
from core.service.broker import NOTIFY, make_app
from tests.support.cluster import Cluster, cluster
from tests.support.embedded import LINEAR, LOGISTIC
from tests.workers.test_kills import check

SLOW = {"SLOW": "0.12"}
"""Seconds each reading takes: a job takes some."""
JOBS: tuple[dict[str, Any], ...] = (
    {"model": LOGISTIC, "optimizer": {"kind": "noisy_newton", "steps": 12}},
    {"model": LINEAR, "optimizer": {"kind": "noisy_gd", "steps": 12}},
)
SHORT = JOBS[0]
RING_SECONDS = 1.0
"""After which a notification that was sent, from a thread, is in Redis."""


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose workers hardly ever look by themselves: a job that starts soon was notified."""
    patience = {"poll_seconds": 300.0, "sweep_seconds": 300.0, "lease_seconds": 300.0, "beat_seconds": 1.0}
    with cluster(tmp_path_factory.mktemp("quiet"), workers=2, observed=SLOW, **patience) as running:
        yield running


@pytest.fixture(scope="module")
def rough(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with short leases, whose processes will be hurt."""
    with cluster(tmp_path_factory.mktemp("rough"), workers=2, observed=SLOW, poll_seconds=2.0) as running:
        yield running


def started(running: Cluster, job: str) -> dict[str, Any]:
    return running.wait_until(job, lambda view: view["state"] == "running" and view["progress"]["step"] > 0)


def events(running: Cluster, job: str, kind: str) -> list[dict[str, Any]]:
    return [line for line in running.get(f"/v1/jobs/{job}/events", limit=100)["data"] if line["kind"] == kind]


def attempts(running: Cluster, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = running.get(f"/v1/jobs/{job}/attempts")["data"]
    return found


def holder(running: Cluster, job: str) -> int:
    """Return the number of the worker that claimed a job last."""
    said = [f'"job": "{job}"' in running.log(f"worker-{number}") for number in range(len(running.workers))]
    return max(number for number, heard in enumerate(said) if heard)


def notify(running: Cluster, job: str, times: int) -> None:
    app = make_app(running.redis.url, socket_timeout=5.0)
    for _ in range(times):
        app.send_task(NOTIFY, args=[job], queue="cpu", ignore_result=True)
    app.close()


class TestTheNotifier:
    def test_a_job_starts_because_it_was_rung_for(self, quiet: Cluster) -> None:
        dataset = quiet.upload()
        began = time.monotonic()
        job = quiet.submit(dataset, **SHORT)
        assert quiet.wait(job)["state"] == "succeeded"
        assert time.monotonic() - began < quiet.settings.poll_seconds / 3
        check(quiet, [job])

    @pytest.mark.slow
    def test_ten_bells_one_run(self, quiet: Cluster) -> None:
        job = quiet.submit(quiet.upload(), **SHORT)
        notify(quiet, job, 10)
        assert quiet.wait(job)["state"] == "succeeded"
        notify(quiet, job, 10)
        notify(quiet, f"job_{uuid4().hex[:26]}", 3)  # and notifications of a job that is none
        time.sleep(1)
        assert len(events(quiet, job, "running")) == len(attempts(quiet, job)) == 1
        check(quiet, [job])

    def test_a_broker_that_hangs_delays_no_submission(self, quiet: Cluster) -> None:
        dataset = quiet.upload()
        quiet.redis.process.send_signal(signal.SIGSTOP)
        try:
            took = []
            for _ in range(5):
                began = time.monotonic()
                assert quiet.try_submit(dataset, **SHORT).status_code == 202
                took.append(time.monotonic() - began)
        finally:
            quiet.redis.process.send_signal(signal.SIGCONT)
        assert sorted(took)[2] < 5.0, took

    def test_workers_are_on_record(self, quiet: Cluster) -> None:
        found = quiet.get("/v1/workers")["data"]
        assert len(found) == 2
        for one in found:
            assert (one["queues"], one["slots"], one["gpus"], one["alive"]) == (["cpu"], 1, 0, True)

    def test_a_job_for_a_gpu_is_refused_while_there_is_none(self, quiet: Cluster) -> None:
        answer = quiet.try_submit(quiet.upload(), resources={"device": "cuda"})
        assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (409, "gpu-unavailable", True)
        assert answer.json()["errors"][0]["pointer"] == "/resources/device"


@pytest.mark.slow
def test_a_claim_without_a_lock_runs_twice(tmp_path: Path) -> None:
    """The planted bug that `test_ten_bells_one_run` must see."""
    with cluster(tmp_path / "home", workers=0, poll_seconds=300.0, sweep_seconds=300.0, lease_seconds=300.0) as naive:
        naive.worker_module = "tests.support.naive_worker"
        naive.start_worker()
        naive.start_worker()
        naive.ready()
        job = naive.submit(naive.upload())
        notify(naive, job, 10)
        naive.wait_until(job, lambda view: view["attempt"] == 2)
        assert len(events(naive, job, "running")) == 2


class TestDraining:
    @pytest.mark.slow
    def test_a_drained_worker_ends_well_and_its_job_goes_on(self, rough: Cluster) -> None:
        job = rough.submit(rough.upload())
        started(rough, job)
        number = holder(rough, job)
        trainers = rough.trainers(number)
        assert rough.stop_worker(number) == 0
        assert not any(is_alive(trainer) for trainer in trainers)
        assert '"drained"' in rough.log(f"worker-{number}")
        rough.start_worker()
        assert rough.wait(job)["state"] == "succeeded"
        assert [one["outcome"] for one in attempts(rough, job)] == ["drained", "succeeded"]
        check(rough, [job])
        rough.ready()
        assert len(rough.get("/v1/workers")["data"]) == 2, "one left, one came"

    @pytest.mark.slow
    def test_a_trainer_that_still_starts_hears_that_it_shall_stop(self, rough: Cluster) -> None:
        number = rough.start_worker()
        rough.ready()
        for other, process in enumerate(rough.workers):
            if other != number and process.poll() is None:
                assert rough.stop_worker(other) == 0
        for spare in rough.trainers(number):
            spare.kill()  # the job's own process has to load everything first
        job = rough.submit(rough.upload())
        rough.wait_until(job, lambda view: view["state"] != "queued")
        assert rough.stop_worker(number) == 0
        rough.start_worker()
        rough.start_worker()
        assert rough.wait(job)["state"] == "succeeded"
        assert [one["outcome"] for one in attempts(rough, job)] == ["drained", "succeeded"]
        check(rough, [job])
        rough.ready()

    @pytest.mark.slow
    def test_a_worker_ends_well_while_the_broker_hangs(self, rough: Cluster) -> None:
        number = rough.start_worker()
        rough.ready()
        rough.redis.process.send_signal(signal.SIGSTOP)
        try:
            assert rough.stop_worker(number) == 0
        finally:
            rough.redis.process.send_signal(signal.SIGCONT)

    @pytest.mark.slow
    def test_a_worker_starts_and_ends_well_while_the_broker_is_away(self, rough: Cluster) -> None:
        rough.redis.stop()
        try:
            number = rough.start_worker()
            rough.ready()
            job = rough.submit(rough.upload(), **SHORT)
            assert rough.wait(job)["state"] == "succeeded", "the database is enough"
            assert rough.stop_worker(number) == 0
        finally:
            rough.redis.start()


class TestLosses:
    """Naive workers fail the first three: `reliability/test_naive_processes.py`."""

    @pytest.mark.slow
    def test_redis_forgets_and_restarts_and_every_job_ends(self, rough: Cluster) -> None:
        redis_forgets(rough)

    @pytest.mark.slow
    def test_postgresql_restarts_and_every_job_ends(self, rough: Cluster) -> None:
        postgresql_restarts(rough)

    @pytest.mark.slow
    def test_a_supervisor_that_slept_past_its_lease_writes_nothing(self, rough: Cluster) -> None:
        rough.ready()
        a_supervisor_sleeps(rough)
        after = rough.submit(rough.upload(), **SHORT)
        assert rough.wait(after)["state"] == "succeeded"

    @pytest.mark.slow
    def test_a_killed_worker_takes_its_trainer_along_and_its_job_ends(self, rough: Cluster) -> None:
        job = rough.submit(rough.upload())
        started(rough, job)
        number = holder(rough, job)
        trainers = rough.trainers(number)
        rough.kill_worker(number)
        rough.start_worker()
        deadline = time.monotonic() + 60  # one that just starts looks for its parent a little later
        while any(is_alive(trainer) for trainer in trainers):
            assert time.monotonic() < deadline, trainers
            time.sleep(0.05)
        assert rough.wait(job, seconds=180)["state"] in ("succeeded", "failed")
        check(rough, [job])


def redis_forgets(running: Cluster, patience_seconds: float = 180) -> None:
    """Flush Redis, restart it, flush it again while jobs run and wait: all of them end."""
    dataset = running.upload()
    jobs = [running.submit(dataset, **body) for body in JOBS]
    time.sleep(RING_SECONDS)
    running.flush_redis()
    jobs += [running.submit(dataset, **body) for body in JOBS]
    time.sleep(RING_SECONDS)
    running.restart_redis()
    jobs.append(running.submit(dataset, **SHORT))
    time.sleep(RING_SECONDS)
    running.flush_redis()
    assert [running.wait(job, patience_seconds)["state"] for job in jobs] == ["succeeded"] * len(jobs)
    check(running, jobs)


def postgresql_restarts(running: Cluster) -> None:
    """Restart PostgreSQL while jobs run and wait: all of them end, and the restart costs one attempt at most."""
    dataset = running.upload()
    jobs = [running.submit(dataset, **body) for body in JOBS]
    started(running, jobs[0])
    running.postgres.stop()
    answers = [running.http.get(f"/v1/jobs/{jobs[0]}"), running.try_submit(dataset)]
    running.postgres.start()
    for answer in answers:
        assert answer.status_code == 503, answer.text
        assert (answer.json()["code"], answer.json()["retryable"]) == ("database-away", True)
    states = [wait_through(running, job)["state"] for job in jobs]
    assert states.count("succeeded") >= len(jobs) - 1, states
    check(running, jobs)


def a_supervisor_sleeps(running: Cluster, watch_seconds: float = 3) -> None:
    """Stop a worker and its trainers past their lease, wake them when another has ended the job, and watch them."""
    job = running.submit(running.upload())
    started(running, job)
    number = holder(running, job)
    trainers = running.trainers(number)
    before = reads(running, job)
    while reads(running, job) == before:  # a trainer that begins to read asks nothing of the database for a moment
        time.sleep(0.005)
    for process in (*trainers, running.workers[number]):
        process.send_signal(signal.SIGSTOP)
    try:
        ended = running.wait(job)
        others = attempts(running, job)
    finally:
        for process in (*trainers, running.workers[number]):
            process.send_signal(signal.SIGCONT)
    time.sleep(watch_seconds)
    assert others[0]["outcome"] == "worker-lost"
    assert running.get(f"/v1/jobs/{job}") == ended, "nothing was written after the end"
    assert attempts(running, job) == others
    numbers = payments(running, job)
    assert numbers == sorted(numbers), "no payment of the first attempt after one of the second"
    check(running, [job])


def reads(running: Cluster, job: str) -> int:
    """Return how many readings of a job have begun."""
    return (running.home / "observed.jsonl").read_text().count(job)


def is_alive(process: psutil.Process) -> bool:
    """Tell a process that runs from one that has ended and that nobody has asked about."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def payments(running: Cluster, job: str) -> list[int]:
    """Return which attempt made each payment of a job, in the order of the ledger."""
    database = running.database()
    with database.read() as session:
        paid = select(Entry.attempt).where(Entry.job_id == job, Entry.kind == "spend").order_by(Entry.seq)
        found = [number for (number,) in session.execute(paid)]
    database.dispose()
    return found


def wait_through(running: Cluster, job: str) -> dict[str, Any]:
    """Return a job once it has ended, though the API may answer 5xx while its database is away."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        answer = running.http.get(f"/v1/jobs/{job}")
        if answer.status_code == 200 and answer.json()["finished_at"] is not None:
            return dict(answer.json())
        time.sleep(0.2)
    raise AssertionError(f"{job} did not end: {answer.text}")
