"""Figures of a description with their intervals: arithmetic on noised answers, the law of whose noise is public.

About the population, an interval counts the noise and the sampling of n independent records. About the records
themselves, it counts the noise alone. Every share is one of records that have a value in the columns it is of, unless
it is that of missing values.
"""

from collections.abc import Iterator
from functools import partial
from math import isfinite, sqrt
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaln, ndtr, ndtri, xlog1py, xlogy

from core.inference.description import Counts, Products, Sums

About = Literal["population", "records"]
Array = NDArray[np.float64]
EXACT_BELOW: Final = 400.0
"""Binomial variances beyond which sums are taken to be normal."""
WINDOW: Final = 9.0
PRECISION: Final = 1e-9
FEWEST: Final = 5.0
"""Deviations of its noise that the number of values must be, for a mean of them."""
HIDDEN: Final = "the noise hides how this column varies"
NO_VALUES: Final = "the noise hides how many records have a value"
GRID: Final = 4001
"""Correlations that an interval is searched among."""


class Figure(NamedTuple):
    """An estimate with its standard error and interval; without them where nothing can be claimed, and why."""

    estimate: float | None
    std_error: float | None
    interval: tuple[float, float] | None
    note: str | None = None


def above(units: float, share: float, excess: float, noise: float) -> float:
    """Return the chance that a binomial number less its mean, plus normal noise, is at least `excess`.

    Args:
        units: of the binomial number.
        share: its probability.
        excess: in records.
        noise: standard deviation, in records.
    """
    spread = units * share * (1 - share)
    if spread == 0 or spread > EXACT_BELOW:
        deviation = sqrt(spread + noise**2)
        return float(ndtr(-excess / deviation)) if deviation else float(excess <= 0)
    whole, mean = round(units), units * share
    reach = WINDOW * sqrt(spread) + 12
    number = np.arange(max(0, int(mean - reach)), min(whole, int(mean + reach)) + 1)
    weights = _binomial(number, whole, share)
    if noise == 0:
        # Rounding of the mean must not exclude an equal number.
        return float(weights[number - whole * share >= excess - 1e-9].sum())
    return float(weights @ ndtr((number - whole * share - excess) / noise))


def _binomial(number: NDArray[np.int64], units: int, share: float) -> Array:
    """Return the chances of so many of `units`; `scipy.stats` would do, and takes half a second to import."""
    ways = gammaln(units + 1) - gammaln(number + 1) - gammaln(units - number + 1)
    return np.asarray(np.exp(ways + xlogy(number, share) + xlog1py(units - number, -share)))


def _reach(level: float) -> float:
    """Return how many standard deviations a normal interval reaches."""
    return float(-ndtri((1 - level) / 2))


def _limits(tail: float, units: float, count: float, missing: float, size: int, noise: float) -> tuple[float, float]:
    """Return the shares that a count is consistent with: a Clopper-Pearson interval that has the noise in it.

    Let C be a cell's noised count, M that of missing values and p the share. C - p (n - M) has the law of a binomial
    number less its mean, plus noise of deviation s sqrt(1 + p^2). No denominator is estimated.
    """

    def excess(share: float) -> float:
        return count + share * missing - share * size

    def chance(share: float, *, upper: bool) -> float:
        found = above(units, share, excess(share), noise * sqrt(1 + share**2))
        return (1 - found if upper else found) - tail

    def end(*, upper: bool) -> float:
        search = partial(chance, upper=upper)
        open_end, other = (1.0, 0.0) if upper else (0.0, 1.0)
        if search(open_end) >= 0:
            return open_end
        # brentq needs a change of sign between 0 and 1.
        return float(brentq(search, 0.0, 1.0, xtol=PRECISION)) if search(other) > 0 else other

    # A count far below zero, or above n, is noise: no interval is narrower than that.
    return max(min(end(upper=False), 1 - noise / size), 0.0), min(max(end(upper=True), noise / size), 1.0)


def shares(found: Counts, size: int, level: float, about: About) -> list[Figure]:
    """Return each cell's share of the records with a value; of a partition of one cell, that of records without one.

    Args:
        found: counts, the last one of records without a value.
        size: n.
        level: of the intervals.
        about: the population or the records.
    """
    alone = found.partition.only_missing
    *cells, missing = found.counts
    measured, lost = (found.counts, 0.0) if alone else (cells, min(max(missing, 0.0), float(size)))
    present = size - lost
    noise = found.deviation
    if present < FEWEST * noise and not alone:
        return [Figure(None, None, None, NO_VALUES) for _ in measured]
    # Two deviations more: too many units make the spread too large, never too small.
    units = min(float(size), present + (0.0 if alone else 2 * noise))
    return [_share(one, lost, size, units, noise, level, about, alone=alone) for one in measured]


