"""Adaptive noisy gradient descent before it runs: its plan, its prices to the printed digits, and its promise."""

from collections import Counter
from math import isclose, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from core.base.errors import Invalid
from core.methods.kl.adaptive_gd.spec import (
    LARGEST_SIGMA,
    MOST_STEPS,
    AdaptiveGradientDescent,
    AdaptiveGradientDescentPlan,
)
from core.methods.kl.adaptive_gd.theory import Trajectory, excess_risk, least_slope
from core.methods.kl.concentration import noise_radius
from core.methods.kl.condition import KlCondition
from core.planning.planner import MOST_METHOD_CHUNKS, check_lattice, chunks
from core.privacy.events import compose
from core.privacy.facts import Adjacency, Facts
from core.privacy.renyi import cost, cost_nano
from core.queries.gradients import Gradient, LeastGradient
from studies.kl.problems import power
from tests.support.printed_adaptive import Rule

ORDERS = (2, 4, 9, 22)
METHOD = AdaptiveGradientDescent()
PAPER = AdaptiveGradientDescent(preset="paper")


def facts(**options: object) -> Facts:
    """Return the golden example's public facts, or others."""
    golden = {
        "units": 10_000,
        "dimension": 100,
        "adjacency": Adjacency.REPLACE_ONE,
        "gradient_bound": 2.0,
        "smoothness": 2.0,
        "start_gap": 1.0,
    }
    return Facts.model_validate(golden | options)


def rho_of(event_sigma: float) -> float:
    return 1 / (2 * event_sigma**2)


class TestGoldenValues:
    """n = 10,000, d = 100, rho = 0.5, beta = 0.05, L0 = 2: the paper's noise, and what it really costs."""

    settings = PAPER.plan(facts(), 1.0)
    sensitivity = Gradient(sigma=1.0).sensitivity(facts())

    def test_a_norm(self) -> None:
        assert self.settings.norm_question().sigma * self.sensitivity == pytest.approx(0.0237841423, rel=1e-9)
        assert self.settings.norm_price == pytest.approx(1.41421356e-4, rel=1e-8)
        assert self.settings.affordable_norms == self.settings.steps == 3535

    def test_the_least_noise_on_a_gradient(self) -> None:
        assert self.settings.least_sigma * self.sensitivity == pytest.approx(5.65685425e-4, rel=1e-8)
        assert rho_of(self.settings.least_sigma) == pytest.approx(0.25, rel=1e-12)

    def test_the_printed_radius(self) -> None:
        assert self.settings.noise_length(facts()) == pytest.approx(sqrt(100 * 11.8594990553), rel=1e-11)

    @pytest.mark.parametrize(
        ("norm", "deviation", "printed", "true"),
        [(0.5, 0.0145190042, 2.60462663e-4, 5.20925326e-4), (0.05, 1.45190042e-3, 0.0190459092, 0.0380918183)],
    )
    def test_a_gradient(self, norm: float, deviation: float, printed: float, true: float) -> None:
        question = self.settings.gradient_question(norm, facts())
        assert question is not None
        assert question.sigma * self.sensitivity == pytest.approx(deviation, rel=1e-8)
        both = self.settings.norm_price + rho_of(question.sigma)
        assert both == pytest.approx(true, rel=1e-8)
        assert both == pytest.approx(2 * printed, rel=1e-8), "print charges half"
        assert cost(question.event(), 2) == pytest.approx(2 * rho_of(question.sigma), rel=1e-12)

    @pytest.mark.parametrize("norm", [1e-4, -0.02, -0.05])
    def test_no_gradient_is_asked_for_where_the_printed_noise_would_be_at_its_floor(self, norm: float) -> None:
        assert self.settings.gradient_question(norm, facts()) is None

    @pytest.mark.parametrize(
        ("norm", "printed", "true"),
        [
            (0.5, 2.60462663e-4, 5.20925326e-4),
            (0.05, 0.0190459092, 0.0380918183),
            (1e-4, 0.2500707107, 0.2501414214),
            (-0.02, 0.1186657011, 0.2501414214),
            (-0.05, 0.0190459092, 0.2501414214),
        ],
    )
    def test_the_printed_rule_of_the_audits_is_the_printed_one(self, norm: float, printed: float, true: float) -> None:
        rule = Rule(10_000, 100, 0.5, 0.05, 2.0)
        assert float(rule.charge(norm)) == pytest.approx(printed, rel=1e-8)
        assert float(rule.cost(norm)) == pytest.approx(true, rel=1e-9)

    def test_the_corrected_constants(self) -> None:
        settings = METHOD.plan(facts(), 1.0)
        assert (settings.multiple, settings.radius_rule) == (2.0, "exact")
        length = noise_radius(100, 0.05 / 7070)
        assert settings.noise_length(facts()) == pytest.approx(length, rel=1e-12)
        question = settings.gradient_question(0.5, facts())
        assert question is not None
        assert question.sigma * self.sensitivity == pytest.approx(0.25 / length, rel=1e-12)

    def test_one_record_zeroed_out_costs_a_quarter(self) -> None:
        """The noise is as printed under both adjacencies; its cost is not."""
        settings = PAPER.plan(facts(adjacency=Adjacency.ZERO_OUT), 1.0)
        assert settings.norm_price == pytest.approx(1.41421356e-4 / 4, rel=1e-8)
        question = settings.gradient_question(0.5, facts(adjacency=Adjacency.ZERO_OUT))
        assert question is not None
        assert rho_of(question.sigma) == pytest.approx((5.20925326e-4 - 1.41421356e-4) / 4, rel=1e-6)

    def test_a_step_cap_sizes_the_noise_on_norms_for_so_many(self) -> None:
        settings = AdaptiveGradientDescent(step_cap=40).plan(facts(), 1.0)
        assert settings.norm_sigma == pytest.approx(sqrt(40 / (2 * 0.25 * 0.5)), rel=1e-12)
        assert 40 * settings.norm_price == pytest.approx(0.25 * 0.5, rel=1e-12)
        assert settings.affordable_norms == 160


