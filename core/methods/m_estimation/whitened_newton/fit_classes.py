"""Whitened Newton for several classes: the same road, with a block of coefficients for each contrast of classes.

Sensitivity: that of each question, one Gaussian answer each, in `core.queries.looks` and `core.queries.classes`. The
number of questions and their shares are fixed beforehand. Everything else is post-processing. Failure: none, as
`core.methods.m_estimation.whitened_newton.fit`.

Class k has the predictor sum_a U_ka theta_a' x on re-encoded rows x; coefficients against class 0 are differences of
rows of U theta, so no class is noisier for being the baseline.
"""

from math import sqrt
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from core.inference.estimate import Estimate, newton_estimate
from core.inference.looks import Columns
from core.inference.shrinkage import TINY, positive_part
from core.losses.categorical import Multinomial
from core.methods.m_estimation.whitened_newton.column_look import Complete, look_at_columns
from core.methods.m_estimation.whitened_newton.inference.class_checks import FoundClasses, check_classes
from core.methods.m_estimation.whitened_newton.inference.class_coordinates import (
    as_matrix,
    contrasts_of,
    effective,
    matrix_of,
)
from core.methods.m_estimation.whitened_newton.inference.class_last_step import (
    LastOfClasses,
    ParameterSizes,
    WhitenedClasses,
    class_step,
    finish_classes,
    rate_curvature,
)
from core.methods.m_estimation.whitened_newton.inference.last_step import NoisedAnswer
from core.methods.m_estimation.whitened_newton.linear_walk import LONGEST_START, STEP_FLOOR
from core.methods.m_estimation.whitened_newton.questions import EXPLAINED
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.methods.m_estimation.whitened_newton.whitening import RowEncoding, above, encoded_by
from core.oracle import Oracle, Status
from core.queries.classes import ClassCurvature, ClassGradient

Array = NDArray[np.float64]
LONGEST_STEP: Final = 1.5
"""Of a predictor against another's, in its deviations."""
SURE: Final = 3.0
"""Deviations of a noised frequency that it is kept from 0 by."""


class Classes(NamedTuple):
    """Noised answers about the classes."""

    rates: Array
    """Kept off zero, summing to 1, shape (K,)."""
    received: Array
    """Noised, shape (K,)."""
    basis: Array
    """U, shape (K, m)."""
    expected: Array
    """S = U'(diag(rates) - rates rates')U, shape (m, m)."""
    complete: Complete
    """Records with all values, as counted."""


def iterate(settings: WhitenedNewtonPlan, oracle: Oracle, looked: Columns | None = None) -> tuple[Estimate, Status]:
    """Estimate coefficients of all classes but the first with their covariance; arguments as for two classes.

    Returns:
        The estimate, in encoded units, class after class, its covariance and its checks.
    """
    assert bool(settings.looked) == (looked is not None), "a look is paid for where none is given"
    columns = look_at_columns(settings, oracle) if looked is None else looked
    classes = _look_at_classes(settings, oracle)
    sizes = ParameterSizes(len(classes.expected), len(columns.scale))
    encoded, cross = _whiten(settings, oracle, columns, sizes)
    questions = _ClassQuestions(settings, oracle, encoded, sizes)
    theta = _walk(settings, questions, classes, _start(encoded, cross, classes))
    found = finish_classes(_last_answers(settings, questions, classes, theta))
    return _received(settings, oracle, columns, encoded, classes, found), Status.FINISHED


def _look_at_classes(settings: WhitenedNewtonPlan, oracle: Oracle) -> Classes:
    """Ask how frequent each class is."""
    loss, question = settings.loss, settings.target_question()
    assert isinstance(loss, Multinomial), "asked of several classes"
    assert loss.classes is not None, "planned"
    assert question is not None, "classes are asked about"
    answer = oracle.ask(question, torch.zeros(oracle.facts.dimension, dtype=torch.float64))
    received = answer.value.numpy()
    # At most 1/K, for the K rates sum to 1.
    least = min(max(SURE * answer.scale, 2 / oracle.facts.units), 1 / loss.classes)
    rates = np.maximum(received, least)
    rates, basis = rates / rates.sum(), contrasts_of(loss.classes)
    units = oracle.facts.units
    complete = Complete(float(received.sum()) * units, sqrt(loss.classes) * answer.scale * units)
    return Classes(rates, received, basis, rate_curvature(rates, basis), complete)


