"""Calibrated noise: just allowed, and not allowed with a little less; targets mean what they say of sampled draws."""

from collections.abc import Callable
from decimal import Decimal
from math import comb, exp, inf, log, log1p

import pytest

from core.base.errors import Invalid
from core.privacy.amounts import PrivacyTarget
from core.privacy.budget import Terms, admits, plan_orders
from core.privacy.calibration import LARGEST_SIGMA, SMALLEST_SIGMA, allowed, smallest_epsilon, smallest_sigma
from core.privacy.conversions import gdp_epsilon, renyi_epsilon
from core.privacy.events import BoundedRange, Event, Gaussian, Pure, Repeated, Sampled
from core.privacy.renyi import cost, cost_nano
from core.privacy.totals import total_rho

ONE = 2**64
TERMS = plan_orders(Decimal(3), Decimal("1e-6"))


def steps(rate: float, times: int) -> Callable[[float], Event]:
    return lambda sigma: Repeated(event=Sampled(numerator=int(rate * ONE), sigma=sigma), times=times)


def target(**figure: str) -> PrivacyTarget:
    return PrivacyTarget.model_validate(figure)


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("figure", [{"budget_share": "0.40"}, {"rho": "0.05"}, {"mu": "0.5"}, {"epsilon": "1"}])
def test_is_allowed_and_a_thousandth_less_noise_is_not(figure: dict[str, str], rate: float) -> None:
    fits = allowed(target(**figure), TERMS)
    sigma = smallest_sigma(steps(rate, 500), fits)
    assert fits(steps(rate, 500)(sigma))
    assert not fits(steps(rate, 500)(sigma * 0.999))


@pytest.mark.parametrize("share", ["0.005", "0.1", "1"])
def test_a_share_is_of_the_empty_budget_which_then_admits_it(share: str) -> None:
    event = steps(0.01, 300)(smallest_sigma(steps(0.01, 300), allowed(target(budget_share=share), TERMS)))
    cost_there = cost_nano(event, TERMS.orders)
    empty = (0,) * len(TERMS.orders)
    assert admits(TERMS, empty, empty, cost_there)
    used = min(price / cap for price, cap in zip(cost_there, TERMS.caps_nano, strict=True))
    assert used == pytest.approx(float(share), rel=1e-3)


def test_rho_bounds_every_order_of_the_budget() -> None:
    event = steps(0.01, 300)(smallest_sigma(steps(0.01, 300), allowed(target(rho="0.02"), TERMS)))
    rates = [cost(event, order) / order for order in TERMS.orders]
    assert max(rates) == pytest.approx(0.02, rel=1e-3)
    assert max(rates) <= 0.02


def test_whole_samples_cost_what_full_answers_do() -> None:
    """At rate one nothing is amplified: mu of T answers with noise sigma is sqrt(T)/sigma."""
    sigma = smallest_sigma(steps(1.0, 400), allowed(target(mu="0.5"), TERMS))
    assert sigma == pytest.approx(40, rel=1e-6)
    rho = total_rho(Repeated(event=Gaussian(sigma=sigma), times=400))
    assert rho is not None
    assert rho <= 0.125


def test_epsilon_is_the_best_of_many_orders_at_the_delta_of_the_scope() -> None:
    event = Repeated(event=Gaussian(sigma=8.0), times=9)
    best = min(renyi_epsilon(cost(event, order), order, 1e-6) for order in range(2, 257))
    assert smallest_epsilon(event, 1e-6) == pytest.approx(best, rel=1e-12)
    assert gdp_epsilon(3 / 8, 1e-6) < best < 1.1 * gdp_epsilon(3 / 8, 1e-6)


@pytest.mark.parametrize(("rate", "noise", "times", "known"), [(0.01, 1, 1000, 2.1078), (0.1, 2, 500, 6.0895)])
def test_epsilon_is_that_of_the_same_formula_written_again(rate: float, noise: int, times: int, known: float) -> None:
    def moment(r: int) -> float:
        terms = [
            log(comb(r, k)) + (r - k) * log1p(-rate) + k * log(rate) + (k * k - k) / (2 * noise**2)
            for k in range(r + 1)
        ]
        top = max(terms)
        return top + log(sum(exp(term - top) for term in terms))

    delta = 1e-5
    again = min(times * moment(r) / (r - 1) + log((r - 1) / r) - (log(delta) + log(r)) / (r - 1) for r in range(2, 257))
    assert smallest_epsilon(steps(rate, times)(float(noise)), delta) == pytest.approx(again, rel=1e-9)
    assert again == pytest.approx(known, abs=1e-4)


def test_no_target_asks_more_than_integers_carry_or_less() -> None:
    with pytest.raises(Invalid) as refused:
        smallest_sigma(steps(1.0, 10**6), allowed(target(mu="1e-12"), TERMS))
    assert refused.value.fields[0].pointer == "/privacy"
    generous = Terms(epsilon=Decimal(1), delta=Decimal("1e-6"), orders=(2,), weights=(Decimal(1),), caps_nano=(2**61,))
    sigma = smallest_sigma(steps(0.5, 1), allowed(target(budget_share="1"), generous))
    assert SMALLEST_SIGMA <= sigma < 1 < LARGEST_SIGMA


def test_an_epsilon_whose_square_overflows_has_an_infinite_rho() -> None:
    assert (total_rho(Pure(epsilon=1e200)), total_rho(BoundedRange(epsilon=1e200))) == (inf, inf)
