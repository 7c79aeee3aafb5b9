"""A released model as a file that predicts without the service: the same bytes on each machine.

Its coefficients are the plain predictor; the service's predictions are shrunk (`core.inference.predictor`).
Certificates name a digest of the whole file. Coefficients and covariance in declared units are worked out here with
exactly rounded sums, in place of a library's, whose last digits depend on the processor.
"""

from collections.abc import Mapping
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from core.inference.network import read_released
from core.inference.released import Released, residual_scale

Rows = list[list[tuple[int, float]]]
"""Of a matrix, the places and values of what is not zero, by row."""


def export_of(row: Mapping[str, Any], model: str, job: str) -> dict[str, Any]:
    """Return a model as JSON, under the names of the model and its job.

    Args:
        row: the stored release. It is exported as it is: certificates of earlier versions name its digest.
        model: its identifier.
        job: the identifier of its job.
    """
    made: dict[str, Any] = {"format": "farthing-model", "version": 1, "model": model, "job": job, "released": {**row}}
    released = read_released(row)
    if not isinstance(released, Released):
        return made
    one, start = released.design.to_declared()
    blocks = len(released.levels) or 1
    matrix, offset = _rows(block_diag(*[one] * blocks)), np.tile(start, blocks).tolist()
    encoded = np.asarray(released.coefficients, dtype=np.float64).tolist()
    estimate = [
        fsum([*(value * encoded[at] for at, value in row), more]) for row, more in zip(matrix, offset, strict=True)
    ]
    scale = residual_scale(released)
    return made | {
        "coefficients": dict(zip(released.names, estimate, strict=True)),
        "covariance": None if released.covariance is None else _covariance(matrix, released.covariance),
        "scale": None if scale is None else scale.model_dump(),
    }


def _rows(matrix: NDArray[np.float64]) -> Rows:
    return [[(at, value) for at, value in enumerate(row) if value] for row in matrix.tolist()]


def _covariance(matrix: Rows, encoded: Any) -> list[list[float]]:  # noqa: ANN401 - a square of numbers
    """Return A V A.T for a matrix A of few values, and V the first rows and columns of a square."""
    size = len(matrix)
    half = [[fsum(value * encoded[at][column] for at, value in row) for column in range(size)] for row in matrix]
    return [[fsum(value * one[at] for at, value in row) for row in matrix] for one in half]
