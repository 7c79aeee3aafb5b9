"""Both theorems have the constants of their proofs: golden values, dimensions, and which caps can ever limit a step."""

from dataclasses import replace
from math import exp, inf, log, sqrt

import numpy as np
import pytest

from core.methods.clipped.one_pass.guarantee import CAPS as NAMES
from core.methods.clipped.one_pass.theory import jump_is_free, paper_convex, paper_nonconvex
from tests.support.clipped import GOLDEN, Problem, by_printed_caps, draws, off_by, scaled

FEW, ALL = 6000, 100_000
VALUES = {
    "C1": (9.48683298e-2, (4.57302855e-5, 3.76423984e-5, 5.40608051e-4, 0.143538813, 3.12502190e-4, 5.90658798e-2),
           38.8492529, "bias"),
    "C2": (3.0e-4, (7.45469286e-5, 1.19047500e-4, inf, 0.146446609, 2.36322062e-4, inf), 5.43772016e-2, "variance"),
    "C3": (29.7483585, (1.59002126e-5, 3.59804126e-6, 8.29038568e-5, 0.135601361, 3.94099788e-4, 8.85860641e-3),
           8.00271465e6, "bias"),
    "C4": (0.0, (inf, inf, inf, 0.146446609, 3.72522723e-4, inf), 39.4933250, "jump"),
    "N1": (9.48683298e-2, (9.14605709e-5, 7.52847968e-5, 2.16243221e-3, 1.22518041e-2, 6.25004380e-4, 0.118131760),
           24.7372529, "bias"),
    "N2": (9.73690248, (3.09734335e-5, 8.97558360e-6, 1.35381431e-4, 7.69336573e-3, 6.43562259e-4, 7.23302185e-3),
           5.73517198e5, "bias"),
}  # fmt: skip
"""B, gamma1 to gamma6, the bound and what limits the step; printed to nine digits."""
LIVE = {"variance", "bias", "noise_drift", "jump"}


def theorem(name: str, given: Problem):  # noqa: ANN201 - a guarantee
    return (paper_convex if name.startswith("C") else paper_nonconvex)(given.smoothness, given.size, given.run)


class TestGoldenValues:
    @pytest.mark.parametrize("name", VALUES)
    def test_every_cap_and_the_bound_are_those_of_the_proofs(self, name: str) -> None:
        bias, caps, bound, active = VALUES[name]
        found = theorem(name, GOLDEN[name])
        assert found.bias == pytest.approx(bias, rel=1e-8)
        assert by_printed_caps(found) == pytest.approx(caps, rel=1e-8)
        assert found.bound == pytest.approx(bound, rel=1e-8)
        assert found.active_cap == active
        assert set(found.caps) <= set(NAMES)

    @pytest.mark.parametrize("name", VALUES)
    def test_steps_in_place_of_iterates_are_off_the_golden_values(self, name: str) -> None:
        """K where N = K + 1 belongs."""
        given = GOLDEN[name]
        wrong = theorem(name, replace(given, run=replace(given.run, steps=given.run.steps - 1)))
        assert off_by(wrong.step_size, min(VALUES[name][1])) > 1e-7

    def test_only_one_of_them_says_more_than_the_start_does(self) -> None:
        assert [name for name in VALUES if not theorem(name, GOLDEN[name]).vacuous] == ["C2"]

    def test_a_smaller_step_is_allowed_and_promises_less_and_a_larger_one_is_not(self) -> None:
        found = theorem("C2", GOLDEN["C2"])
        half = found.at(found.step_size / 2)
        assert half is not None
        assert half > found.bound == found.at(found.step_size)
        assert found.at(found.step_size * 1.0001) is None

    def test_without_noise_of_any_kind_the_jump_limits_the_step_and_smoothness_never_does(self) -> None:
        found = theorem("C4", GOLDEN["C4"])
        assert found.step_size < found.caps["smoothness"] / 100
        assert 1 / (8 * GOLDEN["C4"].smoothness) == found.caps["smoothness"]

    def test_a_batch_divides_the_variance_and_nothing_else_and_is_said_to_be_ours(self) -> None:
        given = GOLDEN["C1"]
        one, many = theorem("C1", given), theorem("C1", replace(given, run=replace(given.run, batch=16)))
        assert many.caps.pop("variance") == pytest.approx(4 * one.caps.pop("variance"))
        assert many.caps == one.caps
        assert "ours" in many.source
        assert "ours" not in one.source


