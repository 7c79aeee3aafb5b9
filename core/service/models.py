"""Use cases of released models as they were released; what is reckoned from them is in `readings`."""

import json
from typing import Any, Literal

import numpy as np
from safetensors.numpy import save
from sqlalchemy.orm import Session

from core.errors import Conflict, Forbidden, ModelRetired, NotFound
from core.inference.released import Released, declared, residual_scale
from core.service.context import Caller, Context
from core.service.scopes import viewer
from core.service.views import ModelView, rfc3339
from core.store import queries
from core.store.retention import RETIRED
from core.store.tables import Job, Model, Scope

_OPEN = ("not-needed", "approved")


def find(session: Session, context: Context, caller: Caller, model_id: str) -> tuple[Model, Job, Scope]:
    """Return a model with its job and scope, if the caller may have it by now.

    Before an asked-for approval only the scope's owner and admins do; right after it was made nobody does, until the
    next point of the time grid.

    Raises:
        NotFound: it does not exist for the caller.
        ModelRetired: it was kept as long as models are kept here.
    """
    found = queries.model(session, viewer(caller), model_id)
    if found is None:
        raise NotFound("There is no such model.")
    model, _, scope = found
    if model.approval == RETIRED:
        raise ModelRetired("This model is kept no more. Its job, report and charges are; clone the job to pay anew.")
    until = queries.grid_time(session, context.settings.visible_grid_seconds)
    judges = caller.role == "admin" or caller.id == scope.owner_id
    if model.created_at > until or not (model.approval in _OPEN or judges):
        raise NotFound("There is no such model.")
    return found


def released_by(context: Context, caller: Caller, model_id: str) -> tuple[Released, Job]:
    """Return what a model released, and its job.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        model, job, _ = find(session, context, caller, model_id)
        return Released.model_validate(model.release), job


def get(context: Context, caller: Caller, model_id: str) -> ModelView:
    """Return a model as it was released.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        return _view(context, find(session, context, caller, model_id)[0])


def _view(context: Context, model: Model) -> ModelView:
    return ModelView(
        id=model.id,
        job=model.job_id,
        dataset=model.dataset_id,
        approval=model.approval,
        release=model.release,
        created_at=rfc3339(queries.on_grid(model.created_at, context.settings.visible_grid_seconds)),
    )


def judge(context: Context, caller: Caller, model_id: str, verdict: Literal["approved", "rejected"]) -> ModelView:
    """Approve or reject a release, where the scope asks for that: its owner or an admin.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is not the caller's to judge.
        Conflict: it needs no approval, or was judged otherwise before.
    """

    def work(session: Session) -> ModelView:
        model, _, scope = find(session, context, caller, model_id)
        if caller.role != "admin" and caller.id != scope.owner_id:
            raise Forbidden("Only the owner of the data, or an admin, may judge this release.")
        if model.approval not in {"pending", verdict}:
            raise Conflict(f"This release is {model.approval}.")
        model.approval = verdict
        session.flush()
        return _view(context, model)

    return context.database.run(work)


def export_json(context: Context, caller: Caller, model_id: str) -> dict[str, Any]:
    """Return a model with all that is needed to predict without the service.

    Raises:
        NotFound: it does not exist for the caller.
    """
    released, job = released_by(context, caller, model_id)
    shown, scale = declared(released), residual_scale(released)
    return {
        "format": "farthing-model",
        "version": 1,
        "model": model_id,
        "job": job.id,
        "coefficients": dict(zip(shown.names, shown.estimate, strict=True)),
        "covariance": shown.covariance,
        "scale": None if scale is None else scale.model_dump(),
        "released": released.model_dump(mode="json"),
    }


def export_safetensors(context: Context, caller: Caller, model_id: str) -> bytes:
    """Return coefficients and covariance in declared units as safetensors; names and design are in its metadata.

    Raises:
        NotFound: it does not exist for the caller.
    """
    released, job = released_by(context, caller, model_id)
    shown = declared(released)
    tensors = {"coefficients": np.asarray(shown.estimate, dtype=np.float64)}
    if shown.covariance is not None:
        tensors["covariance"] = np.asarray(shown.covariance, dtype=np.float64)
    metadata = {
        "model": model_id,
        "job": job.id,
        "kind": released.kind,
        "names": json.dumps(shown.names),
        "privacy": released.privacy.model_dump_json(),
    }
    return bytes(save(tensors, metadata))