def _share(
    count: float, missing: float, size: int, units: float, noise: float, level: float, about: About, *, alone: bool
) -> Figure:
    present = size - missing
    share = min(max(count / present, 0.0), 1.0)
    own = noise * (1.0 if alone else sqrt(1 + share**2)) / present
    if about == "records":
        reach = _reach(level) * own
        middle = count / present
        return Figure(share, own, (min(max(middle - reach, 0.0), 1.0), max(min(middle + reach, 1.0), 0.0)))
    found = _limits((1 - level) / 2, units, count, missing, size, noise)
    return Figure(share, sqrt(own**2 + share * (1 - share) / present), found)


def counted(found: Counts, size: int, level: float) -> Iterator[Figure]:
    """Yield each cell's number of these records, within 0 and n; noise is all that it errs by."""
    reach = _reach(level) * found.deviation
    for one in found.counts:
        lower, upper = (min(max(one + sign * reach, 0.0), float(size)) for sign in (-1, 1))
        yield Figure(min(max(one, 0.0), float(size)), found.deviation, (lower, upper))


def contrasts(found: Counts, fraction: float) -> tuple[Array, Array, Array]:
    """Return for each edge (1 - p) times the count below it less p times that above, and its noise's deviation."""
    (axis,) = found.partition.axes
    assert axis.edges is not None, "quantiles are of numbers"
    cells = np.array(found.counts[:-1])
    below = np.cumsum(cells)[:-1]
    number = np.arange(1, len(cells))
    variance = (1 - fraction) ** 2 * number + fraction**2 * (len(cells) - number)
    excess = (1 - fraction) * below - fraction * (cells.sum() - below)
    return np.array(axis.edges), excess, found.deviation * np.sqrt(variance)


def quantile(found: Counts, fraction: float, size: int, level: float, about: About) -> Figure:
    """Return a quantile, as a part of the declared range, with the cells that it is consistent with.

    A cell holds the quantile only where at most p of the records lie below it and at least p below its upper edge.
    Each is tested at half of what the level leaves; the interval reaches over all cells that neither test rejects. The
    edges were learned from the same records. A count below an edge never passes that below any later point, so the
    chance to reject the cell that holds the quantile is at most that of a test at the quantile itself.
    """
    edges, excess, deviation = contrasts(found, fraction)
    measured, cells = float(sum(found.counts[:-1])), len(found.counts) - 1
    spread = found.deviation * sqrt(cells)
    if measured < FEWEST * spread:
        return Figure(None, None, None, NO_VALUES)
    units = min(float(size), measured + 2 * spread) if about == "population" else 0.0
    tail = (1 - level) / 2
    high = np.array([above(units, fraction, one, other) for one, other in zip(excess, deviation, strict=True)])
    ends = np.concatenate(([0.0], edges, [1.0]))
    kept = np.ones(cells, dtype=np.bool_)
    kept[1:] &= high >= tail
    kept[:-1] &= 1 - high >= tail
    # Noise may let the excess fall from edge to edge; interpolation needs a rising curve.
    rising = (np.maximum.accumulate(excess) + np.minimum.accumulate(excess[::-1])[::-1]) / 2
    # Clipped: next to infinities np.interp gives nan.
    estimate = float(np.interp(0.0, np.concatenate(([-np.inf], rising, [np.inf])).clip(-1e18, 1e18), ends))
    # By noise both tests may reject every cell; the estimate's own then stands.
    if not kept.any():
        kept[min(int(np.searchsorted(edges, estimate, side="right")), cells - 1)] = True
    places = np.flatnonzero(kept)
    lower, upper = float(ends[places[0]]), float(ends[places[-1] + 1])
    estimate = min(max(estimate, lower), upper)
    return Figure(estimate, None, (lower, upper))


