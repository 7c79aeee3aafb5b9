"""Squared losses of a number, by a link that is linear or not, for clipped gradients: nothing bounds their scores."""

from math import sqrt
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from core.losses.assumption import Assumption
from core.losses.bases import CLIPPED, FINITE, NOT_CONVEX, AbstractLoss, Array, LossCard

WHOLE: Final = Assumption(
    text="with mallows, residuals beyond the target's declared range count as that; with clip, gradients are clipped",
    checked="static",
)


class Squared(AbstractLoss):
    """(y - m)^2/2, of a mean. Its score is bounded by the target's declared range, or by clipping gradients."""

    card: ClassVar = LossCard(
        title="(y - m)^2/2",
        models=("linear",),
        weights=("mallows", "clip"),
        curvature_peak="1",
        assumptions=(FINITE, WHOLE),
    )
    phrase: ClassVar = "squared loss"
    example: ClassVar = {}
    score_bound: ClassVar[None] = None
    curvature_peak: ClassVar[float] = 1.0
    kind: Literal["squared"] = "squared"

    def gap_at_zero(self, reach: float) -> float:
        """Return reach^2/2."""
        return reach * reach / 2


class SineLink(AbstractLoss):
    """(s(m) - y)^2/2 with the link s(m) = m + a sin m, 0 < a < 1: a non-convex generalised linear model, one minimum.

    s' = 1 + a cos m lies in [1 - a, 1 + a], so s grows and takes every value. The score (s - y) s' has no bound, so
    gradients are clipped. Where it is clipped to [-b, b], |s - y| <= b/s'. The second derivative s'^2 + (s - y) s''
    then differs from s'^2 by at most b |s''|/s' = b a |sin m|/(1 + a cos m). That is most at cos m = -a: b a/sqrt(1 -
    a^2). The clipped score is thus Lipschitz with (1 + a)^2 + b a/sqrt(1 - a^2), and the loss has negative curvature of
    at most b a/sqrt(1 - a^2) - (1 - a)^2: bounds, not attained.

    Source: Menart, Ullah, Arora, Bassily and Guzman (2024), section 1: generalised linear models satisfy the KL
    condition with kappa = 2 where their link's slope is bounded away from zero.
    """

    card: ClassVar = LossCard(
        title="(m + a sin m - y)^2/2, a = `amplitude`: a link that is not linear, y in encoded units",
        models=("linear",),
        weights=("clip",),
        weak_convexity=None,
        assumptions=(FINITE, CLIPPED, NOT_CONVEX),
    )
    phrase: ClassVar = "squared loss, link m + {amplitude:g} sin m"
    example: ClassVar = {}
    notes: ClassVar = (
        "Coefficients are those of the linear predictor, in the target's units; predicted is the link's value.",
    )
    score_bound: ClassVar[None] = None
    curvature_peak: ClassVar[None] = None  # residuals have no bound
    smoothness: ClassVar[None] = None  # before clipping
    weak_convexity: ClassVar[None] = None
    kind: Literal["sine_link"] = "sine_link"
    amplitude: Annotated[float, Field(gt=0, lt=1)] = 0.9

    def link(self, margin: Array) -> tuple[Array, Array]:
        """Return s(m) and 1 + a cos m."""
        return margin + self.amplitude * np.sin(margin), 1 + self.amplitude * np.cos(margin)

    def clipped_smoothness(self, slope: float) -> float:
        """Return (1 + a)^2 + slope a/sqrt(1 - a^2)."""
        return (1 + self.amplitude) ** 2 + slope * self._turn

    def clipped_weak_convexity(self, slope: float) -> float:
        """Return slope a/sqrt(1 - a^2) - (1 - a)^2, or 0."""
        return max(0.0, slope * self._turn - (1 - self.amplitude) ** 2)

    def clipped_third_derivative(self, slope: float) -> float:
        """Return 3 a (1 + a) + slope a/(1 - a), a bound, not attained: of 3 s' s" and of (s - y) times the next."""
        return 3 * self.amplitude * (1 + self.amplitude) + slope * self.amplitude / (1 - self.amplitude)

    def gap_at_zero(self, reach: float) -> float:
        """Return reach^2/2: s(0) = 0, and some margin has no loss."""
        return reach * reach / 2

    @property
    def _turn(self) -> float:
        """Most of |s''|/s'."""
        return self.amplitude / sqrt(1 - self.amplitude**2)
