"""The last step and the covariance of whitened Newton for several classes: arithmetic on its last noised answers.

As `last_step`, with parameters in blocks: contrasts of classes times features, class after class. The
target of the Hessian's shrinkage differs. On re-encoded columns it is about S kron I, where S has the contrasts'
curvature: small along a rare class. Matrices are shrunk towards S kron I, with S from the matrix's own partial trace
and from the classes' noised frequencies. A multiple of the identity would shrink rare classes towards the others'
curvature. Noise is of one deviation on coordinates, see `core.queries.classes`; `NoisedAnswer.deviation` of a matrix
here is what its eigenvalues spread by.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from core.inference.shrinkage import TINY, assembled, drawn_in, kept_part, positive_part
from core.methods.m_estimation.whitened_newton.inference.class_coordinates import effective
from core.methods.m_estimation.whitened_newton.inference.last_step import (
    CAUTION,
    CLEAR,
    DOUBTED_PART,
    HIDDEN_DEVIATIONS,
    HIDDEN_PART,
    LEAST_RATIO,
    LEAST_SCORES,
    MEAN_FLOOR,
    MOST_RATIO,
    NOISE_FLOOR,
    LastAnswers,
    NoisedAnswer,
)

Array = NDArray[np.float64]
DISPERSION: Final = 1.0
LEAST_OF_RATES, MOST_OF_RATES = 0.2, 5.0
"""Between which multiples of what frequencies say a contrast's curvature is believed to lie."""
LEAST_MULTIPLE: Final = 0.1
"""Of the curvature that frequencies alone say, at the least."""


class ParameterSizes(NamedTuple):
    """Arrangement of parameters."""

    contrasts: int
    features: int

    @property
    def all(self) -> int:
        """Number of parameters."""
        return self.contrasts * self.features


@dataclass(frozen=True)
class ClassShrunk:
    """A matrix drawn towards S kron I, by eigenvalues and eigenvectors."""

    values: Array
    """Floored."""
    vectors: Array
    usual: Array
    """Of S kron I along each eigenvector."""
    kept: float
    """The part of the distance from S kron I that noise does not explain."""

    @property
    def inverse(self) -> Array:
        """The inverse."""
        return assembled(self.vectors, 1 / self.values)

    @property
    def root(self) -> Array:
        """The symmetric inverse root."""
        return assembled(self.vectors, 1 / np.sqrt(self.values))


def rate_curvature(rates: Array, basis: Array) -> Array:
    """Return S of records that all have these chances: U'(diag(pi) - pi pi')U."""
    found: Array = basis.T @ (np.diag(rates) - np.outer(rates, rates)) @ basis
    return found


def shrunk_to_classes(
    measured: NoisedAnswer, sizes: ParameterSizes, expected: Array, part: float = MEAN_FLOOR
) -> ClassShrunk:
    """Shrink a noised Hessian towards S kron I, and floor what is left by its noise and at a part of that.

    Args:
        measured: of all parameters.
        sizes: their arrangement.
        expected: S by frequencies alone, shape (m, m).
        part: of S kron I along a direction, below which no eigenvalue is taken to lie.
    """
    centre = np.kron(class_curvature(measured, sizes, expected), np.eye(sizes.features))
    values, vectors = np.linalg.eigh((measured.value + measured.value.T) / 2 - centre)
    kept = kept_part(values, measured.deviation)
    drawn = centre + assembled(vectors, drawn_in(values, measured.deviation, sizes.all, kept))
    values, vectors = np.linalg.eigh(drawn)
    usual = np.einsum("ij,ik,kj->j", vectors, centre, vectors)
    least = np.maximum(NOISE_FLOOR * kept * measured.deviation * sqrt(sizes.all), part * usual)
    return ClassShrunk(np.maximum(values, least), vectors, usual, kept)