def mean(found: Sums, size: int, level: float, about: About, *, cut: bool) -> Figure:
    """Return the mean of a number, as a part of the declared range: of all of it, or of its values as they were cut.

    The standard error counts the noise on every sum, that on the number of values too. For the population it adds the
    variance of values over their number: the noised one, plus one deviation of its own noise.
    """
    whole = found.sums[0]
    if whole < FEWEST * found.deviations[0]:
        return Figure(None, None, None, NO_VALUES)
    whole = min(whole, 1.0)
    z, spread = found.sums[1] / whole, _deviation(found.sums[1:3], found.deviations[1:3], whole)
    noise = found.deviations[1] ** 2
    if found.cut.rest is not None and not cut:
        rest = found.cut.rest
        z += rest * found.sums[3] / whole
        spread += rest * _deviation(found.sums[3:], found.deviations[3:], whole)
        noise += (rest * found.deviations[3]) ** 2
    variance = (noise + (z * found.deviations[0]) ** 2) / whole**2
    if about == "population":
        variance += spread**2 / (size * whole)
    error, middle = found.cut.reach * sqrt(variance), found.cut.centre + found.cut.reach * z
    reach = _reach(level) * error
    ends = [min(max(one, 0.0), 1.0) for one in (middle - reach, middle, middle + reach)]
    return Figure(ends[1], error, (ends[0], ends[2]))


def _deviation(moments: tuple[float, ...], noises: tuple[float, ...], whole: float) -> float:
    """Return the deviation of a number with these first two moments, at most 1 in size, rather too large."""
    (first, second), (one, other) = moments, noises
    noise = sqrt(other**2 + (2 * first / whole * one) ** 2) / whole
    return sqrt(min(max(second / whole - (first / whole) ** 2, 0.0) + noise, 1.0))


def correlations(found: Products, size: int, level: float, about: About) -> list[Figure]:
    """Return the correlation of each pair of cut values, row after row.

    The interval holds every rho for which the noised covariance less rho times the noised deviations is within its
    noise and sampling. This difference is linear in rho, so an estimate near 1 or beyond needs no transformation.
    """
    k = len(found.columns)
    moments = np.zeros((k + 1, k + 1))
    moments[np.triu_indices(k + 1)] = found.products
    # A noised share of complete records may be zero or negative, and it divides.
    whole = min(max(float(moments[0, 0]), found.deviation), 1.0)
    means = moments[0, 1:] / whole
    variances = np.diag(moments)[1:] / whole - means**2
    figures = []
    for pair, (one, other) in enumerate(zip(*np.triu_indices(k, 1), strict=True)):
        if found.hidden[one] or found.hidden[other]:
            figures.append(Figure(None, None, None, HIDDEN))
            continue
        scales = np.sqrt(variances[[one, other]])
        measured = float((moments[one + 1, other + 1] / whole - means[one] * means[other]) / scales.prod())
        noise = found.deviation / whole
        sampled = 0.0
        if about == "population":
            sampled = (max(found.influences[pair], 0.0) / whole + found.influence_deviation / whole) / (size * whole)
        tried = np.linspace(-1, 1, GRID)
        variance = noise**2 * _noise_factor(tried, means[[one, other]] / scales, scales) + sampled * found.cap
        within = tried[np.abs(measured - tried) <= _reach(level) * np.sqrt(variance)]
        estimate = min(max(measured, -1.0), 1.0)
        at = float(np.interp(estimate, tried, variance))
        ends = (float(within[0]), float(within[-1])) if within.size else (estimate, estimate)
        step = 2 / (GRID - 1)
        # A step wider: the true end lies between two points of the grid.
        figures.append(Figure(estimate, sqrt(at), (max(ends[0] - step, -1.0), min(ends[1] + step, 1.0))))
    assert all(isfinite(one.std_error or 0.0) for one in figures), "figures are finite"
    return figures


def _noise_factor(rho: Array, means: Array, scales: Array) -> Array:
    """Return the variance of the noised correlation's noise less rho's, for unit noise on every moment.

    With s = (z - m)/d the polynomial s s' - rho (s^2 + s'^2)/2 has these coefficients on 1, z, z', z^2, z'^2 and z z'.
    """
    (a, b), (d, e) = means, scales
    return np.asarray(
        (a * b - rho * (a**2 + b**2) / 2) ** 2
        + ((rho * a - b) / d) ** 2
        + ((rho * b - a) / e) ** 2
        + (rho / (2 * d**2)) ** 2
        + (rho / (2 * e**2)) ** 2
        + (1 / (d * e)) ** 2
    )
