"""Streams through losses: no record is read twice, nothing is read unpaid, and all attempts pay for one answer.

The ledger, its writer, the filter, the oracle and the method are the real ones. An attempt is lost by an exception at a
place that a test chooses, as a killed worker leaves it. Payments stand, and later answers are gone.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update
from torch import Tensor

from core.base.settings import ServiceSettings
from core.db import clock
from core.db.database import Database
from core.db.tables import Entry, Job
from core.inference.estimate import Estimate
from core.jobs import jobs
from core.jobs.sweep import CONTACT, sweep
from core.ledger import ledger
from core.ledger.claims import Claim, put_secret
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.mechanisms.generator import SystemGenerator
from core.mechanisms.sampling import public_order
from core.methods.clipped.one_pass.spec import OnePassClippedSgdPlan
from core.methods.fits import fit
from core.oracle import Answer, Release
from core.oracle.samples import StreamOracle
from core.privacy.events import NOTHING, Event, Gaussian, compose
from core.privacy.facts import Adjacency, Facts
from core.privacy.renyi import cost_nano, prefix_costs
from core.privacy.reports import report
from core.queries.gradients import Gradient, Question
from core.queries.sampling import StreamSampling
from core.training.ledger_filter import LedgerWriter
from core.training.ledger_writer import FencedLedgerWriter
from core.training.order import Drained, Payer
from core.training.streaming import StreamFilter
from tests.support.problems import facts, problem
from tests.support.store import TERMS, Place, make_place, submit

ORDERS = (2, 9, 22)
UNITS, BATCH, CHUNK = 1000, 20, 5
SIGMA = 20.0
SCHEDULE = (Gaussian(sigma=SIGMA), *[NOTHING] * 9)
SAMPLING = StreamSampling(batches=(BATCH,), chunk=CHUNK * BATCH)
QUESTION = Gradient(sigma=SIGMA, batch=BATCH)
PLACES = public_order("job_1", UNITS).tolist()


class Lost(Exception):
    """The worker is gone."""


class Paper:
    """A ledger writer that writes down payments, and the state that went with the last one."""

    def __init__(self) -> None:
        self.spent: list[int] = []
        self.state: bytes | None = None

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        del step
        self.spent.append(chunk)
        self.state = self.state if state is None else state

    def keep(self, state: bytes, step: int) -> None:
        del step
        self.state = state


def payers(schedule: Sequence[Event] = SCHEDULE) -> list[Payer]:
    return [Payer(ORDERS, tuple(tuple(total) for total in prefix_costs(schedule, ORDERS)))]


def filter_on(writer: LedgerWriter, paid: int = 0, **options: Any) -> StreamFilter:
    given: dict[str, Any] = {"kept": None, "charged": Counter(), "sampling": SAMPLING, "units": UNITS} | options
    return StreamFilter(writer, payers(), SCHEDULE, paid_chunks=paid, **given)


class Recorder:
    """Records that write down which were read, and lose the attempt at a chosen question."""

    replicates = None

    def __init__(self, units: int = UNITS) -> None:
        self.units, self.dimension = units, 3
        self.read: list[list[int]] = []
        self.lose_at: tuple[str, int] | None = None
        self._records = problem(units, 3)

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
        assert rows is not None
        if self.lose_at == ("before", len(self.read)):
            raise Lost
        self.read.append(rows.tolist())
        if self.lose_at == ("after", len(self.read) - 1):
            raise Lost
        return self._records.integer_sum(question, facts, theta, step, other=other, rows=rows, included=included)


class TestFilter:
    def test_the_first_chunk_pays_and_later_ones_are_told_before_their_batches(self) -> None:
        writer = Paper()
        payments = filter_on(writer)
        for batch in range(50):
            payments.pay(QUESTION.event(), 0, BATCH)
            assert writer.spent == list(range(batch // CHUNK + 1))
        assert not payments.affords(QUESTION.event(), part=0), "no chunk is left"
        assert cost_nano(payments.charged, ORDERS) == cost_nano(QUESTION.event(), ORDERS)

    def test_dearer_questions_are_a_bug(self) -> None:
        payments = filter_on(Paper())
        assert not payments.affords(Gaussian(sigma=SIGMA * 0.99))
        with pytest.raises(AssertionError, match="never exceeds"):
            payments.pay(Gaussian(sigma=SIGMA * 0.99), 0, BATCH)

    def test_more_batches_than_the_chunks_stand_for_are_a_bug(self) -> None:
        payments = filter_on(Paper(), paid=10)
        assert not payments.affords(QUESTION.event())
        with pytest.raises(AssertionError, match="never exceeds"):
            payments.pay(QUESTION.event(), 0, BATCH)

    def test_stopping_is_between_chunks_and_keeps_all_that_was_told(self) -> None:
        writer, asked = Paper(), [False]
        payments = filter_on(writer, stop=lambda: asked[0])
        for position in range(1, CHUNK + 1):
            payments.pay(QUESTION.event(), 0, BATCH)
            payments.log.keep({"step": torch.tensor(position)}, position)
            asked[0] = True
        with pytest.raises(Drained):
            payments.pay(QUESTION.event(), 0, BATCH)
        assert writer.spent == [0]
        again = filter_on(writer, paid=1, kept=writer.state)
        kept = again.log.resume()
        assert kept is not None
        assert (int(kept["step"]), again.skipped) == (CHUNK, CHUNK * BATCH), "nothing was lost"

    def test_answers_told_again_move_no_batch(self) -> None:
        writer = Paper()
        first = filter_on(writer)
        zero = torch.zeros(3, dtype=torch.float64)
        for position in range(1, CHUNK + 2):
            first.pay(QUESTION.event(), 0, BATCH)
            first.log.note(QUESTION, zero, Answer(zero + position, 0.5))
        second = filter_on(writer, paid=2, kept=writer.state)
        recorder = Recorder()
        oracle = stream(recorder, second)
        told = [float(oracle.ask(QUESTION, zero).value[0]) for _ in range(CHUNK)]
        assert told == [1.0, 2.0, 3.0, 4.0, 5.0]
        assert recorder.read == []
        oracle.ask(QUESTION, zero)
        assert recorder.read == [PLACES[2 * CHUNK * BATCH :][:BATCH]]
        assert writer.spent == [0, 1, 2]


def stream(recorder: Recorder, payments: StreamFilter, name: str = "job_1") -> StreamOracle:
    public = facts(recorder.units, 3)
    order = public_order(name, recorder.units)
    return StreamOracle(recorder, public, payments, SystemGenerator(), order, skipped=payments.skipped)


def read_through(losses: list[tuple[str, int]], first_chunk: Callable[[Paper], int]) -> tuple[Paper, Recorder]:
    """Read a stream through losses; `first_chunk` says where an attempt goes on."""
    writer, recorder = Paper(), Recorder()
    zero = torch.zeros(3, dtype=torch.float64)
    for loss in [*losses, None]:
        begun = len(recorder.read)
        recorder.lose_at = None if loss is None else (loss[0], begun + loss[1])
        oracle = stream(recorder, filter_on(writer, paid=first_chunk(writer), kept=writer.state))
        try:
            while oracle.affords(QUESTION):
                oracle.ask(QUESTION, zero)
        except Lost:
            pass
    return writer, recorder


def check_once(writer: Paper, recorder: Recorder) -> None:
    """Fail unless each record was read once at most, after its chunk was paid, which it was once."""
    read = [place for batch in recorder.read for place in batch]
    assert len(read) == len(set(read)), "no record is read twice"
    for batch in recorder.read:
        number = PLACES.index(batch[0]) // BATCH
        assert batch == PLACES[number * BATCH :][:BATCH]
        assert number // CHUNK in writer.spent
    assert writer.spent == list(range(10)), "each chunk once, in order"


@settings(max_examples=15, deadline=None)
@given(losses=st.lists(st.tuples(st.sampled_from(["before", "after"]), st.integers(0, 30)), max_size=5))
def test_whatever_is_lost_no_record_is_read_twice_or_unpaid(losses: list[tuple[str, int]]) -> None:
    writer, recorder = read_through(losses, lambda writer: len(writer.spent))
    check_once(writer, recorder)
    assert len(recorder.read) >= 50 - CHUNK * len(losses)


def test_going_on_where_the_state_was_kept_reads_a_lost_chunk_again() -> None:
    """Planted bug: a resume like that of methods that pay again for what they lost."""
    writer, recorder = read_through([("after", 7)], lambda writer: max(0, len(writer.spent) - 1))
    with pytest.raises(AssertionError, match="read twice"):
        check_once(writer, recorder)


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


def lose(database: Database, claim: Claim) -> str:
    """Let an attempt's lease run out and be swept up; return the job's state."""
    with database.write() as session:
        session.execute(update(Job).where(Job.id == claim.job_id).values(lease_until=1.0))
        put_secret(session, CONTACT, f"1.0 {clock.read(session)!r}")
        sweep(session, 60.0, 9, 1e9)
        return session.get_one(Job, claim.job_id).state


SMALL = 5
SETTINGS = OnePassClippedSgdPlan(
    mu=1 / SIGMA, batch=SMALL, steps=200, clip=1.0, step_size=0.1, returns="average", radius=100.0
)
WHOLE = tuple(SETTINGS.schedule(facts(UNITS, 3)))


def attempt(
    database: Database,
    recorder: Recorder,
    folder: Path,
    asked: OnePassClippedSgdPlan = SETTINGS,
    begun: int | None = None,
) -> tuple[Claim, Release[Estimate] | None]:
    """Claim the job and run the method on it, as a trainer does; a lost attempt returns no release.

    It goes on after `begun` chunks; None: after all that are paid, as a stream of several does.
    """
    claim = database.transaction(jobs.claim, "w", 60.0)
    assert claim is not None
    with database.read() as session:
        job, kept = session.get_one(Job, claim.job_id), ledger.last_kept(session, claim.job_id)
        paid, charged = job.chunks_spent, ledger.executed_by(session, job)
        amounts = [tuple(tuple(one[: len(TERMS.orders)]) for one in totals) for totals in job.chunks.values()]
    payments = StreamFilter(
        FencedLedgerWriter(database, claim, ServiceSettings(home=folder)),
        [Payer(TERMS.orders, totals) for totals in amounts],
        tuple(asked.schedule(facts(UNITS, 3))),
        sampling=asked.sampling(facts(UNITS, 3)),
        units=UNITS,
        kept=None if kept is None else kept.state,
        paid_chunks=paid if begun is None else begun,
        charged=charged,
    )
    try:
        return claim, fit(asked, stream(recorder, payments, claim.job_id))
    except Lost:
        return claim, None


@pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)  # what is paid, and when, hangs on neither
class TestLedger:
    def submit(self, database: Database, place: Place, folder: Path) -> str:
        assert guard(database, Witness(ServiceSettings(home=folder).witness_path)) == []
        with database.write() as session:
            return submit(session, place, WHOLE, retry_allowance=0).id

    def test_kills_cost_batches_and_nothing_else(self, database: Database, place: Place, tmp_path: Path) -> None:
        name = self.submit(database, place, tmp_path)
        recorder = Recorder()
        for loss in (("before", 0), ("after", 4), ("before", 50), ("after", 51)):
            recorder.lose_at = loss
            claim, released = attempt(database, recorder, tmp_path)
            assert released is None
            assert lose(database, claim) == "queued"
        recorder.lose_at = None
        claim, released = attempt(database, recorder, tmp_path)
        assert released is not None
        database.transaction(jobs.finish, claim, {}, "not-needed")
        read = [place for batch in recorder.read for place in batch]
        assert len(read) == len(set(read)) == SMALL * len(recorder.read)
        assert released.event == Gaussian(sigma=SIGMA)
        with database.read() as session:
            entries = session.execute(select(Entry).where(Entry.job_id == name).order_by(Entry.seq)).scalars().all()
            spent = [entry.chunk for entry in entries if entry.kind == "spend"]
            assert spent == list(range(len(WHOLE))), "no chunk is paid twice"
            assert {entry.attempt for entry in entries if entry.kind == "spend"} == {1, 2, 3, 4, 5}
            held = ledger.balance(session, place.scope_id)
            assert held.spent == cost_nano(Gaussian(sigma=SIGMA), TERMS.orders)
            assert not any(held.reserved)
            assert ledger.verify(session, place.scope_id).ok
            told = report(compose(ledger.executed_by(session, session.get_one(Job, name))), TERMS, Adjacency.ZERO_OUT)
        assert told.promise.mu == "0.05"
        steps = int(released.value.steps)
        lost = 200 - steps
        assert 2 <= len(recorder.read) - steps <= lost, "some batches were read and their answers lost"
        assert 4 <= lost <= 4 * SETTINGS.chunk
        assert released.value.error_bound is not None
        assert released.value.error_bound.ended_by == "lost_batches"

    def test_a_stream_that_was_paid_to_its_end_ends_where_it_was_kept(
        self, database: Database, place: Place, tmp_path: Path
    ) -> None:
        self.submit(database, place, tmp_path)
        recorder = Recorder()
        recorder.lose_at = ("after", 199)
        claim, _ = attempt(database, recorder, tmp_path)
        assert lose(database, claim) == "queued"
        recorder.lose_at = None
        _, released = attempt(database, recorder, tmp_path)
        assert released is not None
        assert int(released.value.steps) == 198, "what was kept with the payment of the last chunk, of two batches"
        assert len(recorder.read) == 200

    def test_a_single_step_that_is_lost_is_paid_and_read_again(
        self, database: Database, place: Place, tmp_path: Path
    ) -> None:
        """All is one chunk: skipping it would leave nothing. The cost of both answers was reserved."""
        assert guard(database, Witness(ServiceSettings(home=tmp_path).witness_path)) == []
        once = SETTINGS.model_copy(update={"batch": UNITS, "steps": 1})
        schedule = tuple(once.schedule(facts(UNITS, 3)))
        assert schedule == (Gaussian(sigma=SIGMA),)
        with database.write() as session:
            name = submit(session, place, schedule, retry_allowance=1).id
        recorder = Recorder()
        recorder.lose_at = ("after", 0)
        claim, _ = attempt(database, recorder, tmp_path, once, 0)
        assert lose(database, claim) == "queued"
        recorder.lose_at = None
        claim, released = attempt(database, recorder, tmp_path, once, 0)
        assert released is not None
        assert (int(released.value.steps), len(recorder.read)) == (1, 2)
        assert recorder.read[0] == recorder.read[1]
        database.transaction(jobs.finish, claim, {}, "not-needed")
        with database.read() as session:
            held, job = ledger.balance(session, place.scope_id), session.get_one(Job, name)
            assert held.spent == cost_nano(compose(ledger.executed_by(session, job)), TERMS.orders)
            assert held.spent == tuple(2 * one for one in cost_nano(Gaussian(sigma=SIGMA), TERMS.orders))
            assert not any(held.reserved)
            assert ledger.verify(session, place.scope_id).ok

    def test_a_single_step_without_an_allowance_fails_with_its_worker(self, database: Database, place: Place) -> None:
        with database.write() as session:
            submit(session, place, [Gaussian(sigma=SIGMA)], retry_allowance=0)
        claim = database.transaction(jobs.claim, "w", 60.0)
        assert claim is not None
        database.transaction(ledger.pay, claim, 0, None, 0)
        assert lose(database, claim) == "failed"

    def test_other_jobs_pay_again_for_what_they_lost(self, database: Database, place: Place) -> None:
        with database.write() as session:
            submit(session, place, [NOTHING, Gaussian(sigma=SIGMA), NOTHING], retry_allowance=0)
        claim = database.transaction(jobs.claim, "w", 60.0)
        assert claim is not None
        database.transaction(ledger.pay, claim, 0, None, 0)
        database.transaction(ledger.pay, claim, 1, b"one", 1)
        assert lose(database, claim) == "failed"
