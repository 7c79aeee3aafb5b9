"""The last step, the covariance and the checks of whitened Newton: arithmetic on its last noised answers.

There is a noised Hessian and a gradient at a point theta_a. At theta_b, one Newton step further, there are another
Hessian, the scores and a second gradient. All is in the re-encoded coordinates, where columns have about unit variance;
a linear model's margin is in units of its residual scale. Post-processing of noised answers: nothing here costs
anything or meets a record.
"""

from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from core.inference.shrinkage import TINY, assembled, drawn_in, kept_part, positive_part, shrink
from core.methods.m_estimation.whitened_newton.inference.attenuation import carried, normal_hessian, onward

Array = NDArray[np.float64]
Kind = Literal["logistic", "poisson", "huber"]
LEAST_MEAN_PART: Final = 0.004
"""Of the loss's largest second derivative: the mean eigenvalue of a Hessian is taken to be no less."""
NOISE_FLOOR: Final = 0.75
MEAN_FLOOR: Final = 0.02
LEAST_RATIO, MOST_RATIO = 0.25, 4.0
"""Within which a mean second derivative is taken to change in the last step but one."""
CLEAR: Final = 4.0
"""Number of deviations above which a trace counts as different from zero."""
CAUTION: Final = 0.25
HIDDEN_DEVIATIONS: Final = 3.5
HIDDEN_PART: Final = 0.01
APART: Final = 1.0
"""A hidden eigenvalue lies so far below what noise makes of equal ones: about the 95 % point of Tracy and Widom."""
STRAIGHT: Final = 2.0
"""Slopes up to which, in logits a deviation of the predictor, a step goes about as far as a straight line says."""
LEAST_SCORES: Final = 0.3
DOUBTED_PART: Final = 0.3
"""Scores short of what weights explain are believed so far; dispersion beyond it more readily."""
_DISPERSION: Final[dict[Kind, float]] = {"logistic": 1.0, "huber": 1.0, "poisson": 2.0}
MOST_GUESSED: Final = 0.3
DOUBT: Final = 0.5
"""Part of an assumed law's correction that may be wrong."""
EXCESS: Final = 1.3
"""Allowed over the last gradient's 99.9 % point, for what the normal law leaves out."""


class NoisedAnswer(NamedTuple):
    """A noised answer with the standard deviation of the noise on each of its entries."""

    value: Array
    deviation: float


@dataclass(frozen=True)
class LastAnswers:
    """The last answers of a run: at theta_a the first of each pair, at theta_b the second."""

    before: Array
    """theta_a, shape (p,)."""
    theta: Array
    """theta_b."""
    gradients: tuple[NoisedAnswer, NoisedAnswer]
    hessians: tuple[NoisedAnswer, NoisedAnswer]
    scores: NoisedAnswer
    explained: float
    """Ratio of scores to Hessian that weights below one cause where the model is right."""
    units: int
    unidentified: float
    """Plausible deviation of the predictor (of several classes, against another class's) along a hidden direction."""

    @property
    def moved(self) -> float:
        """|theta_b - theta_a|."""
        return float(np.linalg.norm(self.theta - self.before))


@dataclass(frozen=True)
class Last(LastAnswers):
    """The same of a model with one predictor."""

    kind: Kind
    metric: Array
    """Covariance of the re-encoded columns as far as it is known, shape (p, p), 0 for the intercept."""
    peak: float
    """Largest second derivative of the loss."""
    doubtful: Array | None = None
    """Part of the equation that comes from an assumed law, shape (p,); half of it is counted as an error."""
    offset: float = 0.0
    """Mean of what is added to the predictor."""


@dataclass(frozen=True)
class Finished:
    """An estimate with its covariance, in re-encoded coordinates; a linear model's in residual scales."""

    theta: Array
    covariance: Array
    """Sampling, noise, and a public guess along hidden directions."""
    sampling: Array
    guess: Array
    unlearned: Array
    """The part of the covariance that lies along hidden eigenvectors of the Hessian, the guess included."""
    hessian: Array
    """Noised and not shrunk."""
    hessian_noise: float
    """2 s sqrt(p) over the mean eigenvalue."""
    omega: float
    """Part of a Newton step that was taken last."""
    excess: float | None
    """|g2|^2 over its 99.9 % point where the steps have converged; None: the last step is exact."""


