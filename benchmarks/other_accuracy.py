"""Accuracy on data that the plans were not tuned on: two surveys that statsmodels carries, and skewed columns.

`python -m benchmarks.other_accuracy [jobs]` runs that many jobs (20 by default) on each at mu = 1 under zero_out with
planned settings, against the same independent fit as `benchmarks.bank_accuracy`.
"""

import sys
from collections.abc import Callable

import numpy as np
import statsmodels.api as sm
from numpy.typing import NDArray

from benchmarks.bank_accuracy import Accuracy, plan, study
from core.data.columns import BinaryColumn, Column, NumberColumn

Data = dict[str, list[str]]
Bounds = dict[str, tuple[float, float]]
FAIR: Bounds = {
    "rate_marriage": (1, 5),
    "age": (15, 50),
    "yrs_married": (0, 30),
    "children": (0, 6),
    "religious": (1, 4),
    "educ": (8, 22),
    "occupation": (1, 6),
    "occupation_husb": (1, 6),
}
RANDHIE: Bounds = {
    "lncoins": (0, 5),
    "idp": (0, 1),
    "lpi": (0, 8),
    "fmde": (0, 9),
    "physlm": (0, 1),
    "disea": (0, 60),
    "hlthg": (0, 1),
    "hlthf": (0, 1),
    "hlthp": (0, 1),
}


def table(values: dict[str, NDArray[np.float64]], target: NDArray[np.bool_]) -> Data:
    """Return columns as an upload has them."""
    data = {name: [f"{value:.17g}" for value in column] for name, column in values.items()}
    return data | {"y": ["yes" if one else "no" for one in target]}


def declared(bounds: Bounds) -> tuple[Column, ...]:
    """Return what an owner would declare of numbers and the target."""
    numbers = [NumberColumn(name=name, lower=lower, upper=upper) for name, (lower, upper) in bounds.items()]
    return (*numbers, BinaryColumn(name="y", values=("no", "yes")))


def fair() -> tuple[Data, Bounds]:
    """Affairs, 6,366 answers: whether there was any."""
    frame = sm.datasets.fair.load_pandas().data
    values = {name: frame[name].to_numpy(float) for name in FAIR}
    return table(values, frame["affairs"].to_numpy() > 0), FAIR


def randhie() -> tuple[Data, Bounds]:
    """Visits to a doctor, 20,190 answers: whether there was any."""
    frame = sm.datasets.randhie.load_pandas().data
    values = {name: frame[name].to_numpy(float) for name in RANDHIE}
    return table(values, frame["mdvis"].to_numpy() > 0), RANDHIE


def skewed(units: int, columns: int, seed: int) -> tuple[Data, Bounds]:
    """Correlated columns: a third log-normal, bounds up to five times too wide, a third normal, a third indicators."""
    draws = np.random.default_rng(seed)
    mixing = np.eye(columns) + 0.5 * draws.standard_normal((columns, columns))
    latent = draws.standard_normal((units, columns)) @ mixing.T
    latent /= latent.std(0)
    values: dict[str, NDArray[np.float64]] = {}
    bounds: Bounds = {}
    for index, column in enumerate(latent.T):
        name = f"x{index + 1}"
        if index % 3 == 0:
            skew = np.exp(0.8 * column)
            values[name], bounds[name] = skew, (0.0, float(np.quantile(skew, 0.999)) * (1.5 if index % 2 else 5.0))
        elif index % 3 == 1:
            values[name], bounds[name] = column, (-4.0, 4.0)
        else:
            values[name], bounds[name] = (column > 1).astype(float), (0.0, 1.0)
    slopes = draws.standard_normal(columns) / np.array([column.std() for column in values.values()]) / 3
    margin = np.column_stack(list(values.values())) @ slopes
    chance = 1 / (1 + np.exp(1.0 + margin.mean() - margin))
    return table(values, draws.random(units) < chance), bounds


DATA: dict[str, Callable[[], tuple[Data, Bounds]]] = {
    "fair": fair,
    "randhie": randhie,
    "skewed, 20,000 x 15": lambda: skewed(20_000, 15, seed=1),
    "skewed, 60,000 x 30": lambda: skewed(60_000, 30, seed=2),
}


def line(label: str, seen: Accuracy) -> str:
    """Return a data set's line."""
    least, widest = int(seen.coverage.argmin()), int(seen.ratio.argmax())
    return (
        f"{label:20s} coverage {seen.coverage.mean():.3f}, median ratio {np.median(seen.ratio):.2f}; covered least: "
        f"{seen.names[least]} {seen.coverage[least]:.2f}; widest: {seen.names[widest]} {seen.ratio[widest]:.1f}"
    )


def main(jobs: int) -> None:
    """Print a line for each data set."""
    for label, read in DATA.items():
        data, bounds = read()
        print(line(label, study(plan(declared(bounds), len(data["y"]), "1"), data, jobs)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
