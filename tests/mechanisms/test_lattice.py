"""The lattice: integer norms that no row can pass, rows left alone, and the error bound of float sums."""

from fractions import Fraction
from math import isqrt, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from core.mechanisms.lattice import (
    CHARGED_MARGIN,
    Grid,
    bounded_error_grid,
    from_grid,
    integer_norm,
    matrix_grid,
    round_parts,
    vector_grid,
)
from core.privacy.facts import PART_UNITS, Adjacency

ODD = [0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 5e-324, 1e-300, 1e200, 0.70710678118654757]
ANY_ROWS = arrays.arrays(np.float64, (3, 4), elements=st.one_of(st.floats(), st.sampled_from(ODD)))
CLIPS = st.sampled_from([1.0, 1.9021172, 0.1, 3e-7, 1e6, 1e300, 1e-300])


def in_steps(total: NDArray[np.float64], grid: Grid) -> NDArray[np.int64]:
    """One part, as a problem rounds it, and then the oracle."""
    return round_parts(np.rint(total / grid.part_step).astype(np.int64), grid)


def norm_squared(row: NDArray[np.int64]) -> int:
    return sum(int(value) ** 2 for value in row)


def exact_norm_squared(row: NDArray[np.float64]) -> Fraction:
    return sum((Fraction(float(value)) ** 2 for value in row), Fraction(0))


def float_error(terms: NDArray[np.float64], weights: NDArray[np.float64], total: NDArray[np.float64]) -> Fraction:
    """Return the squared l2 distance of a float sum from the exact sum of weights * terms."""
    distance = Fraction(0)
    for column, value in zip(terms.T, total, strict=True):
        exact = sum(
            (Fraction(float(w)) * Fraction(float(x)) for w, x in zip(weights, column, strict=True)), Fraction(0)
        )
        distance += (Fraction(float(value)) - exact) ** 2
    return distance


def unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))


