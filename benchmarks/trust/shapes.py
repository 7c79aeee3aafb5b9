"""Shapes of synthetic data sets: the columns, the outcomes that come of them, and the declarations.

A shape is a name; `draw` makes a fresh data set of one. `TUNED` are those that the estimator's constants were found
on. `FRESH` are shapes that nobody tuned on; they and their seeds were committed before their first run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]
Kind = Literal["logistic", "linear", "poisson"]
Errors = Literal[
    "exponential",
    "lognormal_errors",
    "hundredth",
    "thousandth",
    "thirtieth",
    "gamma_half",
    "pareto",
    "amounts",
    "growing",
]
"""Of linear models: functions of these names in `benchmarks.trust.fresh_linear`."""
Means = Literal[
    "weibull",
    "inverse_gaussian",
    "gumbel_below",
    "lognormal_below",
    "gamma_third",
    "gamma_most",
    "lognormal_half",
    "lognormal_most",
    "lopsided",
    "rising",
    "two_normals",
    "normal_and_late",
    "student_five",
    "fanned",
    "by_groups",
]
"""Of linear models: functions of these names in `benchmarks.trust.fresh_means`."""
Counts = Literal["geometric", "eightfold", "thirtyfold", "absent", "two_groups", "in_visits", "steady"]
"""Laws of counts: functions of these names in `benchmarks.trust.fresh_counts`."""
Plain = Literal["normal", "t2", "heteroskedastic", "small", "overdispersed", "wild", "contaminated"]
Noise = Plain | Errors | Means | Counts
Lacking = Literal["nothing", "square", "product"]
SLOPES: Final = (0.5, -0.5, 0.25, 0.0)
REACH: Final = 4.5
POISSON_PART: Final = 0.6
MOST_FULL: Final = 8
"""Columns from which on slopes shrink, so that predictors keep their deviation."""


@dataclass(frozen=True)
class Columns:
    """Features in declared units, what is declared of them, and their effects."""

    values: Array
    bounds: tuple[tuple[float, float], ...]
    two_valued: tuple[bool, ...]
    slopes: Array
    centre: Array
    """The centre of the columns in the linear predictor."""


@dataclass(frozen=True)
class DataSet:
    """One data set, with the truth where the model is right."""

    features: Array
    target: Array
    bounds: tuple[tuple[float, float], ...]
    two_valued: tuple[bool, ...]
    target_bounds: tuple[float, float]
    truth: Array | None
    """Intercept first, declared units; None where there is none to cover, or the model is not quite right."""
    mean: Array | None = None
    """Of the outcome, given the features; None where it is not noted."""
    whole: tuple[bool, ...] = ()
    """True of features declared as integers; empty: none is."""
    whole_target: bool = False
    interactions: tuple[tuple[int, ...], ...] = ()
    """Places of features whose products the model has."""
    sampling: Array | None = None
    """The records' sampling weights; None: the model has none."""
    most_sampling: float = 1.0
    """Their declared upper bound."""


def usual_slopes(count: int) -> Array:
    """Return the same effects over and over, smaller where there are many."""
    slopes = np.resize(SLOPES, count).astype(float)
    return slopes * np.sqrt(MOST_FULL / count) if count > MOST_FULL else slopes


def _plain(values: Array, slopes: Array | None = None) -> Columns:
    count = values.shape[1]
    own = usual_slopes(count) if slopes is None else slopes
    return Columns(values, ((-REACH, REACH),) * count, (False,) * count, own, np.zeros(count))


