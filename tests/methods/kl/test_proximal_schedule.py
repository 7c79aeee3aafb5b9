"""The proximal-point method's public arithmetic: worked examples, budgets kept and used up, and regimes named."""

from dataclasses import replace
from math import log, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.methods.kl.condition import KlCondition
from core.methods.kl.proximal_point.schedule import (
    CONSTANT,
    MOST_ROUNDS,
    ProximalConstants,
    ScheduleInput,
    exact_sigma,
    practical_steps,
    printed_rounds,
    printed_sigma,
    printed_steps,
    proximal_schedule,
    scheduled_floor,
    scheduled_rounds,
    solver_error,
    solver_logarithm,
)

GROUND = ProximalConstants(
    units=3000,
    dimension=5,
    lipschitz=1.5,
    condition=KlCondition(gamma=2 / 3, kappa=3),
    weak_convexity=1.0,
    start_gap=1.0,
)
LARGE = replace(GROUND, units=1_000_000)
PLAN = ScheduleInput(
    rho=1.0, failure=0.05, weight="scheduled", round_schedule="proved", solver="printed", constant=CONSTANT
)

grounds = st.builds(
    ProximalConstants,
    units=st.integers(10**5, 10**8),
    dimension=st.integers(1, 100),
    lipschitz=st.floats(0.5, 5),
    condition=st.builds(KlCondition, gamma=st.floats(0.3, 1), kappa=st.sampled_from([2.0, 2.5, 3.0, 4.0, 7.0])),
    weak_convexity=st.floats(0, 3),
    start_gap=st.floats(0.1, 2),
    ridge=st.sampled_from([0.0, 0.1, 2.0]),
    start_norm=st.sampled_from([0.0, 1.5]),
)
plans = st.builds(
    ScheduleInput,
    rho=st.floats(0.01, 10),
    failure=st.floats(1e-6, 0.2),
    weight=st.sampled_from(["scheduled", "paper"]),
    round_schedule=st.sampled_from(["proved", "practical"]),
    solver=st.sampled_from(["printed", "practical"]),
    constant=st.floats(0.5, 20),
)


def test_worked_inner_solve() -> None:
    steps = printed_steps(1000, 5, 0.25, 0.01)
    assert steps == 1403609
    sensitivity = 2 * 2.0 / 1000
    printed, exact = printed_sigma(steps, 0.25, 2.0), exact_sigma(steps, 0.25)
    assert printed * sensitivity == pytest.approx(9.47792045, rel=1e-8)
    assert exact * sensitivity == pytest.approx(6.70189943, rel=1e-8)
    assert (steps - 1) / (2 * printed**2) == pytest.approx(0.124999911, rel=1e-8)
    assert printed_sigma(steps, 0.25, 1.0) * sensitivity / 2 == pytest.approx(9.47792045, rel=1e-8)


def test_the_ball_has_half_the_records_gradient_over_the_weight_for_radius() -> None:
    solve = replace(GROUND, lipschitz=2.0, weak_convexity=0.5, condition=KlCondition(gamma=1.0, kappa=2))
    first = proximal_schedule(solve, replace(PLAN, weight="paper")).rounds[0]
    assert (first.weight, first.radius, first.pull, first.shrinkage) == (0.5, 2.0, 1.0, 1.0)


def test_worked_rounds() -> None:
    assert printed_rounds(GROUND, 1.0) == pytest.approx(328.875287, rel=1e-8)
    rounds = 329
    assert 0.05 / rounds == pytest.approx(1.51975684e-4, rel=1e-8)
    assert 1 / rounds == pytest.approx(3.03951368e-3, rel=1e-8)
    enlarged = replace(GROUND, weak_convexity=GROUND.convexity)
    assert len(proximal_schedule(enlarged, replace(PLAN, weight="paper")).rounds) == 368
    assert len(proximal_schedule(GROUND, replace(PLAN, weight="paper"), rounds).rounds) == rounds


