"""The result of an attempt, from the child's exit status and its supervisor's orders."""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from core.ledger.claims import Claim
from core.training.job_repository import JobRepository
from workers.outcome import Outcome
from workers.run import Child, Run


class AttemptResult(Enum):
    """The end of an attempt. The first two write nothing: the child has written, or another process will."""

    DONE = "done"
    LOST = "lost"
    """The lease is gone or going: the next sweep decides by the kept states."""
    STOPPED = "stopped"
    """At its supervisor's order: back to the queue, if its allowance pays for what was lost."""
    CANCELLED = "cancelled"
    DIVERGED = "diverged"
    LIMIT_EXCEEDED = "limit-exceeded"
    TRAINER_FAILED = "trainer-failed"
    GPU_UNAVAILABLE = "gpu-unavailable"
    """Before any record was opened."""
    PEER_LOST = "peer-lost"
    """A site of a federated job that could not go on without another, whose end decides its own."""


_FAILURES: Final[dict[int, AttemptResult]] = {
    Outcome.DIVERGED: AttemptResult.DIVERGED,
    Outcome.NO_GPU: AttemptResult.GPU_UNAVAILABLE,
    Outcome.PEER_LOST: AttemptResult.PEER_LOST,
}
_LOSSES: Final = (AttemptResult.TRAINER_FAILED, AttemptResult.LIMIT_EXCEEDED)
"""Of a site by itself."""
_CANCEL: Final = "asked-to-cancel"
_OVER_LIMIT: Final = "over-time"


def attempt_result(run: Run, child: Child) -> AttemptResult:
    """Judge an ended child: any death that was not ordered, and any status off the list, is the trainer's failure."""
    status = child.status
    assert status is not None, "it has ended"
    if status == Outcome.PUBLISHED:
        return AttemptResult.DONE
    # Before cancelling and limits: of a job that may be another's, nothing may be written.
    if run.lost or status == Outcome.FROZEN:
        return AttemptResult.LOST
    if run.cancel or status == Outcome.STALE:  # a fence is moved from outside by cancelling, or by losing the lease
        return AttemptResult.CANCELLED
    if run.over_limit or status == Outcome.OUT_OF_MEMORY:
        return AttemptResult.LIMIT_EXCEEDED
    elsewhere = status == Outcome.NO_GPU and run.resources.served_by != "cuda"  # nothing was read
    if child.ordered or status == Outcome.DRAINED or elsewhere:
        return AttemptResult.STOPPED
    return AttemptResult.PEER_LOST if child.peer_lost else _FAILURES.get(status, AttemptResult.TRAINER_FAILED)


def endings(run: Run) -> list[tuple[Claim, AttemptResult]]:
    """Return what is to be written of a run whose children have all ended, in this order.

    A federated job's sites that died by themselves are lost, one by one; the others stopped, or were stopped, for
    that, and wait to go on together. Where they gave up on each other and nobody is to blame, nothing is written: the
    lease runs out, and who sweeps counts the attempt as a lost one.
    """
    judged = [(child.claim, attempt_result(run, child)) for child in run.children]
    if not run.federated:
        return judged
    whole = _whole({one for _, one in judged}, cancel=run.cancel, over_limit=run.over_limit)
    apart = whole in (AttemptResult.STOPPED, AttemptResult.DIVERGED, AttemptResult.GPU_UNAVAILABLE)
    # Sites fail before the job is put back, so that its quorum counts without them.
    lost = [(claim, one) for claim, one in judged if apart and one in _LOSSES]
    return [*lost, (run.claim, whole)]


def losses(run: Run) -> list[tuple[Claim, AttemptResult]]:
    """Return the sites, of a run with a site's session, that died by themselves: their own supervisor writes that."""
    if run.lost or run.cancel or run.over_limit:
        return []
    judged = [(child.claim, attempt_result(run, child)) for child in run.children]
    return [(claim, one) for claim, one in judged if one in _LOSSES]


def said(run: Run) -> str:
    """Return how this session's children ended; one session reads this from all sites and concludes."""
    words = {attempt_result(run, child).value for child in run.children}
    flags = {word for word, raised in ((_CANCEL, run.cancel), (_OVER_LIMIT, run.over_limit)) if raised}
    return ",".join(sorted(words | flags))


def concluded(statuses: Iterable[str]) -> AttemptResult:
    """Return what becomes of a federated job of several supervisors, from what each has said."""
    words = {word for one in statuses for word in one.split(",")}
    found = {AttemptResult(word) for word in words - {_CANCEL, _OVER_LIMIT}}
    return _whole(found, cancel=_CANCEL in words, over_limit=_OVER_LIMIT in words)


def _whole(found: set[AttemptResult], *, cancel: bool, over_limit: bool) -> AttemptResult:
    """Return what becomes of a federated job whose sites ended so."""
    if AttemptResult.LOST in found or found == {AttemptResult.DONE}:
        # One child without a lease decides for all; False sorts before True, so LOST comes first.
        return min(found, key=lambda one: one is not AttemptResult.LOST)
    # A person's request counts before whatever else ended the sites meanwhile.
    if cancel or over_limit:
        return AttemptResult.CANCELLED if cancel else AttemptResult.LIMIT_EXCEEDED
    for alike in (
        AttemptResult.DIVERGED,
        AttemptResult.GPU_UNAVAILABLE,
    ):  # all sites, whether or not they came to say so
        if alike in found:
            return alike
    stopped = {*_LOSSES, AttemptResult.STOPPED, AttemptResult.CANCELLED}
    return AttemptResult.STOPPED if found & stopped else AttemptResult.LOST


def write(repository: JobRepository, claim: Claim, decided: AttemptResult) -> None:
    """Write how an attempt ends.

    Raises:
        StaleAttempt, LedgerFrozen, Unreachable: as the repository says.
    """
    match decided:
        case AttemptResult.DONE | AttemptResult.LOST | AttemptResult.PEER_LOST:
            return
        case AttemptResult.CANCELLED:
            repository.acknowledge_cancel(claim)
        case AttemptResult.STOPPED:
            repository.put_back(claim)
        case AttemptResult.DIVERGED:
            repository.diverged(claim)
        case AttemptResult.GPU_UNAVAILABLE:
            repository.refuse(claim, decided.value)
        case AttemptResult.LIMIT_EXCEEDED | AttemptResult.TRAINER_FAILED:
            repository.fail(claim, decided.value)
