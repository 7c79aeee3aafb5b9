"""Moments of a Poisson model's cut residuals where the linear predictor is normal, as in whitened coordinates.

There slopes of length s give the predictor a deviation of about s. All is post-processing of noised answers, and needed
roughly: it says which law of counts fits the sizes of residuals, where to cut them, and how much the cut's correction
is worth.
"""

from math import log
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.losses.counts import CutPoisson, law

Array = NDArray[np.float64]
NODES: Final = 11
LEAST_NODE: Final = 1e-5
COARSE: Final = 400
"""Values by which one law is distinguished from another."""
LOWEST, HIGHEST = 12.0, 3.0
"""Logarithms around the rate's cap between which means are taken to lie."""
DISPERSIONS: Final[tuple[float, ...]] = (0.0, *(float(one) for one in np.geomspace(0.02, 20.0, 22)))
MOST_DISPERSION: Final = 20.0


class Rates(NamedTuple):
    """Mean counts that the records have, as parts of them; shapes (k,)."""

    means: Array
    parts: Array
    deviations: Array
    """Of the predictor from its mean, in its own deviations."""


def rates(theta: Array, rate_cap: float) -> Rates:
    """Return the rates at a point in whitened coordinates, shape (p,): its predictor is taken for normal."""
    deviations, parts = np.polynomial.hermite_e.hermegauss(NODES)
    margins = theta[0] + float(np.linalg.norm(theta[1:])) * deviations
    margins = np.clip(margins, log(rate_cap) - LOWEST, log(rate_cap) + HIGHEST)
    return Rates(np.exp(margins), parts / parts.sum(), deviations)


class Spread(NamedTuple):
    """Means over the records: of the weighted rate v mu, of v^2 mu, and of the weighted residual's square."""

    weighed: float
    twice: float
    square: float


def spread(found: Rates, rate_cap: float, dispersion: float) -> Spread:
    """Return them, without any cut, with v = min(1, M/mu)."""
    weights = np.minimum(1.0, rate_cap / found.means)
    twice = float(found.parts @ (weights**2 * found.means))
    more = float(found.parts @ ((weights * found.means) ** 2))
    return Spread(float(found.parts @ (weights * found.means)), twice, twice + dispersion * more)


def square_within(found: Rates, rate_cap: float, dispersion: float, most: float) -> float:
    """Return the mean of the weighted residual's square where that residual is shorter than `most`, 0 elsewhere."""
    total = 0.0
    for mean, part in zip(found.means, found.parts, strict=True):
        if part < LEAST_NODE:
            continue
        values, masses = law(float(mean), dispersion, COARSE)
        sizes = min(1.0, rate_cap / float(mean)) * np.abs(values - mean)
        total += float(part) * float(masses @ np.where(sizes < most, sizes**2, 0.0))
    return total


def dispersion_of(found: Rates, rate_cap: float, measured: float, deviation: float, most: float) -> float:
    """Return the dispersion with which residuals shorter than `most` have the noised mean square.

    Args:
        found: rates of the records.
        rate_cap: M.
        measured: mean square of weighted residuals shorter than `most`.
        deviation: of the noise on it; within two of a Poisson law's there is none.
        most: length.
    """
    before = (0.0, square_within(found, rate_cap, 0.0, most))
    if measured < before[1] + 2 * deviation:
        return 0.0
    for dispersion in DISPERSIONS[1:]:
        square = square_within(found, rate_cap, dispersion, most)
        if square >= measured:
            part = (measured - before[1]) / (square - before[1])
            return before[0] + part * (dispersion - before[0])
        if square < before[1]:  # more dispersion only moves residuals beyond what was seen
            return before[0]
        before = (dispersion, square)
    return MOST_DISPERSION


def correction(loss: CutPoisson, theta: Array) -> Array:
    """Return the mean of v (mu - C) x, shape (p,): the amount that the cut's mean, taken back, adds to the equation."""
    found = rates(theta, loss.rate_cap)
    table = loss.centres()
    ratios = np.interp(np.log(found.means), table.margins, table.ratios)
    shift = np.minimum(found.means, loss.rate_cap) * (1 - ratios)
    # Slopes of zero have no direction, and their length divides.
    length = max(float(np.linalg.norm(theta[1:])), 1e-12)
    along = float(found.parts @ (shift * found.deviations)) * theta[1:] / length
    return np.concatenate(([float(found.parts @ shift)], along))
