"""Predicted widths of a job's intervals, from public facts alone, beside the widths without privacy.

The intervals' formula is applied to the matrices of the public reference design (`core.models.reference`), with as
much noise as the job's questions will have. A width is the median over some noise patterns, the same ones every time.
The noise of the optimizer, of Hessian and score matrix, and all floors thus count in full, and nothing is drawn. No
public fact gives the distance of the records from the reference. The most frequent reason for wider intervals is
columns that fill a small part of their declared range.

Source: Avella-Medina, Bradshaw and Loh (2023), section 5.1; Farthing's own plan as in `core.inference.late_covariance`.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf, isfinite, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtr, ndtri

from core.inference.checks import Learned
from core.inference.settings import Inference
from core.losses.losses import Huber, Multinomial, Poisson
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton
from core.methods.m_estimation.whitened_newton.shares import WIDTH_FACTOR
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewton
from core.methods.registry import AnyPlan
from core.models.outlook import Outlook
from core.planning.predicted_covariance import covariance_of, inverted, noised_matrices, penalised
from core.privacy.facts import Facts, Frozen

Array = NDArray[np.float64]
WithIntervals = NoisyGradientDescentPlan | NoisyNewton
MOST_COEFFICIENTS: Final = 80
"""No prediction of larger models: their matrices would be inverted again and again while somebody waits."""
EXACT: Final = 1e-9
COVERAGE_PRICE: Final = 20.0
COVERAGE_SLACK: Final = 0.005
NORMAL_CURVATURE: Final = 0.8
"""Mean second derivative of a Huber loss in residual scales, normal residuals."""
RATES_DIFFER: Final = 0.85
"""Part of a logistic model's second derivative at equal probabilities that remains where probabilities differ."""


class PredictedWidth(Frozen):
    """One coefficient's interval, in declared units."""

    name: str
    width: float = Field(description="median width of the private interval")
    nonprivate_width: float
    ratio: float


def predict(
    outlook: Outlook, facts: Facts, optimizer: AnyPlan, inference: Inference
) -> tuple[PredictedWidth, ...] | None:
    """Return the width of each coefficient's interval; None where none is predicted.

    Args:
        outlook: the public reference.
        facts: of the job.
        optimizer: nothing open.
        inference: nothing open.
    """
    if not inference.intervals or facts.dimension > MOST_COEFFICIENTS:
        return None
    if not isinstance(optimizer, WithIntervals | WhitenedNewton):
        return None
    try:
        with np.errstate(all="ignore"):
            if isinstance(optimizer, WhitenedNewton):
                private, nonprivate = whitened_widths(outlook, facts, optimizer, inference)
            else:
                private, nonprivate = widths(outlook, facts, optimizer, inference)
    except np.linalg.LinAlgError:
        return None
    # Extreme figures overflow in silence above; no width is shown then.
    if not (np.isfinite(private).all() and np.isfinite(nonprivate).all() and (nonprivate > 0).all()):
        return None
    return tuple(
        PredictedWidth(name=name, width=width, nonprivate_width=without, ratio=width / without)
        for name, width, without in zip(outlook.names, private.tolist(), nonprivate.tolist(), strict=True)
    )


def widths(outlook: Outlook, facts: Facts, optimizer: WithIntervals, inference: Inference) -> tuple[Array, Array]:
    """Return the widths of private and non-private intervals in declared units, shape (q,) each."""
    noised = noised_matrices(outlook, facts, inference, optimizer)
    private = _declared(outlook, covariance_of(outlook, facts, optimizer, inference, noised))
    quantile = 2 * float(ndtri(0.5 + inference.level / 2))
    return quantile * np.median(private, axis=0), quantile * _sampling_deviations(outlook, facts)


def whitened_widths(
    outlook: Outlook, facts: Facts, optimizer: WhitenedNewton, inference: Inference
) -> tuple[Array, Array]:
    """Return the same for a method that re-encodes: all coefficients widen alike, however far columns reach."""
    loss = optimizer.planned_loss
    counted = 1.0 if facts.sampling is None else facts.sampling.mean
    mean, differ = float(outlook.reference.curvature[0, 0]) / counted, 1.0
    if isinstance(loss, Huber):
        times = optimizer.widening(facts, NORMAL_CURVATURE, loss.c)
    elif isinstance(loss, Poisson):
        assert loss.cap is not None, "planned"
        times = optimizer.widening(facts, mean, optimizer.count_cuts(facts, mean, sqrt(mean), loss.cap)[1])
    elif isinstance(loss, Multinomial):
        differ = RATES_DIFFER  # chances of all classes are alike in the reference
        times = optimizer.widening(facts, differ / loss.known_classes, sqrt(2))
    else:
        differ = RATES_DIFFER
        times = optimizer.widening(facts, differ * mean, 1.0)
    quantile = 2 * float(ndtri(0.5 + inference.level / 2))
    nonprivate = quantile * _sampling_deviations(outlook, facts) / sqrt(differ)  # the reference has slopes of zero
    return times * nonprivate, nonprivate


