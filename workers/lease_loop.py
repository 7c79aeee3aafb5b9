"""Writes of a supervisor: claims, beats, and the ends of attempts whose child did not end them itself."""

import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import structlog

from core.base.errors import LedgerFrozen, StaleAttempt
from core.base.settings import ServiceSettings
from core.ledger.claims import Claim
from core.service.notifier import Notifier
from core.training.job_repository import JobRepository, Unreachable
from core.training.taken import ClaimedJob, Offer
from workers.attempt_result import AttemptResult, concluded, endings, losses, said, write
from workers.gpus import NoAnswer, free_bytes
from workers.outcome import Outcome, describe
from workers.process import clock_seconds
from workers.run import Run
from workers.slots import Slot

BEATS_PER_LEASE: Final = 6
LOOK_SECONDS: Final = 1.0
"""The longest between two looks at runs: whether one was cancelled, whether to beat."""
GPU_REST_SECONDS: Final = 5.0
"""Before a GPU without enough free memory is looked at again."""
BROKEN_GPU_REST_SECONDS: Final = 60.0
"""After a job could not use its GPU, so that a broken one does not fail all that wait."""

_AGAIN_SECONDS: Final = 4.0
"""Before another session in the same federated job: sites that cannot reach each other need not try at every turn."""
_FROZEN_SECONDS: Final = 60.0
"""Between two lines that say that the ledger is frozen: it is asked at every turn, and other questions are answered."""
_GRAIN: Final = 1000

T = TypeVar("T")


@dataclass(frozen=True)
class Claimed:
    """An attempt to start."""

    taken: ClaimedJob
    slot: Slot
    sent_at: float
    """When the claim was sent, by `clock_seconds`."""


@dataclass
class _Held:
    """A session of a site that a slot is kept free for; times by `clock_seconds`."""

    offer: Offer
    until: float
    asked_at: float
    """When it was last asked whether the job has begun, and it had not."""


