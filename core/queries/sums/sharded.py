"""Records that several processes sum between them: their integers are added up, and only then is there any noise.

Each process sums whole parts of the records (see `core.privacy.facts`), in one run, as it would if it summed all of
them. A part's integers depend on the part alone, and integers add up to the same in any order. The leader therefore
gets the very sum that one process would make: the answer's law, its bound and its price are those of one process.
Adding cannot overflow: all records together stay below 2^61 steps in norm, and so does any set of parts.

There are two ways to share. A `Shard` holds its own rows and no others, whose numbers say who sums them: that suits
sums over all records. Where lists are read every process holds all rows, a `Replica`, and they share the list of one
question by its places. A sample, or a stream's batch, then costs each process its part of the list, and the work does
not depend on the rows in it. Networks and streams do this.
"""

from typing import Literal, Protocol

import torch
from torch import Tensor

from core.base.errors import ensure
from core.privacy.facts import PART_UNITS, Facts, Frozen, parts_in
from core.queries.gradients import Looked, Question, Tabled, summed
from core.queries.sums import Problem
from core.queries.sums.blocks import BlockProblem
from core.queries.sums.linear import LinearProblem
from core.queries.sums.network.problem import NetworkProblem
from core.queries.sums.process_group import ProcessGroup


class Sum(Frozen):
    """The leader's message before a sum; theta follows, and the other point, rows and mask if there are any.

    The mask is over the list of rows where there is one, and over all records where there is none.
    """

    kind: Literal["sum"] = "sum"
    question: Question
    facts: Facts
    step: float
    masked: bool
    points: int | None = None
    """Number of thetas that a question about a list is asked at."""
    listed: int | None = None
    """Number of rows in the list that is read, a public number."""
    single: bool = False
    """Whether points come in single precision."""


