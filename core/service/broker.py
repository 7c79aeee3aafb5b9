"""The notifier over Celery and Redis: the message is a job's id, and all it does is to wake a supervisor.

Celery's ways of repeating and keeping work are off, because the database does both: a message is acknowledged before
its task runs, nothing waits in a worker's memory behind another, and no result is stored.
"""

import json
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import structlog
from celery import Celery
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

NOTIFY: Final = "farthing.notify"
"""The one task, by name: the API never imports the workers."""
QUEUES: Final = {"cpu": ("cpu",), "cuda": ("gpu",), "auto": ("cpu", "gpu")}
"""The queues whose supervisors serve a device."""
SOCKET_SECONDS: Final = 0.4
"""Seconds that one try to publish may take."""
MOST_PENDING: Final = 1000
MOST_QUEUED: Final = 1000
"""Messages kept in a queue that nobody reads: one each would do, since a supervisor that wakes takes all it can."""

log = structlog.get_logger("farthing.notifier")


def make_app(broker_url: str, *, socket_timeout: float | None = None) -> Celery:
    """Return the Celery application, without tasks.

    Args:
        broker_url: ``redis://...``.
        socket_timeout: seconds a command to the broker may take; None for a consumer, which waits for messages.
    """
    app = Celery("farthing", broker=broker_url, set_as_current=False)
    options: dict[str, float] = {
        "health_check_interval": 10,
        "unacked_restore_interval": 5,  # a message lost between delivery and acknowledgement comes back soon
        "unacked_restore_throttle": 1,
        "visibility_timeout": 60,
        "socket_connect_timeout": SOCKET_SECONDS if socket_timeout else 5,
        "socket_keepalive": True,
    }
    if socket_timeout is not None:
        options |= {"socket_timeout": socket_timeout, "max_connections": 4}
    app.conf.update(
        accept_content=["json"],
        broker_connection_max_retries=None,
        broker_connection_retry_on_startup=True,
        broker_pool_limit=2,
        broker_transport_options=options,
        enable_utc=True,
        result_backend=None,
        task_acks_late=False,
        task_create_missing_queues=True,
        task_default_queue="cpu",
        task_ignore_result=True,
        task_publish_retry=False,
        task_queues={name: {"exchange": name, "routing_key": name} for name in ("cpu", "gpu")},
        task_serializer="json",
        worker_concurrency=1,
        worker_disable_prefetch=True,
        worker_enable_remote_control=True,
        worker_hijack_root_logger=False,
        worker_pool="threads",
        worker_prefetch_multiplier=1,
        worker_soft_shutdown_timeout=30.0,
    )
    return app


def answers(broker_url: str) -> bool:
    """Tell, within a second, whether a broker answers."""
    # Without `retry` redis-py repeats a command with growing pauses, for far longer than a second.
    client = Redis.from_url(
        broker_url, socket_timeout=SOCKET_SECONDS, socket_connect_timeout=SOCKET_SECONDS, retry=Retry(NoBackoff(), 0)
    )
    try:
        return bool(client.ping())
    except RedisError:
        return False
    finally:
        client.close()


class BrokerNotifier:
    """Notifies by messages from a thread of its own, so that a broker that is away delays nobody.

    Args:
        app: the settings with the broker's address.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._pending: queue.Queue[tuple[str, str]] = queue.Queue(MOST_PENDING)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._away = False

    def notify(self, job_id: str, device: str) -> None:
        """Have a job's id sent soon to the queues that serve its device; dropped where too much waits already."""
        self._start()
        for name in QUEUES[device]:
            try:
                self._pending.put_nowait((job_id, name))
            except queue.Full:
                return  # the broker is away, which was logged; the sweeper notifies again

    def _start(self) -> None:
        """Start the thread at the first notification: not before a server has forked, if it does."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="notifier", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            notices = [self._pending.get(), *self._waiting()]
            try:
                self._send(notices)
            except Exception as error:  # noqa: BLE001 - whatever the broker's client raises: best effort
                self._give_up(error, notices[0][0])
            else:
                self._away = False

    def _waiting(self) -> Iterator[tuple[str, str]]:
        """Yield what waits at this moment."""
        with suppress(queue.Empty):
            while True:
                yield self._pending.get_nowait()

    def _send(self, notices: Sequence[tuple[str, str]]) -> None:
        """Send all messages by one command to the broker, and none to a queue that nobody reads."""
        by_queue: dict[str, list[str]] = {}
        with self._app.pool.acquire(block=True) as connection:
            channel = connection.default_channel
            for job_id, name in notices:
                by_queue.setdefault(name, []).append(_message(self._app, channel, job_id, name))
            with channel.client.pipeline(transaction=False) as commands:
                for name, messages in by_queue.items():
                    commands.lpush(name, *messages)
                    # `lpush` puts the newest first, so this drops the oldest.
                    commands.ltrim(name, 0, MOST_QUEUED - 1)
                commands.execute()

    def _give_up(self, error: Exception, job_id: str) -> None:
        """Drop these messages and those that wait behind them: all would need as long as these to fail."""
        if not self._away:
            log.warning("not-notified", error=type(error).__name__, job=job_id)
        self._away = True
        for _ in self._waiting():
            pass


def _message(app: Celery, channel: Any, job_id: str, queue_name: str) -> str:  # noqa: ANN401 - Celery ships no types
    """Return a task's message as Celery and its transport over Redis write it.

    `Celery.send_task` would make a client and ask for the exchange's queues for each: ten times the work.
    """
    task = app.amqp.as_task_v2(str(uuid4()), NOTIFY, args=[job_id], ignore_result=True)
    body = json.dumps(task.body)
    message = channel.prepare_message(body, None, "application/json", "utf-8", task.headers, task.properties)
    channel._inplace_augment_message(message, "", queue_name)  # noqa: SLF001 - it numbers the delivery; nothing public does
    return json.dumps(message)
