"""The oracle a job's method needs: its readings, its payer, and refusals before anything is reserved."""

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from core.base.errors import AdjacencyMismatch
from core.data.columns import Columns
from core.ledger.claims import Claim
from core.ledger.schedules import Schedule, is_stream
from core.mechanisms.sampling import padded_length, public_order, rate_parts
from core.oracle.full import FullOracle
from core.oracle.samples import PoissonOracle, StreamOracle
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency
from core.privacy.renyi import prefix_costs
from core.records.records import StoredRecords
from core.training.ledger_filter import LedgerFilter
from core.training.oracles import make_filter, open_oracle
from core.training.order import AttemptInput, Payer
from core.training.streaming import StreamFilter
from tests.oracle.test_full import Journal

UNITS = 2000
TERMS = plan_orders(Decimal(8), Decimal("1e-6"))
COLUMNS = TypeAdapter(Columns).validate_python(
    [
        {"name": "x", "type": "number", "lower": -3, "upper": 3},
        {"name": "y", "type": "binary", "values": ["no", "yes"]},
    ]
)
FULL: dict[str, Any] = {"kind": "noisy_gd", "steps": 5}
POISSON: dict[str, Any] = {"kind": "clipped_sgd", "steps": 6, "batch": 125}
STREAM: dict[str, Any] = {"kind": "one_pass_clipped_sgd", "batch": 10}


class Counted:
    """A ledger writer that counts."""

    def __init__(self) -> None:
        self.chunks: list[int] = []

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        del state, step
        self.chunks.append(chunk)

    def keep(self, state: bytes, step: int) -> None:
        raise AssertionError((state, step))


def plan(optimizer: dict[str, Any], adjacency: Adjacency = Adjacency.ZERO_OUT, **changes: Any) -> PlannedJob:
    spec = {
        "dataset": "ds_1",
        "model": {"kind": "logistic", "target": "y"},
        "optimizer": optimizer,
        "privacy": {"mu": "0.5"},
        "inference": {"intervals": False},
    } | changes
    return plan_job(JobSpec.model_validate(spec), columns=COLUMNS, units=UNITS, adjacency=adjacency, terms=TERMS)


def order_of(planned: PlannedJob, paid_chunks: int = 0) -> AttemptInput:
    totals = tuple(tuple(total) for total in prefix_costs(planned.schedule, TERMS.orders))
    return AttemptInput(
        claim=Claim("job_7", 1, "epoch", 1),
        spec={},
        columns=[],
        records=StoredRecords("ds_1", "nowhere", "sha256:0", "v1.a.b"),
        units=UNITS,
        adjacency=Adjacency.ZERO_OUT,
        approval="not-needed",
        terms=TERMS,
        schedule=planned.schedule,
        payers=(Payer(TERMS.orders, totals),),
        kept=None,
        kept_chunks=0,
        paid_chunks=paid_chunks,
        charged=Counter(),
    )


def opened(
    planned: PlannedJob, *, paid_chunks: int = 0, shared: bool = False
) -> tuple[Any, LedgerFilter, Any, Journal]:
    journal, writer = Journal(units=UNITS, dimension=planned.facts.dimension), Counted()
    order = order_of(planned, paid_chunks)
    payments = make_filter(planned, order, writer, lambda: False)
    return open_oracle(planned, order, journal, payments, shared=shared), payments, writer, journal


def ask(oracle: Any, planned: PlannedJob) -> None:
    oracle.ask(planned.spec.optimizer.questions()[0], torch.zeros(planned.facts.dimension, dtype=torch.float64))


def test_a_full_batch_method_reads_all_at_each_step() -> None:
    planned = plan(FULL)
    oracle, payments, writer, journal = opened(planned)
    assert (type(oracle), type(payments)) == (FullOracle, LedgerFilter)
    ask(oracle, planned)
    assert (journal.selections, writer.chunks) == ([(None, None)], [0])


@pytest.mark.parametrize("shared", [False, True])
def test_a_sampled_method_reads_lists_or_masks_where_processes_share_the_records(*, shared: bool) -> None:
    planned = plan(POISSON)
    oracle, payments, writer, journal = opened(planned, shared=shared)
    assert (type(oracle), type(payments)) == (PoissonOracle, LedgerFilter)
    for _ in range(6):
        ask(oracle, planned)
    assert writer.chunks == list(range(6))
    (rows, included), parts = journal.selections[0], rate_parts(1 / 16)
    assert included.shape == (UNITS if shared else padded_length(parts, UNITS),)
    assert (rows is None) is shared
    with pytest.raises(AssertionError, match=r"never exceeds|was reserved"):
        ask(oracle, planned)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_stream_is_read_in_its_jobs_order_after_what_was_paid(adjacency: Adjacency) -> None:
    planned = plan(STREAM, adjacency)
    assert planned.schedule[0] == Gaussian(sigma=2.0)
    assert is_stream(Schedule(planned.schedule, draws=0).chunks)
    sampling = planned.spec.optimizer.sampling(planned.facts)
    oracle, payments, writer, journal = opened(planned, paid_chunks=4)
    assert (type(oracle), type(payments)) == (StreamOracle, StreamFilter)
    ask(oracle, planned)
    assert writer.chunks == [4]
    first = 4 * sampling.chunk
    assert journal.selections[0][0].tolist() == public_order("job_7", UNITS)[first : first + 10].tolist()


def test_no_other_job_is_taken_for_a_stream() -> None:
    for optimizer in (FULL, POISSON, {"kind": "noisy_gd", "steps": 1}):
        assert not is_stream(Schedule(plan(optimizer).schedule, draws=0).chunks)


def test_samples_are_refused_where_records_may_change_and_streams_are_not() -> None:
    with pytest.raises(AdjacencyMismatch) as refused:
        plan(POISSON, Adjacency.REPLACE_ONE)
    assert refused.value.code == "adjacency-mismatch"
    assert refused.value.fields[0].pointer == "/optimizer"
    assert plan(STREAM, Adjacency.REPLACE_ONE).schedule == plan(STREAM).schedule


def test_streams_repeat_nothing_and_are_of_any_number_of_processes() -> None:
    assert plan(STREAM).spec.retry_allowance == 0
    assert plan(STREAM, resources={"processes": 2}).schedule == plan(STREAM).schedule
    assert plan(POISSON, resources={"processes": 2}).spec.retry_allowance == 1


ONE_STEP: dict[str, Any] = {"kind": "one_pass_clipped_sgd", "steps": 1}


def test_a_stream_of_one_chunk_is_paid_and_read_again() -> None:
    """There is nothing to go on with: a loss in it is like a loss of other methods' chunks."""
    planned = plan(ONE_STEP)
    assert len(planned.schedule) == 1
    assert not is_stream(Schedule(planned.schedule, draws=0).chunks)
    assert (planned.spec.retry_allowance, plan(ONE_STEP, retry_allowance=0).spec.retry_allowance) == (1, 0)
    oracle, payments, writer, journal = opened(planned, paid_chunks=1)
    ask(oracle, planned)
    assert (type(payments), writer.chunks) == (StreamFilter, [0])
    assert journal.selections[0][0].tolist() == public_order("job_7", UNITS).tolist()
