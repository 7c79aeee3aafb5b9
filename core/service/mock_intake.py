"""Where mock jobs come in: planned and priced as jobs are, on drawn rows, and queued without a reservation."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import Field
from sqlalchemy.orm import Session

from core.base.errors import FieldError, Invalid, RateLimited
from core.db import clock, idempotency
from core.jobs import mocks, queue
from core.ledger.accounts import untouched
from core.planning.job import JobSpec
from core.privacy.events import EVENT
from core.service.context import Caller, Context
from core.service.mock_jobs import view_of
from core.service.quotes import COLUMNS, on_drawn_rows, unspent
from core.service.visibility import find_dataset, refuse_unready

ROUTE: Final = "POST /v1/mock-jobs"
ACCEPTED: Final = 202
_DAY: Final = 86400.0
_ALONE: Final[Mapping[str, Any]] = {"device": "cpu", "gpus": None, "processes": 1, "priority": 0}


class MockSpec(JobSpec):
    """Content of a mock job: that of a job, and the number of rows to draw."""

    rows: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="to be drawn; null: as many as the dataset declares, as far as the service draws"
    )

    def job(self) -> JobSpec:
        """Return the job whose mock it is, alone on a CPU."""
        content = self.model_dump(exclude={"rows"}, exclude_unset=True)
        return JobSpec.model_validate(content | {"resources": {**self.resources.model_dump(), **_ALONE}})


def submit(context: Context, caller: Caller, spec: MockSpec, key: str) -> tuple[dict[str, Any], bool]:
    """Queue a mock job; nothing is reserved. Return its view, and whether this very request was answered before.

    Raises:
        Forbidden: the key's role submits no jobs.
        NotFound, Conflict, Invalid, NotOfferedYet: as for an estimate, or the job would read more than one dataset.
        RateLimited: the caller made as many today as one may.
        IdempotencyKeyReused, IdempotencyKeyInFlight: the key belongs to another request.
    """
    caller.require("owner", "analyst", "admin")
    _refuse_readers(spec)
    digest = idempotency.hash_body(spec.model_dump(mode="json"))
    name = (caller.id, ROUTE, key)
    with context.database.read() as session:
        stored = idempotency.find(session, *name, digest)
        if stored is not None:
            return stored.body, True
        asker, planned = on_drawn_rows(session, context, caller, spec.job(), spec.rows)
    wait = planned.spec.resources.max_queue_seconds
    steps = planned.spec.optimizer.steps
    assert steps is not None, "a planned job leaves nothing open"
    facts = {
        "spec": planned.spec.model_dump(mode="json"),
        "columns": COLUMNS.dump_python(list(asker.columns), mode="json"),
        "rows": asker.units,
        "adjacency": asker.adjacency.value,
        "terms": asker.terms.model_dump(mode="json"),
        "schedule": [EVENT.dump_python(event, mode="json") for event in planned.schedule],
        "cost": unspent(planned, untouched(asker.terms)).model_dump(mode="json"),
        "steps": steps,
        "labels": dict(spec.labels),
        "request_id": caller.request_id,
    }

    def work(session: Session) -> tuple[dict[str, Any], bool]:
        given = idempotency.begin(session, *name, digest)
        if given is not None:
            return given.body, True
        assert spec.dataset is not None, "planned on one"
        refuse_unready(find_dataset(session, caller, spec.dataset))
        queue.lock_owner(session, caller.id)
        at = clock.read(session)
        _refuse_many(mocks.made_since(session, caller.id, at - _DAY), context.settings.max_mock_per_day, at)
        job = mocks.draft(at, caller.id, spec.dataset, **facts, expires_at=None if wait is None else at + wait)
        session.add(job)
        session.flush()
        body = view_of(session, context, job, caller.name, at).model_dump(mode="json")
        idempotency.store(session, *name, status=ACCEPTED, body=body)
        return body, False

    body, replayed = context.database.transaction(work)
    if not replayed:
        context.notifier.notify(body["id"], "cpu")
    return body, replayed


def _refuse_readers(spec: JobSpec) -> None:
    """Refuse a job that reads anything beside rows of one dataset: there is nothing of it that could be drawn.

    Raises:
        Invalid: with a pointer.
    """
    wrong = []
    if spec.federation is not None:
        wrong.append(FieldError("/federation", "name one dataset; each site's own can be practised alone"))
    if spec.models:
        wrong.append(FieldError("/models", "leave them out: they were made of records"))
    if getattr(spec.model, "pretrained", None) is not None:
        wrong.append(FieldError("/model/pretrained", "leave them out: a mock job reads no stored file"))
    if wrong:
        raise Invalid("A mock job reads no record, model or file.", *wrong)


def _refuse_many(made: Sequence[float], most: int, at: float) -> None:
    """Refuse one more mock job where a principal made as many in the last day as one may."""
    if len(made) >= most:
        wait = made[-most] + _DAY - at if most else _DAY
        raise RateLimited(
            f"This service takes {most} mock jobs of one principal in 24 hours (FARTHING_MAX_MOCK_PER_DAY).",
            retry_after_seconds=max(1, int(wait) + 1),
        )
