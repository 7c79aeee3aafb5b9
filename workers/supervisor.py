"""Run trainers: claim, start a fresh child, beat, watch its limits, and end what it leaves open.

`python -m workers.supervisor`, with every setting in FARTHING_... Two threads share the work. The main one starts
children and kills them, and never waits for the database. There are two reasons: the parent-death signal follows the
thread that created a child, and a child must be stopped in time even while the database does not answer. The other
thread does all that is written: it claims, beats and fails (`workers.lease_loop`).

A supervisor kills its child three quarters of a lease after it sent its last good beat, by a clock that also counts
suspension. A child is gone before anybody else can claim its job; if it were not, its fence would be refused.
"""

import argparse
import os
import platform
import queue
import shutil
import signal
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Final

import structlog

from core.base.errors import Refusal
from core.base.logs import configure
from core.base.settings import ServiceSettings
from core.mechanisms.self_test import self_test
from core.service.notifier import make_notifier
from core.training.job_repository import open_job_repository
from core.training.mock_order import keyless
from workers.incident import hear
from workers.lease_loop import Claimed, LeaseLoop
from workers.outcome import Outcome
from workers.process import clock_seconds, kill_group, reap_group
from workers.run import Child, Run
from workers.seats import seated
from workers.slots import make_slots
from workers.sweep import Sweeper, Verifier
from workers.trainer_pool import TrainerPool
from workers.wire import TrainerMessage

TRAINER: Final = "workers.trainer"
LEASE_PART: Final = 0.75
CANCEL_GRACE_SECONDS: Final = 5.0
DRAIN_GRACE_SECONDS: Final = 30.0
HURRY_SECONDS: Final = 5.0
PARTING_SECONDS: Final = 10.0
"""Seconds that sites of a federated job may go on after one has gone, to notice it and to keep their states."""
_WATCH_SECONDS: Final = 0.02


class Supervisor:
    """Starts and stops children; one object, one thread, which lives as long as its process.

    Args:
        settings: times and places.
        lease_loop: claims, beats, and writes how attempts end.
        drain_grace_seconds: seconds that children may go on after a request to drain.
        trainer: the module that a child runs.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        lease_loop: LeaseLoop,
        drain_grace_seconds: float = DRAIN_GRACE_SECONDS,
        trainer: str = TRAINER,
    ) -> None:
        self._settings = settings
        self._grace_seconds = drain_grace_seconds
        self._lease_loop = lease_loop
        self._runs: list[Run] = []
        self._drain_until: float | None = None
        self._trainer_pool = TrainerPool(trainer, settings.trainer_threads)
        self._orphaned: set[int] = set()

    def drain(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Start nothing more; children stop where nothing is lost, or finish, in the grace. A signal handler.

        Asked a second time, they get a few seconds more at most.
        """
        del number, frame
        if self._drain_until is None:
            self._drain_until = clock_seconds() + self._grace_seconds
        else:
            self._drain_until = min(self._drain_until, clock_seconds() + HURRY_SECONDS)

    def run(self) -> None:
        """Work until drained."""
        self._lease_loop.start()
        try:
            while not (self._lease_loop.idle() and not self._runs):
                assert self._lease_loop.alive(), "without a lease loop nobody beats"
                self._turn()
        finally:
            for run in self._runs:
                _signal(run, signal.SIGKILL)
                _forget(run)
            self._trainer_pool.close()
            self._lease_loop.stop()

    def _turn(self) -> None:
        """Start what was claimed, look at every child once, and wait a moment."""
        if self._drain_until is not None:
            self._lease_loop.close()
        else:
            self._trainer_pool.keep()
        self._lease_loop.claim_when(able=self._trainer_pool.able())
        with suppress(queue.Empty):
            self._start(self._lease_loop.claimed.get(timeout=_WATCH_SECONDS))
        for run in list(self._runs):
            self._watch(run)
        self._orphaned = {group for group in self._orphaned if reap_group(group)}

    def _start(self, claimed: Claimed) -> None:
        """Give the order to a fresh process, or each site's to one of its own; each serves one job only."""
        settings, taken = self._settings, claimed.taken
        resources, gpu = taken.resources, claimed.slot.gpu
        own = settings.model_copy(update={"admin_key": None, "broker_url": None, "broker_password": None})
        order = TrainerMessage(
            claim=taken.claim,
            settings=own if taken.mock is None else keyless(settings),
            mock=taken.mock,
            memory_bytes=min(resources.memory_bytes or settings.max_memory_bytes, settings.max_memory_bytes),
            gpu=None if gpu is None else gpu.uuid,
        )
        together = taken.clients and taken.meeting_key is None
        meeting = Path(tempfile.mkdtemp(prefix="farthing-")) if together else None  # for this user only
        orders = seated(order, taken, meeting) if taken.clients else [order]
        most = settings.max_runtime_seconds if taken.mock is None else settings.mock_seconds
        limit = min(resources.max_runtime_seconds or most, most)
        run = Run(
            claim=taken.claim,
            resources=resources,
            slot=claimed.slot,
            children=[self._order(one) for one in orders],
            started_at=clock_seconds(),
            limit_seconds=limit,
            # The lease began after the claim was sent, so this errs on the safe side.
            beaten_at=claimed.sent_at,
            meeting=meeting,
            seated=taken.meeting_key is not None,
            mock=taken.mock is not None,
        )
        self._runs.append(run)
        self._lease_loop.watch(run)

    def _order(self, order: TrainerMessage) -> Child:
        """Tell a fresh process its order."""
        fresh = self._trainer_pool.fresh()
        with suppress(BrokenPipeError):  # it has died already; the next look finds out
            os.write(fresh.orders, order.model_dump_json().encode() + b"\n")
        return Child(order.claim, fresh.process, orders=fresh.orders, pipe=fresh.pipe)

    def _watch(self, run: Run) -> None:
        """Reap children that have ended; signal those that should."""
        now = clock_seconds()
        self._reap(run, now)
        if not run.living:
            self._runs.remove(run)
            _forget(run)
            self._lease_loop.ended(run)
        # Before every other reason: another supervisor may claim the job when the lease ends.
        elif run.lost or now > run.beaten_at + LEASE_PART * self._settings.lease_seconds:
            run.lost = True
            _signal(run, signal.SIGKILL)
        elif now > run.started_at + run.limit_seconds:
            run.over_limit = True
            _signal(run, signal.SIGKILL)
        elif run.cancel or run.part or run.outranked:
            self._ask_to_stop(run, now, now + CANCEL_GRACE_SECONDS)
        elif run.broken_at is not None:
            self._ask_to_stop(run, now, run.broken_at + PARTING_SECONDS)
        elif self._drain_until is not None:
            self._ask_to_stop(run, now, self._drain_until)

    def _reap(self, run: Run, now: float) -> None:
        """Take note of children that have ended; the sites of a federated job cannot go on without one that has."""
        for child in run.living:
            status = child.process.poll()
            if status is None:
                continue
            kill_group(child.process.pid, signal.SIGKILL)  # whatever it may have started
            self._orphaned.add(child.process.pid)
            os.close(child.orders)
            if child.pipe is not None:
                child.incident, child.pipe = hear(child.pipe), None
            child.status = status
            if run.federated and status != Outcome.PUBLISHED and run.broken_at is None:
                run.broken_at = now

    def _ask_to_stop(self, run: Run, now: float, deadline: float) -> None:
        """Ask children once to stop where nothing is lost; later, kill them."""
        if run.stop_by is None:
            run.stop_by = deadline
            _signal(run, signal.SIGTERM)
        elif now > min(run.stop_by, deadline):
            for child in run.living:
                child.ordered, child.peer_lost = run.broken_at is None, run.broken_at is not None
            _signal(run, signal.SIGKILL)


