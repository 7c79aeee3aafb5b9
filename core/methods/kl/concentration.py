"""Length of a normal vector: the radius that its norm exceeds with a given probability.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), lemmas 6 and 24, whose closed forms are replaced by the exact
quantile: theirs is too small for one number and too large for many.
"""

from math import log, sqrt

from scipy.special import chdtri  # the quantile of scipy.stats, which takes half a second to import


def noise_radius(dimension: int, failure: float) -> float:
    """Return q(d, p): a standard normal vector of so many coordinates is longer with probability `failure`, exactly.

    For one number it is two-sided. Its square is the upper quantile of a chi-squared law.
    """
    assert 0 < failure < 1, "a probability"
    return sqrt(float(chdtri(dimension, failure)))


def noise_radius_bound(dimension: int, failure: float) -> float:
    """Return sqrt(d) + sqrt(2 log(1/p)), never below q(d, p), by Gaussian concentration."""
    return sqrt(dimension) + sqrt(2 * log(1 / failure))
