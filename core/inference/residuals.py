"""What noised counts of residuals by size say of their scale. Post-processing: counts are paid for already.

Counts are of disjoint intervals of sizes whose ends fall by a constant ratio, the largest first
(`core.catalogue.look_questions.LinearResidualCounts`), each with independent noise of one deviation.
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
SEEN: Final = 4.0
"""Deviations from which on something is taken to be seen."""
BEYOND: Final = 3.0
"""By lognormal errors of deviation 1, of whose mean excess about a third lies in the octave beyond the cut."""
TINY: Final = 1e-300
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
    """Return the deviation of the normal law whose sizes lie nearest to those that were told, by least squares.

    Noise on far intervals says little of it, where the noise of ranks adds up over all of them. Tails beyond three
    deviations move it as little as they move a median.
    """
    inner = sizes.edges[1:-1]
    scales = inner[-1] * 2.0 ** np.arange(0, np.log2(inner[0] / inner[-1]), 1 / GRID)
    below = 2 * ndtr(sizes.edges / scales[:, None]) - 1
    expected = below[:, :-1] - below[:, 1:]
    agreement = expected @ sizes.shares - (expected**2).sum(1) / 2
    return float(scales[int(np.argmax(agreement))])


def spread_of(sizes: Sizes) -> float:
    """Return the deviation of the normal law of whose sizes a tenth are as large as a tenth of those told."""
    kept = np.where(sizes.shares > KEPT * sizes.deviation, sizes.shares, 0.0)
    place = int(np.argmax(kept.cumsum() >= TAIL)) if kept.sum() >= TAIL else len(kept) - 1
    return float(sizes.edges[max(place, 1)]) / TAIL_DEVIATIONS


def excess_of(sizes: Sizes, cut: float) -> float:
    """Return how far what is cut off residuals may move a mean: about the mean of what sizes pass the cut by.

    Nothing, where neither the octave beyond the cut holds more than noise nor the one before it more than that of a
    normal law. Else the octave beyond counts BEYOND times, for long tails that noise hides farther out; there,
    intervals count from the largest that holds more than noise.

    Args:
        sizes: as told.
        cut: in the units of the sizes.
    """
    inner = np.sqrt(np.maximum(sizes.edges[1:], TINY) * np.minimum(sizes.edges[:-1], 2**0.5 * sizes.edges[1]))
    beyond = np.maximum(inner - cut, 0.0)
    near, before = (beyond > 0) & (inner < 2 * cut), (inner >= cut / 2) & (inner <= cut)
    told, noise = float((sizes.shares * beyond)[near].sum()), sizes.deviation * float(np.linalg.norm(beyond[near]))
    ends = sizes.edges[:-1][before].max(), sizes.edges[1:][before].min()
    normal = 2 * float(ndtr(ends[0]) - ndtr(ends[1]))
    heavier = float(sizes.shares[before].sum()) - normal > 2 * sizes.deviation * float(before.sum()) ** 0.5
    seen = np.flatnonzero(sizes.shares > SEEN * sizes.deviation)
    largest = int(seen[0]) if len(seen) else len(inner)
    far = (inner >= 2 * cut) & (np.arange(len(inner)) >= largest) & (sizes.shares > KEPT * sizes.deviation)
    close = BEYOND * max(told, noise) if heavier or told > 2 * noise else 0.0
    return close + float((sizes.shares * beyond)[far].sum())