class TestBoundedError:
    @pytest.mark.parametrize("order", ["gemv", "loop", "reversed", "chunks"])
    @pytest.mark.parametrize("kind", ["random", "cancelling", "mixed sizes"])
    def test_float_sums_err_by_at_most_the_bound(self, kind: str, order: str) -> None:
        draws = np.random.default_rng(4)
        units, dimension = 2000, 5
        terms = unit_rows(draws.normal(size=(units, dimension)))
        weights = draws.uniform(-1, 1, size=units)
        if kind == "cancelling":
            terms[1::2], weights[1::2] = terms[::2], -weights[::2] * (1 - 1e-15)
        if kind == "mixed sizes":
            weights *= 10.0 ** draws.uniform(-18, 0, size=units)
        if order == "gemv":
            total = terms.T @ weights
        elif order == "chunks":
            total = sum((terms[at : at + 64].T @ weights[at : at + 64] for at in range(0, units, 64)), np.zeros(5))
        else:
            total = np.zeros(dimension)
            for at in range(units)[:: 1 if order == "loop" else -1]:
                total = total + weights[at] * terms[at]
        error = bounded_error_grid(1.0, units, dimension, 1.0).error
        assert float_error(terms, weights, total) <= Fraction(error) ** 2

    @pytest.mark.parametrize("parts", [1, 2, 5])
    def test_the_worst_order_comes_near_the_bound_in_kind(self, parts: int) -> None:
        """Equal terms added one by one lose the same way each time; a bound without the factor m would fail here."""
        units, term = parts * PART_UNITS, 1 / 3
        total = 0.0
        for _ in range(PART_UNITS):
            total += term
        grid = bounded_error_grid(term, units, 1, 1.0)
        summed = parts * round(total / grid.part_step) * Fraction(grid.part_step)
        lost = abs(summed - units * Fraction(term))
        assert lost <= Fraction(grid.error)
        assert lost > Fraction(grid.error) / PART_UNITS * 4

    def test_longer_parts_would_pass_the_bound(self) -> None:
        """Planted bug: all rows in one float sum, where the lattice charges for parts."""
        terms = np.full(2**21, 1 / 3)
        lost = abs(Fraction(float(np.add.accumulate(terms)[-1])) - 2**21 * Fraction(1 / 3))
        assert lost > Fraction(bounded_error_grid(1 / 3, 2**21, 1, 1.0).error)

    @pytest.mark.parametrize("units", [10, PART_UNITS, 45_211, 10**6, 2 * 10**7, 10**9])
    @pytest.mark.parametrize("coordinates", [1, 1485, 2_001_000])
    def test_inflation_is_what_the_theory_says(self, units: int, coordinates: int) -> None:
        """Far below a thousandth up to 2e7 rows, and in closed form."""
        grid = bounded_error_grid(1.0, units, coordinates, 1.0)
        parts, rows = -(-units // PART_UNITS), min(units, PART_UNITS)
        error = (rows + 2) * 2.0**-53 * units * CHARGED_MARGIN + parts * sqrt(coordinates) * grid.part_step / 2
        assert grid.error == pytest.approx(error, rel=1e-9)
        exact = CHARGED_MARGIN + 2 * error + sqrt(coordinates) * grid.step
        assert exact <= grid.sensitivity * grid.step <= exact + 2 * grid.step
        if units <= 2 * 10**7:
            assert 2 * grid.error < 2e-4

    @pytest.mark.parametrize("units", [1, 10**6, 2**38])
    def test_no_sum_of_parts_overflows(self, units: int) -> None:
        grid = vector_grid(1.9021172, units, 30, Adjacency.REPLACE_ONE)
        steps = units * Fraction(1.9021172) * Fraction(CHARGED_MARGIN) / Fraction(grid.part_step)
        assert steps + Fraction(-(-units // PART_UNITS), 2) < 2**62
        assert grid.part_bits == 20 or steps >= 2**60  # and the finer grid is as fine as fits

    @settings(max_examples=200, deadline=None)
    @given(total=st.integers(-(2**61), 2**61), units=st.sampled_from([5, 10**8, 2**38]))
    def test_sums_of_parts_go_to_the_nearest_step(self, total: int, units: int) -> None:
        grid = vector_grid(1.0, units, 1, Adjacency.ZERO_OUT)
        (rounded,) = round_parts(np.array([total], dtype=np.int64), grid).tolist()
        assert abs(rounded * 2**grid.part_bits - total) <= 2 ** (grid.part_bits - 1)

    @settings(max_examples=100, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1), clip=st.sampled_from([1.0, 1.9021172, 1e-5, 777.0]))
    def test_neighbouring_vector_sums_are_within_the_sensitivity(self, seed: int, clip: float) -> None:
        draws = np.random.default_rng(seed)
        rows = unit_rows(draws.normal(size=(40, 3))) * clip
        for adjacency, row in ((Adjacency.ZERO_OUT, np.zeros(3)), (Adjacency.REPLACE_ONE, -rows[0])):
            changed = rows.copy()
            changed[0] = row
            grid = vector_grid(clip, 40, 3, adjacency)
            moved = in_steps(rows.sum(axis=0), grid) - in_steps(changed[::-1].sum(axis=0), grid)
            assert norm_squared(moved) <= grid.sensitivity**2
            assert integer_norm(moved) > 0.99 * grid.sensitivity  # and it is attained

    @settings(max_examples=100, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1), clip=st.sampled_from([1.0, 1.9021172, 1e-5]))
    def test_terms_that_lie_together_move_sums_by_their_diameter(self, seed: int, clip: float) -> None:
        """Terms of norm up to C whose last entry is in [-C, C/2]: up to 1.7 C apart, and excluded rows among them."""
        draws = np.random.default_rng(seed)
        flat, last = sqrt(0.5) * clip, np.array([-0.5, 0.5]) * clip
        diameter = sqrt((2 * flat) ** 2 + (last[1] - last[0]) ** 2)
        directions = unit_rows(draws.normal(size=(40, 2)))
        rows = np.column_stack((directions * flat, draws.choice(last, 40)))
        opposite = np.append(-rows[0, :2], -rows[0, 2])
        for changed_row in (opposite, np.zeros(3)):
            changed = rows.copy()
            changed[0] = changed_row
            grid = vector_grid(clip, 40, 3, Adjacency.REPLACE_ONE, diameter)
            moved = in_steps(rows.sum(axis=0), grid) - in_steps(changed[::-1].sum(axis=0), grid)
            assert norm_squared(moved) <= grid.sensitivity**2
            if changed_row.any():
                assert integer_norm(moved) > 0.99 * grid.sensitivity
                too_near = vector_grid(clip, 40, 3, Adjacency.REPLACE_ONE, 0.98 * diameter)
                assert norm_squared(moved) > too_near.sensitivity**2  # planted: a diameter two per cent too small

    def test_a_diameter_lies_between_one_bound_and_two(self) -> None:
        """Zeroing knows nothing of it; twice the clip is what is charged without it."""
        for diameter in (1.0, 1.5, 2.0):
            assert vector_grid(1.0, 40, 3, Adjacency.ZERO_OUT, diameter) == vector_grid(1.0, 40, 3, Adjacency.ZERO_OUT)
            found = vector_grid(1.0, 40, 3, Adjacency.REPLACE_ONE, diameter)
            assert found == bounded_error_grid(1.0, 40, 3, diameter)
        assert found == vector_grid(1.0, 40, 3, Adjacency.REPLACE_ONE)
        for diameter in (0.0, 0.99, 2.01, float("nan")):
            with pytest.raises(AssertionError, match="apart"):
                vector_grid(1.0, 40, 3, Adjacency.REPLACE_ONE, diameter)

    @settings(max_examples=100, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1), axes=st.booleans(), semidefinite=st.booleans())
    def test_neighbouring_matrix_sums_are_within_the_sensitivity(
        self, seed: int, axes: bool, semidefinite: bool
    ) -> None:
        draws = np.random.default_rng(seed)
        factors = unit_rows(draws.normal(size=(30, 4)))
        other = unit_rows(draws.normal(size=(1, 4)))[0]
        if axes:  # the worst case
            factors[0], other = np.eye(4)[0], np.eye(4)[1] if semidefinite else np.eye(4)[0]
        weights = np.ones(30)
        changed, signs = factors.copy(), weights.copy()
        changed[0] = other
        signs[0] = 1 if semidefinite else -1
        grid = matrix_grid(1.0, 30, 4, Adjacency.REPLACE_ONE, semidefinite=semidefinite)
        before = in_steps(factors.T @ (factors * weights[:, None]), grid)
        after = in_steps(changed.T @ (changed * signs[:, None]), grid)
        moved = (before - after)[np.triu_indices(4)]
        assert norm_squared(moved) <= grid.sensitivity**2
        if axes:
            assert integer_norm(moved) > 0.99 * grid.sensitivity

    def test_matrix_factor_one_would_be_too_small_under_replace_one(self) -> None:
        """The planted bug of the papers: the axes move the sum past the sensitivity that factor 1 claims."""
        grid = matrix_grid(1.0, 1, 2, Adjacency.ZERO_OUT)
        moved = in_steps(np.diag([1.0, 0.0]), grid) - in_steps(np.diag([0.0, 1.0]), grid)
        assert norm_squared(moved[np.triu_indices(2)]) > grid.sensitivity**2

    @pytest.mark.parametrize(
        ("adjacency", "semidefinite", "dimension", "multiple"),
        [
            (Adjacency.ZERO_OUT, True, 6, 1.0),
            (Adjacency.ZERO_OUT, False, 6, 1.0),
            (Adjacency.REPLACE_ONE, True, 6, sqrt(2)),
            (Adjacency.REPLACE_ONE, True, 1, 1.0),
            (Adjacency.REPLACE_ONE, False, 6, 2.0),
        ],
    )
    def test_matrix_multiples(self, adjacency: Adjacency, semidefinite: bool, dimension: int, multiple: float) -> None:
        grid = matrix_grid(1.0, 1000, dimension, adjacency, semidefinite=semidefinite)
        exact = multiple * CHARGED_MARGIN
        margin = 2 * grid.error + sqrt(dimension * (dimension + 1) / 2) * grid.step
        assert exact + margin <= grid.sensitivity * grid.step <= exact + margin + 2 * grid.step

    @pytest.mark.parametrize("clip", [0.0, -1.0, np.inf, np.nan])
    def test_refuses_a_clip_that_is_no_size(self, clip: float) -> None:
        with pytest.raises(AssertionError):
            vector_grid(clip, 10, 2, Adjacency.ZERO_OUT)

    @pytest.mark.parametrize(
        ("clip", "units", "coordinates", "multiple"),
        [(1.0, 0, 1, 1.0), (1.0, 1, 0, 1.0), (1.0, 1, 1, 0.0), (1.0, 2**50, 1, 1.0), (1e-290, 1, 1, 1.0)],
    )
    def test_refuses_what_the_proof_does_not_cover(
        self, clip: float, units: int, coordinates: int, multiple: float
    ) -> None:
        with pytest.raises(AssertionError):
            bounded_error_grid(clip, units, coordinates, multiple)


