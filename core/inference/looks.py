"""Where encoded features lie, as a look found it: of the job itself, or of a description that it names."""

from dataclasses import dataclass, field
from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.data.columns import Coded, bounds_of
from core.inference.description import Counts, Look, ReleasedDescription
from core.models.design import Design
from core.models.features import Feature

LEAST_INDICATOR_SCALE: Final = 0.1
Array = NDArray[np.float64]


class SeenSizes(NamedTuple):
    """Noised counts of a column's records by their distance from its centre, as far out as any were seen."""

    distances: Array
    """Encoded units, shape (k,)."""
    counts: Array
    """Shape (k,); 0 where noise may be all that is there."""


@dataclass(frozen=True)
class Columns:
    """Learned centre and scale of every encoded feature, shape (p,) each; the intercept has centre 0 and scale 1."""

    centre: Array
    scale: Array
    sparse: NDArray[np.bool_]
    """Nothing was seen of how it varies."""
    clamped: NDArray[np.bool_]
    """At the lower and upper end of its range, shape (p, 2)."""
    heaped: NDArray[np.bool_]
    """About half of the records or more have one value, or lie at one distance from the centre."""
    recentring: Array | None = None
    """The map from encoded rows to rows whose products are of numbers less their centres, shape (p, p), of which
    `centre` and `scale` are; None: no product is centred anew."""
    sizes: dict[int, SeenSizes] = field(default_factory=dict)
    """By place, of columns that the job looked at itself."""

    @property
    def simple(self) -> Array:
        """The map from encoded rows to (1, z), z = (feature - centre)/scale, shape (p, p)."""
        matrix: Array = np.diag(1 / self.scale)
        matrix[1:, 0] = -self.centre[1:] / self.scale[1:]
        return matrix if self.recentring is None else matrix @ self.recentring


def unknown(features: int) -> Columns:
    """Return columns of which nothing is known yet."""
    return Columns(
        np.zeros(features),
        np.ones(features),
        np.zeros(features, dtype=np.bool_),
        np.zeros((features, 2), dtype=np.bool_),
        np.zeros(features, dtype=np.bool_),
    )


def indicator_scales(shares: Array, features: int) -> Array:
    """Return the scales of indicators by how frequent they are, as parts of the distance of both their values."""
    least = max(1 / sqrt(features), LEAST_INDICATOR_SCALE)
    return np.maximum(np.sqrt(shares * (1 - shares)), least)


def misfit(design: Design, released: ReleasedDescription) -> str | None:
    """Say why a description cannot stand for a look at a model's columns, in words that follow its name."""
    if any(feature.factors for feature in design.features):
        return "has no look at products of columns: leave /models out where a model has interactions"
    for column in design.columns:
        place = released.place(column.name)
        if place is None:
            return f"does not describe the column {column.name}: leave it out of the model, or describe it too"
        if released.columns[place] != column:
            return f"describes the column {column.name} as it was declared otherwise"
        if isinstance(column, Coded):
            if _frequencies(released, place) is None:
                return f"has no frequencies of the column {column.name}: describe it with them"
        elif _look(released, place) is None:
            return f"has no look at the column {column.name}: its share was 0"
    return None


def columns_of(design: Design, released: ReleasedDescription) -> Columns:
    """Return what a description found of a design's features.

    Raises:
        AssertionError: it does not describe one of them; see `misfit`.
    """
    found = unknown(design.dimension)
    for at, feature in enumerate(design.features):
        place = None if feature.column is None else released.place(feature.column)
        if place is None:
            assert feature.column is None, "the description has every column"
            continue
        if feature.code is None:
            look = _look(released, place)
            assert look is not None, "a number was looked at"
            column = released.columns[place]
            assert not isinstance(column, Coded), "a category has codes"
            lower, upper = bounds_of(column)
            found.centre[at] = (lower + look.centre * (upper - lower) - feature.centre) / feature.scale
            found.scale[at] = look.scale * (upper - lower) / feature.scale
            found.sparse[at], found.clamped[at], found.heaped[at] = look.sparse, look.clamped, look.heaped
        else:
            counts = _frequencies(released, place)
            assert counts is not None, "a category was counted"
            found.centre[at], found.scale[at] = _indicator(counts, feature, released.units, design.dimension)
    return found


def _indicator(counts: Counts, feature: Feature, units: int, features: int) -> tuple[float, float]:
    """Return centre and scale of an encoded indicator."""
    assert feature.code is not None, "an indicator is of a value"
    # Off 0 and 1 by a deviation: a share there would leave the indicator without a scale.
    least = min(counts.deviation / units, 0.5)
    share = min(max(counts.counts[feature.code] / units, least), 1 - least)
    (scale,) = indicator_scales(np.array([share]), features)
    return (share - feature.centre) / feature.scale, float(scale) / feature.scale


def _look(released: ReleasedDescription, place: int) -> Look | None:
    return next((one for one in released.answers.looks if one.column == place), None)


def _frequencies(released: ReleasedDescription, place: int) -> Counts | None:
    found = released.answers.of("frequencies")
    return next((one for one in found if one.partition.axes[0].column == place), None)
