"""The questions one may ask of private records: public values, each with its sensitivity and the proof of it.

A question's `sigma` is the noise standard deviation divided by the sensitivity, the same number under both
adjacencies, so `event()` needs no facts. The answer is a mean over the public number of units (an expected batch, for
a sample); `sensitivity` is that of the answer in exact arithmetic. The oracle adds what its integer lattice costs and
reports the standard deviation it really used with each answer.
"""

from math import sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.privacy.events import BoundedRange, Event
from core.privacy.facts import Adjacency, Facts
from core.queries.banded import BandGradients, BandScores, BandTotals
from core.queries.bases import AbstractQuestion, Clipped
from core.queries.classes import ClassCounts, ClassCurvature, ClassGradient, ClassMoments
from core.queries.errors import MeanError
from core.queries.hessians import FirstStationary, Hessian, HessianProduct, LikelyStationary
from core.queries.looks import (
    CellCounts,
    IntegerCounts,
    LinearResidualCounts,
    MagnitudeCounts,
    ProductMagnitudeCounts,
    ResidualMagnitudeCounts,
    SecondMoments,
    ValueCounts,
    WeightSums,
)
from core.queries.reencoded import ReencodedCurvature, ReencodedGradient
from core.queries.tables import CutProducts, CutSums, InfluenceSquares, TableCounts


class Gradient(AbstractQuestion):
    """The mean gradient of the loss at theta, shape (p,), each unit's clipped to `clip` or to the loss's own bound B.

    Sensitivity. One unit's term has norm at most C. Zeroing it moves the sum by at most C, changing it into another by
    at most 2 C. Both are attained: by opposite residuals, for logistic scores in two dimensions or more.
    """

    kind: Literal["gradient"] = "gradient"
    clip: Clipped = None

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (p,)."""
        return (dimension,)

    def bound(self, facts: Facts) -> float:
        """Return C, the bound on one unit's gradient norm."""
        return self.clip if self.clip is not None else facts.gradient_bound

    def diameter(self, facts: Facts) -> float:
        """Return the largest distance of two units' clipped gradients: 2 C, or less where the facts know less."""
        if self.clip is None and facts.gradient_diameter is not None:
            return facts.gradient_diameter
        return 2 * self.bound(facts)

    def sensitivity(self, facts: Facts) -> float:
        """Return C/n, or the diameter over n when a unit may change into any other."""
        moved = self.diameter(facts) if facts.adjacency is Adjacency.REPLACE_ONE else self.bound(facts)
        return moved / self.consumed(facts)


class GradientDifference(AbstractQuestion):
    """The mean change of the clipped gradient from theta to the other point, shape (p,), each unit's cut to `cap`.

    With P_c the projection onto the ball of radius c and C the clip, a unit's term is P_cap(P_C(its gradient at other)
    - P_C(its gradient at theta)). A projection never increases distances, so the cap cuts nothing where gradients are
    L-Lipschitz and cap = L |other - theta|. Added to a clipped gradient at theta the mean is then the one at the other
    point. (Differences of unclipped gradients, cut alone, add up to neither.)

    Sensitivity. One unit's term has norm at most min(cap, 2 C), by the cap and by the triangle inequality. Zeroing it
    moves the sum by that much; changing it into another by twice that. Attained by gradients that turn by cap one way
    and the other.

    Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithm 1, with the difference of clipped gradients that
    its analysis assumes.
    """

    places: ClassVar = "pair"

    kind: Literal["gradient_difference"] = "gradient_difference"
    cap: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    clip: Clipped = None

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (p,)."""
        return (dimension,)

    def gradient_clip(self, facts: Facts) -> float:
        """Return C, the bound on one unit's gradient norm at either point."""
        return self.clip if self.clip is not None else facts.gradient_bound

    def bound(self, facts: Facts) -> float:
        """Return min(cap, 2 C), the bound on one unit's difference."""
        return min(self.cap, 2 * self.gradient_clip(facts))

    def sensitivity(self, facts: Facts) -> float:
        """Return bound/n, or 2 bound/n when a unit may change into any other."""
        terms = 2 if facts.adjacency is Adjacency.REPLACE_ONE else 1
        return terms * self.bound(facts) / self.consumed(facts)


