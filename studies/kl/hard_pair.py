"""Problems on which no private method can be good: instances of two lower bounds, to catch methods that claim to be.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), theorems 22 and 23. Theirs are not as Lipschitz as they say:
the pair's slope grows without end, and the regulariser's falls by half at a seam. Here the pair goes on linearly from
where its slope is 1, and the regulariser's tail is that of a Huber loss.
"""

from math import exp, log, sqrt

import torch
from torch import Tensor

from core.base.errors import ensure
from studies.kl.grouped import GroupedProblem
from studies.kl.problems import Constants


class HardPair(GroupedProblem):
    """One of two data sets that differ in 1/epsilon of n records, with minimisers a and -a on the line.

    With tau = kappa/(kappa - 1), r = 1/(n epsilon) and a = r^(1/(tau - 1))/2, a record +1 has the loss a - w up to a
    and (w - a)^tau beyond it. A record -1 has the mirror image. A share of (1 + r)/2 of all are +1, or in the other set
    -1. The least mean loss is (1 - r) a, at a (at -a). Between them the slope is r, so the other's minimiser is 2 a r =
    r^kappa too high.

    Args:
        units: n.
        epsilon: 1/epsilon is a whole number, odd or even as n is.
        kappa: at least 2.
        mirrored: which of the two.
    """

    def __init__(self, units: int, epsilon: float, kappa: float, *, mirrored: bool = False) -> None:
        differing = round(1 / epsilon)
        ensure(abs(differing * epsilon - 1) < 1e-9, "1/epsilon counts records")  # noqa: PLR2004 - rounding
        ensure(differing <= units, "no more records differ than there are")
        ensure((units + differing) % 2 == 0, "half of n + 1/epsilon counts records")
        ensure(kappa >= 2, "sharp minima")  # noqa: PLR2004 - the theorem's
        many, few = (units + differing) // 2, (units - differing) // 2
        super().__init__((few, many) if mirrored else (many, few), 1)
        self.kappa = kappa
        self._power = kappa / (kappa - 1)
        self._slope = differing / units
        self._half = exp(log(self._slope) / (self._power - 1)) / 2
        self._side = -1.0 if mirrored else 1.0
        # The slope tau u^(tau - 1) reaches 1 here; the loss is linear from there on.
        self._reach = exp(-log(self._power) / (self._power - 1))

    @property
    def minimiser(self) -> Tensor:
        """Shape (1,)."""
        return torch.tensor([self._side * self._half], dtype=torch.float64)

    def constants(self, start_gap: float) -> Constants:
        """Return what holds for both sets alike, the start's gap being whatever is declared.

        Between the minimisers the slope is r, and the excess is at most 2 a r = r^kappa. Beyond either, up to |w| =
        1/2, the excess is at most 1 and the slope at least (1 - r)/2. Therefore gamma = 2/(1 - r) for both.
        """
        return Constants(
            lipschitz=1.0,
            smoothness=None,
            weak_convexity=0.0,
            gamma=2 / (1 - self._slope),
            kappa=self.kappa,
            start_gap=start_gap,
            region="|w| <= 1/2 for the condition, everywhere for the bounds",
        )

    def excess(self, theta: Tensor) -> Tensor:
        """Return the mean loss above its least value, shape (...)."""
        return self.mean_loss(theta) - (1 - self._slope) * self._half

    def losses(self, theta: Tensor) -> Tensor:
        """Return the losses of a record +1 and of a record -1, shape (..., 2)."""
        beyond = torch.cat([theta - self._half, -theta - self._half], dim=-1)
        bent = beyond.clamp(0, self._reach)
        straight = (beyond - bent).clamp(min=0)
        return torch.where(beyond <= 0, -beyond, bent.pow(self._power) + straight)

    def gradients(self, theta: Tensor) -> Tensor:
        """Return their derivatives, shape (..., 2, 1); at a kink, that from outside."""
        beyond = torch.cat([theta - self._half, -theta - self._half], dim=-1)
        bent = beyond.clamp(0, self._reach)
        slope = torch.where(beyond < 0, -1.0, self._power * bent.pow(self._power - 1))
        signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
        return (slope * signs).unsqueeze(-1)


class LinearFamily(GroupedProblem):
    """Linear losses of a few sign vectors, beside a regulariser that keeps the minimiser within a public distance.

    Record i < N has the loss (L0/2) x_i.w, x_i a sign vector over sqrt(d); the others have none. All records have mu
    h(w) with h = |w|^2 up to 4 D and 8 D |w| - 16 D^2 beyond. With mu = N L0/(4 n D) the minimiser is -D times the mean
    of the x_i, at most D long, and 8 D mu <= L0/2 for N <= n/4, so every loss is L0-Lipschitz.

    Args:
        units: n, at least 4 N.
        signs: -1 and 1, shape (N, d).
        lipschitz: L0.
        distance: D.
    """

    def __init__(self, units: int, signs: Tensor, *, lipschitz: float = 1.0, distance: float = 1.0) -> None:
        some, dimension = signs.shape
        ensure(4 * some <= units, "a quarter of the records at most has a direction")
        super().__init__((1,) * some + (units - some,), dimension)
        self._lipschitz, self._distance = lipschitz, distance
        self._strength = some * lipschitz / (4 * units * distance)
        directions = signs.to(torch.float64) / sqrt(dimension)
        self._directions = torch.cat([directions, torch.zeros(1, dimension, dtype=torch.float64)])
        self._mean = directions.mean(0)

    @property
    def minimiser(self) -> Tensor:
        """Shape (d,)."""
        return -self._distance * self._mean

    @property
    def constants(self) -> Constants:
        """Constants: within 4 D the mean loss is mu |w - w*|^2 plus a constant, so PL with gamma^2 = 1/(4 mu)."""
        return Constants(
            lipschitz=self._lipschitz,
            smoothness=2 * self._strength,
            weak_convexity=0.0,
            gamma=1 / sqrt(4 * self._strength),
            kappa=2.0,
            start_gap=self._strength * self._distance**2,
            region=f"|w| <= {4 * self._distance:g} for the condition, everywhere for the bounds",
        )

    def excess(self, theta: Tensor) -> Tensor:
        """Return the mean loss above its least value, shape (...)."""
        return self.mean_loss(theta) - self.mean_loss(self.minimiser)

    def losses(self, theta: Tensor) -> Tensor:
        """Return each record's loss, shape (..., N + 1)."""
        length: Tensor = torch.linalg.vector_norm(theta, dim=-1, keepdim=True)
        seam = 4 * self._distance
        kept = length.clamp(max=seam).pow(2) + 2 * seam * (length - seam).clamp(min=0)
        return (theta @ self._directions.mT).mul(self._lipschitz / 2) + self._strength * kept

    def gradients(self, theta: Tensor) -> Tensor:
        """Return each record's gradient, shape (..., N + 1, d)."""
        length: Tensor = torch.linalg.vector_norm(theta, dim=-1, keepdim=True)
        shrunk = 2 * theta.div(length.div(4 * self._distance).clamp(min=1))
        return self._directions.mul(self._lipschitz / 2) + self._strength * shrunk.unsqueeze(-2)
