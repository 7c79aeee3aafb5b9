"""SQLAlchemy tables, with the constraints that repeat in SQL what the code promises.

Times are seconds since the epoch by the database's own clock (`core.db.clock.now`). Identifiers are prefixed and
sortable. JSON columns hold public values only; private ones (records, kept states, unpublished releases) are bytes.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from core.db import identity_tables, notice_tables, service_tables, upload_tables  # noqa: F401 - of the same database
from core.db.base import Base, Id, Json, one_of

JOB_STATES = ("queued", "running", "cancelling", "succeeded", "failed", "cancelled", "expired")
TERMINAL_STATES = ("succeeded", "failed", "cancelled", "expired")
WITHDRAWN = "access-withdrawn"
"""Of a job whose owner may no longer use its dataset: it ended in the queue, charged what it had spent."""
CLIENT_LOST = "client-lost"
"""Of a federated job with fewer clients left than its quorum, and of those clients."""
FAILURE_CODES = (
    "trainer-failed",
    "worker-lost",
    "limit-exceeded",
    "diverged",
    "gpu-unavailable",
    WITHDRAWN,
    CLIENT_LOST,
)
SEVERAL = "*"
"""In place of a site: the clients of this federated job have several."""
VERDICTS = ("pending", "approved", "rejected")
DATASET_STATES = ("pending", "ready", "erasing", "erased")
ROLES = ("owner", "analyst", "auditor", "admin")


class Principal(Base):
    """Somebody who may ask: pr_..."""

    __tablename__ = "principals"
    __table_args__ = (CheckConstraint(one_of("role", ROLES), name="role"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    role: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[float] = mapped_column(Float)
    disabled_at: Mapped[float | None] = mapped_column(Float)  # set: none of its keys opens anything
    disabled_reason: Mapped[str | None] = mapped_column(Text)


class ApiKey(Base):
    """A bearer key, key_...; kept as a salted hash only (`core.access.principals`)."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    principal_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    salt: Mapped[str] = mapped_column(String(32))
    digest: Mapped[str] = mapped_column(String(64))  # BLAKE2b of the whole text under the salt
    supplied: Mapped[bool] = mapped_column(server_default="0")  # by an operator: no id in its text
    made_by: Mapped[str | None] = mapped_column(Id)  # the principal that asked for it; None: an operator, or 0.1.0
    starts_at: Mapped[float | None] = mapped_column(Float)  # it opens nothing before
    created_at: Mapped[float] = mapped_column(Float)
    expires_at: Mapped[float | None] = mapped_column(Float)
    revoked_at: Mapped[float | None] = mapped_column(Float)
    last_used_at: Mapped[float | None] = mapped_column(Float)


class Scope(Base):
    """The people behind one or more datasets, sc_...; owns a budget (its account has the same id) and one chain."""

    __tablename__ = "scopes"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    unit: Mapped[Any] = mapped_column(Json)  # "record" or {"user_column": ..., "max_records": ...}
    adjacency: Mapped[str] = mapped_column(String(16))
    units: Mapped[int] = mapped_column(BigInteger)  # n, public by the owner's word
    frozen_reason: Mapped[str | None] = mapped_column(Text)  # set: reserve refuses
    approval: Mapped[bool] = mapped_column(default=False)  # the owner approves each release before it is visible
    witnessed: Mapped[bool] = mapped_column(server_default="0")  # the witness has written it down once: it must know it
    unwitnessed: Mapped[Any] = mapped_column(Json, server_default="[]")  # core.ledger.gaps.Gap, as it went on
    seq: Mapped[int] = mapped_column(BigInteger, default=0)
    head: Mapped[str] = mapped_column(String(80))
    # What all that was charged, and stays so, adds up to: core.privacy.totals.
    gaussian_rho: Mapped[str] = mapped_column(String(80), default="0", server_default="0")
    other_rho: Mapped[str] = mapped_column(String(80), default="0", server_default="0")
    unpriced: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    created_at: Mapped[float] = mapped_column(Float)


_ORDERS = range(1, 5)
_WITHIN = " OR ".join(f"spent_{j} + reserved_{j} <= cap_{j}" for j in _ORDERS)
_SIGNS = " AND ".join(f"spent_{j} >= 0 AND reserved_{j} >= 0" for j in _ORDERS)


