"""A witness that was deleted, emptied, cut, exchanged or put back is never taken for one that agrees.

At 9f63d67 an empty witness counted as agreement: a database put back to before half its payments served on.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from core.base.errors import Conflict, Invalid, LedgerFrozen, ScopeFrozen
from core.db.database import Database
from core.db.tables import Scope
from core.ledger import gaps, ledger
from core.ledger.claims import refuse_if_frozen
from core.ledger.witness.comparing import compare, guard, watch
from core.ledger.witness.witness import Witness
from core.operations.reconciling import reconcile
from core.records.bucket import Bucket
from tests.ledger.test_witness import pay_witnessed, roll_back, submit_witnessed
from tests.support.store import Place, make_place, submit


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


@pytest.fixture(params=["file", "bucket"])
def witness(request: pytest.FixtureRequest, database: Database, tmp_path: Path, place: Place) -> Witness:
    """A witness of each kind that knows of a job that has paid."""
    where = tmp_path / "witness.jsonl" if request.param == "file" else request.getfixturevalue("bucket_url")
    made = Witness(where)
    assert guard(database, made) == []
    pay_witnessed(database, place, made)
    return made


def contents(witness: Witness) -> dict[str, bytes]:
    """Return all that a witness keeps, by file or object."""
    if isinstance(witness.path, Path):
        return {"": witness.path.read_bytes()} if witness.path.exists() else {}
    bucket = Bucket(str(witness.path))
    found = {one.name: bucket.read(one.name) for one in list(bucket.list())}
    return {name: one.bytes for name, one in found.items() if one is not None}


def put(witness: Witness, kept: dict[str, bytes]) -> None:
    """Have a witness keep this and nothing else, past all that guards it."""
    if isinstance(witness.path, Path):
        witness.path.write_bytes(kept[""]) if kept else witness.path.unlink()
        return
    bucket = Bucket(str(witness.path))
    for one in list(bucket.list()):
        if one.name not in kept:
            bucket.erase(one.name)
    for name, written in kept.items():
        bucket.write(name, written)


def emptied(kept: dict[str, bytes]) -> dict[str, bytes]:
    return dict.fromkeys(kept, b"") if list(kept) == [""] else {"server": kept["server"]}


def deleted(kept: dict[str, bytes]) -> dict[str, bytes]:
    del kept
    return {}


def headed_only(kept: dict[str, bytes]) -> dict[str, bytes]:
    """The name stays, what it knew goes."""
    if list(kept) == [""]:
        return {"": kept[""].splitlines(keepends=True)[0]}
    return {"server": kept["server"]}


def half_a_line(kept: dict[str, bytes]) -> dict[str, bytes]:
    """The first line is cut, and all that follows."""
    if list(kept) == [""]:
        return {"": kept[""].splitlines()[0][:20]}
    return {name: written[: len(written) // 2] for name, written in kept.items()}


LOSSES: list[Callable[[dict[str, bytes]], dict[str, bytes]]] = [deleted, emptied, headed_only, half_a_line]


@pytest.mark.parametrize("lose", LOSSES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("restored", [False, True], ids=["database as it was", "database put back"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_witness_that_has_lost_what_it_knew_freezes_the_ledger(
    database: Database,
    place: Place,
    witness: Witness,
    lose: Callable[[dict[str, bytes]], dict[str, bytes]],
    *,
    restored: bool,
) -> None:
    put(witness, lose(contents(witness)))
    if restored:
        roll_back(database, place, 2)
    for process in (witness, Witness(witness.path)):  # one that has read it before, and one that starts now
        assert watch(database, process)
    assert guard(database, Witness(witness.path))
    with pytest.raises(LedgerFrozen):
        database.transaction(refuse_if_frozen)
    with pytest.raises(Conflict, match="No witness knows"):
        reconcile(database, Witness(witness.path))


@pytest.mark.parametrize("lose", [emptied, headed_only], ids=lambda one: one.__name__)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_payment_does_not_fill_an_emptied_witness_again(
    database: Database, place: Place, witness: Witness, lose: Callable[[dict[str, bytes]], dict[str, bytes]]
) -> None:
    """Or the next comparison would find that the two agree."""
    put(witness, lose(contents(witness)))
    with database.write() as session:
        job_id = submit(session, place).id
    for process in (Witness(witness.path), witness):
        with pytest.raises(LedgerFrozen):
            process.keep(database, job_id)


def after_reading(
    monkeypatch: pytest.MonkeyPatch, witness: Witness, act: Callable[[], object], times: Sequence[int] = (1,)
) -> None:
    """Have others act right after this witness has been read for these times, counted from here on."""
    place = witness._place
    genuine, turns = place.known, iter([time in times for time in range(1, max(times) + 1)])

    def known(*args: Any, **options: Any) -> Any:
        found = dict(genuine(*args, **options))
        if next(turns, False):
            place.known = genuine  # what the others read is not counted
            act()
            place.known = known
        return found

    monkeypatch.setattr(place, "known", known)


@pytest.mark.parametrize("who", ["the same process", "another"])
@pytest.mark.parametrize("times", [(2,), (2, 3)], ids=["once", "and again while that is read once more"])
def test_what_others_write_meanwhile_is_no_loss(
    database: Database, place: Place, witness: Witness, who: str, times: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until this test, a comparison beside a payment of another thread froze the ledger."""
    writer = witness if who == "the same process" else Witness(witness.path)

    def pay() -> None:
        pay_witnessed(database, place, writer)
        pay_witnessed(database, make_place(database), writer)

    after_reading(monkeypatch, witness, pay, times)  # whether it can be read at all is tried first
    assert watch(database, witness) == []
    database.transaction(refuse_if_frozen)
    assert compare(database, witness) == []


