"""Stored row of a model, and its coefficients in the units of the declared columns.

Parameters are stored in encoded units with their covariance: coefficients first, for a multinomial model class after
class, then an unknown residual scale. Shown are declared units: declared = A encoded + offset, covariance = A V A^T,
one block of A for each class.
"""

from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.linalg import block_diag

from core.data.columns import Coded
from core.inference.checks import Checks
from core.inference.error_bound import ErrorBound
from core.inference.swept import SweepOutcome
from core.losses.categorical import Multinomial
from core.losses.registry import Loss
from core.losses.robust import Huber
from core.losses.weights import Weights
from core.models.design import Design
from core.models.kinds import MultinomialModel, RegressionModel
from core.privacy.facts import Frozen
from core.privacy.reports import Report

Vector = tuple[float, ...]
Matrix = tuple[Vector, ...]
Array = NDArray[np.float64]
Level = Annotated[float, Field(gt=0.5, lt=1)]
Kind = Literal["logistic", "linear", "poisson", "multinomial", "phase_retrieval"]
REPEATED_FROM: Final = 1e-9
"""Directions closer than this to a combination of others, on the scale of standard errors, follow from them."""


MARKED: Final[Any] = Field(default=False, exclude_if=lambda marked: not marked)
"""A mark of a release of made-up rows; others are stored and exported without it, as they always were."""
MOCK: Final = "Mock: trained on rows drawn from the declaration; says nothing about the data."
"""Text at every reading of such a release."""


class Flags(Frozen):
    """Changes to noised matrices before their inversion; wide intervals often start here."""

    eigenvalues_floored: int = Field(description="of both matrices of the covariance together")
    curvature_floored: int
    score_floored: int
    optimizer_floored: int = Field(description="eigenvalues of the last Newton step's Hessian")
    slow_directions: int = Field(
        description="directions in which the steps had not forgotten their start, going by the noised Hessian: the "
        "estimate still leans towards the start there, and intervals may be too short"
    )
    scale_floored: bool = False


class Released(Frozen):
    """Complete output of a job: one row of models, as JSON."""

    kind: Kind
    target: str
    optimizer: str
    units: int
    steps: int
    status: Literal["finished", "stopped", "none"]
    """none: no candidate was selected, and theta is zeros."""
    level: Level
    correction: Literal["stationary", "plain", "printed"]
    design: Design
    theta: Vector
    """Encoded units, intercept first; class after class; an unknown scale last."""
    covariance: Matrix | None
    """Of theta, encoded units; None where the job asked for no intervals."""
    flags: Flags
    privacy: Report
    loss: Loss
    """As the model was filled, scales in the target's units."""
    weights: Weights
    """As the model was filled."""
    ridge: float = 0.0
    error_bound: ErrorBound | None = None
    """The method's claims about this very point; None: it claims nothing."""
    checks: Checks | None = None
    """The method's checks of its own estimate, and its encoding of the records; None: it does not check."""
    row_words: str | None = Field(default=None, exclude=True)
    """Of a method that takes no weights, its phrase for the bound on rows, as its spec says; not stored."""
    mock: bool = MARKED
    """Trained on rows drawn from the declaration; stored and exported only where it is true."""
    iterates: tuple[Vector, ...] | None = None
    """Evenly spaced ones on the way, as theta, the last of all with them; None: the job kept none."""
    sweep: SweepOutcome | None = Field(default=None, exclude_if=lambda swept: swept is None)
    """Of a sweep, the candidate that theta is of and its noised score; stored and exported only for a sweep."""

    @property
    def convex(self) -> bool:
        """Whether that loss is convex."""
        return self.loss.weak_convexity == 0

    @property
    def scaled(self) -> bool:
        """Whether the last parameter is a residual scale."""
        return isinstance(self.loss, Huber) and self.loss.joint

    @property
    def withheld(self) -> frozenset[int]:
        """The places of coefficients whose intervals are withheld, for what the method found out about them."""
        return frozenset() if self.checks is None else frozenset(self.checks.withheld)

    @property
    def levels(self) -> tuple[str, ...]:
        """The classes that have coefficients, all but the baseline; none unless the model is multinomial."""
        column = self.design.target_column
        return column.values[1:] if self.kind == "multinomial" and isinstance(column, Coded) else ()

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients' names, `job[technician]` for a level, after `class: ` in a multinomial model."""
        own = self.design.names
        return tuple(f"{level}: {name}" for level in self.levels for name in own) if self.levels else own

    @property
    def columns(self) -> tuple[str | None, ...]:
        """The column behind each coefficient; None for intercepts."""
        return tuple(feature.column for feature in self.design.features) * (len(self.levels) or 1)

    @property
    def coefficients(self) -> Array:
        """Theta without a scale, shape (p,)."""
        return np.asarray(self.theta[: len(self.names)])

    @property
    def equation(self) -> tuple[object, ...]:
        """Identity of the solved equation: two rows of the same records that agree here estimate one value."""
        return (self.kind, self.design, self.loss, self.weights, self.ridge)


def fitted_loss_of(model: RegressionModel, design: Design) -> Loss:
    """Return the loss that a release of this filled model names; scales are in the target's units."""
    if isinstance(model, MultinomialModel):
        return Multinomial(classes=design.classes)
    return model.loss


def equation_of(model: RegressionModel, design: Design) -> tuple[object, ...]:
    """Return the `equation` of what a filled model would release."""
    return (model.kind, design, fitted_loss_of(model, design), model.weights, model.ridge)


class Declared(Frozen):
    """Coefficients and their covariance in the units of the declared columns."""

    names: tuple[str, ...]
    estimate: Vector
    covariance: Matrix | None


class Scale(Frozen):
    """An estimated residual scale in the target's units."""

    estimate: float
    std_error: float | None


def declared(released: Released) -> Declared:
    """Return coefficients and covariance in declared units."""
    one, start = released.design.to_declared()
    blocks = len(released.levels) or 1
    matrix, offset = block_diag(*[one] * blocks), np.tile(start, blocks)
    estimate = matrix @ released.coefficients + offset
    covariance = None
    if released.covariance is not None:
        # A residual scale, the last parameter, is no coefficient.
        own = np.asarray(released.covariance)[: len(offset), : len(offset)]
        covariance = _rows(matrix @ own @ matrix.T)
    return Declared(names=released.names, estimate=tuple(estimate.tolist()), covariance=covariance)


def residual_scale(released: Released) -> Scale | None:
    """Return an estimated residual scale; None where it was known or there is none."""
    if not released.scaled:
        return None
    unit = released.design.target.scale
    error = None if released.covariance is None else unit * max(released.covariance[-1][-1], 0.0) ** 0.5
    return Scale(estimate=unit * released.theta[-1], std_error=error)


def _rows(matrix: Array) -> Matrix:
    return tuple(tuple(row) for row in matrix.tolist())