def class_curvature(measured: NoisedAnswer, sizes: ParameterSizes, expected: Array) -> Array:
    """Return S, shape (m, m): the mean over features of a noised Hessian's blocks, drawn towards what rates say."""
    m, p = sizes
    mean = np.einsum("aibi->ab", measured.value.reshape(m, p, m, p)) / p
    deviation = measured.deviation / effective(m, p) * effective(m, 1) / sqrt(p)
    multiple = max(float((mean * expected).sum() / (expected**2).sum()), LEAST_MULTIPLE)
    expected = multiple * expected
    values, vectors = np.linalg.eigh((mean + mean.T) / 2 - expected)
    found = expected + assembled(vectors, drawn_in(values, deviation, m, _kept_of_few(values, deviation)))
    lower = np.linalg.cholesky(np.linalg.inv(expected))
    # In these coordinates `expected` is the identity, and eigenvalues are multiples of it.
    values, vectors = np.linalg.eigh(lower.T @ found @ lower)
    back = np.linalg.inv(lower)
    bounded: Array = back.T @ assembled(vectors, np.clip(values, LEAST_OF_RATES, MOST_OF_RATES)) @ back
    return bounded


def _kept_of_few(values: Array, deviation: float) -> float:
    """Return the part of squared eigenvalues that noise does not explain; of one number, too."""
    return positive_part(float((values**2).sum()), deviation**2 * len(values) ** 2)


@dataclass(frozen=True)
class LastOfClasses(LastAnswers):
    """The last answers, of contrasts' blocks."""

    sizes: ParameterSizes
    expected: Array
    """S by frequencies alone."""


@dataclass(frozen=True)
class WhitenedClasses:
    """The estimate with its covariance, in contrast and re-encoded coordinates."""

    theta: Array
    covariance: Array
    """Sampling, noise, and a public guess along hidden directions."""
    sampling: Array
    guess: Array
    unlearned: Array
    """The part of the covariance that lies along hidden eigenvectors of the Hessian, the guess included."""
    hessian: Array
    """Noised, pooled and not shrunk."""
    last: LastOfClasses
    excess: float
    """|g2|^2 over its 99.9 % point where the steps have converged."""
    hessian_noise: float
    """The spectral noise of the Hessian over its mean eigenvalue."""
    least_noise: float
    """The same over the least curvature of a contrast: of the rarest class."""
    omega: float
    """Part of a Newton step that was taken last."""


def class_step(
    measured: NoisedAnswer, gradient: Array, sizes: ParameterSizes, expected: Array, part: float = MEAN_FLOOR
) -> Array:
    """Return H^-1 g with the Hessian shrunk towards S kron I and floored."""
    found: Array = shrunk_to_classes(measured, sizes, expected, part).inverse @ gradient
    return found


def finish_classes(last: LastOfClasses) -> WhitenedClasses:
    """Take the last, partial step, and reckon the covariance there; see `last_step.finish`."""
    sizes, size = last.sizes, last.sizes.all
    hessian = pooled_by_trace(last.hessians, size)
    shrunk = shrunk_to_classes(hessian, sizes, last.expected)
    (_, first), (gradient, second) = last.gradients
    both, length = first**2 + second**2, float(gradient @ gradient)
    left = max(0.0, length - size * both) + CAUTION * sqrt(2 * size) * both
    omega = (left + size * first**2) / (left + size * both)
    inverse = shrunk.inverse
    step = omega * (inverse @ gradient)
    edge = hessian.deviation * sqrt(size)
    hidden = _hidden(hessian, shrunk, sizes, edge)
    sampling, drift = _sampling(last, shrunk, hidden)
    distance = (1 - omega) * last.moved + float(np.linalg.norm(step))
    private = (1 - omega) ** 2 * (first**2 + left / size) + omega**2 * second**2
    private += shrunk.kept * (hessian.deviation * distance) ** 2
    hiding = shrunk.vectors[:, hidden] @ shrunk.vectors[:, hidden].T
    guess = last.unidentified**2 / 2 * hiding  # a predictor against another's is sqrt(2) of a contrast
    covariance = sampling + private * inverse @ inverse / drift**2 + guess
    wandering = shrunk.kept * (last.hessians[0].deviation * last.moved) ** 2
    curvatures = np.linalg.eigvalsh(class_curvature(hessian, sizes, last.expected))
    return WhitenedClasses(
        theta=last.theta - step,
        covariance=(covariance + covariance.T) / 2,
        sampling=sampling,
        guess=guess,
        unlearned=hiding @ covariance @ hiding,
        hessian=hessian.value,
        last=last,
        excess=length / (both + wandering) / float(chi2.ppf(0.999, size)),
        hessian_noise=2 * edge / max(float(curvatures.mean()), TINY),
        least_noise=2 * edge / max(float(curvatures[0]), TINY),
        omega=omega,
    )