class GradientNorm(AbstractQuestion):
    """The norm of the mean clipped gradient at theta, shape (1,); one noised number, which may be negative.

    A ridge's gradient, which is public and never clipped, is added to the mean before the norm is taken.

    Sensitivity. That of the mean itself: ||a| - |b|| <= |a - b|, whatever public vector is added to both. The oracle
    takes the norm of the integer sum and rounds it down, for which it adds one step.

    Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithm 3, its noise a number and not a vector.
    """

    kind: Literal["gradient_norm"] = "gradient_norm"
    clip: Clipped = None

    def shape(self, dimension: int) -> tuple[int, ...]:  # noqa: ARG002 - a norm is one number
        """Return (1,)."""
        return (1,)

    def gradient(self) -> Gradient:
        """Return the question whose sum this is the norm of."""
        return Gradient(sigma=self.sigma, batch=self.batch, clip=self.clip)

    def bound(self, facts: Facts) -> float:
        """Return C, the bound on one unit's gradient norm."""
        return self.gradient().bound(facts)

    def sensitivity(self, facts: Facts) -> float:
        """Return that of the mean gradient."""
        return self.gradient().sensitivity(facts)


class LeastGradient(AbstractQuestion):
    """The number of one of K points, likely one whose mean clipped gradient is short: an exponential mechanism.

    Point k is drawn with probability in proportion to exp(-|g_k| / (sigma * sensitivity)), g_k its mean clipped
    gradient, with its ridge's. With scores of sensitivity D, weights exp(-epsilon score / (2 D)) have bounded range
    epsilon, here 2/sigma. The price, epsilon^2/8 as zCDP, is 1/(2 sigma^2): that of a Gaussian answer of the same
    sigma, for any K. The answer is an index, shape (1,), without any further noise.

    Source: Menart, Ullah, Arora, Bassily and Guzman (2024), theorem 14, with a share of the budget of its own; Dong,
    Durfee and Rogers (2020) for the bounded range.
    """

    places: ClassVar = "list"

    kind: Literal["least_gradient"] = "least_gradient"
    clip: Clipped = None

    def shape(self, dimension: int) -> tuple[int, ...]:  # noqa: ARG002 - an index is one number
        """Return (1,)."""
        return (1,)

    def gradient(self) -> Gradient:
        """Return the question whose sums are compared by their norms."""
        return Gradient(sigma=self.sigma, batch=self.batch, clip=self.clip)

    def bound(self, facts: Facts) -> float:
        """Return C, the bound on one unit's gradient norm."""
        return self.gradient().bound(facts)

    def sensitivity(self, facts: Facts) -> float:
        """Return that of each mean gradient, and so of each score."""
        return self.gradient().sensitivity(facts)

    def event(self) -> Event:
        """Return an exponential mechanism of bounded range 2/sigma."""
        return BoundedRange(epsilon=2 / self.sigma)


class Secant(AbstractQuestion):
    """The mean slope of the loss between two points, (loss(other) - loss(theta)) / |other - theta|, shape (1,).

    Without the ridge's part, which needs no record; times the distance, which is made of released values, it is the
    change of the loss.

    Sensitivity. If the loss's gradient is bounded by B everywhere between them, the loss changes by at most B |other -
    theta|. One unit's term then has size at most B: zeroing it moves the sum by B, changing it into another by 2 B.
    Attained by points along a record's features, with residuals beyond the kinks.

    Source: Avella-Medina, Bradshaw and Loh (2023), appendix G, whose condition is one such answer an evaluation.
    """

    places: ClassVar = "pair"

    kind: Literal["secant"] = "secant"

    def shape(self, dimension: int) -> tuple[int, ...]:  # noqa: ARG002 - a slope is one number
        """Return (1,)."""
        return (1,)

    def bound(self, facts: Facts) -> float:
        """Return B, the bound on one unit's slope."""
        return facts.gradient_bound

    def sensitivity(self, facts: Facts) -> float:
        """Return B/n, or 2 B/n when a unit may change into any other."""
        terms = 2 if facts.adjacency is Adjacency.REPLACE_ONE else 1
        return terms * self.bound(facts) / self.consumed(facts)


