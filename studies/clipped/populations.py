"""Populations whose gradients have heavy tails of known moments, for studies of clipping.

Noise is added to the gradient of a function (`NoisySlope`), or comes from the residuals of a linear regression
(`RegressionStream`, and `RegressionTable` for one fixed set). All of it is float64 from uniform draws that are never
zero: U^(-1/a) of a float32 draw is infinite once in 2^24 draws.

Source: the laws are those of `studies.clipped.heavy_tails`; Chambers, Mallows and Stuck (1976) for stable draws.
"""

from math import pi
from typing import Literal, assert_never

import torch
from torch import Tensor

from core.base.errors import ensure
from core.queries.sums.streams import FixedRecords, Population, RandomSource
from studies.clipped.heavy_tails import IsotropicPareto, SkewedPareto, SymmetricStable

Law = IsotropicPareto | SkewedPareto | SymmetricStable
Shape = Literal["quadratic", "root", "log"]


def noise(law: Law, draws: RandomSource, *shape: int) -> Tensor:
    """Return independent draws, shape (..., d), float64.

    Of a law of one number the first coordinate has it and the others have zero.
    """
    *many, dimension = shape
    if isinstance(law, IsotropicPareto):
        way = draws.normal(*shape)
        way /= torch.linalg.vector_norm(way, dim=-1, keepdim=True)
        return way.mul_(law.scale).mul_(draws.uniform(*many, 1).pow_(-1 / law.tail))
    number = scalar(law, draws, *many).unsqueeze(-1)
    return number if dimension == 1 else torch.nn.functional.pad(number, (0, dimension - 1))


def scalar(law: Law, draws: RandomSource, *shape: int) -> Tensor:
    """Return independent draws of a law of one number."""
    match law:
        case SkewedPareto():
            return draws.uniform(*shape).pow_(-1 / law.tail).sub_(law.mean).mul_(law.scale)
        case IsotropicPareto():
            signs = torch.where(draws.uniform(*shape) > 0.5, 1.0, -1.0)  # noqa: PLR2004 - a fair coin
            return draws.uniform(*shape).pow_(-1 / law.tail).mul_(law.scale).mul_(signs)
        case SymmetricStable():
            return _stable(law, draws, *shape)
    assert_never(law)


def _stable(law: SymmetricStable, draws: RandomSource, *shape: int) -> Tensor:
    """Return sin(a T)/cos(T)^(1/a) (cos((1 - a) T)/W)^((1 - a)/a), T uniform on (-pi/2, pi/2), W exponential."""
    a = law.tail
    angle = (draws.uniform(*shape) - 2.0**-54 - 0.5).mul_(pi)  # symmetric, and never at an end
    weight = -(draws.uniform(*shape) - 2.0**-54).log_()  # above zero
    bent = (torch.cos((1 - a) * angle) / weight).pow_((1 - a) / a)
    return torch.sin(a * angle).div_(torch.cos(angle).pow_(1 / a)).mul_(bent).mul_(law.scale)


class NoisySlope(Population):
    """Gradients grad f(x) + xi of a function whose least value, zero, is at zero.

    f is |x|^2/2 (`quadratic`), c sqrt(1 + |x|^2) (`root`: convex, its slope below c), or log(1 + |x|^2) (`log`: not
    convex, smooth with L = 2).

    Args:
        law: of xi.
        replicates: R.
        units: n.
        dimension: d.
        shape: which function.
        steepness: c, of `root` alone.
    """

    def __init__(
        self,
        law: Law,
        replicates: int,
        units: int,
        dimension: int = 1,
        *,
        shape: Shape = "quadratic",
        steepness: float = 1.0,
    ) -> None:
        super().__init__(replicates, units, dimension)
        ensure(steepness == 1 or shape == "root", "a steepness is the root's")
        self.law, self._shape, self._steepness = law, shape, steepness

    def excess(self, theta: Tensor) -> Tensor:
        """Return f, shape (...)."""
        square = theta.square().sum(-1)
        match self._shape:
            case "quadratic":
                return square / 2
            case "root":
                return self._steepness * ((1 + square).sqrt() - 1)
            case "log":
                return torch.log1p(square)
        assert_never(self._shape)

    def slope(self, theta: Tensor) -> Tensor:
        """Return grad f, shape (..., d)."""
        match self._shape:
            case "quadratic":
                return theta
            case "root":
                return self._steepness * theta / (1 + theta.square().sum(-1, keepdim=True)).sqrt()
            case "log":
                return 2 * theta / (1 + theta.square().sum(-1, keepdim=True))
        assert_never(self._shape)

    def gradients(self, theta: Tensor, records: int, draws: RandomSource) -> Tensor:
        """Return the slope with each record's noise, shape (R, records, d)."""
        drawn = noise(self.law, draws, self.replicates, records, self.dimension)
        return drawn.add_(self.slope(theta).unsqueeze(-2))


