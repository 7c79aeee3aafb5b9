"""The paper's synthetic designs: features with an intercept, a linear predictor, normal errors or a coin.

Every draw comes from a seeded generator, so a study repeats. D1, D2 and D3 are those of sections 3.2.1 and 3.2.2 and of
figures 5(b) and 6; the covariance of D2, which the paper calls correlated, is that of the authors' published code.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator

Records = tuple[Tensor, Tensor]
"""Features, shape (R, n, p), and targets, shape (R, n); without replicates (n, p) and (n,)."""

WORD = 2.0**64


@dataclass(frozen=True)
class Design:
    """Features (1, z) with normal z, and the parameters of the target."""

    name: str
    covariance: tuple[tuple[float, ...], ...]
    truth: tuple[float, ...]
    scale: float = 2.0
    intercept: bool = True

    @property
    def dimension(self) -> int:
        """The number of coefficients, p."""
        return len(self.truth)

    def features(self, generator: SimulationGenerator, *shape: int) -> Tensor:
        """Return independent rows, float64, shape (*shape, p)."""
        root = torch.linalg.cholesky(torch.tensor(self.covariance, dtype=torch.float64))
        slopes = generator.normal(*shape, root.shape[0]) @ root.mT
        return with_intercept(slopes) if self.intercept else slopes

    def linear(self, generator: SimulationGenerator, *shape: int) -> Records:
        """Return features and a target with normal errors."""
        x = self.features(generator, *shape)
        return x, x @ self.parameters() + self.scale * generator.normal(*shape)

    def logistic(self, generator: SimulationGenerator, *shape: int) -> Records:
        """Return features and a binary target."""
        x = self.features(generator, *shape)
        return x, coins(generator, torch.sigmoid(x @ self.parameters()))

    def parameters(self) -> Tensor:
        """Return the truth, float64, shape (p,)."""
        return torch.tensor(self.truth, dtype=torch.float64)


def with_intercept(slopes: Tensor) -> Tensor:
    """Put a column of ones before the others."""
    return torch.cat([slopes.new_ones(*slopes.shape[:-1], 1), slopes], dim=-1)


def uniform(generator: SimulationGenerator, *shape: int) -> Tensor:
    """Return independent draws from [0, 1), float64."""
    count = int(torch.tensor(shape).prod())
    return torch.from_numpy(generator.bits(count) / WORD).view(*shape)


def coins(generator: SimulationGenerator, chance: Tensor) -> Tensor:
    """Return one draw for each chance, 0.0 or 1.0."""
    return (uniform(generator, *chance.shape) < chance).double()


def diagonal(size: int, value: float) -> tuple[tuple[float, ...], ...]:
    """Return a multiple of the identity."""
    return tuple(tuple(value if row == column else 0.0 for column in range(size)) for row in range(size))


D1 = Design("D1", diagonal(3, 4.0), (1.0, 1.0, 1.0, 1.0))
D2 = Design("D2", ((1.0, 0.5, 0.0), (0.5, 2.0, 0.0), (0.0, 0.0, 2.0)), (1.0, 1.0, 1.0, 1.0))
D3 = Design("D3", diagonal(3, 1.0), (1.5, 1.0, -1.0, 0.5))
