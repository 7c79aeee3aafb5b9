"""Small networks by the studies' own code: a start at zero is left by noise alone, and digits are learnt.

Seeds are fixed, so a verdict repeats.
"""

import pytest
import torch

from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.queries.gradients import Gradient
from studies.second_order.networks import Learnt, at_zero, at_zero_settings, digits, digits_settings
from studies.second_order.saddles import mu_of


@pytest.fixture(scope="module")
def zero() -> Learnt:
    return at_zero(units=60_000)


def moved(known: Learnt, epsilon: float, epochs: int) -> tuple[torch.Tensor, int]:
    """Run Gauss-PSGD on digits; return where it ended and how many phases it had."""
    settings = digits_settings(known, mu_of(epsilon), epochs)
    estimate, _ = gauss_psgd.iterate(settings, known.oracle(settings, 0))
    assert estimate.error_bound is not None
    assert estimate.error_bound.second_order is not None
    return estimate.theta, estimate.error_bound.second_order.phases


def test_zero_is_a_saddle_that_exact_descent_never_leaves(zero: Learnt) -> None:
    at = torch.zeros(zero.facts.dimension, dtype=torch.float64)
    assert float(zero.problem.bounded_sum(Gradient(sigma=1.0, clip=1e6), zero.facts, at).norm()) == 0
    assert zero.least_curvature(at) < -0.6


def test_rounds_leave_it_and_so_do_plain_private_gradients(zero: Learnt) -> None:
    settings = at_zero_settings(zero, rounds=2)
    estimate, _ = gauss_psgd.iterate(settings, zero.oracle(settings, 0))
    assert estimate.error_bound is not None
    assert estimate.error_bound.second_order is not None
    assert estimate.error_bound.second_order.escapes >= 1
    assert zero.least_curvature(estimate.theta) > -0.5, "of -0.69, until the records are used up"
    assert zero.least_curvature(zero.plain(1 / mu_of(), 1000, 1, 0.25, 0)) > -0.2


def test_what_judges_a_point_is_the_network_that_was_trained() -> None:
    """Its loss on other digits has the gradient that the network's own sums give on the same ones."""
    known = digits()
    theta = 0.1 * torch.linspace(-1, 1, known.facts.dimension, dtype=torch.float64)
    held = known.problem
    share = held.bounded_sum(Gradient(sigma=1.0, clip=1e6), known.facts, theta) / held.units
    place = theta.clone().requires_grad_()
    known.loss(place).backward()
    assert place.grad is not None
    cosine = float(torch.nn.functional.cosine_similarity(share, place.grad, dim=0))
    assert 0.8 < cosine < 1, "of other digits, so not the same"


def test_with_so_few_records_no_phase_begins_where_there_is_privacy() -> None:
    """As the figures say: the noise of a gradient of 1,210 numbers is longer than three error radii."""
    known = digits()
    theta, phases = moved(known, epsilon=1.0, epochs=8)
    settings = digits_settings(known, mu_of(1.0), 8)
    assert settings.errors(known.facts).noise * known.facts.dimension**0.5 > 3 * (settings.error_radius or 0)
    assert phases == 0
    assert known.right(theta) > 0.05


def test_without_privacy_phases_begin_and_digits_are_learnt() -> None:
    known = digits()
    theta, phases = moved(known, epsilon=1000.0, epochs=20)
    assert phases > 0
    assert known.right(theta) > 0.75
    assert known.least_curvature(theta) > known.least_curvature(torch.zeros_like(theta))
