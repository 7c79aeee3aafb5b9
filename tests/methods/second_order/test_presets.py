"""The calibrated escape phase: the figures of a worked instance, and what no preset can fit."""

from math import sqrt

import numpy as np
import pytest

from core.methods.second_order.estimation import Errors
from core.methods.second_order.presets import Unfit, curved, fast, gamma_star, round_chance, strict
from core.privacy.conversions import gdp_mu

DIMENSION, TAU, SIGMA = 10, 0.5, 0.3
CLIP, SMOOTH = sqrt(DIMENSION) * (1 + TAU + SIGMA), 1 + TAU
Z = 1 / gdp_mu(1.0, 1e-5)


def egg_carton(clients: int = 1) -> Errors:
    """Return the errors of f(x; v, w) = sum (1 + tau v_i)(1 - cos x_i) + sigma w_i x_i with Rademacher v and w."""
    return Errors(
        dimension=DIMENSION,
        batch=1e5,
        difference_batch=1000,
        spread=sqrt(DIMENSION * (TAU**2 + SIGMA**2)),
        difference_spread=TAU,
        noise=Z * 2 * CLIP / 1e5,
        difference_noise=Z * 2 * SMOOTH / 1000,
        clients=clients,
    )


def test_noise_multipliers_are_the_exact_ones() -> None:
    """The analytic Gaussian mechanism at delta = 1e-5; E passes take sqrt(E) as much."""
    found = [1 / gdp_mu(epsilon, 1e-5) for epsilon in (0.5, 1.0, 2.0)]
    assert found == pytest.approx([7.0318, 3.7306, 1.9938], abs=1e-4)
    assert [(2 * z * e) ** 2 / np.log(1e5) for z, e in zip(found, (0.5, 1.0, 2.0), strict=True)] == pytest.approx(
        [4.295, 4.835, 5.525], abs=1e-3
    )
    assert [sqrt(passes) * found[1] for passes in (5, 10, 20, 50)] == pytest.approx(
        [8.342, 11.797, 16.684, 26.38], abs=2e-3
    )
    assert found == sorted(found, reverse=True)
    assert 1 / gdp_mu(1.0, 1e-6) > found[1]


def test_the_strict_preset_gives_the_worked_figures() -> None:
    errors = egg_carton()
    drift = errors.balanced_drift()
    found = strict(errors, drift, step_size=0.5 / SMOOTH, smoothness=SMOOTH, hessian_smoothness=SMOOTH)
    assert drift == pytest.approx(0.00144, rel=1e-4)
    assert drift == pytest.approx((CLIP * 1000 / (SMOOTH * 1e5)) ** 2, rel=1e-12)
    assert errors.size(drift) == pytest.approx(0.006162, rel=1e-4)
    assert found.error_radius == pytest.approx(0.1037, rel=5e-4)
    assert 4 * found.error_radius == pytest.approx(0.4147, rel=1e-4)
    assert gamma_star(found.error_radius, SMOOTH) == pytest.approx(0.7887, rel=1e-4)
    assert found.escape_distance == pytest.approx(0.1315, rel=5e-4)
    assert found.round_steps == 32
    assert found.chance == pytest.approx(0.562, abs=5e-4)


def test_within_the_distance_the_hessian_keeps_three_quarters_of_its_least_eigenvalue() -> None:
    errors = egg_carton()
    found = strict(errors, errors.balanced_drift(), step_size=1 / 3, smoothness=SMOOTH, hessian_smoothness=SMOOTH)
    assert SMOOTH * found.escape_distance <= gamma_star(found.error_radius, SMOOTH) / 4 * (1 + 1e-12)


def test_clients_lower_the_error_by_the_root_of_their_number() -> None:
    one, many = egg_carton(), egg_carton(clients=16)
    assert many.size(0.001) == pytest.approx(one.size(0.001) / 4)
    assert many.noise_at(0.001) == pytest.approx(one.noise_at(0.001) / 4)
    assert many.radius(0.001, 80, 0.05) == pytest.approx(one.radius(0.001, 80, 0.05) / 4)


def test_no_error_of_a_run_passes_the_explicit_radius() -> None:
    """200 runs of 40 differences at distances that add up to kappa; a bound of 0.975 each, and about 4 times loose."""
    generator, errors, drift = np.random.default_rng(1), egg_carton(), egg_carton().balanced_drift()
    limit, length = errors.radius(drift, 80, 0.05), sqrt(drift / 40)
    error = errors.noise * generator.standard_normal((200, DIMENSION))
    error += errors.spread / sqrt(DIMENSION * errors.batch) * generator.standard_normal((200, DIMENSION))
    for _ in range(40):
        error += length * errors.difference_noise * generator.standard_normal((200, DIMENSION))
        sampled = errors.difference_spread * length / sqrt(DIMENSION * errors.difference_batch)
        error += sampled * generator.standard_normal((200, DIMENSION))
        assert np.linalg.norm(error, axis=1).max() < limit
    assert np.sqrt((error**2).sum(1).mean()) == pytest.approx(errors.size(drift), rel=0.1)


def test_the_fast_preset_takes_its_distance_by_hand() -> None:
    errors = egg_carton()
    found = fast(
        errors,
        errors.balanced_drift(),
        step_size=1 / 3,
        smoothness=SMOOTH,
        hessian_smoothness=SMOOTH,
        escape_distance=0.05,
    )
    sharpest = gamma_star(found.error_radius, SMOOTH)
    assert found.error_radius == pytest.approx(1.5 * errors.size(errors.balanced_drift()))
    chances = [
        round_chance(errors, 1 / 3, 0.05, steps, sharpest) for steps in (found.round_steps - 1, found.round_steps)
    ]
    assert chances[0] < 0.5 <= chances[1] == found.chance


def test_a_curved_distance_lets_the_hessian_change_by_a_quarter_of_gamma_star() -> None:
    errors = egg_carton()
    drift = errors.balanced_drift()
    found = curved(errors, drift, step_size=1 / 3, smoothness=SMOOTH, hessian_smoothness=SMOOTH)
    sharpest = gamma_star(found.error_radius, SMOOTH)
    assert found.error_radius == pytest.approx(1.5 * errors.size(drift))
    assert found.escape_distance * SMOOTH == pytest.approx(sharpest / 4)
    assert found.escape_distance * sharpest == pytest.approx(1.5 * errors.size(drift)), "errors over a curvature of it"
    chances = [
        round_chance(errors, 1 / 3, found.escape_distance, steps, 0.75 * sharpest)
        for steps in (found.round_steps - 1, found.round_steps)
    ]
    assert chances[0] < 0.5 <= chances[1] == found.chance
    assert (
        found.error_radius
        < strict(errors, drift, step_size=1 / 3, smoothness=SMOOTH, hessian_smoothness=SMOOTH).error_radius / 5
    )


def test_an_empty_condition_is_said_with_its_figures() -> None:
    errors = egg_carton()
    with pytest.raises(Unfit, match=r"alpha = .* is above the smoothness"):
        strict(errors, 0.001, step_size=1 / 3, smoothness=0.01, hessian_smoothness=SMOOTH)
    with pytest.raises(Unfit, match="above the smoothness"):
        fast(errors, 0.001, step_size=1 / 3, smoothness=0.01, hessian_smoothness=SMOOTH, escape_distance=0.1)
    still = errors.model_copy(update={"noise": 1e-12})
    with pytest.raises(Unfit, match="do not move"):
        fast(still, 1e-6, step_size=1e-6, smoothness=SMOOTH, hessian_smoothness=SMOOTH, escape_distance=0.1)
