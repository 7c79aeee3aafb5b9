"""Data sets column by column: values with their declarations, for shapes that make records and outcomes together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.trust.shapes import Array, DataSet

Bounds = tuple[float, float]
Made = Callable[[np.random.Generator, int], DataSet]
"""Makes a data set of so many records."""


@dataclass(frozen=True)
class Declared:
    """One column with its declaration."""

    values: Array
    bounds: Bounds
    two_valued: bool = False
    whole: bool = False


def number(values: Array, lower: float, upper: float) -> Declared:
    """Return a column of numbers."""
    return Declared(values, (lower, upper))


def whole(values: Array | NDArray[np.int64], lower: int, upper: int) -> Declared:
    """Return a column of integers."""
    return Declared(np.asarray(values, dtype=float), (float(lower), float(upper)), whole=True)


def two(chosen: NDArray[np.bool_]) -> Declared:
    """Return an indicator."""
    return Declared(chosen.astype(float), (0.0, 1.0), two_valued=True)


def data_set(
    columns: Sequence[Declared],
    target: Array,
    target_bounds: Bounds,
    truth: Sequence[float] | None,
    *,
    mean: Array | None = None,
    whole_target: bool = False,
    interactions: tuple[tuple[int, ...], ...] = (),
    sampling: tuple[Array, float] | None = None,
) -> DataSet:
    """Return a data set.

    Args:
        columns: the features, in order.
        target: outcomes, shape (records,).
        target_bounds: declared; 0 and 1 of a logistic model.
        truth: coefficients where the model is right, intercept first; None: those of a population.
        mean: of the outcome given the features, shape (records,).
        whole_target: declare the target as an integer.
        interactions: places of features whose products the model has.
        sampling: the records' weights, and their declared upper bound.
    """
    return DataSet(
        np.column_stack([one.values for one in columns]),
        target,
        tuple(one.bounds for one in columns),
        tuple(one.two_valued for one in columns),
        target_bounds,
        None if truth is None else np.array(truth, dtype=float),
        mean=mean,
        whole=tuple(one.whole for one in columns),
        whole_target=whole_target,
        interactions=interactions,
        sampling=None if sampling is None else sampling[0],
        most_sampling=1.0 if sampling is None else sampling[1],
    )
