"""A process that has loaded what trainers load, and forks one a job: `python -m workers.trainer PARENT SOCKET fork`.

A fresh process spends most of its time on loading libraries, the same for every job. One process of a supervisor loads
them once and is forked. It gets no order, no key and no record, and draws no randomness. A forked trainer serves one
job only.

A forked trainer becomes the supervisor's own child: the process between the two ends at once, and the supervisor adopts
the orphan (`workers.process.take_orphans`). Statuses, signals and the parent-death signal are those of a process that
the supervisor started itself.

Over the socket the forkserver sends READY, once. A request is one byte and two descriptors: one to read the order from,
one to write failures to. The answer is a process id, or NOBODY.
"""

import os
import socket
import time
from pathlib import Path
from typing import Final, NamedTuple

READY: Final = b"ready"
NOBODY: Final = b"nobody"
FORK: Final = b"f"
WORD: Final = "fork"
"""The argument that makes a trainer a forkserver."""
MOST_BYTES: Final = 32
"""Of an answer."""

_PAUSE_SECONDS: Final = 0.001


class Given(NamedTuple):
    """Descriptors that a forked process is given."""

    orders: int
    """Where its order comes from."""
    pipe: int
    """Where it tells of a failure."""


def fork_for(control: socket.socket) -> Given:
    """Fork a process for each request; return in those only, once they are children of the supervisor.

    Args:
        control: the socket; its end is the forkserver's.

    Raises:
        AssertionError: a library has started a thread.
    """
    assert len([*Path("/proc/self/task").iterdir()]) == 1, (
        "a lock that another thread holds would be held in the copy for ever"
    )
    control.send(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, len(FORK), len(Given._fields))
        # An empty message is the end of the supervisor's side.
        if message != FORK:
            os._exit(0)
        given = Given(*descriptors)
        heard, said = os.pipe()
        between = _fork()
        if between == 0:
            os.close(heard)
            control.close()
            # Forked twice: the middle process ends, and the kernel gives the orphan to the supervisor.
            _leave_a_child(said)
            return given
        for descriptor in (said, *given):
            os.close(descriptor)
        # Our copy of the write end is closed, so this returns also where the child died unheard.
        written = os.read(heard, MOST_BYTES)
        os.close(heard)
        if between is not None:
            os.waitpid(between, 0)  # from here on the supervisor is the parent of what it left
        control.send(written or NOBODY)


def _leave_a_child(said: int) -> None:
    """Fork once more and end; return in the child, when this process has ended.

    Args:
        said: where the child tells its process id.
    """
    between = os.getpid()
    if _fork() != 0:
        os._exit(0)
    os.setsid()  # before anybody knows of it: who signals it signals its group
    os.write(said, str(os.getpid()).encode())
    os.close(said)
    # Until the supervisor is the parent: `die_with_parent` would else refuse the one that is there.
    while os.getppid() == between:
        time.sleep(_PAUSE_SECONDS)


def _fork() -> int | None:
    """Fork; None where there is no memory or no process id for it."""
    try:
        return os.fork()
    except OSError:
        return None
