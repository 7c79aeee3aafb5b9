"""Matrices of contrasts times features from the coordinates that their questions list: see `class_questions`."""

from functools import cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from core.data.contrasts import contrast_rows
from core.methods.m_estimation.whitened_newton.inference.last_step import NoisedAnswer

Array = NDArray[np.float64]


def contrasts_of(classes: int) -> Array:
    """Return U, shape (K, K - 1)."""
    return np.array(contrast_rows(classes))


def matrix_of(listed: Array, features: int) -> Array:
    """Return the symmetric matrix of x_i x_j for i <= j, those above the diagonal times sqrt(2), shape (p, p)."""
    first, second = np.triu_indices(features)
    found = np.zeros((features, features))
    found[first, second] = found[second, first] = listed / np.where(first == second, 1.0, sqrt(2))
    return found


def unfolded(listed: Array, contrasts: int, features: int) -> Array:
    """Return the matrix of all contrasts and features, shape (m p, m p), of its list of coordinates."""
    blocks, factors = listed.reshape(contrasts * (contrasts + 1) // 2, -1), 1 / sqrt(2)
    found = np.zeros((contrasts, features, contrasts, features))
    for (one, other), block in zip(_pairs(contrasts), blocks, strict=True):
        # Blocks of two contrasts are listed once, times sqrt(2), as entries of two features are.
        matrix = matrix_of(block, features) * (1.0 if one == other else factors)
        found[one, :, other, :] = found[other, :, one, :] = matrix
    size = contrasts * features
    return found.reshape(size, size)


@cache
def _pairs(contrasts: int) -> tuple[tuple[int, int], ...]:
    return tuple((one, other) for one in range(contrasts) for other in range(one, contrasts))


def effective(contrasts: int, features: int) -> float:
    """Return the deviation of independent entries that would spread eigenvalues as noise on coordinates does, over its.

    Noise of deviation 1 on each coordinate has the energy m (m + 1)/2 p (p + 1)/2, as that many coordinates; (m p)^2
    independent entries of the deviation returned here have the same. Its edge, twice this times sqrt(m p), is the
    largest eigenvalue's to 2 to 18 % (less for small matrices).
    """
    return sqrt((contrasts + 1) * (features + 1) / (4 * contrasts * features))


def as_matrix(listed: Array, scale: float, contrasts: int, features: int) -> NoisedAnswer:
    """Return a noised matrix, with the deviation that eigenvalues of its noise spread by."""
    return NoisedAnswer(unfolded(listed, contrasts, features), scale * effective(contrasts, features))
