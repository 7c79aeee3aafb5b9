"""Migrations keep the ledger and what people stored; what they take away is named here."""

import json
import re
import time
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from pydantic import TypeAdapter
from sqlalchemy import Connection, Engine, inspect, text

from core.catalogue.columns import Column
from core.catalogue.jobs import JobSpec, Resources
from core.catalogue.planning import plan_job
from core.privacy.budget import plan_orders
from core.privacy.events import Gaussian, Zcdp
from core.privacy.facts import Adjacency
from core.privacy.totals import Totals
from core.store import queries
from core.store.access import principals, rights
from core.store.database import Database
from core.store.datasets import give_access
from core.store.jobs import jobs
from core.store.ledger import ledger
from core.store.ledger.accounts import terms_of
from core.store.ledger.charged import totals_of
from core.store.revisions import alembic_config
from core.store.tables import Scope
from tests.support.api import COLUMNS, ROOT, job
from tests.support.store import STEP, create_postgresql, make_dataset, make_place, submit

ONE = {"epsilon": "1", "delta": "1e-6"}
DROPPED = {"api_keys": {"prefix", "sha256"}, "datasets": {"digest"}}
"""Columns of revision 0001 that are gone, by table: until the first release what must go, goes."""


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, worker_id: str) -> Iterator[Engine]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        url = f"sqlite+pysqlite:///{tmp_path / 'empty.sqlite'}"
    else:
        name = f"empty_{worker_id}_{time.time_ns()}"
        url = create_postgresql(request.getfixturevalue("postgresql_server"), name)
    database = Database(url)
    yield database.engine
    database.dispose()


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
            "unique": sorted(str(one["column_names"]) for one in seen.get_unique_constraints(name)),
            "checks": sorted(str(one["sqltext"]) for one in seen.get_check_constraints(name)),
        }
    kept = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    if connection.dialect.name != "sqlite":
        kept = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
    tables["triggers"] = sorted(connection.execute(text(kept)).scalars())
    connection.rollback()
    return tables


def test_each_step_leaves_the_ledger_and_drops_what_is_named_here_alone(engine: Engine) -> None:
    steps = [step.revision for step in ScriptDirectory.from_config(alembic_config()).walk_revisions()][::-1]
    with engine.connect() as connection:
        migrate(connection, steps[0])
        before = described(connection)
        assert before["triggers"], "the ledger and the audit are append-only"
        for step in steps[1:]:
            migrate(connection, step)
            after = described(connection)
            assert set(after["triggers"]) >= set(before["triggers"])
            for name, table in before.items():
                if name == "triggers":
                    continue
                found = after[name]
                assert found["primary"] == table["primary"]
                assert table["columns"].keys() - found["columns"].keys() == DROPPED.get(name, set())
                kept = {key: one for key, one in table["columns"].items() if key in found["columns"]}
                assert kept.items() <= found["columns"].items()
                added = {key: one for key, one in found["columns"].items() if key not in table["columns"]}
                assert all(nullable or has_default for _, nullable, has_default in added.values()), added
            before = after


def test_keys_of_before_end_and_their_principals_stay(engine: Engine) -> None:
    """Also where one is used again after the way back: nobody has the text that a salt would need."""
    with engine.connect() as connection:
        migrate(connection, "0001")
        connection.execute(text("INSERT INTO principals VALUES ('pr_1', 'Olga', 'admin', 1.0)"))
        columns = "id, principal_id, name, prefix, sha256, created_at"
        for number in (1, 2):
            values = f"'key_{number}', 'pr_1', 'a', 'fth_{number}', '{number}', 1.0"
            connection.execute(text(f"INSERT INTO api_keys ({columns}) VALUES ({values})"))
        connection.execute(text("UPDATE api_keys SET revoked_at = 7.0 WHERE id = 'key_2'"))
        connection.commit()
        migrate(connection, "head")
        found = connection.execute(text("SELECT id, revoked_at, digest, salt FROM api_keys ORDER BY id")).all()
        assert [(one.id, one.digest, one.salt) for one in found] == [("key_1", None, None), ("key_2", None, None)]
        assert found[0].revoked_at > 1e9
        assert found[1].revoked_at == 7.0
        assert connection.execute(text("SELECT name, disabled_at FROM principals")).all() == [("Olga", None)]
        connection.commit()
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
        connection.commit()
        assert connection.execute(text("SELECT id, role FROM principals")).all() == [("pr_1", "admin")]
        assert connection.execute(text("SELECT count(*) FROM api_keys")).scalar() == 0


