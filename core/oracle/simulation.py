"""The oracle over synthetic records: replicates, seeds and silence exist here only, and no scope can be behind it.

The same questions, the same problems and the same noise scale as at a real oracle, lattice costs included, so a study
of a method is a study of the code that jobs run. Samples and streams are drawn as the oracles draw them, or come as
fresh draws of a population. The noise is *continuous* Gaussian, not discrete: no privacy depends on its last bits here.
On grids as fine as the lattice's no statistic can distinguish the two laws.
"""

from collections.abc import Callable
from copy import copy
from typing import Final, TypeVar, final

import torch
from torch import Tensor

from core.mechanisms import sampling
from core.mechanisms.generator import SimulationGenerator
from core.oracle import EVERYTHING, Answer, Part, PrivacyFilter, PublicRandomness, Release, Status
from core.oracle.cursor import StreamCursor
from core.oracle.filters import UnlimitedFilter
from core.oracle.noise import Matrices, chosen, grid_for, ridge_slope, scale_of
from core.oracle.runs import Run, best_of, filter_of
from core.oracle.stationarity import decided, exact_score, in_silence
from core.privacy.events import Event, Repeated, Sampled, Selected
from core.privacy.facts import Facts
from core.queries.gradients import (
    GradientNorm,
    LeastGradient,
    Looked,
    Question,
    Scored,
    Summed,
    Tabled,
    gradient_of,
    summed,
)
from core.queries.hessians import AbstractScored
from core.queries.sampling import FullSampling, PoissonSampling, Sampling, StreamSampling
from core.queries.sums import SyntheticProblem
from core.queries.sums.streams import FixedRecords, Population

T = TypeVar("T")


class SeededRandomness:
    """Data-free draws that a seed repeats; the same for all replicates."""

    def __init__(self, generator: SimulationGenerator) -> None:
        self._generator = generator

    def normal(self, size: int) -> Tensor:
        """Return a float64 vector of independent standard normal draws, shape (size,)."""
        return self._generator.normal(size)

    def integer(self, below: int) -> int:
        """Return a uniform integer in [0, below)."""
        return sampling.integer(self._generator, below)


