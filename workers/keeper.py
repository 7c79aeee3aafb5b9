"""All that a supervisor writes: claims, beats, and the ends of attempts whose child did not end them itself."""

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import structlog

from core.catalogue.jobs import Resources
from core.errors import LedgerFrozen, StaleAttempt
from core.settings import ServiceSettings
from core.store.claims import Claim
from core.training.desk import Desk, Unreachable
from workers.outcome import describe
from workers.process import clock_seconds
from workers.run import Run
from workers.verdict import Verdict, verdict, write

BEATS_PER_LEASE: Final = 6

T = TypeVar("T")


class Keeper:
    """A thread that talks to the database for a supervisor.

    Args:
        settings: lease, beat and poll.
        desk: the database's face.
        log: for the operator; ids and codes only.

    Attributes:
        claimed: attempts to start, with their resources and when the claim was sent.
    """

    def __init__(self, settings: ServiceSettings, desk: Desk, log: structlog.typing.FilteringBoundLogger) -> None:
        self.claimed: queue.Queue[tuple[Claim, Resources, float]] = queue.Queue()
        self._settings = settings
        self._desk = desk
        self._log = log
        self._beat_seconds = min(settings.beat_seconds, settings.lease_seconds / BEATS_PER_LEASE)
        self._lock = threading.Lock()
        self._runs: list[Run] = []
        self._ended: list[tuple[Run, int]] = []
        self._free = settings.workers
        self._open = True
        self._running = True
        self._frozen = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name="keeper", daemon=True)

    def start(self) -> None:
        """Begin to claim."""
        self._thread.start()

    def close(self) -> None:
        """Claim nothing more."""
        with self._lock:
            self._open = False

    def stop(self) -> None:
        """Write what is left to write, and end."""
        self.close()
        self._running = False
        self._wake.set()
        self._thread.join()

    def idle(self) -> bool:
        """Tell whether, once closed, every slot is free again: all ends are written and no claim is under way."""
        with self._lock:
            return not self._open and self._free == self._settings.workers

    def alive(self) -> bool:
        """Tell whether the thread still works; a supervisor without it must end."""
        return self._thread.is_alive()

    def watch(self, run: Run) -> None:
        """Beat for a run from now on."""
        with self._lock:
            self._runs.append(run)

    def ended(self, run: Run, status: int) -> None:
        """Take note that a child has ended, and with what status; the rest is written soon."""
        with self._lock:
            self._runs.remove(run)
            self._ended.append((run, status))
        self._wake.set()

    def _work(self) -> None:
        while self._running or self._ended:
            self._beat_all()
            self._end_all()
            while self._claim_one():
                pass
            self._wake.wait(self._settings.poll_seconds)
            self._wake.clear()

    def _claim_one(self) -> bool:
        """Claim a job for a free slot; say whether there may be another."""
        with self._lock:
            if not self._open or not self._free:
                return False
            self._free -= 1
        sent_at = clock_seconds()
        taken = self._ask(self._desk.claim)
        if taken is None:
            with self._lock:
                self._free += 1
            return False
        claim, resources = taken
        self._log.info("claimed", job=claim.job_id, attempt=claim.attempt)
        self.claimed.put((claim, resources, sent_at))
        return True

    def _beat_all(self) -> None:
        """Beat for every run whose last beat is old enough, and look whether any was cancelled."""
        with self._lock:
            runs = [run for run in self._runs if not run.lost]
        for run in runs:
            if clock_seconds() >= run.beaten_at + self._beat_seconds:
                self._beat(run)
            elif not run.cancel:
                run.cancel = self._ask(partial(self._desk.is_cancelling, run.claim)) or False

    def _beat(self, run: Run) -> None:
        sent_at = clock_seconds()
        answer = self._ask(partial(self._desk.beat, run.claim))
        if answer is None:
            return
        if answer.alive:
            run.beaten_at = sent_at
        else:
            run.lost = True
        run.cancel = run.cancel or answer.cancel

    def _ask(self, question: Callable[[], T]) -> T | None:
        """Return the database's answer, None where it has none now; the next turn asks again."""
        try:
            answer = question()
        except LedgerFrozen:
            if not self._frozen:
                self._log.error("ledger-frozen", remedy="farthing reconcile")
            self._frozen = True
            return None
        except Unreachable as error:
            self._log.warning("database", error=str(error))
            return None
        self._frozen = False
        return answer

    def _end_all(self) -> None:
        """Write the ends of attempts, and free their slots."""
        with self._lock:
            ended, self._ended = self._ended, []
        for run, status in ended:
            decided = verdict(run, status)
            self._log.info(
                "ended", job=run.claim.job_id, attempt=run.claim.attempt, status=describe(status), verdict=decided.value
            )
            self._write_end(run, decided)
            with self._lock:
                self._free += 1

    def _write_end(self, run: Run, decided: Verdict) -> None:
        """Write one end; repeated until it is written or the lease is gone, when a sweep finds the job.

        A fence that is refused means that somebody cancelled in between, or that the attempt is over.
        """
        deadline = run.beaten_at + self._settings.lease_seconds
        while True:
            try:
                write(self._desk, run.claim, decided)
            except StaleAttempt:
                if decided is Verdict.CANCELLED:
                    return
                decided = Verdict.CANCELLED
            except LedgerFrozen:
                self._log.error("ledger-frozen", job=run.claim.job_id, remedy="farthing reconcile")
                return
            except Unreachable:
                if clock_seconds() > deadline:
                    self._log.error("unwritten", job=run.claim.job_id, verdict=decided.value)
                    return
                self._wake.wait(self._settings.poll_seconds)
            else:
                return
