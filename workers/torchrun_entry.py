"""A supervisor over several machines, or GPUs.

Run `torchrun --nnodes N --nproc-per-node M ... -m workers.torchrun_entry` on each machine.

`torchrun` starts one of these for each place of the group and tells each its own. The first is a supervisor like any
other, with one job at a time, whose trainers lead; each of the others waits for their calls and starts a fresh follower
for each. With the queue `gpu` a place has the GPU of its local rank.

Every machine has the service's settings in its own FARTHING_...: followers read the same storage, with the same master
key, by which they also know their leader. Messages and sums of the group go over the network in the clear: run it on a
network of its own.
"""

import os
import signal
import threading
from typing import Final

from core.base.logs import configure
from core.base.settings import ServiceSettings
from core.records.master_key import load_master_keys
from workers.gather import patience_seconds, start_follower
from workers.incident import hear
from workers.slots import read_queues
from workers.wire import RankMessage

LOOK_SECONDS: Final = 0.2


def main() -> None:
    """Take the place that `torchrun` has given."""
    os.umask(0o077)
    rank, local_rank = int(os.environ["RANK"]), os.environ["LOCAL_RANK"]
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    settings = ServiceSettings()
    gpu = local_rank if "gpu" in read_queues(settings.queues) else None
    if gpu is not None:
        # Before CUDA is in use, which reads it once.
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    if rank == 0:
        supervise(settings.model_copy(update={"workers": 1, "torchrun_store": address}))
    else:
        follow_calls(rank, address, settings, gpu)


def supervise(settings: ServiceSettings) -> None:
    """Be the supervisor, until SIGTERM or SIGINT."""
    from workers.supervisor import Host  # noqa: PLC0415 - the other places need no database

    host = Host(settings, configure("supervisor"))
    signal.signal(signal.SIGTERM, host.drain)
    signal.signal(signal.SIGINT, host.drain)
    host.run()


def follow_calls(rank: int, address: str, settings: ServiceSettings, gpu: str | None) -> None:
    """Start a follower for each call that this place belongs to, until SIGTERM or SIGINT.

    Args:
        rank: the place.
        address: of the store of `torchrun`.
        settings: for the followers.
        gpu: the place's own, by its index.

    Raises:
        NotReady: there is no master key.
    """
    from core.queries.sums.process_group import Calls  # noqa: PLC0415 - the first place loads no torch

    log, stop = configure("torchrun"), threading.Event()
    for signalled in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signalled, lambda *_: stop.set())
    calls, key = Calls(address), load_master_keys(settings).current.of_groups()
    log.info("waiting", rank=rank)
    while not stop.wait(LOOK_SECONDS):
        called = calls.next()
        if called is None or rank >= called[1]:
            continue
        place, size = called
        order = RankMessage(
            rank=rank,
            size=size,
            place=place,
            key=key.hex(),
            settings=settings,
            memory_bytes=settings.max_memory_bytes,
            patience_seconds=patience_seconds(settings),
            gpu=gpu,
        )
        pipe, write_end = os.pipe()
        follower = start_follower(order, pipe=write_end)
        os.close(write_end)
        while follower.poll() is None and not stop.wait(LOOK_SECONDS):
            pass
        # Popen sends nothing to a process that it has reaped, so no other process is hit.
        follower.kill()
        status, incident = follower.wait(), hear(pipe)
        why = {} if incident is None else incident.model_dump(exclude={"rank"})
        log.info("followed", rank=rank, status=status, **why)


if __name__ == "__main__":
    main()
