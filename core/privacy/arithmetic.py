"""Public arithmetic shared by the methods' plans: field types, floors and the size of noise."""

from math import log, sqrt
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field

from core.base.errors import ensure
from core.privacy.facts import Facts

M = TypeVar("M", bound=BaseModel)

Finite = Annotated[float, Field(allow_inf_nan=False)]
Steps = Annotated[int, Field(ge=1, le=20_000)]
Mu = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Damping = Annotated[float, Field(gt=0, le=1)]
Radius = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Floor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Start = Literal["zeros"] | tuple[Finite, ...]
AnyStart = Start | Literal["random"]
"""`random`: drawn uniformly at distance 1 from zero, in encoded units, by randomness that depends on no record."""
MatrixNoise = Literal["tight", "printed"]

CONFIDENCE = 0.95
SLACK = 1e-9
"""Relative rounding allowed between figures that must agree."""
PLANNED_RADIUS = 1000.0
LARGEST_FLOOR_PART = 0.1
"""Largest planned floor of a matrix that is inverted as it is, as a part of the public curvature bound."""


def fill(settings: M, **planned: object) -> M:
    """Return the same settings with their open fields, those that are None, taken from `planned`."""
    return settings.model_copy(
        update={name: value for name, value in planned.items() if getattr(settings, name) is None}
    )


def closed(settings: BaseModel, plan: type[M], **found: object) -> M:
    """Return the plan that has these settings, those that are open taken from `found`.

    Raises:
        PrivacyInvariantError: a field that the plan closes is open still.
    """
    values = {**vars(settings), **{name: value for name, value in found.items() if getattr(settings, name) is None}}
    for name, field in plan.model_fields.items():
        # A plan declares anew, and without a default, each field that planning closes.
        ensure(not field.is_required() or values[name] is not None, f"{plan.__name__}.{name} is left open")
    return plan.model_construct(settings.model_fields_set | found.keys(), **values)


def matrix_sigma(mu: float, mode: MatrixNoise) -> float:
    """Return the noise multiplier of a matrix answer worth `mu`; `printed` keeps the paper's factor 2 for sqrt(2)."""
    return 1 / mu if mode == "tight" else sqrt(2) / mu


def matrix_floor(deviation: float, dimension: int, largest: float, multiple: float) -> float:
    """Return a floor for a noised matrix: a multiple of the spectral size of its noise, at most `largest`.

    A symmetric p x p matrix of independent entries of standard deviation s has its eigenvalues within 2 s sqrt(p), up
    to lower order. Eigenvalues below about that cannot be distinguished from noise.
    """
    return min(multiple * deviation * sqrt(dimension), largest)


def noise_norm(deviation: float, dimension: int, steps: int) -> float:
    """Return a bound that, with probability CONFIDENCE, no step's noise vector exceeds (Gaussian concentration)."""
    return deviation * (sqrt(dimension) + sqrt(2 * log(steps / (1 - CONFIDENCE))))


def required_curvature_bound(facts: Facts) -> float:
    """Return Bbar; jobs whose loss has none are refused before they are planned."""
    assert facts.curvature_bound is not None, "the loss bounds no curvature, so no Hessian may be asked"
    return facts.curvature_bound
