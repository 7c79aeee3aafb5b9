"""The public encoding of rows that whitened Newton makes of what it learned: columns of about unit variance."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.methods.m_estimation.inverse_roots import whitening, whitening_of_numbers

Array = NDArray[np.float64]
LEAST_WEIGHT: Final = 0.2


def above(theta: Array, matrix: Array) -> Tensor:
    """Return a point above an encoding, as questions about re-encoded rows take them.

    A point that is longer than a row, as a multinomial model's is, has the encoding below its first numbers.
    """
    wide = np.zeros((len(matrix), len(theta)))
    wide[:, : matrix.shape[1]] = matrix
    return torch.from_numpy(np.vstack((theta, wide)))


class Trimmed(NamedTuple):
    """Where sampling weights are cut."""

    cut: float = 1.0
    """A part of their declared upper bound."""
    beyond: float | None = None
    """Number of records whose weights the noise could hide beyond the cut; None: none is larger."""


UNTRIMMED: Final = Trimmed()


class Shift(NamedTuple):
    """Noised moments of an offset, in units of the linear predictor."""

    mean: float
    slopes: Array
    """Of its least squares fit on x, shape (p - 1,)."""
    variance: float
    """Beside that fit."""


@dataclass(frozen=True)
class RowEncoding:
    """A public encoding of rows with the moments that it was made of."""

    matrix: Array
    """E, shape (p, p)."""
    simple: Array
    """The map to (1, z), shape (p, p)."""
    moments: Array
    """Noised, of (1, z, y0), shape (p + 1, p + 1)."""
    weight: float
    """Mean weight."""
    whitening: Array
    """A, shape (p - 1, p - 1)."""
    mean: Array
    """m, shape (p - 1,)."""
    deviation: float
    """Of the noise on a moment."""
    raised: Array
    """Amount added to variances of (1, z), shape (p, p)."""
    metric: Array
    """Noised covariance of x, less the part that noise explains, with no variance above 1, shape (p, p)."""
    counted: float = 1.0
    """Noised mean weight of a record; answers are divided by it."""
    trimmed: Trimmed = UNTRIMMED
    shift: Shift | None = None

    def at(self, theta: Array) -> Tensor:
        """Return a point above the encoding, as questions about re-encoded rows take it."""
        return above(theta, self.matrix)


def encoded_by(
    received: Array, deviation: float, simple: Array, number: NDArray[np.bool_] | None = None
) -> RowEncoding:
    """Return the encoding that noised second moments make.

    Args:
        received: moments of (1, z) and maybe of more behind, shape (p or more, p or more).
        deviation: of the noise on a moment.
        simple: the map from encoded rows to (1, z), shape (p, p).
        number: which columns are numbers, whose variances are divided out first, shape (p - 1,); None: none.
    """
    size = len(simple)
    # A noised mean weight may be small or negative, and it divides.
    weight = max(float(received[0, 0]), LEAST_WEIGHT)
    mean = received[0, 1:size] / weight
    covariance = received[1:size, 1:size] / weight - np.outer(mean, mean)
    found = (
        whitening(covariance, deviation / weight)
        if number is None
        else whitening_of_numbers(covariance, deviation / weight, mean, number)
    )
    whitened, metric = np.eye(size), np.zeros((size, size))
    whitened[1:, 1:], metric[1:, 1:] = found.matrix, found.covariance
    whitened[1:, 0] = -found.matrix @ mean
    raised = np.diag(np.pad(found.raised, (1, 0)))
    return RowEncoding(whitened @ simple, simple, received, weight, found.matrix, mean, deviation, raised, metric)
