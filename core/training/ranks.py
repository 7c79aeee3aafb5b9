"""A job over several processes: messages of the leader, and a follower's work on them.

The leader is the trainer: it alone pays, draws noise, runs the method and publishes. A follower opens its own rows only
after the attempt is recorded as having opened them. It reads them for a sum only after the leader reported payments
that cover it. It keeps the accounts itself, from the prices frozen at reserve, and fails where they do not add up.
"""

from collections.abc import Callable
from typing import Annotated, Final, Literal

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor

from core.base.errors import PrivacyInvariantError, ensure
from core.base.settings import ServiceSettings
from core.models.kinds import NetworkModel
from core.oracle.samples import batch_of, sampled
from core.planning.planner import PlannedJob
from core.privacy.events import Event
from core.privacy.facts import Frozen
from core.queries.sampling import PoissonSampling, StreamSampling
from core.queries.sums import Problem
from core.queries.sums.process_group import ProcessGroup
from core.queries.sums.sharded import ShardedProblem, Sum, member_of, shard_of
from core.records.records import StoredRecords, open_records, read_records
from core.records.weights import KeptWeights, read_weights
from core.training.device import prepare_processor
from core.training.fitting import make_problem
from core.training.ledger_filter import LedgerWriter
from core.training.network import NO_WEIGHTS, PublicWeights
from core.training.oracles import begins_after, filter_on, stream_of
from core.training.order import AttemptInput, Payer
from core.training.streaming import StreamFilter

Gather = Callable[[int], ProcessGroup | None]
"""Returns a group of this many processes, which wait for orders; None for one."""


class Opened(Frozen):
    """The attempt is on record as having opened the records: everybody may open their own rows."""

    kind: Literal["opened"] = "opened"
    planned: PlannedJob
    records: StoredRecords
    payers: tuple[Payer, ...]
    kept_chunks: int
    """After how many chunks it goes on."""
    weights: KeptWeights | None = None
    job: str = ""
    """Of a stream, whose order is made of it."""


class Paid(Frozen):
    """The payment of so many chunks, by all attempts, is committed and witnessed."""

    kind: Literal["paid"] = "paid"
    chunks: int


class Closed(Frozen):
    """There is nothing more to sum."""

    kind: Literal["closed"] = "closed"


LeaderMessage = Annotated[Opened | Paid | Sum | Closed, Field(discriminator="kind")]
_LEADER_MESSAGE: Final[TypeAdapter[LeaderMessage]] = TypeAdapter(LeaderMessage)


def open_problem(
    planned: PlannedJob,
    order: AttemptInput,
    settings: ServiceSettings,
    group: ProcessGroup | None,
    weights: PublicWeights,
) -> Problem:
    """Open the records of an attempt that is on record as having opened them, and have followers open theirs."""
    if group is None:
        return _own_rows(planned, order.records, settings, None, weights)
    opened = Opened(
        planned=planned,
        records=order.records,
        payers=order.payers,
        kept_chunks=begins_after(planned, order),
        weights=order.weights,
        job=order.claim.job_id if _is_stream(planned) else "",
    )
    # Sent first, so that followers read their rows while this process reads its own.
    group.tell(opened.model_dump_json())
    own = _own_rows(planned, order.records, settings, _rows_of(planned, group), weights)
    return ShardedProblem(own, order.units, group, whole=_is_stream(planned))


def _is_stream(planned: PlannedJob) -> bool:
    """Say whether a job reads batches of a public order."""
    return isinstance(planned.spec.optimizer.sampling(planned.facts), StreamSampling)


def _rows_of(planned: PlannedJob, group: ProcessGroup) -> range | None:
    """Return the rows that this process of several holds; None: all of them, for any may be in a list."""
    if isinstance(planned.spec.model, NetworkModel) or _is_stream(planned):
        return None
    return shard_of(planned.facts.units, group.rank, group.size)


def _own_rows(
    planned: PlannedJob,
    records: StoredRecords,
    settings: ServiceSettings,
    rows: range | None,
    weights: PublicWeights,
) -> Problem:
    """Read rows as the design encodes them, every byte of them checked."""
    with open_records(settings, records) as file:
        return make_problem(planned, read_records(file, planned.design, rows), weights)


