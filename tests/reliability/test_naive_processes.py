"""Plainer workers over real Celery, Redis and PostgreSQL, and what each of them loses.

The scenarios and their checks are those that our own workers pass in `workers/test_cluster.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.cluster import Cluster, cluster
from tests.workers.test_cluster import SHORT, a_supervisor_sleeps, postgresql_restarts, redis_forgets

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without workers."""
    with cluster(tmp_path_factory.mktemp("naive") / "home", workers=0, observed={}, poll_seconds=2.0) as running:
        yield running


@contextmanager
def workers_of(running: Cluster, module: str, count: int = 2, **environment: str) -> Iterator[None]:
    """Run workers of another module, which do well while nothing happens, until the end of the block."""
    running.worker_module = module
    started = [running.start_worker(**environment) for _ in range(count)]
    running.ready()
    assert running.wait(running.submit(running.upload(), **SHORT))["state"] == "succeeded"
    try:
        yield
    finally:
        for number in started:
            running.kill_worker(number)


def test_trainers_that_try_a_payment_once_fail_with_the_database(servers: Cluster) -> None:
    with (
        workers_of(servers, "tests.support.observed_worker", SLOW="0.3", HASTY="1"),
        pytest.raises(AssertionError, match="'failed', 'failed'"),
    ):
        postgresql_restarts(servers)


def test_a_supervisor_without_fences_writes_when_it_wakes_or_reads_unpaid(servers: Cluster) -> None:
    with (
        workers_of(servers, "tests.support.naive_fences", SLOW="0.4", UNFENCED="1"),
        pytest.raises(AssertionError, match=r"nothing was written after the end|was read more than it paid for"),
    ):
        a_supervisor_sleeps(servers, watch_seconds=15)


def test_workers_that_trust_the_broker_alone_lose_jobs_with_it(servers: Cluster) -> None:
    with (
        workers_of(servers, "tests.support.naive_listener", count=1, SLOW="0.3"),
        pytest.raises(AssertionError, match="did not get there"),
    ):
        redis_forgets(servers, patience_seconds=40)
