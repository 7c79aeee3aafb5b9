"""Populations whose mean loss has strict saddles that are known exactly: principal components, and an egg carton.

Private records are never looked at to say whether a point is a saddle. Of these laws everything is known, so a method's
claims about a point can be compared with the truth. For simulations only.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex optimization
(preprint), for the conditions; the two laws are ours.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from core.base.errors import ensure
from core.queries.sums.streams import Population, RandomSource


@dataclass(frozen=True)
class Smoothness:
    """Constants of one record's loss in a region: of its slope, of its gradient's change, of its Hessian's change."""

    lipschitz: float
    """G: no gradient is longer."""
    smoothness: float
    """M: the gradient changes by at most so much a unit of distance."""
    hessian_smoothness: float
    """rho: the Hessian, in operator norm, likewise."""


class SaddlePopulation(Population):
    """A law of records with a known mean gradient and a known mean Hessian."""

    @abstractmethod
    def smoothness(self) -> Smoothness:
        """Return constants that hold for every record of the law, everywhere in its region."""

    @abstractmethod
    def mean_gradient(self, theta: Tensor) -> Tensor:
        """Return the gradient of the expected loss at theta, shape (..., p)."""

    @abstractmethod
    def mean_hessian(self, theta: Tensor) -> Tensor:
        """Return the Hessian of the expected loss at theta, shape (..., p, p)."""

    def least_curvature(self, theta: Tensor) -> Tensor:
        """Return the smallest eigenvalue of that Hessian, shape (...)."""
        ascending: Tensor = torch.linalg.eigvalsh(self.mean_hessian(theta))
        return ascending[..., 0]

    def gradients(self, theta: Tensor, records: int, draws: RandomSource) -> Tensor:
        """Return the gradients of new records, shape (R, records, p)."""
        return self._gradients(theta, self._records(records, draws))

    def gradient_pairs(self, before: Tensor, after: Tensor, records: int, draws: RandomSource) -> tuple[Tensor, Tensor]:
        """Return the gradients of new records, the same at both points."""
        drawn = self._records(records, draws)
        return self._gradients(before, drawn), self._gradients(after, drawn)

    @abstractmethod
    def _records(self, records: int, draws: RandomSource) -> tuple[Tensor, ...]:
        """Draw new records for each replicate."""

    @abstractmethod
    def _gradients(self, theta: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        """Return the gradients of drawn records, shape (R, records, p)."""


@final
class PrincipalComponent(SaddlePopulation):
    """f(u; w) = |u|^4/4 - (w.u)^2/2 with w = Sigma^(1/2) times signs, Sigma diagonal: the best rank-one matrix u u^T.

    The mean gradient is |u|^2 u - Sigma u, the mean Hessian |u|^2 I + 2 u u^T - Sigma. Stationary are 0, whose least
    curvature is -lambda_1, and sqrt(lambda_i) v_i, where it is lambda_i - lambda_1 for i > 1: saddles. The minima are
    plus and minus sqrt(lambda_1) v_1, with least curvature min(lambda_1 - lambda_2, 2 lambda_1).

    All records have one length, |w|^2 = tr Sigma. Within |u| <= B, therefore, the gradient |u|^2 u - w (w.u) is at most
    B^3 + B tr, its change a unit of distance 3 B^2 + tr, and the Hessian's 6 B.

    Args:
        spectrum: eigenvalues of Sigma, the largest first.
        units: of each replicate.
        radius: B of the region.
        replicates: R.
    """

    def __init__(self, spectrum: tuple[float, ...], units: int, radius: float, replicates: int = 1) -> None:
        super().__init__(replicates, units, len(spectrum))
        ensure(list(spectrum) == sorted(spectrum, reverse=True), "the largest eigenvalue comes first")
        self.spectrum = torch.tensor(spectrum, dtype=torch.float64)
        self.radius = radius

    def smoothness(self) -> Smoothness:
        """Return the constants of the ball."""
        trace, radius = float(self.spectrum.sum()), self.radius
        return Smoothness(radius**3 + radius * trace, 3 * radius**2 + trace, 6 * radius)

    def stationary(self, number: int) -> Tensor:
        """Return sqrt(lambda_i) v_i, shape (p,); the first, number 0, is a minimum, the others are saddles."""
        point = torch.zeros(self.dimension, dtype=torch.float64)
        point[number] = self.spectrum[number].sqrt()
        return point

    def mean_gradient(self, theta: Tensor) -> Tensor:
        """Return |u|^2 u - Sigma u."""
        return (theta.square().sum(-1, keepdim=True) - self.spectrum) * theta

    def mean_hessian(self, theta: Tensor) -> Tensor:
        """Return |u|^2 I + 2 u u^T - Sigma."""
        diagonal = theta.square().sum(-1, keepdim=True) - self.spectrum
        return torch.diag_embed(diagonal) + 2 * theta.unsqueeze(-1) * theta.unsqueeze(-2)

    def excess(self, theta: Tensor) -> Tensor:
        """Return the expected loss above -lambda_1^2/4."""
        squares = theta.square()
        risk = squares.sum(-1).square() / 4 - (self.spectrum * squares).sum(-1) / 2
        return risk + self.spectrum[0].square() / 4

    def _records(self, records: int, draws: RandomSource) -> tuple[Tensor, ...]:
        return (_signs(draws, self.replicates, records, self.dimension) * self.spectrum.sqrt(),)

    def _gradients(self, theta: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        (w,) = drawn
        along = (w @ theta.unsqueeze(-1)).neg_()
        cubic = theta.square().sum(-1, keepdim=True) * theta
        return torch.addcmul(cubic.unsqueeze(-2), w, along)


@final
class EggCarton(SaddlePopulation):
    """f(x; v, w) = sum (1 + tau v_i)(1 - cos x_i) + sigma sum w_i x_i, with signs v and w: constants hold everywhere.

    The mean loss is sum (1 - cos x_i), its Hessian diag(cos x_i): a point where k coordinates are odd multiples of pi
    and the others even ones is stationary, of index k.

    Args:
        dimension: p.
        units: of each replicate.
        tau: in [0, 1), how much records differ in steepness.
        sigma: the strength of their pull to either side.
        replicates: R.
    """

    def __init__(self, dimension: int, units: int, tau: float, sigma: float, replicates: int = 1) -> None:
        super().__init__(replicates, units, dimension)
        self.tau, self.sigma = tau, sigma

    def smoothness(self) -> Smoothness:
        """Return sqrt(p) (1 + tau + sigma), and 1 + tau twice."""
        return Smoothness(self.dimension**0.5 * (1 + self.tau + self.sigma), 1 + self.tau, 1 + self.tau)

    def saddle(self, index: int) -> Tensor:
        """Return the stationary point whose first `index` coordinates are pi, the others 0; shape (p,)."""
        point = torch.zeros(self.dimension, dtype=torch.float64)
        point[:index] = torch.pi
        return point

    def mean_gradient(self, theta: Tensor) -> Tensor:
        """Return sin x_i."""
        return theta.sin()

    def mean_hessian(self, theta: Tensor) -> Tensor:
        """Return diag(cos x_i)."""
        return torch.diag_embed(theta.cos())

    def excess(self, theta: Tensor) -> Tensor:
        """Return the expected loss, whose least value is 0."""
        return (1 - theta.cos()).sum(-1)

    def _records(self, records: int, draws: RandomSource) -> tuple[Tensor, ...]:
        shape = (self.replicates, records, self.dimension)
        return _signs(draws, *shape), _signs(draws, *shape)

    def _gradients(self, theta: Tensor, drawn: tuple[Tensor, ...]) -> Tensor:
        v, w = drawn
        return theta.sin().unsqueeze(-2) * (1 + self.tau * v) + self.sigma * w


def _signs(draws: RandomSource, *shape: int) -> Tensor:
    """Draw plus or minus one, each with probability one half."""
    return draws.uniform(*shape).sub_(1 / 2).sign_()  # a draw of exactly one half comes once in 2^53
