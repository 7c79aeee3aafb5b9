"""KL-Spider's rounds: the printed figures to their digits, what they cost, and what they must obey."""

from math import fsum, inf, log, sqrt

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.methods.kl.concentration import noise_radius
from core.methods.kl.condition import KlCondition
from core.methods.kl.spider.schedule import (
    SpiderConstants,
    SpiderSchedule,
    Variant,
    calibrated,
    proved,
    proved_budget,
    resolution,
    rounds_needed,
    spider_schedule,
)
from core.privacy.events import Gaussian

CUBE = SpiderConstants(100_000, 10, 2, 3.0, 6.0, 1.0, KlCondition(gamma=1 / 3, kappa=1.5), 1.0)
"""|w|^3, continued linearly beyond 1 and started there, where a unit changes into any other."""
SQUARE = SpiderConstants(100_000, 10, 2, 2.0, 2.0, 1.0, KlCondition(gamma=0.5, kappa=2.0), 1.0)
DIGITS = 6e-9
"""Half a unit of the ninth digit, relatively."""


def on(ground: SpiderConstants, **changes: float) -> SpiderConstants:
    return SpiderConstants(**(ground.__dict__ | changes))


def noises(schedule: SpiderSchedule, ground: SpiderConstants, number: int) -> tuple[float, float | None]:
    """Return the standard deviations of a round's noise on its gradient and differences, in gradients' units."""
    one, per_unit = schedule.rounds[number], ground.replaced / ground.units
    difference = None if one.difference_sigma is None else one.difference_sigma * per_unit * one.cap
    return one.gradient_sigma * per_unit * ground.lipschitz, difference


class TestGolden:
    """Figures worked out by hand beforehand, to the digits they were given with."""

    @pytest.mark.parametrize(
        ("budget", "x0", "needed", "count", "failure", "floor", "sigma"),
        [
            (1.0, 3.16227766e-5, 678.686957, 679, 1.05690920e-6, 0.0305910901, 7.81728853e-4),
            (8 / 17, 4.60977223e-5, 654.000930, 655, 1.31098815e-6, 0.0517908326, 1.11923523e-3),
        ],
    )
    def test_heads(
        self, budget: float, x0: float, needed: float, count: int, failure: float, floor: float, sigma: float
    ) -> None:
        schedule = proved(CUBE, budget, 0.05)
        assert resolution(CUBE, budget) == pytest.approx(x0, rel=DIGITS)
        assert rounds_needed(CUBE, budget) == pytest.approx(needed, rel=DIGITS)
        assert len(schedule.rounds) == schedule.wanted == count
        assert schedule.failure == pytest.approx(failure, rel=DIGITS)
        assert schedule.floor == pytest.approx(floor, rel=DIGITS)
        assert noises(schedule, CUBE, 0)[0] == pytest.approx(sigma, rel=DIGITS)

    @pytest.mark.parametrize(
        ("budget", "number", "target", "steps", "sigma"),
        [
            (1.0, 1, 0.9770992366, 2, 1.0885881e-3),
            (1.0, 100, 0.09859783962, 3, 2.8897595e-4),
            (1.0, 679, 0.0305910901, 4, 1.5292651e-4),
            (8 / 17, 1, 0.9770992366, 2, 1.5585790e-3),
            (8 / 17, 100, 0.09859783962, 3, 4.1373945e-4),
            (8 / 17, 655, 0.0517908326, 3, 2.6935017e-4),
        ],
    )
    def test_rounds(self, budget: float, number: int, target: float, steps: int, sigma: float) -> None:
        schedule = proved(CUBE, budget, 0.05)
        one = schedule.rounds[number - 1]
        assert one.target == pytest.approx(target, rel=DIGITS)
        assert one.steps == steps
        assert noises(schedule, CUBE, number - 1)[1] == pytest.approx(sigma, rel=5e-8)

    @pytest.mark.parametrize(
        ("budget", "step", "threshold", "radius"),
        [(1.0, 0.012226627, 0.25675916, 41.6937), (8 / 17, 0.017367819, 0.36472419, 42.2154)],
    )
    def test_lengths(self, budget: float, step: float, threshold: float, radius: float) -> None:
        schedule = proved(CUBE, budget, 0.05)
        assert schedule.rounds[-1].step == pytest.approx(step, rel=5e-8)
        assert schedule.rounds[-1].threshold == pytest.approx(threshold, rel=2e-8)
        assert schedule.travel == pytest.approx(radius, rel=2e-6)

    @pytest.mark.parametrize(
        ("budget", "gradients", "differences"), [(1.0, 2.0, 0.08884082), (8 / 17, 0.94117647, 0.03788355)]
    )
    def test_costs(self, budget: float, gradients: float, differences: float) -> None:
        schedule = proved(CUBE, budget, 0.05)
        starts = fsum(1 / (2 * one.gradient_sigma**2) for one in schedule.rounds)
        assert starts == pytest.approx(gradients, rel=DIGITS)
        assert schedule.rho() - starts == pytest.approx(differences, rel=2e-7)

    def test_what_is_run_is_the_second_column(self) -> None:
        assert proved_budget(CUBE, 1.0) == pytest.approx(8 / 17, rel=1e-15)
        assert spider_schedule(CUBE, 1.0, 0.05, "proved", False) == proved(CUBE, proved_budget(CUBE, 1.0), 0.05)
        assert spider_schedule(CUBE, 1.0, 0.05, "proved", False).rho() == pytest.approx(0.97906002, rel=DIGITS)

    def test_squares(self) -> None:
        schedule = proved(SQUARE, 1.0, 0.05)
        assert schedule.wanted == 684
        assert schedule.failure == pytest.approx(3.65497076e-5, rel=DIGITS)
        assert schedule.floor == pytest.approx(7.15603636e-3, rel=DIGITS)
        assert noises(schedule, SQUARE, 0) == (pytest.approx(5.23067873e-4, rel=DIGITS), None)
        assert {one.steps for one in schedule.rounds} == {1}
        assert schedule.rho() == pytest.approx(2.0, rel=1e-12)
        assert proved(SQUARE, 0.5, 0.05).rho() == pytest.approx(1.0, rel=1e-12)

    def test_what_is_printed_costs_more_than_twice_its_budget(self) -> None:
        """The reason for the correction; one difference more at each round's end, as printed, adds to it."""
        printed = proved(CUBE, 1.0, 0.05)
        assert 2.0 < printed.rho() < 2.125
        extra = fsum(1 / (2 * (one.difference_sigma or inf) ** 2) for one in printed.rounds)
        assert 2.1 < printed.rho() + extra < 2.25


