"""Prices: the exact ones rounded up, exact in groupings, monotone, and saturating."""

from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from math import comb, exp, expm1, log

import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as losses
from hypothesis import given, settings
from hypothesis import strategies as st

from core.privacy.events import (
    NOTHING,
    BoundedRange,
    Composed,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    Repeated,
    Sampled,
    Zcdp,
    compose,
)
from core.privacy.renyi import MAX_NANO, cost, cost_nano, prefix_costs
from core.privacy.reports import quick_epsilon

ONE = 2**64
ORDERS = (2, 3, 9, 16, 44)


def exact_sampled(numerator: int, sigma: float, order: int) -> Decimal:
    """The same moment by 160-digit arithmetic, term by term."""
    with localcontext(prec=160):
        q, variance = Decimal(numerator) / ONE, Decimal(sigma) ** 2
        moment = sum(
            comb(order, k) * (1 - q) ** (order - k) * q**k * (Decimal(k * k - k) / (2 * variance)).exp()
            for k in range(order + 1)
        )
        return moment.ln() / (order - 1)


sigmas = st.floats(0.3, 1e4)
rates = st.integers(1, ONE - 1)
leaves = st.one_of(
    st.builds(Gaussian, sigma=sigmas),
    st.builds(Sampled, numerator=rates, sigma=sigmas),
    st.builds(Zcdp, rho=st.floats(1e-9, 10)),
    st.builds(Pure, epsilon=st.floats(1e-6, 10)),
    st.builds(BoundedRange, epsilon=st.floats(1e-6, 10)),
)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.7, 100.0, 1e5])
@pytest.mark.parametrize("numerator", [1, 2**30, 2**50, round(0.01 * ONE), ONE // 2, ONE - 2**20, ONE - 1])
def test_a_sampled_price_is_the_exact_one_rounded_up_and_no_other(numerator: int, sigma: float, order: int) -> None:
    exact = exact_sampled(numerator, sigma, order)
    price = cost(Sampled(numerator=numerator, sigma=sigma), order)
    fine = (exact * 10**30).to_integral_value(ROUND_CEILING)
    assert price == float(Fraction(int(fine), 10**30))
    nano = cost_nano(Repeated(event=Sampled(numerator=numerator, sigma=sigma), times=10**6), (order,))[0]
    assert nano == -(-int(fine) * 10**6 // 10**21)


@pytest.mark.parametrize("sigma", [5e-324, 1e-10, 1e-4, 1e9, 1e150, 1.7e308])
@pytest.mark.parametrize("numerator", [1, ONE // 2, ONE - 1])
def test_a_sampled_price_has_no_sigma_that_it_cannot_be_worked_out_at(numerator: int, sigma: float) -> None:
    nano = cost_nano(Sampled(numerator=numerator, sigma=sigma), (2, 20_000))
    assert all(1 <= price <= MAX_NANO for price in nano)
    assert nano[0] <= nano[1]
    if sigma < 1e-9:
        assert nano == (MAX_NANO, MAX_NANO)
    if sigma > 1e8:
        assert nano[0] == 1


@pytest.mark.parametrize(
    ("event", "order", "nats"),
    [
        (Gaussian(sigma=2.0), 9, Fraction(9, 8)),
        (Repeated(event=Gaussian(sigma=4.0), times=100), 3, Fraction(300, 32)),
        (Zcdp(rho=0.25), 5, Fraction(5, 4)),
        (Pure(epsilon=0.5), 3, Fraction(3, 8)),
        (Pure(epsilon=0.5), 22, Fraction(1, 2)),
        (BoundedRange(epsilon=1.0), 6, Fraction(3, 4)),
        (BoundedRange(epsilon=1.0), 8, Fraction(1)),
        (BoundedRange(epsilon=1.0), 22, Fraction(1)),
        (Disjoint(events=(Gaussian(sigma=2.0), Gaussian(sigma=1.0), Gaussian(sigma=4.0))), 2, Fraction(1)),
        (Composed(events=(Gaussian(sigma=2.0), Zcdp(rho=0.25))), 4, Fraction(3, 2)),
        (Sampled(numerator=ONE, sigma=2.0), 9, Fraction(9, 8)),
        (Sampled(numerator=0, sigma=2.0), 9, Fraction(0)),
        (Disjoint(), 9, Fraction(0)),
        (NOTHING, 9, Fraction(0)),
    ],
)
def test_closed_forms(event: Event, order: int, nats: Fraction) -> None:
    assert Fraction(cost(event, order)) == nats
    assert cost_nano(event, (order,)) == (nats * 10**9,)


def exact_choice(epsilon: float, order: int) -> float:
    """The largest Renyi divergence of an exponential mechanism of bounded range epsilon, over two outputs.

    Its likelihood ratios are e^(epsilon - t) and e^-t for some t in [0, epsilon], and both laws add up to one. The
    first output thus has probability (1 - e^-t)/(e^(epsilon - t) - e^-t) under the second law; all t are tried.
    """
    worst = 0.0
    for step in range(1, 2000):
        t = epsilon * step / 2000
        chance = -expm1(-t) / (exp(epsilon - t) - exp(-t))
        rest = (1 - chance) * exp(-order * epsilon)  # the moment, by e^(order (epsilon - t)): no power overflows
        worst = max(worst, (order * (epsilon - t) + log(chance + rest)) / (order - 1))
    return worst


@pytest.mark.parametrize("order", [*ORDERS, 200])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_a_bounded_range_is_priced_above_its_worst_choice_and_never_above_epsilon(epsilon: float, order: int) -> None:
    price, worst = cost(BoundedRange(epsilon=epsilon), order), exact_choice(epsilon, order)
    assert worst <= price <= epsilon
    assert price == epsilon or price <= epsilon**2 * order / 8
    assert price <= cost(Pure(epsilon=epsilon), order)


def test_a_bounded_range_is_worth_what_an_independent_accountant_says_of_pure_privacy() -> None:
    """Without the minimum the conversion says 2.46 where 1 is true, and with it 1.35, by orders of at most 64."""
    parameters = common.DifferentialPrivacyParameters(1.0, 0.0)
    exact = losses.from_privacy_parameters(parameters).get_epsilon_for_delta(1e-6)
    ours, method = quick_epsilon(BoundedRange(epsilon=1.0), 1e-6)
    assert exact <= ours < 1.36, method


@given(events=st.lists(leaves, max_size=8), orders=st.sampled_from([(2,), (9, 7, 18), (22, 16, 44)]))
@settings(max_examples=60, deadline=None)
def test_prefixes_end_at_the_price_of_the_whole_however_it_is_grouped(
    events: list[Event], orders: tuple[int, ...]
) -> None:
    prefixes = prefix_costs(events, orders)
    for count, prefix in enumerate(prefixes, start=1):
        assert prefix == cost_nano(Composed(events=tuple(events[:count])), orders)
    counted: dict[Event, int] = {}
    for event in reversed(events):
        counted[event] = counted.get(event, 0) + 1
    assert cost_nano(compose(counted), orders) == (prefixes[-1] if prefixes else (0,) * len(orders))
    for earlier, later in pairwise(prefixes):
        assert all(low <= high for low, high in zip(earlier, later, strict=True))


def test_chunks_never_sum_past_the_reservation_while_single_ceilings_do() -> None:
    chunks = [Zcdp(rho=1.0000001e-7)] * 8
    reservation = cost_nano(Composed(events=tuple(chunks)), (2,))[0]
    totals = [prefix[0] for prefix in prefix_costs(chunks, (2,))]
    assert sum(high - low for low, high in pairwise([0, *totals])) == reservation
    alone = sum(cost_nano(chunk, (2,))[0] for chunk in chunks)
    assert alone > reservation  # rounding each spend by itself would pass what was reserved


def test_equal_charges_fill_a_cap_that_floats_refuse() -> None:
    for count, charge, cap in ((3, 0.1, 0.3), (7, 0.0001, 0.0007), (10, 0.0001, 0.001)):
        total, nano = 0.0, 0
        for _ in range(count):
            total, nano = total + charge, nano + round(charge * 1e9)
        assert total > cap  # a budget kept in floats refuses the last
        assert nano <= round(cap * 1e9)


@given(event=leaves, order=st.integers(2, 44), times=st.integers(1, 10**6))
@settings(max_examples=100, deadline=None)
def test_linear_in_times_and_monotone_in_order(event: Event, order: int, times: int) -> None:
    assert cost(Repeated(event=event, times=times), order) == pytest.approx(times * cost(event, order), rel=1e-15)
    assert cost(event, order + 1) >= cost(event, order) * (1 - 1e-12)


@given(sigma=sigmas, numerator=st.integers(2**44, ONE // 2), order=st.integers(2, 44))
@settings(max_examples=100, deadline=None)
def test_monotone_in_noise_and_rate(sigma: float, numerator: int, order: int) -> None:
    price = cost(Sampled(numerator=numerator, sigma=sigma), order)
    assert cost(Sampled(numerator=numerator, sigma=sigma * 1.001), order) < price
    assert cost(Sampled(numerator=2 * numerator, sigma=sigma), order) > price
    assert price <= cost(Gaussian(sigma=sigma), order)


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(sigma=1e-300),
        Sampled(numerator=1, sigma=1e-300),
        Sampled(numerator=ONE // 3, sigma=1e-8),
        Zcdp(rho=1e300),
        Pure(epsilon=1e300),
        Repeated(event=Gaussian(sigma=1.0), times=10**40),
    ],
    ids=repr,
)
def test_monstrous_prices_saturate(event: Event) -> None:
    assert cost_nano(event, (2, 44)) == (MAX_NANO, MAX_NANO)
    assert prefix_costs([event, event], (2,)) == [(MAX_NANO,), (MAX_NANO,)]
    assert cost(event, 2) == MAX_NANO / 1e9


def test_a_draw_is_never_free() -> None:
    assert cost_nano(Sampled(numerator=1, sigma=1e150), (2, 10_000)) == (1, 1)
    assert cost_nano(Gaussian(sigma=1e150), (2,)) == (1,)


def test_orders_below_two_are_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError):
        cost(Gaussian(sigma=1.0), 1)
