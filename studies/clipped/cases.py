"""The seven regimes of clipping, the best clip of each, and which of them say nothing; with and without privacy.

In orders, all constants one. A regime is empty where its neighbourhood is never below half of the start's own error.
Three places differ from the paper. Case 3 cannot be made arbitrarily small near 4 slope: its condition keeps zeta above
sigma^alpha/lambda^(alpha - 1). Cases 6 and 7 have zeta to the 2 alpha + 2 over lambda to the 2 alpha + 2. Case 7 is no
R sigma at lambda = 4/3 slope, for zeta is lambda there.

Source: Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov (preprint), appendices D, E, G and H, tables 1 and 2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Final

from core.methods.clipped.one_pass.guarantee import power
from core.methods.clipped.one_pass.lemma import excess_norm
from studies.clipped.order_level import OrderTerms, Scale

Neighbourhood = Callable[[Scale, float, float, float], float]
"""Of a scale, alpha, sigma and a clip."""


def _tail(scale: Scale, alpha: float, sigma: float, clip: float) -> float:
    """W s^a/lam^(a-1) + V s^(2a)/lam^(2a)."""
    part = power(sigma / clip, alpha)
    return scale.weight * clip * part + scale.start * part**2


def _excess(scale: Scale, alpha: float, sigma: float, clip: float) -> float:  # noqa: ARG001 - one signature for all
    """W zeta + V zeta^2/lam^2."""
    zeta = excess_norm(2 * scale.slope, clip)
    return scale.weight * zeta + scale.start * (zeta / clip) ** 2


def _both(scale: Scale, alpha: float, sigma: float, clip: float) -> float:
    return max(_tail(scale, alpha, sigma, clip), _excess(scale, alpha, sigma, clip))


def _pushed(scale: Scale, alpha: float, sigma: float, clip: float) -> float:
    """W s^a zeta/lam^a + V s^(2a) zeta^2/lam^(2a+2)."""
    part = power(sigma / clip, alpha) * excess_norm(2 * scale.slope, clip)
    return scale.weight * part + scale.start * (part / clip) ** 2


def _steep(scale: Scale, alpha: float, sigma: float, clip: float) -> float:  # noqa: ARG001 - one signature for all
    """W zeta^(a+1)/lam^a + V zeta^(2a+2)/lam^(2a+2)."""
    zeta = excess_norm(2 * scale.slope, clip)
    part = power(zeta / clip, alpha + 1)
    return scale.weight * clip * part + scale.start * part**2


@dataclass(frozen=True)
class Regime:
    """A regime of clips.

    Attributes:
        number: the paper's.
        region: where it holds; `slope` is L R, or sqrt(L Delta).
        neighbourhood: rest of the error after any number of steps.
        best: the clip with the least of it, in words.
        empty: whether it never says anything.
        comment: why.
    """

    number: int
    region: str
    neighbourhood: Neighbourhood
    best: str
    empty: bool
    comment: str


CASES: Final = {
    case.number: case
    for case in (
        Regime(1, "clip > 4 slope", _tail, "max(4 slope, sigma (K/l)^(1/alpha))", empty=False,
             comment="with a clip that grows with K the error goes to zero"),
        Regime(2, "4/3 slope < clip <= 4 slope, zeta < clip < sigma", _tail, "4 slope", empty=True,
             comment="sigma above the clip makes it more than W clip"),
        Regime(3, "4/3 slope < clip <= 4 slope, zeta < sigma < clip", _both, "4 slope", empty=False,
             comment="no better than 4 slope: zeta is kept above sigma^alpha/clip^(alpha-1)"),
        Regime(4, "4/3 slope < clip <= 4 slope, sigma < zeta < clip", _excess, "4 slope - 2 sigma", empty=False,
             comment="says something only above 3 slope"),
        Regime(5, "clip <= 4/3 slope, clip < zeta < sigma", _pushed, "4/3 slope", empty=True,
             comment="both factors are above the clip"),
        Regime(6, "clip <= 4/3 slope, clip < sigma < zeta", _steep, "4/3 slope", empty=True,
             comment="at least 4/3 V"),
        Regime(7, "clip <= 4/3 slope, sigma < clip < zeta", _steep, "4/3 slope", empty=True,
             comment="zeta is at least the clip, so it is at least 4/3 V"),
    )
}  # fmt: skip
"""All seven, by number."""


def case_of(scale: Scale, sigma: float, clip: float) -> Regime:
    """Return the regime of a clip; on a border, the one with more said of it."""
    zeta = excess_norm(2 * scale.slope, clip)
    if zeta == 0:
        return CASES[1]
    if zeta <= clip:
        return CASES[2 if sigma > clip else 3 if sigma > zeta else 4]
    return CASES[5 if sigma > zeta else 6 if sigma > clip else 7]


def best_clip(case: Regime, scale: Scale, alpha: float, sigma: float, *, steps_over_log: float) -> float | None:
    """Return the clip with the least neighbourhood in a regime, without privacy; None: the regime has no clips.

    Args:
        case: the regime.
        scale: the problem's.
        alpha: order of the moment.
        sigma: its root.
        steps_over_log: K/l, on which the first regime's clip depends.
    """
    if case.number == 1:
        return max(4 * scale.slope, sigma * power(steps_over_log, 1 / alpha))
    if case.number == 4:  # noqa: PLR2004 - the paper's number
        return 4 * scale.slope - 2 * sigma if sigma < 4 / 3 * scale.slope else None
    return (4 if case.number in {2, 3} else 4 / 3) * scale.slope


def private_clip(scale: Scale, alpha: float, sigma: float, cost: float) -> float:
    """Return max(4 slope, sigma D^(-1/alpha)), which balances the clipped tail against privacy's noise.

    Args:
        scale: the problem's.
        alpha: order of the moment.
        sigma: its root.
        cost: D, which does not depend on the clip where the noise is proportional to it; 0 without privacy, where no
            clip is too large.
    """
    if cost == 0:
        return 4 * scale.slope if sigma == 0 else float("inf")
    return max(4 * scale.slope, sigma * power(cost, -1 / alpha))


def private_terms(scale: Scale, alpha: float, sigma: float, cost: float, *, steps: int, log_term: float) -> OrderTerms:
    """Return the corollaries' terms at `private_clip`: 4.2, 4.3, 4.5 and appendices E and H, in D.

    Args:
        scale: the problem's.
        alpha: order of the moment.
        sigma: its root.
        cost: D, positive.
        steps: K.
        log_term: l.
    """
    if sigma * power(cost, -1 / alpha) <= 4 * scale.slope:
        return _terms_at_four(scale, alpha, sigma, cost, steps, log_term)
    rate = log_term / steps
    kept = scale.weight * sigma * cost ** ((alpha - 1) / alpha) + scale.start * cost**2
    return OrderTerms(
        det=scale.start / steps + scale.start * (scale.slope * cost ** (1 / alpha) / (sigma * steps)) ** 2,
        stat=scale.weight * sigma * cost ** (-(2 - alpha) / (2 * alpha)) * sqrt(rate) + scale.start * cost * rate,
        bias=kept,
        dp=kept,
    )


def _terms_at_four(scale: Scale, alpha: float, sigma: float, cost: float, steps: int, log_term: float) -> OrderTerms:
    """Return the terms at a clip of 4 slope, its factors of 4 dropped, as the corollaries do."""
    rate, part = log_term / steps, power(sigma / scale.slope, alpha)
    return OrderTerms(
        det=scale.start / steps,
        stat=scale.weight * scale.slope * sqrt(part * rate) + scale.start * part * rate,
        bias=scale.weight * scale.slope * part + scale.start * part**2,
        dp=scale.start * (cost + cost**2),
    )


def small_private_clip(scale: Scale, alpha: float, cost: float) -> tuple[float, float]:
    """Return the best clip of at most 4/3 slope under privacy, and its error: always more than the start's.

    min(4/3 slope, 4 slope/(2 D^(1/(alpha+1)) + 1)). The paper prints another power and another constant.

    Args:
        scale: the problem's.
        alpha: order of the moment.
        cost: D; below 1 the clip is not in this region but at its border.
    """
    clip = min(4 / 3 * scale.slope, 4 * scale.slope / (2 * cost ** (1 / (alpha + 1)) + 1))
    return clip, max(_steep(scale, alpha, 0.0, clip), scale.weight * clip * cost)
