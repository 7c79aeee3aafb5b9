"""The door that a job's method needs, on the meter that pays for it."""

from collections.abc import Callable
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from core.catalogue.planning import PlannedJob
from core.catalogue.sampling import FullSampling, PoissonSampling, StreamSampling
from core.mechanisms.generator import SystemGenerator
from core.mechanisms.sampling import public_order
from core.oracle import Meter
from core.oracle.door import AbstractDoor, FullDoor
from core.oracle.samples import PoissonDoor, StreamDoor
from core.problems import Problem
from core.training.meter import LedgerMeter, Till
from core.training.order import Order
from core.training.streaming import StreamMeter


def make_meter(planned: PlannedJob, order: Order, till: Till, stop: Callable[[], bool]) -> LedgerMeter:
    """Return the meter of an attempt.

    Args:
        planned: the job, nothing open.
        order: what was kept and paid before.
        till: where chunks are paid.
        stop: says whether the attempt was asked to stop.
    """
    sampling = planned.spec.optimizer.sampling(planned.facts)
    if isinstance(sampling, StreamSampling):
        return StreamMeter(
            till,
            order.payers,
            order.schedule,
            sampling=sampling,
            units=planned.facts.units,
            kept=order.kept,
            paid_chunks=order.paid_chunks,
            charged=order.charged,
            stop=stop,
        )
    return LedgerMeter(
        till,
        order.payers,
        order.schedule,
        kept=order.kept,
        kept_chunks=order.kept_chunks,
        charged=order.charged,
        stop=stop,
    )


def open_door(
    planned: PlannedJob,
    order: Order,
    problem: Problem,
    meter: LedgerMeter,
    *,
    shared: bool,
    through: Meter | None = None,
) -> AbstractDoor:
    """Return the door to the records that the method's questions are about, with noise of its own.

    Args:
        planned: the job, nothing open.
        order: names the job, and by that the order of a stream.
        problem: the records.
        meter: of `make_meter`.
        shared: whether several processes hold the records: they sum samples in full passes with a mask, whose parts
            do not depend on who holds them.
        through: what the door asks to pay, which asks that meter; None: the meter itself.
    """
    paying = meter if through is None else through
    facts, generator = planned.facts, SystemGenerator()
    sampling = planned.spec.optimizer.sampling(facts)
    match sampling:
        case FullSampling():
            return FullDoor(problem, facts, paying, generator)
        case PoissonSampling(parts=parts):
            return PoissonDoor(problem, facts, paying, generator, parts, by_rows=not shared)
        case StreamSampling(passes=passes):
            assert isinstance(meter, StreamMeter), "a stream is paid for as one"
            orders = np.stack([_order(order.claim.job_id, number, facts.units) for number in range(passes)])
            return StreamDoor(problem, facts, paying, generator, orders[:, : meter.reach], skipped=meter.skipped)
    assert_never(sampling)


def _order(job_id: str, number: int, units: int) -> NDArray[np.int64]:
    """Return the public order of a job's pass; passes have orders that have nothing to do with each other."""
    return public_order(f"{job_id}/{number}" if number else job_id, units)