def test_digests_of_uploads_go_and_datasets_get_random_fingerprints(engine: Engine) -> None:
    """With the key that lay in the clear, and from the stored answers that would be replayed."""
    dataset = "id, scope_id, owner_id, name, state, request, columns, rows, digest, created_at"
    answer = "principal_id, route, key, request_hash, status, body, created_at"
    with engine.connect() as connection:
        migrate(connection, "0001")
        connection.execute(text("INSERT INTO principals VALUES ('pr_1', 'Olga', 'owner', 1.0)"))
        scope = "'sc_1', 'pr_1', '\"record\"', 'zero_out', 9, NULL, false, 0, 'sha256:0', 1.0"
        connection.execute(text(f"INSERT INTO scopes VALUES ({scope})"))
        for name, place in (("ds_1", "'sc_1'"), ("ds_2", "'sc_1'"), ("ds_3", "NULL")):
            values = f"'{name}', {place}, 'pr_1', 'a', 'ready', '{{}}', '[]', 9, 'hmac-sha256:{name}', 1.0"
            connection.execute(text(f"INSERT INTO datasets ({dataset}) VALUES ({values})"))
        connection.execute(text("INSERT INTO secrets VALUES ('digest-key', '00'), ('installation', 'x')"))
        for route, body in (
            ("POST /v1/datasets", '{"id":"ds_1","digest":"hmac"}'),
            ("POST /v1/jobs", '{"digest":"x"}'),
        ):
            statement = text(f"INSERT INTO idempotency ({answer}) VALUES ('pr_1', :route, 'k', 'h', 201, :body, 1.0)")
            connection.execute(statement, {"route": route, "body": body})
        connection.commit()
        migrate(connection, "head")
        found = dict(connection.execute(text("SELECT id, fingerprint FROM datasets")).all())
        assert found.pop("ds_3") is None
        assert all(re.fullmatch(r"fp_[0-9a-f]{32}", one) for one in found.values())
        assert len(set(found.values())) == 2
        assert connection.execute(text("SELECT name FROM secrets")).scalars().all() == ["installation"]
        bodies = dict(connection.execute(text("SELECT route, body FROM idempotency")).all())
        bodies = {route: json.loads(body) if isinstance(body, str) else body for route, body in bodies.items()}
        assert bodies["POST /v1/datasets"] == {"id": "ds_1", "fingerprint": found["ds_1"]}
        assert bodies["POST /v1/jobs"] == {"digest": "x"}
        assert "hmac-sha256" not in str(connection.execute(text("SELECT * FROM datasets")).all())


