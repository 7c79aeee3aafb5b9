"""The admission rule against brute force, the fixed orders, and what people are shown of a budget."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.base.errors import Invalid
from core.privacy.budget import (
    MANY,
    Terms,
    admits,
    covers,
    default_delta,
    jobs_that_still_fit,
    largest_gaussian,
    percent_of,
    plan_orders,
    smallest_change,
    standing,
    terms_from_rho,
)
from core.privacy.conversions import cks_epsilon, renyi_epsilon
from core.privacy.events import Composed, Gaussian, Repeated, Sampled, Zcdp
from core.privacy.renyi import MAX_NANO, cost_nano

DELTA = Decimal("1e-6")
amounts = st.integers(0, 3_000_000_000)
vectors = st.tuples(amounts, amounts, amounts)
THREE = plan_orders(Decimal(3), DELTA)
NOTHING = (0, 0, 0)


@pytest.mark.parametrize(("epsilon", "leading"), [("1", 22), ("3", 9), ("8", 4)])
def test_leading_orders(epsilon: str, leading: int) -> None:
    terms = plan_orders(Decimal(epsilon), DELTA)
    assert terms.orders[0] == leading
    assert set(terms.orders) <= {leading, round(0.75 * leading), round(0.6 * leading), 2 * leading}
    assert terms.weights[0] == Decimal("0.699")


@given(epsilon=st.decimals("0.005", "1000", places=3), exponent=st.integers(4, 40))
@settings(max_examples=40, deadline=None)
def test_caps_keep_epsilon_and_delta(epsilon: Decimal, exponent: int) -> None:
    terms = plan_orders(epsilon, Decimal(1).scaleb(-exponent))
    assert 1 <= len(terms.orders) <= 4
    assert len(set(terms.orders)) == len(terms.orders)
    assert min(terms.orders) >= 2
    assert sum(terms.weights) <= 1
    for order, weight, cap in zip(terms.orders, terms.weights, terms.caps_nano, strict=True):
        assert cap > 0
        promised = renyi_epsilon(cap / 1e9, order, float(weight * terms.delta))
        assert promised <= float(epsilon) * (1 + 1e-13)
        assert promised >= float(epsilon) - 3e-9 - 1e-13 * float(epsilon)  # and nothing but the last nano is wasted


def test_union_with_full_delta_for_every_order_is_seen() -> None:
    """Planted: caps at full delta for each order (best order afterwards) break the sum of the weights."""
    greedy = [renyi_epsilon(cap / 1e9, order, 1e-6) for cap, order in zip(THREE.caps_nano, THREE.orders, strict=True)]
    assert all(promised < 3 for promised in greedy)  # so ours leave room that the greedy rule would give away


@given(spent=vectors, reserved=vectors, cost=vectors)
@settings(max_examples=300, deadline=None)
def test_admission_is_or_over_orders(spent: tuple[int, ...], reserved: tuple[int, ...], cost: tuple[int, ...]) -> None:
    fits = [spent[j] + reserved[j] + cost[j] <= THREE.caps_nano[j] for j in range(3)]
    assert admits(THREE, spent, reserved, cost) == (True in fits)
    assert (smallest_change(THREE, spent, reserved, cost) is None) == (True in fits)


@given(held=vectors, price=vectors)
def test_covering_is_and_over_orders(held: tuple[int, ...], price: tuple[int, ...]) -> None:
    assert covers(held, price) == (False not in [held[j] >= price[j] for j in range(3)])


def test_caps_are_reached_and_not_passed() -> None:
    at_cap = THREE.caps_nano
    assert admits(THREE, NOTHING, NOTHING, at_cap)
    assert admits(THREE, at_cap, NOTHING, NOTHING)
    assert not admits(THREE, at_cap, NOTHING, (1, 1, 1))
    assert not admits(THREE, NOTHING, NOTHING, (MAX_NANO,) * 3)
    assert admits(THREE, (MAX_NANO, MAX_NANO, 0), NOTHING, (1, 1, 1))  # one order is enough


SGD = Repeated(event=Sampled(numerator=round(0.01 * 2**64), sigma=1.0), times=500)
FULL = Zcdp(rho=0.01)


@pytest.mark.parametrize(
    ("epsilon", "full", "sampled", "both"),
    [("8", 100, 22, 18), ("3", 18, 2, 1)],
)
def test_jobs_admitted(epsilon: str, full: int, sampled: int, both: int) -> None:
    """Measured with the final orders: 100.6 full-batch jobs of rho .01 at (8, 1e-6) and 18.0 at (3, 1e-6). There are
    22.2 and 2.2 of 500 sampled steps with q = .01 and noise 1, and 18.2 and 1.9 of one of each.
    """
    terms = plan_orders(Decimal(epsilon), DELTA)
    nothing = (0,) * len(terms.orders)
    for event, expected in ((FULL, full), (SGD, sampled), (Composed(events=(FULL, SGD)), both)):
        price = cost_nano(event, terms.orders)
        assert jobs_that_still_fit(terms, nothing, nothing, price) == expected
        assert admits(terms, [expected * one - one for one in price], nothing, price)
        assert not admits(terms, [expected * one for one in price], nothing, price)


@given(spent=vectors, cost=st.tuples(*[st.integers(100, 10**9)] * 3))
@settings(max_examples=100, deadline=None)
def test_jobs_that_still_fit_against_admission(spent: tuple[int, ...], cost: tuple[int, ...]) -> None:
    count = jobs_that_still_fit(THREE, spent, NOTHING, cost)
    taken = [count * one for one in cost]
    assert not admits(THREE, spent, taken, cost)
    assert count == 0 or admits(THREE, spent, [one - price for one, price in zip(taken, cost, strict=True)], cost)


def test_free_jobs_fit_without_end() -> None:
    assert jobs_that_still_fit(THREE, NOTHING, NOTHING, NOTHING) == MANY


@given(spent=vectors, reserved=vectors, cost=vectors)
@settings(max_examples=200, deadline=None)
def test_percentages(spent: tuple[int, ...], reserved: tuple[int, ...], cost: tuple[int, ...]) -> None:
    def least(*parts: tuple[int, ...]) -> Fraction:
        totals = [sum(column) for column in zip(*parts, strict=True)]
        return 100 * min(Fraction(total, cap) for total, cap in zip(totals, THREE.caps_nano, strict=True))

    shares = standing(THREE, spent, reserved)
    assert shares.spent + shares.reserved + shares.remaining == 100
    assert 0 <= Fraction(shares.spent) - least(spent) < Fraction(1, 10_000)
    assert 0 <= 100 - least(spent, reserved) - Fraction(shares.remaining) < Fraction(1, 10_000)
    rise = Fraction(percent_of(THREE, spent, reserved, cost)) - least(spent, reserved, cost) + least(spent, reserved)
    assert 0 <= rise < Fraction(1, 10_000)
    short = smallest_change(THREE, spent, reserved, cost)
    assert short is None or short.required > short.available


def test_percentages_do_not_add_up_across_orders() -> None:
    """At epsilon 3 a full-batch job and a sampled one can each be 40 per cent and yet not leave 20."""
    small = Repeated(event=Sampled(numerator=round(0.01 * 2**64), sigma=1.0), times=200)
    prices = [cost_nano(event, THREE.orders) for event in (Zcdp(rho=0.07), small)]
    alone = [percent_of(THREE, NOTHING, NOTHING, price) for price in prices]
    together = percent_of(THREE, NOTHING, NOTHING, [one + other for one, other in zip(*prices, strict=True)])
    assert together != sum(alone)


@given(spent=vectors, reserved=vectors)
@settings(max_examples=100, deadline=None)
def test_the_largest_gaussian_job_is_admitted_and_a_larger_one_is_not(
    spent: tuple[int, ...], reserved: tuple[int, ...]
) -> None:
    rho = largest_gaussian(THREE, spent, reserved)
    assume(rho > 1e-8)
    assert admits(THREE, spent, reserved, cost_nano(Zcdp(rho=rho * (1 - 1e-9) - 1e-12), THREE.orders))
    assert not admits(THREE, spent, reserved, cost_nano(Zcdp(rho=rho * (1 + 1e-9) + 1e-9), THREE.orders))


def test_smallest_change_fits() -> None:
    spent = cost_nano(Zcdp(rho=0.15), THREE.orders)
    event = Repeated(event=Gaussian(sigma=10.0), times=20)
    short = smallest_change(THREE, spent, NOTHING, cost_nano(event, THREE.orders))
    assert short is not None
    assert 0 < short.share < 1
    assert short.mu**2 / 2 == pytest.approx(short.rho)
    assert admits(THREE, spent, NOTHING, cost_nano(Zcdp(rho=0.1 * short.share - 1e-9), THREE.orders))
    assert admits(THREE, spent, NOTHING, cost_nano(Gaussian(sigma=1.000001 / short.mu), THREE.orders))
    full = smallest_change(THREE, THREE.caps_nano, NOTHING, (5, 5, 5))
    assert full is not None
    assert (full.share, full.rho, full.mu, full.available) == (0.0, 0.0, 0.0, 0)


def test_rho_budget() -> None:
    terms = terms_from_rho(Decimal("0.5"), DELTA)
    assert Decimal("5.2215") <= terms.epsilon <= Decimal(cks_epsilon(0.5, 1e-6))
    assert terms.orders == plan_orders(terms.epsilon, DELTA).orders


def test_a_job_of_mu_one_thousand_fits_the_largest_rho_budget() -> None:
    terms = terms_from_rho(Decimal(999_999), DELTA)
    assert admits(terms, (0, 0), (0, 0), cost_nano(Gaussian(sigma=0.001), terms.orders))


@pytest.mark.parametrize(
    ("units", "exponent"),
    [(1, -5), (2, -5), (999, -5), (1000, -5), (1001, -6), (45_211, -7), (10**6, -8), (10**6 + 1, -9)],
)
def test_default_delta(units: int, exponent: int) -> None:
    assert default_delta(units) == Decimal(1).scaleb(exponent)


@pytest.mark.parametrize(
    ("epsilon", "delta", "pointer"),
    [
        ("1e-9", "1e-6", "/budget/epsilon"),
        ("0.0001", "1e-6", "/budget/epsilon"),
        ("0.01", "1e-99", "/budget/epsilon"),
        ("0", "1e-6", "/budget/epsilon"),
        ("-1", "1e-6", "/budget/epsilon"),
        ("NaN", "1e-6", "/budget/epsilon"),
        ("Infinity", "1e-6", "/budget/epsilon"),
        ("1", "0", "/budget/delta"),
        ("1", "0.5", "/budget/delta"),
        ("1", "NaN", "/budget/delta"),
    ],
)
def test_refusals_name_the_field(epsilon: str, delta: str, pointer: str) -> None:
    with pytest.raises(Invalid) as refusal:
        plan_orders(Decimal(epsilon), Decimal(delta))
    assert [field.pointer for field in refusal.value.fields] == [pointer]


@pytest.mark.parametrize("rho", ["0", "1e-30", "1e-9"])
def test_rho_refusals_name_rho(rho: str) -> None:
    with pytest.raises(Invalid) as refusal:
        terms_from_rho(Decimal(rho), DELTA)
    assert [field.pointer for field in refusal.value.fields] == ["/budget/rho"]


def test_the_least_epsilon_named_by_a_refusal_is_accepted() -> None:
    with pytest.raises(Invalid) as refusal:
        plan_orders(Decimal("0.0001"), DELTA)
    least = refusal.value.fields[0].detail.split("at least ")[1].split(",")[0]
    assert plan_orders(Decimal(least), DELTA).orders


def test_terms_survive_storage() -> None:
    assert Terms.model_validate_json(THREE.model_dump_json()) == THREE