@pytest.mark.parametrize("convex", [True, False], ids=["convex", "nonconvex"])
class TestDimensions:
    def test_the_bound_has_the_units_of_what_it_bounds(self, convex: bool) -> None:
        random = np.random.default_rng(1)
        for given in draws(500):
            height, length = (exp(random.uniform(-5, 5)) for _ in range(2))
            name = "C" if convex else "N"
            before = theorem(name, given).bound
            after = theorem(name, scaled(given, height=height, length=length, convex=convex)).bound
            assert after == pytest.approx(before * (height if convex else (height / length) ** 2), rel=1e-12)


def _counterexamples(count: int, *, convex: bool) -> list[Problem]:
    return [
        given
        for given in draws(count, seed=2 + convex)
        if theorem("C" if convex else "N", given).active_cap not in LIVE
    ]


@pytest.mark.parametrize("convex", [True, False], ids=["convex", "nonconvex"])
def test_smoothness_travel_and_the_length_of_noise_never_limit_a_step(convex: bool) -> None:
    assert _counterexamples(FEW, convex=convex) == []


@pytest.mark.slow
@pytest.mark.parametrize("convex", [True, False], ids=["convex", "nonconvex"])
def test_they_never_do_in_many_more_draws(convex: bool) -> None:
    assert _counterexamples(ALL, convex=convex) == []


def test_every_live_cap_limits_some_step() -> None:
    for convex in (True, False):
        seen = {theorem("C" if convex else "N", given).active_cap for given in draws(FEW)}
        assert seen == LIVE


@pytest.mark.parametrize("convex", [True, False], ids=["convex", "nonconvex"])
@pytest.mark.parametrize("count", [FEW, pytest.param(ALL, marks=pytest.mark.slow)])
def test_the_jump_cap_may_be_dropped_exactly_where_the_condition_says(convex: bool, count: int) -> None:
    seen = set()
    for given in draws(count, seed=4):
        found = theorem("C" if convex else "N", given)
        slope = given.smoothness * given.size if convex else sqrt(given.smoothness * given.size)
        free = jump_is_free(2 * slope, given.run)
        seen.add(free)
        margin = log(found.caps["jump"] / found.caps["variance"]) if found.caps["variance"] < inf else -inf
        if abs(margin) > 1e-9:
            assert free == (margin > 0)
    assert seen == {True, False}


class TestVacuity:
    @pytest.mark.parametrize(("convex", "slopes", "least"), [(True, 3.98, 1.4), (False, 3.95, 3.9)])
    def test_below_four_slopes_nothing_is_said_whatever_the_number_of_steps(
        self, convex: bool, slopes: float, least: float
    ) -> None:
        """Not even without any noise: the start satisfies 0.5, or 2."""
        name = "C" if convex else "N"
        bounds = [
            theorem(name, replace(GOLDEN["C4"], run=replace(GOLDEN["C4"].run, clip=clip, steps=steps, dimension=1)))
            for clip in np.geomspace(0.01, slopes, 60).tolist()
            for steps in (0, 10, 1000, 10**6, 10**9, 10**12)
        ]
        assert all(found.vacuous for found in bounds)
        assert min(found.bound for found in bounds) > least

    @pytest.mark.parametrize("convex", [True, False], ids=["convex", "nonconvex"])
    def test_it_says_something_a_little_above_where_it_can_and_nothing_below(self, convex: bool) -> None:
        # The bias cap alone makes the bound 112 R zeta at least, or 112 S zeta; the start has L R^2/2, or 2 S^2.
        edge = 2 * (2 - (1 / 224 if convex else 1 / 56))
        name = "C" if convex else "N"

        def vacuous(clip: float) -> bool:
            run = replace(GOLDEN["C4"].run, clip=clip, steps=10**12, dimension=1)
            return bool(theorem(name, replace(GOLDEN["C4"], run=run)).vacuous)

        assert vacuous(edge * (1 - 1e-6))
        assert not vacuous(4.0)
        assert 3.9 < edge < 4.0
