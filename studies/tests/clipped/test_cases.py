"""The seven regimes: which clip is in which, which of them say nothing, and where each is best."""

from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest

from core.methods.clipped.one_pass.guarantee import Run
from studies.clipped.cases import (
    CASES,
    best_clip,
    case_of,
    private_clip,
    private_terms,
    small_private_clip,
)
from studies.clipped.order_level import Scale, order_terms

UNIT = Scale.convex(1, 1)


def situations(count: int, seed: int = 3) -> list[tuple[Scale, float, float, float]]:
    """Return random scales, alphas, sigmas and clips, slopes of all sizes among them."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        smoothness, size = (exp(random.uniform(-4, 4)) for _ in range(2))
        scale = random.choice([Scale.convex(smoothness, size), Scale.nonconvex(smoothness, size)])
        sigma, clip = (scale.slope * exp(random.uniform(-4, 3)) for _ in range(2))
        found.append((scale, random.uniform(1.05, 2), sigma, clip))
    return found


SITUATIONS = situations(5000)


def test_every_clip_is_in_one_regime_as_its_conditions_say() -> None:
    seen = set()
    for scale, _, sigma, clip in SITUATIONS:
        zeta = max(0.0, 2 * scale.slope - clip / 2)
        case = case_of(scale, sigma, clip)
        seen.add(case.number)
        held = {
            1: clip >= 4 * scale.slope,
            2: zeta <= clip < sigma,
            3: zeta < sigma <= clip,
            4: sigma <= zeta <= clip and zeta > 0,
            5: clip < zeta < sigma,
            6: clip < sigma <= zeta,
            7: sigma <= clip < zeta,
        }
        assert held[case.number], (case, scale, sigma, clip)
    assert seen == set(CASES)


def test_empty_regimes_never_say_as_much_as_the_start_does_and_the_others_do() -> None:
    least = dict.fromkeys(CASES, float("inf"))
    for scale, alpha, sigma, clip in SITUATIONS:
        case = case_of(scale, sigma, clip)
        least[case.number] = min(least[case.number], case.neighbourhood(scale, alpha, sigma, clip) / scale.start)
    assert {number for number, value in least.items() if value >= 0.5} == {
        case.number for case in CASES.values() if case.empty
    }
    assert min(least[6], least[7]) >= 4 / 3 * (1 - 1e-9)


def test_the_neighbourhood_of_a_regime_is_the_bias_of_the_orders_up_to_a_constant() -> None:
    ratios = []
    for scale, alpha, sigma, clip in SITUATIONS:
        run = Run(alpha, sigma, clip, 1, 0.5, 1, 0.0)
        case = case_of(scale, sigma, clip)
        ratios.append(order_terms(scale, run).bias / case.neighbourhood(scale, alpha, sigma, clip))
    assert min(ratios) > 0.2
    assert max(ratios) < 16


class TestBestClips:
    @pytest.mark.parametrize("sigma", [0.01, 0.1, 1.0])
    def test_case_four_is_best_where_zeta_is_sigma(self, sigma: float) -> None:
        clip = best_clip(CASES[4], UNIT, 1.5, sigma, steps_over_log=1.0)
        assert clip == 4 - 2 * sigma
        value = CASES[4].neighbourhood(UNIT, 1.5, sigma, clip)
        assert value == pytest.approx(sigma + sigma**2 / (4 - 2 * sigma) ** 2)
        assert CASES[4].neighbourhood(UNIT, 1.5, sigma, 0.99 * clip) > value

    def test_case_four_has_no_clips_above_four_thirds_slope(self) -> None:
        assert best_clip(CASES[4], UNIT, 1.5, 1.34, steps_over_log=1.0) is None

    def test_case_four_says_something_only_above_three_slopes(self) -> None:
        assert CASES[4].neighbourhood(UNIT, 1.5, 1e-9, 3.0) == pytest.approx(0.5, abs=0.03)

    @pytest.mark.parametrize("number", [2, 3, 5, 6, 7])
    def test_the_others_are_best_at_their_upper_end(self, number: int) -> None:
        case = CASES[number]
        inside = [found for found in SITUATIONS if case_of(found[0], found[2], found[3]).number == number]
        assert len(inside) > 50
        for scale, alpha, sigma, clip in inside:
            best = best_clip(case, scale, alpha, sigma, steps_over_log=1.0)
            assert best is not None
            at_best = case.neighbourhood(scale, alpha, sigma, best)
            assert at_best <= case.neighbourhood(scale, alpha, sigma, clip) * (1 + 1e-9)

    def test_case_three_is_no_better_than_four_slopes_however_near_it_comes(self) -> None:
        """Its condition keeps zeta above sigma^alpha/clip^(alpha - 1): no `R eta` with any small eta."""
        sigma, alpha = 0.1, 1.5
        at_four = CASES[1].neighbourhood(UNIT, alpha, sigma, 4.0)
        for clip in np.linspace(4 - 2 * sigma, 4, 50)[1:-1].tolist():
            assert case_of(UNIT, sigma, clip).number == 3
            assert CASES[3].neighbourhood(UNIT, alpha, sigma, clip) >= at_four

    def test_case_one_grows_its_clip_with_the_steps_and_goes_to_zero(self) -> None:
        values = []
        for ratio in (1e3, 1e6, 1e9):
            clip = best_clip(CASES[1], UNIT, 1.5, 1.0, steps_over_log=ratio)
            values.append(CASES[1].neighbourhood(UNIT, 1.5, 1.0, clip))
        assert np.polyfit(np.log([1e3, 1e6, 1e9]), np.log(values), 1)[0] == pytest.approx(-1 / 3, abs=0.02)


class TestUnderPrivacy:
    def test_the_best_clip_balances_the_tail_against_the_noise(self) -> None:
        for scale, alpha, sigma, _ in SITUATIONS[:500]:
            cost = 0.3 * (sigma / scale.slope) ** alpha / 4**alpha
            clip = private_clip(scale, alpha, sigma, cost)
            tail = scale.weight * sigma**alpha / clip ** (alpha - 1)
            assert tail == pytest.approx(scale.weight * clip * cost)

    def test_the_corollaries_terms_are_the_orders_at_that_clip(self) -> None:
        run = Run(1.5, 0.5, 1.0, 10**6, 0.05, 10, 0.0)
        for cost in (1e-4, 1e-3, 1e-2, 0.1):
            clip = private_clip(UNIT, 1.5, 0.5, cost)
            noise = cost * clip / sqrt(10 * run.l8 / 10**6)
            found = order_terms(UNIT, replace(run, clip=clip, noise=noise))
            told = private_terms(UNIT, 1.5, 0.5, cost, steps=10**6, log_term=run.l8)
            for name in ("det", "stat", "bias", "dp"):
                assert getattr(found, name) == pytest.approx(getattr(told, name), rel=8.1), (name, cost)
                assert getattr(found, name) > getattr(told, name) / 9.1, (name, cost)

    def test_they_do_not_jump_where_the_clip_leaves_four_slopes(self) -> None:
        """But for the factors of 4 that the corollaries drop there."""
        edge = (0.5 / 4) ** 1.5
        below, above = (
            private_terms(UNIT, 1.5, 0.5, cost, steps=10**6, log_term=20.0) for cost in (edge * 0.999, edge * 1.001)
        )
        for name in ("det", "stat", "bias", "dp"):
            assert 1 / 9 < getattr(below, name) / getattr(above, name) < 9

    def test_small_clips_under_privacy_never_say_anything(self) -> None:
        for scale, alpha, _, _ in SITUATIONS[:1000]:
            for cost in (1e-6, 0.5, 1.0, 3.0, 1e4):
                clip, error = small_private_clip(scale, alpha, cost)
                assert clip <= 4 / 3 * scale.slope * (1 + 1e-12)
                assert error >= 4 / 3 * scale.start * (1 - 1e-9)

    def test_without_privacy_or_noise_no_clip_is_too_large_or_none_is_needed(self) -> None:
        assert private_clip(UNIT, 1.5, 0.1, 0.0) == float("inf")
        assert private_clip(UNIT, 1.5, 0.0, 0.0) == 4.0