grounds = st.builds(
    lambda units, dimension, replaced, lipschitz, stretch, ratio, gamma, kappa, part: SpiderConstants(
        units,
        dimension,
        replaced,
        lipschitz,
        stretch / gamma**2 * (part * (gamma * lipschitz) ** kappa) ** ((2 - kappa) / kappa),
        ratio,
        KlCondition(gamma=gamma, kappa=kappa),
        part * (gamma * lipschitz) ** kappa,
    ),
    units=st.integers(10**4, 10**8),
    dimension=st.integers(1, 1000),
    replaced=st.sampled_from([1, 2]),
    lipschitz=st.floats(0.1, 10),
    stretch=st.floats(0.5, 3),
    ratio=st.sampled_from([0.3, 1.0, 1.0, 4.0]),
    gamma=st.floats(0.1, 10),
    kappa=st.one_of(st.just(2.0), st.floats(1.05, 1.99)),
    part=st.floats(0.01, 1),
)
budgets = st.floats(1e-3, 50)
variants = st.sampled_from(["proved", "calibrated"])


def predicted(schedule: SpiderSchedule, ground: SpiderConstants, rho: float, variant: Variant) -> float:
    """Return what rounds of these lengths are planned to cost: differences are not asked after a round's last step."""
    if ground.condition.kappa == 2:
        return rho
    between = [(one.steps - 1) / one.steps for one in schedule.rounds]
    if variant == "calibrated":
        between = [float(part > 0) for part in between]
        gradients, differences = 4 / (4 + ground.ratio), ground.ratio / (4 + ground.ratio)
    else:
        gradients, differences = (part / (16 + ground.ratio**2) for part in (16, ground.ratio**2))
    return rho * (gradients + differences * fsum(between) / len(between))


