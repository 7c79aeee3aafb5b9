"""Synthetic records of which a question reads some, in replicates: fresh ones of a law, or a sample of a fixed set.

A population is a law, not a table: every question draws records that no other question reads, which is what theorems
about streams assume. Every replicate is a run of its own, with records of its own. For simulations only: nothing here
has integer sums, so none of it can stand behind a scope's oracle. Draws come from the simulation that asks.
"""

from abc import ABC, abstractmethod
from math import log1p
from typing import Protocol

import torch
from torch import Tensor

from core.base.errors import ensure
from core.privacy.facts import Facts
from core.queries.gradients import Gradient, GradientDifference, Question


class RandomSource(Protocol):
    """Where a simulation's randomness comes from."""

    def normal(self, *shape: int) -> Tensor:
        """Return independent standard normal draws, float64."""

    def uniform(self, *shape: int) -> Tensor:
        """Return independent uniform draws in (0, 1], float64."""


class ReplicateRecords(ABC):
    """Records of R replicates, some of which a question reads.

    Args:
        replicates: R.
        units: n of each replicate, public: length of a stream, or size of the set that a sample is drawn from.
        dimension: p.
    """

    def __init__(self, replicates: int, units: int, dimension: int) -> None:
        ensure(replicates >= 1, "there is at least one run")
        self.replicates, self.units, self.dimension = replicates, units, dimension

    @abstractmethod
    def excess(self, theta: Tensor) -> Tensor:
        """Return the expected loss above its least value, shape (...)."""

    def _points(self, theta: Tensor) -> Tensor:
        """Return a point for each replicate, shape (R, p)."""
        return theta.expand(self.replicates, self.dimension)


class Population(ReplicateRecords):
    """Records drawn afresh for each question, independent of all others."""

    @abstractmethod
    def gradients(self, theta: Tensor, records: int, draws: RandomSource) -> Tensor:
        """Return the gradients of new records in each replicate, shape (R, records, p), at points (R, p).

        Every entry is finite: a law with heavy tails has large draws, never infinite ones.
        """

    def gradient_pairs(
        self,
        before: Tensor,
        after: Tensor,
        records: int,  # noqa: ARG002 - laws that have pairs draw so many
        draws: RandomSource,  # noqa: ARG002 - laws that have pairs draw from it
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of so many new records, the same at two points each, as `gradients` does at one.

        Raises:
            PrivacyInvariantError: this law tells none; one that methods with differences are studied on overrides this.
        """
        raise AssertionError(f"{type(self).__name__} tells no gradient_difference: {before.shape}, {after.shape}")

    def batch_sum(
        self, question: Question, facts: Facts, theta: Tensor, draws: RandomSource, *, other: Tensor | None = None
    ) -> Tensor:
        """Return the sum of what `question.batch` new records say in each replicate, shape (R, p).

        Their clipped gradients at theta, or by how much these change from theta to `other`, cut as the question says.
        """
        assert question.batch is not None, "a stream reads a stated number of records"
        if isinstance(question, GradientDifference):
            assert other is not None, "a gradient_difference is between two points"
            pair = self.gradient_pairs(self._points(theta), self._points(other), question.batch, draws)
            before, after = (_clipped(found, question.gradient_clip(facts)) for found in pair)
            return _clipped(after.sub_(before), question.bound(facts)).sum(-2)
        assert isinstance(question, Gradient), f"no method asks a stream for a {question.kind}"
        found = self.gradients(self._points(theta), question.batch, draws)
        return _clipped(found, question.bound(facts)).sum(-2)


class FixedRecords(ReplicateRecords):
    """One set of records for all replicates, of which every question reads its own Poisson sample in each."""

    @abstractmethod
    def gradients(self, theta: Tensor, rows: Tensor) -> Tensor:
        """Return the gradients of chosen records, shape (R, m, p), at points of shape (R, p), rows of shape (R, m)."""

    def sample_sum(self, question: Question, facts: Facts, theta: Tensor, rate: float, draws: RandomSource) -> Tensor:
        """Return the sum of the clipped gradients of a sample in each replicate, shape (R, p)."""
        assert isinstance(question, Gradient), f"no method asks a sample for a {question.kind}"
        rows, included = poisson_rows(draws, self.replicates, self.units, rate)
        found = _clipped(self.gradients(self._points(theta), rows), question.bound(facts))
        return torch.where(included.unsqueeze(-1), found, 0.0).sum(-2)


def _clipped(found: Tensor, bound: float) -> Tensor:
    """Shorten gradients, shape (..., p), to a bound, in place; those of known laws and records are all finite."""
    ensure(found.dtype == torch.float64, "a float of fewer bits makes zeros of uniform draws, and infinities of those")
    lengths = torch.linalg.vector_norm(found, dim=-1, keepdim=True)
    ensure(bool(lengths.isfinite().all()), "no draw is infinite: a zero entered a power below zero")
    return found.mul_(bound / lengths.clamp_(min=bound))


def poisson_rows(draws: RandomSource, replicates: int, units: int, rate: float) -> tuple[Tensor, Tensor]:
    """Include every one of n records with the same probability, independently, in each replicate.

    The gaps between included records are geometric: ceil(log U/log(1 - q)), U uniform. Gaps are drawn until the last
    record is passed in every replicate, so nothing is truncated.

    Args:
        draws: of the simulation.
        replicates: R.
        units: n.
        rate: q in (0, 1).

    Returns:
        Indices and whether they count, both of shape (R, m); an index that does not count is 0.
    """
    ensure(0 < rate < 1, "a sample leaves some records out")
    expected = units * rate
    some = int(expected + 6 * (expected * (1 - rate)) ** 0.5) + 8
    places = torch.full((replicates, 1), -1.0, dtype=torch.float64)
    while float(places[:, -1].min()) < units:
        # A uniform draw of 1 would give a gap of zero, and one record twice.
        gaps = (draws.uniform(replicates, some).log() / log1p(-rate)).ceil().clamp(min=1)
        places = torch.cat([places, places[:, -1:] + gaps.cumsum(-1)], -1)
    places = places[:, 1:]
    included = places < units
    return torch.where(included, places, 0.0).long(), included
