"""A job handed in as `POST /v1/jobs` does it, and a key's holder as the API finds it, without a server around."""

from collections.abc import Sequence

from core.planning.job import JobSpec
from core.service import intake, keys
from core.service.context import Caller, Context
from core.service.intake import StoredAnswer, Submission
from core.service.jobs import ROUTE


def take(context: Context, submissions: Sequence[Submission]) -> list[StoredAnswer | Exception]:
    """Store submissions, then have the witness know of them: an answer or a refusal to each, in order."""
    answers = intake.store(context, submissions)
    confirmed = iter(intake.confirm(context, [answer for answer in answers if isinstance(answer, StoredAnswer)]))
    return [next(confirmed) if isinstance(answer, StoredAnswer) else answer for answer in answers]


def submit(context: Context, caller: Caller, spec: JobSpec, key: str) -> StoredAnswer:
    """Plan one job, or find its plan, and store it; raise what the API would refuse it with."""
    asked: Submission | StoredAnswer = intake.known(caller, spec, key, ROUTE) or intake.planned(
        context, caller, spec, key, ROUTE
    )
    if isinstance(asked, StoredAnswer):
        return asked
    (answer,) = take(context, [asked])
    if isinstance(answer, Exception):
        raise answer
    return answer


def holder(context: Context, secret: str) -> Caller | None:
    """Return who holds a key, or None."""
    return keys.authenticate_all(context, [secret])[0]
