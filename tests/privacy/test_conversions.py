"""Conversions against published values, round trips, bounds on one another, and planted mistakes."""

from collections.abc import Callable
from decimal import Decimal
from math import erfc, exp, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.privacy.conversions import (
    cks_epsilon,
    dp_advantage,
    dp_power,
    gdp_advantage,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    gdp_power,
    group_epsilon,
    group_mu,
    group_rho,
    mu_of_rho,
    renyi_budget,
    renyi_epsilon,
    rho_of_mu,
    textbook_epsilon,
)

# mu, then delta at epsilon 0, .5, 1, 2, 4, then epsilon at delta 1e-5 and 1e-6
TABLE = [
    (0.25, (0.09947645, 0.00270888, 2.92e-06, 0, 0), 0.92634, 1.06070),
    (0.5, (0.19741265, 0.05244032, 0.00682959, 9.44e-06, 0), 1.99309, 2.25408),
    (1.0, (0.38292492, 0.23842171, 0.12693674, 0.02092364, 4.712e-05), 4.37718, 4.88655),
    (2.0, (0.68268949, 0.59918562, 0.50986166, 0.33189800, 0.08495332), 9.99726, 10.99715),
]
DeltaRule = Callable[[float, float], float]


def wrong_exponent(epsilon: float, mu: float) -> float:
    """Planted: e^mu in place of e^epsilon, a misprint seen in the literature."""
    phi = [erfc(-x / sqrt(2)) / 2 for x in (mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu)]
    return phi[0] - exp(mu) * phi[1]


def wrong_sign(epsilon: float, mu: float) -> float:
    """Planted: the sign of mu/2 in the second term."""
    phi = [erfc(-x / sqrt(2)) / 2 for x in (mu / 2 - epsilon / mu, mu / 2 - epsilon / mu)]
    return phi[0] - exp(epsilon) * phi[1]


def agrees_with_table(rule: DeltaRule) -> bool:
    return all(
        abs(rule(epsilon, mu) - delta) < 1e-7
        for mu, deltas, _, _ in TABLE
        for epsilon, delta in zip((0.0, 0.5, 1.0, 2.0, 4.0), deltas, strict=True)
    )


def test_gaussian_table() -> None:
    assert agrees_with_table(gdp_delta)
    for mu, _, at_five, at_six in TABLE:
        assert gdp_epsilon(mu, 1e-5) == pytest.approx(at_five, abs=5.1e-6)
        assert gdp_epsilon(mu, 1e-6) == pytest.approx(at_six, abs=5.1e-6)


@pytest.mark.parametrize("rule", [wrong_exponent, wrong_sign])
def test_gaussian_table_catches_planted_mistakes(rule: DeltaRule) -> None:
    assert not agrees_with_table(rule)


def test_epsilon_at_one_over_n() -> None:
    found = [gdp_epsilon(0.5, 1 / n) for n in (500, 1000, 2000, 4000, 8000)]
    assert found == pytest.approx([1.2338, 1.3523, 1.4633, 1.5679, 1.6672], abs=5.1e-5)


def test_quoted_values() -> None:
    assert cks_epsilon(0.5, 1e-6) == pytest.approx(5.222, abs=6e-4)
    assert gdp_epsilon(1.0, 1e-6) == pytest.approx(4.887, abs=6e-4)
    assert textbook_epsilon(0.5, 1e-6) == pytest.approx(5.757, abs=6e-4)
    assert [gdp_mu(epsilon, 1e-6) for epsilon in (1, 3, 8)] == pytest.approx([0.2367, 0.6477, 1.5316], abs=6e-5)


def test_rho_at_which_zcdp_reaches_epsilon() -> None:
    """Quoted: .0244, .1851 and 1.0524 at delta 1e-6."""
    for epsilon, rho in ((1, 0.0244), (3, 0.1851), (8, 1.0524)):
        assert cks_epsilon(rho - 1e-4, 1e-6) < epsilon < cks_epsilon(rho + 1e-4, 1e-6)


def test_randomised_response_is_a_small_rho_and_a_large_mu() -> None:
    """Epsilon 1: .462-zCDP is far below the rho of the mu that it needs, so a rho never becomes a mu by itself."""
    share = exp(1) / (1 + exp(1))
    rho = max(  # sup over orders of D_a / a
        (1 / (a - 1) / a) * _log(share**a * (1 - share) ** (1 - a) + (1 - share) ** a * share ** (1 - a))
        for a in (1 + k / 1000 for k in range(1, 20_000))
    )
    assert rho == pytest.approx(0.462, abs=1e-3)
    low, high = 0.0, 10.0  # the least mu whose trade-off curve lies below that of randomised response at its corner
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if gdp_power(middle, 1 - share) >= share else (middle, high)
    assert high == pytest.approx(1.232, abs=1e-3)
    assert rho_of_mu(high) > rho


