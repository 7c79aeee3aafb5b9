"""The last step of least squares by bands: which bands there are, and what its two lines make of them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from core.methods.m_estimation.whitened_newton.inference.band_step import Banded, edges_up_to
from core.methods.m_estimation.whitened_newton.inference.last_step import NoisedAnswer
from core.methods.m_estimation.whitened_newton.shares import MOST_BANDS


@pytest.mark.parametrize(("reach", "count"), [(2.0, 1), (4.5, 1), (5.0, 2), (40.0, 3), (1e4, 8), (1e9, MOST_BANDS)])
def test_bands_reach_from_the_bulk_to_the_bounds(reach: float, count: int) -> None:
    edges = edges_up_to(reach, MOST_BANDS)
    assert len(edges) == count
    assert edges[-1] == reach
    assert all(one < other for one, other in pairwise(edges))
    assert edges[0] == min(reach, 4.5)


def banded(far: float = 0.0) -> Banded:
    """Return answers of two coefficients, with a part of all records in the last of three bands."""
    edges, deviation = np.array([4.5, 13.5, 40.5]), 1e-4
    gradients = np.array([[0.1, 0.0], [0.0, 0.0], [20 * far, 0.0]])
    counts = np.array([1 - far, 0.0, far])
    energies = np.array([1.0, 0.0, far * 20.0**2])
    scores = energies[:, None, None] * np.eye(2)
    return Banded(
        theta=np.zeros(2),
        edges=edges,
        design=NoisedAnswer(np.eye(2), deviation),
        gradients=gradients,
        gradient_deviations=deviation * edges,
        scores=scores,
        score_deviations=deviation * edges**2,
        energies=energies,
        energy_deviations=deviation * edges**2,
        counts=counts,
        count_deviation=deviation,
        units=10_000,
        unidentified=0.5,
    )


def test_both_lines_count_what_is_seen() -> None:
    seen = banded(far=0.01)
    assert seen.lightly.all()
    assert seen.unseen == 0
    np.testing.assert_allclose(seen.counted.theta, seen.light.theta)
    np.testing.assert_allclose(seen.counted.theta, [-0.3, 0.0], atol=0.01)
    np.testing.assert_allclose(np.diag(seen.counted.sampling) * 10_000, 5.0, rtol=0.05)


def test_the_light_line_leaves_out_what_the_noise_hides_and_says_how_much_that_may_be() -> None:
    """Two records of 10,000: the counted line has their gradient and pays for the band's noise."""
    hidden = banded(far=2e-4)
    assert list(hidden.lightly) == [True, False, False]
    assert hidden.unseen == pytest.approx(4.0)
    assert hidden.counted.theta[0] == pytest.approx(-0.104, abs=1e-3)
    assert hidden.light.theta[0] == pytest.approx(-0.1, abs=1e-3)
    counted, light = (np.sqrt(line.covariance[0, 0]) for line in (hidden.counted, hidden.light))
    assert counted > 1.05 * light
    sampled = [line.sampling[0, 0] * hidden.units for line in (hidden.counted, hidden.light)]
    assert sampled == pytest.approx([1.08, 1.0], rel=0.01), "an energy that is not seen counts all the same"


def test_a_neighbour_of_the_first_band_is_not_seen_by_its_records() -> None:
    """Planted bug: a pair of bands that holds nearly all records."""
    assert list(banded().lightly) == [True, False, False]


def test_what_noise_hides_of_the_rows_is_a_public_guess() -> None:
    blurred = replace(banded(), design=NoisedAnswer(np.diag([1.0, 0.001]), 0.01))
    assert blurred.guess[1, 1] == pytest.approx(0.25 * blurred.level)
    assert blurred.guess[0, 0] == pytest.approx(0.0, abs=1e-12)
    assert blurred.hessian_noise == pytest.approx(2 * 0.01 * np.sqrt(2) / 0.5005)


def test_a_long_step_by_noised_rows_counts_their_noise() -> None:
    """Where most of a mean lies far from where the short steps end, as of amounts that are mostly zero."""
    rows = NoisedAnswer(np.diag([1.5, 0.5]), 0.01)
    near = replace(banded(), design=rows)
    far = replace(near, gradients=100 * near.gradients)
    step = float(np.linalg.norm(far.counted.theta))
    added = far.counted.covariance - near.counted.covariance
    assert added[0, 0] == pytest.approx((0.01 * step / 1.5) ** 2, rel=0.05)
