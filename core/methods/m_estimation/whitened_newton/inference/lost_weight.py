"""The part of a column's spread that the row weights keep, and where equal weights may give another estimate.

The look counted a column's records by their distance from its centre. The weight of a record at a distance follows from
public figures, so the counts say how much of the column's second moment the weights keep. Where a model is wrong in the
rest, equal weights give another coefficient. All of it is arithmetic on answers already paid for.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.inference.looks import SeenSizes
from core.inference.shrinkage import TINY
from core.privacy.facts import Ranges

Array = NDArray[np.float64]
FAR: Final = 4.0
"""Deviations from the centre beyond which a straight line is not believed; sizes are known to an octave."""
OTHER_EFFECT: Final = 0.25
"""Part of a slope by which the effect may differ among records that lose their weight."""
MOST_DIFFERENCE: Final = 0.5
"""Standard errors that the estimate of equal weights may be away without a word."""


class LostWeight(NamedTuple):
    """By coefficient."""

    kept: tuple[float | None, ...]
    """The part of its column's second moment about the centre that weights keep; None: nothing was counted."""
    weighted: tuple[bool, ...]
    """The estimate of equal weights is foreseen to be over MOST_DIFFERENCE standard errors away."""


class Parts(NamedTuple):
    """Of a column's second moment about its centre, 0 to 1."""

    kept: float
    """By the weights."""
    lost: float
    """By weights of records beyond FAR."""


def parts_of(sizes: Mapping[int, SeenSizes], centre: Array, encoding: Array, weight_bound: float) -> dict[int, Parts]:
    """Return which part of each column's second moment weights keep, and which far records lose, by its place.

    Of a record at a distance d from the centre, re-encoded, the other columns are taken to be as usual:
    |E x|^2 = p - 1 + d^2/v. Re-encoded rows have the second moments I, so v is the column's about its centre.

    Args:
        sizes: of columns, by their place.
        centre: of all, shape (p,).
        encoding: E, shape (p, p).
        weight_bound: t.
    """
    inverse, found = np.linalg.inv(encoding), dict[int, Parts]()
    for place, own in sizes.items():
        away = inverse[place] - centre[place] * inverse[0]  # times E x, the column less its centre
        relative = own.distances**2 / max(float(away @ away), TINY)
        whole = float(own.counts @ relative)
        if whole > 0:
            weights = np.minimum(1.0, weight_bound**2 / (len(encoding) - 1 + relative))
            far = np.where(relative > FAR**2, 1 - weights, 0.0)
            found[place] = Parts(*(float(own.counts @ (relative * part)) / whole for part in (weights, far)))
    return found


def lost_weight(parts: Mapping[int, Parts], theta: Array, errors: Array, encoding: Array, ranges: Ranges) -> LostWeight:
    """Return where equal weights may give another estimate.

    Where far records lose weight, the effect may be another by OTHER_EFFECT of the slope. The slope then moves by that
    times the part that is lost. The intercept moves with a slope that is marked, for a fit goes through the mean. A
    column of two values has one effect, and no part here.

    Args:
        parts: of `parts_of`.
        theta: encoded units, shape (p,), or (classes, p).
        errors: standard errors of the slopes and of the intercept in declared units, of the same shape.
        encoding: E, shape (p, p).
        ranges: of the features.
    """
    each = [parts.get(place) for place in range(len(encoding))]
    lost = np.array([0.0 if one is None else one.lost for one in each])
    kept = tuple(None if one is None else one.kept for one in each)
    moved = OTHER_EFFECT * lost * np.abs(theta)
    inverse = np.linalg.inv(encoding)
    # Second moments of re-encoded rows are I, and the first number of an encoded row is 1.
    middle = inverse @ inverse[0] / float(inverse[0] @ inverse[0])
    away = np.array(ranges.origin or np.eye(len(encoding))[0]) - middle
    marked = moved > MOST_DIFFERENCE * errors
    whole = OTHER_EFFECT * np.array([0.0 if part is None else 1 - part for part in kept]) * np.abs(theta) * marked
    carried = np.sqrt(((whole * away) ** 2)[..., 1:].sum(-1))
    marked[..., 0] = carried > MOST_DIFFERENCE * errors[..., 0]
    several = np.atleast_2d(marked)
    return LostWeight(kept * len(several), tuple(several.ravel().tolist()))
