"""The reader's own recomputation agrees with the service's ledger, and finds what was changed."""

import hashlib
import json
from pathlib import Path

import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from core.privacy.budget import standing
from core.store.database import Database
from core.store.jobs import jobs
from core.store.ledger import ledger
from core.store.tables import Entry as Row
from farthing.cli import app
from farthing.recompute import GENESIS, BrokenLedgerError, recompute
from farthing.views import Entry
from tests.support.store import make_place, submit


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Entry], str, str]:
    """A real ledger with a job that runs and one that waits, and what the service says is spent and remains."""
    database = Database(f"sqlite+pysqlite:///{tmp_path_factory.mktemp('ledger') / 'farthing.sqlite'}")
    try:
        database.migrate()
        place = make_place(database)
        for _ in range(2):
            with database.write() as session:
                submit(session, place)
        claim = database.run(jobs.claim, "w", 60.0)
        assert claim is not None
        database.run(ledger.spend, claim, 0, None, 0)
        with database.read() as session:
            held = ledger.balance(session, place.scope_id)
            shares = standing(held.terms, held.spent, held.reserved)
            rows = session.execute(select(Row).where(Row.scope_id == place.scope_id).order_by(Row.seq)).scalars().all()
            told = [
                Entry(
                    seq=row.seq,
                    kind=row.kind,
                    job=row.job_id,
                    attempt=row.attempt,
                    chunk=row.chunk,
                    body=row.body,
                    prev_hash=row.prev_hash,
                    hash=row.hash,
                    created_at="2026-11-22T00:00:00Z",
                )
                for row in rows
            ]
    finally:
        database.dispose()
    return told, str(shares.spent), str(shares.remaining)


def chained(entries: list[Entry], bodies: list[str]) -> list[Entry]:
    """Hash entries anew, as somebody would who rewrites a ledger from the start."""
    previous, made = GENESIS, []
    for entry, body in zip(entries, bodies, strict=True):
        digest = "sha256:" + hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
        made.append(entry.model_copy(update={"body": body, "prev_hash": previous, "hash": digest}))
        previous = digest
    return made


def test_a_ledger_adds_up_to_what_the_service_says(written: tuple[list[Entry], str, str]) -> None:
    entries, spent, remaining = written
    found = recompute(entries)
    assert (found.entries, found.head) == (len(entries), entries[-1].hash)
    assert float(found.spent_percent) == pytest.approx(float(spent), abs=1e-4)
    assert float(found.taken_percent) == pytest.approx(100 - float(remaining), abs=1e-4)
    assert 0 < found.spent_percent < found.taken_percent


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda entries: [*entries[:2], *entries[3:]], "entry 3: it is missing"),
        (lambda entries: entries[1:], "entry 1: it is missing"),
        (lambda entries: entries[:0], "entry 1: there is none"),
        (
            lambda entries: [*entries[:3], entries[3].model_copy(update={"body": entries[3].body.replace("1", "2")})],
            "entry 4: its hash is not that of its body",
        ),
        (
            lambda entries: [*entries[:3], entries[3].model_copy(update={"prev_hash": GENESIS})],
            "entry 4: it does not follow",
        ),
        (
            lambda entries: [entries[0], entries[1].model_copy(update={"kind": "settle"})],
            "entry 2: what is shown of it is not what its body says",
        ),
    ],
)
def test_what_was_changed_is_named(written: tuple[list[Entry], str, str], change: object, fault: str) -> None:
    assert callable(change)
    with pytest.raises(BrokenLedgerError, match=fault):
        recompute(change(written[0]))


@pytest.mark.parametrize(
    ("amount", "fault"),
    [(-(10**13), "reserved would fall below zero"), (10**13, "spent and reserved pass the cap at every order")],
)
def test_hashes_alone_do_not_make_a_ledger_true(written: tuple[list[Entry], str, str], amount: int, fault: str) -> None:
    entries = written[0]
    bodies = [json.loads(one.body) for one in entries]
    (moved,) = bodies[1]["accounts"].values()
    moved["reserved"] = [amount] * len(moved["reserved"])
    with pytest.raises(BrokenLedgerError, match=f"entry 2: {fault}"):
        recompute(chained(entries, [json.dumps(body) for body in bodies]))


def test_an_entry_of_another_scope_is_none_of_this_ledger(written: tuple[list[Entry], str, str]) -> None:
    bodies = [json.loads(one.body) for one in written[0]]
    bodies[-1]["scope"] = "sc_other"
    with pytest.raises(BrokenLedgerError, match=f"entry {len(bodies)}: it is of sc_other"):
        recompute(chained(written[0], [json.dumps(body) for body in bodies]))


def test_a_printed_ledger_is_recomputed_without_the_service(
    written: tuple[list[Entry], str, str], tmp_path: Path
) -> None:
    entries = written[0]
    file = tmp_path / "ledger.jsonl"
    file.write_text("".join(one.model_dump_json() + "\n" for one in entries))
    done = CliRunner().invoke(app, ["recompute", str(file), "--head", entries[1].hash])
    assert (done.exit_code, entries[-1].hash in done.output) == (0, True)
    assert CliRunner().invoke(app, ["recompute", str(file), "--head", GENESIS]).exit_code == 1
    file.write_text("".join(one.model_dump_json() + "\n" for one in entries[1:]))
    assert CliRunner().invoke(app, ["recompute", str(file)]).exit_code == 1
    file.write_text("nothing\n")
    assert CliRunner().invoke(app, ["recompute", str(file)]).exit_code == 2
