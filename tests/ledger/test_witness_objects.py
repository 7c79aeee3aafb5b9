"""A witness in a real object store over HTTP keeps a file's promises, for several machines and in spite of races."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from core.base.errors import LedgerBusy, LedgerFrozen, NotReady
from core.base.identifiers import new_id
from core.db.database import Database
from core.db.tables import Dataset
from core.ledger import ledger
from core.ledger.claims import refuse_if_frozen
from core.ledger.witness import witness as module
from core.ledger.witness.comparing import compare, guard
from core.ledger.witness.witness import Witness
from core.operations.reconciling import reconcile
from core.records.bucket import Bucket, Changed
from tests.ledger.test_witness import roll_back
from tests.support.store import Place, make_place, submit


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


@pytest.fixture
def witness(database: Database, bucket_url: str) -> Witness:
    made = Witness(bucket_url)
    assert guard(database, made) == []
    assert made.exists()
    return made


def add_job(database: Database, place: Place) -> str:
    with database.write() as session:
        return submit(session, place).id


def other(witness: Witness) -> Witness:
    """The same witness as another process sees it."""
    return Witness(witness.path)


def bucket_of(witness: Witness) -> Bucket:
    found: Bucket = witness._place._bucket
    return found


def test_every_process_knows_what_any_of_them_has_witnessed(database: Database, place: Place, witness: Witness) -> None:
    job_id = add_job(database, place)
    other(witness).keep(database, job_id)
    add_job(database, place)
    witness.keep(database)
    seen = other(witness).read()[place.scope_id]
    assert seen == witness.read()[place.scope_id]
    with database.read() as session:
        assert (seen.seq, seen.head) == (4, ledger.verify(session, place.scope_id).head)
        held = ledger.balance(session, place.scope_id)
    assert seen.taken[place.scope_id][: len(held.reserved)] == list(held.reserved)
    assert compare(database, other(witness)) == []


def test_a_restored_dump_freezes_the_ledger_until_it_is_reconciled(
    database: Database, place: Place, witness: Witness
) -> None:
    add_job(database, place)
    witness.keep(database)
    taken = witness.read()[place.scope_id].taken[place.scope_id]
    roll_back(database, place, 2)
    restored = add_job(database, place)
    assert any("another history" in problem for problem in guard(database, other(witness)))
    with pytest.raises(LedgerFrozen):
        add_job(database, place)
    assert reconcile(database, other(witness)) == ([restored], [])
    assert guard(database, witness) == []
    with database.read() as session:
        held = ledger.balance(session, place.scope_id)
        assert ledger.verify(session, place.scope_id).ok
    assert list(held.spent) == [max(one, two) for one, two in zip(taken, held.spent, strict=False)]
    witness.keep(database, add_job(database, place))
    assert compare(database, witness) == []


def test_a_forked_history_never_overwrites_the_evidence(database: Database, place: Place, witness: Witness) -> None:
    add_job(database, place)
    witness.keep(database)
    known = witness.read()
    roll_back(database, place, 2)
    for _ in range(3):
        forked = add_job(database, place)
    for one in (witness, other(witness)):
        one.keep(database)
        one.keep(database, forked)
        assert one.read() == known
    assert any("another history" in problem for problem in compare(database, witness))


def test_a_witness_that_was_deleted_freezes_the_ledger(database: Database, place: Place, witness: Witness) -> None:
    witness.keep(database, add_job(database, place))
    bucket = bucket_of(witness)
    for found in list(bucket.list()):
        bucket.erase(found.name)
    job_id = add_job(database, place)
    with pytest.raises(LedgerFrozen):  # by a process that has seen it and by one that has not
        witness.keep(database, job_id)
    with pytest.raises(LedgerFrozen), database.write() as session:
        refuse_if_frozen(session)
    with pytest.raises(LedgerFrozen):
        other(witness).keep(database, job_id)
    assert guard(database, other(witness)) == [module.MISSING]
    reconcile(database, other(witness), without=True)
    assert guard(database, other(witness)) == []


def test_tombstones_outlive_a_reconciliation(database: Database, place: Place, witness: Witness) -> None:
    assert place.dataset_id not in witness.erased()
    witness.bury(place.dataset_id)
    assert other(witness).erased() == {place.dataset_id}
    assert any("was erased, and is back" in problem for problem in compare(database, other(witness)))
    reconcile(database, witness)
    assert witness.erased() == {place.dataset_id}
    with database.read() as session:
        assert session.get_one(Dataset, place.dataset_id).state == "erasing"


def test_a_scope_that_a_restore_took_away_is_forgotten_by_the_reconciliation(
    database: Database, place: Place, witness: Witness
) -> None:
    bucket_of(witness).write(
        f"scopes/{new_id('sc')}", b'{"head": "sha256:x", "scope": "sc_x", "seq": 3, "taken": {}, "draws": {}}'
    )
    assert any("has lost entries" in problem for problem in guard(database, witness))
    reconcile(database, witness)
    assert set(other(witness).read()) == {place.scope_id}


class Slow:
    """A writer that is stopped, as by SIGSTOP, after it has read the database and before it writes."""

    def __init__(self, witness: Witness, monkeypatch: pytest.MonkeyPatch, *, conditional: bool = True) -> None:
        self.stopped, self.go_on = threading.Event(), threading.Event()
        bucket = bucket_of(witness)
        genuine = bucket.write_if

        def write_if(name: str, content: bytes, tag: str | None) -> str:
            if not self.go_on.is_set():
                self.stopped.set()
                assert self.go_on.wait(30)
            return genuine(name, content, tag) if conditional else bucket.write(name, content)

        monkeypatch.setattr(bucket, "write_if", write_if)


def race(database: Database, place: Place, witness: Witness, slow: Slow) -> int:
    """Let a writer stop with an old head in its hand while another one writes a newer; return what is kept at last."""
    job_id = add_job(database, place)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(witness.keep, database, job_id)
        assert slow.stopped.wait(30)
        for _ in range(3):
            other(witness).keep(database, add_job(database, place))
        slow.go_on.set()
        late.result(30)
    return other(witness).read()[place.scope_id].seq


def test_a_writer_that_was_stopped_never_replaces_a_newer_head(
    database: Database, place: Place, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert race(database, place, witness, Slow(witness, monkeypatch)) == 6
    assert compare(database, witness) == []


def test_without_the_condition_it_would(
    database: Database, place: Place, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted bug: the last writer wins."""
    assert race(database, place, witness, Slow(witness, monkeypatch, conditional=False)) == 3


