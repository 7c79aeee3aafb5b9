"""Forecasts of whitened Newton: widths from the public reference, flags, and errors once the job has looked."""

from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from core.inference.checks import Learned
from core.inference.settings import Inference
from core.losses.categorical import Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.robust import Huber
from core.losses.squares import Squared
from core.methods.m_estimation.whitened_newton.shares import (
    MOST_SLOPE_NOISE,
    NEAREST,
    SINGLE_CLASS_DIRECTIONS,
    SINGLE_DIRECTIONS,
    WIDTH_FACTOR,
)
from core.methods.m_estimation.widths import sampling_deviations
from core.models.outlook import (
    EVENTS_PER_COEFFICIENT,
    NORMAL_CURVATURE,
    RATES_DIFFER,
    RESIDUALS_BEYOND,
    Array,
    Outcome,
    Outlook,
    Residuals,
    Signal,
)
from core.privacy.facts import Facts
from farthing.schemas.estimates import ForeseenFlag, JobCheck

CHEAP: Final = 1.5
"""Times the non-private width."""

if TYPE_CHECKING:
    from core.methods.m_estimation.whitened_newton.theory import WhitenedFigures


def whitened_widths(
    outlook: Outlook, facts: Facts, plan: "WhitenedFigures", inference: Inference
) -> tuple[Array, Array]:
    """Return widths of private and non-private intervals in declared units, shape (q,) each.

    The method re-encodes, so all coefficients widen alike, however far columns reach.
    """
    loss = plan.loss
    counted = 1.0 if facts.sampling is None else facts.sampling.mean
    mean, differ = float(outlook.reference.curvature[0, 0]) / counted, 1.0
    score = float(outlook.reference.score[0, 0]) / (1.0 if facts.sampling is None else facts.sampling.square)
    if isinstance(loss, Huber):
        times = plan.widening(facts, NORMAL_CURVATURE, loss.c)
    elif isinstance(loss, Squared):
        # Of residuals of one deviation d the scores are d^2 times the Hessian, each in its own unit.
        times = plan.widening(facts, 1.0, plan.reach(facts, sqrt(score) / mean))
    elif isinstance(loss, Poisson):
        assert loss.cap is not None, "planned"
        # Counts that vary more than Poisson's law says vary so without privacy, too.
        cut = plan.count_cuts(facts, mean, sqrt(score), loss.cap)[1]
        times = plan.widening(facts, mean, cut, score / mean)
    elif isinstance(loss, Multinomial):
        differ = RATES_DIFFER  # chances of all classes are alike in the reference
        times = plan.widening(facts, differ / loss.known_classes, sqrt(2))
    else:
        differ = RATES_DIFFER
        times = plan.widening(facts, differ * mean, 1.0)
    quantile = 2 * float(ndtri(0.5 + inference.level / 2))
    nonprivate = quantile * sampling_deviations(outlook, facts) / sqrt(differ)  # the reference has slopes of zero
    return times * nonprivate, nonprivate


def learned_errors(
    plan: "WhitenedFigures", facts: Facts, learned: Learned, theta: Array, to_declared: Array
) -> tuple[float, ...]:
    """Return the standard errors that are foreseen once columns and outcome have been looked at, in declared units.

    In the learned encoding E the Hessian is about c times the identity, so a covariance without privacy is about
    E'E/(n c) in encoded units, and intervals widen alike. A Poisson model's is that of a normal predictor with slopes
    s, c times ((1, s'), (s, I + s s')): rates rise with the predictor, which its intercept shows most.

    Args:
        plan: nothing open.
        facts: public.
        learned: by the job.
        theta: the estimate in encoded units, shape (p,).
        to_declared: from encoded units, shape (p, p).
    """
    plan = plan.model_copy(update={"weight_bound": learned.weight_bound, "least_weight_bound": None})
    if learned.sampling is None:  # else the mean weight counts excluded records
        facts = facts.model_copy(update={"units": round(learned.counted(facts.units))})
    if isinstance(plan.loss, Multinomial):
        return _learned_of_classes(plan, facts, learned, to_declared)
    match plan.loss:
        case Huber() as loss:
            curvature, bound, size = NORMAL_CURVATURE, loss.c, learned.residual_scale or 1.0
        case Squared():
            assert learned.cut is not None, "it was learned"
            curvature, bound, size = 1.0, learned.cut, learned.residual_scale or 1.0
        case Poisson():
            return _count_errors(plan, facts, learned, theta, to_declared)
        case _:
            assert learned.base_rate is not None, "it was learned"
            curvature, bound, size = RATES_DIFFER * learned.base_rate * (1 - learned.base_rate), 1.0, 1.0
    rows = to_declared @ np.array(learned.encoding).T
    alone = np.sqrt((rows**2).sum(-1) / (facts.units * curvature))
    if learned.sampling is not None:
        facts, alone = facts.model_copy(update={"sampling": learned.sampling}), alone * sqrt(learned.sampling.effect)
    found = size * plan.widening(facts, curvature, bound) * alone
    return tuple(found.tolist())


def _count_errors(
    plan: "WhitenedFigures", facts: Facts, learned: Learned, theta: Array, to_declared: Array
) -> tuple[float, ...]:
    """Return the same of a Poisson model."""
    assert learned.base_rate is not None, "it was learned"
    assert learned.cut is not None, "it was learned"
    encoding = np.array(learned.encoding)
    slopes = np.linalg.solve(encoding.T, theta)[1:]
    inverse = np.eye(len(theta))
    inverse[0, 0] += float(slopes @ slopes)
    inverse[0, 1:] = inverse[1:, 0] = -slopes
    rows = to_declared @ encoding.T
    sampled, noised = (np.einsum("ij,jk,ik->i", rows, one, rows) for one in (inverse, inverse @ inverse))
    if learned.sampling is not None:
        facts = facts.model_copy(update={"sampling": learned.sampling})
        sampled, noised = (one * learned.sampling.effect for one in (sampled, noised))
    sampling, private = plan.variances(facts, learned.base_rate, learned.cut)
    dispersed = sampling * (learned.variance_ratio or 1.0)
    found = WIDTH_FACTOR * np.sqrt((dispersed * sampled + private * noised) / (facts.units * learned.base_rate))
    return tuple(found.tolist())