@dataclass(frozen=True)
class Whitened(Finished):
    """The same by two precise gradients; the Hessian is pooled."""

    seen: Array
    """Projector on what is not hidden."""
    last: Last
    """The answers that all of it is made of."""
    hidden: int
    """Eigenvectors along which noise hides the Hessian."""
    excluded: float
    """By how many deviations the answers exclude that the columns decide a binary outcome."""
    dispersed: tuple[float, float]
    """Noised ratio of the scores' variance to the part that the model and the weights explain, with the deviation of
    its noise."""


def newton_step(measured: NoisedAnswer, gradient: Array, peak: float, part: float = MEAN_FLOOR) -> Array:
    """Return H^-1 g with the Hessian shrunk and floored, by its noise and at a part of its mean eigenvalue."""
    found = shrink(measured.value, measured.deviation, LEAST_MEAN_PART * peak)
    values = np.maximum(found.values, _floor(found.kept, measured.deviation, len(gradient), part * found.mean))
    step: Array = found.vectors @ ((found.vectors.T @ gradient) / values)
    return step


def _floor(kept: float, deviation: float, size: int, part: float) -> float:
    """Return the smallest eigenvalue that is believed."""
    return max(NOISE_FLOOR * kept * deviation * sqrt(size), part)


def finish(last: Last) -> Whitened:
    """Take the last, partial step, and reckon the covariance there."""
    size = len(last.theta)
    hessian = pooled(last.hessians, size)
    middle = np.concatenate(([last.theta[0] + last.offset], last.theta[1:]))
    shape = normal_hessian(middle) if last.kind == "logistic" else None
    shrunk = shrink(hessian.value, hessian.deviation, LEAST_MEAN_PART * last.peak, shape)
    vectors = shrunk.vectors
    values = np.maximum(shrunk.values, _floor(shrunk.kept, hessian.deviation, size, MEAN_FLOOR * shrunk.mean))
    inverse, root = assembled(vectors, 1 / values), assembled_root(vectors, values)
    (_, first), (gradient, second) = last.gradients
    both = first**2 + second**2
    length = float(gradient @ gradient)
    left = max(0.0, length - size * both) + CAUTION * sqrt(2 * size) * both
    omega = (left + size * first**2) / (left + size * both)
    outward = _outward(last, omega)
    step = inverse @ (omega * gradient + outward * float(outward @ gradient))
    along = np.einsum("ij,ik,kj->j", vectors, hessian.value, vectors)
    edge = hessian.deviation * sqrt(size)
    hidden = along < max(edge, HIDDEN_DEVIATIONS * hessian.deviation, HIDDEN_PART * shrunk.mean)
    if shape is not None:
        short = shrunk.mean * np.einsum("ij,ik,kj->j", vectors, shape, vectors) - along
        hidden &= short > (2 * sqrt(size) + APART / size ** (1 / 6)) * hessian.deviation
    relative, drift, dispersed = _scores(last, root, vectors, values, hidden)
    # n - p allows for fitted parameters; n/2 keeps it positive where these are many.
    sampling = root @ relative @ root.T / max(last.units - size, last.units / 2) / drift**2
    distance = (1 - omega) * last.moved + float(np.linalg.norm(step))
    private = (1 - omega) ** 2 * (first**2 + left / size) + omega**2 * second**2
    private += shrunk.kept * (hessian.deviation * distance) ** 2
    whole = second**2 - (1 - omega) ** 2 * (first**2 + left / size) - omega**2 * second**2
    # omega is below 1, for the second gradient has noise of its own.
    fuller = max(0.0, whole) * np.outer(outward, outward) / (1 - omega)
    noise = inverse @ (private * np.eye(size) + fuller) @ inverse / drift**2
    if last.doubtful is not None:
        shift = DOUBT * inverse @ last.doubtful
        noise = noise + np.outer(shift, shift)
    hiding = vectors[:, hidden] @ vectors[:, hidden].T
    guess = last.unidentified**2 * hiding
    wandering = shrunk.kept * (last.hessians[0].deviation * last.moved) ** 2
    theta = last.theta - step
    covariance = sampling + noise + guess
    found = Whitened(
        theta=theta,
        covariance=(covariance + covariance.T) / 2,
        sampling=sampling,
        guess=guess,
        seen=np.eye(size) - hiding,
        unlearned=hiding @ covariance @ hiding,
        hessian=hessian.value,
        last=last,
        hidden=int(hidden.sum()),
        excess=length / (both + wandering) / float(chi2.ppf(0.999, size)),
        hessian_noise=2 * edge / max(shrunk.mean, TINY),
        omega=omega,
        excluded=inf,
        dispersed=dispersed,
    )
    return _followed(found) if last.kind == "logistic" else found


