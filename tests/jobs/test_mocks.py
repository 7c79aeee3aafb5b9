"""A mock job reads no record and touches no ledger, and none is taken for a job of records, nor that for one."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError, NoResultFound

from core.base.errors import PrivacyInvariantError, StaleAttempt
from core.base.settings import ServiceSettings
from core.data.columns import Column
from core.db import clock
from core.db.database import Database
from core.db.service_tables import Secret
from core.db.tables import Entry, Job, Model, Principal
from core.jobs import jobs, mocks
from core.jobs.mocks import MockJob
from core.jobs.sweep import CONTACT
from core.ledger import ledger
from core.ledger.claims import Claim, put_secret
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.planning.job import JobSpec
from core.planning.planner import plan_job
from core.privacy.events import EVENT
from core.privacy.facts import Adjacency
from core.training import mock
from core.training.job_repository import JobRepository
from core.training.ledger_writer import FencedLedgerWriter
from core.training.mock_order import NOWHERE, MockOrder, is_keyless, keyless
from core.training.order import Failed, PublicInput, read_order
from tests.support.embedded import COLUMNS, LOGISTIC
from tests.support.store import TERMS, Place, make_place, submit
from tests.support.unchecked import accepting
from workers.wire import TrainerMessage

LEASE = 60.0
DECLARED = TypeAdapter(list[Column]).validate_python(COLUMNS)
MARKED: dict[str, Any] = {"theta": [1.0], "mock": True}


def facts() -> dict[str, Any]:
    """Return the columns of a small mock job's row."""
    body = {"model": LOGISTIC, "optimizer": {"kind": "noisy_newton", "steps": 3}, "privacy": {"mu": "1"}}
    spec = JobSpec.model_validate(accepting(body))
    planned = plan_job(spec, columns=DECLARED, units=500, adjacency=Adjacency.ZERO_OUT, terms=TERMS)
    return {
        "spec": planned.spec.model_dump(mode="json"),
        "columns": COLUMNS,
        "rows": 500,
        "adjacency": "zero_out",
        "terms": TERMS.model_dump(mode="json"),
        "schedule": [EVENT.dump_python(event, mode="json") for event in planned.schedule],
        "cost": {},
        "steps": 3,
        "labels": {},
    }


def add(database: Database, place: Place, owner_id: str | None = None) -> str:
    """Store a mock job and return its id."""
    with database.write() as session:
        owner = owner_id or place.principal_id
        job = mocks.draft(clock.read(session), owner, place.dataset_id, **facts())
        session.add(job)
        session.flush()
        return job.id


def take(database: Database, most_running: int = 10) -> tuple[Claim, MockOrder] | None:
    """Claim the next mock job."""
    with database.write() as session:
        job = mocks.claim(session, "w", LEASE, most_running)
        return None if job is None else (mocks.claim_of(job), MockOrder.of(job))


def taken(database: Database) -> tuple[Claim, MockOrder]:
    found = take(database)
    assert found is not None
    return found


def read(database: Database, job_id: str) -> MockJob:
    with database.read() as session:
        job = session.get_one(MockJob, job_id)
        assert job.release is None or job.release["mock"]
        return job


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


@pytest.fixture
def settings(database: Database, tmp_path: Path) -> ServiceSettings:
    home = tmp_path / "home"
    return ServiceSettings(home=home, database_url=database.engine.url.render_as_string(hide_password=False))


def test_a_row_has_no_place_for_a_scope_a_key_or_records() -> None:
    forbidden = {"scope_id", "grant_id", "location", "location_digest", "wrapped_key", "site", "chunks", "allowance"}
    assert not forbidden & set(MockJob.__table__.columns.keys())
    fields = set(MockOrder.model_fields) | set(PublicInput.__dataclass_fields__)
    assert not fields & {"records", "dataset_id", "dataset_key", "location", "scope_id"}
    owners = {key.target_fullname for key in MockJob.__table__.foreign_keys}
    assert owners == {"principals.id", "datasets.id"}


