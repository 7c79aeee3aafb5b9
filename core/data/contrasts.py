"""Orthonormal contrasts of classes: K predictors that add up to zero, by K - 1 coordinates.

Helmert's contrasts, scaled to length 1. Probabilities are those of any K predictors that differ from these by one
number, so nothing is lost. Every class is treated alike; coordinates against a baseline would put that class's errors
into all others.
"""

from math import sqrt

Rows = tuple[tuple[float, ...], ...]


def contrast_rows(classes: int) -> Rows:
    """Return U by rows, shape (K, K - 1): U'U = I, and each column adds up to zero."""
    lengths = [sqrt(column * (column + 1)) for column in range(1, classes)]

    def entry(row: int, column: int) -> float:
        if row > column:
            return 0.0
        return (column if row == column else -1) / lengths[column - 1]

    return tuple(tuple(entry(row, column) for column in range(1, classes)) for row in range(classes))
