"""Populations of the data sets that ship with scikit-learn, and of the bank's, declared as those of statsmodels."""

import csv
import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.trust.population import PERCENT, TWO, YEARS, Bounds, Population, made

BANK: Final = Path(__file__).parents[2] / "examples" / "data" / "bank-full.csv.gz"


def _sklearn(name: str) -> Any:  # noqa: ANN401 - a table of its own kind
    import sklearn.datasets  # noqa: PLC0415 - takes a second

    return getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame


TUMOUR: Final = {
    "mean texture": PERCENT,
    "mean smoothness": TWO,
    "mean symmetry": TWO,
    "mean fractal dimension": TWO,
    "texture error": (0.0, 10.0),
}
TUMOUR_SIZE: Final = {"mean radius": PERCENT, "mean area": (0.0, 10_000.0), "mean perimeter": (0.0, 1000.0)}
PATIENT: Final = dict.fromkeys(("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"), (-1.0, 1.0))
FLOWER: Final = {
    "sepal length (cm)": (0.0, 20.0),
    "sepal width (cm)": (0.0, 20.0),
    "petal length (cm)": (0.0, 20.0),
}
DRINK: Final = {
    "alcohol": (0.0, 20.0),
    "malic_acid": (0.0, 10.0),
    "ash": (0.0, 10.0),
    "alcalinity_of_ash": PERCENT,
    "magnesium": (0.0, 1000.0),
    "total_phenols": (0.0, 10.0),
    "hue": (0.0, 5.0),
}
BANK_NUMBERS: Final[dict[str, Bounds]] = {
    "age": YEARS,
    "balance": (-200_000.0, 200_000.0),
    "duration": (0.0, 10_000.0),
    "campaign": PERCENT,
    "pdays": (-1.0, 1000.0),
    "previous": (0.0, 1000.0),
}


def _tumour() -> Population:
    table = _sklearn("breast_cancer")
    return made("logistic", table, (table["target"], TWO), TUMOUR)


def _tumour_size() -> Population:
    table = _sklearn("breast_cancer")
    return made("logistic", table, (table["target"], TWO), TUMOUR | TUMOUR_SIZE)


def _patients() -> Population:
    table = _sklearn("diabetes")
    return made("linear", table, (table["target"], (0.0, 1000.0)), PATIENT)


def _flowers() -> Population:
    table = _sklearn("iris")
    return made("logistic", table, (table["target"] == 1, TWO), FLOWER)


def _petals() -> Population:
    table = _sklearn("iris")
    return made("linear", table, (table["petal width (cm)"], (0.0, 20.0)), FLOWER)


def _wine() -> Population:
    table = _sklearn("wine")
    return made("logistic", table, (table["target"] == 1, TWO), DRINK)


def _digits() -> Population:
    table = _sklearn("digits")
    pixels = table.drop(columns="target").to_numpy().reshape(-1, 8, 8)
    columns = {f"row {row}": pixels[:, row].sum(1) for row in range(8)}
    return made("logistic", columns, (table["target"] >= 5, TWO), dict.fromkeys(columns, (0.0, 128.0)))


@cache
def _bank_table() -> dict[str, NDArray[Any]]:
    with gzip.open(BANK, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _bank_numbers() -> Population:
    table = _bank_table()
    return made("logistic", table, (table["y"] == "yes", TWO), BANK_NUMBERS, units=8000)


def _bank() -> Population:
    table = _bank_table()
    numbers = BANK_NUMBERS | {"day": (0.0, 40.0)}
    columns: dict[str, NDArray[Any]] = {name: table[name] for name in numbers}
    for name, cells in table.items():
        if name not in numbers and name != "y":
            columns |= {f"{name}[{value}]": cells == value for value in sorted(set(cells))[1:]}
    ranges = {name: numbers.get(name, TWO) for name in columns}
    return made("logistic", columns, (table["y"] == "yes", TWO), ranges, units=45_211)


OTHERS: Final[dict[str, Callable[[], Population]]] = {
    "sklearn breast_cancer, texture": _tumour,
    "sklearn breast_cancer, size too": _tumour_size,
    "sklearn diabetes": _patients,
    "sklearn iris, versicolor": _flowers,
    "sklearn iris, petals": _petals,
    "sklearn wine": _wine,
    "sklearn digits": _digits,
    "bank, six numbers": _bank_numbers,
    "bank, all columns": _bank,
}
