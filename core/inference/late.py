"""Covariance of the mean of the last iterates of gradient steps with one matrix.

Near the minimiser e_{k+1} = (I - P H) e_k - P noise, P the inverse of the matrix, H the true Hessian. Along a direction
u that P and H leave nearly to itself, with curvature L = u'Hu and f = 1 - L u'Pu, the mean of the last m of K iterates
has forgotten the distance at which these steps began up to phi = mean of f^k, k = K - m + 1 .. K, and has noise of
variance scale^2 |Pu|^2 nu, nu = sum over j of (1/m * sum over those k >= j of f^(k - j))^2. Both are reckoned

* for each eigenvector of the pooled noised Hessian. An eigenvalue of a noised matrix has been pushed away from the
  others: to first order by twice s^2 sum 1/(l_i - l_j) more than the curvature along its noised eigenvector (the
  rotation-invariant estimator of Bun, Allez, Bouchaud and Potters, 2016). That is taken back; what is left is uncertain
  by the noise s of the matrix along the direction, and phi^2, nu and the sampling variance are averaged over that law,
  cut off at zero. Couplings between eigenvectors add to it: MIXING;
* for directions known beforehand, for the records may know next to nothing of one that no noised eigenvector is near:
  each coefficient, and each category's baseline, moved against the first coefficient, the intercept, as the noised
  Hessian couples them. No coefficient is better known than it would be if all but the intercept were, with the least
  curvature that CAUTION standard deviations of noise allow; where the covariance claims more, it is widened.

Where a direction has been forgotten by phi only, phi^2 times the square of a public plausible radius is added. The
score matrix is shrunk towards a multiple c of the Hessian, which it is where the model is right, as far as its noise
hides it. All of it is post-processing of noised answers.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from core.inference.estimate import by_lane

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
    inverse: Tensor


@dataclass(frozen=True)
class Matrices:
    """What was told of Hessian and score: noised, shape (..., p, p), with the standard deviation of an entry."""

    curvature: Tensor
    deviation: float
    score: Tensor
    score_deviation: float
    ratio: float
    """Public bound on scores, squared, over that on Hessians: an upper bound's guess of c."""