def _log(x: float) -> float:
    return float(Decimal(x).ln())


@given(mu=st.floats(1e-3, 60), exponent=st.floats(-30, -2.1))
@settings(max_examples=200, deadline=None)
def test_round_trips_on_the_safe_side(mu: float, exponent: float) -> None:
    delta = 10**exponent
    epsilon = gdp_epsilon(mu, delta)
    assert gdp_delta(epsilon, mu) <= delta * (1 + 1e-12)
    if epsilon > 0:
        assert gdp_delta(epsilon, mu) == pytest.approx(delta, rel=1e-6)
        assert gdp_mu(epsilon, delta) == pytest.approx(mu, rel=1e-8)
        assert gdp_epsilon(mu * 1.01, delta) > epsilon
        assert gdp_epsilon(mu, delta * 1.1) < epsilon
    assert mu_of_rho(rho_of_mu(mu)) == pytest.approx(mu, rel=1e-15)


@given(rho=st.floats(1e-9, 1e5), exponent=st.floats(-30, -2.1))
@settings(max_examples=200, deadline=None)
def test_every_better_conversion_lies_below_the_worse(rho: float, exponent: float) -> None:
    delta = 10**exponent
    exact, best, textbook = gdp_epsilon(mu_of_rho(rho), delta), cks_epsilon(rho, delta), textbook_epsilon(rho, delta)
    assert exact <= best * (1 + 1e-12)
    assert best <= textbook
    assert cks_epsilon(rho * 1.01, delta) >= best
    for order in (1.01, 1.5, 2, 5, 20, 100, 1000):
        assert best <= renyi_epsilon(rho * order, order, delta) + 1e-9 * textbook


@given(epsilon=st.decimals("0.01", "100", places=4), order=st.integers(2, 200))
@settings(max_examples=100, deadline=None)
def test_renyi_budget_inverts_the_conversion(epsilon: Decimal, order: int) -> None:
    nats = float(renyi_budget(epsilon, Decimal("1e-6"), order))
    if nats > 0:
        assert renyi_epsilon(nats, order, 1e-6) == pytest.approx(float(epsilon), abs=1e-12)


def test_extremes_stay_finite() -> None:
    assert gdp_delta(3.0, 0.0) == 0.0
    assert cks_epsilon(0.0, 1e-6) == 0.0
    assert 500_000 < gdp_epsilon(1000.0, 1e-6) < cks_epsilon(500_000.0, 1e-6) < 506_000
    assert gdp_epsilon(1e-9, 1e-6) == 0.0
    assert gdp_mu(1e-9, 1e-90) > 0
    assert group_epsilon(1e5, 1e-6) == (2e5, 1.0)


def test_groups() -> None:
    assert group_mu(0.5, 2) == 1.0
    assert group_rho(rho_of_mu(0.5), 2) == rho_of_mu(group_mu(0.5, 2))
    assert group_epsilon(1.0, 1e-6) == pytest.approx((2.0, (1 + exp(1)) * 1e-6))
    exact = gdp_epsilon(2.0, 1e-6 * (1 + exp(gdp_epsilon(1.0, 1e-6))))
    assert exact <= group_epsilon(gdp_epsilon(1.0, 1e-6), 1e-6)[0]  # the generic rule is the looser one


def test_attack_success() -> None:
    assert gdp_advantage(1.0) == pytest.approx(0.38292492, abs=1e-8)
    assert gdp_power(0.0, 0.01) == pytest.approx(0.01)
    assert gdp_power(1.0, 0.01) == pytest.approx(0.0924, abs=1e-4)
    assert dp_advantage(0.0, 0.0) == 0.0
    assert dp_advantage(1.0, 0.0) == pytest.approx((exp(1) - 1) / (exp(1) + 1))
    assert dp_power(1.0, 0.0, 0.01) == pytest.approx(exp(1) * 0.01)
    assert dp_power(1e5, 1e-6, 0.01) == pytest.approx(1.0)
    for mu in (0.1, 1.0, 3.0):  # what epsilon alone says is weaker than what the curve says
        epsilon = gdp_epsilon(mu, 1e-6)
        assert gdp_advantage(mu) <= dp_advantage(epsilon, 1e-6)
        assert gdp_power(mu, 0.01) <= dp_power(epsilon, 1e-6, 0.01)
