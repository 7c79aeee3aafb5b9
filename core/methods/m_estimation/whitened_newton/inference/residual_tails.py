"""Part of a mean that lies in cut-off residuals, by noised counts of residuals by sign and size.

Least squares cuts residuals r at +-b, so that a record moves a sum by no more than that. The cut omits E(r - b)+ less
E(-r - b)+ from the mean. Each side's share of records beyond a size is assumed to fall as A exp(-a l - c l^2), l =
log(size/begin), from the size where counts clearly exceed noise. With c = 0 that is Pareto's law; c > 0 is nearly the
tail of a lognormal, Weibull, gamma or normal law. The values A, a and c have a public prior. The counts, with the noise
and the sampling error of each, give a posterior: the part beyond a cut, and its uncertainty. That prior is an
assumption: a group of records far out, too few for the noise to show, is not in it.

Post-processing of one answer (`core.queries.looks.LinearResidualCounts`, signed): nothing here costs
anything or meets a record.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import log, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from core.methods.m_estimation.whitened_newton.inference.residual_sizes import Sizes

Array = NDArray[np.float64]
SLOPES: Final = np.linspace(0.0, 6.0, 25)
BENDS: Final = 6.0 * np.linspace(0.0, 1.0, 19) ** 2
LEAST_INDEX, INDEX_AT = 1.5, 4.0
"""At so many times the size where a tail begins it falls by this power of the size or faster: its mean is finite."""
LIGHT: Final = 0.3
"""The prior's density of c falls as the root of 1/(c + this): heavy tails weigh a little more."""
GRID: Final = 160
WINDOWS: Final = (1, 2, 4, 6)
"""A tail begins at the largest size at which the records up to so many octaves farther out are clearly seen."""
CLEAR: Final = 3.0
"""Deviations of the noise from which on they are."""
NEAREST: Final = 0.8
"""Residual scales at which a tail begins at the nearest."""
SQUARE: Final = 2.0
"""Mean square in an octave from 1 to 2, of a density that falls a little."""
REACH: Final = 4.5
LEAST_OF_SPREAD: Final = 3.5
"""Deviations of residuals at which they may be cut, where that is farther than REACH scales of their bulk."""
STEPS, PER_OCTAVE = 18, 3
"""Cuts that are tried, six octaves."""
ROUNDS, SETTLED = 16, 1.03
DOUBT: Final = 0.25
"""Part of what a mean is corrected by that counts as an error."""
MANY_HIDDEN, SMALL = 0.005, 1 / 16
"""A part of all records that a count's noise comes to, and a residual scale over the target's own, beyond and below
which records that are not seen may carry most of a mean."""
MOST_HIDDEN: Final = 0.5
"""Of a coefficient's variance that stands for what lies beyond the cut: with more, its interval is withheld."""


