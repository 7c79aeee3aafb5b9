"""Predicted excess falls with units and budget, is found again by the inverse searches, and stands beside F0."""

from math import inf, log

import numpy as np
import pytest

from core.methods.kl import lower_bounds
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.kl.condition import KlCondition
from core.methods.kl.rates import promised_excess, smallest_rho, smallest_units
from core.methods.kl.spider.spec import KlSpider
from core.privacy.conversions import mu_of_rho, textbook_epsilon
from studies.kl.problems import Constants, power
from studies.kl.rates import crossover_units, rates, settings_for

CUBE = power(3.0)
SQUARE = power(2.0)
SIZES = np.array([10**5, 10**6, 10**7, 10**8])


def exponent(values: list[float], sizes: np.ndarray = SIZES) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


class TestPredictions:
    def test_a_schedule_of_the_paper_is_found_again(self) -> None:
        """Golden values of kappa = 1.5, n = 1e5, d = 10, rho = 1, beta = .05."""
        facts = CUBE.facts(10**5, 10)
        plan = settings_for("kl_spider", CUBE).plan(facts, mu_of_rho(1.0))
        figures, bound = plan.excess(facts), plan.bound(facts)
        assert figures.rounds == 655
        assert figures.noise == pytest.approx(1.11923523e-3, rel=1e-6)
        assert bound.value == promised_excess(plan, facts, 1.0) == pytest.approx(0.0517908326, rel=1e-6)
        assert bound.confidence == 0.95
        assert bound.trivial == 1.0
        assert not bound.vacuous

    @pytest.mark.parametrize("method", ["kl_spider", "adaptive_gd"])
    @pytest.mark.parametrize("constants", [SQUARE, CUBE], ids=["square", "cube"])
    def test_more_units_more_budget_or_fewer_parameters_promise_less_excess(
        self, method: str, constants: Constants
    ) -> None:
        settings = settings_for(method, constants)

        def value(units: int = 10**6, dimension: int = 10, rho: float = 1.0) -> float:
            found = promised_excess(settings, constants.facts(units, dimension), rho)
            assert found is not None
            return found

        assert value(units=4 * 10**6) < value() < value(units=5 * 10**5)
        assert value(rho=4.0) < value() < value(rho=0.5)
        assert value(dimension=5) <= value() < value(dimension=1000 if method == "kl_spider" else 10**6)

    @pytest.mark.parametrize(("constants", "kappa"), [(SQUARE, 2.0), (CUBE, 1.5)])
    def test_spider_falls_as_n_to_the_minus_kappa_and_adaptive_descent_half_as_fast(
        self, constants: Constants, kappa: float
    ) -> None:
        for method, slope, within in (("kl_spider", -kappa, 0.25), ("adaptive_gd", -kappa / 2, 0.12)):
            settings = settings_for(method, constants)
            found = [promised_excess(settings, constants.facts(int(n), 10), 1.0) for n in SIZES[:3]]
            assert exponent(found, SIZES[:3]) == pytest.approx(slope, abs=within)

    def test_a_refused_plan_promises_nothing(self) -> None:
        """Too few units; a smooth method and sharp minima, and the other way round."""
        sharp = power(1.5)
        assert promised_excess(settings_for("kl_spider", CUBE), CUBE.facts(100, 10), 1.0) is None
        assert promised_excess(settings_for("kl_spider", sharp), sharp.facts(1000, 1), 1.0) is None
        assert promised_excess(settings_for("proximal_point", sharp), sharp.facts(2000, 10), 1.0) < 1.0
        assert promised_excess(settings_for("proximal_point", CUBE), CUBE.facts(2000, 10), 1.0) is None


