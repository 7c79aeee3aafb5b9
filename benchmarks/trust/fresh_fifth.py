"""Logistic and Poisson models of integers, heaps, hidden directions, skewed products and wrong models.

Committed, with sizes and seed, before the first job on any of them, and before their author saw the changes that they
judge; the same holds for `benchmarks.trust.fresh_fifth_means`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
from scipy.special import expit

from benchmarks.trust.declared import Declared, Made, data_set, number, two, whole
from benchmarks.trust.fresh_fifth_means import FIFTH_MEANS, MEANS_SIZES
from benchmarks.trust.jobs import Cell
from benchmarks.trust.row import Row
from benchmarks.trust.shapes import Array, DataSet, Outcome
from benchmarks.trust.verdicts import Expected
from core.privacy.facts import Adjacency

SEED: Final = 63_718_429


def _logistic(draws: np.random.Generator, columns: Sequence[Declared], truth: Sequence[float]) -> DataSet:
    """Return records with outcomes by a logistic model of the features alone."""
    values = np.column_stack([one.values for one in columns])
    chance = expit(truth[0] + values @ np.array(truth[1:]))
    return data_set(columns, _drawn(draws, chance), (0, 1), truth, mean=chance)


def _drawn(draws: np.random.Generator, chance: Array) -> Array:
    return (draws.random(len(chance)) < chance).astype(float)


def households(draws: np.random.Generator, units: int) -> DataSet:
    """Return flats: children, floors and rooms are integers of few values in wider bounds."""
    children, floor = np.minimum(draws.poisson(0.9, units), 12), draws.geometric(0.3, units)
    rooms, rent = 1 + draws.binomial(8, 0.35, units), 300 + draws.gamma(3.0, 250.0, units)
    columns = [
        whole(children, 0, 20),
        whole(np.minimum(floor, 80), 0, 80),
        whole(rooms, 0, 30),
        two(draws.random(units) < 0.4),
        number(rent, 0, 20_000),
    ]
    return _logistic(draws, columns, [-1.6, -0.35, 0.08, 0.2, 0.4, 4e-4])


def scores_of_two_camps(draws: np.random.Generator, units: int) -> DataSet:
    """Return answers from 1 to 5, and one from 0 to 10: one camp gives the lowest ones, the other the highest."""
    camp = draws.random(units) < 0.45
    given = [np.where(draws.random(units) < 0.8, camp, draws.random(units) < 0.5) for _ in range(5)]
    items = [np.where(one, 5 - draws.binomial(2, 0.15, units), 1 + draws.binomial(2, 0.2, units)) for one in given[:4]]
    last = np.where(given[4], 10 - draws.binomial(3, 0.2, units), draws.binomial(3, 0.2, units))
    columns = [*(whole(one, 1, 5) for one in items), whole(last, 0, 10)]
    return _logistic(draws, columns, [-0.9, 0.2, -0.15, 0.0, 0.12, 0.06])


def contracts(draws: np.random.Generator, units: int) -> DataSet:
    """Return columns that are mostly one value: 12 months, no late fee, 100 per cent complete, an option of few."""
    months = np.where(draws.random(units) < 0.93, 12, draws.choice([1, 3, 6, 24, 36], units))
    fees = np.where(draws.random(units) < 0.985, 0, draws.geometric(0.25, units))
    complete = np.where(draws.random(units) < 0.96, 100.0, draws.uniform(0, 100, units))
    columns = [
        whole(months, 0, 120),
        whole(fees, 0, 500),
        number(complete, 0, 100),
        two(draws.random(units) < 0.04),
        number(draws.normal(size=units), -6, 6),
    ]
    return _logistic(draws, columns, [0.2, -0.04, 0.3, -0.005, 0.6, 0.4])


def accounts(draws: np.random.Generator, units: int) -> DataSet:
    """Return days of opening, ages heaped at tens, balances of both signs and many zeros, time of membership."""
    opened = 15_000 + 5000 * draws.beta(2.5, 1.0, units)
    age = np.floor(18 + 77 * draws.beta(1.6, 2.4, units))
    age = np.where(draws.random(units) < 0.35, np.round(age, -1), age)
    signs = draws.choice([0.0, 1.0, -1.0], units, p=[0.35, 0.5, 0.15])
    balance = signs * np.minimum(np.exp(6.5 + draws.normal(size=units)), 50_000)
    columns = [
        number(opened, 0, 40_000),
        whole(age, 0, 150),
        number(balance, -1e6, 1e6),
        number(draws.exponential(4.0, units), 0, 100),
        two(draws.random(units) < 0.25),
    ]
    return _logistic(draws, columns, [-8.0, 3e-4, 0.015, -1e-4, 0.05, 0.5])


def hours_of_a_day(draws: np.random.Generator, units: int) -> DataSet:
    """Return three columns that add up to 24 exactly, beside two others: none of the three has a coefficient."""
    parts = draws.dirichlet([9.0, 7.0, 8.0], units) * 24
    columns = [number(one, 0, 24) for one in parts.T]
    columns += [number(draws.normal(size=units), -6, 6), whole(draws.binomial(6, 0.3, units), 0, 6)]
    return _logistic(draws, columns, [-0.8, 0.08, -0.06, 0.0, 0.5, 0.2])


CODES: Final = (0.4, 0.2, 0.1, 0.05, 0.02, 0.01, 0.006, 0.003)
"""Parts of the records that have a code."""


def rare_codes(draws: np.random.Generator, units: int) -> DataSet:
    """Return indicators of 40 % down to .3 % of the records, beside integers and normal columns, at little budget."""
    columns = [two(draws.random(units) < rate) for rate in CODES]
    columns += [whole(draws.binomial(5, 0.5, units), 0, 10), *(number(draws.normal(size=units), -6, 6) for _ in "ab")]
    return _logistic(draws, columns, [-0.9, *np.resize([0.5, -0.4, 0.3], len(CODES)), 0.1, 0.4, 0.0])


def area_by_price(draws: np.random.Generator, units: int) -> DataSet:
    """Return two skewed numbers in wide bounds, whose product the model has, beside an indicator."""
    area, price = draws.gamma(2.0, 40.0, units), np.exp(0.8 * draws.normal(size=units))
    new = draws.random(units) < 0.3
    chance = expit(-1.0 + 0.008 * area + 0.3 * price + 0.4 * new - 0.002 * area * price)
    columns = [number(area, 0, 10_000), number(price, 0, 1000), two(new)]
    truth = [-1.0, 0.008, 0.3, 0.4, -0.002]
    return data_set(columns, _drawn(draws, chance), (0, 1), truth, mean=chance, interactions=((0, 1),))


def saturating_exposure(draws: np.random.Generator, units: int) -> DataSet:
    """Return an exposure of long tail whose effect has an end, so that a model linear in it is wrong."""
    exposure, age = np.exp(1.2 * draws.normal(size=units)), np.floor(20 + 50 * draws.random(units))
    group = draws.random(units) < 0.35
    chance = expit(-1.9 + 2.2 * exposure / (1 + exposure) + 0.01 * age + 0.4 * group)
    columns = [number(exposure, 0, 1000), whole(age, 0, 120), two(group)]
    return data_set(columns, _drawn(draws, chance), (0, 1), None, mean=chance)


def clinic_visits(draws: np.random.Generator, units: int) -> DataSet:
    """Return counts of variance mean + 1.7 mean^2, by conditions and ages, both integers, and a distance."""
    conditions = np.minimum(draws.poisson(1.1, units), 9)
    age, distance = np.floor(100 * draws.beta(2.0, 2.2, units)), draws.exponential(8.0, units)
    mean = np.exp(0.35 + 0.22 * conditions + 0.01 * age - 0.02 * distance)
    target = draws.poisson(mean * draws.gamma(0.6, 1 / 0.6, units)).astype(float)
    columns = [whole(conditions, 0, 30), whole(age, 0, 150), number(distance, 0, 500)]
    return data_set(columns, target, (0, 300), [0.35, 0.22, 0.01, -0.02], mean=mean, whole_target=True)


def repairs(draws: np.random.Generator, units: int) -> DataSet:
    """Return counts of twice a Poisson law's variance whose mean bends with a skewed use: the model is wrong."""
    use, old, fleet = draws.gamma(0.8, 2.5, units), draws.random(units) < 0.3, draws.normal(size=units)
    mean = 6 * use / (2 + use) * np.exp(0.3 * old + 0.2 * fleet) + 0.2
    target = draws.poisson(draws.gamma(mean, 1.0)).astype(float)
    columns = [number(use, 0, 300), two(old), number(fleet, -6, 6)]
    return data_set(columns, target, (0, 150), None, mean=mean, whole_target=True)


