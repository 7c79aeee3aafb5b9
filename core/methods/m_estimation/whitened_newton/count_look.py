"""Cuts of whitened Newton for residuals of counts, from the size and dispersion of noised counts.

Two cuts are made. For the steps, one by the counts themselves. For both precise gradients, one by the sizes of
residuals where the steps ended: the law of counts that has such sizes, and a cut beyond all but a few of them.
"""

from math import exp, log, sqrt
from typing import Final, NamedTuple

import numpy as np
import torch

from core.losses.counts import CutPoisson
from core.methods.m_estimation.whitened_newton.column_look import COUNT_CAUTION
from core.methods.m_estimation.whitened_newton.column_scales import CAUTION, KEPT, largest_seen
from core.methods.m_estimation.whitened_newton.inference.count_moments import (
    LOWEST,
    Array,
    dispersion_of,
    rates,
    spread,
)
from core.methods.m_estimation.whitened_newton.shares import COUNT_BINS, COUNT_BINS_PER_OCTAVE, LEAST_RATE_CAP
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.oracle import Oracle
from core.privacy.facts import Facts

TOP: Final = 1.5
"""Residuals are looked for up to so many times the largest count."""
WALKING_PART: Final = 0.5
"""Of the counts' own dispersion, which the predictor explains in part."""
MOST_DISPERSION: Final = 20.0
LEAST_CUT: Final = 1.0
WALKING_CUT: Final = 3.0
"""Deviations."""
RATE_DEVIATIONS: Final = 3.0
"""Of the linear predictor, up to which rates count whole in a Hessian."""


class CutCounts(NamedTuple):
    """A cut with what follows of it."""

    loss: CutPoisson
    weighed: float
    """The ratio of mean v^2 mu to mean v mu, which a Poisson law's scores have over their Hessian."""
    variance_ratio: float
    """Of the weighted residuals, over that of a Poisson law."""


def walking_cut(settings: WhitenedNewtonPlan, facts: Facts, rate: float, cap: float, square: float) -> CutPoisson:
    """Return the cut of the steps.

    Args:
        settings: nothing open.
        facts: public, with what is known of sampling weights.
        rate: noised mean count.
        cap: largest count that was seen.
        square: noised mean square of the counts.
    """
    # A count's variance is rate + dispersion rate^2; noise may make the excess negative.
    dispersion = min(max((square - rate**2 - rate) / rate**2, 0.0), MOST_DISPERSION)
    deviation = sqrt(rate + dispersion * rate**2)
    rate_cap, cut = settings.count_cuts(facts, rate, deviation, cap)
    cut = max(cut, WALKING_CUT * deviation)
    return CutPoisson(rate_cap=rate_cap, cut=max(min(cut, cap), LEAST_CUT), dispersion=WALKING_PART * dispersion)


def usual_rate(predictor: Array, rate_cap: float) -> float:
    """Return a rate that next to none of a Hessian lies beyond at a point, which bounds its records' rates.

    Of a normal linear predictor of deviation L, records weighted by their rates have a mean higher by L^2.

    Args:
        predictor: the point in whitened coordinates, shape (p,).
        rate_cap: M, which no rate counts beyond.
    """
    length, most = float(np.linalg.norm(predictor[1:])), log(rate_cap)
    # The second is of the mean rate: predictors may have longer tails than a short normal one.
    above = max((RATE_DEVIATIONS + length) * length, log(LEAST_RATE_CAP) + length**2 / 2)
    # A step may go far astray, and a rate is a positive number.
    return exp(min(max(float(predictor[0]) + above, most - LOWEST), most))


def look_at_residuals(
    settings: WhitenedNewtonPlan,
    oracle: Oracle,
    facts: Facts,
    at: torch.Tensor,
    theta: Array,
    cut: CutPoisson,
    cap: float,
) -> CutCounts:
    """Ask for the sizes of residuals at a point, and return the cut of both precise gradients.

    Args:
        settings: nothing open.
        oracle: the only way to the records.
        facts: public, with what is known of sampling weights.
        at: the point above its encoding.
        theta: the same point, in whitened coordinates, shape (p,).
        cut: of the steps; its cap on rates stays.
        cap: largest count that was seen.
    """
    found, rate_cap, units = rates(theta, cut.rate_cap), cut.rate_cap, facts.units
    question = settings.residual_question(rate_cap, TOP * cap)
    answer = oracle.ask(question, at)
    counts, noise = (answer.value * units).numpy(), answer.scale * units
    dispersion, longest = 0.0, 0.0
    first = largest_seen(counts, noise, CAUTION)
    if first is not None:
        first += counts[first] < COUNT_CAUTION * noise
        ends = question.top * 2.0 ** (-np.arange(COUNT_BINS) / COUNT_BINS_PER_OCTAVE)
        squares = (ends * 2.0 ** (-0.5 / COUNT_BINS_PER_OCTAVE)) ** 2
        # Both signs: keeping large positive noise alone would raise the sum.
        kept = (np.abs(counts) > KEPT * noise) & (np.arange(COUNT_BINS) >= first)
        received = float((counts * squares)[kept].sum()) / units
        deviation = noise * sqrt(float((squares[kept] ** 2).sum())) / units
        dispersion = dispersion_of(found, rate_cap, received, deviation, float(ends[first]))
        longest = float(ends[first]) if dispersion > 0 else 0.0
    own = spread(found, rate_cap, dispersion)
    _, length = settings.count_cuts(facts, 1.0, sqrt(own.square), cap)
    loss = CutPoisson(rate_cap=rate_cap, cut=max(min(max(length, longest), cap), LEAST_CUT), dispersion=dispersion)
    return CutCounts(loss, own.twice / own.weighed, own.square / own.twice)
