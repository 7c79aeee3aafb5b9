"""The paper's parameters: the identities they are made of, what they come to, and where nobody can use them."""

from fractions import Fraction
from math import log2, sqrt

import pytest

from core.methods.second_order.rates import (
    SecondOrderConstants,
    rate_excess,
    rate_terms,
    theorem_batches,
    theorem_rate,
)
from core.methods.second_order.theory import Constants, Form, NoFixedPoint, Theory, reserved, theory_params
from core.privacy.conversions import gdp_mu

Z = 1 / gdp_mu(1.0, 1e-5)
PRINTED = Constants(form="printed", log_dimension=False)


def unit_problem(units: float, **other: float) -> SecondOrderConstants:
    """Return G = M = rho = U = 1 in 20 dimensions."""
    usual = {"lipschitz": 1, "smoothness": 1, "hessian_smoothness": 1, "start_gap": 1, "dimension": 20, "units": units}
    return SecondOrderConstants.model_validate(usual | other)


@pytest.mark.parametrize(
    ("units", "alpha"), [(6e3, 299), (6e4, 99), (1e6, 39), (1e9, 4.9), (1e12, 0.59)], ids=lambda value: f"{value:g}"
)
def test_the_printed_constants_are_vacuous_below_a_million_million_records(units: float, alpha: float) -> None:
    found = theory_params(unit_problem(units), 1.0, Z, PRINTED)
    assert found.alpha == pytest.approx(alpha, rel=0.012)
    assert (found.gamma_star > 1) is (units < 1e12)
    assert any("sqrt(rho alpha)" in reason for reason in found.infeasible) is (units < 1e12)
    assert any("2 Q (b1 + Gamma b2)" in reason for reason in found.infeasible), "O(n) records are not n records"


def test_the_proof_s_own_constant_takes_more_records_than_there_are() -> None:
    proved = Constants(form="printed", scale=6400.0, log_dimension=False)
    assert (
        theory_params(unit_problem(1e17), 1.0, Z, proved).alpha
        > 1
        > theory_params(unit_problem(1e18), 1.0, Z, proved).alpha
    )


@pytest.mark.parametrize("form", ["printed", "corrected"])
@pytest.mark.parametrize("units", [6e3, 1e9, 1e18])
def test_identities_of_equation_5(form: Form, units: float) -> None:
    found = theory_params(unit_problem(units), 1.0, Z, Constants(form=form))
    iota = found.log_factor
    assert found.alpha == pytest.approx(4 * found.error_radius)
    assert found.gamma_star == pytest.approx(sqrt(found.alpha))
    assert found.step_size == pytest.approx(found.gamma_star / iota**2)
    assert found.escape_distance == pytest.approx(sqrt(found.alpha) / iota**1.5)
    assert found.round_steps >= iota / (found.step_size * found.gamma_star)
    assert found.decrease == pytest.approx(1 / (8 * iota ** (3 if form == "printed" else 4)) * found.alpha**1.5)
    assert found.error_radius >= 4 * found.log_factor**2 * found.error * (1 - 1e-5)


def test_the_guaranteed_decrease_has_the_fourth_power() -> None:
    """R^2/(4 eta Gamma) is s/(4 iota^4) sqrt(alpha^3/rho), iota times less than the print has; half of it is left."""
    found = theory_params(unit_problem(1e12), 1.0, Z, Constants(form="corrected"))
    gamma = found.log_factor / (found.step_size * found.gamma_star)
    moved = found.escape_distance**2 / (4 * found.step_size * gamma)
    assert moved == pytest.approx(1 / (4 * found.log_factor**4) * found.alpha**1.5)
    assert found.decrease == pytest.approx(moved / 2)


Monomial = dict[str, Fraction]
"""Exponents by letter: a product of powers, exactly."""


def product(*factors: tuple[Monomial, Fraction | int]) -> Monomial:
    """Return a product of powers of monomials; letters whose exponents cancel are gone."""
    total: Monomial = {}
    for monomial, power in factors:
        for letter, exponent in monomial.items():
            total[letter] = total.get(letter, Fraction(0)) + exponent * power
    return {letter: exponent for letter, exponent in total.items() if exponent}


def letters(**exponents: float) -> Monomial:
    return {letter: Fraction(exponent) for letter, exponent in exponents.items()}


def test_the_fourth_power_symbolically() -> None:
    """R^2/(4 eta Gamma) of equation 5 in letters: iota^-4, one iota less than the print's; and half of it a step."""
    distance = letters(alpha=0.5, rho=-0.5, iota=-1.5)
    step = letters(rho=0.5, alpha=0.5, M=-2, iota=-2)
    length = product((letters(iota=1, s=-1, rho=-0.5, alpha=-0.5), 1), (step, -1))
    moved = product((distance, 2), (letters(two=-2), 1), (step, -1), (length, -1))
    assert moved == letters(two=-2, s=1, iota=-4, alpha=1.5, rho=-0.5)
    printed = letters(two=-2, s=1, iota=-3, alpha=1.5, rho=-0.5)
    assert product((moved, 1), (printed, -1)) == letters(iota=-1)
    phi = product((moved, 1), (letters(two=-1), 1))
    in_chi = product((phi, 1), (length, -1), (letters(alpha=-2), 1), (letters(two=4, chi=2), 1))  # alpha = 4 chi
    in_mu = product((in_chi, 1), (letters(iota=5), 1), (letters(s=-5, mu=-5), 1))  # iota = s mu
    assert product((in_mu, 1), (step, -1)) == letters(two=1, chi=2, s=-3, mu=-5), "2 chi^2 eta/(s^3 mu^5)"


