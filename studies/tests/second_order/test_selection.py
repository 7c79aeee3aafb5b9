"""Private selection among saddles and one minimum of a law that is known; the stored studies have more sizes and seeds.

Seeds are fixed, so a verdict repeats.
"""

from functools import partial

import pytest

from studies.second_order.selection import (
    ALPHA,
    GAMMA_STAR,
    claims_as_much,
    held_out,
    hessian_tolerance,
    law_of,
    least_units,
    lineup,
    selected,
)
from studies.second_order.selection_noise import measured, measured_threshold

SLOW = pytest.mark.slow
LAW = law_of(20)
RECORDS = [held_out(LAW, 40).moments]


@pytest.mark.parametrize("mode", ["printed", "above_threshold", "exponential", "no privacy"])
def test_the_only_minimum_is_selected(mode: str) -> None:
    for seed in range(3):
        candidates, chosen = selected(LAW, RECORDS, mode, seed)
        assert chosen == candidates.place


def test_a_sound_test_takes_what_its_promise_lets_it() -> None:
    """No saddle of curvature -.95 or -1 passes at d = 20, where .375 is allowed beside .2; the one of -.5 may."""
    for mode in ("sound", "hessian_products"):
        for seed in range(4):
            candidates, chosen = selected(LAW, RECORDS, mode, seed)
            assert chosen is not None
            curvature = float(LAW.least_curvature(candidates.points[chosen]))
            assert curvature >= -0.5 - 1e-9


def test_the_line_up_has_one_minimum() -> None:
    candidates = lineup(LAW, 1)
    curvatures = [float(LAW.least_curvature(one)) for one in candidates.points]
    assert [place for place, one in enumerate(curvatures) if one > 0] == [candidates.place]


def test_the_sound_test_loses_its_power_as_dimensions_grow() -> None:
    assert hessian_tolerance(20) < 0.5 < hessian_tolerance(60)
    assert hessian_tolerance(400) > 1.5 * hessian_tolerance(200)


def test_ten_clients_lose_it_near_the_crossing() -> None:
    """More than .5 is allowed from near d = (sqrt(m) n epsilon)^(6/13) = 345 on."""
    assert hessian_tolerance(150, 10) < 0.5 < hessian_tolerance(345, 10)


@pytest.mark.slow
def test_clients_together_select_the_minimum_where_a_single_one_cannot() -> None:
    """At d = 60 ten clients allow a Hessian .2 beside gamma_star, less than the weak saddle is below it."""
    law = law_of(60)
    clients = [held_out(law, 60 + place).moments for place in range(10)]
    for mode in ("sound", "printed", "hessian_products"):
        candidates, chosen = selected(law, clients, mode, 0)
        assert chosen == candidates.place, mode


@pytest.mark.parametrize("dimension", [20, pytest.param(100, marks=SLOW), pytest.param(1000, marks=SLOW)])
def test_noise_is_what_was_predicted(dimension: int) -> None:
    """Within 5 %: five of a vector's standard errors and of AboveThreshold's (in small, of fewer choices, 15 %)."""
    assert [row.what for row in measured(dimension) if row.agrees is not True] == []
    choices, allowed = (4000, 0.15) if dimension == 20 else (40_000, 0.05)
    scale, worth = measured_threshold(dimension, choices)
    assert scale == pytest.approx(1, abs=allowed)
    assert worth == pytest.approx(2 * 7.47 / 100_000, rel=0.05)


def test_fewest_records_for_a_claim() -> None:
    for mode in ("sound", "above_threshold"):
        least = least_units(partial(claims_as_much, alpha=ALPHA / 2, gamma_star=0.1, mode=mode))
        assert claims_as_much(least, ALPHA / 2, 0.1, mode)
        assert not claims_as_much(int(0.98 * least), ALPHA / 2, 0.1, mode)
        assert least > 1_000_000
    assert GAMMA_STAR > 0.1
