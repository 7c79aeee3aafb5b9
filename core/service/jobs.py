"""Use cases of jobs: submit one, watch it, cancel it. Submitting plans first and then reserves, in one transaction."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from core.catalogue.jobs import RETRY_ALLOWANCE, JobSpec
from core.errors import Conflict, Forbidden, NotFound
from core.privacy.events import EVENT, NOTHING, Event, compose
from core.privacy.facts import Adjacency
from core.privacy.reports import report as privacy_report
from core.service import witnessing, workers
from core.service.budgets import NO_COST, allowance_figures, cost_figures, empty_budget
from core.service.context import Caller, Context
from core.service.estimates import PLANS, Plan, find_dataset, quote
from core.service.scopes import viewer
from core.service.views import (
    ArtifactView,
    AttemptView,
    CostFigures,
    EventView,
    FailureView,
    JobCost,
    JobView,
    ProgressView,
    ResultView,
    rfc3339,
)
from core.store import idempotency, ledger, queries, queue
from core.store import jobs as rows
from core.store.accounts import Balance
from core.store.queries import JobFilter
from core.store.retention import RETIRED
from core.store.tables import TERMINAL_STATES, Job, JobEvent, Model, Scope

ROUTE = "POST /v1/jobs"
_OPEN_MODELS = ("not-needed", "approved")


@dataclass(frozen=True)
class Answer:
    """A stored answer to a create request: the view as JSON, and whether it was given before."""

    body: dict[str, Any]
    replayed: bool
    entries: dict[str, int] = field(default_factory=dict)
    """The last entry, by scope, that the witness must know of before the answer leaves."""


@dataclass(frozen=True)
class Request:
    """A create request, as idempotency compares it."""

    route: str
    key: str
    digest: str


@dataclass(frozen=True)
class Head:
    """How a job stands, as far as it is to be seen: its state and the last line of its history."""

    state: str
    seq: int

    @property
    def ended(self) -> bool:
        """Whether nothing will follow."""
        return self.state in TERMINAL_STATES


def submit(context: Context, caller: Caller, spec: JobSpec, key: str, route: str = ROUTE) -> Answer:
    """Queue a job and reserve the most it may cost; no record is read.

    A caller with a grant in the scope pays from both; one with access to the dataset but no grant, from the scope
    alone.

    Raises:
        Forbidden: the key's role submits no jobs, or may not ask for this priority.
        NotFound, Conflict, Invalid, NotOfferedYet: as for an estimate.
        BudgetExhausted, BudgetReserved, ScopeFrozen, LedgerFrozen, LedgerBusy: as the ledger says.
        IdempotencyKeyReused, IdempotencyKeyInFlight: the key belongs to another request.
        RateLimited: too many of the caller's jobs have not ended.
        GpuUnavailable: only a GPU would do, and none is at work.
    """
    caller.require("owner", "analyst", "admin")
    request = Request(route, key, idempotency.hash_body(spec.model_dump(mode="json")))
    plan = PLANS.find(spec, request.digest)
    if plan is None:
        with context.database.read() as session:
            stored = idempotency.find(session, caller.id, route, key, request.digest)
            if stored is not None:
                return Answer(stored.body, replayed=True)
            quoted = quote(session, context, caller, spec)
            workers.require_gpu(session, context, quoted.planned.spec.resources.served_by)
        plan = PLANS.keep(quoted, request.digest)
    answer = context.database.run(_submit, context, caller, plan, request)
    if not answer.replayed:
        witnessing.keep(context, entries=answer.entries)
        context.bell.ring(answer.body["id"], plan.planned.spec.resources.served_by)
    return answer


def _submit(session: Session, context: Context, caller: Caller, plan: Plan, request: Request) -> Answer:
    stored = idempotency.begin(session, caller.id, request.route, request.key, request.digest)
    if stored is not None:
        return Answer(stored.body, replayed=True)
    # Access may have gone, or a grant come, since the plan was made.
    dataset = find_dataset(session, caller, plan.dataset_id, lock=True)
    if dataset.state != "ready":
        raise Conflict(f"This dataset is {dataset.state}: no job can read it.")
    queue.admit(session, caller.id, context.settings.max_queued_per_principal)
    grant = queries.grant(session, plan.scope_id, caller.id)
    spec = plan.planned.spec
    if spec.resources.priority > 0 and caller.id != dataset.owner_id and caller.role != "admin":
        raise Forbidden("Only the owner of the data, or an admin, may ask for a priority above 0.")
    job = rows.create(
        session,
        owner_id=caller.id,
        dataset_id=plan.dataset_id,
        scope_id=plan.scope_id,
        grant_id=None if grant is None else grant.id,
        spec=spec.model_dump(mode="json"),
        optimizer=spec.optimizer.kind,
        steps=plan.steps,
        labels=spec.labels,
        device=spec.resources.served_by,
        priority=spec.resources.priority,
        max_queue_seconds=spec.resources.max_queue_seconds,
        request_id=caller.request_id,
    )
    entry = ledger.reserve(session, job, plan.planned.schedule, spec.retry_allowance)
    view = _view(job, plan.account, NOTHING, model=None, until=None)
    body = view.model_dump(mode="json")
    idempotency.store(session, caller.id, request.route, request.key, status=202, body=body)
    return Answer(body, replayed=False, entries={job.scope_id: entry})


def clone(context: Context, caller: Caller, job_id: str, key: str) -> Answer:
    """Submit the same job again: a new job with a new charge.

    Raises:
        NotFound: the job does not exist for the caller; and as `submit`.
    """
    with context.database.read() as session:
        spec = JobSpec.model_validate(find(session, caller, job_id).spec)
    return submit(context, caller, spec, key, route=f"POST /v1/jobs/{job_id}/clone")


def find(session: Session, caller: Caller, job_id: str) -> Job:
    """Return a job that exists for the caller.

    Raises:
        NotFound: it does not.
    """
    found = queries.job(session, viewer(caller), job_id)
    if found is None:
        raise NotFound("There is no such job.")
    return found


def get(context: Context, caller: Caller, job_id: str) -> JobView:
    """Return a job as it is to be seen now.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        return _views(session, context, caller, [find(session, caller, job_id)])[0]


