"""The questions one may ask of private records: public values, each with its sensitivity and the proof of it.

A question's `sigma` is the noise standard deviation divided by the sensitivity, the same number under both
adjacencies, so `event()` needs no facts. The answer is a mean over the public number of units (an expected batch, for
a sample); `sensitivity` is that of the answer in exact arithmetic. The door adds what its integer lattice costs and
reports the standard deviation it really used with each answer.
"""

from abc import ABC, abstractmethod
from math import sqrt
from typing import Annotated, Literal

from pydantic import Field

from core.privacy.events import Event, Gaussian
from core.privacy.facts import Adjacency, Facts, Frozen

Sigma = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class AbstractQuestion(Frozen, ABC):
    """What every question tells before it is asked."""

    sigma: Sigma
    batch: Annotated[int, Field(gt=0)] | None = None
    """Units to consume, on a stream; None elsewhere."""

    @abstractmethod
    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return the shape of the answer for so many parameters."""

    @abstractmethod
    def sensitivity(self, facts: Facts) -> float:
        """Return the l2 sensitivity of the answer, in its own units."""

    def event(self) -> Event:
        """Return what one answer costs."""
        return Gaussian(sigma=self.sigma)

    def consumed(self, facts: Facts) -> int:
        """Return the public number of units that the mean divides by."""
        return self.batch or facts.units


class Gradient(AbstractQuestion):
    """The mean gradient of the loss at theta, shape (p,), each unit's clipped to `clip` or to the loss's own bound B.

    Sensitivity. One unit's term has norm at most C. Zeroing it moves the sum by at most C; changing it into another
    moves it by at most 2 C. Both are attained: by opposite residuals, for logistic scores in two dimensions or more.
    """

    kind: Literal["gradient"] = "gradient"
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

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


class Secant(AbstractQuestion):
    """The mean slope of the loss between two points, (loss(other) - loss(theta)) / |other - theta|, shape (1,).

    Without the ridge's part, which needs no record; times the distance, which is made of released values, it is the
    change of the loss.

    Sensitivity. A loss whose gradient is bounded by B everywhere between them changes by at most B |other - theta|, so
    one unit's term has size at most B: zeroing it moves the sum by B, changing it into another by 2 B. Attained by
    points along a record's features, with residuals beyond the kinks.

    Source: Avella-Medina, Bradshaw and Loh (2023), appendix G, whose condition is one such answer an evaluation.
    """

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

    `of` says which: the Hessian of the loss (Frobenius norm at most Bbar; times the scale where that is unknown, for
    which a release divides), the outer product of the score (at most B**2), or w(x) |x| x x^T, which bounds how fast
    Hessians change (at most the cubic bound; theta plays no part).

    Sensitivity, measured on and above the diagonal. Zeroing a unit moves the sum by at most the bound. Changing A into
    B moves it by |A - B|_F = sqrt(|A|^2 + |B|^2 - 2 tr(AB)) <= sqrt(2) * bound, for tr(AB) >= 0, and leaving out the
    entries below the diagonal never raises a norm; attained by a a^T and b b^T with orthogonal a and b along axes. In
    one dimension there are no orthogonal axes and |A - B| <= bound.
    """

    kind: Literal["curvature"] = "curvature"
    of: Literal["hessian", "score", "cubic"]

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


Question = Annotated[Gradient | Secant | Curvature, Field(discriminator="kind")]
