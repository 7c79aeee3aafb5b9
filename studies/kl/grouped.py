"""Problems of few different units, each so many times over: a sum costs the same for ten units and ten million.

The number of units enters a private method only through its noise, so rates in n are studied on these, through the very
code that jobs run. Each kind's gradient is clipped as a unit's would be, and differences are capped likewise. A
gradient that is not finite counts as zero.

Integers. The float64 sum over K kinds, each times how many units of it are read, is rounded once. In norm it errs by at
most gamma_{K+2} m C for m units (Higham 2002, section 3.1). Where K + 2 is at most PART_UNITS, this is within the
lattice's charge for parts of PART_UNITS units; more kinds are refused. One rounding of one part is charged too.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from core.base.errors import ensure
from core.data.limits import LARGEST_SUM
from core.privacy.facts import PART_UNITS, Facts
from core.queries.gradients import Gradient, GradientDifference, Question, summed
from core.queries.sums import SyntheticProblem


class GroupedProblem(ABC):
    """Records behind an oracle: see `core.queries.sums.SyntheticProblem`. Units are numbered kind after kind.

    Args:
        counts: the number of units of each kind, shape (kinds,).
        dimension: p.
    """

    replicates = None

    def __init__(self, counts: tuple[int, ...], dimension: int) -> None:
        ensure(min(counts) >= 0, "counts are not negative")
        ensure(len(counts) + 2 <= PART_UNITS, "a sum over kinds errs by no more than one over a part's units")
        self._counts = torch.tensor(counts, dtype=torch.float64).unsqueeze(-1)
        self.units = sum(counts)
        self.dimension = dimension

    @abstractmethod
    def gradients(self, theta: Tensor) -> Tensor:
        """Return each kind's gradient, shape (..., kinds, p), at points of shape (..., p)."""

    @abstractmethod
    def losses(self, theta: Tensor) -> Tensor:
        """Return each kind's loss, shape (..., kinds), at points of shape (..., p)."""

    def mean_loss(self, theta: Tensor) -> Tensor:
        """Return the mean loss, shape (...)."""
        return (self.losses(theta) * self._counts.squeeze(-1)).sum(-1) / self.units

    def mean_gradient(self, theta: Tensor) -> Tensor:
        """Return the mean gradient, no unit's clipped, shape (..., p)."""
        return (self.gradients(theta) * self._counts).sum(-2) / self.units

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
        """Return the sum of clipped answers, int64, in steps; see `core.queries.sums.Problem`."""
        total = (self._terms(summed(question), facts, theta, other) * self._read(rows, included)).sum(-2)
        return in_steps(total, step)

    def _read(self, rows: Tensor | None, included: Tensor | None) -> Tensor:
        """Return how many units of each kind are read and count, shape (kinds, 1)."""
        if rows is None and included is None:
            return self._counts
        rows = torch.arange(self.units) if rows is None else rows
        counted = torch.ones_like(rows, dtype=torch.bool) if included is None else included
        ensure(counted.shape == rows.shape, "a mask is over what is read")
        ends = self._counts.squeeze(-1).cumsum(0)
        kinds = torch.searchsorted(ends, rows.double(), right=True)
        return torch.bincount(kinds, counted.double(), minlength=len(ends)).unsqueeze(-1)

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum over units of clipped answers, float64, at points of shape (p,), or (R, p) for replicates."""
        return (self._terms(question, facts, theta, other) * self._counts).sum(-2)

    def _terms(self, question: Question, facts: Facts, theta: Tensor, other: Tensor | None) -> Tensor:
        """Return each kind's clipped answer, shape (..., kinds, p)."""
        match question:
            case Gradient():
                return self._clipped(theta, question.bound(facts))
            case GradientDifference():
                assert other is not None, "a difference is between two points"
                clip = question.gradient_clip(facts)
                return within(self._clipped(other, clip) - self._clipped(theta, clip), question.bound(facts))
            case _:
                raise AssertionError(f"no method asks these problems for a {question.kind}")

    def _clipped(self, theta: Tensor, bound: float) -> Tensor:
        return within(self.gradients(theta), bound)


class Copies:
    """A problem whose every record is there so many times over: sums are that many times the problem's own.

    Clips and caps are a unit's own, so a copy's term is cut as the record's is.

    Args:
        problem: any that simulations may sum, one set of records.
        times: at least 1.
    """

    replicates = None

    def __init__(self, problem: SyntheticProblem, times: int) -> None:
        ensure(times >= 1, "a record is there at least once")
        ensure(problem.replicates is None, "copies are of one set of records")
        self._problem, self._times = problem, times
        self.units, self.dimension = problem.units * times, problem.dimension

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
        """Return the sum of clipped answers, int64, in steps; see `core.queries.sums.Problem`.

        Unit i is a copy of record i modulo their number. Of all units together the float sum is rounded once.
        """
        if rows is None and included is None:
            return in_steps(self.bounded_sum(summed(question), facts, theta, other=other), step)
        units = torch.arange(self.units) if rows is None else rows
        listed = units % self._problem.units
        return self._problem.integer_sum(question, facts, theta, step, other=other, rows=listed, included=included)

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum over units of clipped answers, as the problem has it, times the number of copies."""
        return self._problem.bounded_sum(question, facts, theta, other=other).mul(self._times)


def in_steps(total: Tensor, step: float) -> Tensor:
    """Return a float sum as the nearest whole steps, int64."""
    steps = total / step
    ensure(float(steps.abs().amax()) < LARGEST_SUM, "every sum is finite and within its public bound")
    return steps.round().to(torch.int64)


def within(vectors: Tensor, bound: float) -> Tensor:
    """Return vectors of shape (..., p) projected onto the ball of a radius; those that are not finite become zero."""
    finite = torch.where(vectors.isfinite().all(-1, keepdim=True), vectors, 0.0)
    norms = torch.linalg.vector_norm(finite, dim=-1, keepdim=True)
    return finite.mul(bound / norms.clamp(min=bound))