def _hidden(hessian: NoisedAnswer, shrunk: ClassShrunk, sizes: ParameterSizes, edge: float) -> NDArray[np.bool_]:
    """Say along which eigenvectors the noise hides the Hessian."""
    along = np.einsum("ij,ik,kj->j", shrunk.vectors, hessian.value, shrunk.vectors)
    one = hessian.deviation / effective(*sizes)  # of the noise along a direction
    found: NDArray[np.bool_] = along < np.maximum(max(edge, HIDDEN_DEVIATIONS * one), HIDDEN_PART * shrunk.usual)
    return found


def pooled_by_trace(hessians: tuple[NoisedAnswer, NoisedAnswer], size: int) -> NoisedAnswer:
    """Return the first Hessian, brought to the trace of the second, and the second, weighted by precision."""
    first, second = hessians
    traces = np.trace(first.value) / size, np.trace(second.value) / size
    # A noised trace may be near zero or negative; the ratio then means nothing.
    clear = min(traces) > CLEAR * max(first.deviation, second.deviation) / sqrt(size)
    ratio = float(np.clip(traces[1] / traces[0], LEAST_RATIO, MOST_RATIO)) if clear else 1.0
    one, other = (ratio * first.deviation) ** -2, second.deviation**-2
    value: Array = (one * ratio * first.value + other * second.value) / (one + other)
    return NoisedAnswer(value, (one + other) ** -0.5)


def _sampling(last: LastOfClasses, shrunk: ClassShrunk, hidden: NDArray[np.bool_]) -> tuple[Array, float]:
    """Return the sampling covariance, and how far the Hessian drifted.

    Scores are a multiple of the Hessian where the model is right. They are shrunk towards it in the coordinates of
    their answer, where the noise has one size and rare classes' curvature is small. More than the weights explain is
    dispersion, and is kept. Less is shrunk; if it remains, the noised Hessian is too large.
    """
    size, scores = last.sizes.all, last.scores
    hessian = assembled(shrunk.vectors, shrunk.values)
    seen = assembled(shrunk.vectors, np.where(hidden, 0.0, shrunk.values))
    length = float((seen**2).sum())
    measured = float((scores.value * seen).sum()) / length if length > 0 else 1.0
    doubt = (scores.deviation / effective(*last.sizes)) ** 2 / max(length, TINY)
    beyond = measured - last.explained
    prior = DOUBTED_PART * last.explained if beyond < 0 else DISPERSION
    believed = prior**2 / (prior**2 + doubt)
    if beyond > 0:  # dispersion has no bound: what stands clear of the noise is not drawn towards a prior
        believed = max(believed, positive_part(beyond**2, doubt))
    kappa = max(last.explained + believed * beyond, 0.1 * last.explained)
    apart, axes = np.linalg.eigh((scores.value + scores.value.T) / 2 - measured * hessian)
    rest = drawn_in(apart, scores.deviation, size, kept_part(apart, scores.deviation))
    root = shrunk.root
    values, vectors = np.linalg.eigh(root @ (kappa * hessian + assembled(axes, rest)) @ root)
    relative = assembled(vectors, np.maximum(values, LEAST_SCORES * kappa))
    drift = float(np.clip(kappa / last.explained, 0.5, 1.0))
    # n - p allows for fitted parameters; n/2 keeps it positive where these are many.
    return root @ relative @ root / max(last.units - size, last.units / 2) / drift**2, drift
