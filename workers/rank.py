"""A follower: one more process of a job, `python -m workers.rank PARENT [PIPE]`.

Its parent is the trainer, which leads; on other machines it is `workers.torchrun_entry`. The parent sends the order
through standard input and keeps it open. The follower ends when its parent or its leader ends: the kernel, standard
input or the group's messages show it that. It draws no noise, has no access to the ledger and writes nothing. Its exit
status gives its outcome. Of a failure it writes to PIPE only the details that `workers.incident` allows.
"""

import os
import signal
import sys
import threading

from workers.outcome import Outcome
from workers.process import die_with_parent, leave_no_core, limit_memory, pin
from workers.trainer import fail, judge, leave_with_parent
from workers.wire import RankMessage


def main() -> None:
    """Take the order, meet the others and follow; the exit status is the outcome."""
    leave_no_core()
    parent, *pipes = map(int, sys.argv[1:])
    for pipe in pipes:
        os.set_inheritable(pipe, False)
    die_with_parent(parent)
    for signalled in (signal.SIGTERM, signal.SIGINT):  # meant for the leader, who shares the process group
        signal.signal(signalled, signal.SIG_IGN)
    line = sys.stdin.buffer.readline()
    # No whole line: the parent died before it had written the order.
    if not line.endswith(b"\n"):
        os._exit(Outcome.ORPHANED)
    order = RankMessage.model_validate_json(line)
    threading.Thread(target=leave_with_parent, daemon=True).start()
    pin(order.gpu)
    limit_memory(order.memory_bytes, with_gpu=order.gpu is not None)
    os._exit(serve(order, *pipes))


def serve(order: RankMessage, pipe: int | None = None) -> Outcome:
    """Follow, and say how it ended; a follower that was dismissed has done its part."""
    try:
        import torch  # noqa: PLC0415 - slow; the parent of this function does what cannot wait first

        from core.queries.sums.process_group import meet  # noqa: PLC0415 - as above
        from core.training.device import own_device  # noqa: PLC0415 - as above
        from core.training.ranks import follow  # noqa: PLC0415 - as above

        torch.set_num_threads(order.settings.trainer_threads)
        torch.set_num_interop_threads(1)
        group = meet(
            order.rank,
            order.size,
            order.place,
            key=bytes.fromhex(order.key),
            patience_seconds=order.patience_seconds,
            device=own_device(),
        )
        follow(group, order.settings)
    except BaseException as ending:  # noqa: BLE001 - whatever it was, one code of a closed list leaves
        return judge(ending) if pipe is None else fail(ending, pipe, order.rank)
    return Outcome.PUBLISHED


if __name__ == "__main__":
    main()
