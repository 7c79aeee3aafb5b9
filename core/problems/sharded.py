"""Records that several processes hold between them: their integers are added up, and only then is there any noise.

Each process holds whole parts of the records (see `core.privacy.facts`), in one run, and sums them as it would if it
held all of them. A part's integers depend on the part alone, and integers add up to the same in any order, so the
leader gets the very sum that one process would have made: the answer's law, its bound and its price are those of one
process, and whoever asks cannot tell. Adding cannot overflow: all records together stay below 2^61 steps in norm, and
so does any set of parts.
"""

from typing import Literal

import torch
from torch import Tensor

from core.catalogue.questions import Question
from core.privacy.facts import PART_UNITS, Facts, Grown, parts_in
from core.problems import Problem
from core.problems.team import Team


class Sum(Grown):
    """What the leader tells before everybody sums; theta follows, the other point and the mask where there are any."""

    NEWER = frozenset({"points"})

    kind: Literal["sum"] = "sum"
    question: Question
    facts: Facts
    step: float
    masked: bool
    points: int | None = None
    """How many thetas a question about a list is asked at."""


def shard_of(units: int, rank: int, size: int) -> range:
    """Return the rows that a process holds: a run of whole parts, none where there are more processes than parts.

    Args:
        units: n.
        rank: which process.
        size: how many there are.
    """
    assert 0 <= rank < size, "a rank is one of the team's"
    parts = parts_in(units)
    first, last = (parts * edge // size for edge in (rank, rank + 1))
    return range(min(units, first * PART_UNITS), min(units, last * PART_UNITS))


class ShardedProblem:
    """The records as their leader sees them: a problem like any other.

    Args:
        own: the leader's rows.
        units: n, of all processes together.
        team: the others hold the rest.
    """

    lanes = None

    def __init__(self, own: Problem, units: int, team: Team) -> None:
        assert team.leads, "the leader asks"
        self.units = units
        self.dimension = own.dimension
        self._shard = Shard(own, units, team)
        self._team = team

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
        """Return the sum over all processes' records; see `core.problems.Problem`.

        Rows cannot be chosen by their numbers: batches of a stream are read by one process.
        """
        assert rows is None, "batches of a stream are read by one process"
        points = len(theta) if question.places == "list" else None
        told = Sum(question=question, facts=facts, step=step, masked=included is not None, points=points)
        self._team.tell(told.model_dump_json())
        return self._shard.join(told, theta, other, included)


class Shard:
    """One process's rows.

    Args:
        own: the rows of `shard_of`.
        units: n, of all processes together.
        team: whom to add up with.
    """

    def __init__(self, own: Problem, units: int, team: Team) -> None:
        self._own = own
        self._rows = shard_of(units, team.rank, team.size)
        assert own.units == len(self._rows), "every process holds its own rows"
        self._units = units
        self._team = team

    def join(
        self, told: Sum, theta: Tensor | None = None, other: Tensor | None = None, included: Tensor | None = None
    ) -> Tensor:
        """Take part in a sum that everybody was told of.

        Args:
            told: what to sum.
            theta: where; the leader's. Followers are sent it.
            other: the second point of a question about two; the leader's, sent likewise.
            included: the leader's mask over all records, if the sum has one.

        Returns:
            To the leader, the sum over all processes' records.
        """
        point = (self._own.dimension,)
        empty = torch.empty(point if told.points is None else (told.points, *point), dtype=torch.float64)
        theta = self._team.share(empty if theta is None else theta)
        if told.question.places == "pair":
            other = self._team.share(empty.clone() if other is None else other)
        own = None
        if told.masked:
            mask = torch.empty(self._units, dtype=torch.uint8) if included is None else included.to(torch.uint8)
            own = self._team.share(mask)[self._rows.start : self._rows.stop].bool()
        total = self._own.integer_sum(told.question, told.facts, theta, told.step, other=other, included=own)
        return self._team.add_up(total)