def test_a_convex_loss_gets_a_weight_all_the_same() -> None:
    convex = replace(GROUND, weak_convexity=0.0, start_gap=0.5)
    assert convex.convexity == pytest.approx(0.5 ** (-1 / 3) / (2 * (2 / 3) ** 2), rel=1e-14)
    assert replace(convex, weak_convexity=7.0).convexity == 7.0
    rounds = proximal_schedule(replace(convex, units=10**6), replace(PLAN, weight="paper")).rounds
    assert {one.weight for one in rounds} == {convex.convexity}


def test_practical_steps_leave_the_squared_logarithm_out() -> None:
    assert practical_steps(1000, 5, 0.25) == 200_000
    assert practical_steps(10, 400, 0.25) == 1
    assert printed_steps(10, 10**6, 0.25, 0.5) == 1


@given(grounds, plans)
@settings(max_examples=40, deadline=None)
def test_targets_fall_to_the_floor_as_weights_rise(ground: ProximalConstants, plan: ScheduleInput) -> None:
    schedule = proximal_schedule(ground, plan)
    if schedule.regime is not None:
        assert schedule.rounds == ()
        assert schedule.target is None
        return
    assert schedule.floor is not None
    targets = [one.target for one in schedule.rounds]
    assert targets == sorted(targets, reverse=True)
    assert targets[0] <= ground.start_gap * (1 + 1e-12)
    if plan.weight == "scheduled":
        assert targets[-1] == pytest.approx(schedule.floor, rel=1e-9)
    before = [ground.start_gap, *targets[:-1]]
    for phi, one in list(zip(before, schedule.rounds, strict=True))[:: 1 + len(targets) // 20]:
        kappa, gamma = ground.condition.kappa, ground.condition.gamma
        least = phi ** ((2 - kappa) / kappa) / (2 * gamma**2)
        expected = max(ground.weak_convexity, least) if plan.weight == "scheduled" else ground.convexity
        assert one.weight == pytest.approx(expected, rel=1e-9)
        assert one.pull == pytest.approx(2 * expected + ground.ridge, rel=1e-9)
        assert one.radius * one.pull == pytest.approx(ground.lipschitz, rel=1e-12)
        if plan.round_schedule == "proved":
            slowness = max(1.0, 2 * gamma**2 * one.weight * phi ** ((kappa - 2) / kappa))
            assert one.target >= phi * (1 - 1 / (16 * slowness)) * (1 - 1e-9)


@given(grounds, plans)
@settings(max_examples=40, deadline=None)
def test_a_round_errs_by_no_more_than_its_contraction_allows(ground: ProximalConstants, plan: ScheduleInput) -> None:
    plan = replace(plan, weight="scheduled", round_schedule="proved")
    schedule = proximal_schedule(ground, plan)
    if schedule.regime is not None:
        return
    count = len(schedule.rounds)
    before = [ground.start_gap, *(one.target for one in schedule.rounds)]
    for phi, one in list(zip(before, schedule.rounds, strict=False))[:: 1 + count // 20]:
        error = solver_error(ground, one.weight, plan.rho / count, plan.failure / count, plan.constant)
        slowness = 2 * ground.condition.gamma**2 * one.weight * phi ** (1 - 2 / ground.condition.kappa)
        assert slowness >= 1 - 1e-9
        assert error <= phi / (16 * slowness) * (1 + 1e-9)


@given(st.integers(2, 10**7), st.floats(1e-6, 10), st.floats(1, 2))
def test_neither_noise_costs_more_than_a_round_has_and_the_exact_one_all_of_it(
    steps: int, rho: float, replaced: float
) -> None:
    sigmas = exact_sigma(steps, rho), printed_sigma(steps, rho, replaced)
    exact, printed = ((steps - 1) / (2 * sigma**2) for sigma in sigmas)
    assert rho * (1 - 1e-11) <= exact <= rho
    assert printed == pytest.approx(rho * (replaced / 2) ** 2 * (steps - 1) / (2 * steps), rel=1e-12)
    assert printed < rho / 2


def test_rounds_are_the_fewest_that_reach_the_floor() -> None:
    count = scheduled_rounds(LARGE, 1.0, 0.05, CONSTANT)
    slowness = 16 * 2 * (2 / 3) ** 2 * LARGE.convexity
    needed = [slowness * log(1 / scheduled_floor(LARGE, 1.0, 0.05, CONSTANT, t)) for t in (count - 1, count)]
    assert count - 1 < needed[0]
    assert count >= needed[1]
    assert len(proximal_schedule(LARGE, PLAN).rounds) == count


def test_the_floor_is_the_resolution_with_its_logarithm() -> None:
    x = (2 / 3) * 1.5 * sqrt(100 * 5 * solver_logarithm(3000, 5, 0.0005)) / 3000
    assert scheduled_floor(GROUND, 1.0, 0.05, 2.0, 100) == pytest.approx((8 * x) ** 3, rel=1e-12)
    assert solver_logarithm(3000, 5, 0.0005) == pytest.approx(log(3000**2 * log(4000) ** 2 / (5 * 0.0005)), rel=1e-14)
    assert solver_logarithm(3, 10**9, 0.5) == 1.0


def test_at_kappa_two_the_weight_is_as_printed() -> None:
    square = replace(LARGE, condition=KlCondition(gamma=1.0, kappa=2), weak_convexity=0.7)
    weights = {one.weight for one in proximal_schedule(square, PLAN).rounds}
    assert weights == {0.7}


def test_practical_rounds_take_four_tenths_off_and_stop_at_twice_the_resolution() -> None:
    schedule = proximal_schedule(LARGE, replace(PLAN, round_schedule="practical"))
    targets = [one.target for one in schedule.rounds]
    assert targets[:3] == pytest.approx([0.6, 0.36, 0.216], rel=1e-12)
    assert len(targets) == 121
    x = sqrt(121 * 5) * LARGE.condition.gamma * 1.5 / LARGE.units
    assert schedule.floor == pytest.approx((2 * x) ** 3, rel=1e-12)
    assert targets[-1] == pytest.approx((2 * x) ** 3, rel=1e-9)


def test_each_trivial_regime_has_its_name() -> None:
    assert proximal_schedule(replace(GROUND, units=100), PLAN).regime == "trivial_regime"
    tiny = replace(GROUND, start_gap=1e-12)
    assert proximal_schedule(tiny, replace(PLAN, weight="paper")).regime == "target_above_F0"
    assert proximal_schedule(tiny, replace(PLAN, round_schedule="practical")).regime == "target_above_F0"
    many = replace(GROUND, units=10**9, weak_convexity=1e5)
    assert proximal_schedule(many, PLAN).regime == "too_many_rounds"
    assert scheduled_rounds(many, 1.0, 0.05, CONSTANT) == MOST_ROUNDS + 1
    wide = replace(GROUND, units=30, dimension=750, condition=KlCondition(gamma=2 / 3, kappa=20))
    little = replace(PLAN, weight="paper", round_schedule="practical", solver="practical")
    assert proximal_schedule(wide, little).regime == "budget_too_small"
    assert proximal_schedule(replace(GROUND, lipschitz=1e200), PLAN).regime == "trivial_regime"


def test_no_iterate_goes_farther_than_all_radii_together() -> None:
    schedule = proximal_schedule(LARGE, replace(PLAN, weight="paper"))
    count = len(schedule.rounds)
    assert schedule.reach == pytest.approx(count * LARGE.lipschitz / (2 * LARGE.convexity), rel=1e-9)
    held = proximal_schedule(replace(LARGE, ridge=0.5), replace(PLAN, weight="paper"))
    assert held.reach < LARGE.lipschitz / 0.5 * (1 + 1e-12)
    away = proximal_schedule(replace(LARGE, ridge=0.5, start_norm=1.0), replace(PLAN, weight="paper"))
    assert held.reach < away.reach < LARGE.lipschitz / 0.5 + 2


@given(grounds)
@settings(max_examples=30, deadline=None)
def test_twice_the_units_halve_what_can_be_resolved(ground: ProximalConstants) -> None:
    twice = replace(ground, units=2 * ground.units)
    assert twice.resolution(1.0, 7) == pytest.approx(ground.resolution(1.0, 7) / 2, rel=1e-12)
    assert twice.halvings(1.0) == pytest.approx(ground.halvings(1.0) + ground.condition.kappa * log(2), rel=1e-9)