def test_the_corrected_condition_of_growth_is_the_harder_one() -> None:
    found = theory_params(unit_problem(1e12), 1.0, Z, Constants(form="corrected"))
    growth = 40 * sqrt(2 * found.gamma_star) * found.escape_distance / (sqrt(found.step_size) * found.noise)
    assert 2**found.log_factor >= growth * (1 - 1e-4)
    printed = theory_params(unit_problem(1e12), 1.0, Z, Constants(form="printed"))
    needed = 40 * sqrt(2 * printed.gamma_star) * printed.escape_distance / (sqrt(printed.step_size) * printed.noise)
    assert printed.log_factor < log2(needed), "the print's own mu does not satisfy it"


class TestRules:
    def test_one_dimension_keeps_the_sampling_error(self) -> None:
        found = theory_params(unit_problem(1e9, dimension=1), 1.0, Z)
        assert found.error > 0
        assert any(rule.startswith("log d") for rule in found.fired)
        assert not any(rule.startswith("log d") for rule in theory_params(unit_problem(1e9), 1.0, Z).fired)

    def test_logarithms_below_one_count_as_one_and_say_so(self) -> None:
        loud = theory_params(unit_problem(6e3), 1.0, 1e6 * Z, PRINTED)
        assert any(rule.startswith("mu") for rule in loud.fired)
        assert loud.log_factor >= 1
        assert loud.rounds >= 1
        assert loud.round_steps >= 1

    @pytest.mark.parametrize(("failure", "epsilon", "multiplier"), [(0.0, 1, Z), (1.0, 1, Z), (0.1, 0, Z), (0.1, 1, 0)])
    def test_what_is_no_probability_or_no_noise_is_refused(
        self, failure: float, epsilon: float, multiplier: float
    ) -> None:
        with pytest.raises(ValueError, match=r"between 0 and 1|positive|no noise"):
            theory_params(unit_problem(1e9), epsilon, multiplier, Constants(failure=failure))

    def test_batches_of_less_than_a_record_are_never_rounded_up(self) -> None:
        found = theory_params(unit_problem(10.0), 1.0, 1e-3, PRINTED)
        small = [name for name, size in (("b1", found.batch), ("b2", found.difference_batch)) if size < 1]
        large = [name for name, size in (("b1", found.batch), ("b2", found.difference_batch)) if size > 10]
        assert small or large
        for name in (*small, *large):
            assert any(reason.startswith(f"{name} = ") for reason in found.infeasible)

    def test_what_overflows_does_not_settle(self) -> None:
        with pytest.raises((NoFixedPoint, OverflowError)):
            theory_params(unit_problem(1e9), 1.0, 1e300)

    def test_the_failure_of_rounds_is_what_it_says(self) -> None:
        found = theory_params(unit_problem(1e12), 1.0, Z, Constants(failure=0.05))
        phase = found.decrease * 0.05 / 2
        assert (7 / 8) ** found.rounds <= phase


def test_all_fourteen_cases_settle() -> None:
    found = [
        theory_params(unit_problem(units), 1.0, Z, Constants(form="printed", scale=scale))
        for scale in (1.0, 6400.0)
        for units in (6e3, 6e4, 1e6, 1e9, 1e12, 1e15, 1e18)
    ]
    assert all(isinstance(one, Theory) for one in found)


class TestRates:
    def test_theorem_2_balances_its_terms(self) -> None:
        """Each branch of kappa makes two terms of the squared error equal; exponents as derived."""
        ground = unit_problem(1e7, dimension=20)
        found = theorem_batches(ground, 1.0, 0.1, 0.01)
        assert found.branch == "sampling"
        assert found.drift == pytest.approx(1e7**-0.5)
        assert found.batch == pytest.approx(1e7 * found.drift / 0.2)
        assert found.difference_batch == pytest.approx(1e7 * 0.1 * 0.01**2 / 2)
        private = theorem_batches(unit_problem(1e3, dimension=10**9), 0.1, 0.1, 0.01)
        assert private.branch == "privacy"
        assert private.drift == pytest.approx((10**9) ** 0.4 / (1e3 * 0.1) ** 0.8)

    def test_clients_help_sampling_in_full_and_privacy_by_their_root(self) -> None:
        alone, together = unit_problem(1e6), unit_problem(1e6, clients=16)
        assert (together.all_units, together.private_units) == (16e6, 4e6)
        assert theorem_rate(together, 1.0) == pytest.approx((1 / 16e6) ** (1 / 3) + (sqrt(20) / 4e6) ** (2 / 5))
        assert theorem_rate(alone, 1.0) == pytest.approx(1e6 ** (-1 / 3) + (sqrt(20) / 1e6) ** (2 / 5))

    def test_the_left_out_term_passes_by_a_42nd_power_at_most(self) -> None:
        units = 6e4
        worst = max(rate_excess(dimension, units, 1.0) for dimension in range(1, 2000))
        assert worst == pytest.approx(units ** (1 / 42), rel=1e-3)
        assert worst == pytest.approx(1.30, abs=0.005)
        assert rate_excess(1, 1e12, 1e3) == 1.0
        first, second, third = rate_terms(20, units, 1.0)
        assert first == pytest.approx(units ** (-1 / 3))
        assert third == pytest.approx(second ** (5 / 7) * first ** (3 / 14))


def test_a_certificate_must_be_affordable_twice() -> None:
    assert reserved(6, 1000, 32, 10) == 2 * 6 * (1000 + 320)
