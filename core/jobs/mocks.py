"""Mock jobs as rows: training jobs on rows drawn from a declaration alone.

They have a table of their own, without a scope, a storage place or a key, and no function of the ledger takes a row of
it. Identifiers begin with `mock_`, those of their models with `mockmdl_`, and a CHECK keeps it so. The life is that of
a job (`core.jobs.jobs`) without any charge; functions that a supervisor calls have the same names and arguments.
"""

import secrets
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ColumnElement,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    delete,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.orm import Mapped, Session, deferred, mapped_column

from core.base.errors import NotFound, StaleAttempt, ensure
from core.base.identifiers import new_id
from core.db import clock
from core.db.base import Base, Id, Json, one_of
from core.db.tables import FAILURE_CODES, JOB_STATES, TERMINAL_STATES, Principal
from core.jobs.jobs import Beat
from core.jobs.queue import RUNNING, lock_owner
from core.jobs.sweep import contact
from core.jobs.transitions import DRAINED, LOST
from core.ledger.claims import FENCE_BITS, Charge, Claim

PREFIX: Final = "mock_"
MODEL_PREFIX: Final = "mockmdl_"
NO_LEDGER: Final = "mock"
"""In place of the ledger's epoch, which no mock job's claim carries."""
BATCH: Final = 100