class Account(Base):
    """A capped budget: one per scope, and one per scope and principal with a cap inside it, which is a grant here.

    Integers are nano-nats at up to four fixed Renyi orders.

    An unused slot has order 0, weight 0 and cap -1, so it never admits anything.
    """

    __tablename__ = "accounts"
    __table_args__ = (CheckConstraint(_WITHIN, name="within_cap"), CheckConstraint(_SIGNS, name="signs"))

    id: Mapped[str] = mapped_column(Id, primary_key=True)  # the scope's or the grant's id
    scope_id: Mapped[str] = mapped_column(ForeignKey("scopes.id"), index=True)
    principal_id: Mapped[str | None] = mapped_column(ForeignKey("principals.id"))  # a grant's; None for the scope's own
    epsilon: Mapped[str] = mapped_column(String(32))  # decimal strings, as declared or derived from rho
    delta: Mapped[str] = mapped_column(String(32))
    declared: Mapped[Any] = mapped_column(Json)  # the budget as the owner wrote it
    closed_at: Mapped[float | None] = mapped_column(Float)  # set: nothing more is reserved under this grant
    order_1: Mapped[int] = mapped_column(Integer)
    order_2: Mapped[int] = mapped_column(Integer)
    order_3: Mapped[int] = mapped_column(Integer)
    order_4: Mapped[int] = mapped_column(Integer)
    weight_1: Mapped[str] = mapped_column(String(8))
    weight_2: Mapped[str] = mapped_column(String(8))
    weight_3: Mapped[str] = mapped_column(String(8))
    weight_4: Mapped[str] = mapped_column(String(8))
    cap_1: Mapped[int] = mapped_column(BigInteger)
    cap_2: Mapped[int] = mapped_column(BigInteger)
    cap_3: Mapped[int] = mapped_column(BigInteger)
    cap_4: Mapped[int] = mapped_column(BigInteger)
    spent_1: Mapped[int] = mapped_column(BigInteger, default=0)
    spent_2: Mapped[int] = mapped_column(BigInteger, default=0)
    spent_3: Mapped[int] = mapped_column(BigInteger, default=0)
    spent_4: Mapped[int] = mapped_column(BigInteger, default=0)
    reserved_1: Mapped[int] = mapped_column(BigInteger, default=0)
    reserved_2: Mapped[int] = mapped_column(BigInteger, default=0)
    reserved_3: Mapped[int] = mapped_column(BigInteger, default=0)
    reserved_4: Mapped[int] = mapped_column(BigInteger, default=0)
    # Units of draws (core.privacy.draws) that jobs have reserved and not given back.
    draws: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")


class Entry(Base):
    """One line of a scope's chain, append-only (a trigger). `body` is the exact versioned text that `hash` covers."""

    __tablename__ = "entries"
    __table_args__ = (UniqueConstraint("job_id", "attempt", "chunk", "scope_id", "kind"),)

    scope_id: Mapped[str] = mapped_column(ForeignKey("scopes.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))  # one of core.ledger.kinds
    job_id: Mapped[str | None] = mapped_column(Id)
    attempt: Mapped[int | None] = mapped_column(Integer)
    chunk: Mapped[int | None] = mapped_column(Integer)
    body: Mapped[str] = mapped_column(Text)  # canonical JSON: amounts per account, event, time, actor, reason
    prev_hash: Mapped[str] = mapped_column(String(80))
    hash: Mapped[str] = mapped_column(String(80))
    created_at: Mapped[float] = mapped_column(Float)


class ScopeEvent(Base):
    """Counts of standing charges of a scope by event: sums of its entries, changed with each of them."""

    __tablename__ = "scope_events"
    __table_args__ = (CheckConstraint("times >= 0", name="times"),)

    scope_id: Mapped[str] = mapped_column(ForeignKey("scopes.id"), primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)  # SHA-256 of `event`, which may be long
    event: Mapped[str] = mapped_column(Text)  # canonical JSON of a core.privacy.events.Event
    times: Mapped[int] = mapped_column(BigInteger)


class Dataset(Base):
    """An immutable set of records, ds_...; new data is a new dataset in the same scope."""

    __tablename__ = "datasets"
    __table_args__ = (CheckConstraint(one_of("state", DATASET_STATES), name="state"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    scope_id: Mapped[str | None] = mapped_column(ForeignKey("scopes.id"), index=True)  # None while pending
    owner_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    state: Mapped[str] = mapped_column(String(16))
    request: Mapped[Any] = mapped_column(Json)  # the metadata as posted
    columns: Mapped[Any] = mapped_column(Json)  # list of core.data.columns.Column
    rows: Mapped[int | None] = mapped_column(BigInteger)
    fingerprint: Mapped[str | None] = mapped_column(String(40))  # random, drawn with the records; shown to all
    location: Mapped[str | None] = mapped_column(Text)  # of the encoded records, relative to settings.records_path
    location_digest: Mapped[str | None] = mapped_column(String(100))  # of the encoded records
    bytes: Mapped[int | None] = mapped_column(BigInteger)  # of that file, before it of the declaration; None: not noted
    wrapped_key: Mapped[str | None] = mapped_column(Text)  # of the encoded records, under the site's master key
    site: Mapped[str] = mapped_column(String(40), server_default="")  # that keeps the records; "": the service's own
    validation: Mapped[Any | None] = mapped_column(Json)  # the owner's report; never shown to others
    created_at: Mapped[float] = mapped_column(Float)


class Access(Base):
    """A principal who may see a dataset and send jobs to it, under the cap that it has in the dataset's scope."""

    __tablename__ = "access"

    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), primary_key=True)
    principal_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), primary_key=True, index=True)
    created_at: Mapped[float] = mapped_column(Float)


