"""Which released models a job may be about: those that its owner may have, and that are points of its own loss."""

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import FieldError, Invalid, ModelRetired, ModelRetracted, NotFound
from core.db.model_reads import OPEN
from core.db.tables import Dataset, Model
from core.inference.network import read_released
from core.jobs import subjects
from core.planning.about import misfit
from core.planning.planner import PlannedJob
from core.service import models
from core.service.context import Caller, Context


def check(
    session: Session, context: Context, caller: Caller, planned: PlannedJob, datasets: Collection[Dataset]
) -> None:
    """Refuse models that a planned job cannot be about.

    Args:
        session: a read-only snapshot.
        context: of the service.
        caller: the principal that asks.
        planned: the job, of a federated one a site's: all sites declare the model's columns alike.
        datasets: that the job would read.

    Raises:
        Invalid: a model does not exist for the caller, is kept no more, waits for approval or was rejected. Or it has
            other parameters, or was made of records that the method must not read again. Each has a pointer.
    """
    wrong = [
        FieldError(f"/models/{place}", f"{name} {fault}")
        for place, name in enumerate(planned.spec.models)
        if (fault := _fault(session, context, caller, planned, datasets, name)) is not None
    ]
    # Counted only where every model may be used: a missing one would be a second fault.
    wrong = wrong or _miscounted(session, planned)
    if wrong:
        raise Invalid(f"The job cannot be about these models: {wrong[0].detail}.", *wrong)


def _miscounted(session: Session, planned: PlannedJob) -> list[FieldError]:
    """Say that models stand for other than the points that were priced: one with iterates stands for all of them."""
    settings = planned.spec.optimizer
    if settings.points is None:
        return []
    points = 0
    for model in session.execute(select(Model).where(Model.id.in_(planned.spec.models))).scalars():
        released = read_released(model.release)
        points += len(getattr(released, "iterates", None) or [released])
    if points == settings.points:
        return []
    return [FieldError("/optimizer/candidates", f"is {settings.points}, and the models are {points} points")]


def _fault(
    session: Session,
    context: Context,
    caller: Caller,
    planned: PlannedJob,
    datasets: Collection[Dataset],
    name: str,
) -> str | None:
    """Say why a job cannot be about one model, in words that follow its name."""
    try:
        model, _ = models.find(session, context, caller, name)
    except ModelRetired:
        return "is kept no more: train it anew"
    except ModelRetracted:
        return "was retracted: train it anew, or name another model"
    except NotFound:
        return "does not exist: name a model that you may see"
    if model.approval not in OPEN:
        return f"is {model.approval}: a job may be about it once its owner has approved it"
    fault = misfit(planned, read_released(model.release))
    return fault or _of_others(session, planned, datasets, name)


def _of_others(session: Session, planned: PlannedJob, datasets: Collection[Dataset], name: str) -> str | None:
    """Say that a model was made of records that the method must not meet again, or of others than it reads."""
    if "looked" in planned.spec.optimizer.given:
        return _elsewhere(session, datasets, name)
    if not planned.spec.optimizer.needs_apart:
        return None
    seen = subjects.origin(session, [name]).datasets & {dataset.id for dataset in datasets}
    return f"was made of the records of {min(seen)}: name a dataset that it has not seen" if seen else None


def _elsewhere(session: Session, datasets: Collection[Dataset], name: str) -> str | None:
    """Say that a description is of other records than those that a job reads: its look may be wrong for them."""
    made = subjects.origin(session, [name])
    if made.datasets == {dataset.id for dataset in datasets}:
        return None
    if made.scopes != {dataset.scope_id for dataset in datasets}:
        return "describes people of another scope: name a description of this dataset, or leave it out"
    return f"describes {min(made.datasets)}: name a description of this dataset, or leave it out"
