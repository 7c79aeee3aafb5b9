"""Whitened Newton: look at the columns, re-encode, walk a few short steps, finish with two precise gradients.

Sensitivity: that of each question, one Gaussian answer each, in `core.queries.looks` and `core.queries.reencoded`. The
number of questions and their shares are fixed beforehand. Everything else is post-processing.
Failure: none. An estimate's checks report its faults, from noised answers.

Coordinates. Each column becomes z = (feature - centre)/scale. A row becomes x = (1, A (z - m)) with A the inverse root
of the noised covariance of z, so x = E v, E a public matrix and v an encoded row. A step in x is a Newton step on
columns of about unit variance; theta' x = (E' theta)' v.
"""

from dataclasses import replace
from math import log, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.inference.estimate import Estimate, newton_estimate
from core.inference.looks import Columns
from core.inference.shrinkage import TINY, positive_part
from core.losses.categorical import Logistic, Multinomial
from core.losses.counts import CutPoisson, Poisson
from core.losses.robust import Huber
from core.losses.squares import Squared
from core.methods.m_estimation.whitened_newton import fit_classes
from core.methods.m_estimation.whitened_newton.band_answers import ask_by_bands, other_line, questions_of, reach_of
from core.methods.m_estimation.whitened_newton.band_answers import finish as finish_bands
from core.methods.m_estimation.whitened_newton.column_look import (
    base_rate,
    look_at_columns,
    look_at_counts,
    look_at_weights,
    target_centre,
)
from core.methods.m_estimation.whitened_newton.inference.attenuation import onward
from core.methods.m_estimation.whitened_newton.inference.band_step import Banded
from core.methods.m_estimation.whitened_newton.inference.coefficient_checks import Found, check
from core.methods.m_estimation.whitened_newton.inference.last_step import (
    Finished,
    Last,
    NoisedAnswer,
    finish,
    newton_step,
)
from core.methods.m_estimation.whitened_newton.inference.residual_sizes import scale_of
from core.methods.m_estimation.whitened_newton.linear_walk import (
    LONGEST_START,
    STEP_FLOOR,
    EncodedPoint,
    sizes_at,
    walk,
)
from core.methods.m_estimation.whitened_newton.questions import WEIGHT_CAUTION, EncodedQuestions, Target
from core.methods.m_estimation.whitened_newton.row_weights import least, settled
from core.methods.m_estimation.whitened_newton.shares import NEAREST, TARGET_REACH
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.methods.m_estimation.whitened_newton.whitening import RowEncoding, Shift, Trimmed, above, encoded_by
from core.models.outlook import RATES_DIFFER
from core.oracle import Oracle, Status

Array = NDArray[np.float64]
AnyLoss = Logistic | Huber | Squared | Poisson
LEAST_UNIT: Final = 2.0**-14
"""Of a linear model's target, as a part of its range."""
_LONGEST_STEP: Final = {"logistic": 1.5, "poisson": 1.0, "huber": 1e9}
LEAST_RATE: Final = 0.02


def iterate(plan: WhitenedNewtonPlan, oracle: Oracle, looked: Columns | None = None) -> tuple[Estimate, Status]:
    """Estimate coefficients with their covariance.

    Args:
        plan: public plan, nothing open.
        oracle: the only way to the records, with ranges in its facts and an intercept first.
        looked: where columns lie, of a description; None: the method looks itself.

    Returns:
        The estimate, in encoded units, its covariance and its checks.
    """
    assert bool(plan.looked) == (looked is not None), "a look is paid for where none is given"
    if isinstance(plan.loss, Multinomial):
        return fit_classes.iterate(plan, oracle, looked)
    columns = look_at_columns(plan, oracle) if looked is None else looked
    trimmed = look_at_weights(plan, oracle)
    loss, target = _look_at_target(plan, oracle)
    planned, plan = plan, least(plan)  # of least squares, whose residual scale is yet to be learned
    if isinstance(loss, Logistic):
        assert target.rate is not None, "it was learned"
        plan = settled(planned, oracle.facts, RATES_DIFFER * target.rate * (1 - target.rate), 1.0)
    encoded, target = _whiten(plan, oracle, columns, loss, target, trimmed)
    theta = _start(loss, encoded, target)
    if isinstance(loss, Huber | Squared):
        encoded, target, theta = _walk_linear(plan, oracle, encoded, loss, target, theta)
    if isinstance(loss, Squared):
        reach = NEAREST if plan.tails == "assumed_light" else reach_of(oracle.facts, target)
        plan = settled(planned, oracle.facts, 1.0, reach)
        return _least_squares(plan, oracle, columns, encoded, target, theta), Status.FINISHED
    questions = EncodedQuestions(plan, oracle, encoded, loss, target)
    if not isinstance(loss, Huber):
        theta = _walk(plan, questions, theta)
    questions.look_at_residuals(theta)
    found = finish(_last_answers(plan, questions, theta))
    return _received(plan, oracle, columns, encoded, questions, target, found), Status.FINISHED


