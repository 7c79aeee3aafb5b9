"""Use cases of released models as they were released; figures derived from them are in `readings`."""

import json
from typing import Any

import numpy as np
from safetensors.numpy import save
from sqlalchemy.orm import Session

from core.base.errors import FieldError, Forbidden, Invalid, ModelRetired, ModelRetracted, NotFound
from core.db import model_reads
from core.db import reads as queries
from core.db.model_reads import OPEN
from core.db.tables import Job, Model
from core.inference.exports import export_of
from core.inference.network import (
    AnyReleased,
    ReleasedNetwork,
    make_onnx,
    present_release,
    read_released,
    shown,
    with_coefficients,
)
from core.inference.released import Released, declared
from core.jobs import approvals, mocks, subjects
from core.ledger import releases
from core.methods.registry import method_of
from core.operations.retention import RETIRED, RETRACTED
from core.service import mock_jobs
from core.service.context import Caller, Context
from core.service.presenters import decision_of
from core.service.scopes import viewer
from core.service.views import rfc3339
from farthing.schemas.models import ModelView


def find(session: Session, context: Context, caller: Caller, model_id: str) -> tuple[Model, Job]:
    """Return a model with its job if the caller may have it by now.

    Before an asked-for approval only the owners of scopes that ask do, whatever else a role sees. Right after it was
    made nobody does, until the next point of the time grid.

    Raises:
        NotFound: it does not exist for the caller.
        ModelRetired: it was kept as long as models are kept here.
        ModelRetracted: the submitter or an owner of the data took it back.
        ScopeFrozen: it is not what the ledger says that its job released.
    """
    until = queries.grid_time(session, context.settings.visible_grid_seconds)
    if (mock_id := mocks.job_of(model_id)) is not None:
        return mock_jobs.released(session, caller, mock_id, until)
    found = model_reads.model(session, viewer(caller), model_id, until)
    if found is None:
        raise NotFound("There is no such model.")
    model, job, _ = found
    if model.approval == RETIRED:
        raise ModelRetired("This model is kept no more. Its job, report and charges are; clone the job to pay anew.")
    if model.approval == RETRACTED:
        raise ModelRetracted(
            "This model was taken back by the submitter of its job or by an owner of the data. Its job, report and "
            "charges stay. To train it again, clone the job; the clone pays again."
        )
    releases.refuse_changed(session, model, job)
    return model, job


def is_mock(model_id: str) -> bool:
    """Tell by its identifier whether a model was trained on rows drawn from a declaration."""
    return mocks.job_of(model_id) is not None


def released_by(context: Context, caller: Caller, model_id: str) -> tuple[AnyReleased, Job]:
    """Return what a model released, and its job.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        model, job = find(session, context, caller, model_id)
        released = read_released(model.release)
        if isinstance(released, Released):
            released = released.model_copy(update={"row_words": method_of(released.optimizer).row_words})
        return released, job


def coefficients_of(context: Context, caller: Caller, model_id: str, what: str) -> tuple[Released, Job]:
    """Return what a model with coefficients released, and its job.

    Raises:
        NotFound: it does not exist for the caller.
        Invalid: it is a network or a description, which has no `what`.
    """
    released, job = released_by(context, caller, model_id)
    return with_coefficients(released, what), job


def get(context: Context, caller: Caller, model_id: str) -> ModelView:
    """Return a model as it was released.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        model, job = find(session, context, caller, model_id)
        return _view(session, context, caller, model, job)


def _view(session: Session, context: Context, caller: Caller, model: Model, job: Job) -> ModelView:
    until = queries.grid_time(session, context.settings.visible_grid_seconds)
    error_bounds = [
        {"model": one.id, "job": by.id, **bound}
        for one, by in queries.error_bounds(session, viewer(caller), model.id)
        if one.approval in OPEN
        and one.created_at <= until
        and (bound := present_release(one.release)["error_bound"]) is not None
    ]
    said = None if job.is_federated else releases.decisions(session, [job.id]).get(job.id)
    return ModelView(
        id=model.id,
        job=model.job_id,
        dataset=None if job.is_federated else model.dataset_id,
        models=list(job.spec.get("models", ())),
        approval=model.approval,
        decision=None if said is None else decision_of(*said),
        mock=mocks.is_mock(job.id),
        release=shown(model.release),
        error_bounds=error_bounds,
        created_at=rfc3339(queries.on_grid(model.created_at, context.settings.visible_grid_seconds)),
    )


def judge(context: Context, caller: Caller, model_id: str, verdict: releases.Said, reason: str = "") -> ModelView:
    """Approve or reject a release, where the scope asks for that: its owner alone.

    A federated job's is approved once every scope that asks has approved it, and rejected by one.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is not the caller's to judge.
        Conflict: it needs no approval, or was judged otherwise before.
    """

    def work(session: Session) -> ModelView:
        model, job = find(session, context, caller, model_id)
        if caller.id not in queries.judges(session, model, job):
            raise Forbidden("Only the owner of the data may judge this release.")
        # The model's row, locked and read again: of two verdicts at a time the first counts.
        subjects.take(session, model)
        approvals.judge(session, model, job, verdict, reason=reason, actor=caller.id)
        return _view(session, context, caller, model, job)

    return context.database.transaction(work)


def waiting(context: Context, caller: Caller, limit: int) -> list[str]:
    """Return the ids of the releases that wait for the caller's approval, oldest first."""
    with context.database.read() as session:
        until = queries.grid_time(session, context.settings.visible_grid_seconds)
        found = session.execute(model_reads.awaiting(caller.id, until).order_by(Model.id).limit(limit))
        return list(found.scalars())


def export_json(context: Context, caller: Caller, model_id: str) -> dict[str, Any]:
    """Return a model with all that is needed to predict without the service.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        model, job = find(session, context, caller, model_id)
        return export_of(model.release, model_id, job.id)


def export_safetensors(context: Context, caller: Caller, model_id: str) -> bytes:
    """Return coefficients and covariance in declared units as safetensors; names and design are in its metadata.

    Of a network its parameters, float32, each under its own name; the layers and the design are in the metadata.

    Raises:
        NotFound: it does not exist for the caller.
        Invalid: it is a description.
    """
    released, job = released_by(context, caller, model_id)
    metadata = _metadata(model_id, job, released)
    if isinstance(released, ReleasedNetwork):
        return bytes(save(released.tensors, metadata))
    table = declared(with_coefficients(released, "tensors"))
    tensors = {"coefficients": np.asarray(table.estimate, dtype=np.float64)}
    if table.covariance is not None:
        tensors["covariance"] = np.asarray(table.covariance, dtype=np.float64)
    return bytes(save(tensors, metadata | {"names": json.dumps(table.names)}))


def export_onnx(context: Context, caller: Caller, model_id: str) -> bytes:
    """Return a network as ONNX; the layers and the design are in its metadata.

    Raises:
        NotFound: it does not exist for the caller.
        Invalid: it is no network.
    """
    released, job = released_by(context, caller, model_id)
    if not isinstance(released, ReleasedNetwork):
        raise Invalid("Only networks are exported as ONNX.", FieldError("#query/format", "ask for json or safetensors"))
    return make_onnx(released, _metadata(model_id, job, released))


def _metadata(model_id: str, job: Job, released: AnyReleased) -> dict[str, str]:
    """Return what a file says of itself, as texts."""
    told = {
        "model": model_id,
        "job": job.id,
        "kind": released.kind,
        "privacy": released.privacy.model_dump_json(),
    }
    if isinstance(released, ReleasedNetwork):
        told |= {"network": released.model.model_dump_json(), "design": released.design.model_dump_json()}
    return told