def late_covariance(
    steps: Steps, matrices: Matrices, units: int, radius: Tensor | float, shifts: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the covariance, shape (..., p, p), and how many eigenvectors have not forgotten, shape (...).

    Args:
        steps: the late steps.
        matrices: as told, not floored.
        units: n.
        radius: plausible size of a coefficient, shape (...); INTERCEPT_RADII times that of the first one.
        shifts: unit vectors, shape (q, p), that move many coefficients together.
    """
    values, vectors = torch.linalg.eigh((matrices.curvature + matrices.curvature.mT) / 2)
    law = _law(repelled(values, matrices.deviation), _quadratic_deviation(vectors.mT, matrices.deviation))
    left, noise = _filter(steps, vectors.mT, law)
    plausible = _plausible(vectors.mT, radius)
    ratio, relative = _scores(vectors.mT @ matrices.score @ vectors, law.mean(-1), matrices)
    known = (1 / (law * units + ratio[..., None, None] / plausible.unsqueeze(-1))).mean(-1).sqrt()
    sampling = relative * known.unsqueeze(-1) * known.unsqueeze(-2)
    spread = MIXING * (noise + left.square().mean(-1) * plausible)
    private = vectors @ torch.diag_embed(spread) @ vectors.mT
    private = _widened(private, torch.eye(values.shape[-1], dtype=values.dtype), 0.0, steps, matrices, radius)
    if shifts is not None and len(shifts):
        private = _widened(private, shifts, BASELINE_FLOOR, steps, matrices, radius)
    covariance = private + vectors @ sampling @ vectors.mT
    slow = (left.square().mean(-1) > REMEMBERED**2).sum(-1)
    return (covariance + covariance.mT) / 2, slow


def repelled(values: Tensor, deviation: float) -> Tensor:
    """Return the curvatures along noised eigenvectors, from the noised eigenvalues, both of shape (..., p)."""
    apart = values.unsqueeze(-1) - values.unsqueeze(-2)
    smooth = apart.square() + deviation**2
    pushed: Tensor = torch.where(smooth > 0, apart / smooth, 0.0).sum(-1)
    return values - 2 * deviation**2 * pushed


def _law(mean: Tensor, deviation: Tensor) -> Tensor:
    """Return NODES curvatures of a normal law cut off at zero, equally likely, shape (..., p, NODES)."""
    middles = (torch.arange(NODES, dtype=mean.dtype) + 0.5) / NODES
    spread = deviation.clamp(min=1e-300)
    below = torch.special.ndtr(-mean / spread).clamp(max=1 - 1e-12).unsqueeze(-1)
    drawn = torch.special.ndtri((below + (1 - below) * middles).clamp(1e-12, 1 - 1e-12))
    law: Tensor = (mean.unsqueeze(-1) + spread.unsqueeze(-1) * drawn).clamp(min=0.0)
    return law


def _quadratic_deviation(directions: Tensor, deviation: float) -> Tensor:
    """Return the standard deviation of u'Eu, E symmetric noise with one variance on and off its diagonal."""
    squares = directions.square()
    return deviation * (2 * squares.sum(-1).square() - squares.square().sum(-1)).sqrt()


def _plausible(directions: Tensor, radius: Tensor | float) -> Tensor:
    """Return the variance of coefficients of plausible size along unit vectors, shape (..., q, p) to (..., q)."""
    sizes = torch.ones(directions.shape[-1:], dtype=directions.dtype)
    sizes[0] *= INTERCEPT_RADII**2
    return by_lane(radius, 1).square() * (directions.square() @ sizes)


def _filter(steps: Steps, directions: Tensor, law: Tensor, seen: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return phi, shape (..., q, nodes), and the variance of the noise averaged over the law, shape (..., q).

    With the curvature `seen` along them, directions that are no eigenvectors and that P reaches faster than a Newton
    step would, are taken to be reached by a Newton step.
    """
    reached = directions @ steps.inverse
    speed, length = (reached * directions).sum(-1), reached.square().sum(-1)
    if seen is not None:
        newton = seen.clamp(min=1e-300).reciprocal()
        length = torch.where(speed > newton, newton.square(), length)
        speed = torch.minimum(speed, newton)
    factor = (1 - law * speed.unsqueeze(-1)).clamp(FASTEST, 1.0)
    left, noise = forgotten(factor, steps.count, steps.averaged)
    return left, steps.scale**2 * length * noise.mean(-1)


def forgotten(factor: Tensor, count: int, averaged: int) -> tuple[Tensor, Tensor]:
    """Return phi and nu for contraction by `factor` a step; they do not depend on one another's law."""
    kept = torch.zeros_like(factor)  # what the mean keeps of a step's noise, or of the distance at the start
    noise = torch.zeros_like(factor)
    for step in range(count, 0, -1):
        kept = factor * kept + (1 / averaged if step > count - averaged else 0.0)
        noise = noise + kept.square()
    return factor * kept, noise


def _scores(score: Tensor, curvature: Tensor, matrices: Matrices) -> tuple[Tensor, Tensor]:
    """Return c, shape (...), and the score matrix relative to the Hessian in its eigenvectors, shape (..., p, p)."""
    guess = SMALLEST_RATIO * matrices.ratio
    least = 1e-9 * curvature.amax(-1, keepdim=True)
    curvature = torch.maximum(curvature, least)
    precision = curvature.square() / ((MISFIT * guess * curvature).square() + matrices.score_deviation**2)
    found = (precision * score.diagonal(dim1=-2, dim2=-1) / curvature).sum(-1) / precision.sum(-1)
    ratio = torch.maximum(found, precision.sum(-1).rsqrt())
    scale = (curvature.unsqueeze(-1) * curvature.unsqueeze(-2)).sqrt()
    believed = (MISFIT * ratio[..., None, None] * scale).square()
    trust = believed / (believed + matrices.score_deviation**2)
    prior = torch.diag_embed(ratio.unsqueeze(-1).expand_as(curvature))
    relative = prior + trust * (score / scale - prior)
    values, vectors = torch.linalg.eigh((relative + relative.mT) / 2)
    floor = SMALLEST_RATIO * ratio * (1 - trust.diagonal(dim1=-2, dim2=-1).mean(-1)) + 1e-6 * ratio
    values = torch.maximum(values, floor.unsqueeze(-1))
    return ratio, (vectors * values.unsqueeze(-2)) @ vectors.mT


def _widened(
    covariance: Tensor, directions: Tensor, floor: float, steps: Steps, told: Matrices, radius: Tensor | float
) -> Tensor:
    """Return the private part of the covariance with what public directions, shape (q, p), lack.

    Args:
        covariance: shape (..., p, p).
        directions: along coefficients; each is moved against the first, as the Hessian couples them.
        floor: least curvature along them, in standard deviations of its noise.
        steps: the late steps.
        told: as told, not floored.
        radius: plausible size of a coefficient.
    """
    coupled = told.curvature[..., 0, :]
    itself = coupled[..., :1]
    against = torch.where(itself > CAUTION * told.deviation, coupled / itself, 0.0)
    dual = directions.expand(*covariance.shape[:-2], *directions.shape).clone()
    others = dual[..., 1:].abs().sum(-1) > 0
    moved = dual.clone()
    moved[..., 0] = torch.where(others, -(dual[..., 1:] * against[..., None, 1:]).sum(-1), dual[..., 0])
    dual[..., 0] = torch.where(others, 0.0, dual[..., 0])
    along = moved / torch.linalg.vector_norm(moved, dim=-1, keepdim=True)
    seen, spread = ((along @ told.curvature) * along).sum(-1), _quadratic_deviation(along, told.deviation)
    least = torch.maximum(seen - CAUTION * spread, floor * spread).unsqueeze(-1)
    left, noise = _filter(steps, along, least, seen)
    needed = MIXING * (noise + left.squeeze(-1).square() * _plausible(along, radius))
    dual = dual / (dual * along).sum(-1, keepdim=True)
    lacking = (needed - ((dual @ covariance) * dual).sum(-1)).clamp(min=0.0)
    widened: Tensor = covariance + (along.mT * lacking.unsqueeze(-2)) @ along
    return widened
