"""Where a logistic model's score is nearly linear: the approximations beside quadrature, and what is made of them."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from core.inference.shrinkage import assembled, shrink
from core.methods.m_estimation.whitened_newton.inference.attenuation import (
    DECIDED,
    LONGEST_FOLLOWED,
    SPREAD,
    attenuated_length,
    carried,
    derivative,
    normal_hessian,
    onward,
)

Array = NDArray[np.float64]
NODES: Array = np.linspace(-9.0, 9.0, 6001)
PARTS: Array = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
METRIC: Array = np.diag([0.0, 1.0, 1.0, 0.3])


def score(length: float) -> float:
    """Return E[z sigmoid(length z)] for a standard normal z."""
    return float(PARTS @ (NODES * expit(length * NODES)))


@pytest.mark.parametrize("length", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_the_score_of_normal_predictors_attenuates_as_said(length: float) -> None:
    limit = 1 / np.sqrt(2 * np.pi)
    assert score(length) / limit == pytest.approx(attenuated_length(length), abs=0.06)
    if length >= 4:  # what is left to go is what a step is judged by
        assert 1 - score(length) / limit == pytest.approx(1 - attenuated_length(length), rel=0.12)


def test_a_step_in_phi_goes_farther_than_a_straight_one_where_slopes_are_long() -> None:
    before, truth = 4.0, 6.0
    spread = 1e-4
    second = (score(before + spread) - score(before - spread)) / (2 * spread)
    straight = (score(truth) - score(before)) / second
    theta, step = np.array([0.0, before, 0.0, 0.0]), np.array([0.0, straight, 0.0, 0.0])
    metric = np.diag([0.0, 1.0, 1.0, 1.0])
    assert before + straight < 5.3
    assert onward(theta, step, metric)[1] == pytest.approx(truth, rel=0.1)


def test_a_short_step_is_a_straight_one() -> None:
    theta, step = np.array([0.3, 0.5, -0.2, 0.1]), 1e-5 * np.array([1.0, -1.0, 2.0, 0.5])
    assert onward(theta, step, METRIC) - theta == pytest.approx(step, rel=1e-3)


def test_no_step_is_followed_beyond_the_longest() -> None:
    theta, step = np.array([0.0, 5.0, 0.0, 0.0]), np.array([0.0, 500.0, 3.0, 0.0])
    end = onward(theta, step, METRIC)
    assert np.sqrt(end @ METRIC @ end) == pytest.approx(LONGEST_FOLLOWED)


def test_the_derivative_is_that_of_phi() -> None:
    theta = np.array([0.7, 1.5, -2.0, 0.4])

    def phi(at: Array) -> Array:
        found: Array = at / np.sqrt(at @ METRIC @ at + SPREAD)
        return found

    tiny = 1e-6
    columns = [(phi(theta + tiny * one) - phi(theta - tiny * one)) / (2 * tiny) for one in np.eye(4)]
    assert derivative(theta, METRIC) == pytest.approx(np.array(columns).T, abs=1e-8)


@pytest.mark.parametrize(("intercept", "length"), [(0.0, 0.8), (0.0, 3.0), (-1.0, 1.5)])
def test_the_expected_hessian_is_nearly_that_of_normal_columns(intercept: float, length: float) -> None:
    margin = intercept + length * NODES
    bent = PARTS * expit(margin) * expit(-margin)
    told = np.array([[bent.sum(), bent @ NODES, 0], [bent @ NODES, bent @ NODES**2, 0], [0, 0, bent.sum()]])
    told *= 3 / np.trace(told)
    assert normal_hessian(np.array([intercept, length, 0.0])) == pytest.approx(told, abs=0.06)


def test_a_covariance_is_carried_and_its_upper_end_reaches_as_far_as_the_score_allows() -> None:
    before, deviation = np.array([0.0, 3.0, 0.0, 0.0]), 0.5
    told = carried(before, before, deviation**2 * np.eye(4), np.diag([0.0, 1.0, 1.0, 1.0]))
    assert told.onto == pytest.approx(np.eye(4))
    wider = np.sqrt((deviation**2 * np.eye(4) + told.further)[1, 1])
    in_phi = attenuated_length(3.0) + 1.96 * deviation * SPREAD / (9 + SPREAD) ** 1.5
    assert attenuated_length(3.0 + 1.96 * wider) == pytest.approx(in_phi)
    assert told.further[2:, 2:] == pytest.approx(np.zeros((2, 2)))


def test_slopes_are_excluded_the_less_the_longer_they_are_and_the_less_is_told() -> None:
    metric = np.diag([0.0, 1.0, 1.0, 1.0])

    def excluded(length: float, deviation: float) -> float:
        at = np.array([0.0, length, 0.0, 0.0])
        return carried(at, at, deviation**2 * np.eye(4), metric).excluded

    assert excluded(1.0, 0.1) > 10
    assert excluded(1.0, 0.1) > excluded(1.0, 0.5)
    assert excluded(4.8, 0.7) < 3
    assert excluded(DECIDED, 0.1) == pytest.approx(0.0, abs=1e-9)


def test_a_matrix_that_noise_hides_is_shrunk_to_what_is_expected() -> None:
    draws, size = np.random.default_rng(3), 8
    shape = normal_hessian(np.r_[0.2, 2.0, np.zeros(size - 2)])
    noise = draws.normal(size=(size, size))
    noise = np.triu(noise) + np.triu(noise, 1).T
    loud = shrink(0.2 * shape + 0.03 * noise, 0.03, 0.0, shape)
    quiet = shrink(0.2 * np.diag(np.r_[0.0, np.ones(size - 1)]), 1e-4, 0.0, shape)
    assert assembled(loud.vectors, loud.values) == pytest.approx(loud.mean * shape, abs=0.03)
    assert assembled(quiet.vectors, quiet.values) == pytest.approx(
        0.2 * np.diag(np.r_[0.0, np.ones(size - 1)]), abs=1e-3
    )
