"""Every transition of a job, and every missing one."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from core.base.errors import NotFound, StaleAttempt
from core.db import clock
from core.db.database import Database
from core.db.tables import FAILURE_CODES, JOB_STATES, TERMINAL_STATES, Attempt, Job, JobEvent, Model
from core.jobs import jobs
from core.jobs.sweep import CONTACT, Swept, sweep
from core.ledger import ledger
from core.ledger.claims import Claim, put_secret
from core.privacy.draws import MOST_RUNS
from tests.support.store import DRAWS, Place, make_place, submit

LEASE = 60.0
RELEASE = {"theta": [1.0]}
CHUNKS = 4


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


def bring(database: Database, place: Place, state: str) -> Claim:
    """Bring a new job into a state; return its last claim."""
    with database.write() as session:
        job_id = submit(session, place).id
    if state in ("queued", "expired"):
        if state == "expired":
            database.transaction(sweep, LEASE, 3, 0.0)
        return Claim(job_id, 0, "", 0)
    claim = database.transaction(jobs.claim, "w", LEASE)
    assert claim is not None
    match state:
        case "succeeded":
            database.transaction(jobs.finish, claim, RELEASE, "not-needed")
        case "failed":
            database.transaction(jobs.fail, claim, "trainer-failed", charge="all")
        case "cancelling" | "cancelled":
            database.transaction(jobs.cancel, job_id)
            if state == "cancelled":
                database.transaction(jobs.acknowledge_cancel, claim)
    return claim


def read_job(database: Database, job_id: str) -> Job:
    with database.read() as session:
        return session.get_one(Job, job_id)


def lose_lease(database: Database, job_id: str) -> None:
    """Let a job's lease run out this very moment."""
    with database.write() as session:
        session.execute(update(Job).where(Job.id == job_id).values(lease_until=clock.read(session)))


def sweep_in_contact(database: Database, max_attempts: int = 3) -> Swept:
    """Sweep as one who has been in contact with the database for more than a lease."""
    with database.write() as session:
        put_secret(session, CONTACT, f"1.0 {clock.read(session)!r}")
        return sweep(session, LEASE, max_attempts, 1e9)


TRANSITIONS: dict[str, Callable[[Session, Claim], object]] = {
    "beat": lambda session, claim: jobs.beat(session, claim, LEASE),
    "mark_opened": jobs.mark_opened,
    "progress": lambda session, claim: jobs.progress(session, claim, 1),
    "spend": lambda session, claim: ledger.pay(session, claim, 0, None, 1),
    "keep": lambda session, claim: ledger.keep(session, claim, b"state", 1),
    "finish": lambda session, claim: jobs.finish(session, claim, RELEASE, "not-needed"),
    "fail": lambda session, claim: jobs.fail(session, claim, "trainer-failed", charge="all"),
    "release_claim": jobs.release_claim,
    "acknowledge_cancel": jobs.acknowledge_cancel,
}
REACHES = {
    ("running", "beat"): "running",
    ("running", "mark_opened"): "running",
    ("running", "progress"): "running",
    ("running", "spend"): "running",
    ("running", "keep"): "running",
    ("running", "finish"): "succeeded",
    ("running", "fail"): "failed",
    ("running", "release_claim"): "queued",
    ("cancelling", "beat"): "cancelling",
    ("cancelling", "acknowledge_cancel"): "cancelled",
}


@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("state", JOB_STATES)
def test_transitions_and_missing_transitions(database: Database, place: Place, state: str, transition: str) -> None:
    claim = bring(database, place, state)
    before = read_job(database, claim.job_id)
    assert before.state == state
    reached = REACHES.get((state, transition))
    if reached is not None:
        database.transaction(TRANSITIONS[transition], claim)
        assert read_job(database, claim.job_id).state == reached
        return
    if transition == "beat":
        assert not database.transaction(jobs.beat, claim, LEASE).alive
    else:
        with pytest.raises(StaleAttempt):
            database.transaction(TRANSITIONS[transition], claim)
    after = read_job(database, claim.job_id)
    assert (after.state, after.fence, after.event_seq) == (before.state, before.fence, before.event_seq)