class TestConversions:
    @pytest.mark.parametrize("clip", [0.3, 1.0, 1.9021172, 1e5])
    def test_the_step_is_a_power_of_two_so_that_scaling_is_exact(self, clip: float) -> None:
        grid = vector_grid(clip, 10, 1, Adjacency.ZERO_OUT)
        assert np.frexp(grid.step)[0] == 0.5
        assert clip / 2**21 < grid.step <= clip / 2**20 * 1.0000001
        integers = np.array([-(2**42), -1, 0, 12345], dtype=np.int64)
        assert np.array_equal(in_steps(from_grid(integers, grid), grid), integers)

    @given(st.lists(st.integers(-(2**62), 2**62), max_size=8))
    def test_integer_norm_is_exact(self, values: list[int]) -> None:
        found = integer_norm(np.array(values, dtype=np.int64))
        square = sum(value**2 for value in values)
        assert found == isqrt(square)
        assert found**2 <= square < (found + 1) ** 2

    def test_noise_parameter_is_never_below_the_product(self) -> None:
        grid = vector_grid(1.9, 45_211, 30, Adjacency.REPLACE_ONE)
        for sigma in (0.3, 1.0, 4.898979, 1e3):
            assert Fraction(grid.parameter(sigma)) >= Fraction(sigma) * grid.sensitivity
            assert grid.parameter(sigma) == pytest.approx(sigma * grid.sensitivity, rel=1e-11)

    @pytest.mark.parametrize("sigma", [0.0, -1.0, np.nan, np.inf])
    def test_refuses_a_multiplier_that_is_no_size(self, sigma: float) -> None:
        with pytest.raises(AssertionError):
            vector_grid(1.0, 10, 1, Adjacency.ZERO_OUT).parameter(sigma)
