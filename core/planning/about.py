"""Whether a released model is a point of the loss that a job would train: the same parameters of the same encoding."""

from math import hypot
from typing import Final

from core.inference import looks
from core.inference.description import ReleasedDescription
from core.inference.network import AnyReleased, ReleasedNetwork
from core.inference.released import Released, equation_of, residual_scale
from core.losses.robust import Huber
from core.models.description import DescriptionModel
from core.models.design import Design
from core.models.kinds import LinearModel, NetworkModel, RegressionModel
from core.models.network.model import Lora
from core.planning.planner import PlannedJob

SAME_SCALE: Final = 1e-6
"""By which part a residual scale that a job gives may differ from the one that a model was released with."""


def misfit(planned: PlannedJob, released: AnyReleased) -> str | None:
    """Say why a released model is no point for a planned job, in words that follow its name; None where it is one."""
    model = planned.spec.model
    if "looked" in planned.spec.optimizer.given:
        if not isinstance(released, ReleasedDescription):
            taker = planned.spec.optimizer.kind
            return f"is a {released.kind} model: {taker} takes its look from a description (`describe`)"
        return looks.misfit(planned.design, released)
    if isinstance(model, NetworkModel):
        if not isinstance(released, ReleasedNetwork):
            return f"is of the kind {released.kind}, not a network"
        return _network_misfit(planned, model, released)
    if isinstance(model, DescriptionModel) or not isinstance(released, Released) or released.kind != model.kind:
        return f"is of the kind {released.kind}, not {model.kind}"
    return _encoding_misfit(planned, released) or _equation_misfit(planned, model, released) or _away(planned, released)


def _away(planned: PlannedJob, released: Released) -> str | None:
    """Say that a point lies where the job's iterates may not be."""
    radius = getattr(planned.spec.optimizer, "radius", None)
    # A scale that is taken for known is no part of the job's iterates.
    theta = released.theta if known_scale(planned, released) is None else released.coefficients.tolist()
    if radius is None or hypot(*theta) <= radius:
        return None
    return f"lies at {hypot(*theta):.4g} from zero, outside the radius of {radius:.4g}: raise /optimizer/radius"


def _encoding_misfit(planned: PlannedJob, released: Released | ReleasedNetwork) -> str | None:
    """Name the first difference of two designs: target, columns, intercept or terms; None: they are equal."""
    wanted, found = planned.design, released.design
    if found == wanted:
        return None
    name = found.target_column.name
    if name != wanted.target_column.name:
        return f"has the target {name}, not {wanted.target_column.name}"
    if found.target_column != wanted.target_column or found.target != wanted.target:
        return f"was trained where the target {name} is declared otherwise"
    if found.read != wanted.read:
        same = sorted(found.read) == sorted(wanted.read)
        return "reads the same columns in another order" if same else "reads other columns"
    if found.intercept != wanted.intercept:
        return (
            "has an intercept where the job has none" if found.intercept else "has no intercept where the job has one"
        )
    return _terms_misfit(found, wanted)


def _terms_misfit(found: Design, wanted: Design) -> str:
    """Say in which column, or in what beside the main effects, two designs of the same columns differ first."""
    name = next((one.name for one, other in zip(found.used, wanted.used, strict=True) if one != other), None)
    if name is not None:
        return f"was trained where the column {name} is declared otherwise"
    if found.offset != wanted.offset:
        return "has another offset"
    if found.sampling != wanted.sampling:
        return "has other sampling weights"
    return "has other interactions"


def _equation_misfit(planned: PlannedJob, model: RegressionModel, released: Released) -> str | None:
    """Say in which setting of the model two equations differ first."""
    found, wanted = released.equation, equation_of(model, planned.design)
    known = known_scale(planned, released)
    if known is not None:
        released_scale = residual_scale(released)
        assert released_scale is not None, "an unknown scale is released"
        if known.scale is None or abs(known.scale - released_scale.estimate) > SAME_SCALE * released_scale.estimate:
            return f"was released with the residual scale {released_scale.estimate!r}: give it as scale in /model/loss"
        # The model's loss as it is once its own scale is given.
        found = tuple(Huber(c=one.c, scale=known.scale) if isinstance(one, Huber) else one for one in found)
    names = ("kind", "columns", "loss", "weights", "ridge")
    pairs = zip(names, found, wanted, strict=True)
    name = next((name for name, one, other in pairs if one != other), None)
    return None if name is None else f"was trained with another {name}"


def known_scale(planned: PlannedJob, released: Released) -> Huber | None:
    """Return the loss of a job that takes for known what a model estimated, its residual scale; None: of any other.

    The model's coefficients are then the point, and its scale is public: it was released.
    """
    model = planned.spec.model
    if not released.scaled or not isinstance(model, LinearModel) or not isinstance(model.loss, Huber):
        return None
    return None if model.loss.joint else model.loss


def _network_misfit(planned: PlannedJob, model: NetworkModel, released: ReleasedNetwork) -> str | None:
    """Say why a network is no point: its parameters are the public start and a change of the trained ones alone."""
    for name in ("layers", "train", "pretrained", "loss"):
        if getattr(released.model, name) != getattr(model, name):
            return f"was trained with other {name}"
    if isinstance(model.train, Lora) and released.adapters is None:
        return "has its low-rank changes merged into their matrices, and was released without them: train it anew"
    return _encoding_misfit(planned, released)
