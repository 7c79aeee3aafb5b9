"""Centres and scales of columns from noised counts: by value, or by distance from a public centre.

All of it is arithmetic on answers. A scale far too small blows a column up until its slope means nothing. Each scale
therefore has a floor, by the spread that noise on the counts may hide.
"""

from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.methods.m_estimation.whitened_newton.shares import LEVELS

Array = NDArray[np.float64]
CAUTION: Final = 4.0
"""Deviations of a count's noise beyond which something is taken to be seen."""
KEPT: Final = 1.5
"""Deviations beyond which a count enters a scale."""
SPARSE_PART: Final = 8.0
"""A column in which nothing was seen has its declared range divided by this for a scale."""
CLAMPED_PART: Final = 0.01
"""An end of the range with more than this part of the records is noted, for values may have been cut there."""
FEWEST: Final = 3
"""Values, of which both ends have one beside them that is no end."""
HEAPED_PART, SINGLE_PART, NEARER_PART = 0.4, 0.5, 0.1
"""The innermost interval of sizes is a heap with more than the first part of the records. Any other one is a heap with
more than the second, if the two next to it towards the centre, and all nearer ones, have less than the third part of
its own."""
NEARER_CAUTION: Final = 5.0
MISSED_CAUTION: Final = 5.0
"""Deviations of the cells' noise by which a heap passes half of the records that no descent to the median misses."""
END_PART, END_CAUTION = 0.35, 3.0
"""An end of the range with more than this part of the records, and more than so many deviations, is the centre."""
HIDDEN_MASS, MOST_HIDDEN = 2.0, 0.25
"""Deviations of a count that may lie anywhere in the range unseen, beside a heap; as a part of the records at most."""


class NumberScale(NamedTuple):
    """Spread of a column about its centre, in parts of its range."""

    scale: float
    sparse: bool
    """Nothing was seen of it."""
    heaped: bool
    """About half of the records or more lie at one distance from the centre."""


def number_centre(middle: float, ends: Array, deviation: float, records: float) -> float:
    """Return a column's centre: an end of its range where a third of the records lie there, else its median.

    Args:
        middle: the median, in parts of the range.
        ends: noised counts of the cells at both ends, shape (2,).
        deviation: of their noise.
        records: number of records with a value.
    """
    least = max(END_PART * records, END_CAUTION * deviation)
    end = int(ends[1] > ends[0])
    return float(end) if ends[end] > least else middle


def number_scale(counts: Array, deviation: float, units: int, records: float, cells: float) -> NumberScale:
    """Return the scale of a column from its sizes, the distances from its centre.

    Args:
        counts: noised, by intervals of sizes that halve from one to the next; from the largest sizes, shape (bins,).
        deviation: of the noise on a count.
        units: public number of records, by which a scale is divided.
        records: number of those with a value.
        cells: deviation of the noise on the counts that the centre was found by.
    """
    middles = 2.0 ** -(np.arange(len(counts)) + 0.5)
    heap = heap_of(counts, deviation, records, cells)
    # A heap's own distance from the centre is no spread.
    seen = counts if heap is None else np.where(np.arange(len(counts)) < heap, counts, 0.0)
    first = largest_seen(seen, deviation, CAUTION)
    if first is None:
        hidden = sqrt(min(HIDDEN_MASS * deviation / units, MOST_HIDDEN))
        return NumberScale(1 / SPARSE_PART if heap is None else hidden, sparse=True, heaped=heap is not None)
    kept = np.where(seen[first:] > KEPT * deviation, seen[first:], 0.0)
    # Of three that are seen together some may lie below KEPT and be dropped.
    least = 0.5 * middles[first + 2] ** 2 * seen[first : first + 3].sum()
    square = max(float((kept * middles[first:] ** 2).sum()), float(least))
    return NumberScale(sqrt(square / units), sparse=False, heaped=heap is not None)