class AnnouncingLedgerWriter:
    """A ledger writer that tells followers of each payment, once it is committed and before anything is read on it.

    Args:
        writer: where chunks are paid.
        group: the receivers.
    """

    def __init__(self, writer: LedgerWriter, group: ProcessGroup) -> None:
        self._writer = writer
        self._group = group

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        """Commit the payment of a chunk, then tell.

        Raises:
            StaleAttempt: the job is no longer ours; no follower was notified.
        """
        self._writer.pay(chunk, state, step)
        # After the commit: a follower must never sum on a payment that the ledger does not have.
        self._group.tell(Paid(chunks=chunk + 1).model_dump_json())

    def keep(self, state: bytes, step: int) -> None:
        """Commit the answers so far, without paying."""
        self._writer.keep(state, step)


def dismiss(group: ProcessGroup | None) -> None:
    """Tell followers, if any, that there is nothing more to sum; they end."""
    if group is not None:
        group.tell(Closed().model_dump_json())


class Receipts:
    """A follower's record of payments: its filter's ledger writer, which answers for paid chunks alone.

    Attributes:
        chunks: the number of paid ones, by all attempts.
    """

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks

    def note(self, paid: Paid) -> None:
        """Take note of the next payment."""
        # A gap would let a leader claim several chunks by one message.
        ensure(paid.chunks == self.chunks + 1, "chunks are paid in their order")
        self.chunks = paid.chunks

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        """Agree that a chunk is paid.

        Raises:
            PrivacyInvariantError: nobody said so.
        """
        del state, step
        ensure(chunk < self.chunks, "nothing is read before its payment was received")

    def keep(self, state: bytes, step: int) -> None:
        """Refuse: the leader keeps."""
        del state, step
        raise PrivacyInvariantError("followers keep nothing")


def follow(group: ProcessGroup, settings: ServiceSettings) -> None:
    """Hold a part of the records and sum it whenever the leader asks, until it has nothing more to ask.

    Raises:
        RuntimeError: the leader has gone.
        PrivacyInvariantError: the leader asks for what is not paid for, or for anything else it should not.
    """
    opened = _LEADER_MESSAGE.validate_json(group.hear())
    assert isinstance(opened, Opened), "records are opened first"
    # Before its rows are opened and its threads start, as in the leader.
    prepare_processor(opened.planned)
    weights = NO_WEIGHTS if opened.weights is None else read_weights(settings, opened.weights)
    own = _own_rows(opened.planned, opened.records, settings, _rows_of(opened.planned, group), weights)
    member = member_of(own, opened.planned.facts.units, group, whole=_is_stream(opened.planned))
    receipts = Receipts(opened.kept_chunks)
    accounts = FollowerAccounts(opened, receipts)
    while not isinstance(message := _LEADER_MESSAGE.validate_json(group.hear()), Closed):
        if isinstance(message, Paid):
            receipts.note(message)
        else:
            assert isinstance(message, Sum), "records are opened once"
            member.join(message, rows=accounts.charge(message))


class FollowerAccounts:
    """A follower's own accounts: the leader's questions cost no more than the payments that it reported.

    Args:
        opened: the attempt.
        receipts: of its payments.
    """

    def __init__(self, opened: Opened, receipts: Receipts) -> None:
        self._planned = opened.planned
        self._payments = payments = filter_on(opened.planned, receipts, opened.payers, opened.kept_chunks)
        self._stream = stream_of(opened.planned, opened.job, payments) if isinstance(payments, StreamFilter) else None

    def charge(self, message: Sum) -> Tensor | None:
        """Count one more sum, and return the rows that it must be of; None where that is the leader's to say.

        Raises:
            PrivacyInvariantError: it is not paid for, or not of the kind that the job asks.
        """
        if self._stream is None:
            self._payments.pay(_price(self._planned, message))
            return None
        batch = batch_of(message.question)
        # The follower makes the order itself, so that no leader can have a batch read twice.
        ensure(message.listed == batch, "a stream is read by batches")
        self._payments.pay(message.question.event(), self._stream.pass_of(batch), self._stream.length(batch))
        return torch.from_numpy(self._stream.read(batch))


def _price(planned: PlannedJob, message: Sum) -> Event:
    """Return what an answer costs that the leader asks a sum for.

    Raises:
        PrivacyInvariantError: the leader asks for all records where samples are paid for.
    """
    sampling = planned.spec.optimizer.sampling(planned.facts)
    if not isinstance(sampling, PoissonSampling):
        return message.question.event()
    # A sample costs less than all records, so an unmasked sum would be underpaid.
    ensure(message.masked, "samples are paid for, not all records")
    return sampled(message.question, sampling.parts)
