"""The upgrade of a home that 0.1.0 left in the middle: one job had paid for 50 of 60 chunks, another one was queued.

Every process of 0.1.0 was killed at once (`tests.support.release_home --stopped`). The same rows are upgraded on SQLite
and, copied into tables of 0.1.0, on PostgreSQL.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from core.base.canonical import canonical
from core.base.settings import ServiceSettings
from core.db import clock
from core.db.database import Database
from core.db.tables import Attempt, Entry
from core.jobs import jobs
from core.jobs.sweep import CONTACT, sweep
from core.ledger.claims import put_secret
from core.ledger.witness.witness import server_identity
from farthing import Client, certificates
from farthing.errors import FarthingError
from tests.support.embedded import KEY, ROOT, Embedded, embedded
from tests.support.release_home import load
from tests.support.store import create_postgresql
from tests.test_migrations import copied

STOPPED = ROOT / "tests" / "data" / "home-0.1.0-stopped"
PAID = 50
pytestmark = pytest.mark.service


@dataclass
class Left:
    """The home, and what its database had of the two jobs."""

    home: Path
    options: dict[str, str]
    scope: str
    running: str
    queued: str
    spent: list[int]
    """Of the running job: nano-nats at each order."""

    @contextmanager
    def database(self) -> Iterator[Database]:
        """Return the service's database, with no connection left open afterwards."""
        found = Database(ServiceSettings(home=self.home, **self.options).url)
        yield found
        found.dispose()

    def bodies(self, job: str) -> list[dict[str, Any]]:
        """Return what the entries about a job say."""
        with self.database() as database, database.read() as session:
            found = session.execute(select(Entry.body).where(Entry.job_id == job).order_by(Entry.seq)).scalars()
            return [json.loads(body) for body in found]


@pytest.fixture(params=["sqlite", "postgresql"])
def left(request: pytest.FixtureRequest, tmp_path: Path, worker_id: str) -> Left:
    home, options = tmp_path / "home", {}
    load(STOPPED, home)
    stored = Database(f"sqlite+pysqlite:///{home / 'farthing.sqlite'}")
    assert stored.revision() == "0001"
    if request.param == "postgresql":
        name = f"stopped_{worker_id}_{tmp_path.name}".lower()
        options["database_url"] = create_postgresql(request.getfixturevalue("postgresql_server"), name)
        database = Database(options["database_url"])
        copied(stored.engine, database)
        assert database.revision() == "0001"
        _move_witness(home / "witness.jsonl", database)
        database.dispose()
    with stored.engine.connect() as connection:
        named = {row.state: row.id for row in connection.execute(text("SELECT state, id FROM jobs"))}
        (scope,) = connection.execute(text("SELECT id FROM scopes")).scalars()
        payments = text("SELECT body FROM entries WHERE kind = 'spend' AND job_id = :job")
        paid = connection.execute(payments, {"job": named["running"]})
        moved = [json.loads(body)["accounts"][scope]["spent"] for body in paid.scalars()]
    stored.dispose()
    if options:
        (home / "farthing.sqlite").unlink()
    assert len(moved) == PAID
    return Left(
        home, options, scope, named["running"], named["queued"], [sum(slot) for slot in zip(*moved, strict=True)]
    )


def _move_witness(path: Path, database: Database) -> None:
    """Have the witness name the server that the rows were copied to, as if 0.1.0 had written them there."""
    first, *lines = path.read_text().splitlines()
    with database.read() as session:
        heading = json.loads(first) | {"server": server_identity(session)}
    path.write_text("\n".join([canonical(heading), *lines, ""]))


def spent(found: list[dict[str, Any]], scope: str) -> list[int]:
    """Return what entries have charged a scope, in nano-nats at each order."""
    moved = [body["accounts"][scope]["spent"] for body in found if body["accounts"]]
    return [sum(slot) for slot in zip(*moved, strict=True)]


