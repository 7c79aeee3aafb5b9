"""What an ended child means for its job. Decided from the exit status and from what its supervisor ordered."""

from enum import Enum
from typing import Final

from core.store.claims import Claim
from core.training.desk import Desk
from workers.outcome import Outcome
from workers.run import Run


class Verdict(Enum):
    """How an attempt ends. The first two write nothing: the child has, or somebody else will."""

    DONE = "done"
    LOST = "lost"
    """The lease is gone or going: whoever sweeps decides, by what was kept."""
    STOPPED = "stopped"
    """At its supervisor's order: back to the queue, if its allowance pays for what was lost."""
    CANCELLED = "cancelled"
    DIVERGED = "diverged"
    LIMIT_EXCEEDED = "limit-exceeded"
    TRAINER_FAILED = "trainer-failed"
    GPU_UNAVAILABLE = "gpu-unavailable"
    """Before any record was opened."""


_FAILURES: Final[dict[int, Verdict]] = {
    Outcome.DIVERGED: Verdict.DIVERGED,
    Outcome.NO_GPU: Verdict.GPU_UNAVAILABLE,
}


def verdict(run: Run, status: int) -> Verdict:
    """Judge an ended child: any death that was not ordered, and any status off the list, is the trainer's failure."""
    if status == Outcome.PUBLISHED:
        return Verdict.DONE
    if run.lost or status == Outcome.FROZEN:
        return Verdict.LOST
    if run.cancel or status == Outcome.STALE:  # a fence is moved from outside by cancelling, or by losing the lease
        return Verdict.CANCELLED
    if run.over_limit or status == Outcome.OUT_OF_MEMORY:
        return Verdict.LIMIT_EXCEEDED
    elsewhere = status == Outcome.NO_GPU and run.resources.served_by != "cuda"  # nothing was read
    if run.ordered or status == Outcome.DRAINED or elsewhere:
        return Verdict.STOPPED
    return _FAILURES.get(status, Verdict.TRAINER_FAILED)


def write(desk: Desk, claim: Claim, decided: Verdict) -> None:
    """Write how an attempt ends.

    Raises:
        StaleAttempt, LedgerFrozen, Unreachable: as the desk says.
    """
    match decided:
        case Verdict.DONE | Verdict.LOST:
            return
        case Verdict.CANCELLED:
            desk.acknowledge_cancel(claim)
        case Verdict.STOPPED:
            desk.put_back(claim)
        case Verdict.DIVERGED:
            desk.diverged(claim)
        case Verdict.GPU_UNAVAILABLE:
            desk.refuse(claim, decided.value)
        case Verdict.LIMIT_EXCEEDED | Verdict.TRAINER_FAILED:
            desk.fail(claim, decided.value)
