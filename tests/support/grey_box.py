"""Record what a method asks of an oracle, and replay it on neighbouring records with the recorded sums put in their
place.

If everything that leaves the oracle is a function of integer sums, public values and coins, the replay releases the
very same bytes. Any other dependence on records shows up as a difference in questions or releases.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from core.mechanisms.generator import SystemGenerator
from core.mechanisms.lattice import round_parts
from core.oracle import Answer, Oracle, full, noise
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.privacy.facts import Facts
from core.queries.gradients import Question
from core.queries.hessians import AbstractScored
from core.queries.sums import OpenProblem, Problem
from core.queries.sums.network.parts import OpenSum, closed
from tests.support.problems import repeatable_generator

Method = Callable[[Oracle], Tensor]


@dataclass
class Transcript:
    """One run: public arguments of each answer, its integer sum, allowed distance, and released bytes."""

    public: list[tuple[str, str, int, float]] = field(default_factory=list)
    sums: list[Tensor] = field(default_factory=list)
    integers: list[np.ndarray] = field(default_factory=list)
    allowed: list[int] = field(default_factory=list)
    released: list[bytes] = field(default_factory=list)
    paid: list[str] = field(default_factory=list)
    points: list[bytes] = field(default_factory=list)


@dataclass
class Watched:
    """Records that note where they are asked."""

    records: Problem
    points: list[bytes]

    @property
    def units(self) -> int:
        return self.records.units

    @property
    def dimension(self) -> int:
        return self.records.dimension

    @property
    def replicates(self) -> int | None:
        return self.records.replicates

    def integer_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        *,
        other: Tensor | None = None,
        **selection: Tensor | None,
    ) -> Tensor:
        self._note(theta, other)
        return self.records.integer_sum(question, facts, theta, step, other=other, **selection)

    def _note(self, theta: Tensor, other: Tensor | None) -> None:
        for point in (theta,) if other is None else (theta, other):
            self.points.append(point.contiguous().numpy().tobytes())


class WatchedOpen(Watched):
    """The same, of records whose sums may be left open."""

    def open_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        *,
        other: Tensor | None = None,
        **selection: Tensor | None,
    ) -> Tensor | OpenSum:
        assert isinstance(self.records, OpenProblem)
        self._note(theta, other)
        return self.records.open_sum(question, facts, theta, step, other=other, **selection)


@contextmanager
def recording(transcript: Transcript, recorded: Transcript | None) -> Iterator[None]:
    """Note what reaches the noise, and put recorded sums there if given."""
    genuine = noise.noised_mean

    def noted(
        given: Tensor | OpenSum,
        question: Question,
        facts: Facts,
        terms: int,
        divisor: float,
        generator: SystemGenerator,
        theta: Tensor,
    ) -> Answer:
        total = closed(deepcopy(given))
        grid = noise.grid_for(question, facts, terms)
        transcript.public.append((question.model_dump_json(), facts.model_dump_json(), terms, divisor))
        square = isinstance(question, noise.Matrices)
        upper = total.numpy()[np.triu_indices(len(total))] if square else total.numpy()
        scored = isinstance(question, AbstractScored)  # each point's score is an integer of its own
        transcript.integers.append(upper.reshape(-1, 1) if scored else round_parts(upper, grid))
        transcript.allowed.append(grid.sensitivity)
        transcript.sums.append(total)
        if recorded is not None:
            given = recorded.sums[len(transcript.sums) - 1].clone()  # a sum is used up
        answer = genuine(given, question, facts, terms, divisor, generator, theta)
        transcript.released.append(answer.value.numpy().tobytes() + np.float64(answer.scale).tobytes())
        return answer

    with patch.object(full, "noised_mean", noted):
        yield


def run(problem: Problem, facts: Facts, method: Method, recorded: Transcript | None = None) -> Transcript:
    """Run a method on a full oracle whose generator is forced; replay on `recorded` sums if given."""
    transcript = Transcript()
    payments = CountingFilter()
    with recording(transcript, recorded):
        watched = WatchedOpen if isinstance(problem, OpenProblem) else Watched
        value = method(FullOracle(watched(problem, transcript.points), facts, payments, repeatable_generator()))
    transcript.released.append(value.contiguous().numpy().tobytes())
    transcript.paid = [total.model_dump_json() for total in payments.totals]
    return transcript


def check_neighbours(first: Transcript, replayed: Transcript) -> None:
    """Fail unless two runs differ in integer sums alone, and in those by no more than is paid for."""
    assert replayed.public == first.public, "public arguments are equal"
    assert replayed.points == first.points, "public points are equal"
    assert replayed.paid == first.paid, "payments are equal"
    for one, other, allowed in zip(first.integers, replayed.integers, first.allowed, strict=True):
        for sums in zip(np.atleast_2d(one), np.atleast_2d(other), strict=True):  # one each of a list of points
            gap = [int(a) - int(b) for a, b in zip(*sums, strict=True)]
            assert sum(step * step for step in gap) <= allowed**2, "integer sums are within their sensitivity"
    assert replayed.released == first.released, "released bytes are equal"


def neighbours(x: Tensor, y: Tensor, present: Tensor, row: int) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Return copies that differ in one row: zeroed, and, for replace-one, an outlier and a row of NaN."""

    def with_row(features: float | Tensor, target: float, here: bool) -> tuple[Tensor, Tensor, Tensor]:
        copies = x.clone(), y.clone(), present.clone()
        copies[0][row], copies[1][row], copies[2][row] = features, target, here
        return copies

    return {
        "zeroed": with_row(x[row], float(y[row]), here=False),
        "not a number": with_row(torch.nan, torch.nan, here=True),
        "outlier": with_row(-x[row] * 1e6, 1.0 - float(y[row]), here=True),
        "opposite": with_row(-x[row], 1.0 - float(y[row]), here=True),
    }
