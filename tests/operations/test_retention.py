"""Rows with a retention time are deleted in time, in batches, and nothing else is deleted with them."""

from pathlib import Path

import pytest
from sqlalchemy import insert, select, update

from core.access.bootstrap import first_admin
from core.base.errors import ModelRetired
from core.base.settings import ServiceSettings
from core.data.datasets import parse_metadata
from core.db.database import Database
from core.db.tables import Checkpoint, Dataset, Entry, Job, Model
from core.jobs import jobs
from core.ledger import ledger
from core.ledger.claims import Claim
from core.operations import retention
from core.operations.retention import BATCH, RETIRED
from core.records import datasets
from core.records.master_key import prepare_master_key
from core.service import jobs as job_service
from core.service import models, readings, uploads
from core.service.context import Context
from core.service.witnessing import start
from tests.support import entry
from tests.support.api import csv, metadata
from tests.support.store import Place, make_place, submit

LEASE = 60.0
DAY = 86400.0


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


def finished(database: Database, place: Place) -> Claim:
    """Let a job train, keep a state, and succeed."""
    with database.write() as session:
        submit(session, place)
    claim = database.transaction(jobs.claim, "w", LEASE)
    assert claim is not None
    database.transaction(ledger.pay, claim, 0, b"a noised state", 1)
    database.transaction(jobs.finish, claim, {"theta": [1.0]}, "not-needed")
    return claim


def age(database: Database, seconds: float) -> None:
    """Let all that ended, and all that was made, have done so a while ago."""
    with database.write() as session:
        session.execute(update(Job).values(finished_at=Job.finished_at - seconds))
        session.execute(update(Model).values(created_at=Model.created_at - seconds))


def count_states(database: Database) -> int:
    with database.read() as session:
        return len(session.execute(select(Checkpoint.job_id)).all())


class TestStates:
    def test_of_a_job_that_ended_long_ago_go(self, database: Database, place: Place) -> None:
        claim = finished(database, place)
        assert count_states(database) == 1
        assert database.transaction(retention.drop_states, DAY) == []
        age(database, DAY)
        assert database.transaction(retention.drop_states, DAY) == [claim.job_id]
        assert count_states(database) == 0
        assert database.transaction(retention.drop_states, DAY) == []

    def test_of_a_live_job_stay(self, database: Database, place: Place) -> None:
        with database.write() as session:
            submit(session, place)
        claim = database.transaction(jobs.claim, "w", LEASE)
        assert claim is not None
        database.transaction(ledger.pay, claim, 0, b"a noised state", 1)
        age(database, 100 * DAY)
        assert database.transaction(retention.drop_states, 0.001) == []
        assert count_states(database) == 1

    def test_go_in_batches(self, database: Database, place: Place) -> None:
        claim = finished(database, place)
        age(database, DAY)
        with database.write() as session:
            row = session.get_one(Job, claim.job_id)
            columns = {column.name: getattr(row, column.name) for column in Job.__table__.columns}
            made = [{**columns, "id": f"job_{number:04}"} for number in range(BATCH + 5)]
            session.execute(insert(Job), made)
            state = {"chunk": 1, "attempt": 1, "state": b"x", "created_at": 0.0}
            session.execute(insert(Checkpoint), [{**state, "job_id": one["id"]} for one in made])
        assert [len(database.transaction(retention.drop_states, DAY)) for _ in range(3)] == [BATCH, 6, 0]


class TestErasure:
    def test_waits_for_a_trainer_that_may_still_leave(self, database: Database, place: Place) -> None:
        finished(database, place)
        with database.write() as session:
            datasets.lock(session, place.dataset_id).state = "erasing"
        with database.read() as session:
            assert list(datasets.erasable(session, LEASE)) == [], "its trainer published, and was not reaped for sure"
        assert not database.transaction(datasets.destroy_key, place.dataset_id, LEASE)
        age(database, LEASE)
        with database.read() as session:
            assert [name for name, _ in datasets.erasable(session, LEASE)] == [place.dataset_id]
        assert database.transaction(datasets.destroy_key, place.dataset_id, LEASE)

    def test_takes_the_states_and_leaves_models_and_ledger(self, database: Database, place: Place) -> None:
        finished(database, place)
        age(database, LEASE)
        with database.write() as session:
            datasets.lock(session, place.dataset_id).state = "erasing"
        assert database.transaction(datasets.mark_erased, place.dataset_id)
        assert count_states(database) == 0
        with database.read() as session:
            assert session.get_one(Dataset, place.dataset_id).state == "erased"
            assert len(session.execute(select(Model.id)).all()) == 1
            kinds = session.execute(select(Entry.kind).order_by(Entry.seq)).scalars().all()
        assert kinds == ["open", "upload", "reserve", "read", "spend", "settle"]


class TestModels:
    def test_are_kept_for_ever_unless_a_limit_is_set(self, database: Database, place: Place) -> None:
        finished(database, place)
        age(database, 10_000 * DAY)
        assert database.transaction(retention.retire_models, None) == []

    def test_go_with_the_state_that_holds_them(self, database: Database, place: Place) -> None:
        finished(database, place)
        assert database.transaction(retention.retire_models, DAY) == []
        age(database, DAY)
        (retired,) = database.transaction(retention.retire_models, DAY)
        with database.read() as session:
            model = session.get_one(Model, retired)
            assert (model.release, model.approval) == ({}, RETIRED)
        assert count_states(database) == 0
        assert database.transaction(retention.retire_models, DAY) == []

    def test_are_gone_for_who_asks_and_their_jobs_and_reports_stay(self, database: Database, tmp_path: Path) -> None:
        settings = ServiceSettings(home=tmp_path, visible_grid_seconds=0, database_url=str(database.url))
        settings.records_path.mkdir()
        prepare_master_key(settings, ())
        context = Context(settings, database)
        start(context)
        caller = entry.holder(context, database.transaction(first_admin, None) or "")
        assert caller is not None
        made, _ = uploads.create(context, caller, parse_metadata(metadata()), None, [csv(100)], None)
        claim = finished(database, Place(caller.id, made["scope"], made["id"]))
        with database.write() as session:
            model = session.execute(select(Model.id)).scalar_one()
        assert models.get(context, caller, model).release == {"theta": [1.0]}
        age(database, DAY)
        database.transaction(retention.retire_models, DAY)
        for ask in (models.get, models.export_json, readings.methods):
            with pytest.raises(ModelRetired, match="clone the job"):
                ask(context, caller, model)
        view = job_service.get(context, caller, claim.job_id)
        assert (view.state, view.approval, view.result) == ("succeeded", RETIRED, None)
        entries = job_service.report(context, caller, claim.job_id)["ledger"]["entries"]
        assert entries == 6, "opened, uploaded, reserved, read, spent, settled"
