"""Least squares where few records carry the mean, in bounds that are wide on one side or on both.

Committed, with sizes and seed, before the first job on any of them, and before their author saw the changes that they
judge. Each mean is linear in the features, so that the true coefficients follow by a formula; `curved_wages` alone has
those of its population.
"""

from math import exp, log
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from benchmarks.trust.declared import Made, data_set, number, two, whole
from benchmarks.trust.shapes import Array, DataSet

LARGEST_PURCHASE: Final = 3000.0
LARGEST_ERROR: Final = 1500.0


def _within(draws: np.random.Generator, units: int, low: float, high: float, rare: ArrayLike) -> Array:
    """Return uniform amounts for a part of the records, zeros for the others."""
    found: Array = (draws.random(units) < np.asarray(rare)) * draws.uniform(low, high, units)
    return found


def storms_by_region(draws: np.random.Generator, units: int) -> DataSet:
    """Return losses of houses in four regions: small ones each year, storms in .2 to .8 % by region."""
    region = draws.choice(4, units, p=[0.38, 0.15, 0.22, 0.25])  # plain, coast, hills, city
    value, age = draws.gamma(4.0, 60.0, units), np.minimum(np.floor(draws.gamma(2.0, 18.0, units)), 200)
    rates, mean_storm = np.array([0.002, 0.008, 0.004, 0.002]), 550.0
    usual = 3 + 0.01 * value + 0.02 * age
    target = usual * draws.gamma(2.0, 0.5, units) + _within(draws, units, 200, 900, rates[region])
    columns = [two(region == 1), two(region == 2), two(region == 3), number(value, 0, 5000), whole(age, 0, 300)]
    by_region = mean_storm * (rates - rates[0])
    truth = [3 + mean_storm * rates[0], *by_region[1:], 0.01, 0.02]
    return data_set(columns, target, (0, 3000), truth)


def late_payments(draws: np.random.Generator, units: int) -> DataSet:
    """Return days that invoices are late, an integer: some days, or months where a collector is called."""
    terms = draws.choice([14.0, 30.0, 60.0], units, p=[0.3, 0.5, 0.2])
    earlier, new = draws.negative_binomial(1.2, 0.06, units), draws.random(units) < 0.15
    amount = draws.gamma(1.5, 2.0, units)
    usual = np.round(-2 + 0.05 * terms + 0.3 * amount + 6 * draws.normal(size=units))
    collected = draws.random(units) < 0.006 + 0.022 * new
    target = usual + collected * draws.integers(90, 721, units)
    columns = [whole(terms, 0, 365), whole(earlier, 0, 1000), two(new), number(amount, 0, 10_000)]
    truth = [-2 + 0.006 * 405, 0.05, 0.0, 0.022 * 405, 0.3]
    return data_set(columns, target, (-90, 2000), truth, whole_target=True)


def returns_in_one_arm(draws: np.random.Generator, units: int) -> DataSet:
    """Return what customers spend in an experiment; one in two hundred of the treated send everything back."""
    arm, orders = draws.random(units) < 0.5, np.minimum(draws.poisson(6.0, units), 40)
    usual = 60 + 4 * arm + 1.5 * orders + draws.gamma(2.0, 15.0, units) - 30
    returned = _within(draws, units, 500, 2500, 0.005 * arm)
    return data_set([two(arm), whole(orders, 0, 200)], np.subtract(usual, returned), (-5000, 1000), [60, 4 - 7.5, 1.5])


def far_groups_cancel(draws: np.random.Generator, units: int) -> DataSet:
    """Return outcomes of which four in a thousand lie far above and as many far below, in symmetric bounds."""
    shift, dose, sex = draws.normal(size=units), draws.random(units) * 4, draws.random(units) < 0.45
    group = draws.choice([0.0, 2500.0, -2500.0], units, p=[0.992, 0.004, 0.004])
    target = 20 + 3 * shift - 2 * dose + 5 * sex + 4 * draws.normal(size=units) + group
    columns = [number(shift, -8, 8), number(dose, 0, 10), two(sex)]
    return data_set(columns, target, (-10_000, 10_000), [20, 3, -2, 5])


def tails_both_ways(draws: np.random.Generator, units: int) -> DataSet:
    """Return errors of barely finite variance in both directions."""
    error = 3 * draws.standard_t(2.2, units)
    while (far := np.abs(error) > LARGEST_ERROR).any():
        error[far] = 3 * draws.standard_t(2.2, int(far.sum()))
    dose, score, shift = draws.gamma(3.0, 2.0, units), draws.binomial(8, 0.4, units), draws.normal(size=units)
    target = 5 + 0.8 * dose - 0.6 * score + 1.2 * shift + error
    columns = [number(dose, 0, 200), whole(score, 0, 8), number(shift, -20, 20)]
    return data_set(columns, target, (-5000, 5000), [5, 0.8, -0.6, 1.2])


