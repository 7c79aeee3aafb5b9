"""What an optimizer returns: an iterate made of noised answers, and what is known of its noise."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True)
class Estimate:
    """The last iterate, with what the finite-sample correction of its intervals needs at no further cost.

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
    """Sum of the noised Hessians, not floored, of the later half of the steps."""
    late_count: int = 0
    curvature_scale: float = 0.0
    """Standard deviation of the noise on each entry of one noised Hessian."""
