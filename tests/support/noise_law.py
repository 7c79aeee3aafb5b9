"""The exact law of integer noise, and tests of draws against it; each false-alarm rate is stated where it is used."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEAST_P = 1e-7
MOST_Z = 5.5


def exact_probabilities(sigma: float, last: int) -> NDArray[np.float64]:
    """Return the discrete Gaussian's probabilities on -last..last, summed from the definition."""
    support = np.arange(-last, last + 1, dtype=np.float64)
    weights = np.exp(-(support**2) / (2 * sigma**2))
    found: NDArray[np.float64] = weights / weights.sum()
    return found


@dataclass(frozen=True)
class Verdict:
    """p-value of the Kolmogorov-Smirnov statistic; z-scores of variance, fourth moment and lag-1 correlation."""

    distribution: float
    variance: float
    fourth: float
    lag: float

    def passes(self) -> bool:
        """False alarm 3e-7: p < 1e-7 or one of three |z| > 5.5.

        By the normal law 3.8e-8 each. The fourth moment's upper tail is heavier: of 1e5 draws its skewness is .032, by
        Edgeworth's leading term 2.4 times that.
        """
        return self.distribution >= LEAST_P and max(abs(self.variance), abs(self.fourth), abs(self.lag)) <= MOST_Z


def judge(draws: NDArray[np.int64], sigma: float) -> Verdict:
    """Compare draws with the law of parameter sigma >= 200.

    There the continuous distribution function at half-integers equals the exact one up to its local error of order
    1/sigma^2 (Euler-Maclaurin), below 1e-6: far under the resolution 1/sqrt(N) of the samples used here. The jumps of
    size .4/sigma only make the Kolmogorov-Smirnov statistic at half-integers conservative.
    """
    assert sigma >= 200
    count = draws.size
    ordered = np.sort(draws)
    distinct, last = np.unique(ordered, return_index=True)
    after = np.append(last[1:], count) / count
    law_after = stats.norm.cdf((distinct + 0.5) / sigma)
    law_before = stats.norm.cdf((distinct - 0.5) / sigma)
    gap = max(np.abs(after - law_after).max(), np.abs(last / count - law_before).max())
    scaled = draws / sigma
    return Verdict(
        distribution=float(stats.kstwobign.sf(gap * sqrt(count))),
        variance=float(((scaled**2).mean() - 1) / sqrt(2 / count)),
        fourth=float(((scaled**4).mean() - 3) / sqrt(96 / count)),
        lag=float((scaled[1:] * scaled[:-1]).mean() * sqrt(count - 1)),
    )


def independent(one: NDArray[np.int64], other: NDArray[np.int64], sigma: float) -> bool:
    """Say whether two streams are uncorrelated in value and in square (two z-tests at 5.5: 7.6e-8)."""
    a, b = one / sigma, other / sigma
    value = (a * b).mean() * sqrt(a.size)
    square = ((a**2 - 1) * (b**2 - 1)).mean() * sqrt(a.size) / 2
    return bool(max(abs(value), abs(square)) <= MOST_Z)
