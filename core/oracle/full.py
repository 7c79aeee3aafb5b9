"""Oracles over a scope's records: their common base, and the one where each question reads every record.

Each answer takes these steps, in this order. The shapes of points are checked. One more draw is paid.
Records are selected and summed under a bound. Integer noise is added, and the noisy mean leaves.

Samples and streams are in `core.oracle.samples`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Self, TypeVar, final

import torch
from torch import Tensor

from core.base.errors import ensure
from core.mechanisms import sampling
from core.mechanisms.generator import SystemGenerator, require_system
from core.oracle import EVERYTHING, Answer, Part, PrivacyFilter, PublicRandomness, Release, Status
from core.oracle.noise import grid_for, noised_mean
from core.oracle.pace import paced, score_seconds
from core.oracle.runs import Run, best_of, filter_of
from core.oracle.stationarity import score_of
from core.privacy.events import Event, Repeated, Selected
from core.privacy.facts import Facts
from core.queries.bases import Clipped
from core.queries.gradients import Gradient, GradientDifference, GradientNorm, Question, gradient_of
from core.queries.hessians import AbstractScored
from core.queries.sums import OpenProblem, Problem
from core.queries.sums.network.parts import OpenSum, closed

T = TypeVar("T")


class JobRandomness:
    """Data-free draws from the job's own generator; nobody can repeat them."""

    def __init__(self, generator: SystemGenerator) -> None:
        self._generator = generator

    def normal(self, size: int) -> Tensor:
        """Return a float64 vector of independent standard normal draws, shape (size,)."""
        return torch.from_numpy(sampling.normal(self._generator, size))

    def integer(self, below: int) -> int:
        """Return a uniform integer in [0, below)."""
        return sampling.integer(self._generator, below)


@dataclass(frozen=True)
class ReadSelection:
    """Which records one question reads: a list of a public length or all, a mask over those, and what is public of it.

    The sum has at most `terms` terms and divides by `divisor`.
    """

    terms: int
    divisor: float
    rows: Tensor | None = None
    included: Tensor | None = None


@dataclass(frozen=True)
class BoundQuestion:
    """A question as one oracle answers it: checked, and with the public values that all its answers share.

    Attributes:
        question: as it was asked.
        event: the price of one answer.
        facts: by which its sum is made and charged.
        step: of the grid of the sum's parts.
        sum: makes it; see `core.queries.sums.Problem`.
        shape: of a point; None: a list of points, shape (K, p).
        dimension: p.
        precisions: that points may have.
    """

    question: Question
    event: Event
    facts: Facts
    step: float
    sum: Callable[..., Tensor | OpenSum]
    shape: tuple[int, ...] | None
    dimension: int
    precisions: tuple[torch.dtype, ...]

    def check(self, theta: Tensor, other: Tensor | None) -> None:
        """Refuse points where the question cannot be asked.

        Raises:
            PrivacyInvariantError: a wrong shape or precision, or a second point for another question than of pairs.
        """
        shape = theta.shape
        fits = shape == self.shape if self.shape else len(shape) == 2 and shape[0] > 0 and shape[1] == self.dimension  # noqa: PLR2004 - a list
        ensure(fits, "parameters have shape (p,), a list of points (K, p), and an encoding a row for each feature")
        ensure(theta.dtype in self.precisions, "parameters are float64, or single where a network is")
        if other is None:
            ensure(self.question.places != "pair", "pairs are asked at two points")
        else:
            ensure(self.question.places == "pair", "all but pairs are asked at one point")
            ensure((other.shape, other.dtype) == (shape, theta.dtype), "both points have one shape and one precision")


