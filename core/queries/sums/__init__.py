"""Sums over private records, one bounded way per kind of problem; only an oracle may call them."""

from typing import Protocol, runtime_checkable

from torch import Tensor

from core.losses.losses import Clip, Huber, Loss, Mallows, Multinomial, Weights
from core.privacy.facts import Facts
from core.queries.gradients import Question
from core.queries.sums.joint import JointProblem
from core.queries.sums.linear import LinearProblem
from core.queries.sums.multinomial import MultinomialProblem
from core.queries.sums.network.parts import OpenSum


class Problem(Protocol):
    """Records behind an oracle."""

    @property
    def units(self) -> int:
        """n, excluded rows included."""

    @property
    def dimension(self) -> int:
        """The number of parameters, p."""

    @property
    def replicates(self) -> int | None:
        """R, the number of independent sets of synthetic records; None for a scope's."""

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
        """Return the sum over records of their clipped answers, int64, in steps.

        The records are in parts, see `core.privacy.facts`. Each part is summed and rounded, and the integers are added.
        `core.mechanisms.lattice` charges for the rounding error.

        Args:
            question: the sum to make; gradients, for a question about their norm or a choice by it.
            facts: the public bounds to clip to.
            theta: float64, shape (p,), or (K, p) for a list of points.
            step: a power of two, such that all records together stay below 2^61 steps.
            other: float64, shape (p,): the second point of a question about two; None for others.
            rows: int64 indices to read, shape (m,), m public; default all. Parts are then parts of this list.
            included: bool, shape (n,), or (m,) for a list. False: the record is read and counts as zero. In a list,
                zeros take the place of such a record, and of an excluded row, before any arithmetic. The sum therefore
                does not depend on which of the two a slot holds.

        Returns:
            A tensor on the records' device, of the shape of one record's answer; (K, p) for a list of points. The sum
            of curvatures is symmetric.
        """


@runtime_checkable
class OpenProblem(Problem, Protocol):
    """Records whose sums of long vectors may be had before their last part is integers, as a network's."""

    def open_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        *,
        other: Tensor | None = None,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor | OpenSum:
        """Return what, closed, is `integer_sum` of a question that is not about a list."""


class SyntheticProblem(Problem, Protocol):
    """Records that a simulation may sum in floats, in replicates or not."""

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum over records of clipped answers, float64, at points of shape (p,), or (R, p), R replicates."""


def make_problem(
    features: Tensor,
    target: Tensor,
    present: Tensor,
    loss: Loss,
    weights: Weights,
    *,
    offset: Tensor | None = None,
    sampling: Tensor | None = None,
) -> LinearProblem | JointProblem | MultinomialProblem:
    """Return the problem of a loss on records.

    Args:
        features: float64, contiguous, shape (n, d), or (R, n, d) for synthetic replicates. They become the problem's,
            and rows that count as zero are overwritten with zeros.
        target: float64, shape (n,) or (R, n), on the same device.
        present: bool, same shape and device; False marks an excluded row.
        loss: nothing open.
        weights: nothing open, on these features.
        offset: float64, shape of the target, on the same device: added to x.theta; None: nothing.
        sampling: the same, 0 to 1: weight of each record; None: 1.
    """
    assert offset is None or loss.kind in {"logistic", "poisson"}, "other links take it from the target"
    match loss:
        case Huber(joint=True):
            assert isinstance(weights, Mallows), "a scale is estimated with Mallows weights only"
            return JointProblem(features, target, present, loss, weights, sampling=sampling)
        case Multinomial():
            assert isinstance(weights, Mallows | Clip), "the model offers these alone"
            assert sampling is None, "the model offers none"
            return MultinomialProblem(features, target, present, loss, weights)
        case _:
            return LinearProblem(features, target, present, loss, weights, offset=offset, sampling=sampling)
