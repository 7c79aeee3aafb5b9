"""Scale of residuals from their noised counts by size. Post-processing: counts are paid for already.

Counts are of disjoint intervals of sizes whose ends fall by a constant ratio, the largest first
(`core.queries.looks.LinearResidualCounts`), each with independent noise of one deviation.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]
GRID: Final = 8
"""Scales that are tried to an octave: found to within 5 %."""

KEPT: Final = 1.5
"""Deviations of the noise from which on a share counts."""
TAIL: Final = 0.1
TAIL_DEVIATIONS: Final = 1.645


class Sizes(NamedTuple):
    """Noised shares of records by the size of their residual."""

    shares: Array
    """Shape (intervals,), the largest sizes first."""
    deviation: float
    """Of the noise on each."""
    edges: Array
    """Ends of the intervals, falling, shape (intervals + 1,); the first is infinite and the last 0."""


def edges_of(top: float, bins: int, per_octave: int) -> Array:
    """Return the ends of intervals, falling; the outer ones are open."""
    ends = top * 2.0 ** (-np.arange(bins + 1) / per_octave)
    ends[0], ends[-1] = np.inf, 0.0
    return ends


def scale_of(sizes: Sizes) -> float:
    """Return the deviation of the normal law whose sizes lie nearest to the noised ones, by least squares.

    Noise on far intervals says little of it, where the noise of ranks adds up over all of them. Tails beyond three
    deviations move it as little as they move a median.
    """
    inner = sizes.edges[1:-1]
    scales = inner[-1] * 2.0 ** np.arange(0, np.log2(inner[0] / inner[-1]), 1 / GRID)
    below = 2 * ndtr(sizes.edges / scales[:, None]) - 1
    expected = below[:, :-1] - below[:, 1:]
    # Least squares without the shares' own square, which is the same for every scale.
    agreement = expected @ sizes.shares - (expected**2).sum(1) / 2
    return float(scales[int(np.argmax(agreement))])


def spread_of(sizes: Sizes) -> float:
    """Return the deviation of the normal law whose upper tenth of sizes begins where the noised one does."""
    kept = np.where(sizes.shares > KEPT * sizes.deviation, sizes.shares, 0.0)
    place = int(np.argmax(kept.cumsum() >= TAIL)) if kept.sum() >= TAIL else len(kept) - 1
    # The first edge is infinite.
    return float(sizes.edges[max(place, 1)]) / TAIL_DEVIATIONS