class Job(Base):
    """A training job, job_...; `queued` means reserved.

    A federated job is several rows. Its own has its own id as `federation_id`, and no `place`; it is what waits and is
    claimed, it reserves nothing, and its dataset and scope are those of its first client. Each site is a job of its own
    on its own dataset, with a `place` from 0: its scope pays, and no worker claims it alone.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(one_of("state", JOB_STATES), name="state"),
        CheckConstraint(f"error_code IS NULL OR {one_of('error_code', FAILURE_CODES)}", name="error_code"),
        Index("ix_jobs_waiting", "state", "created_at"),
        Index("ix_jobs_ended", "finished_at"),
        Index(
            "ix_jobs_queued",
            "site",
            "owner_id",
            "priority",
            "created_at",
            "device",
            sqlite_where=text("state = 'queued' AND place IS NULL"),
            postgresql_where=text("state = 'queued' AND place IS NULL"),
        ),
        Index(
            "ix_jobs_live",
            "owner_id",
            "place",
            sqlite_where=text("finished_at IS NULL"),
            postgresql_where=text("finished_at IS NULL"),
        ),
        Index(
            "ix_jobs_live_scope",
            "scope_id",
            sqlite_where=text("finished_at IS NULL"),
            postgresql_where=text("finished_at IS NULL"),
        ),
        Index("ix_jobs_federation", "federation_id", "place"),
        Index(
            "ix_jobs_check_bound",
            "id",
            sqlite_where=text("optimizer = 'check_bound'"),
            postgresql_where=text("optimizer = 'check_bound'"),
        ),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), index=True)
    scope_id: Mapped[str] = mapped_column(ForeignKey("scopes.id"), index=True)
    grant_id: Mapped[str | None] = mapped_column(Id)  # the caller's account in that scope, if any
    spec: Mapped[Any] = mapped_column(Json)  # core.planning.job.JobSpec, filled by the planner; what the trainer runs
    optimizer: Mapped[str] = mapped_column(String(60))  # spec.optimizer.kind, to filter by
    price: Mapped[Any] = mapped_column(Json)  # the Event reserved
    schedule: Mapped[Any] = mapped_column(Json)  # frozen at reserve: the Event of each chunk, in order
    chunks: Mapped[Any] = mapped_column(Json)  # frozen at reserve: {account id: [cumulative nano-nats per order, ...]}
    state: Mapped[str] = mapped_column(String(16))
    error_code: Mapped[str | None] = mapped_column(String(40))
    step: Mapped[int] = mapped_column(Integer, default=0)
    steps: Mapped[int] = mapped_column(Integer)
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    chunks_spent: Mapped[int] = mapped_column(Integer, default=0)  # by all attempts
    allowance: Mapped[Any] = mapped_column(Json, server_default="{}")  # frozen at reserve: {account id: nano-nats}
    allowance_spent: Mapped[Any] = mapped_column(Json, server_default="{}")  # chunks that were lost and paid again
    draws: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")  # units that it reserved of each
    fence_epoch: Mapped[str] = mapped_column(String(40))
    fence: Mapped[int] = mapped_column(BigInteger, default=0)  # grows with every claim and every way out of one
    worker: Mapped[str | None] = mapped_column(String(200))
    lease_until: Mapped[float | None] = mapped_column(Float)
    device: Mapped[str] = mapped_column(String(8), server_default="cpu")  # auto | cpu | cuda: which queues may take it
    priority: Mapped[int] = mapped_column(Integer, server_default="0")  # higher first
    expires_at: Mapped[float | None] = mapped_column(Float)  # a job that still waits then is expired
    request_id: Mapped[str | None] = mapped_column(String(60))  # that made it, for the operator's log
    clone_of: Mapped[str | None] = mapped_column(Id)  # the job that this one repeats
    labels: Mapped[Any] = mapped_column(Json)
    event_seq: Mapped[int] = mapped_column(Integer, default=0)
    created_at: Mapped[float] = mapped_column(Float)
    started_at: Mapped[float | None] = mapped_column(Float)
    finished_at: Mapped[float | None] = mapped_column(Float)
    federation_id: Mapped[str | None] = mapped_column(Id)  # the federated job that it is, or is a client of
    place: Mapped[int | None] = mapped_column(Integer)  # of a client, from 0
    site: Mapped[str] = mapped_column(String(40), server_default="")  # that keeps its records; SEVERAL of a federated

    @property
    def is_federated(self) -> bool:
        """Whether it is a federated job, whose clients hold the records and pay."""
        return self.federation_id is not None and self.place is None


class Label(Base):
    """A job's label, to filter by."""

    __tablename__ = "labels"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(String(256), index=True)


