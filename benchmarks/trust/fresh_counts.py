"""Counts that judge one change: the cut of a Poisson model's residuals, and the allowed variation about the mean.

Committed, with sizes and seed, before the change was first run on them. Laws of counts about a right mean: some vary as
a Poisson law does, some less, some up to thirty times as much, in ways that no family of the estimator's has.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.trust.jobs import Cell
from benchmarks.trust.row import Row
from benchmarks.trust.shapes import Array, Noise, Outcome
from core.privacy.facts import Adjacency

SEED: Final = 48_802_163
LONGEST_VISIT: Final = 12


def _numbers(counts: NDArray[np.int64]) -> Array:
    return counts.astype(np.float64)


def geometric(draws: np.random.Generator, mean: Array) -> Array:
    """Return counts of variance mean + mean^2."""
    return _numbers(draws.poisson(mean * draws.gamma(1.0, 1.0, len(mean))))


def eightfold(draws: np.random.Generator, mean: Array) -> Array:
    """Return counts of variance 8 times the mean, whatever the mean is."""
    return _numbers(draws.poisson(draws.gamma(mean / 7, 7.0)))


def thirtyfold(draws: np.random.Generator, mean: Array) -> Array:
    """Return counts of variance 30 times the mean, whatever the mean is."""
    return _numbers(draws.poisson(draws.gamma(mean / 29, 29.0)))


def absent(draws: np.random.Generator, mean: Array) -> Array:
    """Return counts of which 45 % are zeros beyond those of a Poisson law."""
    return _numbers(np.where(draws.random(len(mean)) < 0.45, 0, draws.poisson(mean / 0.55)))


def two_groups(draws: np.random.Generator, mean: Array) -> Array:
    """Return counts of records one in five of which has four times the others' rate."""
    return _numbers(draws.poisson(mean * np.where(draws.random(len(mean)) < 0.2, 2.5, 0.625)))


def in_visits(draws: np.random.Generator, mean: Array) -> Array:
    """Return counts that come in lots of 1 to 12, a Poisson number of them."""
    lots = draws.poisson(mean * 2 / (LONGEST_VISIT + 1))
    return _numbers(lots + np.array([draws.integers(0, LONGEST_VISIT, one).sum() for one in lots]))


def steady(draws: np.random.Generator, mean: Array) -> Array:
    """Return counts that vary a third to two thirds as much as a Poisson law says."""
    most = np.ceil(1.5 * mean + 0.5).astype(int)
    return _numbers(draws.binomial(most, np.minimum(mean / most, 1.0)))


COUNTED: Final[dict[str, Callable[[np.random.Generator, Array], Array]]] = {
    one.__name__: one for one in (geometric, eightfold, thirtyfold, absent, two_groups, in_visits, steady)
}


def count_rows() -> Iterator[Row]:
    """Yield each law at sizes of its own, then Poisson laws of means from .1 to 100.

    Two cells had ordinal scores at first, whose widened bounds lie beyond the scores; the first was run before that was
    seen, and was flagged.
    """
    cells: tuple[tuple[str, int, int, float, float, Noise, float], ...] = (
        ("normal", 3000, 5, 1.0, 3.0, "geometric", 3.0),
        ("indicators", 10_000, 8, 0.4, 12.0, "geometric", 5.0),
        ("mixture", 6000, 6, 0.5, 1.0, "geometric", 4.0),
        ("normal", 6000, 6, 0.7, 5.0, "eightfold", 5.0),
        ("uniform_sums", 12_000, 7, 0.5, 1.5, "eightfold", 10.0),
        ("normal", 15_000, 5, 0.5, 30.0, "thirtyfold", 15.0),
        ("indicators", 6000, 4, 1.0, 60.0, "thirtyfold", 15.0),
        ("normal", 5000, 6, 0.6, 2.0, "absent", 3.0),
        ("confounded", 9000, 6, 1.0, 6.0, "absent", 3.0),
        ("normal", 7000, 6, 0.5, 4.0, "two_groups", 5.0),
        ("dates", 4000, 5, 1.0, 15.0, "two_groups", 5.0),
        ("normal", 5000, 6, 1.0, 5.0, "in_visits", 10.0),
        ("missing_cells", 9000, 6, 0.5, 2.0, "in_visits", 10.0),
        ("normal", 5000, 6, 0.5, 3.0, "steady", 1.0),
        ("indicators", 3000, 5, 1.0, 10.0, "steady", 2.0),
        ("normal", 12_000, 6, 0.5, 0.1, "normal", 1.0),
        ("indicators", 5000, 6, 0.5, 0.5, "normal", 2.0),
        ("uniform_sums", 3000, 6, 0.8, 3.0, "normal", 3.0),
        ("uniform_sums", 7000, 12, 0.6, 5.0, "normal", 2.0),
        ("normal", 2500, 4, 1.0, 25.0, "normal", 4.0),
        ("mixture", 6000, 6, 0.4, 100.0, "normal", 40.0),
        ("correlated", 5000, 6, 0.6, 8.0, "normal", 2.0),
        ("rare_exposure", 8000, 6, 1.0, 4.0, "normal", 1.0),
        ("forty_levels", 15_000, 43, 1.0, 3.0, "normal", 2.0),
    )
    for shape, units, dimension, mu, base, noise, wide in cells:
        yield Row(Cell(shape, units, dimension, mu, Outcome("poisson", base, noise), wide), seed=SEED)
    laws: tuple[tuple[float, Noise], ...] = ((3.0, "normal"), (6.0, "geometric"))
    for base, noise in laws:
        outcome = Outcome("poisson", base, noise)
        yield Row(Cell("normal", 6000, 5, 1.0, outcome, 3.0, adjacency=Adjacency.REPLACE_ONE), seed=SEED)