def _outward(last: Last, omega: float) -> Array:
    """Return a vector v along the slopes such that omega g + v v'g takes a fuller step along them, where they are long.

    Where a binary outcome is nearly decided, a step falls short of what a straight line says: none of the last
    gradient is left unanswered then.
    """
    slopes = np.concatenate(([0.0], last.theta[1:]))
    length = sqrt(float(slopes @ last.metric @ slopes))
    if last.kind != "logistic" or length <= STRAIGHT:
        return np.zeros(len(slopes))
    part = min(1.0, length / STRAIGHT - 1)
    found: Array = slopes / float(np.linalg.norm(slopes)) * sqrt((1 - omega) * part)
    return found


def _followed(found: Whitened) -> Whitened:
    """Take the last step of a logistic model where its score is nearly linear, and carry the covariance along."""
    before = found.last.theta
    metric = found.seen @ found.last.metric @ found.seen
    theta = onward(before, found.theta - before, metric)
    carry = carried(before, theta, found.covariance - found.unlearned, metric)
    covariance, sampling, guess, unlearned = (
        carry.onto @ one @ carry.onto.T for one in (found.covariance, found.sampling, found.guess, found.unlearned)
    )
    return replace(
        found,
        theta=theta,
        covariance=covariance + carry.further,
        sampling=sampling,
        guess=guess,
        unlearned=unlearned,
        excluded=carry.excluded,
    )


def assembled_root(vectors: Array, values: Array) -> Array:
    """Return the symmetric inverse root of a positive matrix."""
    return assembled(vectors, 1 / np.sqrt(values))


def pooled(hessians: tuple[NoisedAnswer, NoisedAnswer], size: int) -> NoisedAnswer:
    """Return the first Hessian, brought to the trace of the second, and the second, weighted by precision.

    Where the second derivative has changed on the way, the first one's alone would be too large or too small for where
    the estimate lies. Traces that noise hides tell nothing of that.
    """
    first, second = hessians
    traces = np.trace(first.value) / size, np.trace(second.value) / size
    clear = min(traces) > CLEAR * max(first.deviation, second.deviation) / sqrt(size)
    ratio = float(np.clip(traces[1] / traces[0], LEAST_RATIO, MOST_RATIO)) if clear else 1.0
    one, other = (ratio * first.deviation) ** -2, second.deviation**-2
    value: Array = (one * ratio * first.value + other * second.value) / (one + other)
    return NoisedAnswer(value, (one + other) ** -0.5)


def _scores(
    last: Last, root: Array, vectors: Array, values: Array, hidden: NDArray[np.bool_]
) -> tuple[Array, float, tuple[float, float]]:
    """Return the scores relative to the Hessian, shrunk towards a multiple of it, the drift, dispersion.

    Where the model is right they are that multiple, which the weights' sums tell. More is dispersion, and is kept. Less
    is shrunk; if it remains, the noised Hessian is too large.
    """
    size = len(values)
    relative = root @ last.scores.value @ root
    seen = ~hidden
    # Noise may hide every direction, and their number divides.
    count = max(int(seen.sum()), 1)
    own = np.einsum("ij,ik,kj->j", vectors, relative, vectors)
    measured = float(own[seen].sum()) / count if seen.any() else 1.0
    deviation = last.scores.deviation * float((1 / values[seen]).mean() if seen.any() else (1 / values).mean())
    prior = DOUBTED_PART * last.explained if measured < last.explained else _DISPERSION[last.kind]
    beyond, doubt = measured - last.explained, deviation**2 / count
    believed = prior**2 / (prior**2 + doubt)
    if beyond > 0:  # dispersion has no bound: what stands clear of the noise is not drawn towards a prior
        believed = max(believed, positive_part(beyond**2, doubt))
    kappa = max(last.explained + believed * beyond, 0.1 * last.explained)
    eigen, axes = np.linalg.eigh((relative + relative.T) / 2)
    apart = eigen - measured
    spread = drawn_in(apart, deviation, size, kept_part(apart, deviation))
    drift = 1.0 if last.kind == "huber" else float(np.clip(kappa / last.explained, 0.5, 1.0))
    dispersed = measured / last.explained, sqrt(doubt) / last.explained
    return assembled(axes, np.maximum(kappa + spread, LEAST_SCORES * kappa)), drift, dispersed
