"""The least eigenvalue of integer matrices: within its proven error, and no routine is taken at its word."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.mechanisms.enclosure import eigenvalue_error, least_eigenvalue


def symmetric(dimension: int, seed: int, size: float, rank: int | None = None) -> np.ndarray:
    draws = np.random.default_rng(seed)
    factor = draws.standard_normal((dimension, rank or dimension))
    signs = np.where(draws.random(rank or dimension) < 0.5, -1.0, 1.0)
    found = np.rint((factor * signs) @ factor.T * size).astype(np.int64)
    return np.triu(found) + np.triu(found, 1).T


def all_above(matrix: np.ndarray, bound: int) -> bool:
    """Say whether all eigenvalues are above a bound, in exact arithmetic: all pivots are positive."""
    left = [[Fraction(int(one)) for one in row] for row in matrix - bound * np.eye(len(matrix), dtype=np.int64)]
    for place in range(len(left)):
        if left[place][place] <= 0:
            return False
        for row in range(place + 1, len(left)):
            part = left[row][place] / left[place][place]
            left[row] = [one - part * other for one, other in zip(left[row], left[place], strict=True)]
    return True


def is_within(matrix: np.ndarray, found: int, error: int) -> bool:
    return all_above(matrix, found - error - 1) and not all_above(matrix, found + error)


@given(st.integers(1, 7), st.integers(0, 10**6), st.floats(1, 1e12), st.integers(1, 3))
def test_it_is_within_the_error_that_is_charged(dimension: int, seed: int, size: float, rank: int) -> None:
    matrix = symmetric(dimension, seed, size, min(rank, dimension))
    cap = float(np.abs(matrix).sum()) + 1
    assert is_within(matrix, least_eigenvalue(matrix, cap), eigenvalue_error(dimension, cap))


def test_repeated_and_zero_eigenvalues_pass() -> None:
    for matrix in (np.zeros((5, 5), dtype=np.int64), np.eye(5, dtype=np.int64) * 7, -np.eye(4, dtype=np.int64)):
        assert is_within(matrix, least_eigenvalue(matrix, 10.0), 1)


def test_the_error_is_small_beside_one_unit_of_many() -> None:
    """A million units in a hundred dimensions: a unit moves an eigenvalue by 2^21 steps, of which this is 10^-4."""
    assert eigenvalue_error(100, 2.0**21 * 1e6) < 1e-4 * 2**21


@given(st.integers(1, 2000), st.floats(1, 2.0**50))
def test_the_error_has_room_for_the_routine_and_for_rounding_down(dimension: int, cap: float) -> None:
    tolerance = 8 * (dimension + 4) ** 2 * Fraction(cap) / 2**53
    assert Fraction(3, 2) * tolerance + 1 <= eigenvalue_error(dimension, cap) <= Fraction(3, 2) * tolerance * 2 + 2


@pytest.mark.parametrize("moved", [-1e-6, 1e-6])
def test_a_routine_that_errs_by_more_stops_the_job(moved: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: eigenvalues off by a millionth of the largest, to either side."""
    matrix, genuine = symmetric(20, 1, 1e9), np.linalg.eigh

    def wrong(given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = genuine(given)
        return values + moved * np.abs(values).max(), vectors

    cap = float(np.linalg.norm(matrix.astype(float)))
    least_eigenvalue(matrix, cap)
    monkeypatch.setattr(np.linalg, "eigh", wrong)
    with pytest.raises(AssertionError, match="no eigenvalue"):
        least_eigenvalue(matrix, cap)


def test_matrices_are_symmetric_and_within_their_cap() -> None:
    with pytest.raises(AssertionError, match="symmetric"):
        least_eigenvalue(np.array([[1, 2], [3, 4]]), 10.0)
    with pytest.raises(AssertionError, match="cap"):
        least_eigenvalue(np.array([[11]]), 10.0)
    with pytest.raises(AssertionError, match="exactly"):
        least_eigenvalue(np.array([[1]]), 2.0**53)
