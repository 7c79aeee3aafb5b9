"""The unweighted estimate that `glm` gives, in NumPy alone, and how much wider counted least squares ought to be."""

from math import sqrt
from typing import Final

import numpy as np
from scipy.special import expit

from benchmarks.trust.exact import CLOSE, Array, standard
from benchmarks.trust.shapes import Kind
from core.planning.planner import PlannedJob
from core.privacy.facts import Adjacency

ITERATIONS: Final = 50
HIGHEST: Final = 30.0
COUNTED, COUNTED_REPLACED = 3.5, 14.0
"""Of the width of counted least squares: the price of zeroing a record, and of replacing one."""
BEYOND: Final = 2.0
"""Residual deviations by which the reach of a residual passes the distance to a bound."""


def plain_fit(kind: Kind, records: tuple[Array, Array], sampling: Array | None = None) -> tuple[Array, Array]:
    """Return the unweighted estimate, uncut and uncapped, and its sandwich covariance, in encoded units.

    Directions in which columns do not vary have no part in it.

    Args:
        kind: of the model; a linear one is least squares.
        records: encoded features and target.
        sampling: weights of the records; None: 1 each.
    """
    features, target = records
    encoding = standard(features)
    rows = features @ encoding.T
    weights = np.ones(len(rows)) if sampling is None else sampling / sampling.mean()
    theta = np.zeros(rows.shape[1])
    if kind == "poisson":
        theta[0] = np.log(np.average(target, weights=weights) + CLOSE)
    for _ in range(ITERATIONS):
        mean, bend = plain_means(kind, rows @ theta)
        inverse = np.linalg.pinv(rows.T @ (rows * (weights * bend)[:, None]) / len(rows), hermitian=True)
        step = inverse @ (rows.T @ (weights * (target - mean)) / len(rows))
        theta = theta + step
        if np.linalg.norm(step) < CLOSE * max(1.0, float(np.linalg.norm(theta))):
            break
    mean, bend = plain_means(kind, rows @ theta)
    inverse = np.linalg.pinv(rows.T @ (rows * (weights * bend)[:, None]) / len(rows), hermitian=True)
    scores = rows * (weights * (target - mean))[:, None]
    back = encoding.T
    return back @ theta, back @ (inverse @ (scores.T @ scores / len(rows)) @ inverse / len(rows)) @ back.T


def plain_means(kind: Kind, margin: Array) -> tuple[Array, Array]:
    """Return means and their slopes in the margin."""
    if kind == "linear":
        return margin, np.ones_like(margin)
    if kind == "logistic":
        chance = expit(margin)
        return chance, chance * (1 - chance)
    mean = np.exp(np.minimum(margin, HIGHEST))
    return mean, mean


def counted_widening(plan: PlannedJob, mu: float, records: tuple[Array, Array], sites: int = 1) -> float:
    """Return the width of counted least squares over that of the plain estimate, by the formula of its design.

    sqrt(1 + 3.5 t^2 R^2/(n mu^2 sigma^2)), with t^2 = 1.3 p + 1, R the farthest that a residual may lie and sigma
    its deviation; 14 for 3.5 where a record may be replaced. Each of several sites adds its own noise to its own mean.

    Args:
        plan: of the job, or of each site's.
        mu: its budget.
        records: all of them, encoded.
        sites: of the federation.
    """
    features, target = records
    lower, upper = plan.design.target_bounds
    residual = target - features @ plain_fit("linear", records)[0]
    sigma, middle = float(residual.std()), float(np.median(target))
    reach = max(upper - middle, middle - lower) + BEYOND * sigma
    price = COUNTED_REPLACED if plan.facts.adjacency is Adjacency.REPLACE_ONE else COUNTED
    squares = (1.3 * plan.design.dimension + 1) * (reach / sigma / mu) ** 2
    return sqrt(1 + price * sites * squares / len(target))