@pytest.mark.parametrize("state", JOB_STATES)
def test_cancelling(database: Database, place: Place, state: str) -> None:
    claim = bring(database, place, state)
    before = read_job(database, claim.job_id)
    database.transaction(jobs.cancel, claim.job_id)
    after = read_job(database, claim.job_id)
    reached = {"queued": "cancelled", "running": "cancelling"}
    assert after.state == reached.get(state, state)
    if state not in reached:
        assert (after.event_seq, after.finished_at) == (before.event_seq, before.finished_at)


def test_cancelling_nothing(database: Database) -> None:
    with pytest.raises(NotFound):
        database.transaction(jobs.cancel, "job_none")


@pytest.mark.parametrize("state", JOB_STATES)
def test_only_queued_jobs_are_claimed(database: Database, place: Place, state: str) -> None:
    bring(database, place, state)
    assert (database.transaction(jobs.claim, "w2", LEASE) is not None) is (state == "queued")


def test_claims_are_oldest_first_and_once(database: Database, place: Place) -> None:
    ids = []
    for _ in range(3):
        with database.write() as session:
            ids.append(submit(session, place).id)
    claims = [database.transaction(jobs.claim, "w", LEASE) for _ in range(4)]
    assert [claim and claim.job_id for claim in claims] == [*ids, None]


@pytest.mark.parametrize("state", TERMINAL_STATES)
def test_an_end_is_the_last_line_and_gives_everything_back_or_charges_it(
    database: Database, place: Place, state: str
) -> None:
    claim = bring(database, place, state)
    with database.read() as session:
        history = jobs.events(session, claim.job_id)
        balance = ledger.balance(session, place.scope_id)
        assert ledger.verify(session, place.scope_id).ok
    assert [event.seq for event in history] == list(range(1, len(history) + 1))
    assert history[-1].kind == state
    assert not any(balance.reserved)
    assert any(balance.spent) is (state == "failed")


def test_events_page(database: Database, place: Place) -> None:
    claim = bring(database, place, "running")
    for step in (1, 2, 3):
        database.transaction(jobs.progress, claim, step)
    with database.read() as session:
        assert [event.seq for event in jobs.events(session, claim.job_id, after=2, limit=2)] == [3, 4]
        kinds = [event.kind for event in session.execute(select(JobEvent).order_by(JobEvent.seq)).scalars()]
    assert kinds == ["queued", "running", "progress", "progress", "progress"]


def test_beats_extend_and_tell_of_a_cancel(database: Database, place: Place) -> None:
    claim = bring(database, place, "running")
    before = read_job(database, claim.job_id).lease_until
    assert database.transaction(jobs.beat, claim, 2 * LEASE) == jobs.Beat(alive=True)
    assert read_job(database, claim.job_id).lease_until > before
    database.transaction(jobs.cancel, claim.job_id)
    assert database.transaction(jobs.beat, claim, LEASE) == jobs.Beat(alive=True, cancel=True)


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_an_attempt_past_its_lease_writes_nothing(database: Database, place: Place, transition: str) -> None:
    claim = bring(database, place, "cancelling" if transition == "acknowledge_cancel" else "running")
    lose_lease(database, claim.job_id)
    if transition == "beat":
        lost = read_job(database, claim.job_id).lease_until
        assert not database.transaction(jobs.beat, claim, LEASE).alive
        assert read_job(database, claim.job_id).lease_until == lost
    else:
        with pytest.raises(StaleAttempt):
            database.transaction(TRANSITIONS[transition], claim)