class Attempt(Base):
    """One claim of a job by a supervisor."""

    __tablename__ = "attempts"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    fence: Mapped[int] = mapped_column(BigInteger)
    worker: Mapped[str] = mapped_column(String(200))
    started_at: Mapped[float] = mapped_column(Float)
    opened_at: Mapped[float | None] = mapped_column(Float)  # when the child opened the records
    ended_at: Mapped[float | None] = mapped_column(Float)
    outcome: Mapped[str | None] = mapped_column(String(40))
    software: Mapped[Any | None] = mapped_column(
        Json
    )  # core.base.version.software() of the trainer that opened the records


class JobEvent(Base):
    """A line of a job's public history; `seq` is allocated under the job's lock, the terminal one is last."""

    __tablename__ = "job_events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(Integer, primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    data: Mapped[Any] = mapped_column(Json)
    created_at: Mapped[float] = mapped_column(Float)


class Checkpoint(Base):
    """The noised state kept by a method at a chunk boundary, stored with the spend of the next chunk."""

    __tablename__ = "checkpoints"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    chunk: Mapped[int] = mapped_column(Integer, primary_key=True)  # all chunks below this one are in `state`
    attempt: Mapped[int] = mapped_column(Integer)
    state: Mapped[bytes] = mapped_column(LargeBinary)  # safetensors
    created_at: Mapped[float] = mapped_column(Float)


class Model(Base):
    """Releases of jobs, mdl_...; inserted by the transaction that ends the job."""

    __tablename__ = "models"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), index=True)
    release: Mapped[Any] = mapped_column(Json)  # core.inference.released.Released
    approval: Mapped[str] = mapped_column(String(16))  # not-needed | pending | approved | rejected | retired
    created_at: Mapped[float] = mapped_column(Float)


class Approval(Base):
    """Verdicts on a federated job's model, of scopes that ask for approval."""

    __tablename__ = "approvals"
    __table_args__ = (CheckConstraint(one_of("verdict", VERDICTS), name="verdict"),)

    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), primary_key=True)
    scope_id: Mapped[str] = mapped_column(ForeignKey("scopes.id"), primary_key=True)
    verdict: Mapped[str] = mapped_column(String(16))


class PublicWeights(Base):
    """Weights that networks may start from, wts_...; public, as their owner says, so they are stored as they are."""

    __tablename__ = "public_weights"
    __table_args__ = (UniqueConstraint("owner_id", "digest", "site"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    site: Mapped[str] = mapped_column(String(40), server_default="")  # that keeps the file
    tensors: Mapped[Any] = mapped_column(Json)  # the shape of each, by name
    bytes: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(100))  # sha256:... of the file
    location: Mapped[str] = mapped_column(Text)  # of the file in the storage
    created_at: Mapped[float] = mapped_column(Float)