def test_access_of_before_gets_a_cap_that_says_all(database: Database) -> None:
    """There and back: revision 0001 had access without a cap, and caps without access, which gave sight of all."""
    place = make_place(database)
    with database.write() as session:
        ann, bob = (principals.create(session, name, "analyst").id for name in ("Ann", "Bob"))
        second = make_dataset(session, place.principal_id, place.scope_id)
        give_access(session, place.dataset_id, ann)
        give_access(session, place.dataset_id, place.principal_id)
        ledger.set_grant(session, place.scope_id, bob, plan_orders(Decimal(1), Decimal("1e-6")), ONE, actor="pr_1")
    with database.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        if database.is_sqlite:
            raw.execute("PRAGMA foreign_keys = OFF")  # as `Database.migrate` does
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
        connection.commit()
    database.migrate()
    with database.engine.connect() as connection:
        if database.is_sqlite:
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 1
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
    with database.read() as session:
        pairs = {(ann, place.dataset_id), (ann, second), (bob, place.dataset_id), (bob, second)}
        assert rights.allowed(session, pairs) == pairs - {(ann, second)}
        cap = queries.grant(session, place.scope_id, ann)
        assert cap is not None
        assert cap.declared == {"cap": "all"}
        assert terms_of(cap) == ledger.balance(session, place.scope_id).terms
        assert queries.grant(session, place.scope_id, place.principal_id) is None
        lines = queries.entries(session, place.scope_id, 0, 9)
        assert [(line.kind, json.loads(line.body)["actor"]) for line in lines[1:]] == [
            ("grant", "pr_1"),
            ("grant", "migration"),
        ]
        assert ledger.verify(session, place.scope_id).ok
    with database.engine.connect() as connection:
        for code, taken in (("access-withdrawn", True), ("bored", False)):
            known = connection.execute(text(CHECKS[connection.dialect.name])).scalar_one()
            assert (f"'{code}'" in known) == taken


def test_what_chains_of_before_have_charged_is_added_up(database: Database) -> None:
    """Revision 0001 had entries alone; a job that stays charged and one that was given back whole are among them."""
    place = make_place(database)
    for _ in range(2):
        with database.write() as session:
            submit(session, place, [STEP, STEP, Zcdp(rho=1e-5)])
        claim = database.run(jobs.claim, "w", 600.0)
        assert claim is not None
        for chunk in range(3):
            database.run(ledger.spend, claim, chunk, None, chunk)
        database.run(jobs.fail, claim, "gpu-unavailable", charge="spent")
    database.run(ledger.compensate, place.scope_id, claim.job_id, Fraction(1), "no driver", place.principal_id)
    with database.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        if database.is_sqlite:
            raw.execute("PRAGMA foreign_keys = OFF")  # as `Database.migrate` does
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
        connection.commit()
    database.migrate()
    with database.read() as session:
        due = {STEP: 2, Zcdp(rho=1e-5): 1}
        assert ledger.executed(session, place.scope_id) == due
        assert totals_of(session.get_one(Scope, place.scope_id)) == Totals().plus(due)


CHECKS = {
    "sqlite": "SELECT sql FROM sqlite_master WHERE name = 'jobs'",
    "postgresql": "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'ck_jobs_error_code'",
}
"""How each database tells what a job may fail of."""


def first_release_plans() -> list[dict[str, Any]]:
    """Jobs as the first release planned and stored them for 400 people of the tests' columns, with what they draw."""
    found: list[dict[str, Any]] = json.loads((ROOT / "tests" / "support" / "first_release_plans.json").read_text())
    return found


@pytest.mark.parametrize("stored", first_release_plans(), ids=lambda one: one["spec"]["optimizer"]["kind"])
def test_a_job_that_the_first_release_planned_draws_what_was_reserved(stored: dict[str, Any]) -> None:
    """Or it would fail at its whole price when this code's trainer opens it."""
    planned = plan_job(
        JobSpec.model_validate(stored["spec"]),
        columns=TypeAdapter(tuple[Column, ...]).validate_python(COLUMNS),
        units=400,
        adjacency=Adjacency.ZERO_OUT,
        terms=plan_orders(Decimal(3), Decimal("1e-6")),
    )
    assert planned.schedule == tuple(Gaussian(sigma=sigma) for sigma in stored["sigmas"])


def test_what_is_stored_now_is_read_by_the_first_release_where_nothing_new_is_asked_for() -> None:
    spec = JobSpec.model_validate(job("ds_1"))
    known = {"device", "processes", "max_runtime_seconds", "memory_bytes"}
    assert set(spec.model_dump(mode="json")["resources"]) == known
    assert "retry_allowance" not in spec.model_dump(mode="json")
    asking = spec.model_copy(update={"resources": Resources(priority=-1, max_queue_seconds=5.0)})
    assert asking.model_dump(mode="json")["resources"]["priority"] == -1