def _forget(run: Run) -> None:
    """Delete the place where the sites met."""
    if run.meeting is not None:
        shutil.rmtree(run.meeting, ignore_errors=True)


def _signal(run: Run, how: signal.Signals) -> None:
    """Signal all children that run."""
    for child in run.living:
        kill_group(child.process.pid, how)


class Host:
    """The parts of a supervising process: a supervisor, its lease loop, sweeper and verifier, and its GPUs.

    Args:
        settings: of the service.
        log: for the operator.
        trainer: the module that a child runs.

    Raises:
        NotReady: the database could lose a commit, or the master key that records are under is not here.
        Unreachable: the database does not answer.
        SystemExit: there is nothing to serve with.
    """

    def __init__(
        self, settings: ServiceSettings, log: structlog.typing.FilteringBoundLogger, trainer: str = TRAINER
    ) -> None:
        # Before anything is claimed: a kernel or generator that computes wrongly must draw no noise.
        kernels = self_test()
        self._locks = ExitStack()
        self._log = log
        self._notifier = make_notifier(settings)
        self._repository = open_job_repository(settings, f"{platform.node()}:{os.getpid()}")
        self._slots = make_slots(settings, self._locks, log)
        self._lease_loop = LeaseLoop(settings, self._repository, self._slots, self._notifier, log)
        self._sweeper = Sweeper(settings, self._repository, self._slots, self._notifier, log)
        self._verifier = Verifier(settings, self._repository, log)
        self._supervisor = Supervisor(settings, self._lease_loop, trainer=trainer)
        self.drain = self._supervisor.drain
        self.wake = self._lease_loop.wake
        log.info("kernels", state=kernels)

    def run(self) -> None:
        """Work until drained."""
        with self._locks:
            self._sweeper.start()
            self._verifier.start()
            self._log.info("supervising", name=self._repository.name, slots=len(self._slots))
            self._supervisor.run()
            # After the drain: until here this supervisor had children, and had to be seen.
            self._verifier.stop()
            self._sweeper.stop()
            self._log.info("drained")


def main(trainer: str = TRAINER) -> None:
    """Supervise trainers until SIGTERM or SIGINT."""
    about = "Claim jobs and train them. Every setting is an environment variable, FARTHING_..."
    argparse.ArgumentParser(prog="python -m workers.supervisor", description=about).parse_args()
    os.umask(0o077)  # the home holds records, keys' digests and unapproved releases
    log = configure("supervisor")
    try:
        host = Host(ServiceSettings(), log, trainer)
    except Refusal as refusal:  # what an operator must see to, in words
        raise SystemExit(refusal.detail) from None
    signal.signal(signal.SIGTERM, host.drain)
    signal.signal(signal.SIGINT, host.drain)
    host.run()


if __name__ == "__main__":
    main()
