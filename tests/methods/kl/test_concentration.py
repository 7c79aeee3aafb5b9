"""The length of noise: golden values, the closed form above them, and a count of draws."""

from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.methods.kl.concentration import noise_radius, noise_radius_bound


@pytest.mark.parametrize(("dimension", "radius"), [(1, 4.891638), (10, 6.845659), (100, 13.495435), (1000, 35.030735)])
def test_equals_the_golden_values(dimension: int, radius: float) -> None:
    assert noise_radius(dimension, 1e-6) == pytest.approx(radius, abs=5e-7)


@given(dimension=st.integers(1, 10**6), digits=st.floats(0.01, 250))
def test_the_closed_form_is_never_below_it(dimension: int, digits: float) -> None:
    failure = 10.0**-digits
    assert noise_radius(dimension, failure) <= noise_radius_bound(dimension, failure)


@pytest.mark.parametrize("dimension", [1, 2, 10])
def test_so_many_draws_are_longer(dimension: int) -> None:
    """False-alarm rate below 1e-5: a count of 400,000 draws at probability 0.02 is within 4.5 deviations."""
    draws = np.random.default_rng(20261121).normal(size=(400_000, dimension))
    longer = int((np.linalg.norm(draws, axis=1) > noise_radius(dimension, 0.02)).sum())
    assert abs(longer - 8000) < 4.5 * sqrt(8000 * 0.98)


def test_the_printed_radius_is_far_too_small_for_one_number() -> None:
    """sqrt(d log M) is passed with probability 1/M for d = 2 exactly, and 24 times as often for d = 1 at M = 1e4."""
    many = 1e4
    printed = sqrt(log(many))
    assert noise_radius(2, 1 / many) == pytest.approx(sqrt(2) * printed)
    assert noise_radius(1, 24 / many) == pytest.approx(printed, rel=0.01)
