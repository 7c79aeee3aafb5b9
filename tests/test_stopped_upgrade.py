"""The upgrade of a home that 0.1.0 left in the middle: one job had paid for 50 of 60 chunks, another one was queued.

Every process of 0.1.0 was killed at once (`tests.support.release_home --stopped`). The same rows are upgraded on SQLite
and, copied into tables of 0.1.0, on PostgreSQL.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from core.base.canonical import canonical
from core.base.settings import ServiceSettings
from core.db import clock
from core.db.database import Database
from core.db.tables import Account, Attempt, Entry, Scope
from core.jobs import jobs
from core.jobs.sweep import CONTACT, sweep
from core.ledger.accounts import read_slots
from core.ledger.claims import put_secret
from core.ledger.signing import parse_signing_keys
from core.ledger.verification import verify
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness, server_identity
from farthing import Client, certificates
from farthing.errors import FarthingError
from tests.ledger.test_forgeries import drop_triggers
from tests.support.embedded import KEY, ROOT, Embedded, embedded
from tests.support.release_home import load
from tests.support.store import create_postgresql
from tests.test_migrations import copied

STOPPED = ROOT / "tests" / "data" / "home-0.1.0-stopped"
PAID = 50
pytestmark = pytest.mark.service
UNCOVERED = ["job/created_at", "job/started_at", "job/finished_at", "software"]
"""Members of every certificate that no entry covers."""
Row = tuple[Any, ...]


@dataclass
class Left:
    """The home, and what its database had of the two jobs."""

    home: Path
    options: dict[str, str]
    database: Database
    """The service's own, whose tables are of 0.1.0 until somebody migrates them."""
    scope: str
    running: str
    queued: str
    ended: str
    """A job that 0.1.0 had settled."""
    spent: list[int]
    """Of the running job: nano-nats at each order."""
    entries: list[Row]
    """As 0.1.0 wrote them."""
    witness: str


@pytest.fixture(params=["sqlite", "postgresql"])
def left(request: pytest.FixtureRequest, tmp_path: Path, worker_id: str) -> Iterator[Left]:
    home, options = tmp_path / "home", {}
    load(STOPPED, home)
    database = Database(ServiceSettings(home=home).url)
    if request.param == "postgresql":
        stored, name = database, f"stopped_{worker_id}_{tmp_path.name}".lower()
        options["database_url"] = create_postgresql(request.getfixturevalue("postgresql_server"), name)
        database = Database(options["database_url"])
        copied(stored.engine, database)
        assert written(database) == written(stored)
        stored.dispose()
        (home / "farthing.sqlite").unlink()
        _move_witness(home / "witness.jsonl", database)
    assert database.revision() == "0001"
    with database.engine.connect() as connection:
        named = {row.state: row.id for row in connection.execute(text("SELECT state, id FROM jobs"))}
        (scope,) = connection.execute(text("SELECT id FROM scopes")).scalars()
        payments = text("SELECT body FROM entries WHERE kind = 'spend' AND job_id = :job")
        paid = connection.execute(payments, {"job": named["running"]})
        moved = [json.loads(body)["accounts"][scope]["spent"] for body in paid.scalars()]
    assert len(moved) == PAID
    yield Left(
        home=home,
        options=options,
        database=database,
        scope=scope,
        running=named["running"],
        queued=named["queued"],
        ended=named["succeeded"],
        spent=[sum(slot) for slot in zip(*moved, strict=True)],
        entries=written(database),
        witness=(home / "witness.jsonl").read_text(),
    )
    database.dispose()


def written(database: Database) -> list[Row]:
    """Return every entry, column by column, whatever the revision of the tables is."""
    columns = "scope_id, seq, kind, job_id, attempt, chunk, body, prev_hash, hash, created_at"
    with database.engine.connect() as connection:
        found = connection.execute(text(f"SELECT {columns} FROM entries ORDER BY scope_id, seq"))
        return [tuple(row) for row in found]


def _move_witness(path: Path, database: Database) -> None:
    """Have the witness name the server that the rows were copied to, as if 0.1.0 had written them there."""
    first, *lines = path.read_text().splitlines()
    with database.read() as session:
        heading = json.loads(first) | {"server": server_identity(session)}
    path.write_text("\n".join([canonical(heading), *lines, ""]))


def bodies(database: Database, job: str) -> list[dict[str, Any]]:
    with database.read() as session:
        found = session.execute(select(Entry.body).where(Entry.job_id == job).order_by(Entry.seq)).scalars()
        return [json.loads(body) for body in found]


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
    assert json.loads(command(service, "-m", "farthing.cli", "verify", left.scope, "--json"))["ok"] is True
    export = folder / "ledger.jsonl"
    export.write_text(command(service, "-m", "farthing.cli", "entries", left.scope, "--json"))
    entries = list(client.entries(left.scope))
    followed = command(service, "examples/verify_ledger.py", str(export), entries[-1].hash).splitlines()
    assert followed[0] == f"{left.scope}: {len(entries)} entries follow from each other; head {entries[-1].hash}"
    versions = [json.loads(one.body)["v"] for one in entries]
    assert versions == [1] * len(left.entries) + [2] * (len(entries) - len(left.entries))
    assert len(entries) > len(left.entries)
    check_budgets(service, left, dict(line.split(" ", 1) for line in followed[1:]))
    check_what_was_written(left)
    check_certificates(service, left, client, export)