def _learned_of_classes(
    plan: "WhitenedFigures", facts: Facts, learned: Learned, to_declared: Array
) -> tuple[float, ...]:
    """Return the same for every class but the baseline, class after class.

    With frequencies pi, S^-1 of U'(diag(pi) - pi pi')U gives class k against class 0 the variance 1/pi_k + 1/pi_0 over
    n. S^-2, the factor of noise, gives v = 1/pi_k^2 + 1/pi_0^2 - (1/pi_k - 1/pi_0)^2/K. Their ratio is c.
    """
    assert learned.class_rates is not None, "they were learned"
    rates, classes = np.array(learned.class_rates), len(learned.class_rates)
    rows = to_declared @ np.array(learned.encoding).T
    found: list[float] = []
    for rate in rates[1:]:
        sampling = 1 / rate + 1 / rates[0]
        noise = 1 / rate**2 + 1 / rates[0] ** 2 - (1 / rate - 1 / rates[0]) ** 2 / classes
        times = plan.widening(facts, RATES_DIFFER * sampling / noise, sqrt(2))
        alone = np.sqrt((rows**2).sum(-1) * sampling / (facts.units * RATES_DIFFER))
        found.extend((times * alone).tolist())
    return tuple(found)


def foreseen_flags(plan: "WhitenedFigures", outcome: Outcome, facts: Facts) -> tuple[ForeseenFlag, ...]:
    """Return the flags of a whole job that public figures tell of."""
    loss = plan.loss
    binary = isinstance(loss, Logistic)
    most = {"logistic": SINGLE_DIRECTIONS, "multinomial": SINGLE_CLASS_DIRECTIONS}.get(loss.kind, 1.0)

    def budget(one: Signal) -> bool:
        curvature = one.rarest or one.curvature
        return plan.hessian_noise(facts, curvature, peak=_peak(plan, facts, one)) > most

    def undecided(one: Signal) -> bool:
        return binary and plan.slope_noise(facts, one.curvature) > MOST_SLOPE_NOISE

    def few(one: Signal) -> bool:
        return one.events is not None and one.events * facts.units < EVENTS_PER_COEFFICIENT * facts.dimension

    found: list[ForeseenFlag] = []
    flags: tuple[JobCheck, ...] = ("too many coefficients", "separated", "too few events")
    for flag, raised in zip(flags, (budget, undecided, few), strict=True):
        if raised(outcome.best):
            found.append(ForeseenFlag(flag=flag, when="in any case"))
        elif raised(outcome.usual):
            found.append(ForeseenFlag(flag=flag, when="as predicted"))
        elif outcome.worst is None or raised(outcome.worst):
            found.append(ForeseenFlag(flag=flag, when="at worst"))
    return tuple(found)


def widening_by(plan: "WhitenedFigures", facts: Facts, one: Signal) -> float:
    """Return how much wider intervals are than non-private ones."""
    bound = one.bound
    if isinstance(plan.loss, Poisson):
        _, bound = plan.count_cuts(facts, one.curvature, sqrt(one.curvature * one.dispersion), one.bound)
    elif plan.tails == "assumed_light":
        bound = NEAREST
    return plan.widening(facts, one.curvature, bound, one.dispersion)


def _peak(plan: "WhitenedFigures", facts: Facts, one: Signal) -> float | None:
    """Return the largest second derivative that is to be expected; None: the loss's own."""
    if not isinstance(plan.loss, Poisson):
        return None
    return plan.count_cuts(facts, one.curvature, sqrt(one.curvature * one.dispersion), one.bound)[0]


def price_notes(plan: "WhitenedFigures", facts: Facts, residuals: Residuals) -> list[str]:
    """Return what the bounds of the target cost least squares, or what it assumes in place of them."""
    if not plan.least_squares:
        return []
    if plan.tails == "assumed_light":
        assumes = "Assumed: no record lies beyond the largest residuals that are seen. A few that the noise hides would"
        return [f"{assumes} move coefficients by more than intervals say."]
    farthest = plan.reach(facts, residuals.scale)
    times = plan.widening(facts, 1.0, farthest)
    # Widths grow with the root of 1 + k R^2 for bounds R from the target's median.
    growth = sqrt(max(times**2 - 1, 0.0)) / farthest
    unit = residuals.unit * residuals.scale
    cheap = (sqrt(CHEAP**2 - 1) / growth - RESIDUALS_BEYOND) * unit
    known = "as assumed" if residuals.assumed else "an eighth of their range: /assume/residual_scale says otherwise"
    cost = (
        f"Large residuals count up to the declared bounds of {residuals.target}, so wide bounds cost width: about "
        f"{times:.3g} times that without privacy if residuals deviate by {plainly(unit)} ({known})."
    )
    within = f"Bounds within {plainly(cheap)} of the median would" if cheap > 0 else "No bounds would"
    cheaper = (
        f"{within} cost {CHEAP:g} times. Two requests do not pay for bounds: loss huber, a location that large "
        "residuals do not move, and /optimizer/tails assumed_light, which assumes that there are none."
    )
    return [cost, cheaper]


def plainly(value: float) -> str:
    """Return three digits of a number, written out up to a million."""
    return f"{float(f'{value:.3g}'):,g}"
