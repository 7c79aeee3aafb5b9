"""Covariance of the mean of the last iterates of gradient steps with one matrix.

Near the minimiser e_{k+1} = (I - P H) e_k - P noise, P the inverse of the matrix, H the true Hessian. Take a direction
u that is nearly an eigenvector of P and H, with curvature L = u'Hu and f = 1 - L u'Pu. The mean of the last m of K
iterates keeps a part phi = mean of f^k, k = K - m + 1 .. K, of the distance at which these steps began. Its noise has
variance scale^2 |Pu|^2 nu, nu = sum over j of (1/m * sum over those k >= j of f^(k - j))^2. Both are computed

* for each eigenvector of the pooled noised Hessian. Noise pushes an eigenvalue away from the others. To first order it
  exceeds the curvature along its noised eigenvector by twice s^2 sum 1/(l_i - l_j). (This is the rotation-invariant
  estimator of Bun, Allez, Bouchaud and Potters, 2016.) The shift is subtracted. The remainder is uncertain by the noise
  s of the matrix along the direction; phi^2, nu and the sampling variance are averaged over that law, cut off at zero.
  Couplings between eigenvectors add to it: MIXING.
* for directions known beforehand, since a direction with little information may be near no noised eigenvector. These
  are each coefficient, and each category's baseline, moved against the first coefficient, the intercept, as the noised
  Hessian couples them. A coefficient's variance is at least its value if all others but the intercept were known, at
  the least curvature that CAUTION standard deviations of noise allow. Where the covariance is below it, it is widened.

For the part phi that is left of the start along a direction, phi^2 times the square of a public plausible radius is
added. The score matrix is shrunk towards a multiple c of the Hessian, its value where the model is right, as far as its
noise hides it. All of it is post-processing of noised answers.

In numpy, since predictions use it too, where there is no torch.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Array = NDArray[np.float64]
NODES: Final = 16
"""Curvatures at which a law is averaged: the middles of so many equally likely parts."""
CAUTION: Final = 1.5
BASELINE_FLOOR: Final = 0.3
"""A baseline that the records hardly show moves all contrasts with it; without this they would all be useless."""
MIXING: Final = 1.3
MISFIT: Final = 0.3
"""By about this part scores and Hessians disagree where a model is not quite right."""
SMALLEST_RATIO: Final = 0.3
REMEMBERED: Final = 0.1
"""Part of the distance that is left where a direction counts as slow."""
FASTEST: Final = -0.95
"""A step that overshoots is taken to contract at least so much."""
INTERCEPT_RADII: Final = 2.0


@dataclass(frozen=True)
class Steps:
    """The late steps as numbers: K, m, the noise of a gradient's coordinate, and P, shape (..., p, p)."""

    count: int
    averaged: int
    scale: float
    inverse: Array


@dataclass(frozen=True)
class Matrices:
    """Noised Hessian and score, shape (..., p, p), with the standard deviation of an entry."""

    curvature: Array
    deviation: float
    score: Array
    score_deviation: float
    ratio: float
    """Public bound on scores, squared, over that on Hessians."""


@np.errstate(over="ignore", invalid="ignore")
def late_covariance(
    steps: Steps, noised: Matrices, units: int, radius: Array | float, shifts: Array
) -> tuple[Array, NDArray[np.int64]]:
    """Return the covariance, shape (..., p, p), and how many eigenvectors have not forgotten, shape (...).

    Args:
        steps: the late steps.
        noised: the noised matrices, not floored.
        units: n.
        radius: plausible size of a coefficient, shape (...); INTERCEPT_RADII times that of the first one.
        shifts: unit vectors, shape (q, p), that move many coefficients together; q may be 0.
    """
    values, vectors = np.linalg.eigh((noised.curvature + noised.curvature.mT) / 2)
    law = _law(repelled(values, noised.deviation), _quadratic_deviation(vectors.mT, noised.deviation))
    left, noise = _filter(steps, vectors.mT, law)
    plausible = _plausible(vectors.mT, radius)
    ratio, relative = _scores(vectors.mT @ noised.score @ vectors, law.mean(-1), noised)
    known = np.sqrt((1 / (law * units + ratio[..., None, None] / plausible[..., None])).mean(-1))
    sampling = relative * known[..., None] * known[..., None, :]
    spread = MIXING * (noise + (left**2).mean(-1) * plausible)
    private = (vectors * spread[..., None, :]) @ vectors.mT
    private = _widened(private, np.eye(values.shape[-1]), 0.0, steps, noised, radius)
    if len(shifts):
        private = _widened(private, shifts, BASELINE_FLOOR, steps, noised, radius)
    covariance: Array = private + vectors @ sampling @ vectors.mT
    slow = ((left**2).mean(-1) > REMEMBERED**2).sum(-1)
    return (covariance + covariance.mT) / 2, slow


def repelled(values: Array, deviation: float) -> Array:
    """Return the curvatures along noised eigenvectors, from the noised eigenvalues, both of shape (..., p)."""
    apart = values[..., :, None] - values[..., None, :]
    smooth = apart**2 + deviation**2
    # Without noise the diagonal is 0/0.
    pushed: Array = np.divide(apart, smooth, out=np.zeros_like(apart), where=smooth > 0).sum(-1)
    return values - 2 * deviation**2 * pushed


def _law(mean: Array, deviation: Array) -> Array:
    """Return NODES curvatures of a normal law cut off at zero, equally likely, shape (..., p, NODES)."""
    middles = (np.arange(NODES) + 0.5) / NODES
    spread = np.maximum(deviation, 1e-300)
    # With a mean far below zero nothing is left above it, and ndtri(1) is infinite.
    below = np.minimum(ndtr(-mean / spread), 1 - 1e-12)[..., None]
    drawn = ndtri(np.clip(below + (1 - below) * middles, 1e-12, 1 - 1e-12))
    law: Array = np.maximum(mean[..., None] + spread[..., None] * drawn, 0.0)
    return law


