"""The order of an attempt, read from the database in one snapshot, and the ways it may end early."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy.orm import Session

from core.base.errors import ensure
from core.db.tables import Account, Dataset, Job, PublicWeights, Scope
from core.jobs.subjects import Subjects, subjects_of
from core.ledger import ledger
from core.ledger.accounts import terms_of
from core.ledger.claims import Claim
from core.ledger.witness import trusting
from core.ledger.witness.trusting import Trust
from core.privacy.budget import Terms
from core.privacy.events import EVENT, Event
from core.privacy.facts import Adjacency
from core.records.records import StoredRecords, kept_of
from core.records.weights import KeptWeights


class Phase(StrEnum):
    """Where an attempt was when it failed; for the operator only."""

    OPENING = "opening"
    TRAINING = "training"
    PUBLISHING = "publishing"


class Failed(Exception):
    """The attempt failed for a reason that may depend on the records, so only the phase is given."""

    def __init__(self, phase: Phase) -> None:
        super().__init__(phase.value)
        self.phase = phase


class Drained(Exception):
    """The attempt was asked to stop and did, with all its answers in a kept state."""


class NoGpu(Exception):
    """The GPU that this process was pinned to cannot be used; no record was opened."""


@dataclass(frozen=True)
class Payer:
    """An account that pays for a job: its orders, and the cumulative nano-nats of the job's chunks at each."""

    orders: tuple[int, ...]
    totals: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class PublicInput:
    """All public facts about an attempt, and an earlier one's kept answers; nothing by which records are found."""

    claim: Claim
    spec: dict[str, object]
    columns: list[object]
    units: int
    adjacency: Adjacency
    approval: str
    terms: Terms
    schedule: tuple[Event, ...]
    payers: tuple[Payer, ...]
    kept: bytes | None
    kept_chunks: int
    """Chunks that are in what was kept; a new attempt draws those after it."""
    paid_chunks: int
    """Chunks that some attempt has paid for, kept or lost; a stream goes on after them."""
    charged: Counter[Event]
    """Payments of earlier attempts."""
    weights: KeptWeights | None = None
    """Public ones that a network starts from."""
    subjects: Subjects | None = None
    """The released models that the job is about."""


@dataclass(frozen=True, kw_only=True)
class AttemptInput(PublicInput):
    """The same with the place of the records that the attempt may open."""

    records: StoredRecords


def read_order(session: Session, claim: Claim, trust: Trust) -> AttemptInput:
    """Return what an attempt needs to know.

    The scope's ledger is verified in the same snapshot, from its last mark on, and must have the entry that its witness
    recorded. Adjacency, n, terms, schedule, payments and the owner of the records decide the noise. A writer of the
    database could change them, or the whole chain, for this one moment.

    Args:
        session: a read-only snapshot; nothing is locked, every later write checks the fence.
        claim: the claim of the attempt.
        trust: the witness's head of the job's scope before the snapshot, and the key of marks.

    Raises:
        PrivacyInvariantError: the ledger does not verify; the next sweep that sees it so freezes the scope.
    """
    job = session.get_one(Job, claim.job_id)
    chain = trusting.follow(session, job.scope_id, trust)
    ensure(chain.found.ok, f"{job.scope_id} does not verify: {chain.found.reason}")
    # A writer of the database could change the job's row alone; the chain was verified.
    ensure(job.id in chain.state.tally.live, "a job with a claim has not ended")
    return stored_order(session, claim, chain.state.tally.live[job.id].drawn)


def stored_order(session: Session, claim: Claim, charged: Mapping[Event, int]) -> AttemptInput:
    """Return what the database says of an attempt, unverified; `charged` is what earlier ones paid for."""
    job = session.get_one(Job, claim.job_id)
    dataset = session.get_one(Dataset, job.dataset_id)
    scope = session.get_one(Scope, job.scope_id)
    assert dataset.rows is not None, "a dataset that is ready has a public number of rows"
    checkpoint = ledger.last_kept(session, job.id)
    return AttemptInput(
        claim=claim,
        spec=job.spec,
        columns=dataset.columns,
        records=kept_of(dataset),
        units=dataset.rows,  # of this dataset, as quoted; others of its scope may have more
        adjacency=Adjacency(scope.adjacency),
        approval="pending" if scope.approval else "not-needed",
        terms=terms_of(session.get_one(Account, scope.id)),
        schedule=tuple(EVENT.validate_python(event) for event in job.schedule),
        payers=_payers(session, job),
        kept=None if checkpoint is None else checkpoint.state,
        kept_chunks=0 if checkpoint is None else checkpoint.chunk,
        paid_chunks=job.chunks_spent,
        charged=Counter(charged),
        weights=_weights(session, job),
        subjects=subjects_of(session, job),
    )


def _weights(session: Session, job: Job) -> KeptWeights | None:
    """Return where the public weights are that a job starts from."""
    named = job.spec["model"].get("pretrained")
    if named is None:
        return None
    found = session.get_one(PublicWeights, named)
    return KeptWeights(found.location, found.digest)


def _payers(session: Session, job: Job) -> tuple[Payer, ...]:
    """Return the accounts that pay, with the prices frozen at reserve."""
    orders = {name: terms_of(session.get_one(Account, name)).orders for name in job.chunks}
    return tuple(_payer(orders[name], totals) for name, totals in job.chunks.items())


def _payer(orders: Sequence[int], totals: Sequence[Sequence[int]]) -> Payer:
    return Payer(tuple(orders), tuple(tuple(total[: len(orders)]) for total in totals))
