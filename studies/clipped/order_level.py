"""The error of clipped descent with all constants one: no certificate.

Convex and non-convex forms are the same in `Scale`: with it a bound is

    det   = V/K + V slope^2/(lambda^2 K^2)                                               (11)
    stat  = W lambda^(1 - alpha/2) sqrt(A l/(b K)) + V A l/(b lambda^alpha K)            (12), corrected
    bias  = W Bo + V Bo^2/lambda^2                                                       (13), corrected
    dp    = W lambda D + V D^2                                                           (14)

with l = log(8 (K + 1)/beta), zeta = max(0, 2 slope - lambda/2), A = sigma^alpha + zeta^alpha,

    Bo = (A/lambda^(alpha - 1)) (slope/lambda + lambda^(alpha - 1) zeta/A + sigma A^(-1/alpha)),

and D = (noise/lambda) sqrt(d l/K), what privacy costs for each unit of clipping: one letter for the paper's three rules
of noise. Corrected: lambda^alpha is in the denominator of (12), and the last bracket of Bo has the factor sigma without
which its dimensions are wrong. A batch divides the variance (extension (b), ours).

Source: Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov (preprint), theorems 4.1 and 4.4, corollaries 4.2 to 4.5.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Self

from core.methods.clipped.one_pass.guarantee import Run, over, power
from core.methods.clipped.one_pass.lemma import excess_norm
from core.privacy.facts import Frozen


@dataclass(frozen=True)
class Scale:
    """A problem's sizes.

    Attributes:
        slope: L R, or S = sqrt(L Delta): length of a true gradient, in orders.
        weight: W, R or S: factor of an error of the gradient.
        start: V, L R^2 or S^2: bound on the error of the start, in orders.
        reach: R or sqrt(Delta/L): largest distance of the iterates from the start.
        smoothness: L.
    """

    slope: float
    weight: float
    start: float
    reach: float
    smoothness: float

    @classmethod
    def convex(cls, smoothness: float, distance: float) -> Self:
        """Return those of an L-smooth convex f whose minimiser is at most R away."""
        slope = smoothness * distance
        return cls(slope=slope, weight=distance, start=slope * distance, reach=distance, smoothness=smoothness)

    @classmethod
    def nonconvex(cls, smoothness: float, gap: float) -> Self:
        """Return those of an L-smooth f whose start is at most Delta above its least value."""
        slope = sqrt(smoothness * gap)
        return cls(slope=slope, weight=slope, start=slope**2, reach=sqrt(gap / smoothness), smoothness=smoothness)


class OrderTerms(Frozen):
    """Parts of an error, in orders."""

    det: float
    stat: float
    bias: float
    dp: float

    @property
    def bound(self) -> float:
        """The largest."""
        return max(self.det, self.stat, self.bias, self.dp)


def privacy_cost(run: Run) -> float:
    """Return D = (noise/lambda) sqrt(d l/K); of a run without steps, as if it had one."""
    return run.noise / run.clip * sqrt(run.dimension * run.l8 / max(run.steps, 1))


def order_bias(scale: Scale, run: Run) -> float:
    """Return Bo."""
    zeta, moment = _zeta(scale, run), _moment(scale, run)
    pulled = run.sigma * power(moment, (run.alpha - 1) / run.alpha)
    return (moment * scale.slope / run.clip + pulled) / power(run.clip, run.alpha - 1) + zeta


def order_terms(scale: Scale, run: Run) -> OrderTerms:
    """Return what the error of a run is made of, in orders."""
    steps, lam = max(run.steps, 1), run.clip
    bias, cost = order_bias(scale, run), privacy_cost(run)
    shrunk = _moment(scale, run) * run.l8 / (run.batch * steps)
    return OrderTerms(
        det=scale.start / steps + scale.start * (scale.slope / (lam * steps)) ** 2,
        stat=scale.weight * lam ** (1 - run.alpha / 2) * sqrt(shrunk) + scale.start * shrunk / lam**run.alpha,
        bias=scale.weight * bias + scale.start * (bias / lam) ** 2,
        dp=scale.weight * lam * cost + scale.start * cost**2,
    )


def order_step_size(scale: Scale, run: Run) -> float:
    """Return the step size that the orders suggest; nothing is promised of it."""
    steps, lam = max(run.steps, 1), run.clip
    spread = power(lam, 1 - run.alpha / 2) * sqrt(steps * run.l8 * _moment(scale, run) / run.batch)
    return min(
        1 / scale.smoothness,
        over(scale.reach, spread),
        over(scale.reach, steps * order_bias(scale, run)),
        over(scale.reach, run.noise * sqrt(run.dimension * steps * run.l8)),
        scale.reach / (lam * run.l8),
    )


def _zeta(scale: Scale, run: Run) -> float:
    return excess_norm(2 * scale.slope, run.clip)


def _moment(scale: Scale, run: Run) -> float:
    """Return A."""
    return power(run.sigma, run.alpha) + power(_zeta(scale, run), run.alpha)
