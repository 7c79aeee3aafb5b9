"""Use cases of released models: all post-processing of what was paid for, so reading is free."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from safetensors.numpy import save
from sqlalchemy.orm import Session

from core.errors import Conflict, Forbidden, ModelRetired, NotFound
from core.inference import results
from core.inference.results import Released
from core.service.context import Caller, Context
from core.service.scopes import viewer
from core.service.tables import coefficient_table
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


def _released(context: Context, caller: Caller, model_id: str) -> tuple[Released, str]:
    """Return what a model released, and its job's identifier."""
    with context.database.read() as session:
        model, job, _ = find(session, context, caller, model_id)
        return Released.model_validate(model.release), job.id


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


def summary(context: Context, caller: Caller, model_id: str, level: float | None) -> dict[str, Any]:
    """Return the coefficient table, in the units of the declared columns.

    Raises:
        NotFound: it does not exist for the caller.
    """
    released, job_id = _released(context, caller, model_id)
    return {"model": model_id, "job": job_id, **results.summary(released, level)}


def summary_text(context: Context, caller: Caller, model_id: str, level: float | None) -> str:
    """Return the same table as text, as statistics packages print it.

    Raises:
        NotFound: it does not exist for the caller.
    """
    return coefficient_table(summary(context, caller, model_id, level))


def intervals(context: Context, caller: Caller, model_id: str, level: float | None) -> dict[str, Any]:
    """Return each coefficient's interval.

    Raises:
        NotFound: it does not exist for the caller.
        Invalid: the job asked for no intervals.
    """
    released, _ = _released(context, caller, model_id)
    shown = released.level if level is None else level
    return {"model": model_id, "level": shown, "intervals": results.intervals(released, shown)}


def odds_ratios(context: Context, caller: Caller, model_id: str, level: float | None) -> dict[str, Any]:
    """Return odds ratios of a logistic model.

    Raises:
        NotFound: it does not exist for the caller.
        Invalid: this is no logistic model.
    """
    released, _ = _released(context, caller, model_id)
    shown = released.level if level is None else level
    return {"model": model_id, "level": shown, "odds_ratios": results.odds_ratios(released, shown)}


def contrast(
    context: Context, caller: Caller, model_id: str, weights: Mapping[str, float], level: float | None
) -> dict[str, Any]:
    """Return a linear combination of coefficients with its interval.

    Raises:
        NotFound: it does not exist for the caller.
        Invalid: an unknown coefficient, or no intervals were asked for.
    """
    released, _ = _released(context, caller, model_id)
    shown = released.level if level is None else level
    return {"model": model_id, "level": shown, **results.contrast(released, weights, shown)}


def wald_test(
    context: Context,
    caller: Caller,
    model_id: str,
    hypotheses: Sequence[Mapping[str, float]],
    values: Sequence[float] | None,
) -> dict[str, Any]:
    """Test linear hypotheses jointly.

    Raises:
        NotFound: it does not exist for the caller.
        Invalid: an unknown coefficient, values of another length, or no intervals were asked for.
    """
    released, _ = _released(context, caller, model_id)
    return {"model": model_id, **results.wald_test(released, hypotheses, values)}


def methods(context: Context, caller: Caller, model_id: str) -> str:
    """Return a paragraph for the methods section of a paper.

    Raises:
        NotFound: it does not exist for the caller.
    """
    return results.methods_paragraph(_released(context, caller, model_id)[0])


def predict(
    context: Context, caller: Caller, model_id: str, rows: Sequence[Mapping[str, Any]]
) -> list[dict[str, float]]:
    """Predict rows given in the units of the declared columns.

    Raises:
        NotFound: it does not exist for the caller.
        Invalid: a row misses a column of the model, or has a value that cannot be read.
    """
    return results.predict(_released(context, caller, model_id)[0], rows)


def export_json(context: Context, caller: Caller, model_id: str) -> dict[str, Any]:
    """Return a model with all that is needed to predict without the service.

    Raises:
        NotFound: it does not exist for the caller.
    """
    released, job_id = _released(context, caller, model_id)
    shown = results.declared(released)
    return {
        "format": "farthing-model",
        "version": 1,
        "model": model_id,
        "job": job_id,
        "coefficients": dict(zip(shown.names, shown.estimate, strict=True)),
        "covariance": shown.covariance,
        "released": released.model_dump(mode="json"),
    }


def export_safetensors(context: Context, caller: Caller, model_id: str) -> bytes:
    """Return coefficients and covariance in declared units as safetensors; names and design are in its metadata.

    Raises:
        NotFound: it does not exist for the caller.
    """
    released, job_id = _released(context, caller, model_id)
    shown = results.declared(released)
    tensors = {"coefficients": np.asarray(shown.estimate, dtype=np.float64)}
    if shown.covariance is not None:
        tensors["covariance"] = np.asarray(shown.covariance, dtype=np.float64)
    metadata = {
        "model": model_id,
        "job": job_id,
        "kind": released.kind,
        "names": json.dumps(shown.names),
        "privacy": released.privacy.model_dump_json(),
    }
    return bytes(save(tensors, metadata))
