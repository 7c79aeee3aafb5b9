"""The adaptive rule as it is printed, which breaks its budget: for audits that must catch it, and for nothing else.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithm 3. Noise follows the signed norm, the charge its
square: where noise has made a small norm negative, the gradient gets the least noise there is for next to no charge.
"""

from dataclasses import dataclass
from math import log, sqrt
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, Question

Floats = NDArray[np.float64]
LIPSCHITZ: Final = 1.0
SMOOTHNESS: Final = 1.0


@dataclass(frozen=True)
class Rule:
    """The printed figures.

    Args:
        units: n.
        dimension: d.
        rho: the budget.
        beta: failure probability.
        lipschitz: L0.
    """

    units: int
    dimension: int
    rho: float
    beta: float
    lipschitz: float

    @property
    def logarithm(self) -> float:
        """A."""
        return log(self.units * sqrt(self.rho) / self.beta)

    @property
    def norm_deviation(self) -> float:
        return float(self.lipschitz / (sqrt(self.units) * self.rho**0.25))

    @property
    def floor(self) -> float:
        """The least noise on a gradient."""
        return 2 * self.lipschitz / (self.units * sqrt(self.rho))

    def deviation(self, norm: Floats) -> Floats:
        """Return the noise on a gradient, from the signed norm."""
        return np.maximum(norm / sqrt(self.dimension * self.logarithm), self.floor)

    def charge(self, norm: Floats) -> Floats:
        """Return what a step is charged, from the squared norm."""
        with np.errstate(divide="ignore"):
            gradient = self.lipschitz**2 * self.dimension * self.logarithm / (self.units * norm) ** 2
        return np.minimum(gradient, self.rho / 2) + sqrt(self.rho) / self.units

    def cost(self, norm: Floats) -> Floats:
        """Return what a step costs when one record is replaced by another."""
        sensitivity = 2 * self.lipschitz / self.units
        return sensitivity**2 / 2 * (1 / self.norm_deviation**2 + 1 / self.deviation(norm) ** 2)


class Pulled:
    """n - 1 records with the loss |w|^2/2, clipped, and one that pulls along the first axis, one way or the other.

    Args:
        units: n.
        dimension: d.
        sign: of the pull, 1 or -1.
    """

    replicates = None

    def __init__(self, units: int, dimension: int, sign: float) -> None:
        self.units, self.dimension, self._sign = units, dimension, sign

    def integer_sum(self, *arguments: object, **named: object) -> Tensor:
        del arguments, named
        raise AssertionError("simulated only")

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        assert isinstance(question, Gradient)
        assert question.bound(facts) == LIPSCHITZ
        assert other is None
        return torch.from_numpy(self.units * self.mean(theta.numpy()))

    def mean(self, theta: Floats) -> Floats:
        """Return the mean gradient, shape (..., d)."""
        length = np.linalg.norm(theta, axis=-1, keepdims=True)
        rest = theta * (LIPSCHITZ / np.maximum(length, LIPSCHITZ))
        pull = self._sign * LIPSCHITZ * np.eye(self.dimension)[0]
        return np.asarray(((self.units - 1) * rest + pull) / self.units)

    @property
    def facts(self) -> Facts:
        return Facts(
            units=self.units,
            dimension=self.dimension,
            adjacency=Adjacency.REPLACE_ONE,
            gradient_bound=LIPSCHITZ,
            smoothness=SMOOTHNESS,
        )


@dataclass(frozen=True)
class Audited:
    """Leakage of the printed rule's runs about the pull's sign, one entry a run."""

    ratio: Floats
    """Log-likelihood ratio of what was released."""
    realised: Floats
    """The sum of |mean - mean'|^2/(2 sigma^2)."""
    charged: Floats
    steps: int


def audit_printed(units: int, dimension: int, rho: float, beta: float, runs: int, seed: int) -> Audited:
    """Run the printed rule from the minimiser on one of two neighbours and compare what both would have answered."""
    rule = Rule(units, dimension, rho, beta, LIPSCHITZ)
    own, others = Pulled(units, dimension, 1.0), Pulled(units, dimension, -1.0)
    draws = np.random.default_rng(seed)
    theta = np.zeros((runs, dimension))
    ratio, realised, charged = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    going, steps = np.ones(runs, dtype=bool), 0
    while going.any():
        here, there = own.mean(theta), others.mean(theta)
        apart = np.linalg.norm(here, axis=1) - np.linalg.norm(there, axis=1)
        noise = rule.norm_deviation * draws.standard_normal(runs)
        norm = np.linalg.norm(here, axis=1) + noise
        deviation = rule.deviation(norm)
        step_noise = deviation[:, None] * draws.standard_normal(theta.shape)
        told = apart**2 / (2 * rule.norm_deviation**2) + ((here - there) ** 2).sum(1) / (2 * deviation**2)
        cross = noise * apart / rule.norm_deviation**2 + (step_noise * (here - there)).sum(1) / deviation**2
        realised += going * told
        ratio += going * (told + cross)
        charged += going * rule.charge(norm)
        theta -= going[:, None] * (here + step_noise) / (2 * SMOOTHNESS)
        going &= charged <= rho / 2
        steps += 1
    return Audited(ratio, realised, charged, steps)