class TestRounds:
    @given(grounds, budgets, variants)
    @settings(max_examples=60, deadline=None)
    def test_cost_at_most_the_budget_and_no_less_than_planned(
        self, ground: SpiderConstants, rho: float, variant: Variant
    ) -> None:
        schedule = spider_schedule(ground, rho, 0.05, variant, True)
        assume(schedule.rounds)
        assume(schedule.answers < 50_000)
        assert schedule.rho() <= rho
        assert schedule.rho() == pytest.approx(predicted(schedule, ground, rho, variant), rel=1e-6)
        events = schedule.events()
        assert len(events) == schedule.answers
        assert all(isinstance(event, Gaussian) for event in events)

    @given(grounds, budgets, variants)
    @settings(max_examples=60, deadline=None)
    def test_estimates_are_as_good_as_the_proof_needs(
        self, ground: SpiderConstants, rho: float, variant: Variant
    ) -> None:
        """|G - grad F| is at most Phi^(1/kappa)/(8 gamma) in every round, but with probability beta'."""
        schedule = spider_schedule(ground, rho, 0.05, variant, False)
        assume(schedule.rounds)
        assert schedule.failure is not None
        if variant == "proved":
            length = 2 * sqrt(-ground.dimension * log(schedule.failure))
            assert length >= noise_radius(ground.dimension, schedule.failure)
        else:
            length = noise_radius(ground.dimension, schedule.failure)
        for number, one in enumerate(schedule.rounds):
            gradient, difference = noises(schedule, ground, number)
            deviation = sqrt(gradient**2 + (one.steps - 1) * (difference or 0.0) ** 2)
            slope = ground.condition.slope_at(one.target)
            assert length * deviation <= slope / 8 * (1 + 1e-9)

    @given(grounds, budgets, variants)
    @settings(max_examples=60, deadline=None)
    def test_targets_fall_to_the_floor_and_every_round_is_long_enough(
        self, ground: SpiderConstants, rho: float, variant: Variant
    ) -> None:
        schedule = spider_schedule(ground, rho, 0.05, variant, False)
        assume(schedule.rounds)
        assert schedule.certified == pytest.approx(schedule.floor, rel=1e-9)
        gain = (4 if variant == "proved" else 13) / 256
        before = ground.start_gap
        for one in schedule.rounds:
            lowered = one.steps * gain * one.target ** (2 / ground.condition.kappa)
            lowered /= ground.condition.gamma**2 * ground.smoothness
            assert before - lowered <= one.target * (1 + 1e-9)
            assert before >= one.target
            before = one.target

    @given(grounds, budgets)
    @settings(max_examples=40, deadline=None)
    def test_the_calibrated_form_certifies_less_in_fewer_rounds(self, ground: SpiderConstants, rho: float) -> None:
        printed, sharper = (spider_schedule(ground, rho, 0.05, variant, False) for variant in ("proved", "calibrated"))
        assume(printed.rounds)
        assert sharper.regime is None
        assert len(sharper.rounds) < len(printed.rounds)
        assert sharper.rounds[-1].target < printed.rounds[-1].target

    @given(grounds, budgets, st.sampled_from([0.001, 0.3]))
    @settings(max_examples=40, deadline=None)
    def test_the_calibrated_count_is_the_first_that_suffices(
        self, ground: SpiderConstants, rho: float, failure: float
    ) -> None:
        """The scan that skips what cannot suffice finds what a plain scan finds."""
        schedule = calibrated(ground, rho, failure)
        assume(schedule.wanted < 400)

        def floor(count: int, each: float) -> float:
            fac = 1 + ground.ratio / 4 if ground.condition.kappa < 2 else 1.0
            moved = ground.replaced * ground.lipschitz / ground.units
            error = noise_radius(ground.dimension, each) * fac * moved * sqrt(count / (2 * rho))
            return float((8 * ground.condition.gamma * error) ** ground.condition.kappa)

        fall = log(1 + 13 / (256 * ground.stretch))
        for count in range(1, 400):
            most = ground.steps_to(min(floor(count, failure / count), ground.start_gap))
            reached = floor(count, failure / (count * most))
            if log(ground.start_gap) - count * fall <= log(reached) or reached >= ground.start_gap:
                break
        assert schedule.wanted == count
        assert schedule.floor == pytest.approx(reached, rel=1e-9)

    @pytest.mark.parametrize("kappa", [2.0, 1.5])
    def test_twice_the_units_halve_all_noise_at_equal_rounds(self, kappa: float) -> None:
        ground = on(CUBE, condition=KlCondition(gamma=1 / 3, kappa=kappa))
        more = on(ground, units=2 * ground.units)
        budget = proved_budget(ground, 1.0)
        fewer, twice = proved(ground, budget, 0.05), proved(more, budget, 0.05)
        scale = sqrt(fewer.wanted / twice.wanted)
        assert noises(twice, more, 0)[0] * scale == pytest.approx(noises(fewer, ground, 0)[0] / 2, rel=1e-12)
        assert twice.rounds[50].steps == fewer.rounds[50].steps
        if kappa < 2:
            fine, coarse = noises(twice, more, 50)[1], noises(fewer, ground, 50)[1]
            assert fine is not None
            assert coarse is not None
            assert fine * scale == pytest.approx(coarse / 2, rel=1e-12)

    def test_a_quotient_that_is_one_but_for_rounding_is_one_step(self) -> None:
        flat = on(CUBE, condition=KlCondition(gamma=1 / 3, kappa=1.0))
        assert 1 / (1.0 - 2e-16) > 1
        assert flat.steps_to(1.0 - 2e-16) == 1
        assert flat.steps_to(0.99) == 2
        assert SQUARE.steps_to(1e-300) == 1

    def test_multipliers_are_the_same_under_both_adjacencies_at_equal_rounds(self) -> None:
        """They are relative to the true sensitivity, so only the number of rounds tells the adjacencies apart."""
        one, two = (spider_schedule(on(CUBE, replaced=s), 1.0, 0.05, "proved", False) for s in (1, 2))
        assert one.rounds[0].gradient_sigma / sqrt(one.wanted) == pytest.approx(
            two.rounds[0].gradient_sigma / sqrt(two.wanted), rel=1e-12
        )
        assert one.rounds[-1].target < two.rounds[-1].target

    def test_a_cap_for_units_smoother_or_rougher_than_their_mean(self) -> None:
        """Steps follow the mean, caps a unit; the budget shrinks, so that the proof still holds."""
        rough = spider_schedule(on(CUBE, ratio=5.0), 1.0, 0.05, "calibrated", False)
        even = spider_schedule(CUBE, 1.0, 0.05, "calibrated", False)
        assert rough.rounds[0].cap == pytest.approx(5 * even.rounds[0].cap)
        assert rough.rounds[0].step == even.rounds[0].step
        assert rough.rounds[-1].target > even.rounds[-1].target
        assert rough.rho() <= 1.0