def _look_at_target(plan: WhitenedNewtonPlan, oracle: Oracle) -> tuple[AnyLoss, Target]:
    """Ask about the target; return the loss with what was learned, and the target's encoding."""
    loss = plan.loss
    assert not isinstance(loss, Multinomial), "several classes have steps of their own"
    match loss:
        case Logistic():
            rate, events, complete = base_rate(plan, oracle)
            return loss, Target(0.0, 1.0, rate, events, complete=complete)
        case Poisson():
            cap, square = look_at_counts(plan, oracle)
            return loss.model_copy(update={"cap": cap}), Target(0.0, 1.0, None, None, square)
        case Huber() | Squared():
            centre, complete = target_centre(plan, oracle)
            size = oracle.facts.dimension
            # At zero coefficients a residual is the target less its centre.
            alone = sizes_at(plan, oracle, EncodedPoint(np.zeros(size), np.eye(size), 1.0), centre)
            unit = max(scale_of(alone), LEAST_UNIT * alone.edges[1])
            known = loss if isinstance(loss, Squared) else loss.model_copy(update={"scale": 1.0})
            return known, Target(centre, unit, None, None, complete=complete)


def _whiten(
    plan: WhitenedNewtonPlan, oracle: Oracle, columns: Columns, loss: AnyLoss, target: Target, trimmed: Trimmed
) -> tuple[RowEncoding, Target]:
    """Ask for second moments, and make the encoding of their inverse root.

    With sampling weights, all moments are those of the weighted population: they are divided by the mean weight.
    """
    size = oracle.facts.dimension
    simple = columns.simple
    centre, unit = {
        "logistic": (0.5, 1.0),
        "poisson": (0.0, loss.cap if isinstance(loss, Poisson) and loss.cap else 1.0),
    }.get(loss.kind, (target.centre, TARGET_REACH * target.unit))
    ranges = oracle.facts.ranges
    assert ranges is not None, "the planner says where columns lie"
    known = None if ranges.offset is None else (sum(ranges.offset) / 2, _half(ranges.offset))
    answer = oracle.ask(plan.moment_question(centre, unit, known, trimmed.cut), above(np.zeros(size), simple))
    received, deviation, counted = answer.value.numpy(), answer.scale, 1.0
    if plan.weighted:
        # A noised mean weight may be zero or negative, and it divides; no weight is above 1.
        counted = min(max(float(received[0, 0]), WEIGHT_CAUTION * deviation, TINY), 1.0)
        received, deviation = received / counted, deviation / counted
    number = np.array([kind in {"number", "product"} for kind in ranges.kinds[1:]])
    made = encoded_by(received, deviation, simple, number if isinstance(loss, Logistic) else None)
    made = replace(made, counted=counted, trimmed=trimmed)
    weight = made.weight
    if known is not None:
        made = replace(made, shift=_shift(received, weight, made.whitening, made.mean, deviation, known))
    if plan.weighted and isinstance(loss, Logistic):
        # Off 0 and 1, for steps begin at the rate's logit; 1/2 keeps the two ends in order.
        least = min(3 * deviation / weight, 0.5)
        rate = float(np.clip(0.5 + received[0, size] / weight, least, 1 - least))
        target = target._replace(sampled=target.rate, rate=rate)
    if isinstance(loss, Poisson):
        assert loss.cap is not None, "it was learned"
        rate = max(float(received[0, size]) / weight * loss.cap, 3 * deviation / weight * loss.cap, LEAST_RATE)
        target = target._replace(rate=rate, events=oracle.facts.units * weight * rate)
    return made, target


def _half(ends: tuple[float, float]) -> float:
    """Return half of a range, or 1 where both ends are one number."""
    return (ends[1] - ends[0]) / 2 or 1.0