@pytest.mark.parametrize("transition", [transition for transition in TRANSITIONS if transition != "beat"])
def test_a_stalled_attempt_wakes_after_another_took_over(database: Database, place: Place, transition: str) -> None:
    stale = bring(database, place, "running")
    lose_lease(database, stale.job_id)
    sweep_in_contact(database)
    fresh = database.transaction(jobs.claim, "w2", LEASE)
    assert fresh is not None
    assert (fresh.job_id, fresh.attempt) == (stale.job_id, 2)
    with pytest.raises(StaleAttempt):
        database.transaction(TRANSITIONS[transition], stale)
    database.transaction(jobs.finish, fresh, RELEASE, "not-needed")


def test_sweepers_wait_for_one_lease_of_contact(database: Database, place: Place) -> None:
    claim = bring(database, place, "running")
    lose_lease(database, claim.job_id)
    assert database.transaction(sweep, LEASE, 3, 1e9).requeued == []
    assert database.transaction(sweep, LEASE, 3, 1e9).requeued == []
    assert sweep_in_contact(database).requeued == [claim.job_id]


def test_a_lost_attempt_that_paid_nothing_is_free(database: Database, place: Place) -> None:
    claim = bring(database, place, "running")
    lose_lease(database, claim.job_id)
    sweep_in_contact(database)
    with database.read() as session:
        assert session.get_one(Job, claim.job_id).state == "queued"
        assert session.get_one(Attempt, (claim.job_id, 1)).outcome == "worker-lost"
        assert not any(ledger.balance(session, place.scope_id).spent)


def test_without_an_allowance_a_lost_chunk_ends_its_job(database: Database, place: Place) -> None:
    claim = bring(database, place, "running")
    database.transaction(ledger.pay, claim, 0, None, 0)
    lose_lease(database, claim.job_id)
    sweep_in_contact(database)
    job = read_job(database, claim.job_id)
    assert (job.state, job.error_code) == ("failed", "worker-lost")
    with database.read() as session:
        balance = ledger.balance(session, place.scope_id)
    assert list(balance.spent) == job.chunks[place.scope_id][0][: len(balance.spent)]
    assert not any(balance.reserved)


def test_a_drained_attempt_resumes_from_what_was_kept(database: Database, place: Place) -> None:
    claim = bring(database, place, "running")
    database.transaction(ledger.pay, claim, 0, None, 0)
    database.transaction(ledger.pay, claim, 1, b"one chunk", 1)
    database.transaction(ledger.keep, claim, b"two chunks", 2)
    database.transaction(jobs.release_claim, claim)
    again = database.transaction(jobs.claim, "w2", LEASE)
    assert again is not None
    with database.read() as session:
        kept = ledger.last_kept(session, claim.job_id)
    assert kept is not None
    assert (kept.chunk, kept.state) == (2, b"two chunks")
    database.transaction(ledger.pay, again, 2, b"two chunks", 2)
    database.transaction(ledger.pay, again, 3, b"three chunks", 3)
    database.transaction(jobs.finish, again, RELEASE, "not-needed")
    with database.read() as session:
        assert session.get_one(Job, claim.job_id).chunks_spent == CHUNKS
        assert ledger.verify(session, place.scope_id).ok


def test_without_an_allowance_draining_with_a_chunk_that_was_not_kept_fails(database: Database, place: Place) -> None:
    claim = bring(database, place, "running")
    database.transaction(ledger.pay, claim, 0, None, 0)
    database.transaction(jobs.release_claim, claim)
    assert read_job(database, claim.job_id).error_code == "worker-lost"


