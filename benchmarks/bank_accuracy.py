"""Accuracy on the bank data through core: coverage of the non-private estimates and width of the private intervals.

`python -m benchmarks.bank_accuracy [jobs]` runs that many jobs (20 by default) at mu = 1 under zero_out with planned
settings, and one at mu = 1000, against an independent Newton fit of the same weighted loss.
"""

import csv
import gzip
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from core.data.columns import BinaryColumn, CategoryColumn, Column, NumberColumn
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import fit_and_infer
from core.models.modelling import encoded_loss
from core.oracle.simulation import Simulation
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.facts import Adjacency
from core.queries.sums.linear import LinearProblem

Array = NDArray[np.float64]
PATH = Path(__file__).parents[1] / "examples" / "data" / "bank-full.csv.gz"
BOUNDS = {
    "age": (18, 95),
    "balance": (-8019, 102127),
    "day": (1, 31),
    "duration": (0, 5000),
    "campaign": (1, 63),
    "pdays": (-1, 871),
    "previous": (0, 275),
}
GENEROUS = BOUNDS | {"age": (0, 120), "balance": (-20_000, 200_000), "duration": (0, 7200), "campaign": (0, 100)}
TIGHT = BOUNDS | {
    "age": (18, 80),
    "balance": (-2000, 10_000),
    "duration": (0, 1500),
    "campaign": (1, 15),
    "pdays": (-1, 400),
    "previous": (0, 15),
}
RARE_FIRST = {"month": "jan", "job": "unknown"}
"""Baselines that few records have: every coefficient of these columns is a contrast with one of them."""
CENTRES = {"age": 40, "balance": 1000, "day": 16, "duration": 200, "campaign": 2, "pdays": -1, "previous": 0}
KEY = {"age", "duration", "campaign", "housing", "loan", "marital"}


@dataclass(frozen=True)
class Accuracy:
    """Per coefficient, in declared units: shares of jobs that cover, median width ratios; and the worst error."""

    names: tuple[str, ...]
    coverage: Array
    ratio: Array
    errors: Array

    @property
    def key(self) -> NDArray[np.bool_]:
        """Which coefficients are those of KEY."""
        return np.array([name.split("[")[0] in KEY for name in self.names])