class Curvature(AbstractQuestion):
    """A mean of positive semidefinite matrices at theta, shape (p, p), symmetric; noise on and above the diagonal.

    `of` selects one of three:

    * the Hessian of the loss (Frobenius norm at most Bbar). With an unknown scale it is multiplied by the scale, and a
      release divides by it.
    * the outer product of the score (at most B**2).
    * w(x) |x| x x^T, which bounds the Hessian's rate of change (at most the cubic bound; theta plays no part).

    Sensitivity, measured on and above the diagonal. Zeroing a unit moves the sum by at most the bound. Changing A into
    B moves it by |A - B|_F = sqrt(|A|^2 + |B|^2 - 2 tr(AB)) <= sqrt(2) * bound, for tr(AB) >= 0. Omitting the entries
    below the diagonal never raises a norm. Attained by a a^T and b b^T with orthogonal a and b along axes. In one
    dimension there are no orthogonal axes and |A - B| <= bound.
    """

    kind: Literal["curvature"] = "curvature"
    of: Literal["hessian", "score", "cubic"]

    def precision(self, facts: Facts) -> float:
        """Return one over the variance of the noise on an entry of the answer."""
        return (self.sigma * self.sensitivity(facts)) ** -2

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (p, p)."""
        return (dimension, dimension)

    def bound(self, facts: Facts) -> float:
        """Return the bound on the Frobenius norm of one unit's matrix.

        Raises:
            AssertionError: the loss has no such bound; the planner refuses such jobs before they are made.
        """
        if self.of == "score":
            return facts.gradient_bound**2
        if self.of == "cubic":
            assert facts.cubic_bound is not None, "the weights bound no third power, so none may be asked"
            return facts.cubic_bound
        assert facts.curvature_bound is not None, "the loss bounds no curvature, so none may be asked"
        return facts.curvature_bound

    def sensitivity(self, facts: Facts) -> float:
        """Return bound/n, or sqrt(2) * bound/n when a unit may change into any other."""
        factor = sqrt(2) if facts.adjacency is Adjacency.REPLACE_ONE and facts.dimension > 1 else 1.0
        return factor * self.bound(facts) / self.consumed(facts)


Summed = Gradient | GradientDifference | Secant | MeanError | Curvature | Hessian | HessianProduct
"""The sum over records that a question needs."""

Scored = LikelyStationary | FirstStationary
"""Made of two sums at each of a list of points, a gradient's and a Hessian's."""

Counted = (
    CellCounts
    | IntegerCounts
    | LinearResidualCounts
    | MagnitudeCounts
    | ProductMagnitudeCounts
    | ResidualMagnitudeCounts
    | ValueCounts
    | ClassCounts
)
"""Counts of records in public sets: integers, which the lattice carries without any error."""

ClassSum = ClassMoments | ClassGradient | ClassCurvature
"""Such sums of a multinomial model."""

BandSum = BandTotals | BandGradients | BandScores
"""Such sums by bands of a residual's size."""

Reencoded = SecondMoments | WeightSums | ReencodedGradient | ReencodedCurvature | ClassSum | BandSum
"""Sums over re-encoded rows."""

Looked = Counted | Reencoded
"""Sums with public arguments of their own, of methods that learn how to encode records."""

Tabled = TableCounts | CutSums | CutProducts | InfluenceSquares
"""Sums over the declared columns themselves, of jobs without a model."""

Question = Annotated[Summed | GradientNorm | LeastGradient | Scored | Looked | Tabled, Field(discriminator="kind")]


def gradient_of(question: Scored) -> Gradient:
    """Return the question for the gradient that a score is made of; its sigma plays no part."""
    return Gradient(sigma=question.sigma, clip=question.clip)


def summed(question: Question) -> Summed:
    """Return the question whose sums the answer is made of: norms, and choices by them, are made of gradients.

    Raises:
        AssertionError: it is made of two.
    """
    assert not isinstance(question, LikelyStationary | FirstStationary), "scores are made of two sums"
    assert not isinstance(question, Looked | Tabled), "these are sums of their own"
    return question.gradient() if isinstance(question, GradientNorm | LeastGradient) else question