def rare_pair_pays(draws: np.random.Generator, units: int) -> DataSet:
    """Return costs that a product of two indicators carries: one in ten of its records costs 400 more."""
    one, other, shift = draws.random(units) < 0.2, draws.random(units) < 0.15, draws.normal(size=units)
    paid = 400.0 * (draws.random(units) < 0.1 * (one & other))
    target = 50 + 2 * one - 3 * other + 4 * shift + 8 * draws.normal(size=units) + paid
    columns = [two(one), two(other), number(shift, -6, 6)]
    return data_set(columns, target, (-100, 1500), [50, 2, -3, 4, 40], interactions=((0, 1),))


def bills_below_a_ceiling(draws: np.random.Generator, units: int) -> DataSet:
    """Return household bills, none of them far from the others, in bounds 500 times as wide as they vary."""
    persons, area = 1 + np.minimum(draws.poisson(1.3, units), 8), 20 + draws.gamma(3.0, 25.0, units)
    mean = 40 + 12 * persons + 0.3 * area
    columns = [whole(persons, 0, 40), number(area, 0, 5000)]
    return data_set(columns, mean * draws.gamma(8.0, 1 / 8, units), (0, 50_000), [40, 12, 0.3])


def stars_of_two_modes(draws: np.random.Generator, units: int) -> DataSet:
    """Return ratings from 1 to 10, an integer target: most are 2 or 9, and members give more of the latter."""
    member, visits = draws.random(units) < 0.4, draws.binomial(10, 0.3, units)
    shift = draws.normal(size=units)
    liked = draws.random(units) < 0.35 + 0.25 * member + 0.02 * visits
    target = np.where(liked, 8 + draws.binomial(2, 0.7, units), 1 + draws.binomial(3, 0.4, units))
    columns = [two(member), whole(visits, 0, 10), number(shift, -6, 6)]
    truth = [2.2 + 7.2 * 0.35, 7.2 * 0.25, 7.2 * 0.02, 0.0]
    return data_set(columns, target.astype(float), (1, 10), truth, whole_target=True)


def purchases_by_visits(draws: np.random.Generator, units: int) -> DataSet:
    """Return purchases of a shop: two records in a hundred buy, lognormal amounts; more visits, more purchases."""
    visits, phone = np.minimum(draws.poisson(2.0, units), 6), draws.random(units) < 0.6
    age = np.floor(18 + 72 * draws.beta(1.5, 2.5, units))
    amount = np.exp(5 + draws.normal(size=units))
    while (far := amount > LARGEST_PURCHASE).any():
        amount[far] = np.exp(5 + draws.normal(size=int(far.sum())))
    target = amount * (draws.random(units) < 0.004 + 0.008 * visits)
    edge = log(LARGEST_PURCHASE) - 5
    mean = exp(5.5) * float(ndtr(edge - 1) / ndtr(edge))
    columns = [whole(visits, 0, 60), two(phone), whole(age, 0, 130)]
    return data_set(columns, target, (0, 20_000), [0.004 * mean, 0.008 * mean, 0, 0])


def curved_wages(draws: np.random.Generator, units: int) -> DataSet:
    """Return wages that rise with the logarithm of a firm's size and bend with experience, with unequal variance."""
    years, degree = np.floor(45 * draws.beta(1.2, 1.8, units)), draws.random(units) < 0.3
    size = np.exp(3 + 1.3 * draws.normal(size=units))
    mean = 12 + 0.9 * years - 0.014 * years**2 + 6 * degree + 1.8 * np.log1p(size)
    target = mean + (1 + 0.12 * years) * draws.normal(size=units)
    columns = [whole(years, 0, 70), two(degree), number(size, 0, 100_000)]
    return data_set(columns, target, (-50, 400), None, mean=mean)


FIFTH_MEANS: Final[dict[str, Made]] = {
    one.__name__: one
    for one in (
        storms_by_region,
        late_payments,
        returns_in_one_arm,
        far_groups_cancel,
        tails_both_ways,
        rare_pair_pays,
        bills_below_a_ceiling,
        stars_of_two_modes,
        purchases_by_visits,
        curved_wages,
    )
}
MEANS_SIZES: Final[dict[str, tuple[int, int, float]]] = {
    "storms_by_region": (10_000, 6, 1.0),
    "late_payments": (8000, 5, 0.6),
    "returns_in_one_arm": (10_000, 3, 1.0),
    "far_groups_cancel": (6000, 4, 1.0),
    "tails_both_ways": (5000, 4, 0.8),
    "rare_pair_pays": (12_000, 5, 1.0),
    "bills_below_a_ceiling": (5000, 3, 0.5),
    "stars_of_two_modes": (3000, 4, 0.5),
    "purchases_by_visits": (20_000, 4, 0.7),
    "curved_wages": (6000, 4, 1.0),
}
"""Of each shape: records, coefficients, mu."""
