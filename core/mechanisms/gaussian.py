"""Discrete Gaussian noise on the integers, for vectors and symmetric matrices.

The law with parameter sigma gives x the probability exp(-x^2 / (2 sigma^2)) / Z (Canonne, Kamath and Steinke 2020). For
an integer shift m and an integer order k, E_0[(p_m/p_0)^k] = exp((k^2 - k) m^2 / (2 sigma^2)), in any dimension: its
Renyi price is exactly the continuous Gaussian's.

Draw. A narrow law comes from its cumulative distribution in 128-bit integers, a table that 64 uniform bits, and 64 more
on a tie, are compared with exactly (`core.mechanisms.cumulative`). For a wide law the table has cells of 2^k integers.
Further uniform bits, and sometimes a test, select one of a cell's integers (`core.mechanisms.strips`, which bounds the
distance of a draw from the ideal law).

`distance_per_draw` is below 2^-108 for every parameter. Each coordinate that is drawn is counted for it
(`core.privacy.draws`).
"""

from collections.abc import Iterator
from functools import lru_cache
from math import floor, isfinite, log2
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.base.errors import ensure
from core.mechanisms.draws import Draws
from core.mechanisms.generator import Generator, SystemGenerator
from core.mechanisms.strips import Strips
from core.privacy.draws import DRAW_BITS

SMALLEST_PARAMETER: Final = 0.5
LARGEST_PARAMETER: Final = 2.0**50
WIDEST_TABLE: Final = 1024.0
"""The largest parameter of a table of single integers: bounds the table and the time to make it."""

CELLS: Final = 64
"""A wide law's parameter is this many cells, or up to twice as many: fewer are tested more often, more undecided."""

DISTANCE_CAP: Final = 2.0**-DRAW_BITS
"""No draw is farther than this from the ideal law, in total variation."""

CHUNK: Final = 2**15
SHORT: Final = 2**10
"""Vectors up to this length are cut from draws made ahead: a call costs more than they do."""


def _fine(sigma: float) -> int:
    """Return k of the cells of 2^k integers; 0 for a narrow law."""
    return 0 if sigma <= WIDEST_TABLE else floor(log2(sigma / CELLS))


class DiscreteGaussian:
    """The law with a given parameter, ready to draw. Making one takes 1 to 30 ms; `discrete_gaussian` keeps some.

    Args:
        parameter: sigma, in [0.5, 2**50]. It is public.

    Attributes:
        sigma: the parameter.
        distance: bound on the total-variation distance of one draw from the ideal law.
        strips: its recipe.
        draws: of it.
    """

    __slots__ = ("distance", "draws", "sigma", "strips")

    def __init__(self, parameter: float) -> None:
        ensure(isfinite(parameter), "the parameter is a number")
        ensure(SMALLEST_PARAMETER <= parameter <= LARGEST_PARAMETER, "the parameter is in [0.5, 2**50]")
        self.sigma = float(parameter)
        self.strips: Final = Strips(self.sigma, _fine(self.sigma))
        self.draws: Final = Draws(self.strips)
        self.distance = self.strips.distance()
        ensure(self.distance <= DISTANCE_CAP, "the structure keeps its promise")

    def draw(self, generator: Generator, size: int) -> NDArray[np.int64]:
        """Return `size` independent draws, shape (size,).

        Works through chunks that stay in the cache; time depends on the random bits and `size` alone.
        """
        if size <= CHUNK:
            return self.draws.draw(generator, self.draws.room(size), size)
        drawn = np.empty(size, dtype=np.int64)
        for start, piece in self.pieces(generator, size):
            drawn[start : start + piece.size] = piece
        return drawn

    def pieces(self, generator: Generator, size: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the same draws piece by piece, each with the place where it begins, and overwritten by the next."""
        room = self.draws.room(min(size, CHUNK))
        for start in range(0, size, CHUNK):
            yield start, self.draws.draw(generator, room, min(CHUNK, size - start))


@lru_cache(maxsize=64)
def discrete_gaussian(sigma: float) -> DiscreteGaussian:
    """Return the law with parameter `sigma`; recent ones are kept, since a job asks with few sigmas."""
    return DiscreteGaussian(sigma)


def distance_per_draw(sigma: float) -> float:
    """Return tau, the total-variation distance of one drawn coordinate from the ideal law; at most 2**-108."""
    return discrete_gaussian(sigma).distance


def noise_vector(generator: Generator, sigma: float, size: int) -> NDArray[np.int64]:
    """Draw independent noise for an integer vector.

    Args:
        generator: the job's own; an oracle passes it through `require_system`.
        sigma: the parameter, in grid steps, at least 0.5.
        size: number of coordinates.

    Returns:
        Integers, shape (size,).
    """
    law = discrete_gaussian(sigma)
    # Only this generator drops draws made ahead at each fork and each payment.
    if size <= SHORT and isinstance(generator, SystemGenerator):
        return generator.ahead(sigma, size, lambda many: law.draw(generator, many))
    return law.draw(generator, size)


def noise_pieces(generator: Generator, sigma: float, size: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the same noise piece by piece, each with the place where it begins, and overwritten by the next.

    Networks have millions of parameters, and a piece stays in a core's cache.
    """
    return discrete_gaussian(sigma).pieces(generator, size)


def noise_symmetric(generator: Generator, sigma: float, dimension: int) -> NDArray[np.int64]:
    """Draw noise for a symmetric integer matrix whose sensitivity is measured on and above the diagonal.

    The dimension * (dimension + 1) / 2 entries on and above the diagonal are independent with the same parameter, and
    those below mirror them. Averaging a full matrix of noise with its transpose would leave entries above the diagonal
    with half the variance that was paid for.

    Returns:
        Integers, shape (dimension, dimension), equal to their transpose.
    """
    rows, columns = np.triu_indices(dimension)
    matrix = np.empty((dimension, dimension), dtype=np.int64)
    drawn = noise_vector(generator, sigma, rows.size)
    matrix[rows, columns] = drawn
    matrix[columns, rows] = drawn
    return matrix