def page(context: Context, caller: Caller, wanted: JobFilter, after: str | None, limit: int) -> list[JobView]:
    """Return up to `limit` jobs that exist for the caller, newest first."""
    with context.database.read() as session:
        return _views(session, context, caller, queries.jobs(session, viewer(caller), wanted, after, limit))


def _views(session: Session, context: Context, caller: Caller, found: Sequence[Job]) -> list[JobView]:
    until = queries.grid_time(session, context.settings.visible_grid_seconds)
    hidden = queries.first_hidden(session, [job.id for job in found], until)
    accounts = {job.scope_id: empty_budget(session, job.scope_id) for job in found}
    views: list[JobView] = []
    for job in found:
        before = hidden.get(job.id)
        seen = None if before is None else _Seen.of(queries.history(session, job.id, 0, before, 10_000))
        model = queries.model_of(session, job.id) if job.state == "succeeded" else None
        shown = _visible(session, caller, job, model)
        grid = context.settings.visible_grid_seconds
        charged = compose(ledger.executed_by(session, job))
        views.append(_view(job, accounts[job.scope_id], charged, shown, until=seen, made=model, grid_seconds=grid))
    return views


def _visible(session: Session, caller: Caller, job: Job, model: Model | None) -> Model | None:
    """Return a job's model if the caller may have it: before approval only the scope's owner and admins do."""
    if model is None or model.approval in _OPEN_MODELS:
        return model
    if model.approval == RETIRED:
        return None
    owner = session.get_one(Scope, job.scope_id).owner_id
    return model if caller.role == "admin" or caller.id == owner else None


@dataclass(frozen=True)
class _Seen:
    """What a job's visible history says of it, while later lines wait for the time grid."""

    state: str
    step: int

    @staticmethod
    def of(history: Sequence[JobEvent]) -> "_Seen":
        steps = [line.data["step"] for line in history if line.kind == "progress"]
        states = [line.kind for line in history if line.kind != "progress"]
        return _Seen(state=states[-1], step=steps[-1] if steps else 0)


def _view(
    job: Job,
    account: Balance,
    charged: Event,
    model: Model | None,
    *,
    until: _Seen | None,
    made: Model | None = None,
    grid_seconds: float = 0.0,
) -> JobView:
    """Return a job's view; `until` replaces state and step while its newest lines are not to be seen yet."""
    ended = until is None
    finished_at = None if job.finished_at is None else queries.on_grid(job.finished_at, grid_seconds)
    spec = job.spec
    return JobView(
        id=job.id,
        state=job.state if until is None else until.state,
        dataset=job.dataset_id,
        owner=job.owner_id,
        model=spec["model"],
        optimizer=spec["optimizer"],
        privacy=spec["privacy"],
        inference=spec["inference"],
        progress=ProgressView(step=job.step if until is None else until.step, steps=job.steps),
        cost=JobCost(
            reserved=cost_figures(EVENT.validate_python(job.price), account, at_head=False),
            retry_allowance=_allowance(job, account),
            spent=cost_figures(charged, account, at_head=False) if job.chunks_spent else NO_COST,
        ),
        attempt=job.attempt,
        created_at=rfc3339(job.created_at),
        started_at=rfc3339(job.started_at),
        finished_at=rfc3339(finished_at) if ended else None,
        error=FailureView(code=job.error_code) if ended and job.error_code else None,
        result=ResultView(model=model.id) if ended and model is not None else None,
        approval=made.approval if ended and made is not None else None,
        labels=job.labels,
    )


def _allowance(job: Job, account: Balance) -> CostFigures:
    """Return what a job reserved to pay lost chunks again; one from before there were allowances did not."""
    if not any(map(any, job.allowance.values())):
        return NO_COST
    distinct = [event for number, event in enumerate(job.schedule) if event not in job.schedule[:number]]
    schedule = [EVENT.validate_python(event) for event in distinct]
    times = job.spec.get("retry_allowance", RETRY_ALLOWANCE)
    return allowance_figures(schedule, times, account, at_head=False)


