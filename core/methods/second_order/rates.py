"""The settings of theorems 2 and 3 for batches and restarts, and the rates they are said to reach.

Letters: n is the number of units, with m clients that of each; N = m n of all, N' = sqrt(m) n in what privacy costs.

The rate. With A = N^(-1/3) and B = (sqrt(d)/(N' epsilon))^(2/5) the theorems say alpha = O~(A + B). Their own kappa
does not reach that everywhere. Where its first branch is the larger one and A^(11/10) < B < A^(3/4), a term B^(5/7)
A^(3/14) exceeds both, by N^(1/42) at most. No other kappa with the same b1 and b2 closes the gap. [derived] The rate is
therefore given as O~(A + B + B^(5/7) A^(3/14)).

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, theorems 2 and 3 (the distributed exponent of m as the theorem has it, not the abstract).
"""

from math import sqrt
from typing import Annotated, Literal

from pydantic import Field

from core.privacy.facts import Frozen

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SecondOrderConstants(Frozen):
    """The constants of a loss and the sizes of its records: all public."""

    lipschitz: Positive = Field(description="G, of one unit's loss")
    smoothness: Positive = Field(description="M, of one unit's loss")
    hessian_smoothness: Positive = Field(description="rho, of one unit's loss")
    start_gap: Positive = Field(description="U: an upper bound of the start's mean loss above the least one")
    dimension: Annotated[int, Field(ge=1)]
    units: Positive = Field(description="n, of each site")
    clients: Annotated[int, Field(ge=1)] = Field(default=1, description="m")

    @property
    def all_units(self) -> float:
        """N."""
        return self.clients * self.units

    @property
    def private_units(self) -> float:
        """N', what the noise is over: the noises of m clients average out as a square root."""
        return sqrt(self.clients) * self.units


class Batches(Frozen):
    """b1 and b2 of each site, and kappa; real numbers, nothing rounded."""

    batch: float
    difference_batch: float
    drift: float
    branch: Literal["sampling", "privacy"]
    """Which of kappa's two terms is the larger one."""


def theorem_batches(ground: SecondOrderConstants, epsilon: float, step_size: float, error_radius: float) -> Batches:
    """Return b1, b2 and kappa of theorem 2, or 3 where there are several clients.

    Args:
        ground: the constants.
        epsilon: the privacy target.
        step_size: eta.
        error_radius: chi.
    """
    g, m, rho, u = ground.lipschitz, ground.smoothness, ground.hessian_smoothness, ground.start_gap
    sampling = g**1.5 * sqrt(u * rho) / (m**2.5 * sqrt(ground.all_units))
    private = g ** (14 / 15) * ground.dimension ** (2 / 5) * u ** (4 / 5) * rho ** (8 / 15)
    private /= m ** (34 / 15) * (ground.private_units * epsilon) ** (4 / 5)
    drift = max(sampling, private)
    return Batches(
        batch=ground.units * drift / (2 * u * step_size),
        difference_batch=ground.units * step_size * error_radius**2 / (2 * u),
        drift=drift,
        branch="sampling" if sampling >= private else "privacy",
    )


def theorem_rate(ground: SecondOrderConstants, epsilon: float) -> float:
    """Return A + B with the constants of theorem 2; polylogarithms are left out."""
    g, m, rho, u = ground.lipschitz, ground.smoothness, ground.hessian_smoothness, ground.start_gap
    sampling = (g * u * m / ground.all_units) ** (1 / 3)
    private = (sqrt(ground.dimension) / (ground.private_units * epsilon)) ** (2 / 5)
    constants = g ** (2 / 15) * u ** (2 / 5) * m ** (8 / 15) * rho ** -(1 / 15)
    return float(sampling + constants * private)


def rate_terms(dimension: int, units: float, epsilon: float, clients: int = 1) -> tuple[float, float, float]:
    """Return A, B and the term that the theorems leave out, all constants one."""
    first = (clients * units) ** (-1 / 3)
    second = (sqrt(dimension) / (sqrt(clients) * units * epsilon)) ** (2 / 5)
    return first, second, second ** (5 / 7) * first ** (3 / 14)


def rate_excess(dimension: int, units: float, epsilon: float, clients: int = 1) -> float:
    """Return how far the left-out term is above the larger of the others, as a quotient; 1 where it is not.

    It is one that its branch of kappa decides: where privacy's is the larger, the theorems hold as they stand.
    """
    first, second, third = rate_terms(dimension, units, epsilon, clients)
    sampled = second <= first ** (3 / 4)
    return max(1.0, third / max(first, second)) if sampled else 1.0
