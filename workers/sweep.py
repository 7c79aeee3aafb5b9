"""From time to time: free what is lost, expire what waited too long, notify for what waits; and verify every ledger.

A supervisor runs a sweeper and a verifier of its own; any number of them may, the database decides who does what. They
are two threads, so that no ledger, however long or broken, delays what the sweeper does.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from core.base.errors import LedgerFrozen
from core.base.settings import ServiceSettings
from core.service.notifier import Notifier
from core.training.job_repository import JobRepository, Unreachable
from workers.process import clock_seconds
from workers.slots import Slot

SWEEPS_PER_LEASE: Final = 3
_PATIENCE_SECONDS: Final = 5.0
"""For so long a supervisor that ends waits for the scope that is being verified."""
MOST_NOTIFIED: Final = 20
"""Jobs notified for at each sweep; a supervisor that wakes takes all it can."""


class Sweeper:
    """A thread that sweeps.

    Args:
        settings: lease, attempts, deadline, and how often.
        repository: the jobs, in the database.
        slots: the room of this supervisor, which its row shows.
        notifier: called again for jobs that still wait.
        log: for the operator; ids only.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        repository: JobRepository,
        slots: Sequence[Slot],
        notifier: Notifier,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._repository = repository
        self._slots = slots
        self._notifier = notifier
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sweeper", daemon=True)

    def start(self) -> None:
        """Say that this supervisor lives, and begin to sweep."""
        with suppress(Unreachable):  # said again with the first sweep
            self._register()
        self._thread.start()

    def stop(self) -> None:
        """Sweep no more, and say that this supervisor ends."""
        self._stop.set()
        self._thread.join()
        try:
            self._repository.leave()
        except Unreachable as error:
            self._log.warning("not-left", error=str(error))

    def _work(self) -> None:
        """Sweep often enough that contact with the database has no gap of a lease."""
        settings = self._settings
        pause = min(settings.sweep_seconds, settings.lease_seconds / SWEEPS_PER_LEASE)
        watch_at = clock_seconds() + pause
        while True:
            try:
                self._register()
                self._sweep()
                self._notify()
                if clock_seconds() >= watch_at:
                    watch_at = clock_seconds() + settings.sweep_seconds
                    for problem in self._repository.watch():
                        self._log.error("ledger-behind-its-witness", problem=problem, remedy="farthing reconcile")
            except (LedgerFrozen, Unreachable) as error:
                self._log.warning("not-swept", error=type(error).__name__)
            except Exception as error:  # noqa: BLE001 - a sweeper that ends would leave every lost lease lost
                self._log.error("not-swept", error=type(error).__name__)
            if self._stop.wait(pause):
                return

    def _register(self) -> None:
        """Say that this supervisor lives."""
        gpus = sum(slot.gpu is not None for slot in self._slots)
        self._repository.register(self._settings.queues, len(self._slots), gpus)

    def _notify(self) -> None:
        """Notify again for jobs that still wait: their first notification was lost, or they were put back."""
        if self._settings.broker_url is not None:
            for job_id, device in self._repository.waiting(MOST_NOTIFIED):
                self._notifier.notify(job_id, device)

    def _sweep(self) -> None:
        swept = self._repository.sweep()
        for model in swept.retired:
            self._log.info("swept", model=model, what="retired")
        for what, job, request_id in self._repository.log_lines(swept):
            self._log.info("swept", job=job, request_id=request_id, what=what)


class Verifier:
    """A thread that verifies ledgers: all of each at its start and every `verify_seconds`, what is new in between.

    Args:
        settings: the periods.
        repository: the jobs, in the database.
        log: for the operator; ids only.
    """

    def __init__(
        self, settings: ServiceSettings, repository: JobRepository, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self._pause = settings.sweep_seconds
        self._repository = repository
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="verifier", daemon=True)

    def start(self) -> None:
        """Begin to verify."""
        self._thread.start()

    def stop(self) -> None:
        """Stop verifying: a verification that has begun ends after some thousand entries."""
        self._stop.set()
        self._thread.join(_PATIENCE_SECONDS)

    def _work(self) -> None:
        while True:
            try:
                for scope, reason in self._repository.verify(self._stop.is_set).items():
                    self._log.error("frozen", scope=scope, reason=reason)
            except Unreachable as error:
                self._log.warning("not-verified", error=str(error))
            except Exception as error:  # noqa: BLE001 - the next round tries again
                self._log.error("not-verified", error=type(error).__name__)
            if self._stop.wait(self._pause):
                return
