"""Declarations of a data set's columns, as an owner would make them."""

import numpy as np

from benchmarks.trust.shapes import Array, DataSet, Outcome
from core.data.columns import BinaryColumn, Column, IntegerColumn, NumberColumn
from core.models.design import Design


def declared_features(
    bounds: tuple[tuple[float, float], ...], two_valued: tuple[bool, ...], whole: tuple[bool, ...] = ()
) -> tuple[Column, ...]:
    """Return what an owner would declare of the features x1, x2, ...

    Args:
        bounds: of each.
        two_valued: whether each is an indicator.
        whole: whether each is an integer; empty: none is.
    """
    integers = whole or (False,) * len(bounds)
    return tuple(
        BinaryColumn(name=f"x{place}", type="binary", values=("no", "yes"))
        if two
        else _measured(f"x{place}", ends, one)
        for place, (ends, two, one) in enumerate(zip(bounds, two_valued, integers, strict=True), 1)
    )


def _measured(name: str, ends: tuple[float, float], whole: bool) -> Column:  # noqa: FBT001 - private
    if whole:
        return IntegerColumn(name=name, type="integer", lower=int(ends[0]), upper=int(ends[1]))
    return NumberColumn(name=name, type="number", lower=ends[0], upper=ends[1])


def declared_columns(data: DataSet, outcome: Outcome) -> tuple[Column, ...]:
    """Return what an owner would declare."""
    columns = declared_features(data.bounds, data.two_valued, data.whole)
    if data.sampling is not None:
        columns = (*columns, NumberColumn(name="weight", type="number", lower=0.0, upper=data.most_sampling))
    if outcome.kind == "logistic":
        return (*columns, BinaryColumn(name="y", type="binary", values=("no", "yes")))
    return (*columns, _measured("y", data.target_bounds, data.whole_target))


def sampling_of(design: Design, data: DataSet) -> Array | None:
    """Return the records' weights as trainers see them: parts of the declared upper bound; None: there are none."""
    if data.sampling is None or design.sampling is None:
        return None
    found: Array = np.clip(data.sampling, 0.0, data.most_sampling) / design.sampling.largest
    return found