def _whiten(
    settings: WhitenedNewtonPlan, oracle: Oracle, columns: Columns, sizes: ParameterSizes
) -> tuple[RowEncoding, Array]:
    """Ask for second moments; return the encoding of their inverse root, and moments with classes, shape (m, p)."""
    point = above(np.zeros(sizes.all), columns.simple)
    answer = oracle.ask(settings.moment_question(), point)
    listed, own = answer.value.numpy(), sizes.features * (sizes.features + 1) // 2
    # Of noise with one deviation on coordinates; eigenvalues spread by less than if entries had it.
    moments = matrix_of(listed[:own], sizes.features)
    encoded = encoded_by(moments, answer.scale * effective(1, sizes.features), columns.simple)
    return encoded, (listed[own:] / np.sqrt(2)).reshape(sizes.features, sizes.contrasts).T


def _start(encoded: RowEncoding, cross: Array, classes: Classes) -> Array:
    """Return where steps begin: least squares of class contrasts, brought to the scale of predictors, shape (m, p).

    The intercepts give classes their frequencies where predictors are normal, to second order in the slopes.
    """
    basis, weight = classes.basis, encoded.weight
    middle = cross[:, 0] / weight
    slopes = (cross[:, 1:] / weight - np.outer(middle, encoded.mean)) @ encoded.whitening
    noise = (encoded.deviation / weight) ** 2 * float(np.trace(encoded.whitening @ encoded.whitening))
    values, vectors = np.linalg.eigh(classes.expected)
    along = vectors.T @ slopes / values[:, None]  # one contrast's noise is the larger the rarer its classes are
    parts = [positive_part(float(one @ one), noise / value**2) for one, value in zip(along, values, strict=True)]
    slopes = _no_longer(vectors @ (np.array(parts)[:, None] * along), LONGEST_START)
    spread = basis @ slopes @ slopes.T @ basis.T
    rates, own = classes.rates, np.diag(spread)
    bend = own - 2 * spread @ rates + 2 * float(rates @ spread @ rates) - float(rates @ own)
    return np.column_stack((basis.T @ (np.log(rates) - bend / 2), slopes))


def _no_longer(step: Array, most: float) -> Array:
    """Return a step of all contrasts, shape (m, p), cut to a length of the longest difference of two predictors."""
    # Two rows of orthonormal contrasts differ by a vector of length sqrt(2).
    length = float(np.sqrt(2) * np.linalg.norm(step, 2))
    return step if length <= most else step * (most / length)


class _ClassQuestions:
    """The questions about re-encoded rows and classes, in one encoding."""

    def __init__(
        self, settings: WhitenedNewtonPlan, oracle: Oracle, encoded: RowEncoding, sizes: ParameterSizes
    ) -> None:
        self._settings, self._oracle, self._encoded, self.sizes = settings, oracle, encoded, sizes
        self._shared = {"classes": sizes.contrasts + 1, "weight_bound": settings.weight_bound}
        self.units = oracle.facts.units

    def gradient(self, theta: Array, sigma: float) -> NoisedAnswer:
        """Return a noised gradient at theta, shape (m, p); itself of shape (m p,)."""
        question = ClassGradient.model_validate({"sigma": sigma, **self._shared})
        answer = self._oracle.ask(question, self._encoded.at(theta.ravel()))
        return NoisedAnswer(answer.value.numpy(), answer.scale)

    def matrix(self, theta: Array, sigma: float, of: str = "hessian") -> NoisedAnswer:
        """Return a noised Hessian, or scores, shape (m p, m p)."""
        question = ClassCurvature.model_validate({"sigma": sigma, "of": of, **self._shared})
        answer = self._oracle.ask(question, self._encoded.at(theta.ravel()))
        return as_matrix(answer.value.numpy(), answer.scale, *self.sizes)

    def explained(self) -> float:
        """Return what weights below one make of the ratio of scores to Hessian where the model is right."""
        point = self._encoded.at(np.zeros(self.sizes.all))
        answer = self._oracle.ask(self._settings.weight_question(), point)
        once, twice = answer.value.tolist()
        return EXPLAINED if answer.scale >= 0.1 * once else float(np.clip(twice / max(once, TINY), 0.5, 1.0))