def heap_of(counts: Array, deviation: float, records: float, cells: float) -> int | None:
    """Return the interval of sizes in which a heap of records lies; None: they are spread out.

    A spread leaves many records in the intervals from its fullest one towards the centre. A heap leaves none: it is
    the centre itself, in the innermost interval, or nearer to it than a cell is wide. Noise on the cells may also lead
    to a centre far from a heap; where it can not, a full interval farther off has records on both sides.

    Args:
        counts: as in `number_scale`.
        deviation: as there.
        records: as there.
        cells: deviation of the noise on the counts that the centre was found by.
    """
    full = np.flatnonzero(counts > max(HEAPED_PART * records, CAUTION * deviation))
    if not len(full):
        return None
    nearest = int(full[-1])
    if nearest == len(counts) - 1:
        return nearest
    own = float(counts[nearest])
    # Both: a sum of two has little noise, and the far one of two modes has empty ones next to it.
    empty = all(
        float(nearer.sum()) < max(NEARER_PART * own, NEARER_CAUTION * sqrt(len(nearer)) * deviation)
        for nearer in (counts[nearest + 1 : nearest + 3], counts[nearest + 1 :])
    )
    # At a distance of less than a cell, or where the median of a heap may be missed.
    single = nearest >= LEVELS - 1 or own - records / 2 < MISSED_CAUTION * cells
    return nearest if empty and single and own > SINGLE_PART * records else None


def largest_seen(counts: Array, deviation: float, caution: float) -> int | None:
    """Return the first interval of sizes, from the largest, that holds more than noise, alone or with two followers."""
    alone = counts[:-3] > caution * deviation
    three = counts[:-3] + counts[1:-2] + counts[2:-1] > caution * sqrt(3) * deviation
    seen = np.flatnonzero(alone | three)
    return int(seen[0]) if len(seen) else None


def integer_scale(counts: Array, deviation: float, units: int, parameters: int) -> tuple[float, float]:
    """Return the median of a column of few values and its scale, in steps from its lowest value.

    The scale's square is the second moment about the median, of values as far away as some are seen, and at least two
    deviations of its noise, which may hide as much. Where none is seen off the median, it is that of all values. It is
    also at least that of half a step in a plausible share of the records, one in `parameters`.

    Args:
        counts: noised, of each value, shape (values,).
        deviation: of the noise on a count.
        units: public number of records.
        parameters: number of the model's features.
    """
    total, places = float(counts.sum()), np.arange(len(counts), dtype=np.float64)
    # All records have a value, unless the noised total is clearly lower.
    records = total if total < units - CAUTION * sqrt(len(counts)) * deviation else float(units)
    # Noised counts may be negative, and their sums fall: the first that passes half of the records counts.
    passed = np.cumsum(counts) >= records / 2
    centre = float(np.argmax(passed)) if passed.any() else len(counts) - 1.0
    away = np.abs(places - centre)
    squares = np.where(away <= farthest_seen(counts, away, deviation), away**2, 0.0)
    moment = float(counts @ squares) / units
    noise = deviation * float(np.linalg.norm(squares)) / units
    return centre, sqrt(max(moment, HIDDEN_MASS * noise, least_square(parameters, moment)))


def piled_up(counts: Array, deviation: float, units: int) -> tuple[bool, bool]:
    """Say at which end more than twice as many records lie as beside it, as where values beyond it were cut.

    Args:
        counts: noised, of each value, shape (values,).
        deviation: of the noise on a count.
        units: public number of records.
    """
    if len(counts) < FEWEST:
        return False, False
    ends, beside = counts[[0, -1]], counts[[1, -2]]
    # sqrt(5): the end's own noise, and twice its neighbour's.
    clear = ends - 2 * beside > CAUTION * sqrt(5) * deviation
    found = clear & (ends > CLAMPED_PART * units)
    return bool(found[0]), bool(found[1])


def farthest_seen(counts: Array, away: Array, deviation: float) -> float:
    """Return the distance from the median up to which values are seen, by octaves; of all values if none is.

    Args:
        counts: noised, of each value, shape (values,).
        away: distance of each from the median, in steps, whole numbers.
        deviation: of the noise on a count.
    """
    edge, found, most = 1.0, 0.0, float(away.max())
    while edge <= most:
        own = (away >= edge) & (away < 2 * edge)
        if float(counts[own].sum()) > CAUTION * deviation * sqrt(int(own.sum())):
            found = float(away[own].max())
        edge *= 2
    return found or most


def least_square(parameters: int, moment: float = 0.0) -> float:
    """Return the least square of an integer's scale, in steps: half a step in so many records as are plausible.

    Args:
        parameters: number of the model's features.
        moment: the noised second moment about its centre, in squared steps.
    """
    return 0.25 * max(min(1.0, moment), 1 / parameters)
