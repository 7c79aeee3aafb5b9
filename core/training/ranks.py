"""A job over several processes: what the leader tells the others, and what a follower does with it.

The leader is the trainer: it alone pays, draws noise, runs the method and publishes. A follower opens its own rows once
the attempt is on record as having opened them, and reads them for a sum only once it was told of payments that are
worth it: it keeps the accounts itself, from the prices frozen at reserve, and fails where they do not add up.
"""

from collections.abc import Callable
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from core.catalogue.models import NetworkModel
from core.catalogue.planning import PlannedJob
from core.catalogue.sampling import PoissonSampling
from core.oracle.account import EVERYTHING, Account
from core.oracle.samples import sampled
from core.privacy.events import Event
from core.privacy.facts import Frozen
from core.problems import Problem
from core.problems.sharded import ShardedProblem, Sum, member_of, shard_of
from core.problems.team import Team
from core.settings import ServiceSettings
from core.store.records import Kept, open_records, read_records
from core.store.weights import KeptWeights, read_weights
from core.training.device import flush_denormals
from core.training.fitting import make_problem
from core.training.meter import LedgerMeter, Till
from core.training.network import NO_WEIGHTS, PublicWeights
from core.training.order import Order, Payer

Gather = Callable[[int], Team | None]
"""Returns a team of so many processes, which wait to be told; None for one."""


class Opened(Frozen):
    """The attempt is on record as having opened the records: everybody may open their own rows."""

    kind: Literal["opened"] = "opened"
    planned: PlannedJob
    records: Kept
    payers: tuple[Payer, ...]
    kept_chunks: int
    weights: KeptWeights | None = None


class Paid(Frozen):
    """The payment of so many chunks, by all attempts, is committed and witnessed."""

    kind: Literal["paid"] = "paid"
    chunks: int


class Closed(Frozen):
    """There is nothing more to sum."""

    kind: Literal["closed"] = "closed"


Told = Annotated[Opened | Paid | Sum | Closed, Field(discriminator="kind")]
_TOLD: Final[TypeAdapter[Told]] = TypeAdapter(Told)


def open_problem(
    planned: PlannedJob,
    order: Order,
    settings: ServiceSettings,
    team: Team | None,
    weights: PublicWeights = NO_WEIGHTS,
) -> Problem:
    """Open the records of an attempt that is on record as having opened them, and have followers open theirs."""
    if team is None:
        return _own_rows(planned, order.records, settings, None, weights)
    opened = Opened(
        planned=planned,
        records=order.records,
        payers=order.payers,
        kept_chunks=order.kept_chunks,
        weights=order.weights,
    )
    team.tell(opened.model_dump_json())
    own = _own_rows(planned, order.records, settings, _rows_of(planned, team), weights)
    return ShardedProblem(own, order.units, team)


def _rows_of(planned: PlannedJob, team: Team) -> range | None:
    """Return the rows that this process of several holds; None: all of them."""
    if isinstance(planned.spec.model, NetworkModel):
        return None
    return shard_of(planned.facts.units, team.rank, team.size)


def _own_rows(
    planned: PlannedJob,
    records: Kept,
    settings: ServiceSettings,
    rows: range | None,
    weights: PublicWeights = NO_WEIGHTS,
) -> Problem:
    """Read rows as the design encodes them, every byte of them checked."""
    with open_records(settings, records) as file:
        return make_problem(planned, read_records(file, planned.design, rows), weights)


class TellingTill:
    """A till that tells followers of each payment, once it is committed and before anything is read on it.

    Args:
        till: where chunks are paid.
        team: who is told.
    """

    def __init__(self, till: Till, team: Team) -> None:
        self._till = till
        self._team = team

    def spend(self, chunk: int, state: bytes | None, step: int) -> None:
        """Commit the payment of a chunk, then tell.

        Raises:
            StaleAttempt: the job is no longer ours; nobody was told.
        """
        self._till.spend(chunk, state, step)
        self._team.tell(Paid(chunks=chunk + 1).model_dump_json())

    def keep(self, state: bytes, step: int) -> None:
        """Commit what was told so far, without paying."""
        self._till.keep(state, step)


def dismiss(team: Team | None) -> None:
    """Tell followers, if any, that there is nothing more to sum; they end."""
    if team is not None:
        team.tell(Closed().model_dump_json())


class Receipts:
    """What a follower was told of payments; its meter's till, which can only be asked for what was paid.

    Attributes:
        chunks: how many are paid, by all attempts.
    """

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks

    def note(self, paid: Paid) -> None:
        """Take note of the next payment."""
        assert paid.chunks == self.chunks + 1, "chunks are paid in their order"
        self.chunks = paid.chunks

    def spend(self, chunk: int, state: bytes | None, step: int) -> None:
        """Agree that a chunk is paid.

        Raises:
            AssertionError: nobody said so.
        """
        del state, step
        assert chunk < self.chunks, "nothing is read before its payment was told"

    def keep(self, state: bytes, step: int) -> None:
        """Refuse: the leader keeps."""
        del state, step
        raise AssertionError("followers keep nothing")


def follow(team: Team, settings: ServiceSettings) -> None:
    """Hold a part of the records and sum it whenever the leader asks, until it has nothing more to ask.

    Raises:
        RuntimeError: the leader has gone.
        AssertionError: the leader asks for what is not paid for, or for anything else it should not.
    """
    opened = _TOLD.validate_json(team.hear())
    assert isinstance(opened, Opened), "records are opened first"
    flush_denormals(opened.planned)
    weights = NO_WEIGHTS if opened.weights is None else read_weights(settings, opened.weights)
    own = _own_rows(opened.planned, opened.records, settings, _rows_of(opened.planned, team), weights)
    member = member_of(own, opened.planned.facts.units, team)
    receipts = Receipts(opened.kept_chunks)
    meter = LedgerMeter(receipts, opened.payers, opened.planned.schedule, kept_chunks=opened.kept_chunks)
    account = Account(meter)
    while not isinstance(told := _TOLD.validate_json(team.hear()), Closed):
        if isinstance(told, Paid):
            receipts.note(told)
        else:
            assert isinstance(told, Sum), "records are opened once"
            account.cover(EVERYTHING, _price(opened.planned, told))
            member.join(told)


def _price(planned: PlannedJob, told: Sum) -> Event:
    """Return what an answer costs that the leader asks a sum for.

    Raises:
        AssertionError: the leader asks for all records where samples are paid for.
    """
    sampling = planned.spec.optimizer.sampling(planned.facts)
    if not isinstance(sampling, PoissonSampling):
        return told.question.event()
    assert told.masked, "samples are paid for, not all records"
    return sampled(told.question, sampling.parts)
