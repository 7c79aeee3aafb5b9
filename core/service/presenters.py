"""Views of a job: events before the next point of the time grid are left out, as is a model that waits for approval."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from core.db import reads as queries
from core.db.model_reads import GONE, OPEN
from core.db.reads import Viewer
from core.db.tables import SEVERAL, Job, JobEvent, Model
from core.jobs import federations, seats, workers
from core.ledger import chain, ledger, releases
from core.ledger.accounts import Balance
from core.methods.registry import source_of
from core.planning.job import RETRY_ALLOWANCE, Resources, present_names
from core.privacy.amounts import write_figure
from core.privacy.events import EVENT, Event, compose
from core.service.budgets import NO_COST, allowance_figures, cost_figures, empty_budget
from core.service.context import Context
from core.service.failure_messages import failed_for, failure_code
from core.service.guarantees import sees_client
from core.service.views import rfc3339
from farthing.schemas.jobs import (
    CostFigures,
    FailureView,
    FederationView,
    JobCost,
    JobView,
    ProgressView,
    ResultView,
    SiteView,
)
from farthing.schemas.models import ReleaseDecision

_SCHEDULE: Final[TypeAdapter[list[Event]]] = TypeAdapter(list[Event])
_RESOURCES: Final = {name: field.default for name, field in Resources.model_fields.items()}
"""Defaults of fields that a stored job lacks."""


def views(session: Session, context: Context, seen: Sequence[tuple[Viewer, Job]]) -> list[JobView]:
    """Return jobs as their viewers, for whom they exist, are to see them now."""
    clients = queries.clients_of(session, [job.id for _, job in seen if job.is_federated])
    grid = context.settings.visible_grid_seconds
    found = {job.id: job for job in (*(job for _, job in seen), *(one for group in clients.values() for one in group))}
    hidden = queries.first_hidden(session, found, queries.grid_time(session, grid))
    models = queries.models_of(session, [job.id for job in found.values() if job.state == "succeeded"])

    names = queries.principal_names(session, [job.owner_id for job in found.values()])
    said = releases.decisions(session, [job.id for job in found.values() if job.state == "succeeded"])
    waiting = Waiting(session, context)

    def view(viewer: Viewer, job: Job) -> JobView:
        before = hidden.get(job.id)
        until = None if before is None else _Seen.of(queries.history(session, job.id, 0, before, 10_000))
        model = models.get(job.id)
        cost = None if job.is_federated else _cost(session, job, ended=until is None and job.finished_at is not None)
        shown = visible(session, viewer, job, model)
        made = _view(job, names[job.owner_id], cost, shown, until=until, made=model, grid_seconds=grid)
        if until is None and job.id in said:
            made = made.model_copy(update={"decision": decision_of(*said[job.id])})
        if made.state == "queued" and (job.place is None or job.federation_id is None):
            why = waiting.words(viewer, job, clients.get(job.id, ()))
            made = made.model_copy(update={"waits_for": why})
        if not job.is_federated:
            return made
        group = [_client(session, viewer, client, view(viewer, client)) for client in clients[job.id]]
        return made.model_copy(update={"federation": _federation(job, group)})

    return [view(viewer, job) for viewer, job in seen]


@dataclass
class Waiting:
    """Says why queued jobs wait. Workers are looked up once for all of them, and only where one is queued."""

    session: Session
    context: Context

    @cached_property
    def _seconds(self) -> float:
        return seats.LEASES * self.context.settings.lease_seconds

    @cached_property
    def _serving(self) -> set[tuple[str, str]]:
        return workers.serving(self.session, self._seconds)

    def words(self, viewer: Viewer, job: Job, clients: Sequence[Job]) -> str | None:
        """Return what keeps a queued job from starting, None where a supervisor is there that could take it.

        Which sites others' clients are of is not for all.
        """
        if job.site == SEVERAL:
            return self._sites(viewer, job, clients)
        if (job.site, job.device) in self._serving:
            return None
        if any(site == job.site for site, _ in self._serving) or (job.device == "cuda" and not job.site):
            other = "a worker with a GPU" if job.device == "cuda" else "a worker that serves the queue cpu"
            return f"{other} that serves {job.site}" if job.site else other
        return f"a worker that serves {job.site}" if job.site else "any worker"

    def _sites(self, viewer: Viewer, job: Job, clients: Sequence[Job]) -> str | None:
        wanted = {client.site for client in clients if client.state == "queued"}
        wanted -= workers.sites(self.session, self._seconds, meeting=True)
        if not wanted:
            return None
        if not (viewer.sees_everything or viewer.id == job.owner_id):
            return "a worker that serves some client's site"
        named = ", ".join(site or "the service's own records" for site in sorted(wanted))
        return f"a worker that serves {named}"


def _client(session: Session, viewer: Viewer, client: Job, view: JobView) -> SiteView:
    """Return one site as a viewer of the federated job may see it: an owner gets no figure of another's budget."""
    place = client.place or 0
    if not sees_client(session, viewer, client):
        return SiteView(
            place=place, state=view.state, dataset=None, scope=None, site=None, job=None, cost=None, error=None
        )
    return SiteView(
        place=place,
        state=view.state,
        dataset=view.dataset,
        scope=view.scope,
        site=view.site,
        job=view.id,
        cost=view.cost,
        error=view.error,
    )


def _federation(job: Job, clients: Sequence[SiteView]) -> FederationView:
    return FederationView(job=job.id, place=None, quorum=federations.quorum_of(job), sites=list(clients))


