"""Whitened Newton's questions about re-encoded rows, in one encoding, and noised answers about weights."""

from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.inference.shrinkage import TINY
from core.losses.categorical import Logistic
from core.losses.counts import CutPoisson, Poisson
from core.losses.robust import Huber
from core.losses.squares import Squared
from core.methods.m_estimation.whitened_newton.column_look import Complete
from core.methods.m_estimation.whitened_newton.count_look import (
    CutCounts,
    look_at_residuals,
    usual_rate,
    walking_cut,
)
from core.methods.m_estimation.whitened_newton.inference.count_moments import correction
from core.methods.m_estimation.whitened_newton.inference.last_step import Kind, NoisedAnswer
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.methods.m_estimation.whitened_newton.whitening import RowEncoding
from core.oracle import Oracle
from core.privacy.facts import Facts, Sampling
from core.queries.gradients import Looked
from core.queries.reencoded import ReencodedCurvature, ReencodedGradient

Array = NDArray[np.float64]
EXPLAINED: Final = 0.8
EXPLAINED_BY_WIDE_CUTS: Final = 0.95
WIDE_CUT: Final = 2.0
DOUBTED_SUM: Final = 0.1
"""Part of a sum of weights that its noise may be before another figure stands in."""
WEIGHT_CAUTION: Final = 3.0
"""Deviations of its noise that a mean sampling weight is taken to be at least."""


class Target(NamedTuple):
    """Encoding of the target, and noised answers about it."""

    centre: float
    unit: float
    """A linear model's own unit; its residual scale times that once it is known."""
    rate: float | None
    """Of the second outcome, or a mean count."""
    events: float | None
    """Noised number of records of the rarer outcome, or of counts."""
    square: float = 0.0
    """Noised mean square of counts."""
    sampled: float | None = None
    """Frequency of the second outcome among the records, where `rate` is that of the weighted population."""
    complete: Complete | None = None
    """Records with all values, as counted; None: nobody counted them."""

    def effective_events(self, sampling: Sampling | None) -> float | None:
        """Return how many events of equal weight say as much as these do.

        The spread of sampling weights among records of one outcome reduces them; it is assumed to be alike for both
        outcomes. Weights that the outcome alone decides (all the ill and a tenth of the others) take nothing.

        Args:
            sampling: noised answers about the weights; None: there are no weights.
        """
        if self.events is None or sampling is None:
            return self.events
        between, sampled = 1.0, self.sampled
        if self.rate is not None and sampled is not None:
            between = self.rate**2 / sampled + (1 - self.rate) ** 2 / (1 - sampled)
        return self.events / max(1.0, sampling.effect / between)


