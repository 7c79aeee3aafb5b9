"""Scales of residuals from noised counts, against the scale that they were drawn with."""

import numpy as np
import pytest

from core.methods.m_estimation.whitened_newton.inference.residual_sizes import Sizes, edges_of, scale_of, spread_of


def told(residuals: np.ndarray, deviation: float, seed: int, top: float = 64.0) -> Sizes:
    edges = edges_of(top, 64, 2)
    shares = np.histogram(np.abs(residuals), edges[::-1])[0][::-1] / len(residuals)
    return Sizes(shares + np.random.default_rng(seed).normal(0.0, deviation, len(shares)), deviation, edges)


@pytest.mark.parametrize("scale", [3.0, 1.0, 1e-2, 1e-4])
def test_a_scale_is_found_however_small_a_part_of_the_range_it_is(scale: float) -> None:
    """Within a third in each of forty draws, with noise of 2 % of the records on each of 64 counts."""
    draws = np.random.default_rng(1)
    found = [scale_of(told(scale * draws.normal(size=2000), 0.02, seed)) / scale for seed in range(40)]
    assert max(np.abs(np.log(found))) < np.log(4 / 3)


def test_a_few_far_residuals_move_it_little() -> None:
    draws = np.random.default_rng(2)
    residuals = draws.normal(size=4000) * np.where(draws.random(4000) < 0.05, 30, 1)
    assert scale_of(told(residuals, 0.01, 3)) == pytest.approx(1.0, rel=0.15)


def test_the_spread_is_that_of_a_normal_law_and_larger_for_clustered_residuals() -> None:
    draws = np.random.default_rng(4)
    normal = draws.normal(size=4000)
    assert spread_of(told(normal, 0.002, 5)) == pytest.approx(1.0, rel=0.3)
    clustered = np.where(draws.random(4000) < 0.2, 8.0, 1.0) * normal
    assert spread_of(told(clustered, 0.002, 6)) > 2 * scale_of(told(clustered, 0.002, 6))
