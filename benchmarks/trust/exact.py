"""The same equations without noise: the weighted one that a job solves, and the plain likelihood, by Newton's method.

In NumPy and from the formulas, independent of the problems and questions behind the oracle.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import nbinom
from scipy.stats import poisson as poisson_law

from core.inference.checks import Learned
from core.losses.categorical import Logistic
from core.losses.counts import Poisson
from core.losses.robust import Huber
from core.losses.squares import Squared

Array = NDArray[np.float64]
ITERATIONS: Final = 80
CLOSE: Final = 1e-9
LONGEST: Final = 2.0
FARTHEST: Final = 40.0
GRID: Final = 40
HALVINGS: Final = 32
MOST_ENDS: Final = 3000
NO_DISPERSION: Final = 1e-6
EDGE: Final = 1e-9
STEP: Final = 1e-4
HIGHEST_MARGIN: Final = 40.0


@dataclass(frozen=True)
class CutCounts:
    """A Poisson model's equation with cut residuals: v (C - y) within [-b, b], whose mean under a law is zero."""

    rate_cap: float
    cut: float
    dispersion: float

    def score(self, margin: Array, target: Array) -> Array:
        """Return the cut residuals."""
        mean = np.exp(np.minimum(margin, HIGHEST_MARGIN))
        weight = np.minimum(1.0, self.rate_cap / mean)
        residual = weight * (self.centres(np.log(mean)) - target)
        return np.clip(residual, -self.cut, self.cut)

    def centres(self, margin: Array) -> Array:
        """Return C for each margin: found on a grid of means by halving, between them by their ratio to the mean."""
        grid = np.linspace(np.log(self.rate_cap) - 5, np.log(self.rate_cap) + 3, GRID)
        return np.asarray(np.exp(margin) * np.interp(margin, grid, _ratios(self, tuple(grid))))


@lru_cache(maxsize=64)
def _ratios(one: CutCounts, grid: tuple[float, ...]) -> Array:
    found = []
    for mean in np.exp(grid):
        law = poisson_law(mean)
        if one.dispersion > NO_DISPERSION:
            law = nbinom(1 / one.dispersion, 1 / (1 + one.dispersion * mean))
        reach = one.cut * max(1.0, mean / one.rate_cap)
        low, high = 0.0, 2 * mean + reach
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            # E clip(Y - c, -h, h) = -h + the integral of P(Y - c > t) over [-h, h]
            ends = np.arange(np.floor(middle - reach), np.ceil(middle + reach) + 1)
            if len(ends) > MOST_ENDS:
                ends = np.linspace(middle - reach, middle + reach, MOST_ENDS)
            ends = np.unique(np.clip(ends, middle - reach, middle + reach))
            above = np.diff(ends) @ law.sf(np.floor(ends[:-1] + EDGE))
            low, high = (middle, high) if above > reach else (low, middle)
        found.append((low + high) / 2 / mean)
    return np.array(found)


Loss = Logistic | Huber | Squared | Poisson | CutCounts


def derivatives(loss: Loss, margin: Array, target: Array, cap: float) -> tuple[Array, Array]:
    """Return first and second derivative of each record's loss in its margin; residuals are in their own scale."""
    if isinstance(loss, Logistic):
        chance = expit(margin)
        return chance - target, chance * (1 - chance)
    if isinstance(loss, CutCounts):
        return loss.score(margin, target), (loss.score(margin + STEP, target) - loss.score(margin - STEP, target)) / (
            2 * STEP
        )
    if isinstance(loss, Poisson):
        mean = np.exp(np.minimum(margin, np.log(cap)))
        return mean - np.minimum(target, cap), np.where(margin < np.log(cap), mean, 0.0)
    residual = margin - target
    if isinstance(loss, Squared):
        return residual, np.ones_like(residual)
    return np.clip(residual, -loss.c, loss.c), (np.abs(residual) < loss.c).astype(float)


