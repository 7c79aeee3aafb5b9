"""Tables grow so that the release before goes on: what it knows stays as it is, and what is new it need not know."""

import ast
import json
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from pydantic import TypeAdapter
from sqlalchemy import Connection, Engine, inspect, text

from core.catalogue.columns import Column
from core.catalogue.jobs import JobSpec, Resources
from core.catalogue.planning import plan_job
from core.privacy.budget import plan_orders
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency
from core.store.access.bootstrap import first_admin
from core.store.database import Database
from core.store.revisions import MIGRATIONS, alembic_config
from tests.support.api import COLUMNS, job, submit, upload
from tests.support.releases import ROOT, api, first_release, process
from tests.support.store import create_postgresql

EXPANDING = {"add_column", "create_index", "create_table", "f", "get_bind"}
"""What an upgrade may ask of Alembic after the first release."""
LATER = sorted(path for path in (MIGRATIONS / "versions").glob("*.py") if not path.name.startswith("0001"))


def asked_by_upgrade(source: str) -> set[str]:
    """Return the operations that a migration's upgrade asks for."""
    (upgrade,) = [
        node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == "upgrade"
    ]
    return {
        node.func.attr
        for node in ast.walk(upgrade)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "op"
    }


@pytest.mark.parametrize("path", LATER, ids=lambda path: path.stem)
def test_later_migrations_only_expand(path: Path) -> None:
    assert asked_by_upgrade(path.read_text()) <= EXPANDING
    assert "entries" not in ast.dump(ast.parse(path.read_text())), "the ledger is never altered: that drops its trigger"


@pytest.mark.parametrize("operation", ["drop_column", "alter_column", "rename_table", "execute", "batch_alter_table"])
def test_a_migration_that_does_not_is_seen(operation: str) -> None:
    planted = f'def upgrade() -> None:\n    op.add_column("jobs", x)\n    op.{operation}("jobs", "state")\n'
    assert asked_by_upgrade(planted) == {"add_column", operation}
    assert not asked_by_upgrade(planted) <= EXPANDING


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


def test_each_step_leaves_what_was_there_and_adds_what_may_be_left_out(engine: Engine) -> None:
    steps = [step.revision for step in ScriptDirectory.from_config(alembic_config()).walk_revisions()][::-1]
    with engine.connect() as connection:
        migrate(connection, steps[0])
        before = described(connection)
        assert before["triggers"], "the ledger and the audit are append-only"
        for step in steps[1:]:
            migrate(connection, step)
            after = described(connection)
            assert after["triggers"] == before["triggers"]
            assert after["entries"] == before["entries"]
            for name, table in before.items():
                if name == "triggers":
                    continue
                found = after[name]
                assert {key: one for key, one in found.items() if key != "columns"} == {
                    key: one for key, one in table.items() if key != "columns"
                }
                assert table["columns"].items() <= found["columns"].items()
                added = {key: one for key, one in found["columns"].items() if key not in table["columns"]}
                assert all(nullable or has_default for _, nullable, has_default in added.values()), added
            before = after


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


@pytest.fixture
def shared(postgresql_server: str, tmp_path: Path, worker_id: str) -> tuple[dict[str, str], str]:
    """A database at this code's revision, the environment of processes that share it, and an admin's key."""
    url = create_postgresql(postgresql_server, f"releases_{worker_id}_{time.time_ns()}")
    database = Database(url)
    database.migrate()
    key = database.run(first_admin, None)
    database.dispose()
    assert key is not None
    environment = {
        "FARTHING_DATABASE_URL": url,
        "FARTHING_HOME": str(tmp_path / "home"),
        "FARTHING_LEASE_SECONDS": "6",
        "FARTHING_VISIBLE_GRID_SECONDS": "0",
    }
    return environment, key


@pytest.mark.slow
def test_the_first_release_serves_on_these_tables_beside_this_code(
    shared: tuple[dict[str, str], str], tmp_path: Path
) -> None:
    environment, key = shared
    old = first_release(tmp_path / "first")
    with (
        api(old, tmp_path / "old.log", environment, key) as before,
        api(ROOT, tmp_path / "new.log", environment, key) as after,
    ):
        assert before.get("/version").json()["database_revision"] == after.get("/version").json()["database_revision"]
        dataset = upload(before)
        made = submit(before, job(dataset["id"]), key="once")
        assert made.status_code == 202
        assert after.get(f"/v1/jobs/{made.json()['id']}").json()["state"] == "queued"
        assert after.get(f"/v1/datasets/{dataset['id']}/budget").json() == (
            before.get(f"/v1/datasets/{dataset['id']}/budget").json()
        )
        assert after.post(f"/v1/jobs/{made.json()['id']}/cancel").json()["state"] == "cancelled"
        assert before.get(f"/v1/jobs/{made.json()['id']}").json()["state"] == "cancelled"
        for client in (before, after):
            assert client.post(f"/v1/scopes/{dataset['scope']}/verify").json()["ok"] is True
        assert {client.get("/readyz").status_code for client in (before, after)} == {200}


@pytest.mark.slow
def test_an_upgrade_without_a_pause(shared: tuple[dict[str, str], str], tmp_path: Path) -> None:
    """The order of the guide: tables first, then supervisors, then the API."""
    environment, key = shared
    old = first_release(tmp_path / "first")
    log = tmp_path / "supervisors.log"
    with api(old, tmp_path / "old.log", environment, key) as before:
        dataset = upload(before)["id"]
        with api(ROOT, tmp_path / "new.log", environment, key) as after:
            with process(old, "workers.supervisor", log, environment):
                first = ended(after, submit(before, job(dataset, mu="0.2")).json()["id"])
            with process(ROOT, "workers.supervisor", log, environment):
                second = ended(before, submit(before, job(dataset, mu="0.2")).json()["id"])
                third = ended(after, submit(after, job(dataset, mu="0.2")).json()["id"])
            assert [one["state"] for one in (first, second, third)] == ["succeeded"] * 3, log.read_text()[-2000:]
            for one in (first, second, third):
                assert after.get(f"/v1/models/{one['result']['model']}/summary").status_code == 200
            assert before.get(f"/v1/models/{first['result']['model']}/summary").status_code == 200


def ended(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """Return a job once it has ended."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found: dict[str, Any] = client.get(f"/v1/jobs/{job_id}").json()
        if found["finished_at"] is not None:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{job_id} did not end")