@pytest.mark.parametrize("select", ["last", "exponential"])
@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 1.4142135623730951, 7.0])
def test_what_is_reserved_is_the_budget_and_no_more(select: str, mu: float) -> None:
    settings = AdaptiveGradientDescent.model_validate({"select": select}).plan(facts(units=10**7), mu)
    schedule = settings.schedule(facts())
    assert len(chunks(schedule)) == len(schedule) == MOST_METHOD_CHUNKS, "each slice is a payment of its own"
    whole = cost_nano(compose(Counter(schedule)), ORDERS)
    assert all(nano <= -(-order * mu**2 / 2 * 1e9 // 1) for nano, order in zip(whole, ORDERS, strict=True))
    exact = cost(compose(Counter(schedule)), 2)
    if select == "exponential":
        chosen, share = cost(schedule[-1], 2), 0.1 * mu**2
        assert isclose(exact, 0.9 * mu**2 + chosen, rel_tol=1e-12)
        # a bounded range never costs more than its epsilon, which is less than its quadratic price where mu is large
        assert chosen == pytest.approx(min(share, schedule[-1].epsilon), rel=1e-12)
        assert (chosen < 0.99 * share) == (mu == 7)
    else:
        assert isclose(exact, mu**2, rel_tol=1e-12)


@given(norm=st.floats(-10, 10), units=st.integers(1000, 10**9), dimension=st.integers(1, 10**6), mu=st.floats(0.1, 10))
def test_every_gradient_that_is_asked_for_is_between_the_announced_extremes(
    norm: float, units: int, dimension: int, mu: float
) -> None:
    public = facts(units=units, dimension=dimension)
    settings = METHOD.plan(public, mu)
    question = settings.gradient_question(norm, public)
    sigmas = [one.sigma for one in settings.questions() if isinstance(one, Gradient)]
    if question is None:
        return
    assert norm > 0
    assert min(sigmas) < question.sigma <= max(sigmas) == LARGEST_SIGMA
    assert rho_of(question.sigma) < settings.rho / 2


def test_the_lattice_carries_the_extremes() -> None:
    settings = AdaptiveGradientDescent(select="exponential").plan(facts(units=10**8, dimension=10**5), 1.0)
    check_lattice(settings.questions(), facts(units=10**8, dimension=10**5), "/privacy")
    assert any(isinstance(one, LeastGradient) for one in settings.questions())


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "known", "pointer"),
        [
            ({}, {"smoothness": None}, "/optimizer/smoothness"),
            ({"selection_share": 0.5}, {}, "/optimizer/selection_share"),
            ({}, {"units": 10}, "/privacy"),
        ],
    )
    def test_each_names_its_field(self, options: dict[str, object], known: dict[str, object], pointer: str) -> None:
        with pytest.raises(Invalid) as refused:
            AdaptiveGradientDescent.model_validate(options).plan(facts(**known), 0.05)
        assert [field.pointer for field in refused.value.fields] == [pointer]

    def test_a_budget_for_no_norm_is_called_by_its_name(self) -> None:
        with pytest.raises(Invalid, match="budget_too_small"):
            METHOD.plan(facts(units=100), 0.02)
        assert METHOD.plan(facts(units=100), 0.03).affordable_norms == 1

    @pytest.mark.parametrize("beta", [0.0, 1.0, float("nan")])
    def test_a_failure_probability_is_one(self, beta: float) -> None:
        with pytest.raises(ValidationError):
            AdaptiveGradientDescent(beta=beta)


