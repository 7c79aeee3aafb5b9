"""What an optimizer returns: an iterate made of noised answers, and what is known of its noise."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True)
class LateSteps:
    """Gradient steps with one matrix, the last thing a method did."""

    steps: int
    """Taken with the matrix `Estimate.hessian`."""
    averaged: int
    """So many iterates, the last ones, have been averaged."""


@dataclass(frozen=True)
class Estimate:
    """The last iterate or the mean of the last ones, with what its intervals need at no further cost.

    Shapes have lanes first in a simulation. Methods without Hessians leave the fields after `steps` as they are.
    """

    theta: Tensor
    """Shape (..., p), in encoded units."""
    start: Tensor
    """The public start, shape (p,)."""
    family: Literal["gradient", "newton"]
    left: Tensor
    """Whether the last step had to be brought back into the public radius; bool, shape (...)."""
    scale: float
    """Standard deviation of the noise on each coordinate of a gradient."""
    step: float
    """Step size, or damping."""
    steps: int
    """Steps really taken."""
    eigenvalue_floor: float = 0.0
    """Of noised Hessians."""
    floored: Tensor | None = None
    """Eigenvalues moved at the last step, shape (...)."""
    hessian: Tensor | None = None
    """The floored noised Hessian of the last step, shape (..., p, p)."""
    late_sum: Tensor | None = None
    """Weighted sum of noised Hessians, not floored; the last one has weight 1."""
    late_count: float = 0.0
    """Sum of these weights."""
    late_squares: float = 0.0
    """Variance of the noise on an entry of `late_sum`, relative to that of the last Hessian."""
    curvature_scale: float = 0.0
    """Standard deviation of the noise on each entry of the last noised Hessian."""
    late: LateSteps | None = None
    """Where gradient steps with the matrix `hessian` came last."""