def test_an_identifier_of_the_other_kind_is_refused_by_the_table(database: Database, place: Place) -> None:
    with pytest.raises(IntegrityError), database.write() as session:  # noqa: PT012 - fails at the flush
        job = mocks.draft(0.0, place.principal_id, place.dataset_id, **facts())
        job.id = job.id.replace("mock_", "job_")
        session.add(job)
        session.flush()


def test_a_claim_of_one_kind_does_nothing_to_the_other(database: Database, place: Place) -> None:
    """Each is a planted bug: every transition of a job, with the claim of the other kind."""
    with database.write() as session:
        submit(session, place)
    real = database.transaction(jobs.claim, "w", LEASE)
    assert real is not None
    add(database, place)
    made, _ = taken(database)
    with database.read() as session:
        before = session.execute(select(func.count()).select_from(Entry)).scalar_one()
    for module, claim in ((jobs, made), (mocks, real), (mocks, replace(real, job_id=made.job_id))):
        for act in (module.progress, lambda session, one, _: module.release_claim(session, one)):  # noqa: B023 - at once
            with pytest.raises(StaleAttempt):
                database.transaction(act, claim, 1)
        with pytest.raises(StaleAttempt):
            database.transaction(module.fail, claim, "trainer-failed", charge="all")
        with pytest.raises(StaleAttempt):
            database.transaction(module.acknowledge_cancel, claim)
        assert not database.transaction(module.beat, claim, LEASE).alive
    with pytest.raises(StaleAttempt):
        database.transaction(jobs.finish, made, {"theta": [1.0]}, "not-needed")
    with pytest.raises(StaleAttempt):
        database.transaction(mocks.finish, real, MARKED)
    with pytest.raises(StaleAttempt):
        database.transaction(jobs.mark_opened, made)
    with pytest.raises(StaleAttempt):
        database.transaction(ledger.pay, made, 0, None, 0)
    with database.read() as session:
        assert session.execute(select(func.count()).select_from(Entry)).scalar_one() == before
        assert session.execute(select(func.count()).select_from(Model)).scalar_one() == 0
        assert session.get_one(Job, real.job_id).state == "running"
    assert read(database, made.job_id).state == "running"


def test_a_release_is_marked_where_it_must_be_and_nowhere_else(database: Database, place: Place) -> None:
    with database.write() as session:
        submit(session, place)
    real = database.transaction(jobs.claim, "w", LEASE)
    assert real is not None
    with pytest.raises(PrivacyInvariantError, match="marked as mock"):
        database.transaction(jobs.finish, real, MARKED, "not-needed")
    add(database, place)
    made, _ = taken(database)
    for unmarked in ({"theta": [1.0]}, {"theta": [1.0], "mock": False}):
        with pytest.raises(PrivacyInvariantError, match="marked as mock"):
            database.transaction(mocks.finish, made, unmarked)
    database.transaction(mocks.finish, made, MARKED)
    assert read(database, made.job_id).state == "succeeded"


def test_an_order_of_the_wrong_kind_is_refused(database: Database, place: Place, settings: ServiceSettings) -> None:
    """Each is a planted bug: a mock job with the master key, with a place of records, without its declaration."""
    add(database, place)
    made, order = taken(database)
    real, safe = Claim("job_1", 1, "epoch", 1), keyless(settings)
    assert TrainerMessage(claim=made, settings=safe, memory_bytes=1, mock=order).mock == order
    assert TrainerMessage(claim=real, settings=settings, memory_bytes=1).mock is None
    leaks: list[dict[str, Any]] = [
        {"settings": settings},
        {"settings": safe.model_copy(update={"home": settings.home})},
        {"settings": safe.model_copy(update={"master_key": "c2VjcmV0"})},
        {"settings": safe.model_copy(update={"master_key_file": settings.home / "master.key"})},
        {"settings": safe.model_copy(update={"storage_url": "s3://records"})},
        {"settings": safe.model_copy(update={"witness": settings.home / "witness.jsonl"})},
        {"claim": real},
        {"mock": None},
    ]
    for leak in leaks:
        with pytest.raises(ValidationError, match="mock job"):
            TrainerMessage(**{"claim": made, "settings": safe, "memory_bytes": 1, "mock": order, **leak})