class LeaseLoop:
    """A thread that talks to the database for a supervisor.

    Args:
        settings: lease, beat and poll.
        repository: the jobs, in the database.
        slots: where jobs may run.
        notifier: called when a job goes back into the queue.
        log: for the operator; ids and codes only.

    Attributes:
        claimed: attempts to start.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        repository: JobRepository,
        slots: Sequence[Slot],
        notifier: Notifier,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self.claimed: queue.Queue[Claimed] = queue.Queue()
        self._settings = settings
        self._repository = repository
        self._notifier = notifier
        self._log = log
        self._beat_seconds = min(settings.beat_seconds, settings.lease_seconds / BEATS_PER_LEASE)
        self._look_seconds = min(settings.poll_seconds, LOOK_SECONDS)
        self._lock = threading.Lock()
        self._runs: list[Run] = []
        self._ended: list[Run] = []
        self._slots = tuple(slots)
        self._free = list(slots)
        self._rests: dict[Slot, float] = {}
        self._held: dict[Slot, _Held] = {}
        self._shunned: dict[str, float] = {}
        self._open = True
        self._able = False
        self._running = True
        self._frozen_told_at = -_FROZEN_SECONDS
        self._claim_at = 0.0
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lease-loop", daemon=True)

    def start(self) -> None:
        """Begin to claim."""
        self._thread.start()

    def claim_when(self, *, able: bool) -> None:
        """Claim only while the supervisor is able to start a job at once: a claimed job counts as running."""
        if able and not self._able:
            self._log.info("claiming")
            self.wake()
        self._able = able

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
            return not self._open and len(self._free) == len(self._slots)

    def alive(self) -> bool:
        """Tell whether the thread still works; a supervisor without it must end."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Look for jobs now: somebody says that one waits."""
        self._claim_at = 0.0
        self._wake.set()

    def watch(self, run: Run) -> None:
        """Beat for a run from now on."""
        with self._lock:
            self._runs.append(run)

    def ended(self, run: Run) -> None:
        """Take note that all children of a run have ended; the rest is written soon."""
        with self._lock:
            self._runs.remove(run)
            self._ended.append(run)
        self._wake.set()

    def _work(self) -> None:
        while self._running or self._ended:
            self._beat_all()
            self._end_all()
            self._look_at_seats()
            if self._able and clock_seconds() >= self._claim_at:
                self._claim_all()
            self._wake.wait(self._look_seconds)
            self._wake.clear()

    def _claim_all(self) -> None:
        """Claim a job for every free slot, and note when to look again without a notification."""
        self._claim_at = clock_seconds() + self._settings.poll_seconds
        nothing: set[tuple[str, ...]] = set()
        with self._lock:
            free = list(self._free)
        for slot in free:
            if slot.takes not in nothing and self._is_fit(slot) and not self._claim_for(slot):
                nothing.add(slot.takes)

    def _is_fit(self, slot: Slot) -> bool:
        """Tell whether a slot may take a job now: a GPU only while enough of its memory is free."""
        if slot.gpu is None:
            return True
        if clock_seconds() < self._rests.get(slot, 0.0):
            return False
        try:
            free = free_bytes(slot.gpu)
        except NoAnswer as error:
            self._log.warning("gpu-unavailable", gpu=slot.gpu.uuid, error=str(error))
        else:
            if free is None or free >= self._settings.gpu_memory_bytes:
                return True
            self._log.warning("gpu-full", gpu=slot.gpu.uuid, free_bytes=free, wanted=self._settings.gpu_memory_bytes)
        self._rest(slot, GPU_REST_SECONDS)
        return False

    def _rest(self, slot: Slot, seconds: float) -> None:
        """Leave a slot empty for a while."""
        self._rests[slot] = clock_seconds() + seconds

    def _claim_for(self, slot: Slot) -> bool:
        """Claim a job for a free slot; say whether there was one."""
        with self._lock:
            if not self._open:
                return False
            # Taken before the database is asked: `idle` must not say that no claim is under way.
            self._free.remove(slot)
        if self._offer_seat(slot):
            return True
        sent_at = clock_seconds()
        taken = self._ask(partial(self._repository.claim, slot.takes))
        if taken is None:
            with self._lock:
                self._free.append(slot)
            return False
        self._hand_over(taken, slot, sent_at)
        return True

    def _hand_over(self, taken: ClaimedJob, slot: Slot, sent_at: float) -> None:
        """Have the supervisor start what was claimed."""
        self._log.info("claimed", **taken.claim.log_fields, clients=len(taken.clients) or None)
        self.claimed.put(Claimed(taken, slot, sent_at))

    def _offer_seat(self, slot: Slot) -> bool:
        """Keep a slot free for a federated job of several sites, where one waits whose sites are all there."""
        sent_at = clock_seconds()
        self._shunned = {job: until for job, until in self._shunned.items() if until > sent_at}
        skip = [*self._shunned, *(held.offer.job_id for held in self._held.values())]
        offer = self._ask(partial(self._repository.offer, slot.takes, skip))
        if offer is None:
            return False
        self._log.info("offered", job=offer.job_id)
        self._held[slot] = _Held(offer, sent_at + self._settings.seat_seconds, sent_at)
        self._wake.set()
        return True

    def _look_at_seats(self) -> None:
        """Start what has begun, and take offers back that were made in vain."""
        for slot, held in list(self._held.items()):
            sent_at = clock_seconds()
            try:
                answer = self._ask(partial(self._seated, held.offer))
            except StaleAttempt:
                self._free_seat(slot)
                continue
            if answer is None:  # nobody answers now; what has begun without us is lost with its lease
                if not self._open:
                    self._free_seat(slot)
                continue
            (taken,) = answer
            if taken is not None:
                del self._held[slot]
                # The attempt began after the look before this one, so its lease counts from there.
                self._hand_over(taken, slot, held.asked_at)
            elif sent_at > held.until or not self._open:
                self._take_back(slot, held.offer)
            else:
                held.asked_at = sent_at

    def _seated(self, offer: Offer) -> tuple[ClaimedJob | None]:
        """Return what an offer has become, in a tuple that tells it from no answer at all."""
        return (self._repository.seated(offer),)

    def _take_back(self, slot: Slot, offer: Offer) -> None:
        """Leave a job to others for a while of no fixed length, so that two sites do not wait in turns for ever."""
        if self._ask(partial(self._repository.withdraw, offer)):
            self._log.info("took-back", job=offer.job_id)
            self._shun(offer.job_id, self._settings.seat_seconds)
            self._free_seat(slot)

    def _shun(self, job_id: str, most_seconds: float) -> None:
        """Offer no session in a job for a while, at least half of `most_seconds`."""
        self._shunned[job_id] = clock_seconds() + most_seconds * (1 + secrets.randbelow(_GRAIN) / _GRAIN) / 2

    def _free_seat(self, slot: Slot) -> None:
        """Have a slot take what comes."""
        del self._held[slot]
        with self._lock:
            self._free.append(slot)

    def _beat_all(self) -> None:
        """Beat for every run whose last beat is old enough, and look whether any was cancelled."""
        with self._lock:
            runs = [run for run in self._runs if not run.lost]
        for run in runs:
            if clock_seconds() >= max(run.asked_at, run.beaten_at) + self._beat_seconds:
                self._beat(run)
            elif not run.cancel:
                run.cancel = self._ask(partial(self._repository.is_cancelling, run.claim)) or False
            if run.mock and not run.outranked and not self._free:
                run.outranked = self._ask(partial(self._repository.is_outranked, run.slot.takes)) or False
            if run.federated and not run.part:
                run.part = self._ask(partial(self._repository.is_parting, run.claim)) or False

    def _beat(self, run: Run) -> None:
        # Sent, not answered: the lease runs from some moment after this, so killing is early, never late.
        run.asked_at = sent_at = clock_seconds()
        answer = self._ask(partial(self._repository.beat, run.claim, seated=run.seated))
        if answer is None:
            return
        if answer.alive:
            whole = self._settings.lease_seconds
            run.beaten_at = sent_at - max(0.0, whole - (whole if answer.left_seconds is None else answer.left_seconds))
        else:
            run.lost = True
        run.cancel = run.cancel or answer.cancel

    def _ask(self, question: Callable[[], T]) -> T | None:
        """Return the database's answer, None where it has none now; the next turn asks again."""
        try:
            return question()
        except LedgerFrozen:
            if clock_seconds() - self._frozen_told_at >= _FROZEN_SECONDS:
                self._log.error("ledger-frozen", remedy="farthing reconcile")
                self._frozen_told_at = clock_seconds()
        except Unreachable as error:
            self._log.warning("database", error=str(error))
            self._claim_at = min(self._claim_at, clock_seconds() + LOOK_SECONDS)
        return None

    def _end_all(self) -> None:
        """Write the ends of attempts, and free their slots."""
        with self._lock:
            ended, self._ended = self._ended, []
        for run in ended:
            for child in run.children:
                if child.incident is not None and child.status is not None and child.incident.explains(child.status):
                    reported = child.incident.model_dump(exclude_defaults=True)
                    self._log.error("incident", **child.claim.log_fields, status=describe(child.status), **reported)
            for claim, decided in losses(run) if run.seated else endings(run):
                self._end(run, claim, decided)
            if run.seated:
                self._leave_seat(run)
            if any(child.status == Outcome.NO_GPU for child in run.children):
                self._rest(run.slot, BROKEN_GPU_REST_SECONDS)
            with self._lock:
                self._free.append(run.slot)
            self._claim_at = 0.0

    def _end(self, run: Run, claim: Claim, decided: AttemptResult) -> None:
        """Write one end, and say so."""
        statuses = [describe(child.status) for child in run.children if child.status is not None]
        self._log.info("ended", **claim.log_fields, status=",".join(statuses), result=decided.value)
        self._write_end(run, claim, decided)
        if decided is AttemptResult.STOPPED:
            self._notifier.notify(claim.job_id, run.resources.served_by)

    def _leave_seat(self, run: Run) -> None:
        """Report the end of this site's part; the last site to report ends the attempt for all."""
        deadline = run.beaten_at + self._settings.lease_seconds
        self._shun(run.claim.job_id, _AGAIN_SECONDS)
        while not run.lost:
            try:
                reported = self._repository.leave_seat(run.claim, said(run))
            except StaleAttempt:  # published, or taken away
                return
            except Unreachable:
                if clock_seconds() > deadline:
                    self._log.error("unwritten", **run.claim.log_fields)
                    return
                time.sleep(self._look_seconds)
            else:
                self._log.info("left", **run.claim.log_fields, last=reported is not None)
                if reported is not None:
                    self._end(run, run.claim, concluded(reported))
                return

    def _write_end(self, run: Run, claim: Claim, decided: AttemptResult) -> None:
        """Write one end; repeated until it is written or the lease is gone, when a sweep finds the job.

        A fence that is refused means that somebody cancelled in between, or that the attempt is over.
        """
        deadline = run.beaten_at + self._settings.lease_seconds
        while True:
            try:
                write(self._repository, claim, decided)
            except StaleAttempt:
                if decided is AttemptResult.CANCELLED:
                    return
                decided = AttemptResult.CANCELLED
            except LedgerFrozen:
                self._log.error("ledger-frozen", **claim.log_fields, remedy="farthing reconcile")
                return
            except Unreachable:
                if clock_seconds() > deadline:
                    self._log.error("unwritten", **claim.log_fields, result=decided.value)
                    return
                time.sleep(self._look_seconds)
            else:
                return
