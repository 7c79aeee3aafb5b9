"""Powers of a distance: losses whose KL constants are exact, for any number of units.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), section 2; the constants are derived at
`studies.kl.problems.power`.
"""

import torch
from torch import Tensor

from core.base.errors import ensure
from studies.kl.grouped import GroupedProblem
from studies.kl.problems import Constants, power


class PowerProblem(GroupedProblem):
    """n equal units, each with the loss a |w - m|^p, continued linearly beyond a radius.

    Args:
        units: n.
        dimension: of w.
        exponent: p > 1; kappa is p/(p-1).
        coefficient: a.
        radius: where the linear part begins; it makes L0 and L1 hold everywhere.
        steepness: in one dimension, how many times steeper the loss is to the left of m than to the right.
    """

    def __init__(
        self,
        units: int,
        dimension: int,
        exponent: float,
        *,
        coefficient: float = 1.0,
        radius: float = 1.0,
        steepness: float = 1.0,
    ) -> None:
        ensure(steepness == 1 or dimension == 1, "sides are of a line")
        super().__init__((units,), dimension)
        self._exponent, self._coefficient = exponent, coefficient
        self._radius, self._steepness = radius, steepness

    @property
    def minimiser(self) -> Tensor:
        """m: -1 along the first axis, so that zero, where methods start, is at distance 1 and on the gentle side."""
        point = torch.zeros(self.dimension, dtype=torch.float64)
        point[0] = -1.0
        return point

    @property
    def constants(self) -> Constants:
        """The known constants, for a start at zero."""
        return power(self._exponent, coefficient=self._coefficient, radius=self._radius, steepness=self._steepness)

    def excess(self, theta: Tensor) -> Tensor:
        """Return the mean loss above its least value, which is zero, shape (...)."""
        return self.losses(theta).squeeze(-1)

    def losses(self, theta: Tensor) -> Tensor:
        """Return the loss of each unit, shape (..., 1)."""
        away = theta - self.minimiser
        length = torch.linalg.vector_norm(away, dim=-1, keepdim=True)
        inside = length.clamp(max=self._radius)
        p = self._exponent
        slope = p * self._radius ** (p - 1)
        return self._steepened(away).mul(inside.pow(p) + slope * (length - inside))

    def gradients(self, theta: Tensor) -> Tensor:
        """Return the gradient of each unit, shape (..., 1, p); zero at the minimiser."""
        away = theta - self.minimiser
        length = torch.linalg.vector_norm(away, dim=-1, keepdim=True)
        size = length.clamp(max=self._radius).pow(self._exponent - 1) * self._exponent
        direction = torch.where(length > 0, away / torch.where(length > 0, length, 1.0), 0.0)
        return self._steepened(away).mul(size * direction).unsqueeze(-2)

    def _steepened(self, away: Tensor) -> Tensor:
        """Return a, times the steepness to the left, shape (..., 1)."""
        sides = torch.ones_like(away[..., :1])
        return self._coefficient * torch.where(away[..., :1] < 0, self._steepness * sides, sides)
