"""Largest error of a noised gradient or Hessian of held-out records against the population's: the tolerance of a test.

Letters: d the dimension, T the candidates, m the sites, n the units of the smallest site. G and M bound one unit's
gradient and, in operator norm, its Hessian. s is the standard deviation of the noise on an entry of the mean over
sites, omega the probability of any failure.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, algorithm 4. The sound tolerances, with their constants and a union over all candidates, are ours: the
selected index depends on the data, and the printed ones have neither.
"""

from dataclasses import dataclass
from math import log, sqrt


@dataclass(frozen=True)
class Held:
    """Public facts about held-out records and the candidates that are tested on them."""

    dimension: int
    candidates: int
    clients: int
    units: int
    failure: float

    @property
    def level(self) -> float:
        """L = ln(8 T/omega): four events for each candidate, each two-sided."""
        return log(8 * self.candidates / self.failure)

    @property
    def together(self) -> int:
        """The units of all clients, at least."""
        return self.clients * self.units

    @property
    def enough(self) -> bool:
        """Whether matrix Bernstein's bound is of its small-deviation form: mn >= (4/9)(ln d + L)."""
        return self.together >= 4 / 9 * (log(self.dimension) + self.level)

    def sampled_gradient(self, bound: float) -> float:
        """Return G/sqrt(mn) (1 + sqrt(2 L)), for a mean of independent vectors no longer than G."""
        return bound / sqrt(self.together) * (1 + sqrt(2 * self.level))

    def sampled_hessian(self, bound: float) -> float:
        """Return 4 M sqrt((ln d + L)/(mn)), by matrix Bernstein."""
        return 4 * bound * sqrt((log(self.dimension) + self.level) / self.together)

    def noised_gradient(self, noise: float) -> float:
        """Return s (sqrt(d) + sqrt(2 L)): the length of a normal vector."""
        return noise * (sqrt(self.dimension) + sqrt(2 * self.level))

    def noised_hessian(self, noise: float) -> float:
        """Return s (2 sqrt(d) + 2 sqrt(L)): the operator norm of a symmetric normal matrix."""
        return noise * (2 * sqrt(self.dimension) + 2 * sqrt(self.level))

    def noised_quotient(self, noise: float, products: int) -> float:
        """Return s sqrt(2 (L + ln K)): the noise of one of K products along its own vector, fixed before it."""
        return noise * sqrt(2 * (self.level + log(products)))

    def slack(self, sigma: float) -> float:
        """Return 4 sigma (ln T + ln(2/omega)), which no noise of AboveThreshold passes; in sensitivities of a score.

        With epsilon = 2/sigma it is (8/epsilon)(ln T + ln(2/omega)). An accepted score is at most twice that, and one
        of at most 0 is accepted if none before it was, with probability 1 - omega.
        """
        return 4 * sigma * (log(self.candidates) + log(2 / self.failure))


@dataclass(frozen=True)
class Printed:
    """The thresholds as they are printed: without constants, and as if the selected candidate were fixed beforehand.

    Logarithms are natural ([choice]: the print does not say).
    """

    held: Held
    epsilon: float
    delta: float

    def gradient(self, bound: float) -> float:
        """Return G log(8d/omega)/sqrt(mn) + G sqrt(d T log(1/delta) log(16/omega))/(sqrt(m) n epsilon)."""
        held = self.held
        sampled = bound * log(8 * held.dimension / held.failure) / sqrt(held.together)
        spread = held.dimension * held.candidates * log(1 / self.delta) * log(16 / held.failure)
        return sampled + bound * sqrt(spread) / self._divisor

    def hessian(self, bound: float) -> float:
        """Return M sqrt(log(8d/omega)/(mn)) + M d sqrt(T log(1/delta) log(32/omega))/(sqrt(m) n epsilon)."""
        held = self.held
        sampled = bound * sqrt(log(8 * held.dimension / held.failure) / held.together)
        spread = held.candidates * log(1 / self.delta) * log(32 / held.failure)
        return sampled + bound * held.dimension * sqrt(spread) / self._divisor

    @property
    def _divisor(self) -> float:
        """sqrt(m) n epsilon."""
        return sqrt(self.held.clients) * self.held.units * self.epsilon