def normal(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return independent standard normal columns."""
    return _plain(draws.normal(size=(units, count)))


def correlated(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return normal columns, the first three of which are correlated by 0.95."""
    values, common = draws.normal(size=(units, count)), draws.normal(size=(units, 1))
    values[:, :3] = np.sqrt(0.95) * common + np.sqrt(0.05) * values[:, :3]
    slopes = usual_slopes(count)
    slopes[:3] = np.array([0.4, -0.2, 0.3])[: min(3, count)]
    return _plain(values, slopes)


def _half(values: Array, half: int, upper: float, mean: float, part: float) -> Columns:
    """Return columns whose first half is positive, declared from 0 to `upper`."""
    count = values.shape[1]
    slopes = usual_slopes(count)
    slopes[:half] *= part
    bounds = ((0.0, upper),) * half + ((-REACH, REACH),) * (count - half)
    return Columns(values, bounds, (False,) * count, slopes, np.r_[np.full(half, mean), np.zeros(count - half)])


def lognormal(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns of which half have long tails."""
    values, half = draws.normal(size=(units, count)), max(1, count // 2)
    values[:, :half] = np.exp(values[:, :half])
    return _half(values, half, 60.0, 1.649, 0.4)


def zero_inflated(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns of which half are zero in nine of ten records."""
    values, half = draws.normal(size=(units, count)), max(1, count // 2)
    values[:, :half] = np.exp(0.7 * values[:, :half]) * (draws.random((units, half)) < 0.1)
    return _half(values, half, 20.0, 0.1 * float(np.exp(0.245)), 1.0)


def _with_indicators(draws: np.random.Generator, units: int, count: int, many: int, rate: float) -> Columns:
    values = draws.normal(size=(units, count))
    values[:, :many] = draws.random((units, many)) < rate
    slopes = usual_slopes(count)
    slopes[:many] = np.resize((0.5, -0.5), many)
    bounds = ((0.0, 1.0),) * many + ((-REACH, REACH),) * (count - many)
    two_valued = (True,) * many + (False,) * (count - many)
    return Columns(values, bounds, two_valued, slopes, np.r_[np.full(many, rate), np.zeros(count - many)])


def rare_indicators(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns of which a third are indicators of one record in two hundred."""
    return _with_indicators(draws, units, count, max(1, count // 3), 0.005)


def indicators(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns of which half are indicators of three records in ten."""
    return _with_indicators(draws, units, count, max(1, count // 2), 0.3)


def alias(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns of which the second is the first with its sign changed: neither has a coefficient of its own."""
    values = draws.normal(size=(units, count))
    values[:, 1] = -values[:, 0]
    return _plain(values)


Maker = Callable[[np.random.Generator, int, int], Columns]
TUNED: Final[dict[str, Maker]] = {
    "normal": normal,
    "correlated": correlated,
    "lognormal": lognormal,
    "zero_inflated": zero_inflated,
    "rare_indicators": rare_indicators,
    "indicators": indicators,
    "alias": alias,
    "separated": normal,
}


@dataclass(frozen=True)
class Outcome:
    """The law of outcomes, given predictors."""

    kind: Kind
    base: float = 0.5
    """Base rate, or mean count, at the columns' centre."""
    noise: Noise = "normal"
    lacking: Lacking = "nothing"
    """The term that outcomes depend on and the model leaves out: the first column's square, or its product with the
    second."""


LACKED: Final = {"square": 0.3, "product": 0.5}


def lacked(values: Array, lacking: Lacking) -> Array:
    """Return what a model without it leaves out of the linear predictor."""
    if lacking == "nothing":
        return np.zeros(len(values))
    first, second = values[:, 0], values[:, 1]
    return LACKED[lacking] * (first**2 - 1 if lacking == "square" else first * second)


def outcomes(draws: np.random.Generator, columns: Columns, outcome: Outcome) -> tuple[Array, Array]:
    """Return outcomes and the true coefficients, intercept first."""
    from benchmarks.trust.fresh_counts import COUNTED  # noqa: PLC0415 - made of what is here
    from benchmarks.trust.fresh_linear import ERRORS  # noqa: PLC0415 - made of what is here
    from benchmarks.trust.fresh_means import MEANS  # noqa: PLC0415 - made of what is here

    predictor = (columns.values - columns.centre) @ columns.slopes + lacked(columns.values, outcome.lacking)
    units, slopes = len(predictor), columns.slopes
    if outcome.kind == "logistic":
        start = float(np.log(outcome.base / (1 - outcome.base)))
        target = (draws.random(units) < expit(start + predictor)).astype(float)
    elif outcome.kind == "poisson":
        start, slopes = float(np.log(outcome.base)), slopes * POISSON_PART
        mean = np.exp(start + POISSON_PART * predictor)
        if outcome.noise == "overdispersed":
            mean = mean * draws.gamma(2.0, 0.5, units)
        elif outcome.noise == "wild":
            mean = mean * draws.gamma(0.25, 4.0, units)
        law = COUNTED.get(outcome.noise, np.random.Generator.poisson)
        target = np.asarray(law(draws, mean), dtype=np.float64)
    else:
        start, error = 1.0, draws.normal(size=units)
        if outcome.noise == "t2":
            error = draws.standard_t(2, size=units)
        elif outcome.noise == "heteroskedastic":
            error = error * (0.4 + 0.6 * np.abs(columns.values[:, 0]))
        elif outcome.noise == "small":
            error = error * 0.1
        elif outcome.noise == "contaminated":
            error = np.where(draws.random(units) < 0.05, 10 * error, error)
        elif outcome.noise in (laws := ERRORS | MEANS):
            error = laws[outcome.noise](draws, columns.values)
        target = start + predictor + error
    return target, np.r_[start - columns.centre @ slopes, slopes]


def widened(bounds: tuple[float, float], times: float) -> tuple[float, float]:
    """Return a declared range, wider by a factor; a lower bound of 0 stays."""
    return bounds[0] * times, bounds[1] * times


def draw(
    draws: np.random.Generator, shape: str, units: int, count: int, outcome: Outcome, *, wide: float = 1.0
) -> DataSet:
    """Return a fresh data set of a shape, or a sample with replacement of a population."""
    from benchmarks.trust.fresh import FRESH  # noqa: PLC0415 - shapes that are made of the functions here
    from benchmarks.trust.fresh_fifth import FIFTH  # noqa: PLC0415 - as above
    from benchmarks.trust.fresh_fourth import FOURTH  # noqa: PLC0415 - as above
    from benchmarks.trust.fresh_linear import LINEAR_SHAPES  # noqa: PLC0415 - as above
    from benchmarks.trust.fresh_second import SECOND  # noqa: PLC0415 - as above
    from benchmarks.trust.fresh_third import FAR, THIRD  # noqa: PLC0415 - as above
    from benchmarks.trust.populations import NAMES, population  # noqa: PLC0415 - as above

    if shape in NAMES:
        return population(shape).sample(draws, units)
    if shape in FIFTH:
        return FIFTH[shape](draws, units)
    made = TUNED | FRESH | SECOND | THIRD | FAR | LINEAR_SHAPES | FOURTH
    columns = made[shape](draws, units, count)
    target, truth = outcomes(draws, columns, outcome)
    if shape == "separated":
        target = (columns.values[:, 0] > 0).astype(float)
    if shape == "quasi_separated":
        target[columns.values[:, 0] > 0] = 1.0 if outcome.kind == "logistic" else 0.0
    ranges = {"logistic": (0.0, 1.0), "linear": (-8.0, 10.0), "poisson": (0.0, 20.0 if outcome.base <= 2 else 60.0)}
    wider = [
        bounds if two else widened(bounds, wide) for bounds, two in zip(columns.bounds, columns.two_valued, strict=True)
    ]
    return DataSet(
        columns.values,
        target,
        tuple(wider),
        columns.two_valued,
        ranges[outcome.kind] if outcome.kind == "logistic" else widened(ranges[outcome.kind], wide),
        None if shape == "separated" or outcome.lacking != "nothing" else truth,
    )
