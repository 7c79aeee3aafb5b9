"""Oracles over a scope's records that read some of them: a Poisson sample per question, or each record once in a job.

Sampling belongs to the oracle, so the rate it prices is the rate it drew with, and every question draws its own sample.
Samples divide by their *expected* size, which is public; the realised one is never visible, in time or memory either.
Streams are read in a public order, each record once in a job whatever becomes of its attempts.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.base.errors import AdjacencyMismatch, ensure
from core.mechanisms import sampling
from core.mechanisms.generator import SystemGenerator
from core.oracle import EVERYTHING, PrivacyFilter
from core.oracle.cursor import Stream
from core.oracle.full import ReadSelection, RecordsOracle
from core.privacy.events import Event, Sampled
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, Question
from core.queries.sums import Problem
from core.queries.sums.linear import LinearProblem
from core.queries.sums.sharded import ShardedProblem
from core.queries.sums.single import SMALLEST_CLIP

POISSON_MISMATCH: Final = (
    "Poisson samples are not offered where one unit may change into any other; use a full-batch method, a stream of"
    " disjoint batches, or a scope with zero_out"
)
LIST_ADVANTAGE: Final = 2
"""Lists of rows are copied before they are summed; from half of all rows on, all rows are read with a mask."""

MOST_AHEAD: Final = 8
"""Samples that are drawn at a time: code and tables for it are then in the caches once."""

ROWS_AHEAD: Final = 2**14
"""More rows are not held for it."""


class SampleOracle(RecordsOracle):
    """A oracle whose questions read some of the records; gradients of linear predictors are summed in single precision.

    They are charged as they are summed, by parts, which takes less than two parts in ten thousand more noise: see
    `core.queries.sums.single`. The form of the sum depends on the question and the kind of problem, which are public.
    """

    @cached_property
    def _single(self) -> Facts:
        """The facts that sums in single precision are made by; the public ones where there are none."""
        rows = self._problem.single_rows if isinstance(self._problem, LinearProblem | ShardedProblem) else None
        return self._whole_facts if rows is None else self._whole_facts.model_copy(update={"part_rows": rows})

    def _summing(self, question: Question) -> Facts:
        single = isinstance(question, Gradient) and question.bound(self._whole_facts) >= SMALLEST_CLIP
        return self._single if single else self._whole_facts


@final
class PoissonOracle(SampleOracle):
    """Every question draws its own sample, each record with probability exactly parts / 2^64.

    The sum divides by the expected size: the realised one shows nowhere. It is over a list of rows in a secret,
    uniformly random order with padding. The sample exceeds the list's public length with probability below 2^-84
    (`sampling.padded_length`). Where that length is not far below n, the sum is over all rows with a mask. A sample
    that exceeds its length is summed whole, by such a full pass. With that probability the law drawn is not the one
    priced; a scope's count of draws has room for it (`core.privacy.draws`).

    Proof of the price (`Coupling.SLOT` of `core.privacy.events`). Let x be the unit in which D and D' differ, excluded
    in D'. Fix the coins of all other units, and the order of the L slots. Where x is not in the sample, D and D' sum
    the same slots. Where it is, D' has zeros in x's slot, and so D and D' have where x is not in the sample: the L
    slots then hold the same bytes in as many orders (`sampling.ListedSample`). The integer sum is a function of these
    bytes and of public values: one tree of additions, one number of threads, one alignment, and no branch on what is
    counted. Hence "zeroed, in the sample" and "absent" give the same law, exactly. In D, x's slot holds x in place of
    these zeros, with all other slots the same: the integers move by what the grid charges. That is one Gaussian answer,
    whose mean moves by at most one sensitivity with probability q and else not at all, in either order of the
    neighbours. The price is of exactly that.

    Under a mask, x is summed as a number times its features. Left out or excluded, that number is a zero and the
    features are finite, so a zero is added, of either sign, which changes no float but a zero's sign, and no integer.
    (Networks and compiled sums in single precision overwrite what is left out here, too.) No order then needs to be
    secret.

    Price of the sum's own error. With a list or a mask, it is a sum of at most n terms in at most as many parts as n
    units have, none of them larger. The grid of a full pass over n units bounds the error of both, and is used for
    every sample's size. In single precision the grid bounds the error of the one part that holds x's slot, for any
    number of parts.

    Args:
        problem: as `RecordsOracle`, like the others.
        facts: as above.
        payments: as above.
        generator: as above.
        parts: k of the rate k / 2^64; see `sampling.rate_parts`.
        blocks: as above.
        by_rows: whether the problem can sum lists of rows; full passes otherwise, in double precision, for so do
            processes that hold a share of the rows each: one process then makes the integers of many.

    Raises:
        AdjacencyMismatch: records may change into others: no price that two accountants agree on is known there.
    """

    def __init__(
        self,
        problem: Problem,
        facts: Facts,
        payments: PrivacyFilter,
        generator: SystemGenerator,
        parts: int,
        blocks: Mapping[str, Tensor] | None = None,
        *,
        by_rows: bool = True,
    ) -> None:
        if facts.adjacency is Adjacency.REPLACE_ONE:
            raise AdjacencyMismatch(POISSON_MISMATCH)
        ensure(0 < parts <= sampling.RATE_UNIT, "a rate is in (0, 1]")
        super().__init__(problem, facts, payments, generator, blocks)
        self._parts = parts
        self._by_rows = by_rows
        length = sampling.padded_length(parts, problem.units)
        self._list_length = length if by_rows and LIST_ADVANTAGE * length <= problem.units else None

    def _event(self, question: Question) -> Event:
        return sampled(question, self._parts)

    def _summing(self, question: Question) -> Facts:
        return super()._summing(question) if self._by_rows else self._whole_facts

    def _select(self, question: Question) -> ReadSelection:
        units, members = self._problem.units, self._members[self._part]
        expected = question.consumed(self.facts) * (self._parts / sampling.RATE_UNIT)
        found = self._sample(units)
        rows, included = found if isinstance(found, sampling.ListedSample) else (None, found)
        if members is not None:
            included = included & (members.numpy() if rows is None else members.numpy()[rows])
        listed = None if rows is None else torch.from_numpy(rows)
        return ReadSelection(units, divisor=expected, rows=listed, included=torch.from_numpy(included))

    def _sample(self, units: int) -> sampling.ListedSample | NDArray[np.bool_]:
        if self._list_length is None:
            return sampling.poisson_mask(self._generator, self._parts, units)
        law = (self._parts, units, self._list_length)
        several = max(1, min(MOST_AHEAD, ROWS_AHEAD // self._list_length))
        return self._generator.next_of(
            law, lambda: [sampling.poisson_list(self._generator, *law) for _ in range(several)]
        )


@lru_cache(maxsize=64)  # a method asks the same few questions in every step
def sampled(question: Question, parts: int) -> Event:
    """Return what an answer about a Poisson sample of rate parts / 2^64 costs; see `core.oracle.full.event_of`."""
    ensure(question.batch is None, "batches are for streams")
    ensure(question.places != "list", "no price is known of a choice from a sample")
    return Sampled(numerator=parts, sigma=question.sigma)


@final
class StreamOracle(SampleOracle):
    """Every record is read by one question of a pass at most: the next ones of a public order, a batch a question.

    Answers about disjoint batches are priced in parallel: a whole pass costs its most expensive question, however many
    are asked, for a unit is in one batch of it; passes compose. That needs no secret: an order may be anything that no
    record decides, and who knows it knows which answer a unit is in, as the price allows. Earlier answers may decide
    the sizes of batches. A question's units are then a function of earlier answers, which are about other units. No
    batch is of two passes, so none holds a unit twice. When too few units are left, `affords` says so.

    Args:
        problem: as `RecordsOracle`, like the others.
        facts: as above.
        payments: as above.
        generator: as above.
        orders: units in the order they are read, shape (n,), or (passes, n); each unit once at most in a row. See
            `sampling.public_order`.
        skipped: units at the start of the orders, one after the other, that an earlier attempt may have read.
        blocks: as above; the units skipped are of the part without a name.
    """

    def __init__(
        self,
        problem: Problem,
        facts: Facts,
        payments: PrivacyFilter,
        generator: SystemGenerator,
        orders: NDArray[np.int64],
        *,
        skipped: int = 0,
        blocks: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(problem, facts, payments, generator, blocks)
        orders = np.atleast_2d(orders)
        ensure(orders.shape[1] <= problem.units, "no unit has two places in an order")
        # Shared with the oracles to blocks, which are copies: what one reads, none reads again.
        self._streams = {
            name: Stream(
                list(orders) if members is None else [order[members.numpy()[order]] for order in orders],
                behind=0 if name != EVERYTHING else skipped,
            )
            for name, members in self._members.items()
        }

    def _reads(self, question: Question) -> tuple[int, int]:
        stream, batch = self._streams[self._part], batch_of(question)
        return stream.pass_of(batch), stream.length(batch)

    def _terms(self, question: Question) -> int:
        return batch_of(question)

    def _event(self, question: Question) -> Event:
        return question.event()

    def affords(self, question: Question, then: Question | None = None) -> bool:
        """Say whether price and units are left for this question; a stream affords one at a time."""
        ensure(then is None, "two questions of a stream may be of two passes")
        return self._streams[self._part].first(batch_of(question)) is not None and super().affords(question)

    def _select(self, question: Question) -> ReadSelection:
        batch = batch_of(question)
        return ReadSelection(batch, divisor=batch, rows=torch.from_numpy(self._streams[self._part].read(batch)))


def batch_of(question: Question) -> int:
    """Return how many units a question reads."""
    assert question.batch is not None, "a stream's questions read a batch each"
    return question.batch
