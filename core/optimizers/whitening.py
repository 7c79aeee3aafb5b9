"""The public encoding of rows that whitened Newton makes of what it learned: columns of about unit variance."""

from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.inference.shrinkage import assembled, shrink

Array = NDArray[np.float64]
LEAST_WEIGHT: Final = 0.2
LEAST_VARIANCE: Final = 0.6
"""Variances are raised to it, so that rare values and long tails are not blown up until their rows weigh nothing."""
SPARSE_VARIANCE: Final = 0.3
"""Below it that is so of a column; others fall short of LEAST_VARIANCE by their shape."""
COVARIANCE_FLOOR: Final = 0.02
LEAST_COVARIANCE: Final = 0.05
NOISE_FLOOR: Final = 0.75


def above(theta: Array, matrix: Array) -> Tensor:
    """Return a point above an encoding, as questions about re-encoded rows take them.

    A point that is longer than a row, as a multinomial model's is, has the encoding below its first numbers.
    """
    wide = np.zeros((len(matrix), len(theta)))
    wide[:, : matrix.shape[1]] = matrix
    return torch.from_numpy(np.vstack((theta, wide)))


@dataclass(frozen=True)
class Encoded:
    """A public encoding of rows with the moments that it was made of."""

    matrix: Array
    """E, shape (p, p)."""
    simple: Array
    """The map to (1, z), shape (p, p)."""
    moments: Array
    """Of (1, z, y0), as told, shape (p + 1, p + 1)."""
    weight: float
    """Mean weight."""
    whitening: Array
    """A, shape (p - 1, p - 1)."""
    mean: Array
    """m, shape (p - 1,)."""
    deviation: float
    """Of the noise on a moment."""
    raised: Array
    """What was added to variances, of (1, z), shape (p, p)."""

    @property
    def typical(self) -> Array:
        """A row v of all columns' means, as told, shape (p,)."""
        return np.asarray(np.linalg.solve(self.simple, np.concatenate(([1.0], self.mean))), dtype=np.float64)

    def at(self, theta: Array) -> Tensor:
        """Return a point above the encoding, as questions about re-encoded rows take it."""
        return above(theta, self.matrix)


def encoded_by(told: Array, deviation: float, simple: Array) -> Encoded:
    """Return the encoding that noised second moments make.

    Args:
        told: moments of (1, z) and maybe of more behind, shape (p or more, p or more).
        deviation: of the noise on a moment.
        simple: the map from encoded rows to (1, z), shape (p, p).
    """
    size = len(simple)
    weight = max(float(told[0, 0]), LEAST_WEIGHT)
    mean = told[0, 1:size] / weight
    covariance = told[1:size, 1:size] / weight - np.outer(mean, mean)
    shrunk = shrink(covariance, deviation / weight, LEAST_COVARIANCE)
    found = assembled(shrunk.vectors, shrunk.values)
    short = np.maximum(0.0, LEAST_VARIANCE - np.diag(found))
    values, vectors = np.linalg.eigh(found + np.diag(short))
    floor = max(COVARIANCE_FLOOR, NOISE_FLOOR * shrunk.kept * deviation / weight * sqrt(size))
    whitening = assembled(vectors, 1 / np.sqrt(np.maximum(values, floor)))
    whitened = np.eye(size)
    whitened[1:, 1:] = whitening
    whitened[1:, 0] = -whitening @ mean
    raised = np.diag(np.pad(np.where(np.diag(found) < SPARSE_VARIANCE, short, 0.0), (1, 0)))
    return Encoded(whitened @ simple, simple, told, weight, whitening, mean, deviation, raised)
