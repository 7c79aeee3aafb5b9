"""Gradients, Hessians and scores of a loss on re-encoded rows, where the encoding is a public argument.

A question is asked at an array of shape (p + 1, p). The first row is the point theta, the others are the encoding E.
From a record it makes the row E x and the target (y - target_centre)/target_unit. Its weight is w = min(1, t^2/|E x|^2)
with t = `weight_bound`.

Sensitivities hold for any E, any theta and any record: w <= 1 and w |E x|^2 <= t^2, so w |E x| <= t. The loss bounds
its score by b and its second derivative by d for every margin and every target. Sampling weights, over a public cut and
cut there, are between 0 and 1: a factor of w.
"""

from math import sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.losses.categorical import Logistic
from core.losses.counts import CutPoisson, Poisson
from core.losses.robust import Huber
from core.losses.squares import Squared
from core.privacy.facts import Adjacency, Facts
from core.queries.bases import AbstractQuestion, SamplingCut

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Reencodable = Annotated[Logistic | Huber | Squared | CutPoisson, Field(discriminator="kind")]
"""Losses of one margin with known bounds; a residual scale is in the units of the re-encoded target."""


class AbstractReencoded(AbstractQuestion):
    """Common settings of these questions: the loss, the weights and the target's encoding."""

    places: ClassVar = "encoded"

    loss: Reencodable
    weight_bound: Positive
    target_centre: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    target_unit: Positive = 1.0
    sampling_cut: SamplingCut = 1.0

    @property
    def score_bound(self) -> float:
        """b, the largest size of the loss's derivative in the margin."""
        bound = self.loss.score_bound
        assert bound is not None, "these losses bound their score"
        return bound

    @property
    def curvature_peak(self) -> float:
        """d, the largest second derivative of the loss in the margin."""
        return self.loss.curvature_peak


class ReencodedGradient(AbstractReencoded):
    """The mean of w psi E x, psi the loss's derivative at the margin (E x).theta, shape (p,).

    Sensitivity. One unit's term has norm at most w |E x| b <= t b. Zeroing it moves the sum by that; changing it by at
    most twice that. Attained by rows of norm t with opposite scores.
    """

    kind: Literal["reencoded_gradient"] = "reencoded_gradient"

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (p,)."""
        return (dimension,)

    def bound(self, facts: Facts) -> float:
        """Return t b, the bound on one unit's gradient norm."""
        del facts  # weights and loss bound it
        return self.weight_bound * self.score_bound

    def sensitivity(self, facts: Facts) -> float:
        """Return t b/n, or 2 t b/n when a unit may change into any other."""
        terms = 2 if facts.adjacency is Adjacency.REPLACE_ONE else 1
        return terms * self.bound(facts) / self.consumed(facts)


class ReencodedCurvature(AbstractReencoded):
    """The mean of w psi' E x (E x)' (`hessian`) or of w^2 psi^2 E x (E x)' (`score`), shape (p, p), symmetric.

    Noise is on and above the diagonal.

    Sensitivity. One unit's matrix is positive semidefinite of rank one, with Frobenius norm at most w |E x|^2 d <=
    t^2 d, or (w |E x| b)^2 <= t^2 b^2. Zeroing a unit moves the sum by that; changing it by at most sqrt(2) times that
    (see `Curvature`). Attained by rows of norm t along axes. In a Hessian a public `peak` takes the place of d where it
    is less: w |E x|^2 psi' is cut at t^2 times the peak.
    """

    kind: Literal["reencoded_curvature"] = "reencoded_curvature"
    of: Literal["hessian", "score"]
    peak: Positive | None = Field(default=None, exclude_if=lambda peak: peak is None)

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (p, p)."""
        return (dimension, dimension)

    def bound(self, facts: Facts) -> float:
        """Return t^2 d (or t^2 times the peak) or t^2 b^2, the bound on the Frobenius norm of one unit's matrix."""
        del facts  # weights and loss bound it
        return self.norm_bound

    @property
    def norm_bound(self) -> float:
        """The same, which follows from the question alone."""
        if self.of == "score":
            return self.weight_bound**2 * self.score_bound**2
        return self.weight_bound**2 * min(self.curvature_peak, self.peak or self.curvature_peak)

    def sensitivity(self, facts: Facts) -> float:
        """Return bound/n, or sqrt(2) bound/n when a unit may change into any other."""
        factor = sqrt(2) if facts.adjacency is Adjacency.REPLACE_ONE and facts.dimension > 1 else 1.0
        return factor * self.bound(facts) / self.consumed(facts)


def widest(loss: Logistic | Huber | Poisson) -> Logistic | Huber | CutPoisson:
    """Return what re-encoded rows are asked for before anything is learned, as wide as may be."""
    match loss:
        case Huber():
            return loss.model_copy(update={"scale": 1.0})
        case Poisson():
            return CutPoisson(rate_cap=loss.curvature_peak, cut=loss.curvature_peak)
        case Logistic():
            return loss
