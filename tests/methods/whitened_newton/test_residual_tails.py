"""Bounds from noised counts on a mean's part beyond a cut, against laws of which it is known."""

from collections.abc import Callable

import numpy as np
import pytest

from core.methods.m_estimation.whitened_newton.inference.residual_sizes import Sizes, edges_of
from core.methods.m_estimation.whitened_newton.inference.residual_tails import (
    LEAST_OF_SPREAD,
    REACH,
    Tails,
    best_cut,
    spread_of_all,
    tails_of,
)

Array = np.ndarray
LAWS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "exponential": lambda draws, n: draws.exponential(size=n) - 1,
    "lognormal": lambda draws, n: np.exp(draws.normal(size=n)) - np.exp(0.5),
    "long below": lambda draws, n: 1 - draws.exponential(size=n),
    "normal": lambda draws, n: draws.normal(size=n),
}


def counted(
    residuals: Array, deviation: float, draws: np.random.Generator, scale: float = 1.0, claimed: float = 1.0
) -> Tails:
    """Return what noised counts say, with the noise taken for a part of what it is."""
    edges = edges_of(180.0, 32, 1)
    sides = []
    for side in (residuals[residuals > 0], -residuals[residuals <= 0]):
        shares = np.histogram(side, edges[::-1])[0][::-1] / len(residuals)
        sides.append(Sizes(shares + draws.normal(0.0, deviation, 32), claimed * deviation, edges))
    return tails_of(sides[0], sides[1], len(residuals), scale, 0.0)


def cut_off(residuals: Array, cut: float) -> float:
    return float((residuals - np.clip(residuals, -cut, cut)).mean())


def worst(law: str, deviation: float, *, claimed: float = 1.0) -> float:
    """Return the mean of (found - true)^2/variance over sixty draws, of 4,000 records cut at 4."""
    draws, ratios = np.random.default_rng(3), []
    for _ in range(60):
        residuals = LAWS[law](draws, 4000)
        net, variance = counted(residuals, deviation, draws, claimed=claimed).net(4.0)
        ratios.append((net - cut_off(residuals, 4.0)) ** 2 / variance)
    return float(np.mean(ratios))


@pytest.mark.parametrize("law", ["exponential", "lognormal", "long below"])
@pytest.mark.parametrize("deviation", [0.0005, 0.004])
def test_what_lies_beyond_a_cut_is_found_within_what_is_claimed(law: str, deviation: float) -> None:
    """Mean squares of errors over what is claimed: about 1, and more where a lognormal tail drowns in noise."""
    assert 0.03 < worst(law, deviation) < 4.0


@pytest.mark.parametrize("law", ["exponential", "lognormal", "normal"])
def test_noise_of_the_counts_left_out_would_be_seen(law: str) -> None:
    """Planted bug: counts are taken to be thirty times as precise as they are."""
    assert worst(law, 0.004, claimed=1 / 30) > 10


def test_symmetric_and_normal_tails_cancel() -> None:
    draws = np.random.default_rng(4)
    for residuals in (draws.normal(size=8000), draws.standard_t(5, 8000)):
        net, variance = counted(residuals, 0.001, draws).net(REACH)
        assert abs(net) < 3 * np.sqrt(variance) + 0.01
        assert variance < 0.01**2


def test_a_cut_goes_out_with_the_budget_and_never_nearer_than_the_bulk_says() -> None:
    draws = np.random.default_rng(5)
    skewed = np.exp(draws.normal(size=20_000)) - np.exp(0.5)
    cuts = []
    for deviation in (0.004, 0.0004, 0.00004):
        spread, tails = spread_of_all(counted(skewed, deviation, draws))
        assert spread >= 1
        cuts.append(spread * best_cut(tails.in_units_of(spread), noise=2 * deviation))
    assert cuts == sorted(cuts)
    assert cuts[-1] > 1.5 * cuts[0]
    spread, tails = spread_of_all(counted(draws.normal(size=4000), 0.002, draws))
    assert best_cut(tails.in_units_of(spread), 0.004) >= max(REACH / spread, LEAST_OF_SPREAD) * (1 - 1e-9)
    assert 0.9 < spread < 1.25


def test_amounts_that_are_mostly_zero_have_a_spread_however_small_their_bulk() -> None:
    draws = np.random.default_rng(6)
    amounts = np.where(draws.random(4000) < 0.15, np.exp(draws.normal(size=4000)), 0.0) - 0.2
    amounts += 0.2 + 0.003 * draws.normal(size=4000)
    spread, _ = spread_of_all(counted(amounts, 0.002, draws, scale=0.003))
    assert 0.5 < spread / amounts.std() < 1.6


def test_a_moved_point_moves_what_is_cut() -> None:
    """Residuals from a point that lies .5 higher: more is cut below, less above."""
    draws = np.random.default_rng(7)
    residuals = draws.exponential(size=20_000) - 1
    tails = counted(residuals, 0.0003, draws)
    net, variance = tails.net(4.0, 0.5)
    assert net == pytest.approx(cut_off(residuals - 0.5, 4.0), abs=4 * np.sqrt(variance))
    assert net < tails.net(4.0)[0]
