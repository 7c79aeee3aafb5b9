"""Centres and scales from counts: a rule a test, without noise and with what noise may hide."""

from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from core.methods.m_estimation.whitened_newton.column_scales import (
    heap_of,
    integer_scale,
    least_square,
    number_centre,
    number_scale,
    piled_up,
)

Array = NDArray[np.float64]
BINS, UNITS, CELLS = 22, 5000, 40.0
"""Of sizes, of records, and the deviation of the noise on cells."""


def sizes(values: Array, centre: float) -> Array:
    """Return exact counts of distances in parts of the range, as the oracle counts them."""
    with np.errstate(divide="ignore"):
        place = np.clip(np.floor(-np.log2(np.abs(values - centre))), 0, BINS - 1)
    return np.bincount(place.astype(int), minlength=BINS).astype(float)


def normal(deviation: float) -> Array:
    found: Array = np.random.default_rng(1).normal(0, deviation, UNITS)
    return found


class TestCentres:
    def test_an_end_with_over_a_third_of_the_records_is_the_centre(self) -> None:
        assert number_centre(0.02, np.array([1900.0, 0.0]), 10, UNITS) == 0
        assert number_centre(0.98, np.array([100.0, 1900.0]), 10, UNITS) == 1
        assert number_centre(0.9, np.array([1800.0, 2500.0]), 10, UNITS) == 1, "the fuller end"

    def test_else_the_median_is(self) -> None:
        assert number_centre(0.02, np.array([1700.0, 0.0]), 10, UNITS) == 0.02
        assert number_centre(0.02, np.array([1900.0, 0.0]), 700, UNITS) == 0.02, "within three deviations"

    def test_parts_are_of_the_records_with_a_value(self) -> None:
        assert number_centre(0.02, np.array([900.0, 0.0]), 10, 2000) == 0


class TestHeaps:
    def test_a_spread_is_no_heap_at_any_scale(self) -> None:
        draws = np.random.default_rng(0)
        for deviation in 10.0 ** draws.uniform(-4, -0.5, 200):
            exact = sizes(normal(deviation), 0)
            assert not number_scale(exact + draws.normal(0, 20, BINS), 20, UNITS, UNITS, CELLS).heaped
            found = number_scale(exact, 1e-9, UNITS, UNITS, CELLS)
            assert (found.sparse, found.heaped) == (False, False)
            assert found.scale == pytest.approx(deviation, rel=0.15)

    def test_the_centre_itself_is_one_where_over_two_fifths_of_the_records_lie(self) -> None:
        values = np.where(np.arange(UNITS) < 0.45 * UNITS, 0.0, normal(0.01))
        assert heap_of(sizes(values, 0), 10, UNITS, CELLS) == BINS - 1
        values = np.where(np.arange(UNITS) < 0.35 * UNITS, 0.0, normal(0.01))
        assert heap_of(sizes(values, 0), 10, UNITS, CELLS) is None

    def test_a_value_at_some_distance_is_one_if_next_to_nothing_lies_nearer(self) -> None:
        """The centre is a cell's: a heap beside it is at one distance, which is no spread."""
        beyond = np.where(np.arange(UNITS) < 0.9 * UNITS, 1e-5, normal(0.05))
        found = number_scale(sizes(beyond, 0), 10, UNITS, UNITS, CELLS)
        assert found.heaped
        assert not found.sparse
        assert found.scale == pytest.approx(0.05 * sqrt(0.1), rel=0.2)

    def test_two_bounds_with_half_of_the_records_each_are_a_spread(self) -> None:
        values = np.where(np.arange(UNITS) < 0.45 * UNITS, 0.0, 1.0)
        found = number_scale(sizes(values, 1.0), 10, UNITS, UNITS, CELLS)
        assert found.scale == pytest.approx(sqrt(0.45) * 2**-0.5, rel=0.01), "half of the other bound's distance"

    def test_two_modes_with_the_median_between_them_are_a_spread_unless_noise_may_miss_a_heap(self) -> None:
        modes = np.random.default_rng(4).choice([-0.2, 0.2], UNITS) + normal(0.02)
        for cells, heaped in ((CELLS, False), (600.0, True)):
            found = number_scale(sizes(modes, 0), 10, UNITS, UNITS, cells)
            assert found.heaped is heaped
            if not heaped:
                assert found.scale == pytest.approx(0.2, rel=0.25)

    def test_the_farther_one_of_two_modes_is_no_heap(self) -> None:
        """From one mode's edge the other, with half of the records, is one interval, and the two nearer are empty."""
        modes = np.where(np.arange(UNITS) < 0.52 * UNITS, -0.4, 0.0) + normal(0.01)
        assert heap_of(sizes(modes, 0), 10, UNITS, CELLS) is None

    def test_the_scale_beside_a_heap_in_which_nothing_is_seen_is_what_noise_may_hide(self) -> None:
        """As it was, the scale was the heap's own distance, here 2^-22 of the range."""
        counts = sizes(np.zeros(UNITS), 0)
        for deviation, expected in ((100.0, sqrt(2 * 100 / UNITS)), (1000.0, 0.5)):
            found = number_scale(counts, deviation, UNITS, UNITS, CELLS)
            assert (found.sparse, found.heaped) == (True, True)
            assert found.scale == pytest.approx(expected)

    def test_a_column_without_a_heap_in_which_nothing_is_seen_keeps_an_eighth_of_its_range(self) -> None:
        found = number_scale(np.zeros(BINS), 100, UNITS, UNITS, CELLS)
        assert found == (1 / 8, True, False)


