"""The covariance that intervals would be made of, from matrices with as much noise as the job's questions will have.

The formulas of `core.inference.sandwich` in numpy, over patterns of noise that are always the same: for predictions.

Source: Avella-Medina, Bradshaw and Loh (2023), section 5.1; Farthing's own plan as in `core.inference.late_covariance`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from core.inference.settings import PlannedInference
from core.models.outlook import Outlook
from core.models.reference import scattered
from core.privacy.facts import Facts

Array = NDArray[np.float64]
WORK: Final = 15_000
FEWEST_PATTERNS: Final = 6
NEAREST_TO_ONE: Final = 0.999
UNSEEN: Final = 0.1
MOVED_PART: Final = 1 / 3
"""Part of the plausible radius: assumed distance of coefficients from their start."""


@dataclass(frozen=True)
class Noised:
    """Matrices with noise patterns, shapes (R, p, p), as the oracle would tell them, ridge included."""

    final: Array
    """The final Hessian, pooled with the optimizer's."""
    deviation: float
    stepped: Array
    """The Hessian of the last Newton step; without one, the final one."""
    score: Array
    score_deviation: float


class Pooled(NamedTuple):
    """A method's own Hessians, as they are pooled with the final one."""

    precision: float
    """Weight of the pool: one over the variance of one entry, as much as each counts."""
    deviation: float
    """Of the noise on an entry of the pool."""
    last: float
    """The same of the last step's matrix."""


def noised_matrices(outlook: Outlook, facts: Facts, inference: PlannedInference, pool: Pooled | None) -> Noised:
    """Add to the reference the noise that answers will have; `pool` is that of the method's own Hessians."""
    reference = outlook.reference
    final_question, score_question = inference.questions()
    final_deviation = final_question.sigma * final_question.sensitivity(facts)
    score_deviation = score_question.sigma * score_question.sensitivity(facts)
    exact = penalised(reference.curvature, facts, reference.scale)
    final, other, scored = patterns_of(facts.dimension, 3, outlook.patterns)
    pooled, deviation, stepped = exact + final_deviation * final, final_deviation, exact
    if pool is not None:
        # From a precision to a weight relative to the final Hessian's.
        weight = pool.precision * final_deviation**2
        pooled = exact + (final_deviation * final + weight * pool.deviation * other) / (1 + weight)
        deviation = sqrt(final_deviation**2 + (weight * pool.deviation) ** 2) / (1 + weight)
        stepped = exact + pool.last * other
    return Noised(pooled, deviation, stepped, reference.score + score_deviation * scored, score_deviation)


@dataclass(frozen=True)
class Spectrum:
    """The final Hessians' eigenvectors, shape (R, p, p), and their noised and floored eigenvalues, shape (R, p)."""

    vectors: Array
    values: Array
    floored: Array

    def of(self, values: Array) -> Array:
        """Return the matrices with these eigenvalues."""
        return np.asarray((self.vectors * values[..., None, :]) @ self.vectors.mT)


def spectrum_of(noised: Noised, inference: PlannedInference, scale: float) -> Spectrum:
    """Return the spectrum of the final Hessians in units of the scale, floored as the intervals floor them."""
    values, vectors = np.linalg.eigh(noised.final / scale)
    return Spectrum(vectors, values, np.maximum(values, inference.curvature_floor / scale))


def plain_covariance(noised: Noised, inference: PlannedInference, spectrum: Spectrum, units: int) -> Array:
    """Return the sandwich without the noise of the steps, shape (R, p, p)."""
    inverse = spectrum.of(1 / spectrum.floored)
    return np.asarray(inverse @ floored_at(noised.score, inference.score_floor) @ inverse / units)


def remembered(
    outlook: Outlook, inference: PlannedInference, spectrum: Spectrum, speed_of: Callable[[Array], Array], steps: int
) -> Array:
    """Return the squared bias that intervals reckon with where the start has not been forgotten, shape (R, p, p)."""
    least = inference.curvature_floor / outlook.reference.scale
    values, vectors = spectrum.values, spectrum.vectors
    speed = speed_of(np.where(values < least, UNSEEN * least, values))
    left = np.clip(1 - speed, 0.0, NEAREST_TO_ONE) ** steps
    to_go = (left / (1 - left))[..., None, :]
    moved = MOVED_PART * inference.plausible_radius
    bias = ((vectors**2 * to_go).sum(-1) * moved) ** 2
    leaning = bias[..., None] * np.eye(values.shape[-1])
    if len(outlook.shifts):
        along = ((outlook.shifts @ vectors) ** 2 * to_go).sum(-1) * moved
        leaning = leaning + (outlook.shifts.T * along[..., None, :] ** 2) @ outlook.shifts
    found: Array = leaning
    return found


def penalised(curvature: Array, facts: Facts, scale: float) -> Array:
    """Return the Hessian with its ridge, times an unknown scale."""
    coefficients = np.ones(len(curvature))
    if facts.scale is not None:
        coefficients[-1] = 0.0
    return curvature + facts.ridge * scale * np.diag(coefficients)


def inverted(matrix: Array) -> Array:
    """Return the inverses of matrices, shape (..., p, p)."""
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def floored_at(matrix: Array, floor: float) -> Array:
    """Return the nearest matrices with no eigenvalue below `floor`."""
    values, vectors = np.linalg.eigh(matrix)
    floored: Array = (vectors * np.maximum(values, floor)[..., None, :]) @ vectors.mT
    return floored


def patterns_of(dimension: int, kinds: int, most: int) -> Sequence[Array]:
    """Return patterns of standard normal noise on symmetric matrices, shape (R, p, p) of each kind; always the same."""
    # Fewer patterns of larger matrices: the work stays about the same.
    count = min(most, max(FEWEST_PATTERNS, WORK // dimension**2))
    # A salt that no column of the reference has.
    normal = ndtri(scattered(kinds * count * dimension**2, 10**6)).reshape(kinds, count, dimension, dimension)
    upper = np.triu(normal)
    return list(upper + np.triu(normal, 1).mT)