def cancel(context: Context, caller: Caller, job_id: str) -> JobView:
    """Cancel a job: a queued one at once, a running one soon, an ended one not at all; what it spent stays spent.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is neither the caller's nor on the caller's data.
    """

    def work(session: Session) -> JobView:
        job = find(session, caller, job_id)
        owners = {job.owner_id, session.get_one(Scope, job.scope_id).owner_id}
        if caller.id not in owners and caller.role != "admin":
            raise Forbidden("Only who submitted this job, its data's owner or an admin may cancel it.")
        return _views(session, context, caller, [rows.cancel(session, job_id)])[0]

    view = context.database.run(work)
    witnessing.keep(context, job_id)
    return view


def events(context: Context, caller: Caller, job_id: str, after: int, limit: int) -> list[EventView]:
    """Return up to `limit` lines of a job's history above `after` that are to be seen by now.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        job = find(session, caller, job_id)
        until = queries.grid_time(session, context.settings.visible_grid_seconds)
        before = queries.first_hidden(session, [job.id], until).get(job.id)
        shown = _visible(session, caller, job, queries.model_of(session, job.id)) is not None
        grid = context.settings.visible_grid_seconds
        return [_event(line, shown, grid) for line in queries.history(session, job.id, after, before, limit)]


def _event(line: JobEvent, model_shown: bool, grid_seconds: float) -> EventView:  # noqa: FBT001 - private, and short
    data = {name: value for name, value in line.data.items() if model_shown or name != "model"}
    at = queries.on_grid(line.created_at, grid_seconds) if line.kind in queries.ON_THE_GRID else line.created_at
    return EventView(seq=line.seq, kind=line.kind, data=data, created_at=rfc3339(at))


def heads(context: Context, job_ids: Iterable[str]) -> dict[str, Head]:
    """Return how jobs stand, as far as that is to be seen; for the watcher, which has checked who may see them."""
    wanted = list(job_ids)
    with context.database.read() as session:
        until = queries.grid_time(session, context.settings.visible_grid_seconds)
        lines = queries.last_lines(session, wanted)
        hidden = queries.first_hidden(session, wanted, until)
    # What is hidden is at most a grid step old; a job with such lines counts as running until it shows them.
    return {
        job_id: Head("running", hidden[job_id] - 1) if job_id in hidden else Head(state, seq)
        for job_id, (state, seq) in lines.items()
    }


def attempts(context: Context, caller: Caller, job_id: str) -> list[AttemptView]:
    """Return a job's attempts.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        job = find(session, caller, job_id)
        grid = context.settings.visible_grid_seconds
        until = queries.grid_time(session, grid)
        return [
            AttemptView(
                number=attempt.number,
                started_at=rfc3339(attempt.started_at),
                opened_at=rfc3339(attempt.opened_at),
                ended_at=rfc3339(_seen_at(attempt.ended_at, until, grid)),
                outcome=None if _seen_at(attempt.ended_at, until, grid) is None else attempt.outcome,
            )
            for attempt in queries.attempts(session, job.id)
        ]


def _seen_at(at: float | None, until: float, grid_seconds: float) -> float | None:
    return queries.on_grid(at, grid_seconds) if at is not None and at <= until else None


def artifacts(context: Context, caller: Caller, job_id: str) -> list[ArtifactView]:
    """Return what a job left behind that the caller may have.

    Raises:
        NotFound: it does not exist for the caller.
    """
    view = get(context, caller, job_id)
    left = [ArtifactView(name="report.json", media_type="application/json", href=f"/v1/jobs/{job_id}/report")]
    if view.result is not None:
        base = f"/v1/models/{view.result.model}/export?format="
        left += [
            ArtifactView(name="model.json", media_type="application/json", href=f"{base}json"),
            ArtifactView(name="model.safetensors", media_type="application/octet-stream", href=f"{base}safetensors"),
        ]
    return left


def report(context: Context, caller: Caller, job_id: str) -> dict[str, Any]:
    """Return a job's privacy report: what was reserved and spent, what that promises, and where the ledger stands.

    Raises:
        NotFound: it does not exist for the caller.
    """
    view = get(context, caller, job_id)
    with context.database.read() as session:
        job = find(session, caller, job_id)
        scope = session.get_one(Scope, job.scope_id)
        account = ledger.balance(session, scope.id)
        charged = compose(ledger.executed_by(session, job))
        told = privacy_report(charged, account.terms, Adjacency(scope.adjacency), declared=True)
        return {
            "object": "report",
            "job": view.model_dump(mode="json"),
            "scope": scope.id,
            "units": scope.units,
            "unit": scope.unit,
            "privacy": told.model_dump(mode="json"),
            "ledger": {"entries": scope.seq, "head": scope.head},
        }