def visible(session: Session, viewer: Viewer, job: Job, model: Model | None) -> Model | None:
    """Return a job's model if the viewer may have it: before approval only its judges do."""
    if model is None or model.approval in OPEN:
        return model
    if model.approval in GONE:
        return None
    return model if viewer.id in queries.judges(session, model, job) else None


def decision_of(body: Mapping[str, Any], said_at: float) -> ReleaseDecision:
    """Return what an owner said of a release, from its entry `decide` and the time of that."""
    return ReleaseDecision(
        outcome=body["outcome"], reason=body["reason"], by=body["actor"], decided_at=rfc3339(said_at)
    )


def queued_federation(job: Job, owner_name: str, clients: Sequence[tuple[Job, JobCost]]) -> JobView:
    """Return the view, for who asked for it, of a federated job that was just made."""
    shown = [
        SiteView(
            place=client.place or 0,
            state=client.state,
            dataset=client.dataset_id,
            scope=client.scope_id,
            site=client.site,
            job=client.id,
            cost=cost,
            error=None,
        )
        for client, cost in clients
    ]
    view = _view(job, owner_name, None, model=None, until=None)
    return view.model_copy(update={"federation": _federation(job, shown)})


def queued_view(job: Job, owner_name: str, cost: JobCost) -> JobView:
    """Return the view of a job that was just made, and that nobody has claimed yet."""
    return _view(job, owner_name, cost, model=None, until=None)


@dataclass(frozen=True)
class _Seen:
    """The standing of a job by its visible history, while later lines wait for the time grid."""

    state: str
    step: int

    @staticmethod
    def of(history: Sequence[JobEvent]) -> "_Seen":
        steps = [line.data["step"] for line in history if line.kind == "progress"]
        states = [line.kind for line in history if line.kind != "progress"]
        return _Seen(state=states[-1], step=steps[-1] if steps else 0)


def _view(
    job: Job,
    owner_name: str,
    cost: JobCost | None,
    model: Model | None,
    *,
    until: _Seen | None,
    made: Model | None = None,
    grid_seconds: float = 0.0,
) -> JobView:
    """Return a job's view; `until` replaces state and step while its newest lines are not to be seen yet."""
    ended = until is None
    finished_at = None if job.finished_at is None else queries.on_grid(job.finished_at, grid_seconds)
    spec = present_names(job.spec)
    return JobView(
        id=job.id,
        state=job.state if until is None else until.state,
        dataset=None if job.is_federated else job.dataset_id,
        scope=None if job.is_federated else job.scope_id,
        site=None if job.is_federated else job.site,
        owner=job.owner_id,
        owner_name=owner_name,
        model=spec["model"],
        models=list(spec.get("models", ())),
        method=source_of(spec["optimizer"]["kind"]),
        optimizer=spec["optimizer"],
        privacy=spec["privacy"],
        inference=spec["inference"],
        resources={**_RESOURCES, **spec.get("resources", {})},
        retry_allowance=spec.get("retry_allowance", RETRY_ALLOWANCE),
        progress=_progress(job, until),
        cost=cost,
        attempt=job.attempt,
        created_at=rfc3339(job.created_at),
        started_at=rfc3339(job.started_at),
        finished_at=rfc3339(finished_at) if ended else None,
        error=FailureView(code=failure_code(job.error_code)) if ended and job.error_code else None,
        failed_for=failed_for(job) if ended else None,
        result=ResultView(model=model.id) if ended and model is not None else None,
        approval=made.approval if ended and made is not None else None,
        labels=job.labels,
        clone_of=job.clone_of,
        federation=_membership(job),
    )


def _progress(job: Job, until: _Seen | None) -> ProgressView:
    """Return a job's steps from its plan and its visible step counter."""
    step = job.step if until is None else until.step
    has_ended = until is None and job.finished_at is not None
    return ProgressView(step=step, steps=job.steps, left=0 if has_ended else max(0, job.steps - step))


def _membership(job: Job) -> FederationView | None:
    """Return which federated job a client is of; nothing of the other clients."""
    if job.federation_id is None or job.place is None:
        return None
    return FederationView(job=job.federation_id, place=job.place, quorum=None, sites=None)


def _cost(session: Session, job: Job, *, ended: bool) -> JobCost:
    """Return the cost of a job; the part given back shows only once its end may be seen."""
    account = empty_budget(session, job.scope_id)
    charged = compose(ledger.executed_by(session, job)) if job.chunks_spent else None
    return JobCost(
        reserved=cost_figures(EVENT.validate_python(job.price), account, at_head=False),
        retry_allowance=_allowance(job, account),
        spent=cost_figures(charged, account, at_head=False),
        returned=cost_figures(_undrawn(job), account, at_head=False) if ended else None,
        delta=write_figure(account.terms.delta),
    )


def _undrawn(job: Job) -> Event | None:
    """Return what the chunks would have drawn that were reserved and never paid for."""
    rest = job.schedule[job.chunks_spent :]
    return compose(Counter(_SCHEDULE.validate_python(rest))) if rest else None


def _allowance(job: Job, account: Balance) -> CostFigures:
    """Return what a job reserved to pay lost chunks again."""
    if not any(map(any, job.allowance.values())):
        return NO_COST
    return _allowance_of(chain.canonical(job.schedule), job.spec.get("retry_allowance", RETRY_ALLOWANCE), account)


@lru_cache(maxsize=4096)
def _allowance_of(schedule: str, times: int, account: Balance) -> CostFigures:
    """Return what it costs to pay for the most expensive chunk of a schedule again: asked with every look at a job."""
    return allowance_figures(_SCHEDULE.validate_json(schedule), times, account, at_head=False)
