"""Approvals: releases that wait for the owner's yes, without their figures."""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request, Response

from api.cost import Cost, Work, by
from api.deps import Caller, Db
from api.errors import status_of
from api.pages import words
from api.pages.rendering import render
from api.pages.routes import FormFields, PageRoute, page, see_other, value_of
from api.routes import models as api
from core.base.errors import Invalid
from core.privacy.attacks import right_of_100
from core.service import jobs, models, naming
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.jobs import JobView
from farthing.schemas.models import ModelView

router = APIRouter(route_class=PageRoute)
ModelId = Annotated[str, Path(max_length=60)]
MOST: Final = 30
LEAST: Final = 3
"""Letters of a reason, as the API has it."""
_WHY: Final = "Write why you reject it. It stays in the ledger, and the analyst reads it."


@dataclass(frozen=True)
class Waiting:
    """A release that waits."""

    model: ModelView
    job: JobView
    title: str
    what: str
    by: str
    on: str
    costs: words.JobCosts | None
    right: str
    error: str


@page(router, "/approvals", cost=Cost(by("owner"), Work.HEAVY))
def show_approvals(request: Request, caller: Caller, db: Db) -> Response:
    """Show the releases that wait, oldest first."""
    return _show(request, caller, db, {})


def _show(request: Request, caller: Principal, context: Context, errors: dict[str, str]) -> Response:
    waiting = [_waiting(context, caller, one, errors.get(one, "")) for one in models.waiting(context, caller, MOST)]
    status = status_of(Invalid) if errors else 200
    return render(request, "approvals.html", {"waiting": waiting}, at="approvals", status=status)


def _waiting(context: Context, caller: Principal, model_id: str, error: str) -> Waiting:
    model = models.get(context, caller, model_id)
    job = jobs.get(context, caller, model.job)
    names = naming.names(context, caller, [job.owner, job.dataset])
    right = ""
    if job.cost is not None:
        mu = job.cost.spent.mu
        epsilon, delta = float(job.cost.spent.epsilon_alone), float(job.cost.delta)
        right = right_of_100(epsilon, delta, None if mu is None else float(mu))
    return Waiting(
        model=model,
        job=job,
        title=words.job_name(job),
        what=words.what(job.model),
        by=names.get(job.owner, job.owner),
        on=names.get(str(job.dataset), "several datasets"),
        costs=words.costs(job),
        right=right,
        error=error,
    )


@page(router, "/models/{model_id}/approve", api=api.approve_model, method="POST")
def approve(model_id: ModelId, form: FormFields, caller: Caller, db: Db) -> Response:
    """Let a release be seen."""
    models.judge(db, caller, model_id, "approved", value_of(form, "reason")[:500])
    return see_other("/approvals")


@page(router, "/models/{model_id}/reject", api=api.reject_model, method="POST")
def reject(model_id: ModelId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Keep a release from being seen, with a reason."""
    reason = value_of(form, "reason")[:500]
    if len(reason) < LEAST:
        request.state.code = Invalid.code
        return _show(request, caller, db, {model_id: _WHY})
    models.judge(db, caller, model_id, "rejected", reason)
    return see_other("/approvals")