class RegressionStream(Population):
    """Squared errors of y = a.w + c + residual, a uniform on the unit sphere of d - 1 dimensions; x = (w, c).

    The expected loss is quadratic with Hessian diag(1/(d - 1), ..., 1), so L = 1.

    Args:
        law: of the residuals, a law of one number.
        replicates: R.
        units: n.
        truth: (w, c), shape (d,).
    """

    def __init__(self, law: Law, replicates: int, units: int, truth: Tensor) -> None:
        super().__init__(replicates, units, len(truth))
        self.law, self.truth = law, truth

    @property
    def curvature(self) -> Tensor:
        """The Hessian's diagonal, shape (d,)."""
        slopes = torch.full((self.dimension,), 1 / (self.dimension - 1), dtype=torch.float64)
        slopes[-1] = 1.0
        return slopes

    def excess(self, theta: Tensor) -> Tensor:
        """Return the expected loss above its least value, shape (...)."""
        return ((theta - self.truth).square() * self.curvature).sum(-1) / 2

    def gradients(self, theta: Tensor, records: int, draws: RandomSource) -> Tensor:
        """Return (x.theta - y) x of new records, shape (R, records, d)."""
        features, errors = regression_records(self.law, draws, self.dimension, self.replicates, records)
        away = (features @ (theta - self.truth).unsqueeze(-1)).squeeze(-1)
        return features.mul_(away.sub_(errors).unsqueeze(-1))


class RegressionTable(FixedRecords):
    """One set of such records, drawn once, with the least-squares fit to it as the minimiser.

    Args:
        law: of the residuals, a law of one number.
        replicates: R, runs on the same records.
        units: n.
        truth: (w, c), shape (d,).
        draws: for the records.
    """

    def __init__(self, law: Law, replicates: int, units: int, truth: Tensor, draws: RandomSource) -> None:
        super().__init__(replicates, units, len(truth))
        self.features, errors = regression_records(law, draws, self.dimension, units)
        self.target = self.features @ truth + errors
        self.hessian = self.features.mT @ self.features / units
        self.minimiser: Tensor = torch.linalg.solve(self.hessian, self.features.mT @ self.target / units)

    def excess(self, theta: Tensor) -> Tensor:
        """Return the mean loss above its least value, shape (...): a quadratic form, so nothing cancels."""
        away = theta - self.minimiser
        return (away @ self.hessian * away).sum(-1) / 2

    def gradients(self, theta: Tensor, rows: Tensor) -> Tensor:
        """Return (x.theta - y) x of chosen records, shape (R, m, d)."""
        features = self.features.index_select(0, rows.flatten()).view(*rows.shape, self.dimension)
        away = (features @ theta.unsqueeze(-1)).squeeze(-1)
        return features.mul_(away.sub_(self.target.index_select(0, rows.flatten()).view(rows.shape)).unsqueeze(-1))


def regression_records(law: Law, draws: RandomSource, dimension: int, *shape: int) -> tuple[Tensor, Tensor]:
    """Return features with a last entry of 1, shape (..., d), and residuals, shape (...)."""
    ways = draws.normal(*shape, dimension - 1)
    ways /= torch.linalg.vector_norm(ways, dim=-1, keepdim=True)
    features = torch.nn.functional.pad(ways, (0, 1), value=1.0)
    return features, scalar(law, draws, *shape)
