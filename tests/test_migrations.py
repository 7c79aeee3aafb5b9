"""Migrations: the effect of each on tables; a database of the first release is read, upgraded and verified."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData, inspect, select, text

from core.base.errors import NotReady
from core.db.base import Base
from core.db.database import Database
from core.db.revisions import REVISION_TABLE, alembic_config
from core.db.tables import Job, Model, Scope
from core.inference.exports import export_of
from core.ledger import ledger
from examples import verify_ledger
from farthing import Client, certificates
from farthing.errors import FarthingError
from tests.support.embedded import KEY, LINEAR, ROOT, embedded
from tests.support.release_home import load
from tests.support.store import create_postgresql
from tests.support.verified import verified

FIRST = ROOT / "tests" / "data" / "home-0.1.0"
"""A home that 0.1.0 made: `tests.support.release_home`. It is never made again."""
EMPTY = {"audit_archives", "approvals", "public_weights", "seats", "uploads", "workers"}
"""Tables that it has no rows of: of federations, sites and maintenance."""


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, worker_id: str) -> Iterator[Database]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        url = f"sqlite+pysqlite:///{tmp_path / 'empty.sqlite'}"
    else:
        name = f"empty_{worker_id}_{tmp_path.name}".lower()
        url = create_postgresql(request.getfixturevalue("postgresql_server"), name)
    made = Database(url)
    yield made
    made.dispose()


@pytest.fixture
def first_home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    load(FIRST, home)
    return home


def migrate(connection: Connection, revision: str) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    connection.commit()


def described(connection: Connection) -> dict[str, Any]:
    """Return every table as the database sees it: columns by name, keys, checks, and the triggers."""
    seen = inspect(connection)
    tables: dict[str, Any] = {}
    for name in seen.get_table_names():
        columns = {column["name"]: column for column in seen.get_columns(name)}
        tables[name] = {
            "columns": {
                key: (str(one["type"]), one["nullable"], one["default"] is not None) for key, one in columns.items()
            },
            "primary": seen.get_pk_constraint(name)["constrained_columns"],
        }
    kept = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    if connection.dialect.name != "sqlite":
        kept = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
    tables["triggers"] = sorted(connection.execute(text(kept)).scalars())
    connection.rollback()
    return tables


def test_each_step_only_adds_and_leaves_the_triggers(database: Database) -> None:
    steps = [step.revision for step in ScriptDirectory.from_config(alembic_config()).walk_revisions()][::-1]
    assert steps == [f"{number:04}" for number in range(1, len(steps) + 1)]
    with database.engine.connect() as connection:
        migrate(connection, steps[0])
        before = described(connection)
        guarded = {"audit", "audit_archives", "entries"}
        assert {re.split("_(no|append)_", name)[0] for name in before["triggers"]} == guarded
        for step in steps[1:]:
            migrate(connection, step)
            after = described(connection)
            assert set(after["triggers"]) >= set(before["triggers"])
            for name, table in before.items():
                if name == "triggers":
                    continue
                found = after[name]
                assert found["primary"] == table["primary"]
                assert table["columns"].items() <= found["columns"].items()
                added = {key: one for key, one in found["columns"].items() if key not in table["columns"]}
                assert all(nullable or has_default for _, nullable, has_default in added.values()), added
            before = after


def test_the_first_revision_can_be_undone(database: Database) -> None:
    with database.engine.connect() as connection:
        migrate(connection, "0001")
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        connection.commit()
        assert inspect(connection).get_table_names() == [REVISION_TABLE]
        migrate(connection, "head")
    assert database.ready()


def test_tables_of_before_the_first_release_are_refused_and_left_alone(database: Database) -> None:
    """Theirs is another numbering: read as ours, they would be served, or brought up to a date that they never had."""
    database.migrate()
    with database.engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {REVISION_TABLE} RENAME TO alembic_version"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0002'"))
    with database.engine.connect() as connection:
        before = described(connection)
    assert not database.ready()
    with pytest.raises(NotReady, match=r"before 0\.1\.0"):
        database.migrate()
    with database.engine.connect() as connection:
        assert described(connection) == before


@pytest.mark.parametrize(("ahead", "refused"), [(1, False), (2, True)])
def test_tables_of_a_later_release(database: Database, ahead: int, refused: bool) -> None:
    database.migrate()
    later = f"{int(database.revision() or 0) + ahead:04}"
    with database.engine.begin() as connection:
        connection.execute(text(f"UPDATE {REVISION_TABLE} SET version_num = :later"), {"later": later})
    if refused:
        with pytest.raises(NotReady, match="start a newer release"):
            database.migrate()
    else:
        database.migrate()
    assert database.revision() == later


def copied(source: Engine, target: Database) -> None:
    """Put the rows of a SQLite database of 0.1.0 into tables of the same revision elsewhere."""
    with target.engine.connect() as connection:
        migrate(connection, "0001")
    seen, made = MetaData(), MetaData()
    seen.reflect(source)
    made.reflect(target.engine)
    with source.connect() as old, target.engine.begin() as new:
        new.execute(text("SET session_replication_role = replica"))
        for name, table in seen.tables.items():
            rows = [dict(row._mapping) for row in old.execute(select(table))]
            if rows and name != REVISION_TABLE:
                new.execute(made.tables[name].insert(), rows)


def test_a_database_of_the_first_release_is_upgraded_and_its_ledger_verifies(
    database: Database, first_home: Path
) -> None:
    stored = Database(f"sqlite+pysqlite:///{first_home / 'farthing.sqlite'}")
    with stored.engine.connect() as connection:
        names = set(inspect(connection).get_table_names()) - {REVISION_TABLE}
        filled = {name for name in names if connection.execute(text(f"SELECT 1 FROM {name} LIMIT 1")).first()}
        assert names - filled == EMPTY, "it has rows of every other table"
        signed = {one: json.loads(row) for one, row in connection.execute(text("SELECT id, release FROM models"))}
        assert len(signed) == 3
    if database.is_sqlite:
        tested = stored
    else:
        copied(stored.engine, database)
        tested = database
    tested.migrate()
    assert tested.ready()
    with tested.read() as session:
        scopes = session.execute(select(Scope)).scalars().all()
        assert len(scopes) == 2
        for scope in scopes:
            found = ledger.verify(session, scope.id)
            assert found.ok, found
        states = set(session.execute(select(Job.state)).scalars())
        assert states == {"succeeded", "cancelled"}
        models = session.execute(select(Model)).scalars().all()
        # Certificates that 0.1.0 signed name the digest of these very members.
        assert {one.id: export_of(one.release, one.id, one.job_id)["released"] for one in models} == signed
        for table in Base.metadata.sorted_tables:
            session.execute(select(table)).all()  # each column is of a type that this code reads
    stored.dispose()


@pytest.mark.service
def test_a_home_of_the_first_release_is_served_and_its_records_train(first_home: Path) -> None:
    """Its models are shown, its chains verify over HTTP, and a job reads the records that 0.1.0 encrypted."""
    with embedded(first_home) as service:
        (dataset,) = (one for one in service.get("/v1/datasets")["data"] if one["state"] == "ready")
        budget = service.get(f"/v1/datasets/{dataset['id']}/budget")
        assert float(budget["budget_share"]["spent"]) > 0
        assert verified(service.http, budget["scope"])["ok"] is True
        jobs = service.get("/v1/jobs")["data"]
        kinds = {one["optimizer"]["kind"] for one in jobs if one["state"] == "succeeded"}
        assert kinds == {"noisy_newton", "whitened_newton", "describe"}
        for one in jobs:
            if one["state"] == "succeeded":
                service.get(f"/v1/models/{one['result']['model']}")
        ended = service.wait(service.submit(dataset["id"], model=LINEAR))
        assert ended["state"] == "succeeded", ended
        after = service.get(f"/v1/datasets/{dataset['id']}/budget")
        assert float(after["budget_share"]["spent"]) > float(budget["budget_share"]["spent"])
        assert verified(service.http, budget["scope"])["ok"] is True


@pytest.mark.service
def test_a_ledger_of_the_first_release_goes_on_in_the_next_version(first_home: Path) -> None:
    """Readers follow it through both, and a certificate says what entries of version 1 do not cover."""
    with embedded(first_home) as service, Client(service.url, KEY) as client:
        (dataset,) = (one for one in service.get("/v1/datasets")["data"] if one["state"] == "ready")
        scope = service.get(f"/v1/datasets/{dataset['id']}/budget")["scope"]
        old = next(one["id"] for one in service.get("/v1/jobs")["data"] if one["state"] == "succeeded")
        new = service.wait(service.submit(dataset["id"], model=LINEAR))["id"]
        with service.database().write() as session:
            session.execute(text("UPDATE attempts SET opened_at = NULL"))
        for job in (old, new):
            with pytest.raises(FarthingError, match="may have read"):
                client.adjust(scope, job, "it never ran")
        entries = list(client.entries(scope))
        versions = [json.loads(one.body)["v"] for one in entries]
        assert set(versions) == {1, 2}
        assert versions == sorted(versions)
        assert verify_ledger.verify(one.model_dump_json() for one in entries).head == entries[-1].hash
        uncovered = {}
        for job in (old, new):
            signed = certificates.check(client.certificate(job), client.signing_keys())
            certificates.contained(signed, entries)
            uncovered[job] = set(signed.payload["uncovered"])
            model = service.get(f"/v1/jobs/{job}")["result"]["model"]
            certificates.released(signed, service.get(f"/v1/models/{model}/export", format="json"))
        assert uncovered[old] - uncovered[new] == {"method", "result"}
        assert verified(service.http, scope)["ok"] is True
