"""Shapes that judge one change: the detection of an indicator whose records all have the same outcome.

The second set of shapes showed that such indicators were flagged in 13 to 50 % of the jobs. These were made and
committed, with their seed, after that was seen and before the flag was changed. They have outcomes that are certain, of
rare and of common indicators, and strong effects that are not, which no flag ought to take for them.
"""

from typing import Final

import numpy as np

from benchmarks.trust.shapes import REACH, Columns, Maker, usual_slopes

SEED: Final = 61_550_907
CERTAIN: Final = 20.0


def _indicators(draws: np.random.Generator, units: int, count: int, cells: list[tuple[float, float]]) -> Columns:
    """Return indicators of these rates and slopes, beside normal columns."""
    values, slopes, centre = draws.normal(size=(units, count)), usual_slopes(count), np.zeros(count)
    many = len(cells)
    for place, (rate, slope) in enumerate(cells):
        values[:, place] = draws.random(units) < rate
        slopes[place], centre[place] = slope, 0.0 if abs(slope) == CERTAIN else rate
    bounds = ((0.0, 1.0),) * many + ((-REACH, REACH),) * (count - many)
    return Columns(values, bounds, (True,) * many + (False,) * (count - many), slopes, centre)


def sure_fifth(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an indicator of a fifth of the records, all with the outcome."""
    return _indicators(draws, units, count, [(0.2, CERTAIN)])


def never(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an indicator of a tenth of the records, none with the outcome."""
    return _indicators(draws, units, count, [(0.1, -CERTAIN)])


def two_sure(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an indicator of records that all have the outcome, and one of records without it, 5 % each."""
    found = _indicators(draws, units, count, [(0.05, CERTAIN), (0.05, -CERTAIN)])
    found.values[found.values[:, 0] > 0, 1] = 0.0
    return found


def sure_and_old(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an indicator that large values of another column make likely, all with the outcome."""
    found = _indicators(draws, units, count, [(0.05, CERTAIN)])
    found.values[:, 0] = draws.random(units) < 0.12 / (1 + np.exp(-2 * found.values[:, 1]))
    return found


def odds_of_eight(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an indicator of 5 % that multiplies odds by eight, and one of 10 % that divides them by seven."""
    return _indicators(draws, units, count, [(0.05, 2.08), (0.10, -1.95)])


def three_rates(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return indicators of 2, 5 and 10 % that double odds."""
    return _indicators(draws, units, count, [(0.02, 0.7), (0.05, -0.7), (0.10, 0.7)])


def _strong(draws: np.random.Generator, units: int, count: int, slopes: tuple[float, float, float]) -> Columns:
    found = _indicators(draws, units, count, [])
    found.slopes[:3], found.slopes[3:] = slopes, 0.0
    return found


def nearly_decided(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns that decide nearly all outcomes: slopes of 7.7 logits a deviation of the predictor."""
    return _strong(draws, units, count, (5.0, -5.0, 3.0))


def half_decided(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns that decide many outcomes: slopes of 2.5 logits a deviation of the predictor."""
    return _strong(draws, units, count, (1.6, -1.6, 1.0))


THIRD: Final[dict[str, Maker]] = {
    "sure_fifth": sure_fifth,
    "never": never,
    "two_sure": two_sure,
    "sure_and_old": sure_and_old,
    "odds_of_eight": odds_of_eight,
    "three_rates": three_rates,
}
FAR: Final[dict[str, Maker]] = {"nearly_decided": nearly_decided, "half_decided": half_decided}
"""They judge another: slopes so long, within their error, that outcomes may be separated."""
CERTAINLY: Final = {"sure_fifth": (1,), "never": (1,), "two_sure": (1, 2), "sure_and_old": (1,)}
