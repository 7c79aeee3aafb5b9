"""The outlook of predicted widths: the public reference design beside its encoding; it depends on no n and no mu."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.data.columns import Coded
from core.losses.bases import RESIDUALS_PER_RANGE
from core.models.assumed import Assumed
from core.models.design import Design
from core.models.kinds import MultinomialModel, RegressionModel
from core.models.reference import Reference, reference_of

Array = NDArray[np.float64]


NORMAL_CURVATURE: Final = 0.8
"""Mean second derivative of a Huber loss in residual scales, normal residuals."""
RATES_DIFFER: Final = 0.85
"""Part of a logistic model's second derivative at equal probabilities that remains where probabilities differ."""
CLASSES_DIFFER: Final = 0.85
"""The same of several classes: part of what equal chances of all records would make of it."""
EVENTS_PER_COEFFICIENT: Final = 10


RESIDUALS_BEYOND: Final = 2.0
"""Residual scales by which a residual of least squares may pass the distance from the target's median to a bound."""


class Signal(NamedTuple):
    """Contribution of the outcome: the mean second derivative, and the bound of the score, or the largest count."""

    curvature: float
    bound: float
    size: float = 1.0
    """Of the residual scale, over the reference's."""
    events: float | None = None
    """Of the rarer outcome, or counts, for each unit."""
    dispersion: float = 1.0
    """Of counts, their variance over their mean."""
    rarest: float | None = None
    """Of several classes, the mean second derivative along the rarest one; None: as along the others."""


class Outcome(NamedTuple):
    """The outcome as it is taken to be, and at both ends of what it may be; None: it may be worth nothing."""

    usual: Signal
    best: Signal
    worst: Signal | None


def rarest_curvature(rate: float, classes: int) -> float:
    """Return the mean second derivative along a class of this frequency, where K - 1 others share the rest."""
    return CLASSES_DIFFER * rate * (1 - rate) * classes / (classes - 1)


def residual_scale(design: Design, assumed: Assumed) -> float:
    """Return the deviation that residuals of a number are taken to have, in encoded units."""
    if assumed.residual_scale is not None:
        return assumed.residual_scale / design.target.scale
    return 2 / RESIDUALS_PER_RANGE


class Residuals(NamedTuple):
    """Residuals of a number as they are taken to be, for words about a price."""

    target: str
    """The column's name."""
    scale: float
    """Their deviation, in encoded units."""
    unit: float
    """Declared units in an encoded one."""
    assumed: bool
    """The analyst said so; else an eighth of the declared range is taken."""


@dataclass(frozen=True)
class Outlook:
    """Inputs of predicted widths, beside the planner's: none of them depends on n or mu.

    `to_declared` takes encoded coefficients, one after the other for each margin, to declared units.
    """

    reference: Reference
    names: tuple[str, ...]
    to_declared: Array
    shifts: Array
    patterns: int = 64
    """Of noise, for small models; fewer for large ones."""


def make_outlook(
    design: Design, model: RegressionModel, assumed: Assumed | None = None, *, filled: float = 1.0
) -> Outlook:
    """Put the reference of a filled model, as `reference_of` makes it, beside its encoding; margins have one each."""
    with np.errstate(all="ignore"):
        reference = reference_of(design, model, assumed, filled=filled)
    matrix, _ = design.to_declared()
    margins = max(1, len(reference.score) // len(matrix))
    unknown = len(reference.score) - margins * len(matrix)
    shifts = np.kron(np.eye(margins), design.baseline_shifts())
    declared = np.kron(np.eye(margins), matrix)
    return Outlook(
        reference=reference,
        names=coefficient_names(design, model),
        to_declared=np.pad(declared, ((0, 0), (0, unknown))),
        shifts=np.pad(shifts, ((0, 0), (0, unknown))),
    )


def coefficient_names(design: Design, model: RegressionModel) -> tuple[str, ...]:
    """Return what a release calls its coefficients: `class: name` where each class has its own."""
    target = design.target_column
    if not isinstance(model, MultinomialModel) or not isinstance(target, Coded):
        return design.names
    return tuple(f"{level}: {name}" for level in target.values[1:] for name in design.names)
