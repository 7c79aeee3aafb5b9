"""Private selection among saddles and one minimum of a law that is known; the stored studies have more sizes and seeds.

Seeds are fixed, so a verdict repeats.
"""

from functools import partial

import pytest

from examples.second_order.selection import (
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

LAW = law_of(20)
RECORDS = held_out(LAW, 40)


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


def test_fewest_records_for_a_claim() -> None:
    for mode in ("sound", "above_threshold"):
        least = least_units(partial(claims_as_much, alpha=ALPHA / 2, gamma_star=0.1, mode=mode))
        assert claims_as_much(least, ALPHA / 2, 0.1, mode)
        assert not claims_as_much(int(0.98 * least), ALPHA / 2, 0.1, mode)
        assert least > 1_000_000
    assert GAMMA_STAR > 0.1
