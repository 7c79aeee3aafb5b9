"""A data set whose records jobs draw with replacement, with the question asked of it and the declarations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.trust.shapes import Array, DataSet, Kind

Bounds = tuple[float, float]
TWO: Final[Bounds] = (0.0, 1.0)
PERCENT: Final[Bounds] = (0.0, 100.0)
YEARS: Final[Bounds] = (0.0, 120.0)


@dataclass(frozen=True)
class Population:
    """All records of a data set, what is asked of them, and what is declared."""

    kind: Kind
    features: Array
    target: Array
    bounds: tuple[Bounds, ...]
    two_valued: tuple[bool, ...]
    target_bounds: Bounds
    names: tuple[str, ...]
    units: int
    """Drawn for a job."""

    @property
    def dimension(self) -> int:
        """Coefficients, the intercept among them."""
        return 1 + len(self.bounds)

    def sample(self, draws: np.random.Generator, units: int) -> DataSet:
        """Return records drawn with replacement."""
        rows = draws.integers(0, len(self.target), units)
        return DataSet(
            self.features[rows], self.target[rows], self.bounds, self.two_valued, self.target_bounds, truth=None
        )


def made(
    kind: Kind,
    table: Mapping[str, Any],
    target: tuple[NDArray[Any], Bounds],
    columns: dict[str, Bounds],
    units: int = 4000,
) -> Population:
    """Return a population of a table's columns; those declared from 0 to 1 with only these values have two values."""
    values = np.column_stack([np.asarray(table[name], dtype=float) for name in columns])
    two = tuple(
        bounds == TWO and set(np.unique(values[:, place])) <= {0.0, 1.0}
        for place, bounds in enumerate(columns.values())
    )
    outcome = np.asarray(target[0], dtype=float)
    whole = np.isfinite(values).all(1) & np.isfinite(outcome)
    return Population(
        kind, values[whole], outcome[whole], tuple(columns.values()), two, target[1], tuple(columns), units
    )
