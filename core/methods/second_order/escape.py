"""Probability in closed form that noise carries an iterate away from a saddle, and the rounds that this takes.

Linearise around the saddle, along its most negative direction of curvature -lam, with noise of standard deviation r.
The displacement after Gamma steps of size eta is Gaussian. With *independent* noise in every step its standard
deviation is eta r a, a^2 = ((1 + eta lam)^(2 Gamma) - 1)/((1 + eta lam)^2 - 1). With *persistent* noise, one draw that
an estimator carries along, it is r ((1 + eta lam)^Gamma - 1)/lam. A gradient left at the saddle only moves the mean,
which can only raise the probability of leaving.

[derived] All of this is ours; the paper's lemmas bound the independent case for small enough steps (probability 1/8 at
least, corollary 1).

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, lemmas 1 and 2; the formulas are ours.
"""

from math import ceil, erfc, expm1, inf, log, log1p, log2, sqrt

LOG_LARGEST = 700.0
"""Exponents beyond this pass what a float holds."""


def independent_deviation(deviation: float, step_size: float, curvature: float, steps: int) -> float:
    """Return the standard deviation along a saddle's direction after so many steps with fresh noise each.

    Args:
        deviation: r, of the noise in every step, along one direction.
        step_size: eta.
        curvature: lam, minus the least eigenvalue; positive.
        steps: Gamma.
    """
    growth = 2 * log1p(step_size * curvature)
    if growth * steps > LOG_LARGEST:
        # Infinity times a zero deviation would be nan.
        return inf if deviation > 0 else 0.0
    # For small steps both powers are near 1, and a plain difference would cancel.
    return step_size * deviation * sqrt(expm1(growth * steps) / expm1(growth))


def persistent_deviation(deviation: float, step_size: float, curvature: float, steps: int) -> float:
    """Return the same where one draw of noise stays in all of the steps; arguments as above."""
    growth = log1p(step_size * curvature) * steps
    if growth > LOG_LARGEST:
        return inf if deviation > 0 else 0.0
    return deviation * expm1(growth) / curvature


def chance_beyond(distance: float, deviation: float) -> float:
    """Return P(|v| >= distance) for a Gaussian v with mean zero; without noise nothing ever leaves."""
    if deviation == 0:
        return 1.0 if distance == 0 else 0.0
    return erfc(distance / (deviation * sqrt(2)))


def rounds_for(missed: float, chance: float) -> int:
    """Return Q: the fewest independent rounds that all stay with probability at most `missed`.

    Args:
        missed: omega0, in (0, 1).
        chance: of leaving in one round, above 0.
    """
    if chance >= 1:
        return 1
    return max(1, ceil(log(1 / missed) / -log1p(-chance)))


def rounds_printed(missed: float) -> int:
    """Return Q = (26/5) log(1/omega0) of lemma 2, rounded up, its logarithm of base 2.

    It makes (7/8)^Q <= omega0, which takes 7.489 natural logarithms; read as a natural one 5.2 are too few.
    """
    return max(1, ceil(26 / 5 * log2(1 / missed)))
