"""A fixed set of records of the rank-one problem, as held-out ones are: gradients and Hessians, cut unit by unit.

For simulations: a selection reads all records at once, which laws that draw afresh for every question cannot show.
"""

from math import inf, isfinite
from typing import final

import torch
from torch import Tensor

from core.base.errors import ensure
from core.privacy.facts import PART_UNITS, Facts
from core.queries.gradients import Gradient, Question
from core.queries.hessians import Hessian, HessianProduct
from studies.kl.grouped import in_steps, within


@final
class ComponentMoments:
    """Records of that law where no bound cuts any of them: all sums follow from that of w w^T.

    Args:
        units: n.
        longest: the largest |w|.
        moments: the sum of w w^T, shape (p, p).
    """

    replicates = None

    def __init__(self, units: int, longest: float, moments: Tensor) -> None:
        self.units, self.dimension = units, len(moments)
        self._longest, self._moments = longest, moments

    def is_uncut(self, question: Question, facts: Facts, theta: Tensor) -> bool:
        """Say whether no record can be above its bound here; false where one is not finite."""
        length, longest = float(torch.linalg.vector_norm(theta)), self._longest
        if isinstance(question, Gradient):
            return length**3 + length * longest**2 <= question.bound(facts)
        return isinstance(question, Hessian | HessianProduct) and max(3 * length**2, longest**2) <= question.clip

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum over records at one point of shape (p,), none of them cut."""
        ensure(self.is_uncut(question, facts, theta), "what is cut is no function of the moments")
        square, eye = theta.square().sum(), torch.eye(self.dimension, dtype=theta.dtype)
        if isinstance(question, Gradient):
            return self.units * square * theta - self._moments @ theta
        if other is not None:
            return self.units * (square * other + 2 * theta * (theta @ other)) - self._moments @ other
        return self.units * (square * eye + 2 * torch.outer(theta, theta)) - self._moments

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
        """Return the sum in steps, int64; there are no records of which some could be read."""
        ensure(rows is None, "records are known by their sum")
        ensure(included is None, "records are known by their sum")
        return in_steps(self.bounded_sum(question, facts, theta, other=other), step)


@final
class ComponentRecords:
    """f(u; w) = |u|^4/4 - (w.u)^2/2 for given w; see `studies.second_order.populations.PrincipalComponent`.

    A record's gradient is |u|^2 u - w (w.u), its Hessian |u|^2 I + 2 u u^T - w w^T. The Hessian is a difference of two
    semidefinite matrices, so its operator norm is at most max(3 |u|^2, |w|^2). Where that is above M the Hessian, and a
    product, are multiplied by M over it. Where no record can be above its bound, sums follow from that of w w^T alone.

    Args:
        rows: w, float64, shape (n, p).

    Attributes:
        moments: of the records where nothing is cut; they hold on to no record.
    """

    replicates = None

    def __init__(self, rows: Tensor) -> None:
        ensure(rows.dtype == torch.float64, "records are float64")
        self._rows = rows
        self.units, self.dimension = rows.shape
        longest = float(torch.linalg.vector_norm(rows, dim=-1).max())
        self.moments = ComponentMoments(self.units, longest if isfinite(longest) else inf, rows.mT @ rows)

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum over records of clipped answers, float64, at one point of shape (p,)."""
        if self.moments.is_uncut(question, facts, theta):
            return self.moments.bounded_sum(question, facts, theta, other=other)
        return sum((self._part(question, facts, theta, rows, other) for rows in self._parts()), torch.zeros(()))

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
        """Return the same in steps, int64, part by part; see `core.queries.sums.Problem`."""
        total = torch.zeros((), dtype=torch.int64)
        for part in self._parts(rows, included):
            total = total + in_steps(self._part(question, facts, theta, part, other), step)
        return total

    def _parts(self, rows: Tensor | None = None, included: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return the records that are read, in parts; those left out are no numbers."""
        read = self._rows if rows is None else self._rows[rows]
        if included is not None:
            read = torch.where(included.unsqueeze(-1), read, torch.nan)
        return tuple(read[first : first + PART_UNITS] for first in range(0, len(read), PART_UNITS))

    def _part(self, question: Question, facts: Facts, theta: Tensor, rows: Tensor, other: Tensor | None) -> Tensor:
        """Sum over some records; one that is not finite counts as zero."""
        kept = rows.isfinite().all(-1, keepdim=True)
        w, square = torch.where(kept, rows, 0.0), theta.square().sum()
        if isinstance(question, Gradient):
            terms = square * theta - w * (w @ theta).unsqueeze(-1)
            return torch.where(kept, within(terms, question.bound(facts)), 0.0).sum(0)
        assert isinstance(question, Hessian | HessianProduct), f"no method asks these records for a {question.kind}"
        sizes = torch.maximum(3 * square, w.square().sum(-1))
        scales = torch.where(kept.squeeze(-1), (question.clip / sizes).clamp(max=1.0), 0.0)
        if isinstance(question, Hessian):
            ensure(facts.hessian_rank in {None, self.dimension}, "these Hessians have every rank")
            bent = square * torch.eye(self.dimension, dtype=theta.dtype) + 2 * torch.outer(theta, theta)
            return scales.sum() * bent - w.mT @ (w * scales.unsqueeze(-1))
        assert other is not None, "a product is with a vector"
        turned = square * other + 2 * theta * (theta @ other)
        return scales.sum() * turned - ((w @ other) * scales) @ w
