"""Gauss-PSGD on the ledger through losses: two sizes of batches, several passes, nothing read twice in one.

The ledger's privacy filter, the oracle and the method are the real ones; an attempt is lost by an exception, as in
`test_streaming`.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings as of
from hypothesis import strategies as st

from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.tables import Job
from core.inference.estimate import Estimate
from core.jobs import jobs
from core.ledger import ledger
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.mechanisms.generator import SystemGenerator
from core.mechanisms.sampling import public_order
from core.methods.fits import fit
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan
from core.oracle import Release
from core.oracle.samples import StreamOracle
from core.privacy.events import compose
from core.privacy.renyi import cost_nano
from core.training.ledger_writer import FencedLedgerWriter
from core.training.order import Payer
from core.training.streaming import StreamFilter
from tests.support.problems import facts
from tests.support.second_order import given
from tests.support.store import TERMS, make_place, submit
from tests.training.test_streaming import ORDERS, Lost, Paper, Recorder, lose, payers

UNITS = 1000


def settings(epochs: int) -> GaussPsgdPlan:
    return given(
        epochs=epochs,
        mu=2.0,
        batch=70,
        difference_batch=9,
        restart_drift=0.05,
        error_radius=0.2,
        escape_distance=0.35,
        round_steps=5,
        step_size=1.0,
        steps=120,
    )


def attempt(writer: Paper, recorder: Recorder, asked: GaussPsgdPlan) -> Release[Estimate]:
    """Run the method on what is left; raises Lost."""
    public = facts(UNITS, 3)
    schedule = list(asked.schedule(public))
    paid = len(writer.spent)
    payments = StreamFilter(
        writer,
        payers(schedule),
        schedule,
        sampling=asked.sampling(public),
        units=UNITS,
        kept=writer.state,
        paid_chunks=paid,
        charged=Counter(schedule[:paid]),
    )
    orders = np.stack([public_order(f"job/{number}", UNITS) for number in range(asked.epochs)])
    oracle = StreamOracle(
        recorder,
        public,
        payments,
        SystemGenerator(),
        orders[:, : payments.reach],
        skipped=payments.skipped,
    )
    released = fit(asked, oracle)
    assert cost_nano(payments.charged, ORDERS) <= cost_nano(compose(Counter(schedule)), ORDERS)
    return released


def check(writer: Paper, recorder: Recorder, asked: GaussPsgdPlan) -> None:
    """Fail unless each record was read once a pass at most, after its chunks were paid, which they were once."""
    orders = [public_order(f"job/{number}", UNITS) for number in range(asked.epochs)]
    counts, paid = np.zeros((asked.epochs, UNITS), dtype=int), len(writer.spent)
    chunk = asked.sampling(facts(UNITS, 3)).chunk
    a_pass = -(-UNITS // chunk)
    for batch in recorder.read:
        places = [order.tolist().index(batch[0]) for order in orders]
        found = [
            number
            for number, place in enumerate(places)
            if orders[number][place : place + len(batch)].tolist() == batch
        ]
        assert len(found) == 1, "a batch is of one pass, in its order"
        counts[found[0], batch] += 1
        assert found[0] * a_pass + (places[found[0]] + len(batch) - 1) // chunk < paid, "paid before it is read"
    assert counts.max() <= 1, "no record is read twice in a pass"
    assert writer.spent == list(range(paid)), "each chunk once, in order"


@of(max_examples=6, deadline=None)
@drawn(
    losses=st.lists(st.tuples(st.sampled_from(["before", "after"]), st.integers(0, 20)), max_size=4),
    epochs=st.integers(1, 3),
)
def test_whatever_is_lost_no_record_is_read_twice_in_a_pass_or_unpaid(
    losses: list[tuple[str, int]], epochs: int
) -> None:
    writer, recorder, asked, released = Paper(), Recorder(UNITS), settings(epochs), None
    for loss in [*losses, None]:
        recorder.lose_at = None if loss is None else (loss[0], len(recorder.read) + loss[1])
        try:
            released = attempt(writer, recorder, asked)
            break
        except Lost:
            continue
    assert released is not None
    check(writer, recorder, asked)
    assert released.value.error_bound is not None
    ended = released.value.error_bound.second_order
    assert ended is not None
    assert ended.restarts + ended.differences <= len(recorder.read)


def test_an_attempt_that_goes_on_a_chunk_too_early_is_seen() -> None:
    """Planted: the last paid chunk counts as not read."""
    writer, recorder, asked = Paper(), Recorder(UNITS), settings(1)
    recorder.lose_at = ("after", 5)
    with pytest.raises(Lost):
        attempt(writer, recorder, asked)
    spent, recorder.lose_at = writer.spent, None
    writer.spent = spent[: len(spent) // 2]
    attempt(writer, recorder, asked)
    writer.spent = list(range(len(spent)))
    with pytest.raises(AssertionError, match=r"read twice|paid before"):
        check(writer, recorder, asked)


@pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)  # what is written, and when, hangs on neither
def test_the_ledger_charges_one_answer_whatever_is_lost(database: Database, tmp_path: Path) -> None:
    place, asked, public = make_place(database), settings(1).model_copy(update={"mu": 0.4}), facts(UNITS, 3)
    schedule = tuple(asked.schedule(public))
    assert guard(database, Witness(ServiceSettings(home=tmp_path).witness_path)) == []
    with database.write() as session:
        name = submit(session, place, schedule, retry_allowance=0).id
    recorder, released = Recorder(UNITS), None
    for loss in (("after", 3), ("before", 12), None):
        recorder.lose_at = loss
        claim = database.transaction(jobs.claim, "w", 60.0)
        assert claim is not None
        with database.read() as session:
            job, kept = session.get_one(Job, name), ledger.last_kept(session, name)
            amounts = [tuple(tuple(one[: len(TERMS.orders)]) for one in totals) for totals in job.chunks.values()]
            payments = StreamFilter(
                FencedLedgerWriter(database, claim, ServiceSettings(home=tmp_path)),
                [Payer(TERMS.orders, totals) for totals in amounts],
                schedule,
                sampling=asked.sampling(public),
                units=UNITS,
                kept=None if kept is None else kept.state,
                paid_chunks=job.chunks_spent,
                charged=ledger.executed_by(session, job),
            )
        order = public_order(name, UNITS)
        try:
            released = fit(
                asked,
                StreamOracle(recorder, public, payments, SystemGenerator(), order, skipped=payments.skipped),
            )
        except Lost:
            assert lose(database, claim) == "queued"
    assert released is not None
    assert released.event == asked.fresh().event()
    read = [unit for batch in recorder.read for unit in batch]
    assert len(read) == len(set(read))
    database.transaction(jobs.finish, claim, {}, "not-needed")
    with database.read() as session:
        held = ledger.balance(session, place.scope_id)
        assert held.spent == cost_nano(asked.fresh().event(), TERMS.orders)
        assert not any(held.reserved)
        assert ledger.verify(session, place.scope_id).ok