def _quadratic_deviation(directions: Array, deviation: float) -> Array:
    """Return the standard deviation of u'Eu, E symmetric noise with one variance on and off its diagonal."""
    squares = directions**2
    found: Array = deviation * np.sqrt(2 * squares.sum(-1) ** 2 - (squares**2).sum(-1))
    return found


def _plausible(directions: Array, radius: Array | float) -> Array:
    """Return the variance of coefficients of plausible size along unit vectors, shape (..., q, p) to (..., q)."""
    sizes = np.ones(directions.shape[-1])
    sizes[0] *= INTERCEPT_RADII**2
    found: Array = np.square(radius)[..., None] * (directions**2 @ sizes)
    return found


def _filter(steps: Steps, directions: Array, law: Array, seen: Array | None = None) -> tuple[Array, Array]:
    """Return phi, shape (..., q, nodes), and the variance of the noise averaged over the law, shape (..., q).

    With the curvature `seen` along them, directions that are no eigenvectors and that P reaches faster than a Newton
    step would, are taken to be reached by a Newton step.
    """
    reached = directions @ steps.inverse
    speed, length = (reached * directions).sum(-1), (reached**2).sum(-1)
    if seen is not None:
        newton = 1 / np.maximum(seen, 1e-300)
        length = np.where(speed > newton, newton**2, length)
        speed = np.minimum(speed, newton)
    factor = np.clip(1 - law * speed[..., None], FASTEST, 1.0)
    left, noise = forgotten(factor, steps.count, steps.averaged)
    return left, steps.scale**2 * length * noise.mean(-1)


def forgotten(factor: Array, count: int, averaged: int) -> tuple[Array, Array]:
    """Return phi and nu for contraction by `factor` a step; they do not depend on one another's law."""
    kept, noise = np.zeros_like(factor), np.zeros_like(factor)
    for step in range(count, 0, -1):
        kept = factor * kept + (1 / averaged if step > count - averaged else 0.0)
        noise = noise + kept**2
    return factor * kept, noise


def _scores(score: Array, curvature: Array, noised: Matrices) -> tuple[Array, Array]:
    """Return c, shape (...), and the score matrix relative to the Hessian in its eigenvectors, shape (..., p, p)."""
    guess = SMALLEST_RATIO * noised.ratio
    # A law cut off at zero may leave no curvature, and it divides.
    curvature = np.maximum(curvature, 1e-9 * curvature.max(-1, keepdims=True))
    precision = curvature**2 / ((MISFIT * guess * curvature) ** 2 + noised.score_deviation**2)
    diagonal = np.diagonal(score, axis1=-2, axis2=-1)
    found = (precision * diagonal / curvature).sum(-1) / precision.sum(-1)
    ratio = np.maximum(found, precision.sum(-1) ** -0.5)
    scale = np.sqrt(curvature[..., :, None] * curvature[..., None, :])
    believed = (MISFIT * ratio[..., None, None] * scale) ** 2
    trust = believed / (believed + noised.score_deviation**2)
    prior = ratio[..., None, None] * np.eye(curvature.shape[-1])
    relative = prior + trust * (score / scale - prior)
    values, vectors = np.linalg.eigh((relative + relative.mT) / 2)
    floor = SMALLEST_RATIO * ratio * (1 - np.diagonal(trust, axis1=-2, axis2=-1).mean(-1)) + 1e-6 * ratio
    return ratio, (vectors * np.maximum(values, floor[..., None])[..., None, :]) @ vectors.mT


def _widened(
    covariance: Array, directions: Array, floor: float, steps: Steps, noised: Matrices, radius: Array | float
) -> Array:
    """Return the private part of the covariance with what public directions, shape (q, p), lack.

    Args:
        covariance: shape (..., p, p).
        directions: along coefficients; each is moved against the first, as the Hessian couples them.
        floor: least curvature along them, in standard deviations of its noise.
        steps: the late steps.
        noised: the noised matrices, not floored.
        radius: plausible size of a coefficient.
    """
    coupled = noised.curvature[..., 0, :]
    itself = np.maximum(coupled[..., :1], 1e-300)
    # No coupling to the intercept is believed if noise hides its own curvature.
    against = np.where(coupled[..., :1] > CAUTION * noised.deviation, coupled / itself, 0.0)
    dual = np.broadcast_to(directions, (*covariance.shape[:-2], *directions.shape)).copy()
    others = np.abs(dual[..., 1:]).sum(-1) > 0
    moved = dual.copy()
    moved[..., 0] = np.where(others, -(dual[..., 1:] * against[..., None, 1:]).sum(-1), dual[..., 0])
    dual[..., 0] = np.where(others, 0.0, dual[..., 0])
    along = moved / np.linalg.norm(moved, axis=-1, keepdims=True)
    seen, spread = ((along @ noised.curvature) * along).sum(-1), _quadratic_deviation(along, noised.deviation)
    least = np.maximum(seen - CAUTION * spread, floor * spread)[..., None]
    left, noise = _filter(steps, along, least, seen)
    needed = MIXING * (noise + left[..., 0] ** 2 * _plausible(along, radius))
    dual = dual / (dual * along).sum(-1, keepdims=True)
    lacking = np.maximum(needed - ((dual @ covariance) * dual).sum(-1), 0.0)
    widened: Array = covariance + (along.mT * lacking[..., None, :]) @ along
    return widened
