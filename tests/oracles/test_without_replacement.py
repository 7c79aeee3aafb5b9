"""Prices of batches without replacement beside dp-accounting's, which takes a multiplier of the true sensitivity."""

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
from dp_accounting.rdp import RdpAccountant

from public_planner.without_replacement import fixed_batch_epsilon


@pytest.mark.parametrize(
    ("fraction", "sigma", "times", "delta"),
    [(0.01, 0.5, 1000, 1e-5), (0.02, 8.0, 3000, 1e-7)],
)
def test_epsilon_is_that_of_dp_accounting(fraction: float, sigma: float, times: int, delta: float) -> None:
    """If a release of theirs begins to double sensitivities under replacement, this fails, and so would a planner."""
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    event = SampledWithoutReplacementDpEvent(100_000, round(fraction * 100_000), GaussianDpEvent(sigma))
    theirs = accountant.compose(event, times).get_epsilon(delta)
    assert fixed_batch_epsilon(fraction, sigma, times, delta) == pytest.approx(theirs, rel=1e-6)