def survey_of_strata(draws: np.random.Generator, units: int) -> DataSet:
    """Return a survey of three strata with weights from 1 to 24 in a declared range to 200; the model is right."""
    stratum = draws.choice(3, units, p=[0.5, 0.3, 0.2])
    weight = np.array([2.0, 6.0, 16.0])[stratum] * draws.uniform(0.5, 1.5, units)
    age = np.floor(18 + 70 * draws.beta(1.8, 2.2, units))
    income = np.exp(0.3 * stratum + 0.6 * draws.normal(size=units))
    chance = expit(-1.4 + 0.6 * (stratum == 1) - 0.4 * (stratum == 2) + 0.015 * age + 0.15 * income)
    columns = [two(stratum == 1), two(stratum == 2), whole(age, 0, 130), number(income, 0, 200)]
    truth = [-1.4, 0.6, -0.4, 0.015, 0.15]
    return data_set(columns, _drawn(draws, chance), (0, 1), truth, mean=chance, sampling=(weight, 200.0))


FIFTH: Final[dict[str, Made]] = FIFTH_MEANS | {
    one.__name__: one
    for one in (
        households,
        scores_of_two_camps,
        contracts,
        accounts,
        hours_of_a_day,
        rare_codes,
        area_by_price,
        saturating_exposure,
        clinic_visits,
        repairs,
        survey_of_strata,
    )
}
HOURS: Final = (1, 2, 3)
"""Coefficients of columns that add up to a constant."""
_LOGISTIC: Final[tuple[tuple[str, int, int, float, float, Expected], ...]] = (
    ("households", 4000, 6, 0.2, 0.4, "sound"),
    ("scores_of_two_camps", 6000, 6, 0.15, 0.4, "sound"),
    ("contracts", 5000, 6, 0.3, 0.35, "elsewhere"),
    ("accounts", 10_000, 6, 0.12, 0.25, "sound"),
    ("hours_of_a_day", 4000, 6, 1.0, 0.4, "alias"),
    ("rare_codes", 5000, 12, 0.1, 0.35, "below budget"),
    ("area_by_price", 8000, 5, 1.0, 0.45, "sound"),
    ("saturating_exposure", 6000, 4, 1.0, 0.45, "sound"),
    ("survey_of_strata", 6000, 5, 1.0, 0.4, "sound"),
)
BUDGETS: Final = (0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""At which flags ought never to rise."""
RARE_AMOUNTS: Final = (
    "storms_by_region",
    "late_payments",
    "returns_in_one_arm",
    "far_groups_cancel",
    "tails_both_ways",
    "rare_pair_pays",
    "purchases_by_visits",
)
_COUNTS: Final = (("clinic_visits", 8000, 4, 1.0, 3.0), ("repairs", 6000, 4, 1.0, 2.5))


def fifth_rows() -> Iterator[Row]:
    """Yield each shape once: ten of least squares, nine of logistic and two of Poisson models."""
    for shape, size in MEANS_SIZES.items():
        yield Row(Cell(shape, *size, Outcome("linear"), least_squares=True), "counted", SEED)
    for shape, units, dimension, mu, base, expected in _LOGISTIC:
        named = HOURS if expected == "alias" else ()
        yield Row(Cell(shape, units, dimension, mu, Outcome("logistic", base)), expected, SEED, named)
    for shape, units, dimension, mu, base in _COUNTS:
        yield Row(Cell(shape, units, dimension, mu, Outcome("poisson", base)), "sound", SEED)


def counted_rows() -> Iterator[Row]:
    """Yield least squares of rare amounts, under both adjacencies, at one site and at three: 28 cells."""
    for shape, adjacency, sites in product(RARE_AMOUNTS, Adjacency, (1, 3)):
        units, dimension, mu = MEANS_SIZES[shape]
        cell = Cell(shape, units // sites, dimension, mu, Outcome("linear"), adjacency=adjacency, least_squares=True)
        yield Row(replace(cell, sites=sites), "counted", SEED)
