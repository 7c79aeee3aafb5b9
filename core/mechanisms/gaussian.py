"""Discrete Gaussian noise on the integers, for vectors and symmetric matrices.

The law with parameter sigma gives x the probability exp(-x^2 / (2 sigma^2)) / Z (Canonne, Kamath and Steinke 2020). For
an integer shift m and an integer order k, E_0[(p_m/p_0)^k] = exp((k^2 - k) m^2 / (2 sigma^2)), in any dimension: its
Renyi price is exactly the continuous Gaussian's.

How it is drawn. A narrow law (parameter s) comes from its cumulative distribution in 128-bit integers, a table that 64
uniform bits, and 64 more on a tie, are compared with exactly (`core.mechanisms.cumulative`). A wide one is
x_0 + K_1 x_1 + ... + K_m x_m, all x_i from one narrow table, with fixed public integers K_i and
s = sigma / sqrt(1 + K_1^2 + ... + K_m^2), so that any real sigma is met (Peikert 2010; Poeppelmann, Ducas and Gueneysu
2014, Lemma 1; Micciancio and Walter 2017).

Distance of one draw from the ideal law, in total variation; three terms, which add by the triangle inequality and
because a function of several draws is no farther from its ideal than the draws together:

* tail: the table ends at T >= 14 s. With Z >= s sqrt(2 pi) (Poisson summation) the mass beyond is at most
  2 (1 - Phi(14)) < exp(-98), for each narrow draw;
* rounding: each of the 2T + 1 cumulative probabilities is rounded down to a multiple of 2^-128, and a probability is a
  difference of two: off by less than 2^-128, so less than (2T + 1) 2^-128 in all, for each narrow draw;
* convolution: let X have parameter a, Y parameter s, K an integer, b^2 = a^2 + K^2 s^2. Completing the square,
  P(X + K Y = z) is proportional to exp(-z^2 / (2 b^2)) times sum_y exp(-(y - c(z))^2 / (2 t^2)) with t = a s / b, and
  by Poisson summation the second factor lies within 1 -+ e of a constant, e = 2 sum_{j>=1} exp(-2 pi^2 t^2 j^2). Hence
  probabilities are within (1 - e)/(1 + e) and its inverse of the ideal, and the distance is at most e/(1 - e). The
  structure keeps t >= 2.25, so e < 2 exp(-99.9).

`distance_per_draw` adds them up: below 2^-108 for every parameter. Charge it for every coordinate that is drawn.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from math import exp, floor, inf, isfinite, nextafter, pi, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.mechanisms.cumulative import CumulativeTable, NarrowSums
from core.mechanisms.generator import Generator, SystemGenerator

SMALLEST_PARAMETER: Final = 0.5
LARGEST_PARAMETER: Final = 2.0**50
WIDEST_TABLE: Final = 1024.0
"""The largest parameter of a narrow law: bounds the table and the time to make it."""

SMOOTHING: Final = 2.25
"""The least t of the module's convolution argument."""

DISTANCE_CAP: Final = 2.0**-108
"""No draw is farther than this from the ideal law, in total variation."""

CHUNK: Final = 2**15
SHORT: Final = 2**10
"""Vectors up to this length are cut from draws made ahead: a call costs more than they do."""


def _multipliers(sigma: float, widest: float) -> list[int]:
    """Choose 1, K_1, ..., K_m: as few as keep the narrow parameter within `widest` and t above SMOOTHING."""
    assert widest > 2 * SMOOTHING, "a narrow law is wide enough to smooth another"
    terms = 1
    while (narrow := (sigma * SMOOTHING ** (terms - 1)) ** (1 / terms)) > widest:
        terms += 1
    # K <= w sqrt((s/t)^2 - 1), where w s is the parameter reached so far, says that t stays above SMOOTHING; rounding
    # K down only makes the final s, and with it the slack, larger.
    growth = sqrt((narrow / SMOOTHING) ** 2 - 1) if terms > 1 else 0.0
    chosen = [1]
    for _ in range(terms - 1):
        chosen.append(max(1, floor(growth * sqrt(sum(k * k for k in chosen)) * (1 - 1e-12))))
    return chosen


def _narrow_parameter(sigma: float, multipliers: list[int]) -> float:
    """Return the least convenient float s with s^2 * sum K^2 >= sigma^2, checked in exact arithmetic."""
    square = sum(k * k for k in multipliers)
    narrow = sigma / sqrt(square)
    while Fraction(narrow) ** 2 * square < Fraction(sigma) ** 2:
        narrow = nextafter(narrow, inf)
    return narrow