def read() -> dict[str, list[str]]:
    """Return the file's columns."""
    with gzip.open(PATH, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def declare(
    data: dict[str, list[str]],
    bounds: dict[str, tuple[int, int]] = BOUNDS,
    centres: dict[str, int] | None = None,
    first: dict[str, str] | None = None,
) -> tuple[Column, ...]:
    """Return what an owner would declare; `first` names other baselines than the alphabetically first values."""
    columns: list[Column] = []
    for name, cells in data.items():
        baseline = (first or {}).get(name)
        values = () if name in bounds else tuple(sorted(set(cells), key=lambda value: (value != baseline, value)))
        if name in bounds:
            lower, upper = bounds[name]
            columns.append(NumberColumn(name=name, lower=lower, upper=upper, centre=(centres or {}).get(name)))
        elif values == ("no", "yes"):
            columns.append(BinaryColumn(name=name, values=("no", "yes")))
        else:
            columns.append(CategoryColumn(name=name, values=values))
    return tuple(columns)


def plan(columns: Sequence[Column], units: int, mu: str, optimizer: str = "noisy_newton") -> PlannedJob:
    """Plan a logistic regression of y on all other columns."""
    body = {
        "model": {"kind": "logistic", "target": "y"},
        "optimizer": {"kind": optimizer},
        "inference": {"accept_unchecked": True},
        "privacy": {"mu": mu},
    }
    terms = plan_orders(Decimal(3), Decimal("1e-6"))
    return plan_job(
        JobSpec.model_validate(body), columns=columns, units=units, adjacency=Adjacency.ZERO_OUT, terms=terms
    )


def encode(planned: PlannedJob, data: dict[str, list[str]]) -> tuple[Array, Array]:
    """Return features, shape (n, p), and the target."""
    values: dict[str, NDArray[np.generic]] = {}
    for column in planned.design.columns:
        cells = data[column.name]
        if isinstance(column, NumberColumn):
            values[column.name] = np.clip(np.array(cells, dtype=float), column.lower, column.upper)
        else:
            assert isinstance(column, BinaryColumn | CategoryColumn)
            codes = {value: code for code, value in enumerate(column.values)}
            values[column.name] = np.array([codes[cell] for cell in cells])
    features = np.empty((len(data["y"]), planned.design.dimension))
    planned.design.encode_columns(values, features)
    return features, (np.array(data["y"]) == "yes").astype(float)


def reference(features: Array, target: Array, weight_bound: float) -> tuple[Array, Array]:
    """Return the minimiser of the weighted loss and its sandwich covariance, by Newton's method in numpy alone."""
    weights = np.minimum(1.0, weight_bound**2 / (features**2).sum(1))
    theta = np.zeros(features.shape[1])
    for _ in range(50):
        probability = expit(features @ theta)
        hessian = (features * (weights * probability * (1 - probability))[:, None]).T @ features
        step = np.linalg.solve(hessian, features.T @ (weights * (probability - target)))
        theta -= step
        if np.abs(step).max() < 1e-12:
            break
    scores = features * (weights * (expit(features @ theta) - target))[:, None]
    inverse = np.linalg.inv(hessian)
    return theta, inverse @ scores.T @ scores @ inverse


def study(planned: PlannedJob, data: dict[str, list[str]], jobs: int, seed: int = 0) -> Accuracy:
    """Run `jobs` jobs with seeds from `seed` on and compare each with the reference."""
    features, target = encode(planned, data)
    model = planned.spec.model
    assert model.kind == "logistic"
    assert model.weights.bound is not None
    best, covariance = reference(features, target, model.weights.bound)
    matrix, offset = planned.design.to_declared()
    truth, errors_of_truth = matrix @ best + offset, np.sqrt(np.diag(matrix @ covariance @ matrix.T))
    present = torch.ones(len(target), dtype=torch.bool)
    problem = LinearProblem(
        torch.from_numpy(features),
        torch.from_numpy(target),
        present,
        encoded_loss(model, planned.design),
        model.weights,
    )
    shifts = torch.from_numpy(planned.design.baseline_shifts())
    errors, ratios = [], []
    for job in range(jobs):
        oracle = Simulation(problem, planned.facts, SimulationGenerator(seed + job))
        fitted = fit_and_infer(planned.spec.optimizer, planned.spec.inference, oracle, shifts).value
        assert fitted.sandwich is not None
        errors.append(matrix @ fitted.estimate.theta.numpy() + offset - truth)
        ratios.append(np.sqrt(np.diag(matrix @ fitted.sandwich.covariance.numpy() @ matrix.T)) / errors_of_truth)
    standard = np.array(errors) / (np.array(ratios) * errors_of_truth)
    return Accuracy(
        names=planned.design.names,
        coverage=(np.abs(standard) <= norm.ppf(0.975)).mean(0),
        ratio=np.median(np.array(ratios), 0),
        errors=np.abs(np.array(errors)).max(0) / errors_of_truth,
    )


def main(jobs: int) -> None:
    """Print the tables."""
    data = read()
    units = len(data["y"])
    for label, bounds, centres, first in (
        ("exact bounds", BOUNDS, None, None),
        ("exact bounds, rare baselines", BOUNDS, None, RARE_FIRST),
        ("exact bounds, declared centres", BOUNDS, CENTRES, None),
        ("tight bounds", TIGHT, None, None),
        ("generous bounds", GENEROUS, None, None),
        ("generous bounds, declared centres", GENEROUS, CENTRES, None),
    ):
        seen = study(plan(declare(data, bounds, centres, first), units, "1"), data, jobs)
        print(f"\n{label}, mu = 1, {jobs} jobs: coverage, median width ratio to the non-private interval")
        print(f"  key coefficients {seen.coverage[seen.key].mean():.3f}  {np.median(seen.ratio[seen.key]):.2f}")
        print(f"  all coefficients {seen.coverage.mean():.3f}  {np.median(seen.ratio):.2f}")
        least, widest = int(seen.coverage.argmin()), int(seen.ratio.argmax())
        print(f"  covered least: {seen.names[least]} {seen.coverage[least]:.2f};", end=" ")
        print(f"widest: {seen.names[widest]} {seen.ratio[widest]:.1f}")
        if bounds is BOUNDS and centres is None and first is None:
            for name, covered, ratio in zip(seen.names, seen.coverage, seen.ratio, strict=True):
                print(f"    {name:24s} {covered:5.2f} {ratio:8.2f}")
    loud = study(plan(declare(data), units, "1000"), data, 1)
    print(f"\nmu = 1000: largest error {loud.errors.max():.4f} non-private standard errors")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