def _shift(
    received: Array, weight: float, whitening: Array, mean: Array, deviation: float, known: tuple[float, float]
) -> Shift:
    """Return what the moments' last column tells of an offset, which is encoded less `known[0]`, over `known[1]`."""
    size, (centre, unit) = len(mean) + 1, known
    middle = float(received[0, size + 1]) / weight
    slopes = whitening @ (received[1:size, size + 1] / weight - middle * mean)
    noise = (deviation / weight) ** 2 * float(np.trace(whitening @ whitening))
    slopes = slopes * positive_part(float(slopes @ slopes), noise)
    own = float(received[size + 1, size + 1]) / weight - middle**2
    beside = max(0.0, own - float(slopes @ slopes))
    return Shift(centre + unit * middle, unit * slopes, unit**2 * beside)


def _start(loss: AnyLoss, encoded: RowEncoding, target: Target) -> Array:
    """Return where steps begin: least squares from the moments, brought to the scale of the predictor."""
    size = len(encoded.matrix)
    received, weight = encoded.moments, encoded.weight
    middle = float(received[0, size]) / weight
    slopes = encoded.whitening @ (received[1:size, size] / weight - middle * encoded.mean)
    noise = (encoded.deviation / weight) ** 2 * float((encoded.whitening**2).sum())
    slopes = slopes * positive_part(float(slopes @ slopes), noise)
    if isinstance(loss, Huber | Squared):
        return np.concatenate(([middle * TARGET_REACH], slopes * TARGET_REACH))
    assert target.rate is not None, "it was told"
    rate = target.rate
    if isinstance(loss, Poisson):
        assert loss.cap is not None, "it was learned"
        slopes, intercept, bend = slopes * loss.cap / rate, log(rate), 1.0
    else:
        slopes, intercept, bend = slopes / (rate * (1 - rate)), log(rate / (1 - rate)), 1 - 2 * rate
    slopes = _no_longer(slopes, LONGEST_START)
    # To second order a varying predictor moves the mean, on the link's scale, by `bend` times half its variance.
    shift = encoded.shift
    if shift is None:
        return np.concatenate(([intercept - bend * float(slopes @ slopes) / 2], slopes))
    # The outcome tells of the whole predictor; what is known of it is taken away.
    varying = float(slopes @ slopes) + shift.variance
    return np.concatenate(([intercept - bend * varying / 2 - shift.mean], slopes - shift.slopes))


def _no_longer(step: Array, most: float) -> Array:
    """Return a vector, cut to a length."""
    length = float(np.linalg.norm(step))
    return step if length <= most else step * (most / length)


def _walk(plan: WhitenedNewtonPlan, questions: EncodedQuestions, theta: Array) -> Array:
    """Take the short steps: shortened where a gradient is mostly noise, and cut to a length."""
    pairs = list(zip(plan.gradient_sigmas(), plan.hessian_sigmas(), strict=True))
    for gradient_sigma, hessian_sigma in pairs[: plan.damped_steps]:
        gradient, deviation = questions.gradient(theta, gradient_sigma)
        hessian = questions.matrix(theta, hessian_sigma)
        part = positive_part(float(gradient @ gradient), len(theta) * deviation**2)
        step = newton_step(hessian, gradient, questions.peak, STEP_FLOOR) * part
        theta = theta - _no_longer(step, _LONGEST_STEP[questions.kind])
    return theta


def _walk_linear(
    plan: WhitenedNewtonPlan,
    oracle: Oracle,
    encoded: RowEncoding,
    loss: Huber | Squared,
    target: Target,
    theta: Array,
) -> tuple[RowEncoding, Target, Array]:
    """Take the short steps of a linear model; return where they end, with the encoding and the unit there."""

    def questions_at(place: EncodedPoint, cut: float) -> EncodedQuestions:
        own, unit = replace(encoded, matrix=place.encoding), target._replace(unit=place.unit)
        return questions_of(plan, oracle, own, unit, cut)

    simple_to_encoded = encoded.matrix @ np.linalg.inv(encoded.simple)
    raised = simple_to_encoded @ encoded.raised @ simple_to_encoded.T
    begin = EncodedPoint(theta, encoded.matrix, target.unit)
    cut = loss.c if isinstance(loss, Huber) else None
    end = walk(plan, oracle, begin, questions_at, cut, target.centre, raised)
    return replace(encoded, matrix=end.encoding), target._replace(unit=end.unit), end.theta


