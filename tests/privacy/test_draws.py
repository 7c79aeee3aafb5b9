"""The number of draws that fit in a budget: on the safe side of the proof's inequality, and close to it."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from core.mechanisms.exponential import distance_per_choice
from core.mechanisms.gaussian import DISTANCE_CAP
from core.mechanisms.laplace import distance_per_draw
from core.mechanisms.sampling import RARE_BITS
from core.privacy.budget import Terms, plan_orders
from core.privacy.draws import DRAW_BITS, LIST_BITS, MOST_COUNTED, SAMPLE_DRAWS, jobs_with_room, most_draws
from core.queries.hessians import LAPLACE_DRAWS

budgets = st.builds(
    plan_orders, st.decimals("0.01", "60", places=2), st.integers(3, 40).map(lambda power: Decimal(1).scaleb(-power))
)


def delta_spent(terms: Terms, draws: int) -> mpf:
    """Return the part of delta that caps and a number of draws take, by the proof's formulas, with 100 digits."""
    epsilon = mpf(str(terms.epsilon))
    spent = (1 + mp.exp(epsilon)) * draws * mpf(2) ** -108
    for order, cap in zip(terms.orders, terms.caps_nano, strict=True):
        power = (order - 1) * (mpf(cap) / 10**9 - epsilon + mp.log(1 - mpf(1) / order))
        spent += mp.exp(power) / order
    return spent


@given(terms=budgets)
@settings(max_examples=200, deadline=None)
def test_draws_and_caps_together_take_no_more_than_delta(terms: Terms) -> None:
    with mp.workdps(100):
        most, delta = most_draws(terms), mpf(str(terms.delta))
        assert 0 <= most <= MOST_COUNTED
        assert most == 0 or delta_spent(terms, most) <= delta
        assert most == MOST_COUNTED or delta_spent(terms, most + 1 + int(most * mpf("1e-50"))) > delta


@pytest.mark.parametrize(
    ("epsilon", "delta", "at_least"),
    [("1", "1e-10", 1e18), ("8", "1e-6", 1e18), ("8", "1e-10", 1e16), ("20", "1e-6", 6e14), ("30", "1e-6", 3e10)],
)
def test_usual_budgets_have_room_for_all_that_is_drawn_in_years(epsilon: str, delta: str, at_least: float) -> None:
    assert most_draws(plan_orders(Decimal(epsilon), Decimal(delta))) >= at_least


@pytest.mark.parametrize("epsilon", ["55", "100", "1000"])
def test_a_budget_far_above_has_room_for_none(epsilon: str) -> None:
    assert most_draws(plan_orders(Decimal(epsilon), Decimal("1e-6"))) == 0


def test_budgets_whose_weights_add_up_to_one_have_a_little_room() -> None:
    """The promise from before there was a count: 1e12 draws at (1, 1e-10), in the room left by rounding caps down."""
    old = Terms(
        epsilon=Decimal(1),
        delta=Decimal("1e-10"),
        orders=(39, 29, 23, 78),
        weights=(Decimal("0.7"), Decimal("0.1"), Decimal("0.1"), Decimal("0.1")),
        caps_nano=_caps(Decimal(1), Decimal("1e-10"), (39, 29, 23, 78), (0.7, 0.1, 0.1, 0.1)),
    )
    assert 10**12 < most_draws(old) < most_draws(plan_orders(Decimal(1), Decimal("1e-10"))) / 10**3


def _caps(epsilon: Decimal, delta: Decimal, orders: tuple[int, ...], weights: tuple[float, ...]) -> tuple[int, ...]:
    with mp.workdps(60):
        pairs = zip(orders, weights, strict=True)
        exact = [
            mpf(str(epsilon)) - mp.log(1 - mpf(1) / a) + mp.log(mpf(str(w)) * mpf(str(delta)) * a) / (a - 1)
            for a, w in pairs
        ]
        return tuple(int(mp.floor(cap * 10**9)) - 1 for cap in exact)


def test_units_are_what_the_mechanisms_promise() -> None:
    assert DISTANCE_CAP == 2.0**-DRAW_BITS
    assert RARE_BITS == LIST_BITS
    assert SAMPLE_DRAWS * 2**LIST_BITS == 2**DRAW_BITS
    assert all(LAPLACE_DRAWS * distance_per_draw(scale) <= 2.0**-DRAW_BITS for scale in (2.0**-10, 1.0, 2.0**60))
    assert distance_per_choice(2**40) < 2.0**-DRAW_BITS


def test_jobs_have_room_beside_those_that_are_counted() -> None:
    terms = plan_orders(Decimal(30), Decimal("1e-6"))
    most = most_draws(terms)
    assert jobs_with_room(most, 0, most) == 1
    assert jobs_with_room(most, 1, most) == 0
    assert jobs_with_room(most, most - 10, 3) == 3
    assert jobs_with_room(most, most + 5, 1) == 0
