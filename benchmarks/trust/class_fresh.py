"""Columns that judge two changes of multinomial models, committed with their seed before their first run.

*Nearly empty cells.* Other columns make a class a hundred to ten thousand times rarer among one value's records of an
indicator, so that a handful of them, or none, is there. That value's coefficient ought to be flagged or covered, and no
other flagged. `quiet_ward` has strong effects of which nothing ought to be flagged.

*Budgets near the line.* Cells of normal columns on both sides of what an estimate foretells (`class_cells`).
"""

from typing import Final

import numpy as np

from benchmarks.trust.shapes import REACH, Columns, Maker, usual_slopes

JUDGING_SEED: Final = 90_412_277
NUMBER: Final = (-REACH, REACH)


def far_code(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an indicator of missing numbers, which stand as 12, beside the number and normal columns.

    The number's slope leaves one record in e^-6 of the last class where it is missing.
    """
    values, slopes = draws.normal(size=(units, count)), usual_slopes(count)
    missing = draws.random(units) < 0.10
    values[:, 0], values[:, 1] = missing, np.where(missing, 12.0, values[:, 1])
    slopes[0], slopes[1] = 0.4, -0.6
    bounds = ((0.0, 1.0), (-5.0, 20.0)) + (NUMBER,) * (count - 2)
    return Columns(values, bounds, (True,) + (False,) * (count - 1), slopes, np.zeros(count))


def two_codes(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return two numbers with an indicator of missing cells each, which stand as -6; one has no effect there."""
    values, slopes = draws.normal(size=(units, count)), usual_slopes(count)
    missing = draws.random((units, 2)) < 0.12
    values[:, :2], values[:, 2:4] = missing, np.where(missing, -6.0, values[:, 2:4])
    slopes[:4] = (0.0, -3.6, 1.1, -0.6)
    bounds = ((0.0, 1.0),) * 2 + ((-8.0, 8.0),) * 2 + (NUMBER,) * (count - 4)
    return Columns(values, bounds, (True,) * 2 + (False,) * (count - 2), slopes, np.zeros(count))


def ward(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an indicator of a sixth of the records, whose second column lies 4 deviations higher, beside others."""
    values, slopes = draws.normal(size=(units, count)), usual_slopes(count)
    inside = draws.random(units) < 1 / 6
    values[:, 0], values[:, 1] = inside, values[:, 1] + 4.0 * inside
    slopes[0], slopes[1] = -1.0, -1.4
    bounds = ((0.0, 1.0), (-5.0, 9.0)) + (NUMBER,) * (count - 2)
    return Columns(values, bounds, (True,) + (False,) * (count - 1), slopes, np.zeros(count))


def outside_ward(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an indicator of five sixths of the records; the others are far below in the second column."""
    found = ward(draws, units, count)
    found.values[:, 0] = 1.0 - found.values[:, 0]
    found.slopes[0] = 1.0
    return found


def own_effect(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an indicator of a tenth of the records which makes the last class e^7 times rarer by itself."""
    values, slopes = draws.normal(size=(units, count)), usual_slopes(count)
    values[:, 0], slopes[0] = draws.random(units) < 0.10, -7.0
    bounds = ((0.0, 1.0),) + (NUMBER,) * (count - 1)
    return Columns(values, bounds, (True,) + (False,) * (count - 1), slopes, np.zeros(count))


def quiet_ward(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return two indicators of a quarter of the records that divide odds by four and five, one along a column."""
    values, slopes = draws.normal(size=(units, count)), usual_slopes(count)
    inside = draws.random((units, 2)) < 0.25
    values[:, :2], values[:, 2] = inside, values[:, 2] + 1.5 * inside[:, 0]
    slopes[:3] = (-0.6, -1.6, -0.5)
    bounds = ((0.0, 1.0),) * 2 + ((-5.0, 7.0),) + (NUMBER,) * (count - 3)
    return Columns(values, bounds, (True,) * 2 + (False,) * (count - 2), slopes, np.zeros(count))


JUDGING: Final[dict[str, Maker]] = {
    "far_code": far_code,
    "two_codes": two_codes,
    "ward": ward,
    "outside_ward": outside_ward,
    "own_effect": own_effect,
    "quiet_ward": quiet_ward,
}
NEARLY_EMPTY: Final = {"far_code": (1,), "two_codes": (1,), "ward": (1,), "outside_ward": (0, 1), "own_effect": (1,)}
"""Places of the last class's coefficients that hang on those cells; without the value its intercept does, too."""
