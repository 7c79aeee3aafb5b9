"""Questions about second derivatives of any loss, convex or not: Hessians, their products with a vector, and choices.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, algorithm 4 and remark 5; sensitivities and the score's two exact scales are ours.
"""

from math import sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.privacy.events import BoundedRange, Event, Pure
from core.privacy.facts import Adjacency, Facts
from core.queries.bases import AbstractQuestion, Clipped

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

LAPLACE_DRAWS = 2**12
"""Draws of Laplace noise in one unit of 2^-108: each is within 2^-120 of its law, see `core.mechanisms.laplace`."""


class Hessian(AbstractQuestion):
    """The mean Hessian of the loss at theta, shape (p, p), symmetric; noise on and above the diagonal.

    Each unit's is shortened to operator norm M = `clip`; unlike `Curvature` it may have eigenvalues of both signs.

    Sensitivity, measured on and above the diagonal. A symmetric matrix of rank r with operator norm at most M has r
    eigenvalues in [-M, M] that are not 0, so a Frobenius norm of at most M sqrt(r). Zeroing a unit moves the sum by at
    most that; changing A into B by at most |A|_F + |B|_F, twice that; leaving out the entries below the diagonal never
    raises a norm. Attained by M times a projection on r axes, and its negative. The rank r is p, or less by the facts:
    1 for a loss of one margin, whose Hessian is a number times x x^T.
    """

    kind: Literal["hessian"] = "hessian"
    clip: Positive

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (p, p)."""
        return (dimension, dimension)

    def bound(self, facts: Facts) -> float:
        """Return M sqrt(r), the bound on the Frobenius norm of one unit's matrix."""
        return self.clip * sqrt(min(facts.dimension, facts.hessian_rank or facts.dimension))

    def sensitivity(self, facts: Facts) -> float:
        """Return bound/n, or 2 bound/n when a unit may change into any other."""
        return _units_moved(facts) * self.bound(facts) / self.consumed(facts)

    def stretch(self, facts: Facts) -> float:
        """Return the sensitivity of the mean in operator norm, and so of each eigenvalue (Weyl): M/n, or 2 M/n."""
        return _units_moved(facts) * self.clip / self.consumed(facts)


class HessianProduct(AbstractQuestion):
    """The mean Hessian at theta times the other point, a unit vector v, shape (p,), each unit's cut to norm M = `clip`.

    Sensitivity. One unit's term has norm at most M, whatever v is. Zeroing it moves the sum by that much; changing it
    into another by twice that. Attained by M v v^T and its negative.
    """

    places: ClassVar = "pair"

    kind: Literal["hessian_product"] = "hessian_product"
    clip: Positive

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (p,)."""
        return (dimension,)

    def bound(self, facts: Facts) -> float:
        """Return M, the bound on one unit's product."""
        del facts  # it is given
        return self.clip

    def sensitivity(self, facts: Facts) -> float:
        """Return M/n, or 2 M/n when a unit may change into any other."""
        return _units_moved(facts) * self.clip / self.consumed(facts)


class AbstractScored(AbstractQuestion):
    """One of K points by how far each is from an approximate second-order stationary point.

    The score of a point is max((|g| - alpha)/a, (-l - gamma)/b). Here g is its mean gradient, each unit's clipped to G,
    and l the least eigenvalue of its mean Hessian, each unit's shortened to operator norm M. Both have a ridge's part.
    One unit can move |g| by at most a and l by at most b.

    Sensitivity: 1, in the score's own units. The norm |g| moves by at most a, since norms differ by no more than
    vectors do. The eigenvalue l moves by at most b: by Weyl's inequality eigenvalues move by no more than the operator
    norm of the change. The larger of two numbers, each of which moves by at most 1, does too.
    """

    places: ClassVar = "list"

    clip: Clipped = None
    curvature_clip: Positive
    alpha: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    gamma: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def shape(self, dimension: int) -> tuple[int, ...]:  # noqa: ARG002 - an index is one number
        """Return (1,)."""
        return (1,)

    def hessian(self) -> Hessian:
        """Return the question for the Hessian that a score is made of; its sigma plays no part."""
        return Hessian(sigma=self.sigma, clip=self.curvature_clip)

    def bound(self, facts: Facts) -> float:
        """Return the bound on one unit's gradient norm, for the integers that carry it."""
        return self.clip if self.clip is not None else facts.gradient_bound

    def sensitivity(self, facts: Facts) -> float:
        """Return 1, that of a score."""
        del facts  # it is in units of what one unit can do
        return 1.0

    @property
    def epsilon(self) -> float:
        """Epsilon of the choice: 2/sigma."""
        return 2 / self.sigma


class LikelyStationary(AbstractScored):
    """The number of one of K points, likely one of a small score: an exponential mechanism, shape (1,).

    Point k is drawn with probability in proportion to exp(-score_k/sigma): of bounded range 2/sigma.
    """

    kind: Literal["likely_stationary"] = "likely_stationary"

    def event(self) -> Event:
        """Return an exponential mechanism of bounded range 2/sigma."""
        return BoundedRange(epsilon=self.epsilon)


class FirstStationary(AbstractScored):
    """The number of the first of K points whose noised score is below a noised threshold, -1 for none, shape (1,).

    AboveThreshold, with one positive answer at most. A discrete Laplace law of scale sigma noises the threshold
    `slack`, one of scale 2 sigma each score. The choice is (2/sigma)-differentially private for any number of points.
    See `core.mechanisms.laplace` for the proof.

    Source: Dwork and Roth (2014), section 3.6.
    """

    kind: Literal["first_stationary"] = "first_stationary"
    slack: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def draws(self, dimension: int, points: int = 1) -> int:
        """Return the units of one draw of Laplace noise for each point and one for the threshold, 2^-120 each."""
        del dimension  # points are chosen by numbers
        return -(-(points + 1) // LAPLACE_DRAWS)

    def event(self) -> Event:
        """Return a pure event of 2/sigma."""
        return Pure(epsilon=self.epsilon)


def _units_moved(facts: Facts) -> int:
    """Return 2 where a unit may change into any other, else 1."""
    return 2 if facts.adjacency is Adjacency.REPLACE_ONE else 1
