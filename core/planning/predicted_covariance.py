"""The covariance that intervals would be made of, from matrices with as much noise as the job's questions will have.

The formulas of `core.inference.sandwich` in numpy, over patterns of noise that are always the same: for predictions.

Source: Avella-Medina, Bradshaw and Loh (2023), section 5.1; Farthing's own plan as in `core.inference.late_covariance`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from core.inference.late_covariance import Matrices, Steps, late_covariance
from core.inference.settings import Inference
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton
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

    told: Array
    """The final Hessian, pooled with the optimizer's."""
    deviation: float
    stepped: Array
    """The Hessian of the last Newton step; without one, the final one."""
    score: Array
    score_deviation: float


def noised_matrices(
    outlook: Outlook, facts: Facts, inference: Inference, optimizer: NoisyGradientDescentPlan | NoisyNewton
) -> Noised:
    """Add to the reference the noise that answers will have."""
    reference = outlook.reference
    final_question, score_question = inference.questions()
    final_deviation = final_question.sigma * final_question.sensitivity(facts)
    score_deviation = score_question.sigma * score_question.sensitivity(facts)
    exact = penalised(reference.curvature, facts, reference.scale)
    final, other, scored = _patterns(facts.dimension, 3, outlook.patterns)
    told, deviation, stepped = exact + final_deviation * final, final_deviation, exact
    if isinstance(optimizer, NoisyNewton):
        weight, pooled_deviation = _pooled(optimizer, facts)
        # From a precision to a weight relative to the final Hessian's.
        weight *= final_deviation**2
        noise = (final_deviation * final + weight * pooled_deviation * other) / (1 + weight)
        told = exact + noise
        deviation = sqrt(final_deviation**2 + (weight * pooled_deviation) ** 2) / (1 + weight)
        stepped = exact + optimizer.matrix_deviations(facts)[-1] * other
    return Noised(told, deviation, stepped, reference.score + score_deviation * scored, score_deviation)


def _pooled(optimizer: NoisyNewton, facts: Facts) -> tuple[float, float]:
    """Return the weight of the optimizer's pooled Hessians, times the variance of the final one, and their deviation.

    Without memory the later half of them is pooled for the intervals.
    """
    memory, count, squares = optimizer.memory or 0.0, 0.0, 0.0
    for step, question in enumerate(optimizer.curvatures()):
        kept = memory if memory > 0 else float(2 * step > optimizer.newton_steps)
        precision = (question.sigma * question.sensitivity(facts)) ** -2
        count, squares = kept * count + precision, kept**2 * squares + precision
    return count, sqrt(squares) / count


@dataclass(frozen=True)
class _Spectrum:
    """The final Hessians' eigenvectors, shape (R, p, p), and their noised and floored eigenvalues, shape (R, p)."""

    vectors: Array
    values: Array
    floored: Array

    def of(self, values: Array) -> Array:
        """Return the matrices with these eigenvalues."""
        return np.asarray((self.vectors * values[..., None, :]) @ self.vectors.mT)


def covariance_of(
    outlook: Outlook,
    facts: Facts,
    optimizer: NoisyGradientDescentPlan | NoisyNewton,
    inference: Inference,
    noised: Noised,
) -> Array:
    """Return the covariance that intervals would be made of, shape (R, p, p), as `core.inference.sandwich` does."""
    assert inference.curvature_floor is not None, "plan first"
    assert inference.score_floor is not None, "plan first"
    assert inference.plausible_radius is not None, "plan first"
    scale = outlook.reference.scale
    if isinstance(optimizer, NoisyNewton) and optimizer.late_steps > 0 and inference.correction != "plain":
        return scale**2 * _late(outlook, facts, optimizer, inference, noised)
    values, vectors = np.linalg.eigh(noised.told / scale)
    spectrum = _Spectrum(vectors, values, np.maximum(values, inference.curvature_floor / scale))
    inverse = spectrum.of(1 / spectrum.floored)
    plain: Array = inverse @ _floored(noised.score, inference.score_floor) @ inverse / facts.units
    if inference.correction == "plain":
        return plain
    if isinstance(optimizer, NoisyGradientDescentPlan):
        return plain + _descended(outlook, facts, optimizer, inference, noised, spectrum)
    return plain + _stepped(outlook, facts, optimizer, inference, noised, spectrum)


