"""Questions of a multinomial model: counts of classes, and sums over re-encoded rows for each contrast of classes.

K classes have K - 1 linear predictors. Here they stand in contrast coordinates. U is the public K x (K - 1) matrix with
U'U = I whose columns add up to zero (`core.data.contrasts`). The point theta has K - 1 blocks of p numbers, one after
the other. Class k has the predictor sum_a U_ka (E x).theta_a. No class is a baseline, so none is noisier than others.

A question about re-encoded rows is asked at an array of shape (p + 1, (K - 1) p): theta is the first row, and the
others hold the encoding E in their first p columns. Let q be the softmax of the predictors and e_y the observed class.
A record's score is then w U'(q - e_y) kron E x and its Hessian w S kron E x (E x)', S = U'(diag(q) - q q')U.

Bounds, for any probabilities, w = min(1, t^2/|E x|^2):

* |U'(q - e_y)| = |q - e_y|, since q - e_y adds up to zero. Its square, (1 - q_y)^2 + sum over k != y of q_k^2, is at
  most 2 (1 - q_y)^2 <= 2. Attained where another class has probability 1.
* |S|_F = |diag(q) - q q'|_F, since the vector of ones is in its null space. With a = sum q^2 and b = sum q^3 its square
  is a - 2 b + a^2, and b >= a^2 by the inequality of Cauchy and Schwarz on q^(1/2) and q^(3/2). Hence it is at most a
  (1 - a) <= 1/4, and |S|_F <= 1/2: attained by two classes of probability 1/2 each. No eigenvalue is above 1/2 either.

Coordinates. S is symmetric, and so is E x (E x)': a record's matrix lies in the product of both spaces of symmetric
matrices. Its answer lists S_ab x_i x_j once for a <= b and i <= j, times sqrt(2) where a < b and times sqrt(2) where i
< j. The norm of the list therefore equals the Frobenius norm of the matrix. Noise of one deviation s on each number of
the list is noise of s, s/sqrt(2) or s/2 on the entries. Off both diagonals that is half of the noise that entries of
one deviation would have at the same price.
"""

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.privacy.facts import Adjacency, Facts
from core.queries.bases import AbstractQuestion
from core.queries.looks import AbstractCounts

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Classes = Annotated[int, Field(ge=2, le=100)]


class ClassCounts(AbstractCounts):
    """Shares of records in each class of the target, shape (K,). Sensitivity: see `AbstractCounts`, with one column."""

    kind: Literal["class_counts"] = "class_counts"
    classes: Classes

    @property
    def sets(self) -> int:
        """K."""
        return self.classes

    @property
    def read(self) -> int:
        """1: a record is in one class."""
        return 1


class AbstractClassSum(AbstractQuestion):
    """Common settings of sums over re-encoded rows: the number of classes and the weights."""

    places: ClassVar = "encoded"

    classes: Classes
    weight_bound: Positive

    @property
    def contrasts(self) -> int:
        """K - 1."""
        return self.classes - 1

    def features(self, dimension: int) -> int:
        """Return p of (K - 1) p parameters."""
        return dimension // self.contrasts


