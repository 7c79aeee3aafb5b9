"""Where a supervisor's fresh processes come from: forked from a forkserver, or started ahead, or started.

A forkserver takes seconds to load and little to fork (`workers.forkserver`). It cannot be had where the kernel does
not make orphans the supervisor's children, nor where libraries are to have several threads: they start some as they are
loaded. There one process is started ahead of the next job, for the same seconds at each job.

A forkserver that dies while it loads is of an installation that is not whole. Then a job's process is started for it,
and says itself what is wrong.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from workers.forkserver import FORK, MOST_BYTES, NOBODY, READY, WORD
from workers.process import child_environment, clock_seconds, held_back, kill_group, take_orphans

ANSWER_SECONDS: Final = 5.0
"""Seconds that a forkserver may take to fork."""
_AGAIN_SECONDS: Final = 1.0
"""Between two forkservers, so that one that cannot live is not started again and again."""


class Process(Protocol):
    """A child of this process."""

    @property
    def pid(self) -> int:
        """Its process id, and its group's."""

    def poll(self) -> int | None:
        """Return its status, the signal's negative number where one killed it, or None while it runs."""


class Adopted:
    """A child that another process forked for this one.

    Args:
        pid: its process id.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return its status, or None while it runs."""
        if self._status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status


@dataclass(frozen=True)
class Fresh:
    """A process that has no order yet."""

    process: Process
    orders: int
    """Descriptor that takes its order; its end is the process's."""
    pipe: int
    """Descriptor by which it tells of failures."""


@dataclass
class _Forkserver:
    """The process that is forked."""

    process: Process
    control: socket.socket
    ready: bool = False


class TrainerPool:
    """Keeps a forkserver and makes fresh processes. One thread, which lives as long as they may.

    Args:
        module: the module that a process runs.
        threads: of its libraries.
    """

    def __init__(self, module: str, threads: int) -> None:
        self._module = module
        self._threads = threads
        self._forks = threads == 1 and take_orphans()
        self._forkserver: _Forkserver | None = None
        self._ahead: Fresh | None = None
        self._started_at = -_AGAIN_SECONDS
        self._hopeless = False

    def able(self) -> bool:
        """Tell whether a process can be had now, or waiting would be in vain."""
        return not self._forks or self._hopeless or (self._forkserver is not None and self._forkserver.ready)

    def keep(self) -> None:
        """Look once at what is kept, a forkserver or a process ahead, and start one where there is none."""
        again = clock_seconds() > self._started_at + _AGAIN_SECONDS
        if not self._forks:
            if again and (self._ahead is None or self._ahead.process.poll() is not None):
                self._drop_ahead()
                self._started_at = clock_seconds()
                self._ahead = self._start()
        elif self._forkserver is None:
            if again:
                self._forkserver = self._load()
        elif self._forkserver.process.poll() is not None:
            self._hopeless = not self._forkserver.ready
            self._drop_forkserver()
        elif not self._forkserver.ready:
            with suppress(BlockingIOError, ConnectionError):
                self._forkserver.ready = self._forkserver.control.recv(MOST_BYTES) == READY
            self._hopeless = self._hopeless and not self._forkserver.ready

    def fresh(self) -> Fresh:
        """Return a process of its own session, which waits for one order."""
        if self._ahead is not None and self._ahead.process.poll() is not None:
            self._drop_ahead()  # it has died, which is no job's fault
        ahead, self._ahead = self._ahead, None
        return ahead or self._fork() or self._start()

    def close(self) -> None:
        """End what is kept; it knows nothing."""
        self._drop_forkserver()
        self._drop_ahead()

    def _drop_ahead(self) -> None:
        """End the process that waits for an order."""
        if self._ahead is not None:
            fresh, self._ahead = self._ahead, None
            _end(fresh.process)
            os.close(fresh.orders)
            os.close(fresh.pipe)

    def _drop_forkserver(self) -> None:
        """End the forkserver."""
        if self._forkserver is not None:
            forkserver, self._forkserver = self._forkserver, None
            _end(forkserver.process)
            forkserver.control.close()

    def _load(self) -> _Forkserver:
        """Start a forkserver, which is ready some seconds later."""
        self._started_at = clock_seconds()
        # Sequenced packets keep each request whole, with its own descriptors.
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            process = self._run(subprocess.DEVNULL, its.fileno(), WORD)
        ours.setblocking(False)
        return _Forkserver(process, ours)

    def _fork(self) -> Fresh | None:
        """Have the forkserver fork; None where it cannot."""
        forkserver = self._forkserver
        if forkserver is None or not forkserver.ready:
            return None
        orders, takes_orders = os.pipe()
        hears, pipe = os.pipe()
        pid = 0
        try:
            forkserver.control.settimeout(ANSWER_SECONDS)
            socket.send_fds(forkserver.control, [FORK], [orders, pipe])
            reply = forkserver.control.recv(MOST_BYTES)
            pid = 0 if reply == NOBODY else int(reply)
        except (OSError, ValueError):  # it has ended, or does not answer: whatever it forks yet finds no order
            self._drop_forkserver()
        finally:
            os.close(orders)
            os.close(pipe)
        if pid:
            return Fresh(Adopted(pid), takes_orders, hears)
        os.close(takes_orders)
        os.close(hears)
        return None

    def _start(self) -> Fresh:
        """Start a process that loads everything itself."""
        orders, takes_orders = os.pipe()
        hears, pipe = os.pipe()
        try:
            process = self._run(orders, pipe)
        finally:
            os.close(orders)
            os.close(pipe)
        return Fresh(process, takes_orders, hears)

    def _run(self, orders: int, channel: int, *more: str) -> "subprocess.Popen[bytes]":
        """Start the module in a session of its own, with a descriptor that it gets by number."""
        # A request to stop that comes while it still loads waits until it can be heard: it would be a death otherwise.
        with held_back(signal.SIGTERM):
            return subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", self._module, str(os.getpid()), str(channel), *more],
                stdin=orders,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=child_environment(os.environ, self._threads),
                pass_fds=(channel,),
                start_new_session=True,
            )


def _end(process: Process) -> None:
    """Kill a process, if it runs still, and take note of its end."""
    if process.poll() is None:
        kill_group(process.pid, signal.SIGKILL)
        # WNOWAIT leaves the status, which can be taken once, for `poll`.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        process.poll()
