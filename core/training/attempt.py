"""One attempt at a job, inside its own process: open the records, make the oracle, fit, infer, publish.

The records are opened once the attempt is on record as having opened them, every answer is paid before it is summed,
and all that leaves is the release, through the attempt's fence. An exception tells its phase and nothing else, for
whatever raised it may depend on the records.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from pydantic import TypeAdapter
from safetensors.torch import load, save

from core.base.errors import Diverged, LedgerFrozen, PeerLost, StaleAttempt, ensure
from core.base.settings import ServiceSettings
from core.base.version import software
from core.data.columns import Column
from core.db.database import Database
from core.inference.network import AnyReleased, read_released
from core.jobs import jobs
from core.ledger.claims import Claim
from core.ledger.witness.trusting import mark_keys
from core.planning.job import PlannedSpec
from core.planning.planner import PlannedJob, read_planned
from core.queries.sums.sharded import ShardedProblem
from core.records.weights import read_weights
from core.training.device import make_sure_of_device, make_sure_of_memory, prepare_processor
from core.training.fitting import train
from core.training.ledger_writer import FencedLedgerWriter
from core.training.network import NO_WEIGHTS, PublicWeights
from core.training.oracles import make_filter, open_oracle
from core.training.order import AttemptInput, Drained, Failed, NoGpu, Phase, PublicInput, read_order
from core.training.ranks import AnnouncingLedgerWriter, Gather, dismiss, open_problem
from core.training.rehearsal import rehearse

RELEASE = "release"
COLUMNS: TypeAdapter[tuple[Column, ...]] = TypeAdapter(tuple[Column, ...])


def run(database: Database, settings: ServiceSettings, claim: Claim, stop: Callable[[], bool], gather: Gather) -> None:
    """Carry out an attempt and publish its release.

    Args:
        database: where the job is.
        settings: where the records are, and how many threads to use.
        claim: the attempt's right to the job, checked by every write.
        stop: says whether to stop where nothing is lost.
        gather: starts the other processes of a job that has several.

    Raises:
        Drained: it was asked to stop, and did.
        StaleAttempt: the job is no longer ours.
        LedgerFrozen: the ledger is behind its witness.
        Diverged: an iterate left the public radius.
        Failed: any other failure; only the phase is given.
        MemoryError: the process is at its limit.
        NoGpu: it was pinned to a GPU that cannot be used; no record was opened.
    """
    torch.set_num_threads(settings.trainer_threads)
    torch.set_num_interop_threads(1)
    writer = FencedLedgerWriter(database, claim, settings, mark_keys(settings))
    with in_phase(Phase.OPENING):
        order = writer.ask(read_order)
        released = unpack_release(order.kept)
    # A kept release was paid for and made by an attempt that was lost before it published.
    if released is None:
        released = _train(order, writer, settings, stop, gather)
    with in_phase(Phase.PUBLISHING):
        writer.database.transaction(jobs.finish, claim, released.model_dump(mode="json"), order.approval)


def _train(
    order: AttemptInput, writer: FencedLedgerWriter, settings: ServiceSettings, stop: Callable[[], bool], gather: Gather
) -> AnyReleased:
    """Make a release from the records, and keep it before anything is done with it."""
    with in_phase(Phase.OPENING):
        planned, weights = planned_here(order, settings)
        # Followers meet before the records are opened: one that does not come costs the budget nothing.
        group = gather(planned.spec.resources.processes)
        # From here on a failure may depend on records, so the whole reservation would be charged.
        writer.database.transaction(jobs.mark_opened, order.claim, software())
        problem = open_problem(planned, order, settings, group, weights)
    with in_phase(Phase.TRAINING):
        payments = make_filter(planned, order, writer if group is None else AnnouncingLedgerWriter(writer, group), stop)
        sharded = isinstance(problem, ShardedProblem) and not problem.by_rows
        oracle = open_oracle(planned, order, problem, payments, shared=sharded)
        released = train(planned, order, payments, oracle, weights)
        dismiss(group)
    with in_phase(Phase.PUBLISHING):
        # Kept first: an attempt that is lost from here on leaves a release, which needs no record.
        writer.keep(pack_release(released), released.steps)
    return released


def planned_here(order: AttemptInput, settings: ServiceSettings) -> tuple[PlannedJob, PublicWeights]:
    """Return what follows from the stored job, and its public weights, in a process that is ready to compute it."""
    planned = planned_of(order)
    weights = NO_WEIGHTS if order.weights is None else read_weights(settings, order.weights)
    # All four before a record is opened, so that a machine that cannot compute it costs the budget nothing.
    make_sure_of_memory(planned)
    make_sure_of_device(planned)
    prepare_processor(planned)
    rehearse(planned, weights)
    return planned, weights


def planned_of(order: PublicInput) -> PlannedJob:
    """Return what follows from the stored job, in which nothing is open.

    Raises:
        PrivacyInvariantError: it would not draw what was reserved.
    """
    columns = COLUMNS.validate_python(order.columns)
    spec = PlannedSpec.read(order.spec)
    planned = read_planned(spec, columns=columns, units=order.units, adjacency=order.adjacency)
    # The stored schedule is what was priced and reserved; other code could draw more.
    ensure(planned.schedule == order.schedule, "the plan draws exactly the reserved events")
    return planned


def pack_release(released: AnyReleased) -> bytes:
    """Return a complete release as a kept state; a later attempt only publishes it."""
    # A kept state is a file of tensors, so the text goes as bytes; frombuffer wants them writable.
    text = torch.frombuffer(bytearray(released.model_dump_json().encode()), dtype=torch.uint8)
    return save({RELEASE: text})


def unpack_release(kept: bytes | None) -> AnyReleased | None:
    """Return the release that a kept state holds, None where it holds a method's state."""
    if kept is None:
        return None
    state = load(kept)
    return read_released(json.loads(state[RELEASE].numpy().tobytes())) if RELEASE in state else None


@contextmanager
def in_phase(phase: Phase) -> Iterator[None]:
    """Turn whatever an exception says into its phase; endings with a meaning of their own go through."""
    try:
        yield
    except (Drained, StaleAttempt, LedgerFrozen, Diverged, PeerLost, MemoryError, NoGpu):
        raise
    except Exception:  # noqa: BLE001 - one fixed code for whatever it was
        # The text and the traceback of the cause may hold records.
        raise Failed(phase) from None
