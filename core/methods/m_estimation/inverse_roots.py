"""The map that whitens columns, from noised second moments: arithmetic on an answer, with no question."""

from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.inference.shrinkage import assembled, shrink

Array = NDArray[np.float64]
LEAST_VARIANCE: Final = 0.6
"""Variances are raised to it, so that rare values and long tails are not blown up until their rows weigh nothing."""
SPARSE_VARIANCE: Final = 0.3
"""Below it that is so of a column; others fall short of LEAST_VARIANCE by their shape."""
COVARIANCE_FLOOR: Final = 0.02
LEAST_COVARIANCE: Final = 0.05
NOISE_FLOOR: Final = 0.75
MOST_FLOORED: Final = 0.5
"""The smallest eigenvalue that is believed of a covariance is no more, however loud the noise."""
LEAST_SPREAD: Final = 0.1
CLEAR_SPREAD: Final = 3.0
QUIET_SPREAD, LOUDER = 1.15, 10.0
"""A number's variance after the look is taken to be no less than a tenth, than three deviations of its noise, and, with
less noise than a tenth, than 1.15 minus ten of them."""


class Whitening(NamedTuple):
    """A public map of z, and what is known of where it leads."""

    matrix: Array
    """A, shape (p - 1, p - 1)."""
    covariance: Array
    """Of A z, with what noise explains taken off and no variance above 1, shape (p - 1, p - 1)."""
    raised: Array
    """Amount added to variances of sparse columns of z, shape (p - 1,)."""


def whitening(covariance: Array, deviation: float) -> Whitening:
    """Return the inverse root of a noised covariance of z.

    Args:
        covariance: shape (p - 1, p - 1).
        deviation: of the noise on each of its entries.
    """
    shrunk = shrink(covariance, deviation, LEAST_COVARIANCE)
    known = assembled(shrunk.vectors, shrunk.values)
    floor = max(COVARIANCE_FLOOR, NOISE_FLOOR * shrunk.kept * deviation * sqrt(len(covariance) + 1))
    variance = np.diag(known)
    raised = np.where(variance < SPARSE_VARIANCE, LEAST_VARIANCE - variance, 0.0)
    return Whitening(*_whitened(_inverse_root(known, floor), known), raised)


def whitening_of_numbers(covariance: Array, deviation: float, mean: Array, number: NDArray[np.bool_]) -> Whitening:
    """Return a whitening that divides numbers by their noised deviations before it takes the inverse root.

    Where the look has few records, it overestimates a number's scale several times; a variance is precise even where
    noise hides the correlations. Where the look sees enough, a small variance is that of a long tail, whose rows are to
    keep their weight, as a two-valued column's.

    Args:
        covariance: noised, of z, shape (p - 1, p - 1).
        deviation: of the noise on each weighted mean of a product.
        mean: noised, of z; the covariance is without their products; shape (p - 1,).
        number: which columns are no two-valued ones, shape (p - 1,).
    """
    variance = np.diag(covariance)
    least = min(1.0, max(LEAST_SPREAD, CLEAR_SPREAD * deviation, QUIET_SPREAD - LOUDER * deviation))
    spread = np.sqrt(np.where(number, np.maximum(variance, least), 1.0))
    entry = deviation * sqrt(1 + float(mean @ mean))  # products of means have their noise too
    # Variances stay: they are precise even where noise hides all correlations.
    shrunk = shrink(covariance - np.diag(variance), entry)
    known = np.diag(variance) + assembled(shrunk.vectors, shrunk.values)
    # Dividing columns by their deviations multiplies the noise as well.
    noise = entry * float(np.mean(spread**-2.0))
    floor = max(COVARIANCE_FLOOR, min(MOST_FLOORED, NOISE_FLOOR * noise * sqrt(len(covariance) + 1)))
    matrix = _inverse_root(known / np.outer(spread, spread), floor) / spread
    return Whitening(*_whitened(matrix, known), np.zeros(len(mean)))


def _inverse_root(covariance: Array, floor: float) -> Array:
    raised = covariance + np.diag(np.maximum(0.0, LEAST_VARIANCE - np.diag(covariance)))
    values, vectors = np.linalg.eigh(raised)
    # Noise may leave eigenvalues near zero or negative, and a root divides.
    return assembled(vectors, 1 / np.sqrt(np.maximum(values, floor)))


def _whitened(matrix: Array, known: Array) -> tuple[Array, Array]:
    values, vectors = np.linalg.eigh(matrix @ known @ matrix.T)
    return matrix, assembled(vectors, np.clip(values, 0.0, 1.0))