class ClassMoments(AbstractClassSum):
    """The weighted means of x x' and of x u': x a record's re-encoded row, u = U'e_y its class in contrast coordinates.

    Shape (p (p + 1)/2 + p (K - 1),): x_i x_j for i <= j, times sqrt(2) off the diagonal, then sqrt(2) x_i u_a, i first.

    Sensitivity. |u|^2 = 1 - 1/K. The list has the squared norm w^2 (|x|^4 + 2 |x|^2 |u|^2) <= w^2 (|x|^2 + |u|^2)^2,
    and w |x|^2 <= t^2, w <= 1: norm at most t^2 + |u|^2. Zeroing a unit moves the sum by that. Changing it: the list is
    part of the matrix w v v', v = (x, u), whose norm is at most t^2 + |u|^2; two such matrices, positive semidefinite,
    are at most sqrt(2) times that apart. Attained by rows of norm t, up to what u adds.
    """

    kind: Literal["class_moments"] = "class_moments"

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (p (p + 1)/2 + p (K - 1),)."""
        p = self.features(dimension)
        return (p * (p + 1) // 2 + p * self.contrasts,)

    def bound(self, facts: Facts) -> float:
        """Return t^2 + 1 - 1/K."""
        del facts  # weights bound it
        return self.weight_bound**2 + 1 - 1 / self.classes

    def diameter(self, facts: Facts) -> float:
        """Return sqrt(2) times the bound: both matrices are positive semidefinite."""
        return sqrt(2) * self.bound(facts)

    def sensitivity(self, facts: Facts) -> float:
        """Return the bound over n, or the diameter over n when a unit may change into any other."""
        moved = self.diameter(facts) if facts.adjacency is Adjacency.REPLACE_ONE else self.bound(facts)
        return moved / self.consumed(facts)


class ClassGradient(AbstractClassSum):
    """The mean of w U'(q - e_y) kron E x, shape ((K - 1) p,), class contrast after class contrast.

    Sensitivity. One unit's term has norm at most sqrt(2) w |E x| <= sqrt(2) t. Zeroing it moves the sum by that;
    changing it by at most twice that. Attained by rows of norm t whose class has no chance, with opposite scores.
    """

    kind: Literal["class_gradient"] = "class_gradient"

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return ((K - 1) p,)."""
        return (dimension,)

    def bound(self, facts: Facts) -> float:
        """Return sqrt(2) t."""
        del facts  # weights and loss bound it
        return sqrt(2) * self.weight_bound

    def sensitivity(self, facts: Facts) -> float:
        """Return sqrt(2) t/n, or twice that when a unit may change into any other."""
        terms = 2 if facts.adjacency is Adjacency.REPLACE_ONE else 1
        return terms * self.bound(facts) / self.consumed(facts)


class ClassCurvature(AbstractClassSum):
    """The mean of w S kron E x (E x)' (`hessian`), or of w^2 s s' kron E x (E x)', s = U'(q - e_y) (`score`).

    Shape (K (K - 1)/2 * p (p + 1)/2,): a list of coordinates, see the module; pairs of contrasts first.

    Sensitivity. The list's norm is the Frobenius norm of one unit's matrix: at most t^2/2 of a Hessian, and
    w |s|^2 w |E x|^2 <= 2 t^2 of scores. Zeroing a unit moves the sum by that; changing it by at most sqrt(2) times
    that, both matrices being positive semidefinite (up to roundings of 2^-50, which the grid's margin of 2^-10 covers).
    Attained by rows of norm t along axes, with two classes of chance 1/2 or a class without any.
    """

    kind: Literal["class_curvature"] = "class_curvature"
    of: Literal["hessian", "score"]

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (K (K - 1)/2 * p (p + 1)/2,)."""
        p = self.features(dimension)
        return (self.contrasts * self.classes // 2 * (p * (p + 1) // 2),)

    def bound(self, facts: Facts) -> float:
        """Return t^2/2 or 2 t^2."""
        del facts  # weights and loss bound it
        return self.weight_bound**2 * (0.5 if self.of == "hessian" else 2.0)

    def diameter(self, facts: Facts) -> float:
        """Return sqrt(2) times the bound: both matrices are positive semidefinite."""
        return sqrt(2) * self.bound(facts)

    def sensitivity(self, facts: Facts) -> float:
        """Return the bound over n, or the diameter over n when a unit may change into any other."""
        moved = self.diameter(facts) if facts.adjacency is Adjacency.REPLACE_ONE else self.bound(facts)
        return moved / self.consumed(facts)


def class_sums(
    classes: int, bound: float, pairs: Sequence[tuple[float, float]], scores: float
) -> Iterator[ClassGradient | ClassCurvature]:
    """Yield whitened Newton's gradients and Hessians of several classes, in order, and the scores.

    Args:
        classes: number of classes.
        bound: t, of the weights.
        pairs: noise multipliers of each gradient and of the Hessian beside it.
        scores: that of the scores.
    """
    for gradient, hessian in pairs:
        yield ClassGradient(sigma=gradient, classes=classes, weight_bound=bound)
        yield ClassCurvature(sigma=hessian, of="hessian", classes=classes, weight_bound=bound)
    yield ClassCurvature(sigma=scores, of="score", classes=classes, weight_bound=bound)