class TestInverse:
    settings = settings_for("kl_spider", SQUARE).model_copy(update={"variant": "calibrated"})

    def test_the_smallest_rho_reaches_the_target_and_a_little_less_does_not(self) -> None:
        facts = SQUARE.facts(10**6, 10)
        rho = smallest_rho(self.settings, facts, 1e-3)
        assert promised_excess(self.settings, facts, rho) <= 1e-3
        less = promised_excess(self.settings, facts, rho / 1.002)
        assert less is None or less > 1e-3

    def test_the_smallest_number_of_units_reaches_the_target_and_a_little_less_does_not(self) -> None:
        units = smallest_units(self.settings, SQUARE.facts(10, 10), 1.0, 1e-3)
        assert promised_excess(self.settings, SQUARE.facts(units, 10), 1.0) <= 1e-3
        less = promised_excess(self.settings, SQUARE.facts(int(units / 1.002), 10), 1.0)
        assert less is None or less > 1e-3

    def test_units_and_budget_stand_for_each_other_in_spider(self) -> None:
        """Everything is a function of n sqrt(rho)."""
        units = smallest_units(self.settings, SQUARE.facts(10, 10), 1.0, 1e-3)
        rho = smallest_rho(self.settings, SQUARE.facts(10 * units, 10), 1e-3)
        assert rho == pytest.approx(0.01, rel=0.01)

    def test_what_no_budget_reaches_is_none(self) -> None:
        adaptive = settings_for("adaptive_gd", SQUARE)
        assert smallest_rho(adaptive, SQUARE.facts(100, 10), 1e-12) is None
        assert smallest_units(adaptive, SQUARE.facts(100, 10), 1.0, 1e-30) is None

    def test_the_crossover_is_where_the_order_changes(self) -> None:
        adaptive = settings_for("adaptive_gd", SQUARE)
        plain = settings_for("kl_spider", SQUARE)
        units = crossover_units(plain, adaptive, SQUARE.facts(10, 10), 1.0)

        def values(n: int) -> list[float | None]:
            return [promised_excess(one, SQUARE.facts(n, 10), 1.0) for one in (plain, adaptive)]

        one, other = values(units)
        assert one < other
        one, other = values(int(units / 1.01))
        assert one is None or one >= other


class TestPrintedRates:
    def test_exponents_are_those_of_the_theorems(self) -> None:
        for constants, kappa in ((SQUARE, 2.0), (CUBE, 1.5), (power(4.0), 4 / 3)):
            found = [rates(constants, int(n), 10, 1.0) for n in SIZES]
            assert exponent([one.x for one in found]) == pytest.approx(-1)
            assert exponent([one.spider for one in found]) == pytest.approx(-kappa)
            # Logarithms of n in p_max and A take something off.
            assert exponent([one.many for one in found]) == pytest.approx(-2 * kappa / (4 - kappa), abs=0.2)
            assert exponent([one.few for one in found]) == pytest.approx(-kappa / 2, abs=0.1)

    def test_few_parameters_are_in_one_regime_and_many_in_the_other(self) -> None:
        for constants in (SQUARE, CUBE):
            few, many = (rates(constants, 10**6, dimension, 1.0) for dimension in (1, 10**9))
            assert few.few > few.many
            assert many.many > many.few

    def test_the_third_term_is_nothing_at_kappa_2_or_no_guarantee(self) -> None:
        assert rates(SQUARE, 10**6, 10, 1.0).late == 0.0
        assert rates(SQUARE, 50, 10, 1.0).late is None
        assert rates(SQUARE, 50, 10, 1.0).adaptive is None
        found = rates(CUBE, 10**6, 10, 1.0)
        assert 0 < found.late < found.few
        assert found.adaptive == pytest.approx(found.many + found.few + found.late)

    def test_sharp_minima_have_the_rate_of_the_proximal_point_alone(self) -> None:
        found = rates(power(1.5), 10**6, 10, 1.0)
        assert found.spider is None
        assert found.adaptive is None
        assert found.proximal == pytest.approx(found.x**3)


class TestLowerBounds:
    def test_spider_is_never_promised_less_than_what_no_method_beats(self) -> None:
        for constants in (SQUARE, CUBE):
            for n in SIZES[:3]:
                facts = constants.facts(int(n), 10)
                plan = settings_for("kl_spider", constants).plan(facts, mu_of_rho(1.0))
                lower = plan.excess(facts).lower
                assert lower.value < plan.bound(facts).value
                assert not lower.exact

    def test_the_exact_one_is_that_of_theorem_23(self) -> None:
        assert lower_bounds.sharp(1000, 0.5, 3.0).value == pytest.approx(0.25 * 500**-3)
        assert lower_bounds.sharp(1000, 0.8, 3.0) is None
        assert lower_bounds.sharp(1000, 0.5, 1.5) is None

    def test_its_epsilon_is_what_a_budget_implies(self) -> None:
        epsilon = lower_bounds.sharp_epsilon(0.001)
        assert textbook_epsilon(0.001, (1 - np.exp(-epsilon)) / 16) == pytest.approx(epsilon)
        assert epsilon < log(2)
        assert lower_bounds.sharp_epsilon(1.0) == inf

    def test_convex_losses_without_growth(self) -> None:
        found = lower_bounds.convex(units=1000, dimension=100, epsilon=1.0, lipschitz=2.0, distance=3.0)
        assert found.value == pytest.approx(0.06)
        assert lower_bounds.smooth(KlCondition(gamma=1.0, kappa=1.0), units=10, dimension=1, rho=1, lipschitz=1) is None


def test_settings_without_a_condition_have_neither_promise_nor_figures() -> None:
    facts = SQUARE.facts(10**5, 10)
    assert promised_excess(KlSpider(), facts, 1.0) is None
    assert AdaptiveGradientDescent().plan(facts, 1.0).excess(facts) is None