def test_settings_without_keys_name_no_place_of_the_services_own(settings: ServiceSettings) -> None:
    full = settings.model_copy(
        update={"master_key": "k", "admin_key": "a", "smtp_password": "p", "storage_url": "s3://r"}
    )
    safe = keyless(full)
    assert is_keyless(safe)
    assert not is_keyless(full)
    assert safe.url == full.url
    told = safe.model_dump_json(exclude={"database_url"})
    for secret in ('"k"', '"a"', '"p"', "s3://r", str(settings.home)):
        assert secret not in told
    fresh = ServiceSettings.model_validate_json(safe.model_dump_json())
    places = (fresh.records_path, fresh.master_key_path, fresh.signing_key_path, Path(fresh.witness_path))
    assert all(place.is_relative_to(NOWHERE) for place in places)
    assert not NOWHERE.exists()


def test_it_trains_where_there_are_neither_records_nor_keys(
    database: Database, place: Place, settings: ServiceSettings
) -> None:
    add(database, place)
    made, order = taken(database)
    with database.read() as session:
        before = session.execute(select(func.count()).select_from(Entry)).scalar_one()
    assert not settings.home.exists()
    with pytest.raises(Failed):  # planted: with the settings of a job of records
        mock.carry_out(database, settings, made, order, lambda: False)
    with pytest.raises(Failed):  # planted: as a job of records
        mock.carry_out(database, keyless(settings), replace(made, job_id="job_1"), order, lambda: False)
    other = order.model_copy(update={"schedule": order.schedule[1:]})
    with pytest.raises(Failed):  # planted: a plan that draws otherwise than was priced
        mock.carry_out(database, keyless(settings), made, other, lambda: False)
    mock.carry_out(database, keyless(settings), made, order, lambda: False)
    job = read(database, made.job_id)
    assert job.state == "succeeded"
    assert job.release is not None
    assert job.release["units"] == 500
    with database.read() as session:
        assert session.execute(select(func.count()).select_from(Entry)).scalar_one() == before
        assert session.execute(select(func.count()).select_from(Model)).scalar_one() == 0


def test_an_attempt_at_records_finds_no_order_for_a_mock_job(
    database: Database, place: Place, settings: ServiceSettings
) -> None:
    add(database, place)
    made, _ = taken(database)
    with pytest.raises(NoResultFound):
        FencedLedgerWriter(database, made, settings).ask(read_order)


def test_jobs_of_records_come_first(database: Database, place: Place, settings: ServiceSettings) -> None:
    assert guard(database, Witness(settings.witness_path)) == []
    made = add(database, place)
    with database.write() as session:
        real = submit(session, place).id
    repository = JobRepository(database, settings, "w")
    order = []
    for _ in range(3):
        found = repository.claim(("auto", "cpu"))
        order.append(None if found is None else (found.claim.job_id, found.mock is not None))
    assert order == [(real, False), (made, True), None]


def test_a_mock_job_is_outranked_by_a_job_that_could_start(
    database: Database, place: Place, settings: ServiceSettings
) -> None:
    add(database, place)
    repository = JobRepository(database, settings, "w")
    assert not repository.is_outranked(("auto", "cpu"))
    with database.write() as session:
        submit(session, place)
    assert repository.is_outranked(("auto", "cpu"))
    few = settings.model_copy(update={"max_running_per_principal": 1})
    assert database.transaction(jobs.claim, "w", LEASE) is not None
    with database.write() as session:
        submit(session, place)
    assert not JobRepository(database, few, "w").is_outranked(("auto", "cpu"))  # it waits for its owner's other job
    assert repository.is_outranked(("auto", "cpu"))