def _reached(sigma: float, multipliers: list[int], narrow: float) -> float:
    """Return s sqrt(sum K^2), no less than sigma, however it is rounded."""
    return max(sigma, narrow * sqrt(sum(k * k for k in multipliers)))


class DiscreteGaussian:
    """The law with a given parameter, ready to draw. Making one takes 1 to 30 ms; `discrete_gaussian` keeps some.

    Args:
        parameter: sigma requested, in [0.5, 2**50]. It is public.
        widest: the largest parameter of the narrow table.

    Attributes:
        sigma: the parameter really used, s sqrt(1 + K_1^2 + ...), as a float. In exact arithmetic it is at least the
            one requested, and at most 1 + 2**-48 times it.
        distance: bound on the total-variation distance of one draw from the ideal law with that exact parameter.
    """

    __slots__ = ("distance", "multipliers", "sigma", "sums", "table")

    def __init__(self, parameter: float, widest: float = WIDEST_TABLE) -> None:
        assert isfinite(parameter), "the parameter is a number"
        assert SMALLEST_PARAMETER <= parameter <= LARGEST_PARAMETER, "the parameter is in [0.5, 2**50]"
        self.multipliers = _multipliers(parameter, widest)
        self.table = CumulativeTable(_narrow_parameter(parameter, self.multipliers))
        self.sigma = _reached(parameter, self.multipliers, self.table.parameter)
        self.sums: Final = NarrowSums(self.table, self.multipliers)
        self.distance = len(self.multipliers) * self.table.distance() + self._convolution_distance()
        assert self.distance <= DISTANCE_CAP, "the structure keeps its promise"

    def _convolution_distance(self) -> float:
        """Add e/(1 - e) over the convolution steps; see the module."""
        total, reached = 0.0, 1
        for k in self.multipliers[1:]:
            # t = a s / b with a^2 = reached * s^2 and b^2 = (reached + K^2) * s^2
            smoothing_squared = self.table.parameter**2 * (reached / (reached + k * k))
            error = 2.01 * exp(-2 * pi**2 * smoothing_squared)  # the later terms of the sum are below a hundredth
            total += error / (1 - error)
            reached += k * k
        return total

    def draw(self, generator: Generator, size: int) -> NDArray[np.int64]:
        """Return `size` independent draws, shape (size,).

        Works through chunks that stay in the cache; time depends on the random bits and `size` alone.
        """
        if size <= CHUNK:
            return self.sums.draw(generator, self.sums.room(size), size)
        drawn = np.empty(size, dtype=np.int64)
        for start, piece in self.pieces(generator, size):
            drawn[start : start + piece.size] = piece
        return drawn

    def pieces(self, generator: Generator, size: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the same draws piece by piece, each with the place where it begins, and overwritten by the next."""
        room = self.sums.room(min(size, CHUNK))
        for start in range(0, size, CHUNK):
            yield start, self.sums.draw(generator, room, min(CHUNK, size - start))


@lru_cache(maxsize=64)
def discrete_gaussian(sigma: float) -> DiscreteGaussian:
    """Return the law with parameter at least `sigma`; recent ones are kept, since a job asks with few sigmas."""
    return DiscreteGaussian(sigma)


@lru_cache(maxsize=64)
def true_sigma(sigma: float) -> float:
    """Return the parameter that draws for `sigma` really use: at least it, at most 1 + 2**-48 times it.

    No table is made: simulations, which draw otherwise, ask for many sigmas.
    """
    assert SMALLEST_PARAMETER <= sigma <= LARGEST_PARAMETER, "the parameter is in [0.5, 2**50]"
    multipliers = _multipliers(sigma, WIDEST_TABLE)
    return _reached(sigma, multipliers, _narrow_parameter(sigma, multipliers))


def distance_per_draw(sigma: float) -> float:
    """Return tau, the total-variation distance of one drawn coordinate from the ideal law; at most 2**-108."""
    return discrete_gaussian(sigma).distance


def noise_vector(generator: Generator, sigma: float, size: int) -> NDArray[np.int64]:
    """Draw independent noise for an integer vector.

    Args:
        generator: the job's own; a door passes it through `require_system`.
        sigma: the parameter, in grid steps, at least 0.5; it is met up to `true_sigma`.
        size: number of coordinates.

    Returns:
        Integers, shape (size,).
    """
    law = discrete_gaussian(sigma)
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
