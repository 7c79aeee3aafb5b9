"""An audit of one fresh gradient of Ada-DP-SPIDER: a canary's gradient of +C against -C, the noise a real oracle's.

200 000 draws a side; the threshold is chosen on one half, the bound is a 95 % Clopper-Pearson one on the other. Of a
correct answer at epsilon 1 a bound passes 1 with probability far below 1e-6 (its mean is 0.46); generators are forced.
A record that is read twice is not reliably visible here: `tests/methods/test_ada_spider.py` counts readings instead.
"""

from math import log, sqrt

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import beta

from core.oracle.filters import UnlimitedFilter
from core.oracle.samples import StreamOracle
from core.privacy.conversions import gdp_mu
from tests.support.problems import repeatable_generator
from tests.support.second_order import StillRecords, facts_of, given

EPSILON, DELTA, BATCH = 1.0, 1e-5, 10
MU = gdp_mu(EPSILON, DELTA)
DRAWS, WIDE = 200_000, 20_000
SHIFT = 2 * 1.0 / BATCH
PLANTED = {
    "c1 is one": sqrt(log(1 / DELTA)) / EPSILON / 2 * MU,
    "the sensitivity is the clip over the batch": 0.5,
}
"""The noise of the bug over that of the oracle; c1 = 1 is a standard deviation of C sqrt(ln(1/delta))/(b epsilon)."""


def noise(draws: int, key: int) -> NDArray[np.float64]:
    """Return the noise on single coordinates of fresh gradients, through an oracle, about records of a known mean."""
    asks = draws // WIDE
    question = given(mu=MU, batch=BATCH).fresh()
    oracle = StreamOracle(
        StillRecords(BATCH * asks, WIDE),
        facts_of(BATCH * asks, WIDE),
        UnlimitedFilter(),
        repeatable_generator(key.to_bytes(32, "big")),
        np.arange(BATCH * asks),
    )
    at = torch.zeros(WIDE, dtype=torch.float64)
    found = [oracle.ask(question, at).value.numpy() for _ in range(asks)]
    for answer in found:
        answer[0] -= 1.0  # the mean of these records' gradients
    return np.concatenate(found)


def lower_bound(without: NDArray[np.float64], canary: NDArray[np.float64]) -> float:
    """Return a lower bound on epsilon at DELTA: 95 % sure, its threshold chosen on other draws."""
    half = len(without) // 2
    thresholds = np.quantile(canary[:half], np.linspace(0.5, 0.9995, 200))

    def bound(threshold: float, first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
        hits, false = int((second >= threshold).sum()), int((first >= threshold).sum())
        least = beta.ppf(0.025, hits, len(second) - hits + 1) if hits else 0.0
        most = beta.ppf(0.975, false + 1, len(first) - false)
        return float(np.log(max(least - DELTA, 1e-12) / most))

    best = max(thresholds, key=lambda threshold: bound(threshold, without[:half], canary[:half]))
    return bound(best, without[half:], canary[half:])


def audits(quotient: float, runs: int) -> list[float]:
    """Return the bounds of so many audits, with noise of a quotient of the oracle's."""
    found = []
    for run in range(runs):
        draws = quotient * noise(2 * DRAWS, run)
        found.append(lower_bound(draws[:DRAWS], draws[DRAWS:] + SHIFT))
    return found


def test_a_fresh_gradient_tells_no_more_than_was_priced() -> None:
    assert max(audits(1.0, 2)) <= EPSILON


@pytest.mark.parametrize("bug", PLANTED)
def test_too_little_noise_is_flagged(bug: str) -> None:
    assert PLANTED[bug] < 0.7
    assert min(audits(PLANTED[bug], 1)) > EPSILON


@pytest.mark.slow
def test_in_full_size() -> None:
    assert sum(found <= EPSILON for found in audits(1.0, 20)) == 20
    for quotient in PLANTED.values():
        assert sum(found > EPSILON for found in audits(quotient, 20)) >= 18
