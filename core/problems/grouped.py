"""Problems of few different units, each so many times over: a sum costs the same for ten units and ten million.

How many units there are enters a private method only through its noise, so rates in n are studied on these, through
the very code that jobs run. Each kind's gradient is clipped as a unit's would be, and differences are capped likewise.
A gradient that is not finite counts as zero. For simulations only: no integer sums, so no scope's door.
"""

from abc import ABC, abstractmethod
from typing import NoReturn

import torch
from torch import Tensor

from core.catalogue.questions import Gradient, GradientDifference, Question
from core.privacy.facts import Facts
from core.problems import SyntheticProblem


class GroupedProblem(ABC):
    """Records behind a simulated door: see `core.problems.SyntheticProblem`.

    Args:
        counts: how many units there are of each kind, shape (kinds,).
        dimension: p.
    """

    lanes = None

    def __init__(self, counts: tuple[int, ...], dimension: int) -> None:
        assert min(counts) >= 0, "counts are not negative"
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

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum over units of clipped answers, float64, at points of shape (p,), or (R, p) for lanes."""
        match question:
            case Gradient():
                terms = self._clipped(theta, question.bound(facts))
            case GradientDifference():
                assert other is not None, "a difference is between two points"
                clip = question.gradient_clip(facts)
                terms = within(self._clipped(other, clip) - self._clipped(theta, clip), question.bound(facts))
            case _:
                _unasked(question)
        return (terms * self._counts).sum(-2)

    def _clipped(self, theta: Tensor, bound: float) -> Tensor:
        return within(self.gradients(theta), bound)


class Copies:
    """A problem whose every record is there so many times over: sums are that many times the problem's own.

    Clips and caps are a unit's own, so a copy's term is cut as the record's is.

    Args:
        problem: any that simulations may sum, one set of records.
        times: at least 1.
    """

    lanes = None

    def __init__(self, problem: SyntheticProblem, times: int) -> None:
        assert times >= 1, "a record is there at least once"
        assert problem.lanes is None, "copies are of one set of records"
        self._problem, self._times = problem, times
        self.units, self.dimension = problem.units * times, problem.dimension

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum over units of clipped answers, as the problem has it, times the number of copies."""
        return self._problem.bounded_sum(question, facts, theta, other=other).mul(self._times)


def within(vectors: Tensor, bound: float) -> Tensor:
    """Return vectors of shape (..., p) projected onto the ball of a radius; those that are not finite become zero."""
    finite = torch.where(vectors.isfinite().all(-1, keepdim=True), vectors, 0.0)
    norms = torch.linalg.vector_norm(finite, dim=-1, keepdim=True)
    return finite.mul(bound / norms.clamp(min=bound))


def _unasked(question: Question) -> NoReturn:
    raise AssertionError(f"no method asks these problems for a {question.kind}")