def test_a_stopped_writer_that_goes_on_after_a_restore_writes_nothing(
    database: Database, place: Place, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = add_job(database, place)
    slow = Slow(witness, monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(witness.keep, database, job_id)
        assert slow.stopped.wait(30)
        roll_back(database, place, 2)
        reconcile(database, other(witness))
        slow.go_on.set()
        late.result(30)
    assert compare(database, other(witness)) == []


def test_many_writers_leave_the_newest_head_and_none_ever_goes_back(
    database: Database, place: Place, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote: list[int] = []
    genuine = Bucket.write_if

    def write_if(self: Bucket, name: str, content: bytes, tag: str | None) -> str:
        made = genuine(self, name, content, tag)
        if name.endswith(place.scope_id):
            wrote.append(len(wrote))
        return made

    monkeypatch.setattr(Bucket, "write_if", write_if)
    seen: list[int] = []
    done = threading.Event()

    def look() -> None:
        watcher = other(witness)
        while not done.is_set():
            seen.append(watcher.read()[place.scope_id].seq)

    def work(one: Witness) -> None:
        for _ in range(4):
            one.keep(database, add_job(database, place))

    with ThreadPoolExecutor(7) as pool:
        looking = pool.submit(look)
        try:
            list(pool.map(work, [witness, witness, *(other(witness) for _ in range(4))]))
        finally:
            done.set()
        looking.result(30)
    assert seen == sorted(seen)
    assert len(wrote) <= 24
    assert other(witness).read()[place.scope_id].seq == 2 + 24
    assert compare(database, other(witness)) == []


def test_a_payment_costs_one_request_however_many_scopes_there_are(
    database: Database, place: Place, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        make_place(database)
    witness.keep(database)
    mine = other(witness)
    job_id = add_job(database, place)
    mine.keep(database, job_id)  # finds the object and its tag
    asked: list[str] = []
    system = bucket_of(witness)._system
    genuine = system._call_s3

    async def counted(method: str, *args: object, **kwargs: object) -> object:
        asked.append(method)
        return await genuine(method, *args, **kwargs)

    monkeypatch.setattr(system, "_call_s3", counted)
    monkeypatch.setattr(system, "call_s3", lambda method, **kwargs: _sync(system, counted, method, **kwargs))
    with database.write() as session:
        submit(session, place)
    mine.keep(database, job_id)
    assert asked == ["put_object"]


def _sync(system: object, ask: Callable[..., object], *args: object, **kwargs: object) -> object:
    from fsspec.asyn import sync  # noqa: PLC0415 - here only

    return sync(system.loop, ask, *args, **kwargs)  # type: ignore[attr-defined]


def test_a_store_that_ignores_conditions_is_refused_at_start(
    database: Database, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = Bucket._put
    for ignored in ({"IfMatch"}, {"IfNoneMatch"}):

        def put(self: Bucket, name: str, content: bytes, ignored: set[str] = ignored, **condition: str) -> str:
            return genuine(self, name, content, **{k: v for k, v in condition.items() if k not in ignored})

        monkeypatch.setattr(Bucket, "_put", put)
        with pytest.raises(NotReady, match="ignores conditional writes"):
            guard(database, Witness(bucket_url))
    monkeypatch.setattr(Bucket, "_put", genuine)
    assert guard(database, Witness(bucket_url)) == []
    assert [found.name for found in Bucket(bucket_url).list("probes/")] == []


def test_a_store_that_is_away_is_worth_another_try(
    database: Database, place: Place, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = add_job(database, place)

    def away(*_: object, **__: object) -> None:
        raise NotReady("The object store does not answer (ConnectionError).")

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "write_if", away)
        with pytest.raises(LedgerBusy):
            witness.keep(database, job_id)
    witness.keep(database, job_id)
    assert other(witness).read()[place.scope_id].seq == 3


def test_conditions_name_the_very_object(bucket_url: str) -> None:
    bucket = Bucket(bucket_url)
    first = bucket.write_if("x", b"1", None)
    for tag in (None, '"0"'):
        with pytest.raises(Changed):
            bucket.write_if("x", b"2", tag)
    second = bucket.write_if("x", b"2", first)
    with pytest.raises(Changed):
        bucket.write_if("x", b"3", first)
    with pytest.raises(Changed):
        bucket.write_if("y", b"3", first)
    found = bucket.read("x")
    assert found is not None
    assert (found.bytes, found.tag) == (b"2", second)