@dataclass(frozen=True)
class Side:
    """Counts of the residuals of one sign, largest sizes first."""

    shares: Array
    edges: Array
    """Falling, finite but for 0."""
    deviation: float
    units: int
    scale: float
    """Of the residuals' bulk, or of all of them: a tail begins no nearer than a part of it."""

    @cached_property
    def begin(self) -> int:
        """The interval at whose lower end the tail begins."""
        lower = self.edges[1:-1]
        far, clear = lower >= NEAREST * self.scale, np.zeros(len(lower), dtype=np.bool_)
        for wide in WINDOWS:
            sums = np.convolve(self.shares[:-1], np.ones(wide))[: len(lower)]
            # The first sums have fewer terms than the window is wide.
            noise = self.deviation * np.sqrt(np.minimum(np.arange(len(lower)) + 1, wide))
            clear |= sums > CLEAR * noise
        seen = np.flatnonzero(clear & far)
        return int(seen[0]) if len(seen) else max(int(far.sum()) - 1, 0)

    @property
    def size(self) -> float:
        """Where the tail begins."""
        return float(self.edges[self.begin + 1])

    @cached_property
    def _laws(self) -> tuple[Array, Array]:
        slopes, bends = (one.ravel() for one in np.meshgrid(SLOPES, BENDS, indexing="ij"))
        allowed = slopes + 2 * bends * log(INDEX_AT) >= LEAST_INDEX
        return slopes[allowed], bends[allowed]

    def _beyond(self, sizes: Array) -> Array:
        """Return the share beyond each size over that beyond the tail's beginning, by law: shape (laws, sizes)."""
        slopes, bends = self._laws
        length = np.log(sizes / self.size)
        found: Array = np.exp(-slopes[:, None] * length - bends[:, None] * length**2)
        return found

    @cached_property
    def posterior(self) -> tuple[Array, Array, Array]:
        """The weight of each law, and the mean and the mean square of A by law."""
        noised, ends = self.shares[: self.begin + 1], self.edges[: self.begin + 2]
        beyond = self._beyond(ends)
        expected = np.diff(beyond, axis=1)
        expected[:, 0] += beyond[:, 0]  # the first interval is open
        # A noised share may be negative; its sampling variance is taken to be one record's at least.
        variance = self.deviation**2 + np.maximum(noised, 1 / self.units) / self.units
        for _ in range(2):  # the sampling error is that of what is expected
            precision = (expected**2 / variance).sum(1)
            middle, spread = (expected * noised / variance).sum(1) / precision, precision**-0.5
            ratio = middle / spread
            fit = -((noised - middle[:, None] * expected) ** 2 / variance).sum(1) / 2
            evidence = fit + np.log(spread) + log_ndtr(ratio) - np.log(self._laws[1] + LIGHT) / 2
            weights = np.exp(evidence - evidence.max())
            weights /= weights.sum()
            pull = np.exp(-(ratio**2) / 2 - log_ndtr(ratio)) / sqrt(2 * np.pi)  # of a normal variable above zero
            # Against rounding: A is positive, and its mean square is at least the square of its mean.
            mean = np.maximum(middle + spread * pull, 0.0)
            square = np.maximum(mean * middle + spread**2, mean**2)
            variance = self.deviation**2 + np.maximum(weights @ (mean[:, None] * expected), 1 / self.units) / self.units
        return weights, mean, square

    @cached_property
    def _grid(self) -> tuple[Array, Array, Array]:
        """Sizes from the tail's beginning, the share beyond each and what lies beyond by law."""
        sizes = np.geomspace(self.size, max(self.edges[0], 1.1 * self.size), GRID)
        beyond = self._beyond(sizes)
        parts = (beyond[:, 1:] + beyond[:, :-1]) / 2 * np.diff(sizes)
        rest = np.concatenate((parts[:, ::-1].cumsum(1)[:, ::-1], np.zeros((len(parts), 1))), 1)
        return sizes, beyond, rest

    def excess(self, cut: float) -> tuple[float, float]:
        """Return the mean of what sizes pass a cut by, with the variance of what is known of it."""
        weights, mean, square = self.posterior
        if cut < self.size:
            far, variance = self.excess(self.size)
            middle = np.sqrt(self.edges[1:] * self.edges[:-1])
            near = np.maximum(middle - cut, 0.0) * (np.arange(len(middle)) > self.begin)
            amount = float(weights @ mean)
            own = float(weights @ square) - amount**2
            further = (self.size - cut) ** 2 * own + (self.deviation**2 + 1 / self.units**2) * float(near @ near)
            return far + amount * (self.size - cut) + float(near @ self.shares), variance + further
        sizes, _, rest = self._grid
        place = float(np.interp(log(cut), np.log(sizes), np.arange(len(sizes))))
        low, part = int(min(place, len(sizes) - 2)), place - int(min(place, len(sizes) - 2))
        left = (1 - part) * rest[:, low] + part * rest[:, low + 1]
        found = float(weights @ (mean * left))
        return found, max(float(weights @ (square * left**2)) - found**2, 0.0)

    def square(self, cut: float) -> float:
        """Return the mean square of these residuals, cut, over all records."""
        weights, mean, _ = self.posterior
        near = np.arange(len(self.shares)) > self.begin
        base = float((self.shares * np.minimum(SQUARE * self.edges[1:] ** 2, cut**2))[near].sum())
        base += float(weights @ mean) * min(self.size, cut) ** 2
        sizes, beyond, _ = self._grid
        share, kept = weights @ (mean[:, None] * beyond), sizes <= cut
        return base + float(np.trapezoid((2 * sizes * share)[kept], sizes[kept]))