class TestRegimes:
    def test_target_above_the_start(self) -> None:
        schedule = spider_schedule(on(CUBE, units=2), 1e-3, 0.05, "proved", True)
        assert schedule.regime == "target_above_F0"
        assert schedule.rounds == ()
        assert schedule.certified is None

    @pytest.mark.parametrize("variant", ["proved", "calibrated"])
    def test_floor_above_the_start(self, variant: Variant) -> None:
        few = on(CUBE, units=5_000 if variant == "proved" else 20)
        schedule = spider_schedule(few, 1.0, 0.05, variant, False)
        assert schedule.regime == "trivial_regime"
        assert schedule.rounds == ()
        assert schedule.floor is not None
        assert schedule.floor >= few.start_gap
        forced = spider_schedule(few, 1.0, 0.05, variant, True)
        assert forced.regime == "trivial_regime"
        assert forced.certified is None
        assert {round(one.target, 12) for one in forced.rounds} == {1.0}
        assert forced.rho() <= 1.0

    def test_no_estimate_s_failure_is_ever_likely(self) -> None:
        """Where noise is so large that the printed beta' would pass 1, and its logarithm change its sign."""
        schedule = proved(on(CUBE, units=20), 1.0, 0.05)
        assert schedule.regime == "trivial_regime"
        assert schedule.failure == pytest.approx(0.05 / (2 * schedule.wanted))

    @pytest.mark.parametrize("variant", ["proved", "calibrated"])
    def test_too_many_rounds(self, variant: Variant) -> None:
        schedule = spider_schedule(on(CUBE, smoothness=1e7, units=10**13), 1.0, 0.05, variant, False)
        assert schedule.regime == "too_many_rounds"
        assert schedule.rounds == ()

    def test_the_gap_is_cut_to_what_the_condition_allows(self) -> None:
        assert on(CUBE, gap=7.0).start_gap == pytest.approx(1.0)
        assert proved(on(CUBE, gap=7.0), 1.0, 0.05).floor == pytest.approx(proved(CUBE, 1.0, 0.05).floor, rel=1e-9)

    def test_constants_that_contradict_each_other(self) -> None:
        assert CUBE.consistent
        assert SQUARE.consistent
        assert not on(CUBE, smoothness=4.0).consistent
        assert not on(SQUARE, smoothness=1.9).consistent
