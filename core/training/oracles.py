"""The oracle that a job's method needs, on the privacy filter that pays for it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from core.mechanisms.generator import SystemGenerator
from core.mechanisms.sampling import public_order
from core.oracle import PrivacyFilter
from core.oracle.cursor import Stream
from core.oracle.full import FullOracle, RecordsOracle
from core.oracle.samples import PoissonOracle, StreamOracle
from core.planning.planner import PlannedJob
from core.privacy.events import Event
from core.queries.sampling import FullSampling, PoissonSampling, StreamSampling
from core.queries.sums import Problem
from core.training.draws import count_of
from core.training.ledger_filter import LedgerFilter, LedgerWriter
from core.training.order import Payer, PublicInput
from core.training.streaming import StreamFilter

_NOTHING: Final[Mapping[Event, int]] = {}


def make_filter(
    planned: PlannedJob, order: PublicInput, writer: LedgerWriter, stop: Callable[[], bool]
) -> LedgerFilter:
    """Return the privacy filter of an attempt.

    Args:
        planned: the job, nothing open.
        order: the states and payments so far.
        writer: where chunks are paid.
        stop: says whether the attempt was asked to stop.
    """
    begun = begins_after(planned, order)
    return filter_on(planned, writer, order.payers, begun, kept=order.kept, charged=order.charged, stop=stop)


def begins_after(planned: PlannedJob, order: PublicInput) -> int:
    """Return after how many chunks an attempt goes on: those that were kept, or of a stream that anybody has paid.

    A stream of one chunk a pass has no rest of a pass to go on with. A lost chunk is paid and read again, as other
    methods' chunks are.
    """
    sampling = planned.spec.optimizer.sampling(planned.facts)
    skips = isinstance(sampling, StreamSampling) and sampling.skips(len(order.schedule))
    return order.paid_chunks if skips else order.kept_chunks


def filter_on(
    planned: PlannedJob,
    writer: LedgerWriter,
    payers: Sequence[Payer],
    begun: int,
    *,
    kept: bytes | None = None,
    charged: Mapping[Event, int] = _NOTHING,
    stop: Callable[[], bool] = lambda: False,
) -> LedgerFilter:
    """Return the filter that pays for all chunks but the first `begun`; a `StreamFilter` for a stream's method."""
    sampling, schedule = planned.spec.optimizer.sampling(planned.facts), planned.schedule
    draws = count_of(planned)
    if not isinstance(sampling, StreamSampling):
        return LedgerFilter(
            writer, payers, schedule, kept=kept, kept_chunks=begun, charged=charged, stop=stop, draws=draws
        )
    return StreamFilter(
        writer,
        payers,
        schedule,
        sampling=sampling,
        units=planned.facts.units,
        kept=kept,
        paid_chunks=begun,
        charged=charged,
        stop=stop,
        draws=draws,
    )


def open_oracle(
    planned: PlannedJob,
    order: PublicInput,
    problem: Problem,
    payments: LedgerFilter,
    *,
    shared: bool,
    through: PrivacyFilter | None = None,
) -> RecordsOracle:
    """Return the oracle over the records that the method's questions are about, with noise of its own.

    Args:
        planned: the job, nothing open.
        order: names the job, and by that the order of a stream.
        problem: the records.
        payments: of `make_filter`.
        shared: whether several processes hold the records: they sum samples in full passes with a mask, whose parts
            do not depend on who holds them.
        through: the payer that the oracle asks, which asks that privacy filter; None: the privacy filter itself.
    """
    paying = payments if through is None else through
    facts, generator = planned.facts, SystemGenerator()
    sampling = planned.spec.optimizer.sampling(facts)
    match sampling:
        case FullSampling():
            return FullOracle(problem, facts, paying, generator)
        case PoissonSampling(parts=parts):
            return PoissonOracle(problem, facts, paying, generator, parts, by_rows=not shared)
        case StreamSampling():
            assert isinstance(payments, StreamFilter), "a stream is paid for as one"
            orders = _orders(planned, order.claim.job_id, payments)
            return StreamOracle(problem, facts, paying, generator, orders, skipped=payments.skipped)
    assert_never(sampling)


def stream_of(planned: PlannedJob, job_id: str, payments: StreamFilter) -> Stream:
    """Return the records that an attempt may read, in their order.

    Args:
        planned: the job, nothing open.
        job_id: its name.
        payments: of `make_filter`, or one that received the same payments.
    """
    return Stream(list(_orders(planned, job_id, payments)), behind=payments.skipped)


def _orders(planned: PlannedJob, job_id: str, payments: StreamFilter) -> NDArray[np.int64]:
    """Return the public orders of a job's passes as far as they are paid for, shape (passes, reach)."""
    sampling, units = planned.spec.optimizer.sampling(planned.facts), planned.facts.units
    assert isinstance(sampling, StreamSampling), "a stream is read in passes"
    return np.stack([_order(job_id, number, units)[: payments.reach] for number in range(sampling.passes)])


def _order(job_id: str, number: int, units: int) -> NDArray[np.int64]:
    """Return the public order of a job's pass; passes have orders that have nothing to do with each other."""
    return public_order(f"{job_id}/{number}" if number else job_id, units)