def command(service: Embedded, *arguments: str) -> str:
    """Run a program as people do, and return what it prints; it must end well."""
    options = {"FARTHING_URL": service.url, "FARTHING_KEY": KEY, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=options, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_every_way(service: Embedded, left: Left, client: Client, folder: Path) -> None:
    """Verify the ledger by the service, by the command line, by the page's own program, and by certificates."""
    assert json.loads(command(service, "-m", "farthing.cli", "verify", left.scope))["ok"] is True
    export = folder / "ledger.jsonl"
    export.write_text(command(service, "-m", "farthing.cli", "entries", left.scope, "--json"))
    entries = list(client.entries(left.scope))
    assert entries[-1].hash in command(service, "examples/verify_ledger.py", str(export), entries[-1].hash)
    versions = [json.loads(one.body)["v"] for one in entries]
    assert versions == sorted(versions)
    assert set(versions) == {1, 2}
    keys = client.signing_keys()
    for job, uncovered in ((left.running, {"method"}), (left.queued, {"method"})):
        signed = certificates.check(client.certificate(job), keys)
        certificates.contained(signed, entries)
        assert set(signed.payload["uncovered"]) & {"method", "result"} == uncovered
        assert signed.payload["nano_nats"]["spent"] == spent(left.bodies(job), left.scope)[:3]
    head = certificates.check(client.signed_head(left.scope), keys)
    certificates.contained(head, entries)


def test_both_jobs_go_on_and_what_was_paid_stays_charged(left: Left, tmp_path: Path) -> None:
    """The queued job runs to its end. The running one has lost an attempt, and the next pays for what it repeats."""
    options = {"queue_deadline_seconds": 1e10, **left.options}
    with embedded(left.home, **options) as service, Client(service.url, KEY) as client:
        for job in (left.running, left.queued):
            ended = service.wait(job)
            assert ended["state"] == "succeeded", ended
            assert client.model(ended["result"]["model"]).id
            with pytest.raises(FarthingError, match="may have read"):
                client.adjust(left.scope, job, "it never ran")
        check_running(left.bodies(left.running), left)
        with left.database() as database, database.read() as session:
            mine = select(Attempt.outcome).where(Attempt.job_id == left.running).order_by(Attempt.number)
            assert session.execute(mine).scalars().all() == [jobs.LOST, "succeeded"]
        queued = left.bodies(left.queued)
        assert [body["v"] for body in queued if body["kind"] == "reserve"] == [1]
        assert {body["attempt"] for body in queued if body["kind"] == "spend"} == {1}
        check_every_way(service, left, client, tmp_path)


def check_running(found: list[dict[str, Any]], left: Left) -> None:
    """Compare the entries of the job that was running with what its attempts did: 0.1.0's one, and the next."""
    before = [body for body in found if body["v"] == 1]
    after = found[len(before) :]
    assert [body["kind"] for body in before] == ["reserve"] + ["spend"] * PAID
    assert spent(before, left.scope) == left.spent
    assert {body["v"] for body in after} == {2}
    assert [(body["kind"], body["attempt"]) for body in after[:1]] == [("read", 2)]
    assert after[-1]["kind"] == "settle"
    chunks = sum(times for times, _ in before[0]["schedule"])
    paid = [(body["chunk"], body["again"]) for body in after if body["kind"] == "spend"]
    assert paid == [(PAID - 1, True), *[(chunk, False) for chunk in range(PAID, chunks)]], (
        "it was killed behind a payment"
    )


@pytest.mark.parametrize("given_up", [False, True], ids=["cancelled", "given up"])
def test_jobs_that_are_ended_after_the_upgrade_are_charged_what_may_have_been_read(
    left: Left, tmp_path: Path, *, given_up: bool
) -> None:
    """Before any process runs them: the queued job costs nothing, the other one what it had paid, or all of it."""
    with left.database() as database:
        database.migrate()
        database.run(jobs.cancel, left.queued)
        if not given_up:
            database.run(jobs.cancel, left.running)
        with database.write() as session:
            put_secret(session, CONTACT, f"0.0 {clock.read(session)!r}")
        swept = database.run(sweep, 8.0, 1 if given_up else 3, 1e10)
    assert swept.failed + swept.cancelled == [left.running]
    queued, running = left.bodies(left.queued), left.bodies(left.running)
    assert [(body["kind"], body["v"]) for body in queued] == [("reserve", 1), ("settle", 2)]
    assert spent(queued, left.scope) == [0, 0, 0, 0]
    assert queued[1]["draws"] == queued[0]["draws"]
    reserved = running[0]["accounts"][left.scope]["reserved"]
    assert spent(running, left.scope) == (reserved if given_up else left.spent)
    with embedded(left.home, workers=0, **left.options) as service, Client(service.url, KEY) as client:
        for job, state in ((left.queued, "cancelled"), (left.running, "failed" if given_up else "cancelled")):
            assert service.get(f"/v1/jobs/{job}")["state"] == state
        with pytest.raises(FarthingError, match="may have read"):
            client.adjust(left.scope, left.running, "it never ran")
        check_every_way(service, left, client, tmp_path)