def test_a_slot_with_a_gpu_and_a_site_of_its_own_take_none(
    database: Database, place: Place, settings: ServiceSettings
) -> None:
    add(database, place)
    assert JobRepository(database, settings, "w").claim(("auto", "cuda")) is None
    away = settings.model_copy(update={"site": "north"})
    assert JobRepository(database, away, "w").claim(("auto", "cpu")) is None


def test_one_principal_runs_no_more_than_its_quota_and_the_least_busy_comes_first(
    database: Database, place: Place
) -> None:
    other = make_place(database)
    first, second = add(database, place), add(database, place)
    third = add(database, place, other.principal_id)
    assert taken(database)[0].job_id == first
    assert taken(database)[0].job_id == third  # although the second waits longer
    assert take(database, most_running=1) is None
    assert taken(database)[0].job_id == second


def test_a_disabled_principal_starts_none(database: Database, place: Place) -> None:
    add(database, place)
    with database.write() as session:
        session.execute(update(Principal).where(Principal.id == place.principal_id).values(disabled_at=1.0))
    assert take(database) is None


def test_lost_leases_late_jobs_and_old_ones_are_swept(database: Database, place: Place) -> None:
    lost, late, old = add(database, place), add(database, place), add(database, place)
    with database.write() as session:
        at = clock.read(session)
        ended = {"state": "cancelled", "finished_at": at - 100}
        session.execute(update(MockJob).where(MockJob.id == old).values(**ended))
        session.execute(update(MockJob).where(MockJob.id == late).values(expires_at=at - 1))
        session.execute(update(MockJob).where(MockJob.id == lost).values(created_at=at - 10))
    for number in range(1, 4):
        claim, _ = taken(database)
        assert (claim.job_id, claim.attempt) == (lost, number)
        with database.write() as session:
            session.execute(update(MockJob).where(MockJob.id == lost).values(lease_until=clock.read(session)))
        database.transaction(mocks.sweep, LEASE, 3, 1e9, 99.0)
        assert read(database, lost).state == "running"  # no contact with the database for a lease yet
        with database.write() as session:
            put_secret(session, CONTACT, f"1.0 {clock.read(session)!r}")
            mocks.sweep(session, LEASE, 3, 1e9, 99.0)
        with pytest.raises(StaleAttempt):
            database.transaction(mocks.finish, claim, MARKED)
        with database.write() as session:
            session.execute(Secret.__table__.delete().where(Secret.name == CONTACT))  # type: ignore[attr-defined]
    assert (read(database, lost).state, read(database, lost).error_code) == ("failed", "worker-lost")
    assert read(database, late).state == "expired"
    with database.read() as session:
        assert session.get(MockJob, old) is None


def test_cancelling(database: Database, place: Place) -> None:
    waiting = add(database, place)
    with database.write() as session:
        mocks.cancel(session, mocks.lock(session, waiting))
    assert read(database, waiting).state == "cancelled"
    running = add(database, place)
    claim, _ = taken(database)
    with database.write() as session:
        mocks.cancel(session, mocks.lock(session, running))
    assert database.transaction(mocks.beat, claim, LEASE).cancel
    database.transaction(mocks.acknowledge_cancel, claim)
    job = read(database, running)
    assert (job.state, [line["kind"] for line in job.history]) == (
        "cancelled",
        ["queued", "running", "cancelling", "cancelled"],
    )
    with database.write() as session:
        mocks.cancel(session, mocks.lock(session, running))
    assert read(database, running).state == "cancelled"


def test_what_trainers_load_ahead_holds_no_arrow() -> None:
    """Arrow starts a thread, and a process with two cannot be forked: each job would load everything anew."""
    found = "import sys; import core.training.mock, core.training.federated; print('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", found], check=True, capture_output=True).stdout == b"False\n"
