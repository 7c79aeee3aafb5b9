"""The score of counts with cut residuals: bounded, and with mean zero under a law of counts that may be dispersed.

After Cantoni and Ronchetti, "Robust inference for generalized linear models" (2001), with the correction inside the cut
as in Kuensch, Stefanski and Carroll (1989), so that the cut itself bounds the score.
"""

from functools import lru_cache
from math import log, sqrt
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from core.losses.assumption import Assumption
from core.losses.bases import AbstractLoss, Array, LossCard, PositiveNumber, known
from core.losses.robust import Huber
from core.privacy.arithmetic import fill
from core.privacy.facts import Frozen

LEAST_RATE_PART: Final = 0.01
"""Of a cap: the least mean count that is taken for usual."""
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


class Poisson(AbstractLoss):
    """Poisson regression with log link, bounded: F(m) - y m, F' = min(exp(m), cap), 0 <= y <= cap.

    Convex, for F' never falls. Counts above the cap are cut to it. Where every mean is below the cap and no count is
    cut this is maximum likelihood; `c` cuts the residual too, which resists outliers and is inconsistent like clipping
    wherever residuals are asymmetric. The cap is that of the target's declared bound where none is given.
    """

    card: ClassVar = LossCard(
        title="F(m) - y m with F' = min(exp(m), cap), residuals F' - y cut to c where one is given",
        models=("poisson",),
        score_bound="cap if c is None else min(c, cap)",
        curvature_peak="cap",
        assumptions=(
            Assumption(text="the target's declared lower bound is 0 or more", checked="static"),
            Assumption(text="no count and no mean is above the cap, else they are cut to it", checked="declared"),
            Assumption(
                text="residuals are cut symmetrically by c: inconsistent wherever they are not symmetric",
                checked="declared",
            ),
        ),
    )
    phrase: ClassVar = "Poisson loss (means and counts up to {cap:g})"
    example: ClassVar = {"cap": 6.0, "c": 1.5}
    kind: Literal["poisson"] = "poisson"
    cap: PositiveNumber | None = Field(default=None, description="largest count and largest mean; null: planned")
    c: PositiveNumber | None = Field(default=None, description="largest residual; null: the cap's")

    @property
    def known_cap(self) -> float:
        """The cap, once it is filled."""
        return known(self.cap, "cap")

    def words(self) -> str:
        """Return where means and counts, and residuals if they are, are cut."""
        return super().words() if self.c is None else f"{super().words()[:-1]}, residuals cut at {self.c:g})"

    def filled(self, largest: float, unit: float) -> Self:
        """Return the loss with the declared bound as its cap."""
        del unit
        return fill(self, cap=largest)

    @property
    def score_bound(self) -> float:
        """min(c, cap): both mean and count lie in [0, cap]."""
        return self.known_cap if self.c is None else min(self.c, self.known_cap)

    @property
    def curvature_peak(self) -> float:
        """The cap: F'' = exp(m) up to where it is the cap, 0 beyond."""
        return self.known_cap

    def gap_at_zero(self, reach: float) -> float:
        """Return the most of F(0) - F(log y) + y log y, convex in y: its value at 0 or at the largest count.

        Residuals that are cut to c make it no larger. For y = 0 it is F(0), for F falls to 0.
        """
        cap = self.known_cap
        at_zero = 1.0 if cap >= 1 else cap * (1 - log(cap))  # a cap below 1 is reached before margin 0
        largest = min(reach, cap)
        return max(at_zero, at_zero - largest * (1 - log(largest)))

    def usual_spread(self, centre: float) -> float:
        """Return the target's centre, within what means can be."""
        return min(max(centre, LEAST_RATE_PART * self.known_cap), self.known_cap)

    def moments(self, spread: float) -> tuple[Array, Array]:
        """Return the mean twice, or those of a cut residual, taken to be normal with that variance."""
        mean = np.array([[spread]])
        if self.c is None:
            return mean, mean
        slope, square = Huber(c=self.c, scale=1.0).moments(sqrt(spread))
        return spread * slope, square


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
    rate_cap: PositiveNumber
    cut: PositiveNumber
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