def learned_errors(
    optimizer: WhitenedNewton, facts: Facts, learned: Learned, theta: Array, to_declared: Array
) -> tuple[float, ...]:
    """Return the standard errors that are foreseen once columns and outcome have been looked at, in declared units.

    In the learned encoding E the Hessian is about c times the identity, so a covariance without privacy is about
    E'E/(n c) in encoded units, and intervals widen alike. A Poisson model's is that of a normal predictor with slopes
    s, c times ((1, s'), (s, I + s s')): rates rise with the predictor, which its intercept shows most.

    Args:
        optimizer: nothing open.
        facts: public.
        learned: by the job.
        theta: the estimate in encoded units, shape (p,).
        to_declared: from encoded units, shape (p, p).
    """
    if learned.sampling is None:  # else the mean weight counts excluded records
        facts = facts.model_copy(update={"units": round(learned.counted(facts.units))})
    if isinstance(optimizer.planned_loss, Multinomial):
        return _learned_of_classes(optimizer, facts, learned, to_declared)
    match optimizer.planned_loss:
        case Huber() as loss:
            curvature, bound, size = NORMAL_CURVATURE, learned.cut or loss.c, learned.residual_scale or 1.0
        case Poisson():
            return _count_errors(optimizer, facts, learned, theta, to_declared)
        case _:
            assert learned.base_rate is not None, "it was learned"
            curvature, bound, size = RATES_DIFFER * learned.base_rate * (1 - learned.base_rate), 1.0, 1.0
    rows = to_declared @ np.array(learned.encoding).T
    alone = np.sqrt((rows**2).sum(-1) / (facts.units * curvature))
    if learned.sampling is not None:
        facts, alone = facts.model_copy(update={"sampling": learned.sampling}), alone * sqrt(learned.sampling.effect)
    found = size * optimizer.widening(facts, curvature, bound) * alone
    return tuple(found.tolist())


def _count_errors(
    optimizer: WhitenedNewton, facts: Facts, learned: Learned, theta: Array, to_declared: Array
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
    sampling, private = optimizer.variances(facts, learned.base_rate, learned.cut)
    dispersed = sampling * (learned.variance_ratio or 1.0)
    found = WIDTH_FACTOR * np.sqrt((dispersed * sampled + private * noised) / (facts.units * learned.base_rate))
    return tuple(found.tolist())


def _learned_of_classes(
    optimizer: WhitenedNewton, facts: Facts, learned: Learned, to_declared: Array
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
        times = optimizer.widening(facts, RATES_DIFFER * sampling / noise, sqrt(2))
        alone = np.sqrt((rows**2).sum(-1) * sampling / (facts.units * RATES_DIFFER))
        found.extend((times * alone).tolist())
    return tuple(found)


def demerit(outlook: Outlook, facts: Facts, optimizer: AnyPlan, inference: Inference) -> float:
    """Return what plans are compared by: the mean logarithm of how much wider private intervals are, and a penalty.

    Matrices that are all noise may make intervals that are narrow and wrong. Each point of predicted coverage, over the
    noise patterns, below the level less COVERAGE_SLACK therefore counts as much as COVERAGE_PRICE points of width. The
    estimate's own deviation is taken from exact matrices.
    """
    assert isinstance(optimizer, WithIntervals), "it has no intervals"
    with np.errstate(all="ignore"):
        return _or_infinite(lambda: _demerit(outlook, facts, optimizer, inference))


def _demerit(outlook: Outlook, facts: Facts, optimizer: WithIntervals, inference: Inference) -> float:
    noised = noised_matrices(outlook, facts, inference, optimizer)
    deviations = _declared(outlook, covariance_of(outlook, facts, optimizer, inference, noised))
    wider = float(np.log(np.median(deviations, axis=0) / _sampling_deviations(outlook, facts)).mean())
    exact, quantile = _exact(outlook, facts, optimizer, inference), float(ndtri(0.5 + inference.level / 2))
    covered = float((2 * ndtr(quantile * deviations / exact) - 1).mean())
    return wider + COVERAGE_PRICE * max(0.0, inference.level - COVERAGE_SLACK - covered)


def demerit_of_estimate(outlook: Outlook, facts: Facts, optimizer: AnyPlan, inference: Inference) -> float:
    """Return the same for an estimate without intervals, going by those that exact matrices would make."""
    assert isinstance(optimizer, WithIntervals), "nothing is predicted of others"
    with np.errstate(all="ignore"):
        return _or_infinite(
            lambda: np.log(_exact(outlook, facts, optimizer, inference) / _sampling_deviations(outlook, facts)).mean()
        )


def _or_infinite(figure: Callable[[], float]) -> float:
    """Return a figure, or infinity where it cannot be computed."""
    try:
        found = float(figure())
    except np.linalg.LinAlgError:
        return inf
    return found if isfinite(found) else inf


def _exact(outlook: Outlook, facts: Facts, optimizer: WithIntervals, inference: Inference) -> Array:
    """Return the deviations that exact matrices would tell, in declared units, shape (q,)."""
    # Next to no noise: a zero would divide.
    figures = dict.fromkeys(("curvature_sigma", "score_sigma", "curvature_floor", "score_floor"), EXACT)
    silent = inference.model_copy(update={"intervals": True, **figures})
    if isinstance(optimizer, NoisyGradientDescentPlan):
        outlook = replace(outlook, patterns=1)  # without any Hessian of its own all patterns are one
    noised = noised_matrices(outlook, facts, silent, optimizer)
    return np.asarray(np.median(_declared(outlook, covariance_of(outlook, facts, optimizer, silent, noised)), axis=0))


def _declared(outlook: Outlook, covariance: Array) -> Array:
    """Return the deviations of coefficients in declared units, shape (..., q)."""
    declared = outlook.to_declared
    return np.asarray(np.sqrt(np.einsum("ij,...jk,ik->...i", declared, covariance, declared)))


def _sampling_deviations(outlook: Outlook, facts: Facts) -> Array:
    """Return the deviations without privacy, in declared units, shape (q,)."""
    reference = outlook.reference
    inverse = inverted(penalised(reference.curvature, facts, reference.scale))
    return _declared(outlook, reference.scale**2 * inverse @ reference.score @ inverse / facts.units)