class Member(Protocol):
    """One process's part in sums."""

    def join(
        self,
        request: Sum,
        theta: Tensor | None = None,
        other: Tensor | None = None,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        """Take part in a sum that the leader announced.

        Args:
            request: the sum to make.
            theta: where; the leader's. Followers are sent it, and all else.
            other: the second point of a question about two.
            rows: the list that is read, if there is one. Followers that know what it must be, as a stream's, give it
                to be compared.
            included: a mask over it, or over all records, if there is one.

        Returns:
            To the leader, the sum over all processes' parts.
        """


def shard_of(units: int, rank: int, size: int) -> range:
    """Return the rows that a process holds: a run of whole parts, none where there are more processes than parts.

    Args:
        units: n.
        rank: which process.
        size: number of processes.
    """
    ensure(0 <= rank < size, "a rank is one of the group's")
    parts = parts_in(units)
    first, last = (parts * edge // size for edge in (rank, rank + 1))
    return range(min(units, first * PART_UNITS), min(units, last * PART_UNITS))


def member_of(own: Problem, units: int, group: ProcessGroup, *, whole: bool = False) -> Member:
    """Return this process's part in sums over the records it holds.

    Args:
        own: all rows of a network's records, of others the rows of `shard_of`, unless all hold all.
        units: n, of all processes together.
        group: the group to add up with.
        whole: whether every process holds all rows, as of a network it does anyway.
    """
    if isinstance(own, NetworkProblem) or (whole and isinstance(own, BlockProblem)):
        return Replica(own, units, group)
    return Shard(own, units, group)


class ShardedProblem:
    """The records as their leader sees them: a problem like any other.

    Args:
        own: the leader's records, see `member_of`.
        units: n, of all processes together.
        group: the others hold the rest, or the same.
        whole: as above.

    Attributes:
        by_rows: whether lists of rows can be summed.
        single_rows: as `core.queries.sums.linear.LinearProblem` has it, where lists can be summed.
    """

    replicates = None

    def __init__(self, own: Problem, units: int, group: ProcessGroup, *, whole: bool = False) -> None:
        ensure(group.leads, "the leader asks")
        self.units = units
        self.dimension = own.dimension
        self._member = member_of(own, units, group, whole=whole)
        self.by_rows = isinstance(self._member, Replica)
        self.single_rows = own.single_rows if self.by_rows and isinstance(own, LinearProblem) else None
        self._group = group

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
        """Return the sum over all processes' parts; see `core.queries.sums.Problem`.

        Rows cannot be chosen by their numbers where each process holds its own.
        """
        ensure(rows is None or self.by_rows, "lists of rows are summed by processes that hold all of them")
        request = Sum(
            question=question,
            facts=facts,
            step=step,
            masked=included is not None,
            points=len(theta) if question.places in {"list", "encoded"} else None,
            listed=None if rows is None else len(rows),
            single=theta.dtype == torch.float32,
        )
        self._group.tell(request.model_dump_json())
        return self._member.join(request, theta, other, rows, included)


class Shard:
    """One process's rows.

    Args:
        own: the rows of `shard_of`.
        units: n, of all processes together.
        group: the group to add up with.
    """

    def __init__(self, own: Problem, units: int, group: ProcessGroup) -> None:
        self._own = own
        self._rows = shard_of(units, group.rank, group.size)
        ensure(own.units == len(self._rows), "every process holds its own rows")
        self._units = units
        self._group = group

    def join(
        self,
        request: Sum,
        theta: Tensor | None = None,
        other: Tensor | None = None,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        """Sum the rows that are this process's own; see `Member`."""
        ensure(rows is None, "a list of rows is read by who holds them all")
        ensure(request.listed is None, "a list of rows is read by who holds them all")
        theta, other = _points(self._group, request, self._own.dimension, theta, other)
        own = None
        if request.masked:
            own = _mask(self._group, self._units, included)[self._rows.start : self._rows.stop]
        total = self._own.integer_sum(request.question, request.facts, theta, request.step, other=other, included=own)
        return self._group.add_up(total)


class Replica:
    """One process's copy of all rows, of which it sums some places of each list, or of all records.

    Processes share out blocks of parts, as many as one pass of the network reads, or one product. Every pass is thus
    one that a single process would make, with the same records in the same slots, so its floats are the same. GPUs
    share out parts, in passes of other sizes, so that last bits may differ there.

    Args:
        own: all rows.
        units: n.
        group: the group to add up with.
    """

    def __init__(self, own: NetworkProblem | BlockProblem, units: int, group: ProcessGroup) -> None:
        ensure(own.units == units, "every process holds all rows")
        self._own, self._group = own, group

    def join(
        self,
        request: Sum,
        theta: Tensor | None = None,
        other: Tensor | None = None,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        """Sum a run of the list's blocks; see `Member`."""
        group, dimension = self._group, self._own.dimension
        theta, other = _points(group, request, dimension, theta, other)
        if request.listed is None:
            rows = torch.arange(self._own.units)
        else:
            known = rows
            # A clone: `share` fills what it is given, and the known rows are compared below.
            rows = group.share(torch.empty(request.listed, dtype=torch.int64) if known is None else known.clone())
            ensure(known is None or torch.equal(rows, known), "a stream's batches are read in its order")
        if request.masked:
            included = _mask(group, len(rows), included)
        block = self._own.block_rows(request.question, request.facts)
        edges = (-(-len(rows) // block) * edge // group.size for edge in (group.rank, group.rank + 1))
        first, last = (min(len(rows), block * edge) for edge in edges)
        # One without a block adds zeros: the others wait for it.
        if first == last:
            shape = theta.shape if request.question.places == "list" else _told_shape(request.question, dimension)
            return group.add_up(torch.zeros(shape, dtype=torch.int64))
        total = self._own.integer_sum(
            request.question,
            request.facts,
            theta,
            request.step,
            other=other,
            rows=rows[first:last],
            included=None if included is None else included[first:last],
        )
        return group.add_up(total)


def _told_shape(question: Question, dimension: int) -> tuple[int, ...]:
    """Return the shape of a sum."""
    return (question if isinstance(question, Looked | Tabled) else summed(question)).shape(dimension)


def _points(
    group: ProcessGroup, request: Sum, dimension: int, theta: Tensor | None, other: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return where to sum, as the leader has it."""
    precision = torch.float32 if request.single else torch.float64
    empty = torch.empty((dimension,) if request.points is None else (request.points, dimension), dtype=precision)
    theta = group.share(empty if theta is None else theta)
    if request.question.places == "pair":
        # A clone, for theta may stand in `empty` itself.
        other = group.share(empty.clone() if other is None else other)
    return theta, other


def _mask(group: ProcessGroup, size: int, included: Tensor | None) -> Tensor:
    """Return the leader's mask, bool, shape (size,)."""
    return group.share(torch.empty(size, dtype=torch.uint8) if included is None else included.to(torch.uint8)).bool()
