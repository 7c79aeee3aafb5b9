"""Laws of errors that judge how least squares finds a mean, and the cells they are judged in.

Made and committed, with their seed, before the change was run on any of them. It is tuned on the laws of
`benchmarks.trust.fresh_linear` and on normal, t and heteroskedastic errors. Each law has mean zero and a deviation of
about one.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from scipy.special import gamma as gamma_function

from benchmarks.trust.shapes import Array

SEED: Final = 41_870_563
WEIBULL_INDEX: Final = 0.6


def weibull(draws: np.random.Generator, values: Array) -> Array:
    """Return Weibull errors of index .6."""
    centred: Array = (draws.weibull(WEIBULL_INDEX, len(values)) - gamma_function(1 + 1 / WEIBULL_INDEX)) / 2.6
    return centred


def inverse_gaussian(draws: np.random.Generator, values: Array) -> Array:
    """Return inverse Gaussian errors of mean 1 and variance 1, less the mean."""
    return draws.wald(1.0, 1.0, len(values)) - 1


def gumbel_below(draws: np.random.Generator, values: Array) -> Array:
    """Return errors whose long tail is on the left: less a Gumbel variable."""
    return np.euler_gamma - draws.gumbel(size=len(values))


def lognormal_below(draws: np.random.Generator, values: Array) -> Array:
    """Return errors whose tail on the left is lognormal, of deviation .9 on the log's scale."""
    centred: Array = (float(np.exp(0.405)) - np.exp(0.9 * draws.normal(size=len(values)))) / 1.7
    return centred


def _inflated(draws: np.random.Generator, amounts: Array, mean: float, zeros: float, scale: float) -> Array:
    given = amounts * (draws.random(len(amounts)) > zeros)
    return (given - (1 - zeros) * mean) / scale


def gamma_third(draws: np.random.Generator, values: Array) -> Array:
    """Return amounts that are zero in three of ten records and gamma ones of shape .8 in the others."""
    return _inflated(draws, draws.gamma(0.8, size=len(values)), 0.8, 0.3, 0.85)


def gamma_most(draws: np.random.Generator, values: Array) -> Array:
    """Return amounts that are zero in eight of ten records and gamma ones of shape 2 in the others."""
    return _inflated(draws, draws.gamma(2.0, size=len(values)), 2.0, 0.8, 1.0)


def lognormal_half(draws: np.random.Generator, values: Array) -> Array:
    """Return amounts that are zero in half of the records and lognormal ones of .7 in the others."""
    return _inflated(draws, np.exp(0.7 * draws.normal(size=len(values))), float(np.exp(0.245)), 0.5, 1.1)


def lognormal_most(draws: np.random.Generator, values: Array) -> Array:
    """Return amounts that are zero in nine of ten records and lognormal ones of 1 in the others."""
    return _inflated(draws, np.exp(draws.normal(size=len(values))), float(np.exp(0.5)), 0.9, 0.9)


def lopsided(draws: np.random.Generator, values: Array) -> Array:
    """Return exponential errors of both signs, longer ones above, both longer where the first column is far out."""
    above = draws.random(len(values)) < 0.5
    sizes = draws.exponential(size=len(values))
    found: Array = np.where(above, 1.2 * sizes - 1.2, 0.6 - 0.6 * sizes) * (0.6 + 0.5 * np.abs(values[:, 0]))
    return found


def rising(draws: np.random.Generator, values: Array) -> Array:
    """Return gamma errors of shape 1 whose size rises with the first column."""
    found: Array = (draws.gamma(1.0, size=len(values)) - 1) * (0.3 + 0.7 / (1 + np.exp(-values[:, 0])))
    return found


def two_normals(draws: np.random.Generator, values: Array) -> Array:
    """Return normal errors, in one of ten records about 3 with a deviation of 1.5, less the mean."""
    far = draws.random(len(values)) < 0.1
    return np.where(far, 3 + 1.5 * draws.normal(size=len(values)), 0.6 * draws.normal(size=len(values))) - 0.3


def normal_and_late(draws: np.random.Generator, values: Array) -> Array:
    """Return normal errors, in one of twenty records exponential ones of mean 4 beside, less the mean."""
    late = draws.random(len(values)) < 0.05
    found: Array = 0.7 * draws.normal(size=len(values)) + 4 * late * draws.exponential(size=len(values)) - 0.2
    return found


def student_five(draws: np.random.Generator, values: Array) -> Array:
    """Return t5 errors of deviation 1: symmetric, with tails."""
    scaled: Array = draws.standard_t(5, len(values)) * 0.6**0.5
    return scaled


def fanned(draws: np.random.Generator, values: Array) -> Array:
    """Return normal errors whose deviation grows with the second column: symmetric, of unequal variance."""
    found: Array = draws.normal(size=len(values)) * np.exp(0.35 * values[:, 1])
    return found


def by_groups(draws: np.random.Generator, values: Array) -> Array:
    """Return normal errors of deviation .5 or, in a quarter of the records, 1.8: symmetric."""
    return draws.normal(size=len(values)) * np.where(draws.random(len(values)) < 0.25, 1.8, 0.5)


MEANS: Final[dict[str, Callable[[np.random.Generator, Array], Array]]] = {
    "weibull": weibull,
    "inverse_gaussian": inverse_gaussian,
    "gumbel_below": gumbel_below,
    "lognormal_below": lognormal_below,
    "gamma_third": gamma_third,
    "gamma_most": gamma_most,
    "lognormal_half": lognormal_half,
    "lognormal_most": lognormal_most,
    "lopsided": lopsided,
    "rising": rising,
    "two_normals": two_normals,
    "normal_and_late": normal_and_late,
    "student_five": student_five,
    "fanned": fanned,
    "by_groups": by_groups,
}
SYMMETRIC: Final = ("student_five", "fanned", "by_groups")
SIZES: Final = ((2000, 4, 0.3), (1000, 3, 1.0), (4000, 6, 1.0), (4000, 6, 0.3), (20_000, 10, 0.3), (20_000, 4, 3.0))
"""Of each law: records, coefficients, mu."""