class TestIntegers:
    def test_without_noise_centre_and_scale_are_the_median_and_the_second_moment_about_it(self) -> None:
        values = np.random.default_rng(2).binomial(12, 0.3, UNITS)
        centre, scale = integer_scale(np.bincount(values, minlength=13).astype(float), 1e-9, UNITS, 6)
        assert centre == np.median(values)
        assert scale == pytest.approx(np.sqrt(((values - centre) ** 2).mean()))

    def test_the_scale_is_never_below_what_the_noise_may_hide(self) -> None:
        """Two deviations of the noised moment: sqrt(2 s |d^2|/n) with squared distances d^2 of 16, 9, 4, 1 and 0."""
        counts = np.array([0.0, 0.0, 0.0, 0.0, UNITS])
        _, scale = integer_scale(counts, 120.0, UNITS, 9)
        assert scale == pytest.approx(sqrt(2 * 120 * np.linalg.norm([16, 9, 4, 1, 0]) / UNITS))

    def test_values_too_far_to_be_seen_bring_no_noise_where_others_are_seen(self) -> None:
        """A count of visits, 0 to 60: noise on the far values alone is a scale of 19."""
        draws = np.random.default_rng(5)
        exact = np.bincount(draws.poisson(3, UNITS), minlength=61).astype(float)
        for _ in range(50):
            centre, scale = integer_scale(exact + draws.normal(0, 80, 61), 80, UNITS, 5)
            assert abs(centre - 3) <= 1
            assert 0.5 * sqrt(3) < scale < 2.5 * sqrt(3)

    def test_nor_below_half_a_step_in_a_plausible_share_of_the_records(self) -> None:
        _, scale = integer_scale(np.array([0.0, UNITS, 0.0]), 1e-9, UNITS, 9)
        assert scale == pytest.approx(sqrt(least_square(9)))
        assert scale == pytest.approx(0.5 / 3)

    def test_counts_that_add_up_to_nothing_give_some_value(self) -> None:
        for counts in ([-30.0, 10.0, 5.0, -8.0, 2.0], [0.0] * 5, [-9.0] * 5):
            centre, scale = integer_scale(np.array(counts), 40.0, 100, 4)
            assert centre in range(5)
            assert 0 < scale < 100

    def test_the_median_is_of_the_records_with_a_value(self) -> None:
        assert integer_scale(np.array([300.0, 200, 400, 100]), 10.0, UNITS, 4)[0] == 1
        assert integer_scale(np.array([2450.0, 2400, -300, 50]), 300.0, UNITS, 4)[0] == 1, "all, as far as noise tells"

    def test_a_floor_left_out_would_be_seen(self) -> None:
        """Planted bug: the moment as it is. Noise then takes a fifth of the scales below a tenth of the true one."""
        draws = np.random.default_rng(3)
        exact = np.array([20.0, 20.0, 30.0, 80.0, 4850.0])
        true = sqrt(float(exact @ np.array([16, 9, 4, 1, 0])) / UNITS)
        noised = [exact + draws.normal(0, 200, 5) for _ in range(300)]
        squares = np.array([16, 9, 4, 1, 0])
        bare = [sqrt(max(float(counts @ squares), 0.0) / UNITS) for counts in noised]
        assert np.mean(np.array(bare) < true / 10) > 0.2
        assert min(integer_scale(counts, 200, UNITS, 5)[1] for counts in noised) > true / 2


def test_records_piled_up_at_an_end_are_noted_and_a_mode_there_is_not() -> None:
    cut = np.array([40.0, 300, 900, 1200, 900, 500, 1160])
    assert piled_up(cut, 10.0, UNITS) == (False, True)
    assert piled_up(cut[::-1], 10.0, UNITS) == (True, False)
    falling = np.array([2000.0, 1400, 900, 500, 200])
    assert piled_up(falling, 10.0, UNITS) == (False, False)
    assert piled_up(cut, 80.0, UNITS) == (False, False), "within the noise"
