"""Adaptive noisy gradient descent on a function of the distance alone, followed by the distance alone.

Let g(r) be the slope, and z and chi independent. A step of length eta on a gradient with noise sigma in each of d
coordinates takes r to sqrt((r - eta (g + sigma z))^2 + (eta sigma chi_{d-1})^2). This is exact in law, at a cost that
depends on neither d nor n. Written from the recursion and not from the optimizer; only the plan's figures are shared.
Runs go side by side.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent, AdaptiveGradientDescentPlan
from core.privacy.facts import Facts
from studies.kl.problems import Constants, power

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Radial:
    """Where runs ended."""

    distance: Floats
    steps: NDArray[np.int64]
    spent: Floats
    least_norm_used: float
    """The smallest noised norm that a gradient was asked with."""

    def excess(self, exponent: float) -> Floats:
        return np.where(self.distance <= 1, self.distance**exponent, 1 + exponent * (self.distance - 1))


def planned(
    exponent: float, units: int, dimension: int, *, roughness: float = 1.0, rho: float = 1.0, **options: object
) -> tuple[AdaptiveGradientDescentPlan, Facts, Constants]:
    """Return settings for |w|^p at distance 1, with L1 taken so many times too large."""
    constants = power(exponent)
    facts = constants.facts(units, dimension)
    assert constants.smoothness is not None
    asked = {"smoothness": roughness * constants.smoothness, "condition": constants.condition} | options
    return AdaptiveGradientDescent.model_validate(asked).plan(facts, sqrt(2 * rho)), facts, constants


def simulate(
    settings: AdaptiveGradientDescentPlan, facts: Facts, exponent: float, runs: int, seed: int, *, noise: float = 1.0
) -> Radial:
    """Run it from distance 1; `noise` multiplies all noise and leaves its charges, as a control that must be seen."""
    draws = np.random.default_rng(seed)
    sensitivity = settings.norm_question().sensitivity(facts)
    deviation, price, rho = settings.norm_sigma * sensitivity, settings.norm_price, settings.rho
    least, divisor = sensitivity / sqrt(rho), settings.multiple * settings.noise_length(facts)
    eta = 1 / (2 * settings.smoothness)
    distance, spent, steps = np.ones(runs), np.zeros(runs), np.zeros(runs, dtype=np.int64)
    going, least_used = np.ones(runs, dtype=bool), np.inf
    while going.any():
        going &= spent + price <= rho
        slope = exponent * np.minimum(distance, 1) ** (exponent - 1)
        norm = slope + noise * deviation * draws.standard_normal(runs)
        spent[going] += price
        sigma = norm / divisor
        going &= sigma > least
        cost = np.where(going, sensitivity**2 / (2 * np.where(going, sigma, 1.0) ** 2), 0.0)
        going &= spent + cost <= rho
        spent[going] += cost[going]
        if going.any():
            least_used = min(least_used, float(norm[going].min()))
        away = distance - eta * (slope + noise * sigma * draws.standard_normal(runs))
        across = noise * eta * sigma * np.sqrt(draws.chisquare(facts.dimension - 1, runs))
        distance = np.where(going, np.hypot(away, across), distance)
        steps += going
    return Radial(distance, steps, spent, least_used)


def slope_of(x: list[float], y: list[float]) -> tuple[float, float]:
    """Return the least-squares slope of log y on log x, and the largest residual."""
    across, up = np.log(x), np.log(y)
    slope, level = np.polyfit(across, up, 1)
    return float(slope), float(np.abs(up - slope * across - level).max())