@final
class Simulation:
    """An oracle over synthetic records, in R independent replicates if wanted.

    Replicates come from the records, shape (R, n, p), each replicate its own data; or from `replicates`, R noise draws
    about one data set. Starts of shape (p,) are broadcast; answers have shape (R, p), (R, p, p) and (R, 1), or no
    replicates at all.

    Args:
        problem: the records.
        facts: as for a real oracle.
        generator: seeded; a real oracle refuses it, and this one refuses the system's.
        noiseless: sigma = 0: answers are exact and their scale is 0, whatever the question says.
        replicates: R noise draws about one data set; not for records that have replicates themselves.
        payments: e.g. a `CountingFilter`; default: everything is affordable.
        sampling: which records a question reads; default: all. A population has streams only, whose every batch is
            drawn afresh in every replicate; a stream of other records goes through them in their order, the same in all
            replicates and passes. Records with replicates of their own are read in full, unless they are a
            `FixedRecords`.
    """

    def __init__(
        self,
        problem: SyntheticProblem | Population | FixedRecords,
        facts: Facts,
        generator: SimulationGenerator,
        noiseless: bool = False,  # noqa: FBT001, FBT002 - the name says it all where it is used
        *,
        replicates: int | None = None,
        payments: PrivacyFilter | None = None,
        sampling: Sampling = FullSampling(),  # noqa: B008 - a frozen value
    ) -> None:
        if type(generator) is not SimulationGenerator:
            raise TypeError(f"a simulation needs a SimulationGenerator, not a {type(generator).__name__}")
        assert facts.units == problem.units, "the facts count these records"
        assert facts.dimension == problem.dimension, "the facts describe these records"
        assert replicates is None or problem.replicates is None, "replicates come from the records or from their number"
        self.facts = facts
        self.randomness: PublicRandomness = SeededRandomness(generator)
        self.precision: Final = torch.float64
        self._problem = problem
        self._generator = generator
        self._noiseless = noiseless
        self._replicates = problem.replicates if replicates is None else replicates
        self._payments = UnlimitedFilter() if payments is None else payments
        self._scaled: tuple[Question, float] | None = None
        self._sampling = sampling
        self._cursor = StreamCursor(facts.units, sampling.passes) if isinstance(sampling, StreamSampling) else None

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        """Return a noised mean at theta, float64, shape (p,) or (R, p), and for pairs at `other`, shaped likewise.

        A list of points has shape (K, p), and no replicates, since each replicate may choose a different one.
        """
        assert (other is not None) == (question.places == "pair"), "pairs are asked at two points, all else at one"
        assert other is None or other.shape == theta.shape, "both points have one shape"
        assert self._has_units(question), "the stream has run out of units: branch on `affords`"
        if question.places in {"list", "encoded"}:
            assert self._replicates is None, "a list of points is asked about without replicates"
            assert theta.ndim == 2, "a list of points has shape (K, p)"  # noqa: PLR2004 - as it says
            assert theta.shape[-1] == self.facts.dimension, "a list of points has shape (K, p)"
        else:
            assert theta.shape in {(self.facts.dimension,), self._shape()}, "parameters have shape (p,) or (R, p)"
        part, event = self._priced(question)
        length = 1 if self._cursor is None else self._cursor.length(question.consumed(self.facts))
        answer = self._payments.log.recall(question, theta, other)
        if answer is None:
            self._payments.pay(event, part, length)
            answer = self._draw(question, theta, other)
            self._payments.log.note(question, theta, answer, other)
        return answer

    def _priced(self, question: Question) -> tuple[Part, Event]:
        """Return the part of the records that an answer reads, or its pass of a stream, and what it costs."""
        if self._cursor is not None:
            return self._cursor.pass_of(question.consumed(self.facts)), question.event()
        if isinstance(self._sampling, PoissonSampling):
            return EVERYTHING, Sampled(numerator=self._sampling.parts, sigma=question.sigma)
        return EVERYTHING, question.event()

    def _has_units(self, question: Question) -> bool:
        """Say whether so many units are left, checking that the question is one for these samples."""
        if self._cursor is None or not isinstance(self._sampling, StreamSampling):
            assert question.batch is None, "batches are for streams"
            return True
        assert question.batch in self._sampling.batches, "a stream reads its batches"
        return self._cursor.first(question.batch) is not None

    def _sum(self, question: Summed, theta: Tensor, other: Tensor | None) -> tuple[Tensor, float]:
        """Return the sum over the records that a question reads, and what it is divided by."""
        problem, sampled = self._problem, self._sampling
        match sampled:
            case StreamSampling():
                assert self._cursor is not None, "made with the stream"
                batch = question.consumed(self.facts)
                _, first = self._cursor.take(batch)
                if isinstance(problem, Population):
                    return problem.batch_sum(question, self.facts, theta, self._generator, other=other), batch
                assert not isinstance(problem, FixedRecords), "these are sampled"
                rows = torch.arange(first, first + batch)
                return self._each(lambda at: self._chosen(question, at, batch, rows=rows), theta, other), batch
            case PoissonSampling(parts=parts, rate=rate):
                units = self.facts.units
                if isinstance(problem, FixedRecords):
                    return problem.sample_sum(question, self.facts, theta, rate, self._generator), units * rate

                def one(at: tuple[Tensor, Tensor | None]) -> Tensor:
                    mask = torch.from_numpy(sampling.poisson_mask(self._generator, parts, units))
                    return self._chosen(question, at, units, included=mask)

                return self._each(one, theta, other), units * rate
        assert not isinstance(problem, Population | FixedRecords), "these are read in samples"
        return problem.bounded_sum(question, self.facts, theta, other=other), self.facts.units

    def _each(
        self, one: Callable[[tuple[Tensor, Tensor | None]], Tensor], theta: Tensor, other: Tensor | None
    ) -> Tensor:
        """Return a sum at each replicate's point, shape (R, ...), or at the only one."""
        if self._replicates is None:
            return one((theta, other))
        points = theta.expand(*self._shape())
        others = [None] * self._replicates if other is None else list(other.expand(*self._shape()))
        return torch.stack([one(at) for at in zip(points, others, strict=True)])

    def _chosen(
        self,
        question: Summed | Looked | Tabled,
        at: tuple[Tensor, Tensor | None],
        terms: int,
        *,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        """Return a sum over some records at one point, by the route of a real oracle."""
        assert not isinstance(self._problem, Population | FixedRecords), "they choose themselves"
        step = grid_for(question, self.facts, terms).part_step
        theta, other = at
        steps = self._problem.integer_sum(question, self.facts, theta, step, other=other, rows=rows, included=included)
        return steps.double().mul_(step)

    def _draw(self, question: Question, theta: Tensor, other: Tensor | None) -> Answer:
        """Sum and noise."""
        if isinstance(question, AbstractScored):
            return self._decision(question, theta)
        if isinstance(question, Looked | Tabled):
            exact, units = self._chosen(question, (theta, None), self.facts.units), float(self.facts.units)
        else:
            exact, units = self._sum(summed(question), theta, other)
        exact = exact.div_(units)
        slope = ridge_slope(question, self.facts, theta)
        exact = exact if slope is None else exact + slope
        if isinstance(question, LeastGradient):
            return self._choice(question, torch.linalg.vector_norm(exact, dim=-1), self.facts.units)
        if isinstance(question, GradientNorm):
            exact = torch.linalg.vector_norm(exact, dim=-1, keepdim=True)
        exact = exact.expand(*self._answer_shape(question))
        if self._noiseless:
            return Answer(value=exact, scale=0.0)
        scale = self._scale_of(question, units)
        return Answer(value=torch.add(exact, self._noise(question), alpha=scale), scale=scale)

    def _scale_of(self, question: Question, divisor: float) -> float:
        """Return the noise on an answer; it is worked out once where the very same question is asked again."""
        if self._scaled is None or self._scaled[0] is not question:
            self._scaled = question, scale_of(question, self.facts, question.consumed(self.facts), divisor)
        return self._scaled[1]

    def _choice(self, question: LeastGradient, norms: Tensor, units: int) -> Answer:
        """Choose one of K points by their norms, shape (K,), by the law of a real oracle; its least one in silence."""
        if self._noiseless:
            return Answer(value=norms.argmin(keepdim=True).double(), scale=0.0)
        grid = grid_for(question, self.facts, units)
        # Rounded down, as a real oracle's integer norms are.
        scores = [int(norm * units / grid.step) for norm in norms.tolist()]
        return chosen(self._generator, scores, grid.parameter(question.sigma))

    def _decision(self, question: Scored, theta: Tensor) -> Answer:
        """Choose one of K points by their scores, by the law of a real oracle."""
        scores = []
        for point in theta:
            slope, bend = (self._sum(one, point, None) for one in (gradient_of(question), question.hessian()))
            means = (slope[0].div(slope[1]), bend[0].div(bend[1]))
            scores.append(exact_score(question, self.facts, point, means, self.facts.units))
        if not self._noiseless:
            return decided(self._generator, question, scores)
        return Answer(value=torch.tensor([in_silence(question, scores)], dtype=torch.float64), scale=0.0)

    def _shape(self) -> tuple[int, ...]:
        """Return (p,) or (R, p)."""
        return (self.facts.dimension,) if self._replicates is None else (self._replicates, self.facts.dimension)

    def _answer_shape(self, question: Question) -> tuple[int, ...]:
        """Return the shape of an answer, replicates first."""
        return (*self._shape()[:-1], *question.shape(self.facts.dimension))

    def _noise(self, question: Question) -> Tensor:
        """Draw standard normal noise, for a matrix on and above the diagonal and mirrored below."""
        drawn = self._generator.normal(*self._answer_shape(question))
        return drawn.triu() + drawn.triu(1).mT if isinstance(question, Matrices) else drawn

    def affords(self, question: Question, then: Question | None = None) -> bool:
        """Say whether the privacy filter covers this question, and `then` after it."""
        part, event = self._priced(question)
        after = [] if then is None else [self._priced(then)[1]]
        return self._has_units(question) and self._payments.affords(event, *after, part=part)

    def block(self, name: str) -> "Simulation":
        """Refuse: synthetic holdouts are drawn afresh."""
        raise AssertionError(f"a simulation has no block {name!r}: make a second one of fresh records")

    def with_ridge(self, ridge: float) -> "Simulation":
        """Return the oracle over the same records and account with another public ridge."""
        oracle = copy(self)
        oracle.facts, oracle._scaled = self.facts.model_copy(update={"ridge": ridge}), None  # noqa: SLF001 - our own
        return oracle

    def best_of(self, event: Repeated | Selected, run: Run[T]) -> T | None:
        """Make several runs and return the best that counts; without replicates."""
        assert self._replicates is None, "each replicate may choose a different run"
        self._payments.pay(event)
        return best_of(event, lambda: self._for_run(event), run, self._generator)

    def _for_run(self, event: Repeated | Selected) -> "Simulation":
        """Return the oracle of one run."""
        oracle = copy(self)
        oracle._payments = filter_of(event, self._payments.log)  # noqa: SLF001 - a copy of our own
        return oracle

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the last kept state, or `initial`."""
        kept = self._payments.log.resume()
        return initial if kept is None else kept

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Offer the state after `step` steps."""
        self._payments.log.keep(state, step)

    def release(self, value: T, status: Status) -> Release[T]:
        """Close the oracle and return the value with what was drawn."""
        return Release(value=value, status=status, event=self._payments.close())
