"""The short steps of a linear model: residuals are measured again, and columns re-encoded again, after each of them.

The scale of residuals is first that of a fit of noised moments. Where the true scale is a hundredth of the target's,
this value is the error of the start. One question of counts therefore asks for it again at each new point. Each step's
Hessian shows the covariance of columns in the encoding so far. The first moments' noise hides directions along which
nearly aliased columns differ; they stand out once the others are scaled to their size.

Sensitivity: that of each question, one Gaussian answer each; all else is post-processing of noised answers.
Failure: none. An estimate's checks report its faults.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from core.inference.shrinkage import assembled, positive_part, shrink
from core.methods.m_estimation.whitened_newton.inference.last_step import NoisedAnswer, newton_step
from core.methods.m_estimation.whitened_newton.inference.residual_sizes import Sizes, edges_of, scale_of, spread_of
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.oracle import Oracle
from core.privacy.facts import Adjacency, Facts

Array = NDArray[np.float64]
COVARIANCE_FLOOR: Final = 0.02
LEAST_COVARIANCE: Final = 0.05
NOISE_FLOOR: Final = 0.75
NORMAL_PART: Final = 0.8
"""Mean second derivative, about."""
LONGEST_START: Final = 1.5
"""Of the first slopes, in logits a deviation of the predictor."""
STEP_FLOOR: Final = 0.05
"""Part of the mean eigenvalue that a step takes a Hessian's eigenvalues for, at least."""
LEAST_CUT, WIDEST_CUT = 1.345, 6.0
STEP_NOISE: Final = 0.25
"""Residual scales that a step's noise may come to in length."""
SETTLED: Final = 0.6
SHORT: Final = 1.0
"""A unit that has fallen to no less than the first part of itself, by a step shorter than the second, shows what
residuals are; else it is that of where steps have come to."""
MOST_GROWTH: Final = 2.0
LEAST_OF_NOISE: Final = 0.5
"""Lower limit of the residuals' assumed spread after a step, as a part of the step's own noise. The upper limit is
MOST_GROWTH times the spread before. Values outside are noise of the counts."""


@dataclass(frozen=True)
class EncodedPoint:
    """A point with the public encoding of rows and of the target that it is in."""

    theta: Array
    encoding: Array
    """E, shape (p, p)."""
    unit: float
    """Of the target, in its encoded units."""

    def measured_in(self, scale: float) -> "EncodedPoint":
        """Return the same point in another unit, given in units of this one."""
        return replace(self, theta=self.theta / scale, unit=self.unit * scale)

    def seen_by(self, change: Array) -> "EncodedPoint":
        """Return the same point in other coordinates, x' = T x."""
        theta = np.asarray(np.linalg.solve(change.T, self.theta), dtype=np.float64)
        return replace(self, theta=theta, encoding=change @ self.encoding)


class PlaceQuestions(Protocol):
    """Questions about re-encoded rows, at one place."""

    @property
    def peak(self) -> float:
        """Largest second derivative of the loss."""

    def gradient(self, theta: Array, sigma: float) -> NoisedAnswer:
        """Return a noised gradient."""

    def matrix(self, theta: Array, sigma: float) -> NoisedAnswer:
        """Return a noised Hessian."""


def walking_cut(settings: WhitenedNewtonPlan, facts: Facts) -> float:
    """Return where short steps cut residuals, in their scales: far out, as far as the noise allows.

    A step towards Huber's estimate with a small c goes too far where the error is of many scales and lies along few
    directions, as it does if columns tell nearly all of the target. With few residuals beyond the cut it arrives.
    """
    adjacency = 2.0 if facts.adjacency is Adjacency.REPLACE_ONE else 1.0
    length = adjacency * settings.weight_bound * sqrt(facts.dimension) / facts.units / NORMAL_PART
    return float(np.clip(STEP_NOISE / (length * settings.gradient_sigmas()[0]), LEAST_CUT, WIDEST_CUT))


