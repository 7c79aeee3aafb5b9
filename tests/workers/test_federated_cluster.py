"""Federated jobs on a cluster: API, Celery workers, PostgreSQL and Redis as real processes, which come and go.

Three owners each time; see `tests.support.federated` for what must be true of their ledgers whatever happened.
"""

import time
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster
from tests.support.federated import STEPS, Federation, check, states, submit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
DONE = [("succeeded", None)] * 3


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    observed = {"SLOW": "0.1", "PATIENCE": "6"}
    with cluster(
        tmp_path_factory.mktemp("federated"), workers=2, observed=observed, poll_seconds=2.0, lease_seconds=10.0
    ) as found:
        yield found


def holder(running: Cluster, job: Federation) -> int:
    """Return the number of the worker that claimed a job last."""
    said = [f'"job": "{job.id}"' in running.log(f"worker-{number}") for number in range(len(running.workers))]
    return max(number for number, heard in enumerate(said) if heard)


def test_it_ends_and_three_ledgers_are_charged(running: Cluster) -> None:
    job = submit(running, None)
    ended = job.wait(300)
    assert (ended["state"], states(ended)) == ("succeeded", DONE), ended
    check(job)


@pytest.mark.parametrize("reading", [1, STEPS // 2])
def test_a_killed_worker_is_replaced_by_another(running: Cluster, reading: int) -> None:
    """With it die its supervisor and all sites' trainers; no site is lost for that."""
    job = submit(running, None)
    job.until_read(0, reading)
    number = holder(running, job)
    running.kill_worker(number)
    running.start_worker()
    ended = job.wait(300)
    assert (ended["state"], states(ended)) == ("succeeded", DONE), ended
    assert ended["attempt"] >= 2
    check(job)


def test_servers_that_come_and_go_cost_nobody_anything_twice(running: Cluster) -> None:
    """Redis forgets everything and is away; PostgreSQL drops all connections; the API is killed."""
    job = submit(running, 2)
    job.until_read(0, 3)
    running.flush_redis()
    running.restart_redis()
    running.restart_postgres()
    running.kill_api()
    time.sleep(1)
    ended = job.wait(300)
    assert ended["state"] == "succeeded", ended
    check(job)