def check_budgets(service: Embedded, left: Left, printed: dict[str, str]) -> None:
    """Compare balances with the sums of the entries, and with what the page's program prints, to the last digit."""
    with left.database.read() as session:
        accounts = session.execute(select(Account).where(Account.scope_id == left.scope)).scalars().all()
        moved = [json.loads(body)["accounts"] for body in session.execute(select(Entry.body)).scalars()]
    assert {one.id for one in accounts} == printed.keys()
    for account in accounts:
        mine = [movement[account.id]["spent"] for movement in moved if account.id in movement]
        due = [sum(slot) for slot in zip(*mine, strict=True)]
        told = json.loads(printed[account.id])
        assert read_slots(account, "spent") == due == told["spent_nano"]
        assert read_slots(account, "reserved") == [0, 0, 0, 0] == told["reserved_nano"]
    shown, told = service.get(f"/v1/scopes/{left.scope}/budget"), json.loads(printed[left.scope])
    assert {name: shown["budget_share"][name] for name in told["budget_share"]} == told["budget_share"]
    said = {name: value for name, value in told["epsilon"].items() if value is not None}
    assert said.keys() >= {"total", "remaining"}, "not all that was charged is Gaussian, so it leaves out what is spent"
    assert {name: shown["epsilon"][name] for name in said} == said


def check_what_was_written(left: Left) -> None:
    """Entries of 0.1.0 are there byte by byte, and its witness went on behind its last line."""
    assert written(left.database)[: len(left.entries)] == left.entries
    witness = (left.home / "witness.jsonl").read_text()
    assert witness.startswith(left.witness)
    with left.database.read() as session:
        hashes = {row.seq: row.hash for row in session.execute(select(Entry.seq, Entry.hash))}
    for line in witness.splitlines()[1:]:
        seen = json.loads(line)
        assert (seen["scope"], seen["head"]) == (left.scope, hashes[seen["seq"]])
    assert seen["seq"] >= len(left.entries)
    for name in ("master.key", "signing.key"):
        assert (left.home / name).read_bytes() == (STOPPED / name).read_bytes()


def check_certificates(service: Embedded, left: Left, client: Client, export: Path) -> None:
    """Check those of all jobs under the key of 0.1.0: each names what entries of version 1 do not cover."""
    keys, entries = client.signing_keys(), list(client.entries(left.scope))
    (kept,) = parse_signing_keys((STOPPED / "signing.key").read_text()).published("")["keys"]
    assert [one["x"] for one in keys["keys"]] == [kept["x"]]
    for job, uncovered in ((left.ended, ["method", "result"]), (left.running, ["method"]), (left.queued, ["method"])):
        text = client.certificate(job)
        signed = certificates.check(text, keys)
        certificates.contained(signed, entries)
        assert signed.key == kept["kid"]
        assert signed.payload["uncovered"] == uncovered + UNCOVERED
        found = bodies(left.database, job)
        assert signed.payload["nano_nats"]["spent"] == spent(found, left.scope)[:3]
        named = signed.payload["entries"]
        assert named == {"spec": None, "release": found[-1].get("release")}
        assert (named["release"] is not None) == (found[-1]["v"] == 2 and found[-1]["reason"] == "succeeded")
        (export.parent / "job.jws").write_text(text)
        told = command(
            service,
            "-m",
            "farthing.cli",
            "certificate",
            "check",
            str(export.parent / "job.jws"),
            "--ledger",
            str(export),
        )
        assert re.search(r"no entry covers\W+" + ", ".join(uncovered), told), told
    head = certificates.check(client.signed_head(left.scope), keys)
    certificates.contained(head, entries)


def test_both_jobs_go_on_and_what_was_paid_stays_charged(left: Left, tmp_path: Path) -> None:
    """The queued job runs to its end. The running one lost an attempt, and its next one pays for what it repeats."""
    options = {"queue_deadline_seconds": 1e10, **left.options}
    with embedded(left.home, **options) as service, Client(service.url, KEY) as client:
        for job in (left.running, left.queued):
            ended = service.wait(job)
            assert ended["state"] == "succeeded", ended
            assert client.model(ended["result"]["model"]).id
            with pytest.raises(FarthingError, match="may have read"):
                client.adjust(left.scope, job, "it never ran")
        check_running(bodies(left.database, left.running), left)
        with left.database.read() as session:
            mine = select(Attempt.outcome).where(Attempt.job_id == left.running).order_by(Attempt.number)
            assert session.execute(mine).scalars().all() == [jobs.LOST, "succeeded"]
        queued = bodies(left.database, left.queued)
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
    database = left.database
    database.migrate()
    database.transaction(jobs.cancel, left.queued)
    if not given_up:
        database.transaction(jobs.cancel, left.running)
    with database.write() as session:
        put_secret(session, CONTACT, f"0.0 {clock.read(session)!r}")
    swept = database.transaction(sweep, 8.0, 1 if given_up else 3, 1e10)
    assert swept.failed + swept.cancelled == [left.running]
    queued, running = bodies(database, left.queued), bodies(database, left.running)
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


def test_a_witness_of_before_the_upgrade_still_finds_entries_that_are_gone(left: Left) -> None:
    """The last entry is gone from tables that agree with themselves: only what 0.1.0 left outside them tells."""
    settings, database = ServiceSettings(home=left.home, **left.options), left.database
    database.migrate()
    assert written(database) == left.entries
    with database.read() as session:
        assert verify(session, left.scope).ok
    assert guard(database, Witness(settings.witness_path)) == []
    with database.write() as session:
        drop_triggers(session)
        scope = session.get_one(Scope, left.scope)
        last = session.execute(select(Entry).where(Entry.scope_id == left.scope, Entry.seq == scope.seq)).scalar_one()
        scope.seq, scope.head = last.seq - 1, last.prev_hash
        session.delete(last)
    (problem,) = guard(database, Witness(settings.witness_path))
    assert left.scope in problem