def test_what_is_given_is_kept_and_a_plan_is_final() -> None:
    given = AdaptiveGradientDescent(multiple=3.0, radius_rule="paper", smoothness=7.0, mu=0.5, start=(0.0,) * 100)
    settings = given.plan(facts(), 1.0)
    assert (settings.multiple, settings.radius_rule, settings.smoothness, settings.mu) == (3.0, "paper", 7.0, 0.5)
    assert settings.start_gap == 1.0
    assert settings.plan(facts(), 1.0) == settings
    assert TypeAdapter(AdaptiveGradientDescentPlan).validate_json(settings.model_dump_json()) == settings
    assert settings.passes(facts()) >= 4 * settings.steps > 0
    assert METHOD.plan(facts(units=10**9), 1.0).steps == MOST_STEPS


def run(**options: object) -> Trajectory:
    """Return figures at which every term of a bound can be checked by hand."""
    plain = {
        "dimension": 10,
        "lipschitz": 2.0,
        "smoothness": 2.0,
        "multiple": 2.0,
        "length": noise_radius(10, 0.025 / 5000),
        "least": 1e-3,
        "slack": 1e-2,
        "norms": 5000,
        "steps": 5000,
        "beta": 0.05,
        "start_gap": 1.0,
        "choice": None,
    }
    return Trajectory(**(plain | options))  # type: ignore[arg-type]  # a table of figures


