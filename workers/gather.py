"""Followers of a trainer: processes of this machine, in its own process group, that die with it."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from core.base.settings import ServiceSettings
from core.records.master_key import load_master_keys
from workers.outcome import Outcome
from workers.process import child_environment, held_back
from workers.wire import RankMessage

if TYPE_CHECKING:
    from core.queries.sums.process_group import ProcessGroup

RANK: Final = "workers.rank"
PATIENCE_LEASES: Final = 2
"""A leader without its database tries for a lease; followers wait longer than that."""
LEAST_PATIENCE_SECONDS: Final = 60.0


def gather(
    size: int, settings: ServiceSettings, memory_bytes: int, module: str = RANK, pipe: int | None = None
) -> "ProcessGroup | None":
    """Start the other processes of a job, or call them from their machines, and meet them.

    From the main thread, which lives as long as this process: the kernel ends followers with the thread that started
    them. The death of any ends this process too.

    Args:
        size: processes of the job, this one included.
        settings: for the followers, who read the records as this process does; those of other machines have their own.
        memory_bytes: limit of each follower's memory.
        module: the module that a follower runs.
        pipe: where followers of this machine tell of a failure (`workers.incident`); None: nowhere.

    Returns:
        The group, which this process leads; None where there is nobody to gather.

    Raises:
        NoGpu: this process has a GPU, and others of this machine would have none.
        NotReady: there is no master key, by which processes of several machines know one another.
        RuntimeError: somebody did not come in time.
    """
    if size == 1:
        return None
    from core.queries.sums.process_group import call, meet  # noqa: PLC0415 - slow, and one process needs no group
    from core.training.device import own_device  # noqa: PLC0415 - as above
    from core.training.order import NoGpu  # noqa: PLC0415 - as above

    device, patience = own_device(), patience_seconds(settings)
    if settings.torchrun_store is not None:
        place, key = call(settings.torchrun_store, size), load_master_keys(settings).current.of_groups()
        return meet(0, size, place, key=key, patience_seconds=patience, device=device)
    # A supervisor's job has one GPU, so followers of this machine would have none.
    if device.type != "cpu":
        raise NoGpu("a supervisor's job has one GPU; see workers.torchrun_entry for more")
    folder = Path(tempfile.mkdtemp(prefix="farthing-"))  # for this user only
    # The key is fresh for each job; followers obey only orders that are signed with it (decision 9).
    place, key = f"file://{folder / 'meeting'}", secrets.token_bytes(32)
    try:
        for rank in range(1, size):
            order = RankMessage(
                rank=rank,
                size=size,
                place=place,
                key=key.hex(),
                settings=settings,
                memory_bytes=memory_bytes,
                patience_seconds=patience,
            )
            follower = start_follower(order, module, pipe)
            # A sum waits for every process, so one that died would leave the others waiting.
            threading.Thread(target=_fall_with, args=(follower,), daemon=True).start()
        return meet(0, size, place, key=key, patience_seconds=patience, device=device)
    finally:
        # The place is needed until all have met, and by nobody afterwards.
        shutil.rmtree(folder, ignore_errors=True)


def patience_seconds(settings: ServiceSettings) -> float:
    """Return how long processes of a job wait for each other."""
    return max(PATIENCE_LEASES * settings.lease_seconds, LEAST_PATIENCE_SECONDS)


def start_follower(order: RankMessage, module: str = RANK, pipe: int | None = None) -> "subprocess.Popen[bytes]":
    """Start one follower and tell it its order; it ends with this process, and with the thread that calls this.

    Args:
        order: its own.
        module: the module that it runs.
        pipe: where it tells of a failure; None: nowhere.
    """
    pipes = () if pipe is None else (pipe,)
    # A request to stop goes to the whole group, and is this process's to act on: followers never see it, not even
    # before they can say so themselves.
    with held_back(signal.SIGTERM):
        follower = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", module, str(os.getpid()), *map(str, pipes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=child_environment(os.environ, order.settings.trainer_threads),
            pass_fds=pipes,
        )
    assert follower.stdin is not None, "it was asked for"
    follower.stdin.write(order.model_dump_json().encode() + b"\n")
    follower.stdin.flush()
    return follower


def _fall_with(follower: "subprocess.Popen[bytes]") -> None:
    """End this process when a follower ends otherwise than by being dismissed; the kernel ends the others."""
    status = follower.wait()
    if status == Outcome.OUT_OF_MEMORY:
        os._exit(Outcome.OUT_OF_MEMORY)
    if status != Outcome.PUBLISHED:
        os._exit(Outcome.FAILED_TRAINING)