def walk(
    settings: WhitenedNewtonPlan,
    oracle: Oracle,
    place: EncodedPoint,
    questions_at: Callable[[EncodedPoint, float], PlaceQuestions],
    cut: float | None,
    centre: float,
    raised: Array,
) -> EncodedPoint:
    """Take the short steps of a linear model; return where they end.

    Args:
        settings: public settings, nothing open.
        oracle: the only way to the records.
        place: where it begins.
        questions_at: questions in a place's encoding, with residuals cut at so many scales.
        cut: the model's own, for steps near the end; None: it has none.
        centre: of the target, in encoded units.
        raised: amount that the first encoding added to variances, in its coordinates, shape (p, p).
    """
    pairs = list(zip(settings.gradient_sigmas(), settings.hessian_sigmas(), strict=True))
    first, design, settled = place.encoding, None, False
    wide = walking_cut(settings, oracle.facts)
    sizes = sizes_at(settings, oracle, place, centre)
    place, times = place.measured_in(scale_of(sizes)), 1.0
    for number, (gradient_sigma, hessian_sigma) in enumerate(pairs[: settings.damped_steps], 1):
        final = number == settings.damped_steps
        questions = questions_at(place, cut if settled and cut is not None else wide)
        gradient, deviation = questions.gradient(place.theta, gradient_sigma)
        hessian = questions.matrix(place.theta, hessian_sigma)
        length = len(gradient) * deviation**2
        step = newton_step(hessian, gradient, questions.peak, STEP_FLOOR) * positive_part(
            float(gradient @ gradient), length
        )
        place = replace(place, theta=place.theta - step)
        so_far = place.encoding @ np.linalg.inv(first)
        design = pooled(design, hessian)
        change = whitening(design, so_far @ raised @ so_far.T)
        design, place = seen_by(design, change), place.seen_by(change)
        sizes = sizes_at(settings, oracle, place, centre)
        received = max(scale_of(sizes), spread_of(sizes)) if final and not settled else scale_of(sizes)
        times = min(max(received, LEAST_OF_NOISE * sqrt(length) / NORMAL_PART), MOST_GROWTH)
        place = place.measured_in(times)
        settled = times > SETTLED and float(np.linalg.norm(step)) < SHORT
    return place


def sizes_at(settings: WhitenedNewtonPlan, oracle: Oracle, place: EncodedPoint, centre: float) -> Sizes:
    """Ask how large residuals are, in units of the place."""
    ranges = oracle.facts.ranges
    assert ranges is not None, "the planner says where columns lie"
    lower, upper = ranges.target
    question = settings.linear_residual_question((upper - lower) / place.unit, centre, place.unit)
    answer = oracle.ask(question, torch.from_numpy(np.vstack((place.theta, place.encoding))))
    edges = edges_of(question.top, question.bins, question.per_octave)
    return Sizes(answer.value.numpy(), answer.scale, edges)


def pooled(before: NoisedAnswer | None, hessian: NoisedAnswer) -> NoisedAnswer:
    """Return how columns vary together by all Hessians so far, of mean eigenvalue one, weighted by precision.

    Residuals differ from step to step, so a Hessian is known up to a factor; its share of the noise goes with it.
    """
    # A noised trace may be zero or negative, and it divides.
    mean = max(float(np.trace(hessian.value)) / len(hessian.value), 0.5 * hessian.deviation)
    own = NoisedAnswer(hessian.value / mean, hessian.deviation / mean)
    if before is None:
        return own
    weights = before.deviation**-2, own.deviation**-2
    value: Array = (weights[0] * before.value + weights[1] * own.value) / sum(weights)
    return NoisedAnswer(value, sum(weights) ** -0.5)


def seen_by(received: NoisedAnswer, change: Array) -> NoisedAnswer:
    """Return a matrix in other coordinates, with the root mean square of its entries' noise there."""
    return NoisedAnswer(change @ received.value @ change.T, received.deviation * float((change**2).sum()) / len(change))


def whitening(design: NoisedAnswer, raised: Array) -> Array:
    """Return a map of coordinates, T, after which columns are nearer to uncorrelated, of unit variance.

    Only what stands clear of the noise is taken out. While the noise's edge is beyond the mean eigenvalue, it hides
    how small any other one is: T is the identity.

    Args:
        design: noised, of mean eigenvalue one.
        raised: in the same coordinates, what is added to variances so that rare values are not blown up.
    """
    size = len(design.value)
    if 2 * design.deviation * sqrt(size) > 1:
        return np.eye(size)
    found = shrink(design.value + raised, design.deviation, LEAST_COVARIANCE)
    floor = max(COVARIANCE_FLOOR * found.mean, NOISE_FLOOR * found.kept * design.deviation * sqrt(size))
    return assembled(found.vectors, 1 / np.sqrt(np.maximum(found.values, floor)))