class MockJob(Base):
    """A mock job, mock_...; its row holds everything that its trainer gets, copied from public declarations."""

    __tablename__ = "mock_jobs"
    __table_args__ = (
        CheckConstraint("substr(id, 1, 5) = 'mock_'", name="id"),
        CheckConstraint(one_of("state", JOB_STATES), name="state"),
        CheckConstraint(f"error_code IS NULL OR {one_of('error_code', FAILURE_CODES)}", name="error_code"),
        Index("ix_mock_jobs_owner_created", "owner_id", "created_at"),
        Index(
            "ix_mock_jobs_live",
            "state",
            "owner_id",
            sqlite_where=text("finished_at IS NULL"),
            postgresql_where=text("finished_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("principals.id"))
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), index=True)  # whose declaration it is
    spec: Mapped[Any] = mapped_column(Json)  # core.planning.job.PlannedSpec
    columns: Mapped[Any] = mapped_column(Json)  # as declared
    rows: Mapped[int] = mapped_column(Integer)  # to be drawn
    adjacency: Mapped[str] = mapped_column(String(16))
    terms: Mapped[Any] = mapped_column(Json)  # core.privacy.budget.Terms, public
    schedule: Mapped[Any] = mapped_column(Json)  # the Event of each chunk
    cost: Mapped[Any] = mapped_column(Json)  # what the same job would cost; nothing was charged
    steps: Mapped[int] = mapped_column(Integer)
    labels: Mapped[Any] = mapped_column(Json)
    history: Mapped[Any] = mapped_column(Json)  # lines {"kind", "data", "at"}, the first one `queued`
    release: Mapped[Any | None] = deferred(mapped_column(Json))  # core.inference.released.Released, marked as mock
    state: Mapped[str] = mapped_column(String(16))
    error_code: Mapped[str | None] = mapped_column(String(40))
    step: Mapped[int] = mapped_column(Integer, default=0)
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    losses: Mapped[int] = mapped_column(Integer, default=0)  # attempts whose lease ran out
    fence: Mapped[int] = mapped_column(BigInteger)  # another one with every claim and every way out of one
    worker: Mapped[str | None] = mapped_column(String(200))
    lease_until: Mapped[float | None] = mapped_column(Float)
    request_id: Mapped[str | None] = mapped_column(String(60))
    expires_at: Mapped[float | None] = mapped_column(Float)
    created_at: Mapped[float] = mapped_column(Float)
    finished_at: Mapped[float | None] = mapped_column(Float)


def is_mock(job_id: str) -> bool:
    """Tell by its identifier whether a job is a mock one."""
    return job_id.startswith(PREFIX)


def model_of(job_id: str) -> str:
    """Return the identifier of the model that a mock job makes."""
    return MODEL_PREFIX + job_id.removeprefix(PREFIX)


def job_of(model_id: str) -> str | None:
    """Return the mock job that made a model; None of a model of records."""
    return PREFIX + model_id.removeprefix(MODEL_PREFIX) if model_id.startswith(MODEL_PREFIX) else None


def draft(at: float, owner_id: str, dataset_id: str, **facts: Any) -> MockJob:  # noqa: ANN401 - columns of the row
    """Return a mock job that is stored nowhere yet.

    Args:
        at: the database's time.
        owner_id: the principal who asks.
        dataset_id: the dataset of the declaration.
        facts: further columns.
    """
    return MockJob(
        id=new_id(PREFIX[:-1]),
        owner_id=owner_id,
        dataset_id=dataset_id,
        state="queued",
        step=0,
        attempt=0,
        losses=0,
        fence=0,
        history=[{"kind": "queued", "data": {}, "at": at}],
        created_at=at,
        **facts,
    )


def seed_of(job_id: str) -> int:
    """Return the seed of a mock job's rows; it is public, for it follows from the fresh identifier."""
    return int.from_bytes(blake2b(job_id.encode(), digest_size=8).digest())


def made_since(session: Session, owner_id: str, since: float) -> list[float]:
    """Return when a principal's mock jobs after a time were made, oldest first."""
    made = select(MockJob.created_at).where(MockJob.owner_id == owner_id, MockJob.created_at > since)
    return list(session.execute(made.order_by(MockJob.created_at)).scalars())


def claim(session: Session, worker: str, lease_seconds: float, most_running: int) -> MockJob | None:
    """Take the next mock job; a supervisor asks once no job of records waits for it. None where there is none.

    The owner with the fewest running ones comes first, then the one who waits longest.

    Args:
        session: an open write transaction.
        worker: the supervisor's name.
        lease_seconds: the length of a claim without a beat.
        most_running: mock jobs of one principal that may run at a time.
    """
    waiting = select(MockJob.owner_id, func.min(MockJob.created_at)).where(MockJob.state == "queued")
    enabled = MockJob.owner_id.in_(select(Principal.id).where(Principal.disabled_at.is_(None)))
    heads = {row[0]: row[1] for row in session.execute(waiting.where(enabled).group_by(MockJob.owner_id))}
    running = {owner: _running(session, owner) for owner in heads}
    for owner_id in sorted(heads, key=lambda one: (running[one], heads[one], one)):
        with session.begin_nested() as turn:
            lock_owner(session, owner_id)
            job = _oldest(session, owner_id) if _running(session, owner_id) < most_running else None
            if job is not None:
                at = clock.read(session)
                job.attempt, job.worker, job.lease_until = job.attempt + 1, worker, at + lease_seconds
                _go(job, "running", at, attempt=job.attempt)
                session.flush()
                return job
            turn.rollback()
    return None


def claim_of(job: MockJob) -> Claim:
    """Return the claim of a job that was just taken; no function of the ledger takes it for one of its own."""
    return Claim(job.id, job.attempt, NO_LEDGER, job.fence, job.request_id)


def _running(session: Session, owner_id: str) -> int:
    own = (MockJob.owner_id == owner_id, MockJob.state.in_(RUNNING), MockJob.finished_at.is_(None))
    return session.execute(select(func.count()).select_from(MockJob).where(*own)).scalar_one()


def _oldest(session: Session, owner_id: str) -> MockJob | None:
    own = select(MockJob).where(MockJob.owner_id == owner_id, MockJob.state == "queued", MockJob.finished_at.is_(None))
    locked = own.order_by(MockJob.created_at, MockJob.id).limit(1).with_for_update(key_share=True, skip_locked=True)
    return session.execute(locked.execution_options(populate_existing=True)).scalar_one_or_none()


def _go(job: MockJob, state: str, at: float, **data: object) -> None:
    """Bring a locked job into a state: its history has a new line, and the claim of before holds no more."""
    ensure(job.state not in TERMINAL_STATES, f"{job.id} has ended")
    job.state = state
    if state != "cancelling":
        job.fence += 1 + secrets.randbits(FENCE_BITS)
    if state not in RUNNING:
        job.worker = job.lease_until = None
    if state in TERMINAL_STATES:
        job.finished_at = at
    job.history = [*job.history, {"kind": state, "data": data, "at": at}]


def lock(session: Session, job_id: str) -> MockJob:
    """Lock a mock job's row and return it as it is now.

    Raises:
        NotFound: there is no such mock job.
    """
    row = select(MockJob).where(MockJob.id == job_id).with_for_update(key_share=True)
    job = session.execute(row.execution_options(populate_existing=True)).scalar_one_or_none()
    if job is None:
        raise NotFound("There is no such job.")
    return job


def hold(session: Session, claim: Claim, states: Sequence[str] = ("running",)) -> tuple[MockJob, float]:
    """Lock a mock job and check that the claim still holds it; return it and the database's time.

    Raises:
        StaleAttempt: fence, state or lease is no longer the attempt's, or the claim is that of a job of records.
    """
    try:
        job = lock(session, claim.job_id)
    except NotFound as gone:
        raise StaleAttempt(f"{claim.job_id} is not known here.") from gone
    at = clock.read(session)
    own = (claim.fence_epoch, claim.fence, claim.attempt) == (NO_LEDGER, job.fence, job.attempt)
    if not own or job.state not in states or job.lease_until is None or job.lease_until <= at:
        raise StaleAttempt(f"Attempt {claim.attempt} no longer holds {claim.job_id}.")
    return job, at


def beat(session: Session, claim: Claim, lease_seconds: float) -> Beat:
    """Extend a lease that has not run out."""
    try:
        job, at = hold(session, claim, RUNNING)
    except StaleAttempt:
        return Beat(alive=False)
    job.lease_until = max(job.lease_until or 0.0, at + lease_seconds)
    session.flush()
    return Beat(alive=True, cancel=job.state == "cancelling")


def progress(session: Session, claim: Claim, step: int) -> None:
    """Publish the step counter.

    Raises:
        StaleAttempt: the claim no longer holds the job.
    """
    job, at = hold(session, claim)
    if step != job.step:
        job.step = step
        line = {"kind": "progress", "data": {"step": step, "steps": job.steps}, "at": at}
        job.history = [*job.history, line]
    session.flush()


def finish(session: Session, claim: Claim, release: Mapping[str, Any]) -> None:
    """Keep the release, which must be marked as mock, and end the job.

    Raises:
        StaleAttempt: the claim no longer holds the job.
    """
    ensure(release.get("mock") is True, "a mock job releases what is marked as mock")
    job, at = hold(session, claim)
    job.release, job.step = dict(release), job.steps
    _go(job, "succeeded", at, model=model_of(job.id))
    session.flush()


def fail(session: Session, claim: Claim, code: str, *, charge: Charge) -> None:
    """End a running mock job with a public failure code; there is nothing to charge.

    Raises:
        StaleAttempt: the claim no longer holds the job.
    """
    del charge
    job, at = hold(session, claim)
    _fail(job, code, at)
    session.flush()


def _fail(job: MockJob, code: str, at: float) -> None:
    ensure(code in FAILURE_CODES, f"{code} is not a failure code")
    job.error_code = code
    _go(job, "failed", at, code=code)


def cancel(session: Session, job: MockJob) -> None:
    """Cancel a locked mock job: a queued one at once, a running one through its supervisor, an ended one not at all."""
    if job.state in ("queued", "running"):
        _go(job, "cancelled" if job.state == "queued" else "cancelling", clock.read(session))
        session.flush()


def acknowledge_cancel(session: Session, claim: Claim) -> None:
    """End a mock job in `cancelling`, once its child is gone.

    Raises:
        StaleAttempt: the claim no longer holds the job, or nobody asked to cancel it.
    """
    job, at = hold(session, claim, ("cancelling",))
    _go(job, "cancelled", at)
    session.flush()


def release_claim(session: Session, claim: Claim) -> None:
    """Put a running mock job back into the queue; it begins anew.

    Raises:
        StaleAttempt: the claim no longer holds the job.
    """
    job, at = hold(session, claim)
    _go(job, "queued", at, reason=DRAINED)
    session.flush()


def sweep(
    session: Session, lease_seconds: float, max_attempts: int, queue_deadline_seconds: float, kept_seconds: float
) -> None:
    """Free what is lost, expire what waited too long, and forget what ended long ago.

    Args:
        session: an open write transaction, after that of `core.jobs.sweep`.
        lease_seconds: contact with the database after which leases count as lost.
        max_attempts: lost attempts after which a job is given up.
        queue_deadline_seconds: the longest wait.
        kept_seconds: the time that an ended mock job is kept.
    """
    at = clock.read(session)
    since, last = contact(session) or (at, at)
    never_started = (MockJob.attempt == 0) & (MockJob.expires_at <= at)
    late = or_(never_started, MockJob.created_at <= at - queue_deadline_seconds)
    due: ColumnElement[bool] = (MockJob.state == "queued") & late
    if last - since >= lease_seconds:
        due = or_(due, MockJob.state.in_(RUNNING) & (MockJob.lease_until <= at))
    found = select(MockJob).where(MockJob.finished_at.is_(None), due).order_by(MockJob.id).limit(BATCH)
    locked = found.with_for_update(key_share=True, skip_locked=True).execution_options(populate_existing=True)
    for job in session.execute(locked).scalars():
        if job.state == "queued":
            _go(job, "expired", at)
        elif job.state == "cancelling":
            _go(job, "cancelled", at)
        elif job.losses + 1 >= max_attempts:
            _fail(job, LOST, at)
        else:
            job.losses += 1
            _go(job, "queued", at, reason=LOST)
    session.flush()
    session.execute(delete(MockJob).where(MockJob.finished_at <= at - kept_seconds))
