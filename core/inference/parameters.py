"""Meaning of theta's entries for steps and inference: coefficients, then perhaps an unknown residual scale.

The oracle tells of the loss without its ridge, and with an unknown scale it tells the Hessian times that scale. It
reads no record: theta is made of released values, so all of this is post-processing.

Source: Avella-Medina, Bradshaw and Loh (2023), display (12) for the ridge and loss (6) for the scale. The penalty is on
coefficients alone.
"""

from typing import Final

import torch
from torch import Tensor

from core.privacy.facts import Facts

REACH: Final = 2.0


def scale_of(facts: Facts, theta: Tensor) -> Tensor:
    """Return the residual scale, shape (...), by which Hessian answers are too large; 1 where no scale is unknown."""
    if facts.scale is None:
        return torch.ones((), dtype=theta.dtype)
    return theta[..., -1]


def penalised_gradient(facts: Facts, gradient: Tensor, theta: Tensor, ridge: Tensor | float = 0.0) -> Tensor:
    """Return the gradient of the loss with its penalty.

    Args:
        facts: for the job's own ridge.
        gradient: as the oracle answered, shape (..., p).
        theta: where, shape (..., p).
        ridge: more of it, shape (...); a warm start's.
    """
    amount = torch.as_tensor(facts.ridge + ridge, dtype=theta.dtype).unsqueeze(-1)
    return gradient + amount * theta * _coefficients(facts, theta)


def penalised_hessian(facts: Facts, matrix: Tensor, scale: Tensor, ridge: Tensor | float = 0.0) -> Tensor:
    """Return the Hessian of the loss with its penalty, times the scale, shape (..., p, p).

    Args:
        facts: for the job's own ridge.
        matrix: the Hessian without it, times the scale, shape (..., p, p).
        scale: shape (...).
        ridge: more of it, shape (...).
    """
    amount = torch.as_tensor((facts.ridge + ridge) * scale, dtype=matrix.dtype)[..., None, None]
    return matrix + amount * torch.diag(_coefficients(facts, matrix))


def with_own_scale(facts: Facts, matrix: Tensor) -> Tensor:
    """Return a Hessian times the scale with the scale's row and column replaced by its public curvature alone.

    The scale's gradient lies between two public numbers. A step divided by that curvature therefore multiplies the
    scale by a bounded factor, for any noise and any error of the scale. A step divided by the noised entry may take it
    anywhere, for that entry vanishes where the scale is much too large.
    """
    if facts.scale is None:
        return matrix
    coefficient = _coefficients(facts, matrix)
    return matrix * torch.outer(coefficient, coefficient) + facts.scale.curvature * torch.diag(1 - coefficient)


def within_reach(facts: Facts, direction: Tensor, scale: Tensor) -> Tensor:
    """Return a step's direction with its coefficients no further than REACH residual scales, shapes (..., p).

    Where nearly all residuals are cut, because the start is far off or the scale too small, a robust loss has next to
    no Hessian, and an unlimited step would go far beyond the minimiser. An unknown scale grows meanwhile, so that later
    steps may be longer. Losses without a residual scale are not limited.
    """
    if facts.scale is None:
        if facts.residual_scale is None:
            return direction
        scale = scale * facts.residual_scale
    coefficient = _coefficients(facts, direction)
    length = torch.linalg.vector_norm(direction * coefficient, dim=-1)
    # A direction of zeros has no length, and it divides.
    shorter = (REACH * scale / length.clamp(min=1e-300)).clamp(max=1.0).unsqueeze(-1)
    # The scale's own step is not shortened.
    return direction * torch.where(coefficient > 0, shorter, 1.0)


def penalty(facts: Facts, theta: Tensor) -> Tensor:
    """Return (ridge/2) |coefficients|^2, shape (...)."""
    return facts.ridge / 2 * (theta * _coefficients(facts, theta)).square().sum(-1)


def above_floor(facts: Facts, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return theta with its scale raised to the public floor, and whether it was below, shape (...).

    A noised step may take the scale to zero or below, where the loss is not defined.
    """
    if facts.scale is None:
        return theta, torch.zeros(theta.shape[:-1], dtype=torch.bool)
    below = theta[..., -1] < facts.scale.floor
    scale = theta[..., -1:].clamp(min=facts.scale.floor)
    return torch.cat([theta[..., :-1], scale], -1), below


def _coefficients(facts: Facts, like: Tensor) -> Tensor:
    """Return 1 for each coefficient and 0 for an unknown scale, shape (p,)."""
    ones = torch.ones(facts.dimension, dtype=like.dtype)
    if facts.scale is not None:
        ones[-1] = 0.0
    return ones
