"""The noise of each scheme: golden values, a factor of two between relations, one pass that composes nothing."""

from itertools import pairwise
from math import sqrt

import pytest

from core.privacy.conversions import gdp_mu
from public_planner.clipped.schemes import (
    RELATIONS,
    Relation,
    Scheme,
    epsilon_spent,
    grid_below,
    multiplier,
)
from public_planner.without_replacement import fixed_batch_epsilon, renyi_prices
from tests.support.clipped import paper_rule

PAIRS = [(scheme, relation) for scheme, relations in RELATIONS.items() for relation in relations]


@pytest.mark.parametrize(
    ("epsilon", "delta", "wanted"),
    [(1, 1e-5, 3.730632), (2, 1e-5, 1.993812), (0.5, 1e-5, 7.031827), (8, 1e-6, 0.652935), (2, 1e-7, 2.449061)],
)
def test_one_pass_takes_one_gaussian_answers_noise_however_many_steps(
    epsilon: float, delta: float, wanted: float
) -> None:
    for steps in (1, 1000, 10**6):
        z = multiplier("one_pass", "zero_out", fraction=1 / steps, times=steps, epsilon=epsilon, delta=delta)
        assert z == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(("scheme", "relation"), PAIRS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_what_is_spent_is_at_most_what_was_asked_and_little_less(
    scheme: Scheme, relation: Relation, epsilon: float
) -> None:
    z = multiplier(scheme, relation, fraction=0.01, times=1000, epsilon=epsilon, delta=1e-6)
    assert z is not None

    def spent(noise: float) -> float:
        return epsilon_spent(scheme, relation, multiplier=noise, fraction=0.01, times=1000, delta=1e-6)

    assert 0.97 * epsilon < spent(z) <= epsilon
    assert spent(0.997 * z) > epsilon


def test_a_record_that_changes_moves_a_sum_twice_as_far_as_one_that_leaves() -> None:
    left, changed = (
        multiplier("one_pass", relation, fraction=0.01, times=100, epsilon=1.0, delta=1e-5)
        for relation in ("zero_out", "replace_one")
    )
    assert changed == pytest.approx(2 * left)


class TestFixedBatches:
    """n = 10,000, b = 100, K = 1000, delta = 1e-5, noise on the sum equal to the clip."""

    def test_accountants_are_told_half_of_the_multiplier(self) -> None:
        right = epsilon_spent("fixed_batch", "replace_one", multiplier=1.0, fraction=0.01, times=1000, delta=1e-5)
        assert right == pytest.approx(20.987, rel=1e-4)

    def test_whole_ones_would_promise_a_sixth_of_it(self) -> None:
        assert fixed_batch_epsilon(0.01, 1.0, 1000, 1e-5) == pytest.approx(3.576, rel=1e-4)

    def test_a_batch_of_all_records_is_a_plain_gaussian_answer(self) -> None:
        orders, prices = renyi_prices(1.0, 2.0)
        assert prices == pytest.approx([order / 8 for order in orders])

    def test_smaller_parts_more_noise_and_lower_orders_are_cheaper(self) -> None:
        for sigma in (0.3, 1.0, 10.0, 1000.0):
            few, many = renyi_prices(0.001, sigma)[1], renyi_prices(0.1, sigma)[1]
            assert all(one < other for one, other in zip(few, many, strict=True))
            assert all(one <= other * (1 + 1e-9) for one, other in pairwise(few))
            quieter = dict(zip(*renyi_prices(0.001, 2 * sigma), strict=True))
            assert all(quieter[order] < price for order, price in zip(*renyi_prices(0.001, sigma), strict=True))

    def test_a_sample_is_never_dearer_than_all_records(self) -> None:
        for sigma in (0.2, 0.7, 3.0):
            assert all(price <= order / (2 * sigma**2) * (1 + 1e-9) for order, price in
                       zip(*renyi_prices(0.02, sigma), strict=True))  # fmt: skip


def test_one_pass_is_quieter_than_batches_drawn_anew_for_as_many_readings() -> None:
    """One pass in 1000 steps, against 1000 batches of n/1000, at the same relation and the same budget."""
    once, anew = (
        multiplier(scheme, "replace_one", fraction=0.001, times=1000, epsilon=1.0, delta=1e-6)
        for scheme in ("one_pass", "fixed_batch")
    )
    composed = 2 * sqrt(10) / gdp_mu(1.0, 1e-6)
    assert anew < once < composed


def test_the_papers_rule_for_a_stream_is_15_to_18_times_exact_composition() -> None:
    for steps in (100, 1000, 10_000):
        for epsilon in (0.5, 1.0):
            ratio = paper_rule(sensitivity=2.0, steps=steps, epsilon=epsilon, delta=1e-5) / (
                2 * sqrt(steps) / gdp_mu(epsilon, 1e-5)
            )
            assert 14.5 < ratio < 18.5


def test_the_next_multiplier_below_is_one_that_plans_can_have() -> None:
    z = multiplier("poisson", "zero_out", fraction=0.01, times=100, epsilon=1.0, delta=1e-6)
    assert grid_below(z * 1.0001, "zero_out") == pytest.approx(z, rel=1e-12)
    assert z / 1.002 < grid_below(z * 0.9999, "zero_out") < z


def test_no_noise_is_enough_where_delta_asks_for_orders_that_nobody_tries() -> None:
    assert multiplier("fixed_batch", "replace_one", fraction=0.1, times=10, epsilon=0.01, delta=1e-9) is None