def _walk(settings: WhitenedNewtonPlan, questions: _ClassQuestions, classes: Classes, theta: Array) -> Array:
    """Take the short steps: shortened where a gradient is mostly noise, and cut to a length."""
    pairs = list(zip(settings.gradient_sigmas(), settings.hessian_sigmas(), strict=True))
    for gradient_sigma, hessian_sigma in pairs[: settings.damped_steps]:
        gradient, deviation = questions.gradient(theta, gradient_sigma)
        step = class_step(
            questions.matrix(theta, hessian_sigma), gradient, questions.sizes, classes.expected, STEP_FLOOR
        )
        part = positive_part(float(gradient @ gradient), questions.sizes.all * deviation**2)
        theta = theta - _no_longer(part * step.reshape(theta.shape), LONGEST_STEP)
    return theta


def _last_answers(
    settings: WhitenedNewtonPlan, questions: _ClassQuestions, classes: Classes, theta: Array
) -> LastOfClasses:
    """Take the first precise step, and ask what the last one and the covariance need where it ends."""
    sigmas = list(zip(settings.gradient_sigmas(), settings.hessian_sigmas(), strict=True))[-2:]
    (first_gradient, first_hessian), (last_gradient, last_hessian) = sigmas
    gradient = questions.gradient(theta, first_gradient)
    hessian = questions.matrix(theta, first_hessian)
    step = class_step(hessian, gradient.value, questions.sizes, classes.expected).reshape(theta.shape)
    before, theta = theta, theta - _no_longer(step, 2 * LONGEST_STEP)
    second = questions.gradient(theta, last_gradient)
    again = questions.matrix(theta, last_hessian)
    scores = questions.matrix(theta, settings.sigma(settings.shares.scores), "score")
    return LastOfClasses(
        sizes=questions.sizes,
        expected=classes.expected,
        before=before.ravel(),
        theta=theta.ravel(),
        gradients=(gradient, second),
        hessians=(hessian, again),
        scores=scores,
        explained=questions.explained(),
        units=questions.units,
        unidentified=settings.unidentified_deviation,
    )


def _received(
    settings: WhitenedNewtonPlan,
    oracle: Oracle,
    columns: Columns,
    encoded: RowEncoding,
    classes: Classes,
    found: WhitenedClasses,
) -> Estimate:
    """Return the estimate in encoded units, against class 0."""
    against = classes.basis[1:] - classes.basis[0]
    back = np.kron(against, encoded.matrix.T)
    theta = back @ found.theta
    ranges = oracle.facts.ranges
    assert ranges is not None, "the planner says where columns lie"
    checks = check_classes(
        FoundClasses(
            found=found,
            basis=classes.basis,
            theta=theta.reshape(len(against), -1),
            back=back,
            ranges=ranges,
            encoding=encoded.matrix,
            metric=encoded.metric,
            columns=columns,
            rates=classes.rates,
            events=classes.received * oracle.facts.units,
            complete=classes.complete,
            weight_bound=settings.weight_bound,
        )
    )
    covariance, sampling = (back @ one @ back.T for one in (found.covariance, found.sampling))
    return newton_estimate(
        theta, covariance, sampling, found.hessian, step=found.omega, steps=settings.steps, checks=checks
    )