def _late(outlook: Outlook, facts: Facts, optimizer: NoisyNewton, inference: Inference, noised: Noised) -> Array:
    """Return the covariance of the mean of late gradient steps, in units of the scale."""
    assert optimizer.averaged is not None, "plan first"
    assert inference.plausible_radius is not None, "plan first"
    gradient = optimizer.gradients()[-1]
    curvature_question, score_question = inference.questions()
    steps = Steps(
        count=optimizer.late_steps,
        averaged=optimizer.averaged,
        scale=gradient.sigma * gradient.sensitivity(facts),
        inverse=inverted(_floored(noised.stepped, optimizer.floors(facts)[-1])),
    )
    told = Matrices(
        curvature=noised.told,
        deviation=noised.deviation,
        score=noised.score,
        score_deviation=noised.score_deviation,
        ratio=score_question.bound(facts) / curvature_question.bound(facts),
    )
    radius = inference.plausible_radius / outlook.reference.scale
    return late_covariance(steps, told, facts.units, radius, outlook.shifts)[0]


def _descended(
    outlook: Outlook,
    facts: Facts,
    optimizer: NoisyGradientDescentPlan,
    inference: Inference,
    noised: Noised,
    spectrum: _Spectrum,
) -> Array:
    """Return what gradient descent's noise and its start add, shape (R, p, p)."""
    assert optimizer.step_size is not None, "plan first"
    assert optimizer.steps is not None, "plan first"
    scale = outlook.reference.scale
    step = optimizer.step_size * (scale if optimizer.scaling == "scaled" else 1.0)
    (gradient,) = optimizer.questions()
    variance = (step * gradient.sigma * gradient.sensitivity(facts)) ** 2
    if inference.correction != "stationary":
        printed: Array = 2 * variance * np.broadcast_to(np.eye(facts.dimension), noised.told.shape)
        return printed
    factor = np.clip(1 - step * spectrum.floored, -NEAREST_TO_ONE, NEAREST_TO_ONE)
    grown = variance * (1 - factor ** (2 * optimizer.steps)) / (1 - factor**2)
    return spectrum.of(grown) + _remembered(outlook, inference, spectrum, lambda speed: step * speed, optimizer.steps)


def _stepped(
    outlook: Outlook,
    facts: Facts,
    optimizer: NoisyNewton,
    inference: Inference,
    noised: Noised,
    spectrum: _Spectrum,
) -> Array:
    """Return what the noise of Newton steps and their start add, shape (R, p, p)."""
    assert optimizer.damping is not None, "plan first"
    assert optimizer.steps is not None, "plan first"
    # Careful runs are taken to end in pure steps.
    damping, floor = 1.0 if optimizer.careful else optimizer.damping, optimizer.floors(facts)[-1]
    asked = optimizer.gradients()[optimizer.warm_steps :]
    gradients = [gradient.sigma * gradient.sensitivity(facts) for gradient in asked]
    if inference.correction == "stationary":
        variance = 0.0
        for deviation in gradients:
            variance = (1 - damping) ** 2 * variance + (damping * deviation) ** 2
        added = variance * spectrum.of(spectrum.floored**-2)
    else:
        inverse = inverted(_floored(noised.stepped, floor) / outlook.reference.scale)
        printed: Array = (damping * gradients[-1]) ** 2 * inverse @ inverse
        return printed
    relative = floor / outlook.reference.scale
    return added + _remembered(
        outlook, inference, spectrum, lambda speed: damping * np.minimum(speed / relative, 1.0), optimizer.steps
    )


def _remembered(
    outlook: Outlook, inference: Inference, spectrum: _Spectrum, speed_of: Callable[[Array], Array], steps: int
) -> Array:
    """Return the squared bias that intervals reckon with where the start has not been forgotten, shape (R, p, p)."""
    assert inference.curvature_floor is not None, "plan first"
    assert inference.plausible_radius is not None, "plan first"
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


def _floored(matrix: Array, floor: float) -> Array:
    """Return the nearest matrices with no eigenvalue below `floor`."""
    values, vectors = np.linalg.eigh(matrix)
    floored: Array = (vectors * np.maximum(values, floor)[..., None, :]) @ vectors.mT
    return floored


def _patterns(dimension: int, kinds: int, most: int) -> Sequence[Array]:
    """Return patterns of standard normal noise on symmetric matrices, shape (R, p, p) of each kind; always the same."""
    # Fewer patterns of larger matrices: the work stays about the same.
    count = min(most, max(FEWEST_PATTERNS, WORK // dimension**2))
    # A salt that no column of the reference has.
    normal = ndtri(scattered(kinds * count * dimension**2, 10**6)).reshape(kinds, count, dimension, dimension)
    upper = np.triu(normal)
    return list(upper + np.triu(normal, 1).mT)
