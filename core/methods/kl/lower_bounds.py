"""Lower bounds on the excess risk of every private method, beside the guarantees of ours.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), corollary 7, theorems 22 and 23. Only the last has a constant;
the others are orders of magnitude, logarithms dropped, and say so.
"""

from math import exp, expm1, inf, log, sqrt

from core.methods.kl.condition import KlCondition
from core.privacy.conversions import textbook_epsilon
from core.privacy.facts import Facts
from farthing.schemas.estimates import LowerBound

LARGEST_EPSILON = log(2)
"""Theorem 23 is about no larger one."""


def resolution(units: int, dimension: int, rho: float, lipschitz: float, gamma: float) -> float:
    """Return x = gamma L0 sqrt(d)/(n sqrt(rho)), the figure that all rates are powers of."""
    return gamma * lipschitz * sqrt(dimension) / (units * sqrt(rho))


def smooth(condition: KlCondition, *, units: int, dimension: int, rho: float, lipschitz: float) -> LowerBound | None:
    """Return x^kappa for 1 < kappa <= 2, whatever the smoothness; None for kappa = 1, of which no bound is known.

    Source: corollary 7.
    """
    if not 1 < condition.kappa <= 2:  # noqa: PLR2004 - the corollary's
        return None
    value = exp(condition.kappa * log(resolution(units, dimension, rho, lipschitz, condition.gamma)))
    return LowerBound(value=value, exact=False, source="Menart et al. (2024), corollary 7: order of magnitude")


def convex(*, units: int, dimension: int, epsilon: float, lipschitz: float, distance: float) -> LowerBound:
    """Return L0 D min(sqrt(d)/(n epsilon), 1) for convex losses without any growth, minimisers at distance D.

    Source: theorem 22.
    """
    value = lipschitz * distance * min(sqrt(dimension) / (units * epsilon), 1.0)
    return LowerBound(value=value, exact=False, source="Menart et al. (2024), theorem 22: order of magnitude")


def sharp(units: int, epsilon: float, kappa: float) -> LowerBound | None:
    """Return (1/4) (1/(n epsilon))^kappa, kappa >= 2, in one dimension; None where the theorem says nothing.

    It holds for (epsilon, delta)-DP with epsilon <= log 2 and delta <= (1 - e^-epsilon)/16, of 1-Lipschitz losses.
    Source: theorem 23.
    """
    if kappa < 2 or epsilon > LARGEST_EPSILON:  # noqa: PLR2004 - the theorem's
        return None
    value = 0.25 * exp(-kappa * log(units * epsilon))
    return LowerBound(value=value, exact=True, source="Menart et al. (2024), theorem 23, in one dimension")


def sharp_epsilon(rho: float) -> float:
    """Return the least epsilon for which rho-zCDP implies (epsilon, (1 - e^-epsilon)/16)-DP; infinite above log 2.

    For `sharp`, whose bound is the larger the smaller the epsilon.
    """

    def implied(epsilon: float) -> bool:
        # 1 - exp(-epsilon) would cancel for a small epsilon.
        return textbook_epsilon(rho, -expm1(-epsilon) / 16) <= epsilon

    low, high = 0.0, LARGEST_EPSILON
    if not implied(high):
        return inf
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if implied(middle) else (middle, high)
    # The upper end always satisfies the condition; the lower end does not.
    return high


def forced(condition: KlCondition, facts: Facts, clip: float, rho: float) -> LowerBound | None:
    """Return the lower bound of the problem class; None: none is known of it.

    Args:
        condition: of the mean loss.
        facts: public.
        clip: no unit's gradient is longer.
        rho: the budget, in zero-concentrated terms.
    """
    if condition.kappa <= 2:  # noqa: PLR2004 - corollary 7's
        return smooth(condition, units=facts.units, dimension=facts.dimension, rho=rho, lipschitz=clip)
    epsilon = sharp_epsilon(rho)
    return None if epsilon == inf else sharp(facts.units, epsilon, condition.kappa)
