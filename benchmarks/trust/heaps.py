"""Cells of columns that are mostly one value, and plain ones: do predictions of a small budget beat the base rate?"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.trust.jobs import TERMS, trained
from core.data.columns import BinaryColumn, Column, IntegerColumn, NumberColumn
from core.inference.estimate import Estimate
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.facts import Adjacency

Array = NDArray[np.float64]
FRESH_ROWS: Final = 8000
FRESH_SEED: Final = 77
SMALL: Final = (-5.0, 5.0)


@dataclass(frozen=True)
class HeapedCell:
    """A logistic law on columns; `draw` returns declared values, shape (rows, columns)."""

    draw: Callable[[np.random.Generator, int], Array]
    slopes: tuple[float, ...]
    intercept: float
    bounds: tuple[tuple[float, float], ...]
    integers: bool = False

    def predictor(self, values: Array) -> Array:
        """Return the true predictors of rows, shape (rows,)."""
        found: Array = self.intercept + values @ np.array(self.slopes)
        return found


def likert(draws: np.random.Generator, rows: int) -> Array:
    """Return items of one to five: five ordinary ones, one with a ceiling, two with a floor."""
    common = draws.normal(size=rows)
    cuts = [(-1.5, -0.5, 0.5, 1.5)] * 5 + [(-2.6, -2.3, -2.0, -1.4)] + [(1.2, 1.6, 2.0, 2.5)] * 2
    own = [0.75 * common + 0.66 * draws.normal(size=rows) for _ in cuts]
    columns = [1.0 + (one[:, None] > np.array(each)).sum(axis=1) for one, each in zip(own, cuts, strict=True)]
    return np.column_stack(columns)


def score(draws: np.random.Generator, rows: int) -> Array:
    """Return a score that is at its top in 97 % of rows, and three normal columns."""
    top = np.where(draws.random(rows) < 0.97, 5.0, draws.choice([1.0, 2.0, 3.0, 4.0], rows))
    return np.column_stack([top, draws.normal(size=(rows, 3))])


def amounts(draws: np.random.Generator, rows: int) -> Array:
    """Return an amount that is zero in 94 % of rows, and two normal columns."""
    paid = np.where(draws.random(rows) < 0.94, 0.0, np.exp(draws.normal(3.5, 0.8, rows)))
    return np.column_stack([paid, draws.normal(size=(rows, 2))])


def plain(columns: int) -> HeapedCell:
    """Return a cell of independent normal columns."""
    slopes = tuple(0.4 * np.resize((1.0, -1.0, 0.5, 0.0), columns))
    return HeapedCell(lambda draws, rows: draws.normal(size=(rows, columns)), slopes, -0.5, (SMALL,) * columns)


LIKERT_SLOPES: Final = (0.3, -0.2, 0.2, 0.0, 0.0, 0.3, 0.2, 0.0)
HEAPED: Final = {
    "likert": HeapedCell(likert, LIKERT_SLOPES, -2.61, ((1.0, 5.0),) * 8, integers=True),
    "score": HeapedCell(score, (0.3, 0.4, 0.0, 0.0), -1.8, ((1.0, 5.0), SMALL, SMALL, SMALL)),
    "amounts": HeapedCell(amounts, (0.004, 0.4, 0.0), -0.5, ((0.0, 20_000.0), SMALL, SMALL)),
}


def heaped_job(cell: HeapedCell, units: int, mu: float, seed: tuple[int, ...]) -> tuple[PlannedJob, Estimate]:
    """Draw a data set and run its job at a real oracle; the noise is the system's own, as a job's is."""
    draws = np.random.default_rng(seed)
    values = cell.draw(draws, units)
    target = (draws.random(units) < expit(cell.predictor(values))).astype(float)
    features: list[Column] = [
        IntegerColumn(name=f"x{place}", lower=round(lower), upper=round(upper))
        if cell.integers
        else NumberColumn(name=f"x{place}", lower=lower, upper=upper)
        for place, (lower, upper) in enumerate(cell.bounds, 1)
    ]
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_" + "0" * 26,
            "model": {"kind": "logistic", "target": "y"},
            "optimizer": {"kind": "whitened_newton"},
            "privacy": {"mu": Decimal(str(mu))},
        }
    )
    columns = (*features, BinaryColumn(name="y", values=("no", "yes")))
    plan = plan_job(spec, columns=columns, units=units, adjacency=Adjacency.ZERO_OUT, terms=TERMS)
    return plan, trained(plan, encoded_rows_of(plan, cell, values), target)


def encoded_rows_of(plan: PlannedJob, cell: HeapedCell, values: Array) -> Array:
    """Return rows as a model takes them, cut to their bounds, shape (rows, p)."""
    cut = np.clip(values, *np.array(cell.bounds).T)
    features = np.empty((len(values), plan.design.dimension))
    plan.design.encode_columns({f"x{place}": cut[:, place - 1] for place in range(1, cut.shape[1] + 1)}, features)
    return features


def fresh(cell: HeapedCell) -> tuple[Array, Array]:
    """Return rows that no job read, with the true chance of each."""
    values = cell.draw(np.random.default_rng(FRESH_SEED), FRESH_ROWS)
    return values, expit(cell.predictor(values))


def log_loss(chances: Array, truth: Array) -> float:
    """Return the expected log loss of predicted chances where the true ones are known, less that of the base rate."""
    rate, inner = float(truth.mean()), np.clip(chances, 1e-300, 1 - 1e-16)
    base = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    return float(-np.mean(truth * np.log(inner) + (1 - truth) * np.log1p(-inner)) - base)
