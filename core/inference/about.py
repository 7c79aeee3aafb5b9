"""Whether a released model is a point of the loss that a job would train: the same parameters of the same encoding."""

from math import hypot

from core.catalogue.models import NetworkModel, RegressionModel
from core.catalogue.network.trained import start_parameters, trained_parameters
from core.catalogue.planning import PlannedJob
from core.inference.network import AnyReleased, ReleasedNetwork
from core.inference.released import Released, equation_of


def misfit(planned: PlannedJob, released: AnyReleased) -> str | None:
    """Say why a released model is no point for a planned job, in words that follow its name; None where it is one."""
    model = planned.spec.model
    if isinstance(model, NetworkModel):
        if not isinstance(released, ReleasedNetwork):
            return f"is of the kind {released.kind}, not a network"
        return _network_misfit(planned, model, released)
    if isinstance(released, ReleasedNetwork) or released.kind != model.kind:
        return f"is of the kind {released.kind}, not {model.kind}"
    return _encoding_misfit(planned, released) or _equation_misfit(planned, model, released) or _away(planned, released)


def _away(planned: PlannedJob, released: Released) -> str | None:
    """Say that a point lies where the job's iterates may not be."""
    radius = getattr(planned.spec.optimizer, "radius", None)
    if radius is None or hypot(*released.theta) <= radius:
        return None
    return (
        f"lies at {hypot(*released.theta):.4g} from zero, outside the radius of {radius:.4g}: raise /optimizer/radius"
    )


def _encoding_misfit(planned: PlannedJob, released: AnyReleased) -> str | None:
    """Say in which column two designs differ first."""
    wanted, found = planned.design, released.design
    if found == wanted:
        return None
    if found.target_column != wanted.target_column or found.target != wanted.target:
        return f"has the target {found.target_column.name}, or one declared otherwise"
    if found.read != wanted.read or found.intercept != wanted.intercept:
        return "reads other columns, in another order, or an intercept where the job has none"
    pairs = zip(found.columns, wanted.columns, strict=True)
    name = next((one.name for one, other in pairs if one != other), wanted.read[0])
    return f"was trained where the column {name} is declared otherwise"


def _equation_misfit(planned: PlannedJob, model: RegressionModel, released: Released) -> str | None:
    """Say in which setting of the model two equations differ first."""
    names = ("kind", "columns", "loss", "weights", "ridge")
    pairs = zip(names, released.equation, equation_of(model, planned.design), strict=True)
    name = next((name for name, found, wanted in pairs if found != wanted), None)
    return None if name is None else f"was trained with another {name}"


def _network_misfit(planned: PlannedJob, model: NetworkModel, released: ReleasedNetwork) -> str | None:
    """Say why a network is no point: its parameters are the public start and a change of the trained ones alone."""
    shape = planned.design.shape
    if len(start_parameters(model.layers, shape, model.train)) > len(trained_parameters(model.layers, shape, "all")):
        return "may be no point where low-rank changes are trained: a release has them merged into their matrices"
    for name in ("layers", "train", "pretrained", "loss"):
        if getattr(released.model, name) != getattr(model, name):
            return f"was trained with other {name}"
    return _encoding_misfit(planned, released)