def sandwich_of(loss: Logistic | Huber | Squared | Poisson, learned: Learned) -> tuple[float, float]:
    """Return c and b of the plan's own formula for widths, with what was learned."""
    if isinstance(loss, Logistic):
        assert learned.base_rate is not None, "it was told"
        return 0.85 * learned.base_rate * (1 - learned.base_rate), 1.0
    if isinstance(loss, Poisson):
        assert learned.base_rate is not None, "it was told"
        assert learned.cut is not None, "it was told"
        return learned.base_rate, learned.cut
    if isinstance(loss, Squared):
        assert learned.cut is not None, "it was told"
        return 1.0, learned.cut
    return 0.8, loss.c


def minimum(
    loss: Loss,
    learned: Learned,
    records: tuple[Array, Array],
    start: Array,
    *,
    weighted: bool = True,
    sampling: Array | None = None,
) -> tuple[Array, Array]:
    """Return the exact solution and its sandwich covariance, in encoded units.

    Args:
        loss: of the plan.
        learned: the encoding, weights, and scales that a job learned.
        records: encoded features and target.
        start: encoded units.
        weighted: with the job's weights; else with none, in columns of unit variance.
        sampling: weights of the records beside those, 0 to 1; None: 1 each.
    """
    features, target = records
    unit = learned.residual_scale if learned.residual_scale is not None else 1.0
    cap = learned.cap if learned.cap is not None else 1.0
    encoding = np.array(learned.encoding) if weighted else standard(features)
    rows = features @ encoding.T
    weights = np.minimum(1, learned.weight_bound**2 / (rows**2).sum(1)) if weighted else np.ones(len(rows))
    weights = weights if sampling is None else weights * sampling / sampling.mean()
    theta = np.linalg.solve(encoding.T, start / unit)
    target = target / unit
    if weighted and isinstance(loss, Poisson):
        assert learned.rate_cap is not None, "it was learned"
        assert learned.cut is not None, "it was learned"
        loss = CutCounts(learned.rate_cap, learned.cut, learned.dispersion or 0.0)
    elif isinstance(loss, Poisson):
        cap = float(target.max()) * FARTHEST  # none
    size = len(theta)
    for _ in range(ITERATIONS):
        slope, bend = derivatives(loss, rows @ theta, target, cap)
        gradient = rows.T @ (weights * slope) / len(rows)
        hessian = rows.T @ (rows * (weights * bend)[:, None]) / len(rows)
        step = np.linalg.lstsq(hessian + 1e-10 * np.eye(size), gradient, rcond=None)[0]
        step *= min(1.0, LONGEST / max(float(np.linalg.norm(step)), 1e-300))
        part, length = 1.0, np.linalg.norm(gradient)
        while part > 1e-3:
            ahead = theta - part * step
            first, _ = derivatives(loss, rows @ ahead, target, cap)
            if np.linalg.norm(rows.T @ (weights * first)) / len(rows) <= length * (1 - 1e-4 * part):
                break
            part /= 2
        theta = theta - part * step
        if np.linalg.norm(part * step) < CLOSE or (
            not isinstance(loss, Huber | Squared) and np.linalg.norm(theta) > FARTHEST
        ):
            break
    slope, bend = derivatives(loss, rows @ theta, target, cap)
    hessian = rows.T @ (rows * (weights * bend)[:, None]) / len(rows)
    score = rows.T @ (rows * (weights * slope)[:, None] ** 2) / len(rows)
    inverse = np.linalg.pinv(hessian)
    back = unit * encoding.T
    with np.errstate(over="ignore", invalid="ignore"):  # of a point without end the covariance has none either
        covariance = back @ (inverse @ score @ inverse / len(rows)) @ back.T
    return back @ theta, covariance


def standard(features: Array) -> Array:
    """Return the encoding by means and deviations."""
    mean, deviation = features[:, 1:].mean(0), features[:, 1:].std(0) + 1e-12
    encoding = np.diag(np.r_[1.0, 1 / deviation])
    encoding[1:, 0] = -mean / deviation
    return encoding
