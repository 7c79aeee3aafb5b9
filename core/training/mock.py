"""One attempt at a mock job, in its own process: draw rows from the declaration, make the oracle, fit, infer, publish.

The path is that of an attempt at records (`core.training.attempt`) without its first and last parts. No place of
records, no key and no writer of the ledger is at hand here: rows are drawn, and the privacy filter pays into an account
in memory. Noise, bounds and prices are the real ones.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from core.base.errors import ensure
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.jobs import mocks
from core.ledger.claims import Claim
from core.ledger.schedules import Schedule
from core.planning.planner import PlannedJob
from core.privacy.events import EVENT
from core.training.attempt import COLUMNS, in_phase, planned_of
from core.training.device import make_sure_of_memory, prepare_processor
from core.training.fitting import make_problem, train
from core.training.mock_order import MockOrder, is_keyless
from core.training.network import NO_WEIGHTS
from core.training.oracles import make_filter, open_oracle
from core.training.order import Payer, Phase, PublicInput


class MemoryLedger:
    """The account of one attempt, in memory: chunks are paid in their order, and nothing is kept.

    Args:
        database: where the step counter shows.
        claim: of a mock job.
        grid_seconds: the least between two looks at the counter.
    """

    def __init__(self, database: Database, claim: Claim, grid_seconds: float) -> None:
        self._database = database
        self._claim = claim
        self._grid_seconds = grid_seconds
        self._shown_at = time.monotonic() - grid_seconds
        self.paid = 0

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        """Note that a chunk is paid.

        Raises:
            StaleAttempt: the job is no longer ours.
        """
        del state
        ensure(chunk == self.paid, "chunks are paid in their order")
        self.paid += 1
        if step > 0 and time.monotonic() - self._shown_at >= self._grid_seconds:
            self._database.transaction(mocks.progress, self._claim, step)
            self._shown_at = time.monotonic()

    def keep(self, state: bytes, step: int) -> None:
        """Keep nothing: the next attempt costs nothing either."""
        del state, step


def run(
    database: Database, settings: ServiceSettings, claim: Claim, order: MockOrder, stop: Callable[[], bool]
) -> None:
    """Carry out an attempt at a mock job and publish its release, marked as mock.

    Args:
        database: where the mock job is.
        settings: `keyless` ones.
        claim: the attempt's right to the mock job.
        order: everything that it trains on.
        stop: says whether to stop.

    Raises:
        Drained, StaleAttempt, Diverged, Failed, MemoryError: as `core.training.attempt.run`.
    """
    torch.set_num_threads(settings.trainer_threads)
    torch.set_num_interop_threads(1)
    carry_out(database, settings, claim, order, stop)


def carry_out(
    database: Database, settings: ServiceSettings, claim: Claim, order: MockOrder, stop: Callable[[], bool]
) -> None:
    """Do what `run` does, in a process whose threads are counted already."""
    # Arrow starts a thread as it is loaded, and a process that has one cannot be forked.
    from core.records.decoding.drawn import draw  # noqa: PLC0415 - as above

    with in_phase(Phase.OPENING):
        ensure(mocks.is_mock(claim.job_id), "only a mock job trains on drawn rows")
        ensure(is_keyless(settings), "a mock job's trainer holds no key")
        given = public_input(claim, order)
        planned = planned_of(given)
        make_sure_of_memory(planned)
        prepare_processor(planned)
        records = draw(COLUMNS.validate_python(order.columns), planned.design, order.rows, seed=order.seed)
        problem = make_problem(planned, records, NO_WEIGHTS)
        given = paying(given, planned)
    database = database.patient(settings.lease_seconds)
    with in_phase(Phase.TRAINING):
        payments = make_filter(planned, given, MemoryLedger(database, claim, settings.visible_grid_seconds), stop)
        oracle = open_oracle(planned, given, problem, payments, shared=False)
        released = train(planned, given, payments, oracle, NO_WEIGHTS)
    with in_phase(Phase.PUBLISHING):
        release: Mapping[str, Any] = released.model_copy(update={"mock": True}).model_dump(mode="json")
        database.transaction(mocks.finish, claim, release)


def public_input(claim: Claim, order: MockOrder) -> PublicInput:
    """Return an order as the functions of an attempt take it; nobody pays yet."""
    return PublicInput(
        claim=claim,
        spec=order.spec,
        columns=order.columns,
        units=order.rows,
        adjacency=order.adjacency,
        approval="not-needed",
        terms=order.terms,
        schedule=tuple(EVENT.validate_python(event) for event in order.schedule),
        payers=(),
        kept=None,
        kept_chunks=0,
        paid_chunks=0,
        charged=Counter(),
    )


def paying(given: PublicInput, planned: PlannedJob) -> PublicInput:
    """Return the same with an account in memory, which holds the job's whole price at the scope's public orders."""
    orders = given.terms.orders
    draws = planned.draws
    totals, _ = Schedule(given.schedule, draws=draws.most, whole_runs=draws.runs).amounts(given.terms)
    payer = Payer(tuple(orders), tuple(tuple(total[: len(orders)]) for total in totals))
    return replace(given, payers=(payer,))
