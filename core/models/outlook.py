"""The outlook of predicted widths: the public reference design beside its encoding; it depends on no n and no mu."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.data.columns import Coded
from core.models.assumed import Assumed
from core.models.design import Design
from core.models.kinds import MultinomialModel, RegressionModel
from core.models.reference import Reference, reference_of

Array = NDArray[np.float64]


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
