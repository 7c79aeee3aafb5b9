"""Least squares known by its Gram matrix: a gradient costs d^2, for any number of units.

Proof that nothing is clipped. A unit's gradient is (x.w - y) x, of norm at most (r |w| + Y) r for |x| <= r and |y| <=
Y. Its change from w to v is x.(v - w) x, of norm at most r^2 |v - w|. Where both norms are within the bounds that are
asked for, no unit's term is cut, and the sum of cut terms is the plain one, n (G w - b). Elsewhere an aggregate knows
too little, and says so by an assertion: a study whose clipping binds is no study of the method's theorem.
"""

import torch
from torch import Tensor

from core.base.errors import ensure
from core.privacy.facts import Facts
from core.queries.gradients import Gradient, GradientDifference, Question, summed
from studies.kl.grouped import in_steps
from studies.kl.problems import Constants, least_squares

_ROUNDING = 1 + 1e-9
"""A step's length is that of its schedule up to roundings."""


class GramProblem:
    """Records behind an oracle, all of them in every sum: see `core.queries.sums.SyntheticProblem`.

    Args:
        features: float64, shape (n, d); only their products are kept.
        labels: float64, shape (n,).
        copies: the number of times that each record counts.
    """

    replicates = None

    def __init__(self, features: Tensor, labels: Tensor, copies: int = 1) -> None:
        rows, self.dimension = features.shape
        self.units = rows * copies
        self._gram = features.mT @ features / rows
        self._moment = features.mT @ labels / rows
        self._square = float(labels.square().mean())
        self.row_bound = float(torch.linalg.vector_norm(features, dim=-1).amax())
        self.label_bound = float(labels.abs().amax())
        spectrum = torch.linalg.eigvalsh(self._gram)
        self.eigenvalue = float(spectrum[spectrum > 1e-10 * spectrum[-1]][0])
        self.least = self.mean_loss(self.minimiser)

    @property
    def minimiser(self) -> Tensor:
        """The shortest one, shape (d,)."""
        shortest: Tensor = torch.linalg.pinv(self._gram, hermitian=True) @ self._moment
        return shortest

    def constants(self, eigenvalue: float, label_bound: float, radius: float) -> Constants:
        """Return the constants that follow from public bounds; a study asserts afterwards that they are true."""
        return least_squares(eigenvalue, label_bound=label_bound, radius=radius)

    def mean_loss(self, theta: Tensor) -> Tensor:
        """Return the mean of (x.w - y)^2/2, shape (...)."""
        return ((theta @ self._gram * theta).sum(-1) - 2 * theta @ self._moment + self._square) / 2

    def excess(self, theta: Tensor) -> Tensor:
        """Return the mean loss above its least value, shape (...): a quadratic form, so nothing cancels."""
        away = theta - self.minimiser
        return (away @ self._gram * away).sum(-1) / 2

    def mean_gradient(self, theta: Tensor) -> Tensor:
        """Return the mean gradient, shape (..., d)."""
        return theta @ self._gram - self._moment

    def integer_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        *,
        other: Tensor | None = None,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        """Return the sum of all units' answers, int64, in steps: the float sum, rounded once."""
        ensure(rows is None, "a Gram matrix knows no single unit")
        ensure(included is None, "a Gram matrix knows no single unit")
        return in_steps(self.bounded_sum(summed(question), facts, theta, other=other), step)

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum over units of clipped answers, float64, at points of shape (d,), or (R, d) for replicates."""
        if isinstance(question, Gradient):
            self._assert_unclipped(theta, question.bound(facts))
            return self.units * self.mean_gradient(theta)
        assert isinstance(question, GradientDifference), f"no method asks these problems for a {question.kind}"
        assert other is not None, "a difference is between two points"
        moved = other - theta
        for point in (theta, other):
            self._assert_unclipped(point, question.gradient_clip(facts))
        longest = float(torch.linalg.vector_norm(moved, dim=-1).amax())
        ensure(self.row_bound**2 * longest <= question.bound(facts) * _ROUNDING, "the cap would cut some difference")
        return self.units * (moved @ self._gram)

    def _assert_unclipped(self, theta: Tensor, clip: float) -> None:
        largest = float(torch.linalg.vector_norm(theta, dim=-1).amax())
        reach = self.row_bound * (self.row_bound * largest + self.label_bound)
        ensure(reach <= clip * _ROUNDING, f"a gradient may be as long as {reach:g}, and the clip is {clip:g}")
