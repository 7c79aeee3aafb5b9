"""Result of an optimizer: an iterate made of noised answers, and the facts about its noise."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.inference.checks import Checks
from core.inference.error_bound import ErrorBound
from core.inference.swept import SweepOutcome

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LateSteps:
    """Gradient steps with one matrix, the last thing a method did."""

    steps: int
    """Taken with the matrix `Estimate.hessian`."""
    averaged: int
    """Number of last iterates that the mean is over."""


@dataclass(frozen=True)
class Sandwich:
    """Inputs of the intervals; shapes have replicates first in a simulation."""

    covariance: Tensor
    """Of theta: V/n plus the correction, shape (..., p, p)."""
    plain: Tensor
    """V/n alone, equation (13) divided by n."""
    curvature: Tensor
    """The floored noised Hessian M."""
    score: Tensor
    """The floored noised mean outer product of scores Q."""
    curvature_floored: Tensor
    """Eigenvalues of M moved, shape (...)."""
    score_floored: Tensor
    """Eigenvalues of Q moved, shape (...)."""
    slow: Tensor
    """Eigenvectors of M along which the steps still remember their start, shape (...)."""


@dataclass(frozen=True)
class OtherLine:
    """Of least squares, what another assumption on large residuals makes of the same answers, in encoded units."""

    tails: Literal["counted", "assumed_light"]
    """The assumption."""
    theta: Array
    """Shape (p,)."""
    covariance: Array
    """Shape (p, p)."""
    moves: Array
    """Change of theta by one record of the largest residual, as a map of its re-encoded row, shape (p, p)."""
    seen: float
    """Largest residual that was seen, up to its band's edge."""
    unseen: float
    """Number of records that the noise could hide beyond, in one band."""


@dataclass(frozen=True)
class Estimate:
    """The last iterate or the mean of the last ones, with what its intervals need at no further cost.

    Shapes have replicates first in a simulation, and what steps may differ in between replicates, shape (...), is one
    number where it is the same for all. Methods without Hessians leave the fields after `scale_floored` as they are.
    """

    theta: Tensor
    """Shape (..., p), in encoded units."""
    start: Tensor
    """Where it began, public or made of public randomness alone, shape (p,)."""
    family: Literal["gradient", "newton", "statistics"]
    left: Tensor
    """Whether the last step had to be brought back into the public radius; bool, shape (...)."""
    scale: Tensor | float
    """Standard deviation of the noise on each coordinate of a gradient."""
    step: Tensor | float
    """Step size, or damping, at the end: the actual factor of a gradient, an unknown scale included."""
    steps: Tensor | int
    """Steps really taken."""
    scale_floored: Tensor | int = 0
    """Steps after which an unknown residual scale was raised to its floor."""
    eigenvalue_floor: Tensor | float = 0.0
    """Of noised Hessians."""
    floored: Tensor | None = None
    """Eigenvalues moved at the last step, shape (...)."""
    hessian: Tensor | None = None
    """The floored noised Hessian of the last step, shape (..., p, p), its ridge included."""
    late_sum: Tensor | None = None
    """Weighted sum of noised Hessians, not floored; the last one has weight 1."""
    late_count: Tensor | float = 0.0
    """Sum of these weights."""
    late_squares: Tensor | float = 0.0
    """Variance of the noise on an entry of `late_sum`, relative to that of the last Hessian."""
    curvature_scale: Tensor | float = 0.0
    """Standard deviation of the noise on each entry of the last noised Hessian."""
    late: LateSteps | None = None
    """Where gradient steps with the matrix `hessian` came last."""
    error_bound: ErrorBound | None = None
    """The method's claims about this point; a simulation in replicates makes none."""
    sandwich: Sandwich | None = None
    """Its covariance, of methods that make their own."""
    checks: Checks | None = None
    """The method's checks of its estimate."""
    other: OtherLine | None = None
    """Of least squares, the line that is not claimed."""
    iterates: Tensor | None = None
    """Evenly spaced ones, the last of all with them, shape (K, p), of methods that return several."""
    swept: SweepOutcome | None = None
    """The release of a sweep beside its best run."""


def newton_estimate(
    theta: Array,
    covariance: Array,
    sampling: Array,
    hessian: Array,
    *,
    step: float,
    steps: int,
    checks: Checks,
    other: OtherLine | None = None,
) -> Estimate:
    """Return the estimate of a method that reckons its own covariance and checks itself.

    Args:
        theta: encoded units, shape (p,).
        covariance: of theta, shape (p, p).
        sampling: the part of it that is there without noise.
        hessian: as released, in the method's own coordinates.
        step: part of a Newton step that was taken last.
        steps: all of them.
        checks: the method's checks of itself.
        other: of least squares, the line that is not claimed.
    """
    none, size = torch.zeros((), dtype=torch.int64), len(theta)
    return Estimate(
        theta=torch.from_numpy(theta),
        start=torch.zeros(size, dtype=torch.float64),
        family="newton",
        left=torch.tensor(False),
        scale=0.0,
        step=step,
        steps=steps,
        sandwich=Sandwich(
            covariance=torch.from_numpy(covariance),
            plain=torch.from_numpy(sampling),
            curvature=torch.from_numpy(hessian),
            score=torch.zeros(size, size, dtype=torch.float64),
            curvature_floored=none,
            score_floored=none,
            slow=none,
        ),
        checks=checks,
        other=other,
    )


def by_replicate(value: Tensor | float, further: int) -> Tensor:
    """Return a number of each replicate, or of all, ready to meet tensors with so many further dimensions."""
    number = torch.as_tensor(value)
    # A bool stays one, for torch.where takes no other mask.
    number = number if number.dtype == torch.bool else number.to(torch.float64)
    return number.reshape(number.shape + (1,) * further)
