"""Prices of batches without replacement beside dp-accounting's, which takes a multiplier of the true sensitivity."""

from itertools import pairwise

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
from dp_accounting.rdp import RdpAccountant

from studies.clipped.without_replacement import fixed_batch_epsilon, multiplier, renyi_prices


@pytest.mark.parametrize(
    ("fraction", "sigma", "times", "delta"),
    [(0.01, 0.5, 1000, 1e-5), (0.02, 8.0, 3000, 1e-7)],
)
def test_epsilon_is_that_of_dp_accounting(fraction: float, sigma: float, times: int, delta: float) -> None:
    """If a release of theirs begins to double sensitivities under replacement, this fails."""
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    event = SampledWithoutReplacementDpEvent(100_000, round(fraction * 100_000), GaussianDpEvent(sigma))
    theirs = accountant.compose(event, times).get_epsilon(delta)
    assert fixed_batch_epsilon(fraction, sigma, times, delta) == pytest.approx(theirs, rel=1e-6)


class TestFixedBatches:
    """n = 10,000, b = 100, K = 1000, delta = 1e-5."""

    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
    def test_what_is_spent_is_at_most_what_was_asked_and_little_less(self, epsilon: float) -> None:
        z = multiplier(0.01, 1000, epsilon, 1e-6)
        assert z is not None
        assert 0.97 * epsilon < fixed_batch_epsilon(0.01, z / 2, 1000, 1e-6) <= epsilon
        assert fixed_batch_epsilon(0.01, 0.997 * z / 2, 1000, 1e-6) > epsilon

    def test_accountants_are_told_half_of_the_multiplier(self) -> None:
        assert fixed_batch_epsilon(0.01, 0.5, 1000, 1e-5) == pytest.approx(20.987, rel=1e-4)

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

    def test_no_noise_is_enough_where_delta_asks_for_orders_that_nobody_tries(self) -> None:
        assert multiplier(0.1, 10, 0.01, 1e-9) is None
