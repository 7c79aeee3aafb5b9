"""`workers.app` with a planted bug: the broker is the truth, as in a plain task queue.

A job is looked for when its message comes, once for each, and the next message is taken when that job has ended; nobody
polls, and no sweeper notifies again.
"""

import threading
import time
from typing import Any

import tests.support.observed_worker  # noqa: F401 - wraps what it observes
from workers.app import RESIDENT, main
from workers.lease_loop import LeaseLoop
from workers.sweep import Sweeper

LOOK_SECONDS = 0.1
heard = threading.Event()
plain_claim_all, plain_wake = LeaseLoop._claim_all, RESIDENT.wake


def claim_all(self: LeaseLoop) -> None:
    """Claim once for each message."""
    if heard.is_set():
        plain_claim_all(self)
        heard.clear()


def wake() -> None:
    """Have the job of a message claimed, and wait until it has ended."""
    assert RESIDENT._host is not None
    lease_loop: Any = RESIDENT._host._lease_loop
    heard.set()
    plain_wake()
    while heard.is_set() or len(lease_loop._free) < len(lease_loop._slots):
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    LeaseLoop._claim_all = claim_all  # type: ignore[method-assign] # the bug
    Sweeper._notify = lambda _: None  # type: ignore[method-assign, assignment] # as above
    RESIDENT.wake = wake  # type: ignore[method-assign] # as above
    main(trainer="tests.support.observed_trainer")