class RecordsOracle(ABC):
    """Base of all oracles over private records; an oracle is used by one thread.

    Args:
        problem: the records.
        facts: public facts about all of them; `units` counts every record, named blocks included.
        payments: pays ahead of reading.
        generator: the job's own; nothing else may noise private records.
        blocks: names of public sets of records, bool masks of shape (n,), disjoint: membership may depend on a record's
            place, never on what it says. This oracle reads the rest.

    Raises:
        TypeError: the generator is not the system's.
    """

    def __init__(
        self,
        problem: Problem,
        facts: Facts,
        payments: PrivacyFilter,
        generator: SystemGenerator,
        blocks: Mapping[str, Tensor] | None = None,
    ) -> None:
        ensure(facts.units == problem.units, "the facts count these records")
        ensure(facts.dimension == problem.dimension, "the facts describe these records")
        ensure(problem.replicates is None, "a scope has one set of records")
        self._problem = problem
        self._generator = require_system(generator)
        self._payments = payments
        self._members = _members(problem.units, blocks or {})
        self._part = EVERYTHING
        self._whole_facts = facts
        self._randomness = JobRandomness(self._generator)
        # Sums have parts of few rows for any question where a network is.
        self._is_network: Final = facts.part_rows is not None
        self._bound: BoundQuestion | None = None

    @property
    def facts(self) -> Facts:
        """Public facts of the records that this oracle reads."""
        members = self._members[self._part]
        return (
            self._whole_facts if members is None else self._whole_facts.model_copy(update={"units": int(members.sum())})
        )

    @property
    def randomness(self) -> PublicRandomness:
        """Data-free draws."""
        return self._randomness

    @property
    def precision(self) -> torch.dtype:
        """Single for networks, whose gradients are of their weights in single precision; a point is public."""
        return torch.float32 if self._is_network else torch.float64

    @abstractmethod
    def _event(self, question: Question) -> Event:
        """Return what one answer costs here, checking that this oracle answers such questions."""

    @abstractmethod
    def _select(self, question: Question) -> ReadSelection:
        """Draw the records for one question; it was paid for."""

    def _reads(self, question: Question) -> tuple[Part, int]:
        """Return the part whose units an answer reads, and what a privacy filter's position grows by.

        The part is a number if no other question of that pass reads them.
        """
        del question  # they all read the same units, and questions are counted
        return self._part, 1

    def _terms(self, question: Question) -> int:
        """Return the most terms that a sum has."""
        del question
        return self._problem.units

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        """Pay for, sum, noise and return an answer at theta, shape (p,), and at `other` for pairs, of one precision.

        A question about a list is asked at theta of shape (K, p), one about re-encoded rows at a point above its
        encoding.

        If an earlier attempt of the same job received an answer at this place, it is returned unchanged, without
        reading.

        Raises:
            StaleAttempt: the job is no longer ours; no record was read.
            PrivacyInvariantError: a wrong shape, a closed oracle, or a stream without the units: a programming error.
        """
        bound = self._bound
        if bound is None or bound.question is not question:
            bound = self._bound = self.bind(question)
        # All checks come before the payment: a wrong call must cost nothing.
        bound.check(theta, other)
        log = self._payments.log
        known = log.recall(question, theta, other)
        if known is not None:
            return known
        part, length = self._reads(question)
        if self._payments.pay(bound.event, part, length):
            self._generator.rekey()  # a captured state foretells nothing of what is paid next
        selected = self._select(question)
        total = self._sum(bound, theta, other, selected)
        drawn = noised_mean(total, question, bound.facts, selected.terms, selected.divisor, self._generator, theta)
        log.note(question, theta, drawn, other)
        return drawn

    def bind(self, question: Question) -> BoundQuestion:
        """Return a question as this oracle answers it.

        Raises:
            PrivacyInvariantError: it answers no such questions.
        """
        return self._bind(question, self._event(question), self._summing(question))

    def _bind(self, question: Question, event: Event, facts: Facts) -> BoundQuestion:
        """Return a question, or one of two sums of a score, with facts that its sum is made and charged by."""
        problem, dimension = self._problem, self._problem.dimension
        opens = self._is_network and isinstance(question, Gradient | GradientDifference)
        shapes = {"list": None, "encoded": (self._features + 1, dimension)}
        return BoundQuestion(
            question,
            event,
            facts,
            step=grid_for(question, facts, self._terms(question)).part_step,
            sum=problem.open_sum if opens and isinstance(problem, OpenProblem) else problem.integer_sum,
            shape=shapes.get(question.places, (dimension,)),
            dimension=dimension,
            precisions=(torch.float64, self.precision),
        )

    @property
    def _features(self) -> int:
        """The number of features: of parameters, or where each class has its own fewer."""
        ranges = self.facts.ranges
        return self._problem.dimension if ranges is None else len(ranges.kinds)

    def _summing(self, question: Question) -> Facts:
        """Return the facts that a sum is made and charged by: the public ones, which may say more of how it is made."""
        del question  # a full pass makes all sums alike
        return self._whole_facts

    def _sum(
        self, bound: BoundQuestion, theta: Tensor, other: Tensor | None, selected: ReadSelection
    ) -> Tensor | OpenSum:
        """Return the integer sum that an answer is made of, in part steps; of scores, these.

        A network's vector that is the answer itself may be left open.
        """
        if isinstance(bound.question, AbstractScored):
            return self._scores(bound, theta, selected)
        rows, included = selected.rows, selected.included
        return bound.sum(bound.question, bound.facts, theta, bound.step, other=other, rows=rows, included=included)

    def _scores(self, bound: BoundQuestion, theta: Tensor, selected: ReadSelection) -> Tensor:
        """Return how far each point of a list is from what is looked for, as integers, shape (K,); private."""
        question, facts = bound.question, self._whole_facts
        assert isinstance(question, AbstractScored), "a score is made of two sums"
        asked = [self._bind(one, bound.event, facts) for one in (gradient_of(question), question.hessian())]
        seconds, scores = score_seconds(facts.dimension), []
        for point in theta:
            slope, bend = (closed(self._sum(one, point, None, selected)).cpu().numpy() for one in asked)
            scores.append(paced(seconds, partial(score_of, question, facts, point, (slope, bend), selected)))
        return torch.tensor(scores, dtype=torch.int64)

    def affords(self, question: Question, then: Question | None = None) -> bool:
        """Say whether price and units are left for this question, and for `then` after it."""
        events = [self._event(one) for one in (question, then) if one is not None]
        return self._payments.affords(*events, part=self._reads(question)[0])

    def block(self, name: str) -> Self:
        """Return the oracle over a named set of records; it shares this one's privacy filter and closes with it."""
        ensure(name != EVERYTHING, "a block has a name")
        ensure(name in self._members, "blocks are named when the oracle is made")
        return self._with(_part=name)

    def with_ridge(self, ridge: float) -> Self:
        """Return the oracle over the same records and account with another public ridge; see `core.oracle.runs`."""
        # A bound question has the facts that it was bound with.
        return self._with(_whole_facts=self._whole_facts.model_copy(update={"ridge": ridge}), _bound=None)

    def best_of(self, event: Repeated | Selected, run: Run[T]) -> T | None:
        """Pay for several runs at once, make them, and return the best that counts; see `core.oracle.runs`."""
        if self._payments.pay(event, self._part):
            self._generator.rekey()
        log = self._payments.log
        return best_of(event, lambda: self._with(_payments=filter_of(event, log)), run, self._generator)

    def _with(self, **changed: object) -> Self:
        """Return a copy with some attributes changed."""
        oracle = copy(self)
        vars(oracle).update(changed)
        return oracle

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the last kept state of an earlier attempt, or `initial`."""
        kept = self._payments.log.resume()
        return initial if kept is None else kept

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Offer the noised state after `step` steps; it is stored with the next chunk's payment."""
        self._payments.log.keep(state, step)

    def release(self, value: T, status: Status) -> Release[T]:
        """Close this oracle and its blocks, and return the value with what was drawn."""
        return Release(value=value, status=status, event=self._payments.close())


