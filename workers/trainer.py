"""The child: one fresh process a job, `python -m workers.trainer PARENT PIPE`, ordered and held by its standard input.

It loads the libraries, or is forked from one that has (`workers.forkserver`), then waits for one line of standard
input, the order, and carries out that one only. The order holds the claim and where things are, for secrets go by file
descriptor and never by argument or environment. The pipe then stays open as long as the supervisor lives; its end ends
the trainer, and so does the death of the supervisor's thread whose child it is. Standard output and error go nowhere:
their text may depend on records. The loggable part of a failure goes through a pipe of its own
(`workers.incident`).
"""

import gc
import os
import signal
import socket
import sys
import threading
from functools import partial
from typing import Final

from core.base.errors import Diverged, LedgerFrozen, PeerLost, StaleAttempt
from core.base.version import software
from core.data.arrow import leave_pandas_out
from core.ledger.rules import rules_digest
from core.training.order import Drained, Failed, NoGpu, Phase
from workers.forkserver import WORD, fork_for
from workers.gather import RANK, gather
from workers.incident import tell
from workers.outcome import Outcome
from workers.process import die_with_parent, leave_no_core, let_in, limit_memory, pin
from workers.wire import TrainerMessage

_PHASES: Final = {
    Phase.OPENING: Outcome.FAILED_OPENING,
    Phase.TRAINING: Outcome.FAILED_TRAINING,
    Phase.PUBLISHING: Outcome.FAILED_PUBLISHING,
}

_ORDINARY: Final = frozenset({Outcome.DRAINED, Outcome.STALE, Outcome.FROZEN, Outcome.DIVERGED, Outcome.PEER_LOST})
"""Nothing is wrong with a trainer that ends so."""

_ENDINGS: Final = {
    Drained: Outcome.DRAINED,
    StaleAttempt: Outcome.STALE,
    LedgerFrozen: Outcome.FROZEN,
    Diverged: Outcome.DIVERGED,
    PeerLost: Outcome.PEER_LOST,
    MemoryError: Outcome.OUT_OF_MEMORY,
    NoGpu: Outcome.NO_GPU,
}


def main(rank: str = RANK) -> None:
    """Take the order and carry it out; the exit status is the outcome.

    Args:
        rank: the module that further processes of the job run.
    """
    leave_no_core()
    parent, channel = map(int, sys.argv[1:3])
    os.set_inheritable(channel, False)
    die_with_parent(parent)
    leave_pandas_out()
    forked = sys.argv[3:] == [WORD]
    pipe = _forked(parent, channel) if forked else channel
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # Only now is there a handler; the supervisor held the signal back until here.
    let_in(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the supervisor's to act on
    try:
        if not forked:
            load_libraries()
    except BaseException as ending:  # noqa: BLE001 - an installation that is not whole, or is being changed
        os._exit(fail(ending, pipe))
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        os._exit(Outcome.ORPHANED)
    order = TrainerMessage.model_validate_json(line)
    # After the order is read: from then on the pipe carries nothing, and its end is the parent's.
    threading.Thread(target=leave_with_parent, daemon=True).start()
    pin(order.gpu)
    limit_memory(order.memory_bytes, with_gpu=order.gpu is not None)
    # No interpreter shutdown: its handlers could print, and everything that matters is committed.
    os._exit(train(order, stop, rank, pipe))


def _forked(parent: int, channel: int) -> int:
    """Be a forkserver; return in what was forked of it only, where to tell of a failure."""
    load_libraries()
    given = fork_for(socket.socket(fileno=channel))
    die_with_parent(parent)  # asked anew: it has another one
    # The code that waits for an order reads standard input, forked or not.
    os.dup2(given.orders, sys.stdin.fileno())
    os.close(given.orders)
    os.set_inheritable(given.pipe, False)
    return given.pipe


def load_libraries() -> None:
    """Import what every job needs; most of the seconds of a fresh process.

    Loaded modules stay, so the garbage collector skips them: now, which saves a fifth of the time, and later.
    Nothing that is loaded starts a thread, for a process with several cannot be forked: Arrow, which does, is loaded
    when it is needed.
    """
    gc.disable()
    from core.training import federated  # noqa: PLC0415 - slow; torch, and all that a job alone needs too

    assert federated.run is not None, "loaded"
    software()  # reads every source, once, and not in each process that is forked of this one
    rules_digest()  # as above
    # Frozen objects are not visited, so collections in forked trainers leave shared pages shared.
    gc.freeze()
    gc.enable()


def train(order: TrainerMessage, stop: threading.Event, rank: str, pipe: int) -> Outcome:
    """Train, and say how it ended."""
    settings = order.settings
    try:
        from core.db.database import Database  # noqa: PLC0415 - after the limits are set
        from core.training import attempt, federated, mock  # noqa: PLC0415 - as above; torch

        database = Database(settings.url)
        if order.mock is not None:
            mock.run(database, settings, order.claim, order.mock, stop.is_set)
            return Outcome.PUBLISHED
        if order.seat is not None:
            federated.run(database, settings, order.claim, order.seat, stop.is_set)
            return Outcome.PUBLISHED
        group = partial(gather, settings=settings, memory_bytes=order.memory_bytes, module=rank, pipe=pipe)
        attempt.run(database, settings, order.claim, stop.is_set, group)
    except BaseException as ending:  # noqa: BLE001 - whatever it was, one code of a closed list leaves
        return fail(ending, pipe)
    return Outcome.PUBLISHED


def fail(ending: BaseException, pipe: int, rank: int = 0) -> Outcome:
    """Return the one word that an exception becomes; of failures the operator's log gets the class and the places."""
    outcome = judge(ending)
    if outcome not in _ORDINARY or ending.__cause__ is not None:
        tell(ending, pipe, rank)
    return outcome


def judge(ending: BaseException) -> Outcome:
    """Return the one word that an exception becomes."""
    if isinstance(ending, Failed):
        return _PHASES[ending.phase]
    known = (outcome for kind, outcome in _ENDINGS.items() if isinstance(ending, kind))
    return next(known, Outcome.FAILED_OPENING)


def leave_with_parent() -> None:
    """End this process when its parent closes its end of the pipe, as the kernel does when it dies."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(Outcome.ORPHANED)


if __name__ == "__main__":
    main()