class TestPromise:
    def test_constants_of_the_descent(self) -> None:
        """C = 2 gives the 1/8, 1/8 and 3/32 of the corrected proof."""
        assert (run().fall, run().rise, run().steep_fall) == (0.125, 0.125, 0.09375)
        assert run().confidence == pytest.approx(0.95)

    def test_polyak_lojasiewicz(self) -> None:
        terms = excess_risk(run(), KlCondition(gamma=0.5, kappa=2.0))
        rate = 0.09375 / (2 * 0.25)
        assert terms.small_gradient == pytest.approx((0.5 * 0.011) ** 2)
        assert terms.norms == pytest.approx((0.5 * 0.02) ** 2 + 1e-4 / 16)
        assert terms.gradients == pytest.approx(8 * (0.5e-3) ** 2 / rate)
        assert log(terms.steps) == pytest.approx(-rate * 2499)

    def test_flat_minima(self) -> None:
        terms = excess_risk(run(lipschitz=3.0), KlCondition(gamma=1 / 3, kappa=1.5))
        rate, paid = 0.09375 / (2 / 9), 8 * (1e-3 / 3) ** 2
        assert terms.gradients == pytest.approx((paid / (rate * 5 / 3)) ** 0.6)
        assert terms.steps == pytest.approx((1 + rate / 3 * 2499) ** -3)

    def test_exponents_of_both_regimes(self) -> None:
        """kappa/2 in 1/n for noise on norms, 2 kappa/(4 - kappa) for noise on gradients, less what logarithms take."""
        for exponent in (2.0, 3.0, 4.0):
            constants = power(exponent)
            kappa, method = constants.kappa, AdaptiveGradientDescent(condition=constants.condition)
            terms = []
            for units in (10**8, 10**10):
                public = constants.facts(units, 10)
                terms.append(excess_risk(method.plan(public, 1.0).trajectory(public), constants.condition))
            few, many = (log(getattr(terms[0], name) / getattr(terms[1], name)) for name in ("norms", "gradients"))
            assert 0.94 < few / log(100) / (kappa / 2) < 1
            assert 0.94 < many / log(100) / (2 * kappa / (4 - kappa)) < 1

    def test_without_a_condition_a_gradient_norm(self) -> None:
        least = least_slope(run())
        assert least == pytest.approx(max(0.02, (8 * 2 * 1e-6 / 0.09375) ** 0.25, sqrt((2 / 2499 + 1e-4 / 8) * 8)))
        settings = AdaptiveGradientDescent(select="least_norm").plan(facts(), 1.0)
        bound = settings.bound(facts())
        assert bound.quantity.startswith("gradient norm")
        assert bound.value is not None
        assert bound.trivial == 2.0
        drawn = AdaptiveGradientDescent(select="exponential").plan(facts(), 1.0).bound(facts())
        assert drawn.value is not None
        assert drawn.value > bound.value, "a draw costs a share of the budget and errs"
        assert drawn.confidence == pytest.approx(0.925)

    @pytest.mark.parametrize(
        ("options", "known"),
        [
            ({}, {}),  # the last iterate, of which theorem 14 says nothing
            ({"select": "least_norm"}, {"start_gap": None}),
            ({"select": "least_norm", "preset": "paper"}, {}),
            ({"preset": "paper", "condition": {"gamma": 0.5}}, {}),
            ({"condition": {"gamma": 0.5, "kappa": 3}}, {}),
        ],
    )
    def test_nothing_is_promised_where_no_proof_goes_through(
        self, options: dict[str, object], known: dict[str, object]
    ) -> None:
        settings = AdaptiveGradientDescent.model_validate(options).plan(facts(**known), 1.0)
        bound = settings.bound(facts(**known))
        assert (bound.value, bound.confidence, bound.vacuous) == (None, None, True)

    def test_under_a_condition_the_choice_is_bounded_by_its_gradient(self) -> None:
        condition = KlCondition(gamma=0.5)
        method = AdaptiveGradientDescent(select="least_norm", condition=condition)
        chosen = method.plan(facts(), 1.0).bound(facts())
        slope = method.model_copy(update={"condition": None}).plan(facts(), 1.0).bound(facts()).value
        assert slope is not None
        assert chosen.value == pytest.approx(condition.gap_at(slope))

    def test_more_budget_promises_less(self) -> None:
        method = AdaptiveGradientDescent(condition=KlCondition(gamma=0.5))
        values = [
            method.plan(facts(units=units), 1.0).bound(facts(units=units)).value for units in (10**4, 10**5, 10**6)
        ]
        assert values == sorted(values, key=lambda value: -(value or 0.0))
        assert not method.plan(facts(units=10**6), 1.0).bound(facts(units=10**6)).vacuous
        assert method.plan(facts(units=400), 1.0).bound(facts(units=400)).vacuous


def test_the_card_names_what_nobody_checks() -> None:
    card = AdaptiveGradientDescent.card()
    assert card.kind == METHOD.kind
    assert {assumption.checked for assumption in card.assumptions} == {"static", "declared"}
    assert not METHOD.offers_intervals