@dataclass(frozen=True)
class _Remembered:
    """The integer sum of a gradient, and its inputs; private state that never leaves."""

    part: str
    clip: Clipped
    theta: bytes
    total: Tensor

    def is_of(self, part: str, clip: Clipped, theta: Tensor) -> bool:
        """Say whether this is a part's sum with a clip at a point."""
        return (part, clip) == (self.part, self.clip) and theta.numpy().tobytes() == self.theta


@final
class FullOracle(RecordsOracle):
    """Every question is about every record.

    The sum behind a norm is kept until the next gradient or norm, so that a norm and then a gradient at one point read
    the records once. Answer, noise and price are the same as if they were read again: a sum depends on records and
    public values alone.
    """

    _last: _Remembered | None = None
    _selected: tuple[Question, ReadSelection] | None = None

    def _event(self, question: Question) -> Event:
        ensure(question.batch is None, "batches are for streams")
        return event_of(question)

    def _select(self, question: Question) -> ReadSelection:
        last = self._selected
        if last is None or last[0] is not question:
            members = self._members[self._part]
            selection = ReadSelection(self._problem.units, divisor=question.consumed(self.facts), included=members)
            last = self._selected = (question, selection)
        return last[1]

    def _sum(
        self, bound: BoundQuestion, theta: Tensor, other: Tensor | None, selected: ReadSelection
    ) -> Tensor | OpenSum:
        question = bound.question
        if not isinstance(question, Gradient | GradientNorm):
            return super()._sum(bound, theta, other, selected)
        last, self._last = self._last, None  # a gradient uses its sum up
        if last is not None and last.is_of(self._part, question.clip, theta):
            total: Tensor | OpenSum = last.total
        else:
            total = bound.sum(question, bound.facts, theta, bound.step, included=selected.included)
        if isinstance(question, GradientNorm):
            total = closed(total)
            self._last = _Remembered(self._part, question.clip, theta.numpy().tobytes(), total)
        return total

    def block(self, name: str) -> Self:
        """Return the oracle over a named set of records, which remembers sums of its own; see `RecordsOracle`."""
        # A selection is found by its question alone, and a block has other records.
        return super().block(name)._with(_last=None, _selected=None)  # noqa: SLF001 - a copy of our own

    def release(self, value: T, status: Status) -> Release[T]:
        """Close this oracle and its blocks, and return the value with what was drawn; nothing is remembered."""
        self._last = None
        return super().release(value, status)


@lru_cache(maxsize=64)  # a method asks the same few questions in every step
def event_of(question: Question) -> Event:
    """Return what an answer about every record costs: for equal questions the same object, which accounts look for."""
    return question.event()


def _members(units: int, blocks: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    """Return masks by name, and that of the rest; None stands for all."""
    if not blocks:
        return {EVERYTHING: None}
    ensure(EVERYTHING not in blocks, "a block has a name")
    counted = torch.zeros(units, dtype=torch.int64)
    for mask in blocks.values():
        ensure(mask.shape == (units,), "a block is a mask over all records")
        ensure(mask.dtype == torch.bool, "a block is a mask over all records")
        ensure(bool(mask.any()), "a block has records")
        counted += mask
    ensure(int(counted.max()) == 1, "blocks share no record")
    rest = counted == 0
    ensure(bool(rest.any()), "some records are in no block")
    return {EVERYTHING: rest, **blocks}
