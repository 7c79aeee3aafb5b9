"""A Celery worker that hosts a supervisor: `python -m workers.app`, or `celery -A workers.app worker -P threads`.

A message only wakes the supervisor, which asks the database what to do: a message that comes twice, late or never
changes nothing but the time. The supervisor has one thread for as long as the process lives, because a child's
parent-death signal follows the thread that started it; Celery's own threads only wake it. Celery hears the signals:
SIGTERM and SIGINT drain, so that children stop where nothing is lost, and then end the process with status 0.
"""

import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

import structlog
from celery import Celery, signals

from core.base.errors import Refusal
from core.base.logs import configure
from core.base.settings import ServiceSettings
from core.service.broker import NOTIFY, make_app
from core.training.job_repository import Unreachable
from workers.process import clock_seconds
from workers.slots import read_queues
from workers.supervisor import TRAINER, Host

START_SECONDS: Final = 60.0
"""Seconds to wait for the database at start."""
END_SECONDS: Final = 10.0
"""Seconds that Celery may take to end once the supervisor has drained: a hanging broker would hold it for ever."""
_PAUSE_SECONDS: Final = 1.0


class Resident:
    """The supervisor that lives in a Celery worker.

    Args:
        settings: of the service.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self.trainer = TRAINER
        self._settings = settings
        self._draining = False
        self._host: Host | None = None
        self._thread: threading.Thread | None = None
        self._log: structlog.typing.FilteringBoundLogger = structlog.get_logger("farthing.worker")

    def start(self, queues: Iterable[str]) -> None:
        """Start supervising for these queues.

        Raises:
            SystemExit: no broker is set, the database stays away, or there is nothing to serve with.
        """
        if self._settings.broker_url is None:
            raise SystemExit("FARTHING_BROKER_URL is not set; without a broker run `python -m workers.supervisor`.")
        self._log = configure("worker")
        settings = self._settings.model_copy(update={"queues": ",".join(read_queues(",".join(queues)))})
        self._host = self._open(settings)
        self._thread = threading.Thread(target=self._run, name="supervisor")
        self._thread.start()

    def wake(self) -> None:
        """Wake the supervisor."""
        if self._host is not None:
            self._host.wake()

    def drain(self) -> None:
        """Have the supervisor start nothing more; asked again, hurry."""
        self._draining = True
        if self._host is not None:
            self._host.drain()

    def wait(self) -> None:
        """Return once drained, which begins now if nobody has asked for it; the grace for children bounds it."""
        if not self._draining:
            self.drain()
        if self._thread is not None:
            self._thread.join()

    def _open(self, settings: ServiceSettings) -> Host:
        """Connect to the database, which may be starting itself."""
        deadline = clock_seconds() + START_SECONDS
        while True:
            try:
                return Host(settings, self._log, self.trainer)
            except Unreachable as error:
                self._log.warning("database", error=str(error))
                if clock_seconds() > deadline:
                    raise SystemExit("The database does not answer.") from error
            except Refusal as refusal:  # what an operator must see to, in words
                raise SystemExit(refusal.detail) from None
            time.sleep(_PAUSE_SECONDS)

    def _run(self) -> None:
        """Supervise until drained; a supervisor that fails takes its process with it, for another to be started."""
        assert self._host is not None, "it was opened"
        try:
            self._host.run()
        except BaseException as error:  # noqa: BLE001 - whatever it was, nobody would beat any more
            self._log.error("supervisor-failed", error=type(error).__name__)
            # Celery's main thread would go on without a supervisor, so the whole process ends.
            os._exit(1)  # children die with this process
        # Children have ended by now, so an abrupt end loses nothing.
        late = threading.Timer(END_SECONDS, os._exit, (0,))
        late.daemon = True
        late.start()


SETTINGS: Final = ServiceSettings()
RESIDENT: Final = Resident(SETTINGS)
app: Celery = make_app(SETTINGS.broker_url or "redis://127.0.0.1:6379/0")
# `celery -A workers.app` without --queues consumes all queues that are declared.
app.conf.task_queues = {name: app.conf.task_queues[name] for name in read_queues(SETTINGS.queues)}


@app.task(name=NOTIFY)  # type: ignore[untyped-decorator] # Celery ships no types
def wake(job_id: str) -> None:
    """Wake the supervisor: a job waits, perhaps this one."""
    del job_id
    RESIDENT.wake()


@signals.setup_logging.connect  # type: ignore[untyped-decorator] # as above
def _log_as_json(**_: Any) -> None:  # noqa: ANN401 - whatever Celery tells
    """Keep Celery from setting up logs of its own."""
    configure("worker")


@signals.celeryd_after_setup.connect  # type: ignore[untyped-decorator] # as above
def _start(instance: Any, **_: Any) -> None:  # noqa: ANN401 - a Celery worker
    """Start before the broker is asked for anything: the database can be polled without one."""
    try:
        RESIDENT.start(instance.app.amqp.queues.consume_from)
    except SystemExit as refusal:
        # Celery would end with status 0, and say nothing.
        sys.stderr.write(f"{refusal}\n")
        os._exit(1)


@signals.worker_shutting_down.connect  # type: ignore[untyped-decorator] # as above
def _drain(**_: Any) -> None:  # noqa: ANN401 - as above
    RESIDENT.drain()


@signals.worker_shutdown.connect  # type: ignore[untyped-decorator] # as above
def _wait(**_: Any) -> None:  # noqa: ANN401 - as above
    """Celery has stopped, by whatever way."""
    RESIDENT.wait()


def main(trainer: str = TRAINER) -> None:
    """Work until SIGTERM or SIGINT."""
    os.umask(0o077)  # the home holds records, keys' digests and unapproved releases
    RESIDENT.trainer = trainer
    options = ["--pool=threads", "--concurrency=1", "--without-gossip", "--without-mingle"]
    try:
        app.worker_main(["--quiet", "worker", *options, f"--queues={SETTINGS.queues}"])
    finally:
        RESIDENT.wait()  # also where Celery could not start


if __name__ == "__main__":
    main()
