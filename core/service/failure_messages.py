"""Messages on lost workers and failed jobs, from public figures alone.

Nothing here knows what an exception said: a failure's code is from a closed list, and the rest is what was asked for.
"""

from typing import Final

from core.db.tables import Job
from core.jobs.transitions import LOST
from core.ledger import ledger
from core.methods.clipped.one_pass.spec import OnePassClippedSgd
from core.planning.job import RETRY_ALLOWANCE
from core.planning.planner import PlannedJob
from core.queries.sampling import StreamSampling

_AGAIN: Final = "submit it again and ask for a retry_allowance of 1 or more"
_MORE_STEPS: Final = "or for more steps, since what is lost of a stream of several chunks is skipped, at no cost"
_FAILED_FOR: Final = {
    "diverged": "an iterate left the public radius: take smaller steps, allow a larger radius, or raise the privacy "
    "target",
    "trainer-failed": (
        "its trainer died or met an error, whose details stay secret: ask the operator, whose log names a class "
        "of errors"
    ),
    "limit-exceeded": "it ran out of time or memory: ask for more in resources (max_runtime_seconds, memory_bytes), or "
    "for fewer steps or a smaller batch",
    "gpu-unavailable": "its GPU could not be used, and nothing was read: submit it again, or with the device cpu",
    "access-withdrawn": "its submitter may no longer use its data: ask their owner for access, and submit it again",
    "site-lost": (
        "fewer of its sites were left than its quorum, or a site sent figures that cannot be true (the last line "
        "of its history then names it): submit it with the other sites"
    ),
}


def if_lost(planned: PlannedJob) -> str:
    """Return what becomes of a job if its worker is lost, and what to ask for where it would fail."""
    many, times = len(planned.schedule), planned.spec.retry_allowance
    sampling = planned.spec.optimizer.sampling(planned.facts)
    if isinstance(sampling, StreamSampling) and sampling.skips(many):
        return f"the rest of the lost chunk, one of {many}, is skipped at no cost: fewer steps are taken"
    lost = f"the chunk that is lost, one of {many}, is" if many > 1 else "all of it is one chunk, which is"
    if times:
        often = "once" if times == 1 else f"{times} times"
        return f"{lost} paid and drawn again, {often} at most, out of the retry allowance; after that the job fails"
    fix = f"ask for a retry_allowance of 1 or more{_or_more_steps(planned.spec.optimizer.kind, many)}"
    return f"{lost} not paid again, for retry_allowance is 0: the job fails, and what it has spent is spent; {fix}"


_SHOWN: Final = {"client-lost": "site-lost"}
"""Codes that answers call otherwise than the database and the ledger, where entries of 0.1.0 have them."""


def failure_code(stored: str) -> str:
    """Return a stored failure code by the name that answers have."""
    return _SHOWN.get(stored, stored)


def failed_for(job: Job) -> str | None:
    """Return why a failed job failed and what to do about it; None where it has not failed."""
    if job.error_code != LOST:
        return None if job.error_code is None else _FAILED_FOR[failure_code(job.error_code)]
    times = int(job.spec.get("retry_allowance", RETRY_ALLOWANCE))
    if ledger.is_stream(job.schedule):
        return "its workers were lost as often as any job's may be: ask the operator why before it is submitted again"
    if times == 0:
        lost = "all of it, for it was one chunk" if len(job.schedule) == 1 else "a chunk of it"
        more = _or_more_steps(job.optimizer, len(job.schedule))
        return f"its worker was lost with {lost}, and none was to be paid again (retry_allowance 0): {_AGAIN}{more}"
    return (
        f"its workers were lost more often than a retry_allowance of {times} pays for, or than any job's may be: "
        "submit it again, with a larger one"
    )


def _or_more_steps(optimizer: str, chunks: int) -> str:
    """Return what helps a single step over disjoint batches beside an allowance; nothing for others."""
    alone = chunks == 1 and optimizer == OnePassClippedSgd.card().kind
    return f", {_MORE_STEPS}" if alone else ""
