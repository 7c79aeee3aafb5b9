"""More shapes that nothing was tuned on, of hospitals, banks and statistics offices, by the same rule as the first.

They and their seed were committed before their first run. `UNIDENTIFIED` names the coefficients that their records do
not identify, which ought to be flagged.
"""

from typing import Final

import numpy as np

from benchmarks.trust.shapes import REACH, Columns, Maker, usual_slopes

SEED: Final = 40_771_203
"""Of every cell on these shapes."""
LEVELS: Final = 40
SENTINEL: Final = -9.0
CERTAIN: Final = 20.0
"""In place of a slope without end."""
CATEGORY: Final = 4


def forty_levels(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return indicators of a category of forty values, the rarest one record in a hundred, beside normal columns."""
    frequencies = np.arange(1.0, LEVELS + 1) ** -0.7
    level = draws.choice(LEVELS, units, p=frequencies / frequencies.sum())
    coded, numbers = (level[:, None] == np.arange(1, LEVELS)).astype(float), count - LEVELS + 1
    slopes = np.r_[np.resize((0.4, -0.4, 0.0), LEVELS - 1), usual_slopes(numbers)]
    return Columns(
        np.column_stack((coded, draws.normal(size=(units, numbers)))),
        ((0.0, 1.0),) * (LEVELS - 1) + ((-REACH, REACH),) * numbers,
        (True,) * (LEVELS - 1) + (False,) * numbers,
        slopes,
        np.zeros(count),
    )


def missing_cells(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return numbers of which 15 % are missing and stand as -9, an indicator of that for each, and normal columns."""
    pairs = max(1, count // 3)
    values, slopes = draws.normal(size=(units, count)), usual_slopes(count)
    missing = draws.random((units, pairs)) < 0.15
    values[:, :pairs] = np.where(missing, SENTINEL, values[:, :pairs])
    values[:, pairs : 2 * pairs] = missing
    slopes[pairs : 2 * pairs] = 0.3 - SENTINEL * slopes[:pairs]
    two = (False,) * pairs + (True,) * pairs + (False,) * (count - 2 * pairs)
    bounds = ((-10.0, 10.0),) * pairs + ((0.0, 1.0),) * pairs + ((-REACH, REACH),) * (count - 2 * pairs)
    return Columns(values, bounds, two, slopes, np.zeros(count))


def quasi_separated(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an indicator of three records in a hundred, whose outcome is always the same, beside normal columns."""
    values, slopes = draws.normal(size=(units, count)), usual_slopes(count)
    values[:, 0] = draws.random(units) < 0.03
    slopes[0] = CERTAIN
    two = (True,) + (False,) * (count - 1)
    return Columns(values, ((0.0, 1.0),) + ((-REACH, REACH),) * (count - 1), two, slopes, np.zeros(count))


def rare_both(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an exposure of two records in a hundred that triples odds, for outcomes that are as rare."""
    values, slopes = draws.normal(size=(units, count)), usual_slopes(count)
    values[:, 0] = draws.random(units) < 0.02
    slopes[0] = float(np.log(3.0))
    two = (True,) + (False,) * (count - 1)
    return Columns(values, ((0.0, 1.0),) + ((-REACH, REACH),) * (count - 1), two, slopes, np.zeros(count))


def lab_values(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return skew measurements, rounded, of which those below a limit of detection stand as half of it."""
    values, half = draws.normal(size=(units, count)), max(1, count // 2)
    measured = np.round(np.exp(values[:, :half]), 1)
    values[:, :half] = np.where(measured < 0.8, 0.4, measured)
    slopes = usual_slopes(count)
    slopes[:half] *= 0.35
    bounds = ((0.0, 1000.0),) * half + ((-REACH, REACH),) * (count - half)
    centre = np.r_[np.full(half, 1.65), np.zeros(count - half)]
    return Columns(values, bounds, (False,) * count, slopes, centre)


def balances(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return amounts of money: a quarter exactly 0, the others of both signs with long tails, bounds of a million."""
    values, half = draws.normal(size=(units, count)), max(1, count // 2)
    values[:, :half] = 1000 * np.sinh(values[:, :half]) * (draws.random((units, half)) < 0.75)
    slopes = usual_slopes(count)
    slopes[:half] *= 0.6 / 1550
    bounds = ((-1e6, 1e6),) * half + ((-REACH, REACH),) * (count - half)
    return Columns(values, bounds, (False,) * count, slopes, np.zeros(count))


def age_squared(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return ages, many of them rounded to fives, their squares, and normal columns."""
    values, slopes, centre = draws.normal(size=(units, count)), usual_slopes(count), np.zeros(count)
    age = np.floor(18 + 77 * draws.beta(1.5, 2.5, units))
    age = np.where(draws.random(units) < 0.4, 5 * np.round(age / 5), age)
    values[:, 0], values[:, 1] = age, age**2
    slopes[:2], centre[:2] = (0.15, -0.0015), (47.0, 2500.0)
    bounds = ((0.0, 120.0), (0.0, 14_400.0)) + ((-REACH, REACH),) * (count - 2)
    return Columns(values, bounds, (False,) * count, slopes, centre)


def full_set(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an indicator of each of a category's four values, none left out: they add up to the intercept."""
    values, slopes = draws.normal(size=(units, count)), usual_slopes(count)
    level = draws.choice(CATEGORY, units, p=[0.4, 0.3, 0.2, 0.1])
    values[:, :CATEGORY] = level[:, None] == np.arange(CATEGORY)
    two = (True,) * CATEGORY + (False,) * (count - CATEGORY)
    bounds = ((0.0, 1.0),) * CATEGORY + ((-REACH, REACH),) * (count - CATEGORY)
    return Columns(values, bounds, two, slopes, np.zeros(count))


def splines(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return the hat functions of a skew age on five knots, the first left out, beside normal columns."""
    values, slopes, hats = draws.normal(size=(units, count)), usual_slopes(count), min(4, count - 1)
    place = 4 * draws.beta(2.0, 3.0, units)
    values[:, :hats] = np.maximum(0.0, 1 - np.abs(place[:, None] - np.arange(1, hats + 1)))
    slopes[:hats] = np.array([0.8, -0.4, 0.6, -0.8])[:hats]
    bounds = ((0.0, 1.0),) * hats + ((-REACH, REACH),) * (count - hats)
    return Columns(values, bounds, (False,) * count, slopes, np.zeros(count))


def strong_score(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return a score that nearly decides the outcome, three logits a deviation, beside normal columns."""
    values, slopes = draws.normal(size=(units, count)), usual_slopes(count)
    values[:, 0], slopes[0] = 600 + 80 * values[:, 0], 3 / 80
    centre = np.r_[600.0, np.zeros(count - 1)]
    return Columns(values, ((0.0, 1000.0),) + ((-REACH, REACH),) * (count - 1), (False,) * count, slopes, centre)


SECOND: Final[dict[str, Maker]] = {
    "forty_levels": forty_levels,
    "missing_cells": missing_cells,
    "quasi_separated": quasi_separated,
    "rare_both": rare_both,
    "lab_values": lab_values,
    "balances": balances,
    "age_squared": age_squared,
    "full_set": full_set,
    "splines": splines,
    "strong_score": strong_score,
}
UNIDENTIFIED: Final = {"quasi_separated": (1,), "full_set": (0, 1, 2, 3, 4)}
