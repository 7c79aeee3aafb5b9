"""Data sets with outcomes of several classes: the frequency of each class, and the effect of each column on its odds.

Columns are those of `shapes` and of the sets that nobody tuned on. Of the structures EVEN and UNEVEN are those that the
multinomial method was prototyped with; the others, and all SEEDs here, were committed before the method first ran.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.trust.class_fresh import JUDGING
from benchmarks.trust.fresh import FRESH
from benchmarks.trust.fresh_second import SECOND
from benchmarks.trust.fresh_third import THIRD
from benchmarks.trust.shapes import TUNED, Array, usual_slopes, widened

SEED: Final = 83_112_909
FRESH_SEED: Final = 27_604_411
Structure = Literal[
    "even", "uneven", "ordered", "twins", "rare_last", "rare_first", "strong", "none", "never", "decided", "own"
]
"""The differences between classes; of `own` the columns' own slopes count, the more the later the class."""
MAKERS: Final = TUNED | FRESH | SECOND | THIRD | JUDGING


@dataclass(frozen=True)
class ClassData:
    """One data set; coefficients are against class 0."""

    features: Array
    target: NDArray[np.int64]
    bounds: tuple[tuple[float, float], ...]
    two_valued: tuple[bool, ...]
    truth: Array | None
    """Class after class, intercept first, declared units; None where nothing finite is true."""


def _odds(structure: Structure, classes: int, own: Array) -> tuple[Array, Array]:
    """Return intercepts, shape (K,), and slopes, shape (K, count), those of class 0 being zero."""
    count = len(own)
    intercepts, slopes = np.zeros(classes), np.zeros((classes, count))
    for one in range(1, classes):
        slopes[one] = np.roll(usual_slopes(count), one)
    later = classes - 2
    if structure == "uneven":
        intercepts[1:] = np.log(np.r_[0.2, np.full(later, 0.1 / later)] / 0.7)
    elif structure == "ordered":
        slopes = 1.5 * np.outer(np.arange(classes) / (classes - 1), usual_slopes(count))
    elif structure == "own":
        slopes = np.outer(np.arange(classes) / (classes - 1), own)
    elif structure == "twins":
        slopes[-1] = slopes[-2]
    elif structure == "rare_last":
        intercepts[-1] = np.log(0.02 * (classes - 1) / 0.98)
    elif structure == "rare_first":
        intercepts[1:] = np.log(0.97 / (classes - 1) / 0.03)
    elif structure == "strong":
        slopes *= 2.0
    elif structure == "none":
        slopes *= 0.0
    return intercepts, slopes


def draw_classes(
    draws: np.random.Generator,
    shape: str,
    units: int,
    count: int,
    classes: int,
    structure: Structure,
    *,
    wide: float = 1.0,
) -> ClassData:
    """Return a fresh data set, or a sample with replacement of a population."""
    if shape in POPULATIONS:
        whole = class_population(shape)
        rows = draws.integers(0, len(whole.target), units)
        return ClassData(whole.features[rows], whole.target[rows], whole.bounds, whole.two_valued, None)
    columns = MAKERS[shape](draws, units, count)
    intercepts, slopes = _odds(structure, classes, columns.slopes)
    predictors = intercepts + (columns.values - columns.centre) @ slopes.T
    if structure == "never":  # the last class is not seen where the first column, an indicator, is one
        predictors[columns.values[:, 0] > 0, -1] = -np.inf
    chances = np.exp(predictors - predictors.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    target = (chances.cumsum(1) < draws.random((units, 1))).sum(1).clip(0, classes - 1)
    if structure == "decided":
        target = np.digitize(columns.values[:, 0], np.quantile(columns.values[:, 0], np.arange(1, classes) / classes))
    constant = intercepts - slopes @ columns.centre
    truth = np.column_stack((constant, slopes))[1:].ravel()
    bounds = tuple(
        one if two else widened(one, wide) for one, two in zip(columns.bounds, columns.two_valued, strict=True)
    )
    known = structure not in {"never", "decided"}
    return ClassData(columns.values, target, bounds, columns.two_valued, truth if known else None)


def _iris(places: tuple[int, ...]) -> Callable[[], ClassData]:
    def made() -> ClassData:
        from sklearn.datasets import load_iris  # noqa: PLC0415 - one population needs it

        data = load_iris()
        return _plain(data.data[:, places], data.target, ((4.0, 8.5), (1.5, 5.0), (0.5, 8.0), (0.0, 3.0)), places)

    return made


def _wine() -> ClassData:
    from sklearn.datasets import load_wine  # noqa: PLC0415 - as above

    data, places = load_wine(), (0, 1, 2, 7)
    bounds = {0: (10.0, 16.0), 1: (0.0, 7.0), 2: (1.0, 4.0), 7: (0.0, 1.0)}
    return _plain(data.data[:, places], data.target, tuple(bounds.get(at, (0.0, 1.0)) for at in range(13)), places)


def _digits() -> ClassData:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - as above

    data = load_digits()
    kept = np.isin(data.target, (1, 3, 8, 9))
    sums = data.images[kept].sum(2)[:, (1, 2, 3, 5, 6)]  # of rows of pixels
    return _plain(sums, np.searchsorted((1, 3, 8, 9), data.target[kept]), ((0.0, 128.0),) * 5, tuple(range(5)))


def _plain(
    values: Array, target: NDArray[np.int64], bounds: tuple[tuple[float, float], ...], places: tuple[int, ...]
) -> ClassData:
    return ClassData(values, target, tuple(bounds[at] for at in places), (False,) * len(places), None)


POPULATIONS: Final[dict[str, Callable[[], ClassData]]] = {
    "iris": _iris((0, 1, 2, 3)),
    "iris_versicolor": _iris((1, 3)),
    "wine": _wine,
    "digits": _digits,
}


@cache
def class_population(name: str) -> ClassData:
    """Return all records of a data set that ships with scikit-learn."""
    return POPULATIONS[name]()
