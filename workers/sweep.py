"""From time to time: free what is lost, expire what waited too long, ring for what waits, and sum every ledger again.

A supervisor runs a sweeper of its own; any number of them may, the database decides who does what.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from core.errors import LedgerFrozen
from core.service.bell import Bell
from core.settings import ServiceSettings
from core.training.desk import Desk, Unreachable
from workers.process import clock_seconds
from workers.slots import Slot

SWEEPS_PER_LEASE: Final = 3
MOST_RUNG: Final = 20
"""Jobs rung for at each sweep; a supervisor that wakes takes all it can."""


class Sweeper:
    """A thread that sweeps.

    Args:
        settings: lease, attempts, deadline, and how often.
        desk: the database's face.
        slots: what to tell of this supervisor.
        bell: rung again for jobs that still wait.
        log: for the operator; ids only.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        desk: Desk,
        slots: Sequence[Slot],
        bell: Bell,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._desk = desk
        self._slots = slots
        self._bell = bell
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
            self._desk.leave()
        except Unreachable as error:
            self._log.warning("not-left", error=str(error))

    def _work(self) -> None:
        """Sweep often enough that contact with the database has no gap of a lease; sum up every `sweep_seconds`."""
        settings = self._settings
        pause = min(settings.sweep_seconds, settings.lease_seconds / SWEEPS_PER_LEASE)
        sum_at = clock_seconds() + pause
        while True:
            try:
                self._register()
                self._sweep()
                self._ring()
                if clock_seconds() >= sum_at:
                    for problem in self._desk.watch():
                        self._log.error("ledger-behind-its-witness", problem=problem, remedy="farthing reconcile")
                    sum_at = clock_seconds() + settings.sweep_seconds
                    for scope in self._desk.resum():
                        self._log.error("frozen", scope=scope)
            except (LedgerFrozen, Unreachable) as error:
                self._log.warning("not-swept", error=type(error).__name__)
            if self._stop.wait(pause):
                return

    def _register(self) -> None:
        """Say that this supervisor lives."""
        gpus = sum(slot.gpu is not None for slot in self._slots)
        self._desk.register(self._settings.queues, len(self._slots), gpus)

    def _ring(self) -> None:
        """Ring again for those that still wait; whose first ring was lost, or who were put back."""
        if self._settings.broker_url is not None:
            for job_id, device in self._desk.waiting(MOST_RUNG):
                self._bell.ring(job_id, device)

    def _sweep(self) -> None:
        swept = self._desk.sweep()
        for model in swept.retired:
            self._log.info("swept", model=model, what="retired")
        for what, job, request_id in self._desk.told_of(swept):
            self._log.info("swept", job=job, request_id=request_id, what=what)
