"""Shapes that nothing was tuned on: committed, with their seed, before their first run, reported as they came out."""

from typing import Final

import numpy as np

from benchmarks.trust.shapes import REACH, Columns, Maker, usual_slopes

SEED: Final = 20_261_123
"""Of every cell on these shapes."""


def mixture(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns of two groups of records, far apart in every second column."""
    values = draws.normal(size=(units, count))
    values[:, ::2] = 0.5 * values[:, ::2] + 1.5 * np.where(draws.random((units, 1)) < 0.3, 1.0, -0.43)
    return _columns(values, usual_slopes(count), [(-6.0, 6.0)] * count)


def ordinal(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return scores from 1 to 5, most of them high, beside normal columns."""
    values, half = draws.normal(size=(units, count)), max(1, count // 2)
    values[:, :half] = draws.choice([1.0, 2.0, 3.0, 4.0, 5.0], (units, half), p=[0.04, 0.06, 0.15, 0.35, 0.4])
    centre = np.r_[np.full(half, 4.01), np.zeros(count - half)]
    return _columns(values, usual_slopes(count), [(1.0, 5.0)] * half + [(-REACH, REACH)] * (count - half), centre)


def dates(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return days since 1970 that fill two years of the declared fifty, and normal columns."""
    values = draws.normal(size=(units, count))
    values[:, 0] = 18_000 + 730 * draws.beta(2.0, 1.0, units)
    slopes, centre = usual_slopes(count), np.zeros(count)
    slopes[0], centre[0] = 0.5 / 172, 18_487.0
    return _columns(values, slopes, [(0.0, 20_000.0)] + [(-REACH, REACH)] * (count - 1), centre)


def capped_counts(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return counts that a form caps at 10, beside normal columns."""
    values, half = draws.normal(size=(units, count)), max(1, count // 2)
    values[:, :half] = np.minimum(draws.negative_binomial(1.0, 0.25, (units, half)), 10)
    slopes = usual_slopes(count)
    slopes[:half] *= 0.35
    centre = np.r_[np.full(half, 2.8), np.zeros(count - half)]
    return _columns(values, slopes, [(0.0, 10.0)] * half + [(-REACH, REACH)] * (count - half), centre)


def interaction(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return normal columns, the last of which is the product of the first two."""
    values = draws.normal(size=(units, count))
    values[:, -1] = values[:, 0] * values[:, 1]
    return _columns(values, usual_slopes(count), [(-REACH, REACH)] * (count - 1) + [(-20.0, 20.0)])


def many_levels(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return indicators of a category whose values are of very unequal frequency, beside one normal column."""
    frequencies = 1.0 / (1.0 + np.arange(count))
    level = draws.choice(count, units, p=frequencies / frequencies.sum())
    values = (level[:, None] == np.arange(1, count)).astype(float)
    values = np.column_stack((values, draws.normal(size=units)))
    slopes = np.r_[np.resize((0.4, -0.4, 0.0), count - 1), 0.5]
    two = (True,) * (count - 1) + (False,)
    bounds = ((0.0, 1.0),) * (count - 1) + ((-REACH, REACH),)
    return Columns(values, bounds, two, slopes, np.zeros(count))


def confounded(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return a treatment that a score decides nearly alone, the score, and normal columns."""
    values = draws.normal(size=(units, count))
    values[:, 0] = draws.random(units) < 1 / (1 + np.exp(-3 * values[:, 1]))
    slopes = usual_slopes(count)
    two = (True,) + (False,) * (count - 1)
    bounds = ((0.0, 1.0),) + ((-REACH, REACH),) * (count - 1)
    return Columns(values, bounds, two, slopes, np.r_[0.5, np.zeros(count - 1)])


def noisy_copies(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return copies of one column, each with a tenth of noise, beside normal ones."""
    values = draws.normal(size=(units, count))
    half = max(2, count // 2)
    values[:, 1:half] = values[:, :1] + 0.1 * values[:, 1:half]
    return _columns(values, usual_slopes(count), [(-REACH, REACH)] * count)


def rare_exposure(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return an exposure of one record in a hundred that doubles odds, beside normal columns."""
    values = draws.normal(size=(units, count))
    values[:, 0] = draws.random(units) < 0.01
    slopes = usual_slopes(count)
    slopes[0] = 0.693
    two = (True,) + (False,) * (count - 1)
    bounds = ((0.0, 1.0),) + ((-REACH, REACH),) * (count - 1)
    return Columns(values, bounds, two, slopes, np.zeros(count))


def uneven_units(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns of very unequal units and bounds ten times too wide."""
    powers = 10.0 ** np.resize((-6, 6, 0, 3), count)
    values = draws.normal(size=(units, count))
    return _columns(values * powers, usual_slopes(count) / powers, [(-45 * one, 45 * one) for one in powers])


def uniform_sums(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return shares of a whole, less one: negatively correlated, bounded, skew."""
    values = draws.dirichlet(np.r_[np.full(count, 0.7), 2.0], units)[:, :count]
    return _columns(values, usual_slopes(count) * 4, [(0.0, 1.0)] * count, np.full(count, 0.7 / (0.7 * count + 2)))


def heavy(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns with the tails of Student's t of 3 degrees, cut at the declared bounds by nobody."""
    values = np.clip(draws.standard_t(3, (units, count)), -60, 60)
    return _columns(values, usual_slopes(count) * 0.6, [(-60.0, 60.0)] * count)


def _columns(
    values: np.ndarray, slopes: np.ndarray, bounds: list[tuple[float, float]], centre: np.ndarray | None = None
) -> Columns:
    count = values.shape[1]
    return Columns(values, tuple(bounds), (False,) * count, slopes, np.zeros(count) if centre is None else centre)


FRESH: Final[dict[str, Maker]] = {
    "mixture": mixture,
    "ordinal": ordinal,
    "dates": dates,
    "capped_counts": capped_counts,
    "interaction": interaction,
    "many_levels": many_levels,
    "confounded": confounded,
    "noisy_copies": noisy_copies,
    "rare_exposure": rare_exposure,
    "uneven_units": uneven_units,
    "uniform_sums": uniform_sums,
    "heavy": heavy,
}
