"""The notifier over a real Redis-protocol server: its messages, and that nobody ever waits for it."""

import json
import signal
import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.base.settings import ServiceSettings
from core.service.broker import MOST_PENDING, MOST_QUEUED, NOTIFY, BrokerNotifier, make_app
from core.service.notifier import SilentNotifier, make_notifier
from tests.support.cluster import Reaper, Redis

SOON_SECONDS = 5.0


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    reaper = Reaper(tmp_path)
    yield Redis(tmp_path, reaper)
    reaper.reap()


@pytest.fixture
def notifier(redis: Redis) -> BrokerNotifier:
    made = make_notifier(ServiceSettings(broker_url=redis.url))
    assert isinstance(made, BrokerNotifier)
    return made


def waiting(redis: Redis, queue: str, at_least: int, seconds: float = 20.0) -> int:
    """Return how many messages wait, once they are so many or time is up."""
    deadline = time.monotonic() + seconds
    with redis.client() as client:
        while (found := client.llen(queue)) < at_least and time.monotonic() < deadline:
            time.sleep(0.02)
    return int(found)


def test_without_a_broker_nothing_rings() -> None:
    assert isinstance(make_notifier(ServiceSettings(broker_url=None)), SilentNotifier)


@pytest.mark.parametrize(("device", "queues"), [("cpu", ["cpu"]), ("cuda", ["gpu"]), ("auto", ["cpu", "gpu"])])
def test_a_ring_reaches_the_queues_of_its_device(
    redis: Redis, notifier: BrokerNotifier, device: str, queues: list[str]
) -> None:
    notifier.notify("job_1", device)
    assert [waiting(redis, name, at_least=name in queues) for name in ("cpu", "gpu")] == [
        int("cpu" in queues),
        int("gpu" in queues),
    ]


def test_the_message_is_a_jobs_id_and_nothing_else(redis: Redis, notifier: BrokerNotifier) -> None:
    notifier.notify("job_1", "cpu")
    waiting(redis, "cpu", at_least=1)
    with redis.client() as client:
        message = json.loads(client.lrange("cpu", 0, 0)[0])
    assert message["content-type"] == "application/json"
    assert json.loads(b64decode(message["body"]))[:2] == [["job_1"], {}]
    assert message["headers"]["task"] == NOTIFY


def test_messages_that_nobody_reads_do_not_pile_up(redis: Redis, notifier: BrokerNotifier) -> None:
    for first in range(0, MOST_QUEUED + 300, 100):
        for number in range(first, first + 100):
            notifier.notify(f"job_{number}", "cpu")
        assert waiting(redis, "cpu", at_least=min(first + 100, MOST_QUEUED)) >= min(first + 100, MOST_QUEUED)
    assert waiting(redis, "cpu", at_least=0) <= MOST_QUEUED + 100


def test_a_broker_that_is_away_or_hangs_delays_nobody_and_is_used_again(redis: Redis, notifier: BrokerNotifier) -> None:
    notifier.notify("job_1", "cpu")
    waiting(redis, "cpu", at_least=1)
    redis.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    for number in range(2 * MOST_PENDING):
        notifier.notify(f"job_{number}", "auto")
    assert time.monotonic() - began < SOON_SECONDS
    redis.process.send_signal(signal.SIGCONT)
    redis.stop()
    began = time.monotonic()
    for number in range(100):
        notifier.notify(f"job_{number}", "cpu")
    assert time.monotonic() - began < SOON_SECONDS
    redis.start()
    with redis.client() as client:
        client.flushall()
    deadline = time.monotonic() + 20
    while not waiting(redis, "cpu", at_least=1, seconds=1):
        assert time.monotonic() < deadline, "the notifier stayed silent"
        notifier.notify("job_3", "cpu")


def test_a_flush_loses_what_waited_and_no_later_notification(redis: Redis, notifier: BrokerNotifier) -> None:
    notifier.notify("job_1", "cpu")
    waiting(redis, "cpu", at_least=1)
    with redis.client() as client:
        client.flushall()
    notifier.notify("job_2", "cpu")
    assert waiting(redis, "cpu", at_least=1) == 1


def test_celery_keeps_and_repeats_nothing() -> None:
    conf = make_app("redis://127.0.0.1:1/0").conf
    assert conf.task_acks_late is False
    assert conf.task_ignore_result is True
    assert conf.result_backend is None
    assert conf.worker_prefetch_multiplier == 1
    assert conf.worker_disable_prefetch is True
    assert conf.accept_content == ["json"]
    assert conf.task_serializer == "json"
    assert conf.broker_connection_max_retries is None
    assert conf.worker_soft_shutdown_timeout > 0
    assert set(conf.task_queues) == {"cpu", "gpu"}
