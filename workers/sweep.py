"""From time to time: free what is lost, expire what waited too long, and sum every ledger again.

A supervisor runs a sweeper of its own; any number of them may, the database decides who does what.
"""

import threading
from typing import Final

import structlog

from core.errors import LedgerFrozen
from core.settings import ServiceSettings
from core.training.desk import Desk, Unreachable
from workers.process import clock_seconds

SWEEPS_PER_LEASE: Final = 3


class Sweeper:
    """A thread that sweeps.

    Args:
        settings: lease, attempts, deadline, and how often.
        desk: the database's face.
        log: for the operator; ids only.
    """

    def __init__(self, settings: ServiceSettings, desk: Desk, log: structlog.typing.FilteringBoundLogger) -> None:
        self._settings = settings
        self._desk = desk
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sweeper", daemon=True)

    def start(self) -> None:
        """Begin to sweep."""
        self._thread.start()

    def stop(self) -> None:
        """Sweep no more."""
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        """Sweep often enough that contact with the database has no gap of a lease; sum up every `sweep_seconds`."""
        settings = self._settings
        pause = min(settings.sweep_seconds, settings.lease_seconds / SWEEPS_PER_LEASE)
        sum_at = clock_seconds()
        while not self._stop.wait(pause):
            try:
                self._sweep()
                if clock_seconds() >= sum_at:
                    sum_at = clock_seconds() + settings.sweep_seconds
                    for scope in self._desk.resum():
                        self._log.error("frozen", scope=scope)
            except (LedgerFrozen, Unreachable) as error:
                self._log.warning("not-swept", error=type(error).__name__)

    def _sweep(self) -> None:
        for what, ids in vars(self._desk.sweep()).items():
            for job in ids:
                self._log.info("swept", job=job, what=what)
