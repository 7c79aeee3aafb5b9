"""A reader follows the chain of the service's ledger by himself, and finds what was changed."""

import hashlib
import json

import pytest
from sqlalchemy import select

from core.db.database import Database
from core.db.tables import Entry as Row
from core.jobs import jobs
from core.ledger import ledger
from core.service.scopes import entry_view
from farthing.chain import GENESIS, BrokenChainError, follow
from farthing.schemas.ledger import EntryView
from tests.support.store import make_place, submit


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[EntryView]:
    """A real ledger with a job that runs and one that waits."""
    database = Database(f"sqlite+pysqlite:///{tmp_path_factory.mktemp('ledger') / 'farthing.sqlite'}")
    try:
        database.migrate()
        place = make_place(database)
        for _ in range(2):
            with database.write() as session:
                submit(session, place)
        claim = database.transaction(jobs.claim, "w", 60.0)
        assert claim is not None
        database.transaction(ledger.pay, claim, 0, None, 0)
        with database.read() as session:
            rows = session.execute(select(Row).where(Row.scope_id == place.scope_id).order_by(Row.seq)).scalars().all()
            return [entry_view(row) for row in rows]
    finally:
        database.dispose()


def chained(entries: list[EntryView], bodies: list[str]) -> list[EntryView]:
    """Hash entries anew, as somebody would who rewrites a ledger from the start."""
    previous, made = GENESIS, []
    for entry, body in zip(entries, bodies, strict=True):
        digest = "sha256:" + hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
        made.append(entry.model_copy(update={"body": body, "prev_hash": previous, "hash": digest}))
        previous = digest
    return made


def test_a_chain_is_followed_to_its_head(written: list[EntryView]) -> None:
    found = follow(written)
    assert found.hashes == {0: GENESIS} | {one.seq: one.hash for one in written}
    assert found.scope.startswith("sc_")


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
            "entry 2: its shown fields differ from its body",
        ),
    ],
)
def test_what_was_changed_is_named(written: list[EntryView], change: object, fault: str) -> None:
    assert callable(change)
    with pytest.raises(BrokenChainError, match=fault):
        follow(change(written))


def test_an_entry_of_another_scope_is_none_of_this_ledger(written: list[EntryView]) -> None:
    bodies = [json.loads(one.body) for one in written]
    bodies[-1]["scope"] = "sc_other"
    with pytest.raises(BrokenChainError, match=f"entry {len(bodies)}: it is of sc_other"):
        follow(chained(written, [json.dumps(body) for body in bodies]))


@pytest.mark.parametrize(
    ("version", "fault"), [(1, "after one of version 2"), (3, "this program reads"), (True, "reads")]
)
def test_a_version_that_is_lower_or_not_known_is_refused(written: list[EntryView], version: int, fault: str) -> None:
    bodies = [json.loads(one.body) for one in written]
    bodies[-1]["v"] = version
    with pytest.raises(BrokenChainError, match=f"entry {len(bodies)}: it is of version {version}, .*{fault}"):
        follow(chained(written, [json.dumps(body) for body in bodies]))
    older = [json.dumps(body | {"v": 1}) for body in bodies[:2]]
    assert follow(chained(written[:2], older)).scope == bodies[0]["scope"], "what 0.1.0 wrote is followed"
