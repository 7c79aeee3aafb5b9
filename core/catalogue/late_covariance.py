"""Covariance of the mean of the last iterates of gradient steps with one matrix, in numpy: intervals and predictions.

It is the formula of `core.inference.late`, for whoever has no torch; a test holds the two together.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Array = NDArray[np.float64]
NODES: Final = 16
CAUTION: Final = 1.5
BASELINE_FLOOR: Final = 0.3
MIXING: Final = 1.3
MISFIT: Final = 0.3
SMALLEST_RATIO: Final = 0.3
FASTEST: Final = -0.95
INTERCEPT_RADII: Final = 2.0


@dataclass(frozen=True)
class LateSteps:
    """The late steps as numbers: K, m, the noise of a gradient's coordinate, and P, shape (..., p, p)."""

    count: int
    averaged: int
    scale: float
    inverse: Array


@dataclass(frozen=True)
class Told:
    """What was told of Hessian and score: noised, shape (..., p, p), with the standard deviation of an entry."""

    curvature: Array
    deviation: float
    score: Array
    score_deviation: float
    ratio: float
    """Public bound on scores, squared, over that on Hessians."""


@np.errstate(over="ignore", invalid="ignore")
def late_covariance(steps: LateSteps, told: Told, units: int, radius: float, shifts: Array) -> Array:
    """Return the covariance, shape (..., p, p).

    Args:
        steps: the late steps.
        told: the noised matrices, not floored.
        units: n.
        radius: plausible size of a coefficient; INTERCEPT_RADII times that of the first one.
        shifts: unit vectors, shape (q, p), that move many coefficients together; q may be 0.
    """
    values, vectors = np.linalg.eigh((told.curvature + told.curvature.mT) / 2)
    law = _law(_repelled(values, told.deviation), _quadratic_deviation(vectors.mT, told.deviation))
    left, noise = _filter(steps, vectors.mT, law)
    plausible = _plausible(vectors.mT, radius)
    ratio, relative = _scores(vectors.mT @ told.score @ vectors, law.mean(-1), told)
    known = np.sqrt((1 / (law * units + ratio[..., None, None] / plausible[..., None])).mean(-1))
    sampling = relative * known[..., None] * known[..., None, :]
    spread = MIXING * (noise + (left**2).mean(-1) * plausible)
    private = (vectors * spread[..., None, :]) @ vectors.mT
    private = _widened(private, np.eye(values.shape[-1]), 0.0, steps, told, radius)
    if len(shifts):
        private = _widened(private, shifts, BASELINE_FLOOR, steps, told, radius)
    covariance: Array = private + vectors @ sampling @ vectors.mT
    return covariance


def _repelled(values: Array, deviation: float) -> Array:
    apart = values[..., :, None] - values[..., None, :]
    smooth = apart**2 + deviation**2
    pushed: Array = np.divide(apart, smooth, out=np.zeros_like(apart), where=smooth > 0).sum(-1)
    return values - 2 * deviation**2 * pushed


def _law(mean: Array, deviation: Array) -> Array:
    middles = (np.arange(NODES) + 0.5) / NODES
    spread = np.maximum(deviation, 1e-300)
    below = np.minimum(ndtr(-mean / spread), 1 - 1e-12)[..., None]
    drawn = ndtri(np.clip(below + (1 - below) * middles, 1e-12, 1 - 1e-12))
    law: Array = np.maximum(mean[..., None] + spread[..., None] * drawn, 0.0)
    return law


def _quadratic_deviation(directions: Array, deviation: float) -> Array:
    squares = directions**2
    found: Array = deviation * np.sqrt(2 * squares.sum(-1) ** 2 - (squares**2).sum(-1))
    return found


def _plausible(directions: Array, radius: float) -> Array:
    sizes = np.full(directions.shape[-1], radius**2)
    sizes[0] *= INTERCEPT_RADII**2
    found: Array = directions**2 @ sizes
    return found


def _filter(steps: LateSteps, directions: Array, law: Array, seen: Array | None = None) -> tuple[Array, Array]:
    reached = directions @ steps.inverse
    speed, length = (reached * directions).sum(-1), (reached**2).sum(-1)
    if seen is not None:
        newton = 1 / np.maximum(seen, 1e-300)
        length = np.where(speed > newton, newton**2, length)
        speed = np.minimum(speed, newton)
    factor = np.clip(1 - law * speed[..., None], FASTEST, 1.0)
    left, noise = _forgotten(factor, steps.count, steps.averaged)
    return left, steps.scale**2 * length * noise.mean(-1)


def _forgotten(factor: Array, count: int, averaged: int) -> tuple[Array, Array]:
    kept, noise = np.zeros_like(factor), np.zeros_like(factor)
    for step in range(count, 0, -1):
        kept = factor * kept + (1 / averaged if step > count - averaged else 0.0)
        noise = noise + kept**2
    return factor * kept, noise


def _scores(score: Array, curvature: Array, told: Told) -> tuple[Array, Array]:
    guess = SMALLEST_RATIO * told.ratio
    curvature = np.maximum(curvature, 1e-9 * curvature.max(-1, keepdims=True))
    precision = curvature**2 / ((MISFIT * guess * curvature) ** 2 + told.score_deviation**2)
    diagonal = np.diagonal(score, axis1=-2, axis2=-1)
    found = (precision * diagonal / curvature).sum(-1) / precision.sum(-1)
    ratio = np.maximum(found, precision.sum(-1) ** -0.5)
    scale = np.sqrt(curvature[..., :, None] * curvature[..., None, :])
    believed = (MISFIT * ratio[..., None, None] * scale) ** 2
    trust = believed / (believed + told.score_deviation**2)
    prior = ratio[..., None, None] * np.eye(curvature.shape[-1])
    relative = prior + trust * (score / scale - prior)
    values, vectors = np.linalg.eigh((relative + relative.mT) / 2)
    floor = SMALLEST_RATIO * ratio * (1 - np.diagonal(trust, axis1=-2, axis2=-1).mean(-1)) + 1e-6 * ratio
    return ratio, (vectors * np.maximum(values, floor[..., None])[..., None, :]) @ vectors.mT


def _widened(covariance: Array, directions: Array, floor: float, steps: LateSteps, told: Told, radius: float) -> Array:
    coupled = told.curvature[..., 0, :]
    itself = np.maximum(coupled[..., :1], 1e-300)
    against = np.where(coupled[..., :1] > CAUTION * told.deviation, coupled / itself, 0.0)
    dual = np.broadcast_to(directions, (*covariance.shape[:-2], *directions.shape)).copy()
    others = np.abs(dual[..., 1:]).sum(-1) > 0
    moved = dual.copy()
    moved[..., 0] = np.where(others, -(dual[..., 1:] * against[..., None, 1:]).sum(-1), dual[..., 0])
    dual[..., 0] = np.where(others, 0.0, dual[..., 0])
    along = moved / np.linalg.norm(moved, axis=-1, keepdims=True)
    seen, spread = ((along @ told.curvature) * along).sum(-1), _quadratic_deviation(along, told.deviation)
    least = np.maximum(seen - CAUTION * spread, floor * spread)[..., None]
    left, noise = _filter(steps, along, least, seen)
    needed = MIXING * (noise + left[..., 0] ** 2 * _plausible(along, radius))
    dual = dual / (dual * along).sum(-1, keepdims=True)
    lacking = np.maximum(needed - ((dual @ covariance) * dual).sum(-1), 0.0)
    widened: Array = covariance + (along.mT * lacking[..., None, :]) @ along
    return widened
