"""Coordinates in which a logistic model's score is nearly linear, and whether answers exclude that columns decide it.

Let r be the deviation of the predictor: the length of all slopes in the metric of the columns' covariance. The score
along the slopes is bounded. On a normal predictor it goes as r/sqrt(r^2 + k), k = pi^2/3 being the logistic law's
variance, as a logit attenuates under an added normal error. To the leading order in 1/r that is exact. A Newton step in
theta takes it for a straight line: it falls short where slopes are long, and the interval around its end does not say
how flat the likelihood is further out. In the coordinates

    phi = theta/sqrt(r^2 + k)

it is nearly straight: steps and standard errors are taken there and carried back. Slopes of phi are shorter than 1,
and 1 stands for columns that decide the outcome. Post-processing: nothing here costs anything or meets a record.
"""

from math import pi, sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SPREAD: Final = pi**2 / 3
"""k, variance of the standard logistic law."""
LONGEST_FOLLOWED: Final = 12.0
"""A length of slopes beyond which a step is not followed."""
DECIDED: Final = 8.0
"""The length of slopes from which on the columns are taken to decide the outcome."""
QUANTILE: Final = 1.96
TINY: Final = 1e-12


def attenuated_length(length: float) -> float:
    """Return |slopes of phi| for a length of slopes: 0 to 1."""
    return length / sqrt(length**2 + SPREAD)


def _length(attenuated: float) -> float:
    return attenuated * sqrt(SPREAD / (1 - attenuated**2))


def derivative(theta: Array, metric: Array) -> Array:
    """Return d phi/d theta, shape (p, p), at theta, shape (p,), intercept first."""
    scale = sqrt(float(theta @ metric @ theta) + SPREAD)
    found: Array = np.eye(len(theta)) / scale - np.outer(theta, metric @ theta) / scale**3
    return found


def normal_hessian(theta: Array) -> Array:
    """Return E[psi' x x'] for independent standard normal columns, up to a factor: the mean of its diagonal is 1.

    The weight psi' is about that of a normal law of variance k in the predictor, so columns under it are normal too.
    Their mean is -a slopes/s^2 and their variance I - slopes slopes'/s^2, with a the intercept and s^2 = |slopes|^2 +
    k.

    Args:
        theta: shape (p,), intercept first.
    """
    slopes = theta[1:]
    square = float(slopes @ slopes) + SPREAD
    found = np.eye(len(theta))
    found[1:, 1:] -= np.outer(slopes, slopes) / square
    mean = np.concatenate(([1.0], -theta[0] * slopes / square))
    found[0, 0] = 0.0
    found += np.outer(mean, mean)
    return found * (len(theta) / float(np.trace(found)))


def onward(theta: Array, step: Array, metric: Array) -> Array:
    """Return where a Newton step leads that is taken in phi, no farther than slopes of `LONGEST_FOLLOWED`.

    Args:
        theta: shape (p,), intercept first.
        step: to be added, in theta's own coordinates.
        metric: covariance of the columns as far as it is known, shape (p, p), 0 for the intercept.
    """
    ahead = theta / sqrt(float(theta @ metric @ theta) + SPREAD) + derivative(theta, metric) @ step
    # The metric has zero rows: rounding may make its quadratic form negative.
    length, most = sqrt(max(float(ahead @ metric @ ahead), 0.0)), attenuated_length(LONGEST_FOLLOWED)
    if length > most:
        ahead, length = ahead * (most / length), most
    # The length was cut below 1, hence the root is finite.
    found: Array = ahead * sqrt(SPREAD / (1 - length**2))
    return found


class Carried(NamedTuple):
    """Effect of a step in phi on a covariance."""

    onto: Array
    """B, shape (p, p): a covariance at the step's beginning is B C B' at its end."""
    further: Array
    """Amount to add, shape (p, p): distance of the upper end beyond the straight line."""
    excluded: float
    """By how many deviations the answers exclude slopes as long as `DECIDED`."""


def carried(before: Array, theta: Array, covariance: Array, metric: Array) -> Carried:
    """Carry a covariance from the last step's beginning to its end, through phi.

    Args:
        before: where the step began, shape (p,).
        theta: where it ended.
        covariance: of sampling and noise, by the noised Hessian at `before`, shape (p, p).
        metric: covariance of the columns as far as it is known, shape (p, p), 0 for the intercept.
    """
    at_end = derivative(theta, metric)
    onto = np.asarray(np.linalg.solve(at_end, derivative(before, metric)), dtype=np.float64)
    length = sqrt(max(float(theta @ metric @ theta), TINY))
    along: Array = metric @ theta / length  # of the length: d |slopes| = along' d theta
    own = onto @ covariance @ onto.T
    straight = sqrt(max(float(along @ own @ along), TINY))
    # The derivative of r/sqrt(r^2 + k) is k/(r^2 + k)^1.5.
    deviation = straight * SPREAD / (length**2 + SPREAD) ** 1.5
    reached, limit = attenuated_length(length), attenuated_length(DECIDED)
    # The upper end is not followed past DECIDED; an estimate beyond it adds nothing.
    upper = _length(min(reached + QUANTILE * deviation, max(limit, reached)))
    more = max(0.0, ((upper - length) / QUANTILE) ** 2 - straight**2)
    ray: Array = np.concatenate(([theta[0] * length / (length**2 + SPREAD)], theta[1:] / length))
    return Carried(onto, more * np.outer(ray, ray), (limit - reached) / deviation)