def _least_squares(
    plan: WhitenedNewtonPlan, oracle: Oracle, columns: Columns, encoded: RowEncoding, target: Target, theta: Array
) -> Estimate:
    """Take the exact last step of least squares; return the line that is claimed, with the other one beside it."""
    banded = ask_by_bands(plan, oracle, encoded, target, theta)
    questions = questions_of(plan, oracle, encoded, target)
    questions.explained()  # with sampling weights it asks for their sums
    found = finish_bands(banded, banded.counted if plan.tails == "counted" else banded.light)
    return _received(plan, oracle, columns, encoded, questions, target, found, banded)


def _last_answers(plan: WhitenedNewtonPlan, questions: EncodedQuestions, theta: Array) -> Last:
    """Take the first precise step, and ask what the last one and the covariance need where it ends."""
    sigmas = list(zip(plan.gradient_sigmas(), plan.hessian_sigmas(), strict=True))[-2:]
    (first_gradient, first_hessian), (last_gradient, last_hessian) = sigmas
    gradient, deviation = questions.gradient(theta, first_gradient)
    hessian = questions.matrix(theta, first_hessian)
    step = newton_step(hessian, gradient, questions.peak)
    if questions.kind == "logistic":
        step = theta - onward(theta, -step, questions.metric)
    before, theta = theta, theta - _no_longer(step, 2 * _LONGEST_STEP[questions.kind])
    second = questions.gradient(theta, last_gradient)
    again = questions.matrix(theta, last_hessian)
    scores = questions.scores(theta, plan.sigma(plan.shares.scores))
    return Last(
        kind=questions.kind,
        before=before,
        theta=theta,
        metric=questions.metric,
        gradients=(NoisedAnswer(gradient, deviation), second),
        hessians=(hessian, again),
        scores=scores,
        peak=questions.peak,
        explained=questions.explained(),
        units=questions.units,
        unidentified=plan.unidentified_deviation,
        doubtful=questions.doubtful(theta),
        offset=questions.offset,
    )


def _received(
    plan: WhitenedNewtonPlan,
    oracle: Oracle,
    columns: Columns,
    encoded: RowEncoding,
    questions: EncodedQuestions,
    target: Target,
    found: Finished,
    banded: Banded | None = None,
) -> Estimate:
    """Return the estimate in encoded units.

    Args:
        plan: nothing open.
        oracle: for its public facts.
        columns: as looked at.
        encoded: rows.
        questions: of the last answers.
        target: its encoding.
        found: the estimate in re-encoded coordinates.
        banded: of least squares, the last answers.
    """
    loss = questions.loss
    unit = target.unit if isinstance(loss, Huber) else 1.0
    spread = 1.0 if banded is None else sqrt(banded.level)
    back = unit * encoded.matrix.T
    # x = E v, hence theta' x = (E' theta)' v.
    theta = back @ found.theta
    theta[0] += target.centre
    ranges = oracle.facts.ranges
    assert ranges is not None, "the planner says where columns lie"
    checks = check(
        Found(
            kind=plan.loss.kind,  # type: ignore[arg-type] # several classes have a fit of their own
            found=found,
            back=back,
            theta=theta,
            ranges=ranges,
            encoding=encoded.matrix,
            metric=encoded.metric,
            centre=columns.centre,
            scale=columns.scale,
            sparse=columns.sparse,
            clamped=columns.clamped,
            heaped=columns.heaped,
            recentring=columns.recentring,
            sizes=columns.sizes,
            rate=target.rate,
            events=target.effective_events(questions.sampling),
            residual_scale=unit * spread if isinstance(loss, Huber) else None,
            reach=None if banded is None else float(banded.edges[-1]) / spread,
            cap=loss.cap if isinstance(loss, Poisson) else None,
            cut=questions.asked if isinstance(questions.asked, CutPoisson) else None,
            variance_ratio=questions.counts.variance_ratio if questions.counts else None,
            weight_bound=plan.weight_bound,
            offset=None if encoded.shift is None else encoded.shift.mean,
            sampling=questions.sampling,
            complete=target.complete,
        )
    )
    covariance, sampling = (back @ one @ back.T for one in (found.covariance, found.sampling))
    return newton_estimate(
        theta,
        covariance,
        sampling,
        found.hessian,
        step=found.omega,
        steps=plan.steps,
        checks=checks,
        other=None if banded is None else other_line(plan, banded, back, target),
    )