def test_payments_of_several_threads_and_processes_are_no_loss(
    database: Database, place: Place, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store nobody waits for a turn, so another may write, also a new scope, at any time."""
    witness = Witness(bucket_url)
    assert guard(database, witness) == []
    for writer in (witness, Witness(bucket_url)):
        pay_witnessed(database, place, witness)
        fresh = make_place(database)
        with monkeypatch.context() as patch:

            def pay(writer: Witness = writer, fresh: Place = fresh) -> None:
                pay_witnessed(database, place, writer)
                pay_witnessed(database, fresh, writer)

            after_reading(patch, witness, pay)
            pay_witnessed(database, fresh, witness)
    database.transaction(refuse_if_frozen)
    assert compare(database, witness) == []
    assert witness.read() == Witness(bucket_url).read()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_witness_of_another_installation_is_not_ours(
    database: Database, place: Place, witness: Witness, tmp_path: Path
) -> None:
    other = Database(f"sqlite+pysqlite:///{tmp_path / 'other.sqlite'}")
    try:
        other.migrate()
        path = tmp_path / "other.jsonl" if isinstance(witness.path, Path) else f"{witness.path}-other"
        theirs = Witness(path)
        assert guard(other, theirs) == []
        submit_witnessed(other, make_place(other), theirs)
        put(witness, contents(theirs))
    finally:
        other.dispose()
    assert any("another one" in problem for problem in guard(database, Witness(witness.path)))
    assert place


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_was_put_back_with_its_witness_is_seen_by_whoever_has_seen_more(
    database: Database, place: Place, witness: Witness
) -> None:
    """After a restart of every process nobody has: keep the witness where the machine's own copies do not reach it."""
    before = contents(witness)
    with database.read() as session:
        seq = session.get_one(Scope, place.scope_id).seq
    rounds = ledger.Rounds(database, whole_seconds=1e9)
    submit_witnessed(database, place, witness)
    assert rounds.go() == {}
    put(witness, before)
    roll_back(database, place, seq)
    assert compare(database, Witness(witness.path)) == [], "nothing is left that knows more"
    assert watch(database, witness)
    assert list(rounds.go()) == [place.scope_id]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_witness_of_before_names_is_given_one(database: Database, place: Place, tmp_path: Path) -> None:
    """As databases of before have them: it is taken for ours where all that it knows agrees."""
    witness = Witness(tmp_path / "old.jsonl")
    assert guard(database, witness) == []
    submit_witnessed(database, place, witness)
    lines = [json.loads(line) for line in witness.path.read_text().splitlines()]  # type: ignore[union-attr]  # a file
    unnamed = [{name: one for name, one in line.items() if name not in ("witness", "before")} for line in lines]
    witness.path.write_text("".join(json.dumps(line) + "\n" for line in unnamed))  # type: ignore[union-attr]  # a file
    with database.write() as session:
        session.execute(text("DELETE FROM secrets WHERE name = 'ledger-witness'"))
        session.execute(text("UPDATE scopes SET witnessed = false"))
    again = Witness(tmp_path / "old.jsonl")
    assert guard(database, again) == []
    assert again.name() is not None
    again.path.write_bytes(b"")  # type: ignore[union-attr]  # a file
    assert guard(database, Witness(tmp_path / "old.jsonl"))


def test_a_copy_from_before_a_reconciliation_is_reconciled_again(
    database: Database, place: Place, tmp_path: Path
) -> None:
    """Its witness has another name by now, and says what it was called before."""
    witness = Witness(tmp_path / "witness.jsonl")
    assert guard(database, witness) == []
    pay_witnessed(database, place, witness)
    with database.read() as session:
        name = session.execute(text("SELECT value FROM secrets WHERE name = 'ledger-witness'")).scalar_one()
    roll_back(database, place, 2)
    assert guard(database, witness)
    reconcile(database, witness)
    roll_back(database, place, 2)
    with database.write() as session:
        session.execute(text("UPDATE secrets SET value = :name WHERE name = 'ledger-witness'"), {"name": name})
    assert any("before a reconciliation" in problem for problem in guard(database, Witness(witness.path)))
    assert reconcile(database, Witness(witness.path)) == ([], [])
    assert guard(database, Witness(witness.path)) == []


class TestUnwitnessed:
    """At 9f63d67 the audit log said "brought up to the witness" where there was none."""

    @pytest.fixture
    def alone(self, database: Database, place: Place, tmp_path: Path) -> Iterator[Place]:
        """A ledger that went on without its witness."""
        witness = Witness(tmp_path / "witness.jsonl")
        assert guard(database, witness) == []
        pay_witnessed(database, place, witness)
        roll_back(database, place, 2)
        witness.path.unlink()  # type: ignore[union-attr]  # a file
        assert guard(database, Witness(tmp_path / "witness.jsonl"))
        failed, waiting = reconcile(database, Witness(tmp_path / "witness.jsonl"), without=True)
        assert (failed, waiting) == ([], [place.scope_id])
        return place

    def test_the_trail_says_what_may_be_missing(self, database: Database, alone: Place) -> None:
        with database.read() as session:
            scope = session.get_one(Scope, alone.scope_id)
            (gap,) = gaps.gaps_of(scope)
            assert gap.since <= gap.until
            bodies = [
                json.loads(one) for one in session.execute(text("SELECT body FROM entries ORDER BY seq")).scalars()
            ]
        told = bodies[-1]
        assert (told["kind"], told["since"], told["until"]) == ("unwitnessed", gap.since, gap.until)
        assert told["since"] == bodies[1]["at"]
        assert not any("brought up" in str(body.get("reason")) for body in bodies)
        with database.read() as session:
            assert ledger.verify(session, alone.scope_id).ok

    def test_no_job_is_admitted_until_the_owner_accepts(self, database: Database, alone: Place) -> None:
        with pytest.raises(ScopeFrozen, match="may be missing"), database.write() as session:
            submit(session, alone)
        database.transaction(ledger.freeze, alone.scope_id, "to be sure", alone.principal_id)
        database.transaction(ledger.unfreeze, alone.scope_id, "sure", alone.principal_id)
        with pytest.raises(ScopeFrozen, match="may be missing"), database.write() as session:
            submit(session, alone)
        with pytest.raises(Invalid, match="waits for nobody"):
            database.transaction(gaps.accept, alone.scope_id, 2, "what of it", alone.principal_id)
        database.transaction(gaps.accept, alone.scope_id, 3, "nothing ran that day", alone.principal_id)
        with pytest.raises(Conflict):
            database.transaction(gaps.accept, alone.scope_id, 3, "again", alone.principal_id)
        with database.write() as session:
            submit(session, alone)
        with database.read() as session:
            assert ledger.verify(session, alone.scope_id).ok
            (gap,) = gaps.gaps_of(session.get_one(Scope, alone.scope_id))
        assert gap.accepted == 6

    @pytest.mark.parametrize("statement", ["UPDATE scopes SET unwitnessed = '[]'"])
    def test_a_gap_is_not_taken_out_of_the_database_unseen(
        self, database: Database, alone: Place, statement: str
    ) -> None:
        with database.write() as session:
            session.execute(text(statement))
        with database.read() as session:
            found = ledger.verify(session, alone.scope_id)
        assert (found.ok, found.first_bad_seq) == (False, None)

    def test_another_s_word_is_a_broken_chain(self, database: Database, alone: Place) -> None:
        database.transaction(gaps.accept, alone.scope_id, 3, "never mind", "pr_operator")
        with database.read() as session:
            found = ledger.verify(session, alone.scope_id)
        assert (found.ok, found.reason) == (False, "it is not the owner's")

    def test_two_gaps_are_accepted_by_the_last(self, database: Database, alone: Place, tmp_path: Path) -> None:
        path = tmp_path / "witness.jsonl"
        path.unlink()
        assert guard(database, Witness(path))
        reconcile(database, Witness(path), without=True)
        database.transaction(gaps.accept, alone.scope_id, 4, "lost twice", alone.principal_id)
        with database.read() as session:
            assert [gap.accepted for gap in gaps.gaps_of(session.get_one(Scope, alone.scope_id))] == [5, 5]
            assert ledger.verify(session, alone.scope_id).ok


def test_live_jobs_are_charged_and_a_claim_of_before_is_stale(database: Database, place: Place, tmp_path: Path) -> None:
    witness = Witness(tmp_path / "witness.jsonl")
    assert guard(database, witness) == []
    pay_witnessed(database, place, witness)
    witness.path.unlink()  # type: ignore[union-attr]  # a file
    assert guard(database, Witness(witness.path))
    failed, waiting = reconcile(database, Witness(witness.path), without=True)
    assert (len(failed), waiting) == (1, [place.scope_id])
    with database.read() as session:
        assert ledger.verify(session, place.scope_id).ok
        assert not any(ledger.balance(session, place.scope_id).reserved)