def test_a_kept_release_makes_a_retry_free(database: Database, place: Place) -> None:
    claim = bring(database, place, "running")
    for chunk in range(CHUNKS):
        database.transaction(ledger.pay, claim, chunk, b"state", chunk)
    database.transaction(ledger.keep, claim, b"release", CHUNKS)
    lose_lease(database, claim.job_id)
    sweep_in_contact(database)
    again = database.transaction(jobs.claim, "w2", LEASE)
    assert again is not None
    with database.read() as session:
        before = ledger.balance(session, place.scope_id)
    database.transaction(jobs.finish, again, RELEASE, "pending")
    with database.read() as session:
        one_run = replace(before, draws=DRAWS // MOST_RUNS)  # the second attempt reads nothing
        assert ledger.balance(session, place.scope_id) == one_run
        assert session.execute(select(Model.approval)).scalar_one() == "pending"


@pytest.mark.parametrize("opened", [True, False])
def test_drained_attempts_do_not_count_and_lost_ones_do(database: Database, place: Place, *, opened: bool) -> None:
    job_id = bring(database, place, "queued").job_id
    for _ in range(5):
        claim = database.transaction(jobs.claim, "w", LEASE)
        database.transaction(jobs.release_claim, claim)
    for lost in (1, 2, 3):
        claim = database.transaction(jobs.claim, "w", LEASE)
        assert claim is not None
        assert claim.attempt == 5 + lost
        if opened and lost == 1:
            database.transaction(jobs.mark_opened, claim)
        lose_lease(database, job_id)
        sweep_in_contact(database, max_attempts=3)
    job = read_job(database, job_id)
    assert (job.state, job.error_code) == ("failed", "worker-lost")
    with database.read() as session:
        balance = ledger.balance(session, place.scope_id)
    whole = job.chunks[place.scope_id][-1][: len(balance.spent)]
    assert list(balance.spent) == (whole if opened else [0] * len(whole)), "who opened nothing pays nothing"


def test_a_lost_lease_ends_a_cancelling_job(database: Database, place: Place) -> None:
    claim = bring(database, place, "cancelling")
    lose_lease(database, claim.job_id)
    sweep_in_contact(database)
    assert read_job(database, claim.job_id).state == "cancelled"


def test_jobs_that_waited_too_long_expire(database: Database, place: Place) -> None:
    claim = bring(database, place, "queued")
    assert database.transaction(sweep, LEASE, 3, 1000.0).expired == []
    again = database.transaction(jobs.claim, "w", LEASE)
    database.transaction(jobs.release_claim, again)
    assert database.transaction(sweep, LEASE, 3, 1000.0).expired == []
    assert database.transaction(sweep, LEASE, 3, 0.0).expired == [claim.job_id]


@pytest.mark.parametrize("code", FAILURE_CODES)
@pytest.mark.parametrize(("charge", "opened"), [("spent", True), ("all", False), ("opened", True), ("opened", False)])
def test_failures_charge_what_they_must(
    database: Database, place: Place, code: str, charge: str, *, opened: bool
) -> None:
    claim = bring(database, place, "running")
    if opened:
        database.transaction(jobs.mark_opened, claim)
    database.transaction(ledger.pay, claim, 0, None, 0)
    database.transaction(jobs.fail, claim, code, charge=charge)
    job = read_job(database, claim.job_id)
    with database.read() as session:
        balance = ledger.balance(session, place.scope_id)
        whole = charge == "all" or (charge == "opened" and opened)
        upto = CHUNKS if whole else 1
        assert sum(ledger.executed(session, place.scope_id).values()) == upto
    assert list(balance.spent) == job.chunks[place.scope_id][upto - 1][: len(balance.spent)]
    assert not any(balance.reserved)
    assert job.error_code == code


def test_an_unknown_failure_code_is_a_bug(database: Database, place: Place) -> None:
    claim = bring(database, place, "running")
    with pytest.raises(AssertionError, match="not a failure code"):
        database.transaction(jobs.fail, claim, "loss was 3.14", charge="all")


def test_the_process_clock_has_no_say_in_leases(
    database: Database, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shift in (-3600.0, 3600.0):
        real = time.time()
        monkeypatch.setattr(time, "time", lambda real=real, shift=shift: real + shift)
        monkeypatch.setattr(time, "time_ns", lambda real=real, shift=shift: int((real + shift) * 1e9))
        claim = bring(database, place, "running")
        assert database.transaction(jobs.beat, claim, LEASE).alive
        database.transaction(ledger.pay, claim, 0, None, 0)
        assert database.transaction(sweep, LEASE, 3, 1800.0).expired == []
        database.transaction(jobs.finish, claim, RELEASE, "not-needed")
        monkeypatch.undo()
