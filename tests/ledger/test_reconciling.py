"""A reconciliation beside processes that compare, and one that is killed: the ledger goes on once it has ended."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from core.base.errors import LedgerFrozen
from core.db.database import Database
from core.ledger.claims import refuse_if_frozen
from core.ledger.witness import comparing
from core.ledger.witness.comparing import compare, guard, watch
from core.ledger.witness.witness import Witness
from core.operations import reconciling
from core.operations.reconciling import reconcile
from tests.ledger.test_witness import pay_witnessed, roll_back
from tests.support.store import Place, make_place


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


@pytest.fixture(params=["file", "bucket"])
def witness(request: pytest.FixtureRequest, database: Database, tmp_path: Path, place: Place) -> Witness:
    """A witness of each kind that is ahead of its ledger."""
    where = tmp_path / "witness.jsonl" if request.param == "file" else request.getfixturevalue("bucket_url")
    made = Witness(where)
    assert guard(database, made) == []
    pay_witnessed(database, place, made)
    roll_back(database, place, 2)
    return made


def goes_on(database: Database, *processes: Witness) -> None:
    """Assert that the ledger is not frozen, and that nobody who compares freezes it."""
    database.transaction(refuse_if_frozen)
    for process in processes:
        assert watch(database, process) == []
    database.transaction(refuse_if_frozen)


def around(monkeypatch: pytest.MonkeyPatch, step: str, when: str, act: Callable[[], object]) -> None:
    """Have something happen before or after a step of the next reconciliation."""
    home = Witness if step == "start" else reconciling
    kept = getattr(home, step)

    def wrapped(*given: object) -> object:
        if when == "before":
            act()
        made = kept(*given)
        if when == "after":
            act()
        return made

    monkeypatch.setattr(home, step, wrapped)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_who_compares_in_the_middle_does_not_freeze_what_was_reconciled(
    database: Database, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor looks every few seconds, and met the new name beside the old witness."""
    fresh, old = Witness(witness.path), Witness(witness.path)
    assert watch(database, old)
    found: list[list[str]] = []
    for when in ("before", "after"):
        around(monkeypatch, "start", when, lambda: found.extend(watch(database, one) for one in (old, fresh)))
    reconcile(database, Witness(witness.path))
    assert len(found) == 4
    goes_on(database, old, fresh, witness, Witness(witness.path))


@pytest.mark.parametrize("how", [watch, guard])
def test_what_was_found_before_a_reconciliation_does_not_freeze_after_it(
    database: Database, witness: Witness, monkeypatch: pytest.MonkeyPatch, how: Callable[..., list[str]]
) -> None:
    kept = compare

    def slow(*given: object) -> list[str]:
        found = kept(*given)  # type: ignore[arg-type]  # as `compare` takes them
        monkeypatch.setattr(comparing, "compare", kept)
        assert found
        reconcile(database, Witness(witness.path))
        return found

    monkeypatch.setattr(comparing, "compare", slow)
    assert how(database, Witness(witness.path)) == []
    goes_on(database, witness, Witness(witness.path))


@pytest.mark.parametrize("name", ["known", "name"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_look_that_a_reconciliation_overtakes_keeps_no_old_number(
    database: Database, witness: Witness, monkeypatch: pytest.MonkeyPatch, name: str, at: int
) -> None:
    """Or this process would say for ever that the witness has lost what it knew."""
    watcher = Witness(witness.path)
    kept, looks = getattr(watcher._place, name), 0

    def read(*given: object, **more: object) -> object:
        nonlocal looks
        looks += 1
        found = kept(*given, **more)
        if looks == at:
            reconcile(database, Witness(witness.path))
            assert compare(database, witness) == []
        return dict(found) if name == "known" else found

    monkeypatch.setattr(watcher._place, name, read)
    watch(database, watcher)
    while looks < at:
        watch(database, watcher)
    monkeypatch.undo()
    goes_on(database, watcher, Witness(witness.path))


class Killed(Exception):
    """The process ends here."""


@pytest.mark.parametrize(("step", "when"), [("_reconcile", "after"), ("start", "after")])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_one_that_was_killed_is_begun_again(
    database: Database, place: Place, witness: Witness, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    def end() -> None:
        raise Killed

    assert watch(database, witness)
    with monkeypatch.context() as patch:
        around(patch, step, when, end)
        with pytest.raises(Killed):
            reconcile(database, Witness(witness.path))
    with pytest.raises(LedgerFrozen):
        database.transaction(refuse_if_frozen)
    assert reconcile(database, Witness(witness.path)) == ([], []), "the witness is known for its own"
    goes_on(database, witness, Witness(witness.path))
    with database.read() as session:
        spent = session.execute(text("SELECT spent_1 FROM accounts WHERE id = :id"), {"id": place.scope_id})
        assert spent.scalar_one() > 0