class EncodedQuestions:
    """The questions about re-encoded rows, in one encoding."""

    def __init__(
        self,
        settings: WhitenedNewtonPlan,
        oracle: Oracle,
        encoded: RowEncoding,
        loss: Logistic | Huber | Poisson,
        target: Target,
    ) -> None:
        self._settings, self._oracle, self._encoded, self._target = settings, oracle, encoded, target
        self.loss, self.units = loss, oracle.facts.units
        self.counts: CutCounts | None = None
        self.sampling: Sampling | None = None
        """Noised answers about sampling weights."""
        self._facts = _weighted(settings, oracle.facts, encoded)
        self.asked: Logistic | Huber | CutPoisson
        if isinstance(loss, Poisson):
            assert target.rate is not None, "it was told"
            self.asked = walking_cut(settings, self._facts, target.rate, loss.curvature_peak, target.square)
        else:
            self.asked = loss

    @property
    def kind(self) -> Kind:
        """Of the model's loss."""
        return self.loss.kind

    @property
    def metric(self) -> Array:
        """Covariance of the re-encoded columns as far as it is known."""
        return self._encoded.metric

    @property
    def offset(self) -> float:
        """Noised mean of the offset."""
        return 0.0 if self._encoded.shift is None else self._encoded.shift.mean

    @property
    def peak(self) -> float:
        """Largest second derivative of the loss."""
        return self.asked.curvature_peak

    def _predictor(self, theta: Array) -> Array:
        """Return a point whose linear predictor varies as that at theta does with the offset.

        The part of an offset that x does not explain is one more coordinate, the last.
        """
        shift = self._encoded.shift
        if shift is None:
            return theta
        return np.concatenate(([theta[0] + shift.mean], theta[1:] + shift.slopes, [sqrt(shift.variance)]))

    def look_at_residuals(self, theta: Array) -> None:
        """Of counts, ask how large residuals are at a point, and cut them by that from here on."""
        if isinstance(self.asked, CutPoisson):
            at, cap = self._encoded.at(theta), self.loss.curvature_peak
            known = self._settings, self._oracle, self._facts
            self.counts = look_at_residuals(*known, at, self._predictor(theta), self.asked, cap)
            self.asked = self.counts.loss

    def doubtful(self, theta: Array) -> Array | None:
        """Return what a cut adds to the equation by a law that is assumed."""
        if not isinstance(self.asked, CutPoisson):
            return None
        return correction(self.asked, self._predictor(theta))[: len(theta)]

    def _shared(self, sigma: float) -> dict[str, object]:
        return {
            "sigma": sigma,
            "loss": self.asked,
            "weight_bound": self._settings.weight_bound,
            "target_centre": self._target.centre,
            "target_unit": self._target.unit,
            "sampling_cut": self._encoded.trimmed.cut,
        }

    def gradient(self, theta: Array, sigma: float) -> NoisedAnswer:
        """Return a noised gradient."""
        question = ReencodedGradient.model_validate(self._shared(sigma))
        return self._answer(question, theta)

    def matrix(self, theta: Array, sigma: float, of: str = "hessian") -> NoisedAnswer:
        """Return a noised Hessian, or scores."""
        # Of squares the second derivative is 1 for all records; gradients of the short steps are cut.
        loss = Squared() if self._settings.least_squares else self.asked
        counts = of == "hessian" and isinstance(loss, CutPoisson)
        peak = usual_rate(self._predictor(theta), loss.curvature_peak) if counts else None
        own = {"of": of, "loss": loss, "peak": peak}
        question = ReencodedCurvature.model_validate(self._shared(sigma) | own)
        # A score's outer product has a record's sampling weight twice.
        return self._answer(question, theta, 2 if of == "score" else 1)

    def scores(self, theta: Array, sigma: float) -> NoisedAnswer:
        """Return noised scores."""
        return self.matrix(theta, sigma, "score")

    def _answer(self, question: Looked, theta: Array, power: int = 1) -> NoisedAnswer:
        """Return an answer for weights of mean 1, in which it is of some power."""
        answer, times = self._oracle.ask(question, self._encoded.at(theta)), self._encoded.counted**power
        return NoisedAnswer(answer.value.numpy() / times, answer.scale / times)

    def explained(self) -> float:
        """Return what weights make of the ratio of scores to Hessian where the model is right.

        That of sampling weights, of mean 1, is their design effect, with that of the others: both are in the sums.
        """
        usual, counted = EXPLAINED, self._encoded.counted
        if isinstance(self.asked, Huber):
            usual = EXPLAINED_BY_WIDE_CUTS if self.asked.c > WIDE_CUT else EXPLAINED
            if not self._settings.weighted:
                return usual
        weighed = self.counts.weighed if self.counts else 1.0
        question = self._settings.weight_question(self._encoded.trimmed.cut)
        received, deviation = self._answer(question, np.zeros(len(self._encoded.matrix)))
        once, twice, effect = float(received[0]), float(received[1]) / counted, 1.0
        if self._settings.weighted:
            self.sampling = self._sampling(received, deviation)
            effect = self.sampling.effect
        if deviation >= DOUBTED_SUM * once or isinstance(self.asked, Huber):
            return usual * effect * weighed
        return float(np.clip(twice / max(once, TINY), 0.5, effect)) * weighed

    def _sampling(self, received: Array, deviation: float) -> Sampling:
        """Return the noised mean of sampling weights, as they are cut, and their design effect."""
        counted, size = self._encoded.counted, self._settings.weight_bound**2
        mean = min(max(float(received[2]) * counted, WEIGHT_CAUTION * deviation * counted, TINY) / size, 1.0)
        effect = float(np.clip(float(received[3]) * counted / size / mean**2, 1.0, 1 / mean))  # no weight is above 1
        cut, beyond = self._encoded.trimmed
        return Sampling(mean=mean * cut, effect=effect, known=True, reach=cut, beyond=beyond)


def _weighted(settings: WhitenedNewtonPlan, facts: Facts, encoded: RowEncoding) -> Facts:
    """Return public facts with the mean of trimmed sampling weights that was learned."""
    if facts.sampling is None or not settings.trimmed:
        return facts
    cut = encoded.trimmed.cut
    learned = facts.sampling.model_copy(update={"mean": encoded.counted * cut, "reach": cut})
    return facts.model_copy(update={"sampling": learned})
