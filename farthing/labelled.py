"""Labelled figures: pandas objects where pandas is installed, else plain dicts that are read by the same keys.

A Series stands for a dict from label to number, a DataFrame for a dict from column to such a dict. `params["age"]` and
`cov_params()["age"]["bmi"]` read alike with pandas and without.
"""

from collections.abc import Hashable, Mapping, Sequence
from math import nan
from typing import Any

from farthing.extras import installed


def series(labels: Sequence[Hashable], values: Sequence[float | None]) -> Any:  # noqa: ANN401 - pandas may be absent
    """Return one number a label; NaN where there is none."""
    numbers = [nan if value is None else float(value) for value in values]
    pandas = installed("pandas")
    if pandas is None:
        return dict(zip(labels, numbers, strict=True))
    return pandas.Series(numbers, index=pandas.Index(list(labels)), dtype="float64")


def table(labels: Sequence[Hashable], columns: Mapping[Hashable, Sequence[float | None]]) -> Any:  # noqa: ANN401 - as above
    """Return columns of numbers, each with one number a label; NaN where there is none."""
    pandas = installed("pandas")
    found = {name: series(labels, values) for name, values in columns.items()}
    # The index is given, since a table without columns has it too.
    return found if pandas is None else pandas.DataFrame(found, index=pandas.Index(list(labels)), columns=list(columns))
