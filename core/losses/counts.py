"""The score of counts with cut residuals: bounded, and with mean zero under a law of counts that may be dispersed.

After Cantoni and Ronchetti, "Robust inference for generalized linear models" (2001), with the correction inside the cut
as in Kuensch, Stefanski and Carroll (1989), so that the cut itself bounds the score.
"""

from functools import lru_cache
from math import log
from typing import Annotated, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from core.privacy.facts import Frozen

Array = NDArray[np.float64]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PLACES: Final = 64
"""Log means at which the cut's centre is computed; between them it is interpolated."""
BELOW, ABOVE = 5.0, 3.0
"""Logarithms below and above the rate's cap that they reach."""
TAIL: Final = 1e-9
"""Of a law's mass, left out at each end."""
MOST_VALUES: Final = 1500
HALVINGS: Final = 45
SMALL_DISPERSION: Final = 1e-6
SMALL: Final = 1e-300


class CutPoisson(Frozen):
    """psi(m, y) = v (C - y) cut to [-b, b], with mu = exp(m), v = min(1, M/mu) and C a centre that makes E psi = 0.

    M = `rate_cap`, b = `cut`. Counts y have mean mu and variance mu + a mu^2 with a = `dispersion`: a Poisson law for
    a = 0, else a negative binomial one. Where residuals stay below b, C is mu, and the score is that of Poisson
    regression with weight v. C/mu is interpolated between log means of a fixed grid.

    psi' is d(m) where the residual is not cut, 0 elsewhere, kept within [0, M]. In d the change of v is replaced by its
    mean, so that the mean of psi' is the derivative of the equation under the law, and no count makes it large.

    Bounds, for all m and all y: the cut is taken last, so |psi| <= b; v mu <= M, and psi' is kept within M.
    """

    kind: Literal["cut_poisson"] = "cut_poisson"
    rate_cap: Positive
    cut: Positive
    dispersion: Annotated[float, Field(ge=0, le=100)] = 0.0

    @property
    def score_bound(self) -> float:
        """B."""
        return self.cut

    @property
    def curvature_peak(self) -> float:
        """M."""
        return self.rate_cap

    def centres(self) -> "Centres":
        """Return C/mu by log mean."""
        return centres(self.rate_cap, self.cut, self.dispersion)


class Centres(NamedTuple):
    """At rising log means `margins`: C/mu in `ratios`, d/(v mu) in `bends`. Shape (PLACES,); constant beyond both."""

    margins: Array
    ratios: Array
    bends: Array


def law(mean: float, dispersion: float, most: int = MOST_VALUES) -> tuple[Array, Array]:
    """Return counts and their masses under a law of this mean and of variance mean + dispersion mean^2.

    Args:
        mean: above 0.
        dispersion: 0 for a Poisson law, else that of a negative binomial one.
        most: where more counts than these matter, they are put together, the larger the more.
    """
    from scipy.stats import nbinom, poisson  # noqa: PLC0415 - slow to import, and no request needs it

    own = poisson(mean) if dispersion < SMALL_DISPERSION else nbinom(1 / dispersion, 1 / (1 + dispersion * mean))
    low, high = own.ppf(TAIL), own.ppf(1 - TAIL)
    if high - low < most:
        values = np.arange(low, high + 1)
        return values, np.asarray(own.pmf(values), dtype=np.float64)
    parts = np.linspace(0.0, 1.0, most)
    # A negative binomial law has a long tail: its cells widen outwards.
    power = 1.0 if dispersion < SMALL_DISPERSION else 3.0
    ends = np.unique(np.floor(low + (high - low) * parts**power))
    middles = np.concatenate(([ends[0]], (ends[1:] + ends[:-1] + 1) / 2))
    # The first value takes all mass up to it, each other one that of its cell.
    return middles, np.diff(own.cdf(ends), prepend=0.0)


@lru_cache(maxsize=64)
def centres(rate_cap: float, cut: float, dispersion: float) -> Centres:
    """Return where a cut at b/v has mean zero, as a part of the mean, for log means around the rate's cap."""
    margins = np.linspace(log(rate_cap) - BELOW, log(rate_cap) + ABOVE, PLACES)
    found = np.array([_centre(float(np.exp(margin)), rate_cap, cut, dispersion) for margin in margins])
    ratios = found[:, 0]
    # The derivative of mu ratio(m) in m = log mu is mu (ratio + ratio').
    return Centres(margins, ratios, ratios + np.gradient(ratios, margins) - found[:, 1])


def _centre(mean: float, rate_cap: float, cut: float, dispersion: float) -> tuple[float, float]:
    """Return C/mu, and what the change of v adds to -d/(v mu).

    The mean of Y - C cut to [-b/v, b/v] falls in C. Above M, v falls as the mean rises: v' = -v, so that the mean of
    v' (C - Y) over residuals that are not cut is -v times that of C - Y.
    """
    values, masses = law(mean, dispersion)
    # The cut b is of v (C - Y); of C - Y itself it is b/v.
    reach = cut * max(1.0, mean / rate_cap)
    low, high = 0.0, 2 * mean + reach
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if float(masses @ np.clip(values - middle, -reach, reach)) > 0:
            low = middle
        else:
            high = middle
    centre = (low + high) / 2
    inside = np.abs(values - centre) < reach
    kept = float(masses[inside].sum())
    # A narrow cut may keep no count at all, and its mass divides.
    change = float(masses[inside] @ (centre - values[inside])) / max(kept, SMALL) / mean if mean > rate_cap else 0.0
    return centre / mean, change