@dataclass(frozen=True)
class Tails:
    """Both sides, in one unit, with the point's intercept at which they were counted."""

    above: Side
    below: Side
    bulk: float
    """Scale of most residuals."""
    intercept: float
    hidden: bool = False
    """Noise may hide so many records, and residuals seem so small, that unseen ones may carry most of the mean."""

    def in_units_of(self, scale: float) -> "Tails":
        """Return the same in another unit, given in units of this one."""
        above, below = (replace(one, edges=one.edges / scale, scale=one.scale / scale) for one in self._sides)
        return replace(self, above=above, below=below, bulk=self.bulk / scale, intercept=self.intercept / scale)

    @property
    def _sides(self) -> tuple[Side, Side]:
        return self.above, self.below

    def beginning_at(self, scale: float) -> "Tails":
        """Return the same with tails that begin no nearer than this scale of residuals says."""
        above, below = (replace(one, scale=scale) for one in self._sides)
        return replace(self, above=above, below=below)

    def square(self, cut: float) -> float:
        """Return the mean square of residuals that are cut."""
        return self.above.square(cut) + self.below.square(cut)

    def net(self, cut: float, intercept: float | None = None) -> tuple[float, float]:
        """Return what a cut takes from the mean of residuals, with the variance of what is known of it.

        Args:
            cut: of residuals.
            intercept: of the point whose residuals are cut; None: that at which they were counted.
        """
        # By half of the cut at most: both sides' cuts must stay positive.
        moved = 0.0 if intercept is None else float(np.clip(intercept - self.intercept, -cut / 2, cut / 2))
        (above, one), (below, other) = self.above.excess(cut + moved), self.below.excess(cut - moved)
        return above - below, one + other


def tails_of(above: Sizes, below: Sizes, units: int, scale: float, intercept: float) -> Tails:
    """Return what noised counts say of both tails, in their own unit.

    Args:
        above: shares of records by the size of residuals above zero.
        below: of those below.
        units: number of records.
        scale: of the residuals' bulk.
        intercept: of the point.
    """
    edges = above.edges.copy()
    # One more step of the same ratio in place of infinity: means need a finite end.
    edges[0] = edges[1] ** 2 / edges[2]
    share = float(above.shares.sum() + below.shares.sum())
    counted = min(1.0, max(share + 2 * above.deviation * sqrt(2 * len(above.shares)), 0.1))  # records may be absent
    noise = above.deviation / counted
    sides = [Side(one.shares / counted, edges, noise, units, scale) for one in (above, below)]
    return Tails(sides[0], sides[1], scale, intercept)


def spread_of_all(tails: Tails) -> tuple[float, Tails]:
    """Return the deviation of all residuals, cut at REACH of it, and the tails beginning no nearer than it says.

    It is no less than the scale of their bulk.
    """
    spread = tails.bulk
    for _ in range(ROUNDS):
        found = max(sqrt(max(tails.square(REACH * spread), 0.0)), tails.bulk)
        settled, spread = found < SETTLED * spread, max(found, spread)
        tails = tails.beginning_at(spread)
        if settled:
            break
    return spread, tails


def best_cut(tails: Tails, noise: float) -> float:
    """Return where to cut: where the noise that a cut brings and what it leaves out are least, taken together.

    Args:
        tails: as counted, in units of all residuals' deviation.
        noise: deviation of the mean's noise for a cut of 1.
    """
    cuts = max(REACH * tails.bulk, LEAST_OF_SPREAD) * 2.0 ** (np.arange(STEPS) / PER_OCTAVE)
    costs = []
    for cut in cuts:
        net, variance = tails.net(float(cut))
        costs.append((noise * cut) ** 2 + net**2 + variance)
    return float(cuts[int(np.argmin(costs))])
