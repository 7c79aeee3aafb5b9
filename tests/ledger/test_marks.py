"""An attempt's start relies on a mark and on the witness: a forger of the database changes rows, chain or mark.

Each forger here owns the whole database for the moment in which the trainer reads, and has neither the master key nor
the witness.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from core.db.database import Database
from core.db.service_tables import VerifiedHead
from core.db.tables import Account, Dataset, Entry, Job, Scope
from core.jobs import jobs
from core.ledger import ledger, marks
from core.ledger.claims import Claim
from core.ledger.marks import EVERY, MarkKey, read_mark, write_mark
from core.ledger.rereading import Rereader
from core.ledger.states import BLOCK, read_state
from core.ledger.tally import BrokenChain
from core.ledger.verification import Verifier
from core.ledger.witness.comparing import guard
from core.ledger.witness.trusting import Trust, ask_witness, follow, leave_mark
from core.ledger.witness.witness import Witness
from core.privacy.draws import MOST_RUNS
from core.training.order import AttemptInput, read_order
from tests.ledger.test_forgeries import SCHEDULE, Bodies, drop_triggers, history, of, rewrite
from tests.ledger.test_history import AT_ONCE, counted, spend_chunks
from tests.ledger.test_ledger_breaks import MOMENTS
from tests.support.store import DRAWS, Place, backed_up, make_place, put_back, submit

KEY, ANOTHER = MarkKey(b"k" * 32), MarkKey(b"l" * 32)


@pytest.fixture
def witness(database: Database, tmp_path: Path) -> Witness:
    made = Witness(tmp_path / "elsewhere" / "witness.jsonl")
    assert guard(database, made) == []
    return made


def trusted(witness: Witness, place: Place, key: MarkKey = KEY) -> Trust:
    return ask_witness(Witness(witness.path), [place.scope_id], [key])


def start(database: Database, witness: Witness, place: Place, claim: Claim) -> AttemptInput:
    """Begin an attempt as a trainer does: the witness first, then all of one snapshot."""
    trust = trusted(witness, place)
    with database.read() as session:
        return read_order(session, claim, trust)


def mark(database: Database, place: Place, key: MarkKey = KEY) -> None:
    verifier = Verifier(place.scope_id)
    with database.read() as session:
        assert verifier.verify(session).ok
    database.transaction(write_mark, verifier.state, key)


def begun(database: Database, witness: Witness, place: Place, *, marked: bool) -> Claim:
    """Let a job wait, with its records noted; claim it, and have the witness see that."""
    with database.write() as session:
        dataset = session.get_one(Dataset, place.dataset_id)
        dataset.location, dataset.location_digest, dataset.wrapped_key = "rec_a", "sha256:a", "v1.a.b"
    claim = database.transaction(jobs.claim, "w", 600.0)
    assert claim is not None
    witness.keep(database, claim.job_id)
    if marked:
        mark(database, place)
    return claim


def half_the_noise(bodies: Bodies) -> None:
    bodies[0]["adjacency"] = "replace_one"


def serve_one_unit_more(bodies: Bodies) -> None:
    bodies[0]["units"] = of(bodies, "upload")["rows"] = 1001


REWRITTEN: dict[str, Callable[[Database, Place], None]] = {
    "the first entry's adjacency": lambda database, place: (
        rewrite(database, place.scope_id, half_the_noise),
        change(database, update(Scope).values(adjacency="replace_one")),
    )[0],
    "a larger n": lambda database, place: (
        rewrite(database, place.scope_id, serve_one_unit_more),
        change(database, update(Scope).values(units=1001)),
        change(database, update(Dataset).values(rows=1001)),
    )[0],
    "a job less": lambda database, place: (
        rewrite(database, place.scope_id, without_the_first_job),
        change(database, update(Account).values(draws=Account.draws - DRAWS // MOST_RUNS)),
    )[0],
}


def change(database: Database, statement: object) -> None:
    with database.write() as session:
        session.execute(statement)  # type: ignore[call-overload]  # any statement


def without_the_first_job(bodies: Bodies) -> None:
    job = of(bodies, "reserve")["job"]
    bodies[:] = [body for body in bodies if body["job"] != job]


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("forge", REWRITTEN.values(), ids=REWRITTEN.keys())
def test_a_chain_rewritten_from_end_to_end_for_one_moment_begins_no_attempt(
    database: Database, witness: Witness, forge: Callable[[Database, Place], None], *, marked: bool
) -> None:
    """Every hash, price, sum and row agrees. At 2ee9d81 the attempt began, with half the noise, and no sweep saw it."""
    place = history(database)
    claim = begun(database, witness, place, marked=marked)
    honest = start(database, witness, place, claim)
    before = backed_up(database)
    forge(database, place)
    forget_jobs_without_entries(database)
    with database.read() as session:
        assert ledger.verify(session, place.scope_id).ok, "the chain agrees with itself, and with every row"
    with pytest.raises(AssertionError, match="does not verify"):
        start(database, witness, place, claim)
    change(database, text("DELETE FROM verified_heads"))
    with pytest.raises(AssertionError, match="its witness has seen"):
        start(database, witness, place, claim)
    put_back(database, before)
    assert start(database, witness, place, claim) == honest


def forget_jobs_without_entries(database: Database) -> None:
    with database.write() as session:
        if session.get_bind().dialect.name == "sqlite":
            session.execute(text("PRAGMA defer_foreign_keys = ON"))
        named = "SELECT job_id FROM entries WHERE job_id IS NOT NULL"
        for table in ("job_events", "labels", "attempts", "checkpoints", "models"):
            session.execute(text(f"DELETE FROM {table} WHERE job_id NOT IN ({named})"))
        session.execute(text(f"DELETE FROM jobs WHERE id NOT IN ({named})"))


@pytest.mark.parametrize("flip", MOMENTS.values(), ids=MOMENTS.keys())
def test_rows_changed_for_one_moment_begin_no_attempt_though_the_mark_holds(
    database: Database, witness: Witness, flip: Callable[[Session, Place, Job], object]
) -> None:
    place = make_place(database)
    with database.write() as session:
        submit(session, place, SCHEDULE)
    claim = begun(database, witness, place, marked=True)
    assert start(database, witness, place, claim).adjacency == "zero_out"
    with database.write() as session:
        flip(session, place, session.get_one(Job, claim.job_id))
    with pytest.raises(AssertionError, match="does not verify"):
        start(database, witness, place, claim)


def test_balances_changed_with_old_rows_are_not_those_of_the_mark(database: Database, witness: Witness) -> None:
    """The amount of an old payment is made less, in its entry and in the account, and the head is left alone."""
    place = history(database)
    claim = begun(database, witness, place, marked=True)
    with database.write() as session:
        drop_triggers(session)
        first = select(Entry).where(Entry.kind == "spend").order_by(Entry.seq).limit(1)
        row = session.execute(first).scalar_one()
        row.body = row.body.replace('"spent":[', '"spent":[-1')
        account = session.get_one(Account, place.scope_id)
        account.spent_1 -= 10**6
    with pytest.raises(AssertionError, match="is not the sum of its entries"):
        start(database, witness, place, claim)


def test_old_rows_decide_nothing_and_the_next_whole_pass_finds_them(database: Database, witness: Witness) -> None:
    place = history(database)
    claim = begun(database, witness, place, marked=True)
    honest = start(database, witness, place, claim)
    with database.write() as session:
        drop_triggers(session)
        statement = update(Entry).where(Entry.scope_id == place.scope_id, Entry.seq == 5)
        session.execute(statement.values(body=func.replace(Entry.body, "spend", "spent")))
    assert start(database, witness, place, claim) == honest
    assert list(ledger.Rounds(database, whole_seconds=1e9).go()) == [place.scope_id]


Forge = Callable[[Session, VerifiedHead], object]


def other_balance(_: Session, row: VerifiedHead) -> None:
    """The forger has half of the budget again."""
    row.state = row.state.replace('"spent":[', '"spent":[-', 1)


def other_adjacency(_: Session, row: VerifiedHead) -> None:
    row.state = row.state.replace('"adjacency":"zero_out"', '"adjacency":"replace_one"')


def under_a_key_of_the_forgers(_: Session, row: VerifiedHead) -> None:
    other_adjacency(_, row)
    row.code = ANOTHER.code(row.state)


def not_even_text(_: Session, row: VerifiedHead) -> None:
    row.state = "é" + row.state


def a_code_that_is_no_text(_: Session, row: VerifiedHead) -> None:
    row.code = "é" + row.code[1:]


@pytest.mark.parametrize(
    "forge", [other_balance, other_adjacency, under_a_key_of_the_forgers, not_even_text, a_code_that_is_no_text]
)
def test_a_mark_that_was_forged_does_not_count(database: Database, witness: Witness, forge: Forge) -> None:
    place = history(database)
    claim = begun(database, witness, place, marked=True)
    honest = start(database, witness, place, claim)
    with database.write() as session:
        row = session.execute(select(VerifiedHead)).scalar_one()
        before = row.state, row.code
        forge(session, row)
        assert (row.state, row.code) != before
    with database.read() as session:
        assert read_mark(session, place.scope_id, [KEY]) is None
    assert start(database, witness, place, claim) == honest, "followed from the first entry"


def test_another_scope_s_mark_and_another_build_s_do_not_count(database: Database) -> None:
    place, other = history(database), make_place(database)
    mark(database, place)
    with database.write() as session:
        row = session.execute(select(VerifiedHead)).scalar_one()
        copy = {name: getattr(row, name) for name in ("maker", "seq", "state", "code", "made_at")}
        session.add(VerifiedHead(scope_id=other.scope_id, **copy))
    with database.read() as session:
        assert read_mark(session, place.scope_id, [KEY]) is not None
        assert read_mark(session, other.scope_id, [KEY]) is None
        assert read_mark(session, place.scope_id, [ANOTHER]) is None


def test_an_older_mark_put_back_changes_nothing(database: Database, witness: Witness) -> None:
    place = history(database)
    mark(database, place)
    with database.read() as session:
        old = session.execute(select(VerifiedHead.state, VerifiedHead.code)).one()
    claim = begun(database, witness, place, marked=False)
    database.transaction(ledger.pay, claim, 0, None, 0)
    witness.keep(database)
    mark(database, place)
    honest = start(database, witness, place, claim)
    change(database, update(VerifiedHead).values(state=old.state, code=old.code))
    assert start(database, witness, place, claim) == honest
    assert honest.charged == {SCHEDULE[0]: 1}


def test_a_database_put_back_with_its_marks_begins_no_attempt(database: Database, witness: Witness) -> None:
    """For the moment of a claim and a start, between two comparisons with the witness."""
    place = history(database)
    claim = begun(database, witness, place, marked=True)
    before = backed_up(database)
    database.transaction(ledger.pay, claim, 0, None, 0)
    witness.keep(database)
    put_back(database, before)
    with pytest.raises(AssertionError, match="its witness has seen"):
        start(database, witness, place, claim)


def test_a_scope_that_the_witness_does_not_know_begins_no_attempt(database: Database, witness: Witness) -> None:
    place = history(database)
    claim = begun(database, witness, place, marked=True)
    trust = Trust([KEY], {})
    with database.read() as session, pytest.raises(AssertionError, match="does not know"):
        read_order(session, claim, trust)
    lost = Trust([KEY], witness.read(), [place.scope_id])
    with database.read() as session, pytest.raises(AssertionError, match="has lost"):
        read_order(session, claim, lost)


def test_what_goes_on_from_a_mark_comes_to_the_same_state(database: Database) -> None:
    """At each entry of a history with every ending; corrections of jobs from before the mark, too."""
    place = history(database)
    whole = Verifier(place.scope_id)
    with database.read() as session:
        assert whole.verify(session).ok
        last = whole.place[0]
    for seq in range(1, last + 1):
        verifier = Verifier(place.scope_id)
        with database.read() as session:
            while verifier.place[0] < seq:
                verifier.advance(session, 1)
            text_then = verifier.state.text()
            goes_on = Verifier(place.scope_id, mark=read_state(text_then))
            found = goes_on.verify(session)
        assert found.ok, found.reason
        assert read_state(text_then).text() == text_then
        assert goes_on.state.text() == whole.state.text()


def test_a_charge_before_the_mark_given_back_after_it_is_verified(database: Database, witness: Witness) -> None:
    place = make_place(database)
    with database.write() as session:
        submit(session, place, SCHEDULE)
    claim = database.transaction(jobs.claim, "w", 600.0)
    assert claim is not None
    database.transaction(jobs.fail, claim, "gpu-unavailable", charge="all")
    mark(database, place)
    database.transaction(ledger.compensate, place.scope_id, claim.job_id, 1, "no driver", place.principal_id)
    witness.keep(database)
    with database.read() as session:
        found = follow(session, place.scope_id, trusted(witness, place))
    assert found.found.ok, found.found.reason
    assert set(found.state.tally.corrected) == {claim.job_id}


def test_entries_below_a_mark_are_hashed_again_before_they_are_shown(database: Database) -> None:
    """Over more than two blocks: each entry that was changed, and no other, is refused."""
    place = make_place(database)
    spend_chunks(database, place, 2 * BLOCK + AT_ONCE)
    verifier = Verifier(place.scope_id)
    with database.read() as session:
        assert verifier.verify(session).ok
        rows = session.execute(select(Entry).order_by(Entry.seq)).scalars().all()
        entries = Rereader(session, verifier.state)
        for row in rows:
            entries.confirm(row)
        assert entries.hash_at(BLOCK) == rows[BLOCK - 1].hash
    changed = BLOCK + 7
    with database.write() as session:
        drop_triggers(session)
        row = session.get_one(Entry, (place.scope_id, changed))
        row.body = row.body.replace('"again":false', '"again":true')
    with database.read() as session:
        rows = session.execute(select(Entry).order_by(Entry.seq)).scalars().all()
        Rereader(session, verifier.state).confirm(rows[3])
        for near in (changed, changed + 20):
            with pytest.raises(BrokenChain):
                Rereader(session, verifier.state).confirm(rows[near - 1])


def test_supervisors_leave_marks_and_others_go_on_from_them(database: Database, witness: Witness) -> None:
    place = make_place(database)
    rounds = ledger.Rounds(database, whole_seconds=1e9, keys=lambda: [KEY, ANOTHER])
    spend_chunks(database, place, AT_ONCE)
    assert rounds.go() == {}
    with database.read() as session:
        first = session.execute(select(VerifiedHead)).scalar_one()
        assert (first.maker, first.seq) == (KEY.name, session.get_one(Scope, place.scope_id).seq)
    spend_chunks(database, place, EVERY // 2)
    witness.keep(database)
    assert rounds.go() == {}
    with database.read() as session:
        found = follow(session, place.scope_id, trusted(witness, place))
    assert found.marked == first.seq, "too little was new"
    spend_chunks(database, place, EVERY)
    assert rounds.go() == {}
    with database.read() as session:
        found = follow(session, place.scope_id, trusted(witness, place))
    assert found.marked == found.state.tally.seq > first.seq


def test_marks_that_nobody_renews_are_taken_away(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    place = history(database)
    mark(database, place, ANOTHER)
    monkeypatch.setattr(marks, "KEPT_SECONDS", -1.0)
    mark(database, place)
    with database.read() as session:
        assert session.execute(select(VerifiedHead.maker)).scalars().all() == [KEY.name]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_attempt_begins_as_fast_after_many_entries_as_after_few(database: Database, witness: Witness) -> None:
    """In steps of SQLite's machine. At 2ee9d81: 21 times as many."""
    place = make_place(database)
    rounds = ledger.Rounds(database, whole_seconds=1e9, keys=lambda: [KEY])

    def steps(chunks: int) -> int:
        spend_chunks(database, place, chunks)
        with database.write() as session:
            submit(session, place, SCHEDULE)
        claim = begun(database, witness, place, marked=False)
        assert rounds.go() == {}
        trust = trusted(witness, place)
        with database.read() as session, counted(session) as count:
            assert read_order(session, claim, trust).units == 1000
            taken = count()
        database.transaction(jobs.fail, claim, "diverged", charge="spent")
        return taken

    few = steps(40)
    assert steps(1160) <= 1.5 * few


def test_a_mark_is_left_where_much_was_new(database: Database, witness: Witness) -> None:
    place = make_place(database)
    spend_chunks(database, place, AT_ONCE)
    witness.keep(database)
    trust = trusted(witness, place)
    with database.read() as session:
        found = follow(session, place.scope_id, trust)
    leave_mark(database, found, trust.keys)
    with database.read() as session:
        assert follow(session, place.scope_id, trust).marked == found.state.tally.seq


def test_processes_that_keep_one_mark_at_a_time_do_not_collide(database: Database) -> None:
    """Nine of 160 signed heads were 500 on PostgreSQL: both had found no mark, and both added one."""
    place = make_place(database)
    verifier = Verifier(place.scope_id)
    with database.read() as session:
        assert verifier.verify(session).ok
    for number in range(20):
        key = MarkKey(bytes([number]) * 32)
        both = Barrier(2)

        def keep(key: MarkKey = key, both: Barrier = both) -> None:
            with database.write() as session:
                if not database.is_sqlite:
                    read_mark(session, place.scope_id, [key])
                    both.wait(10)
                write_mark(session, verifier.state, key)

        with ThreadPoolExecutor(2) as pool:
            for kept in [pool.submit(keep) for _ in range(2)]:
                kept.result()
        with database.read() as session:
            assert read_mark(session, place.scope_id, [key]) is not None


def test_a_mark_is_not_replaced_by_an_older_one(database: Database) -> None:
    """As of a process that is behind; a forged one that names a later entry is replaced."""
    place = history(database)
    verifier = Verifier(place.scope_id)
    with database.read() as session:
        assert verifier.advance(session, 4) is None
        early = read_state(verifier.state.text())
        assert verifier.verify(session).ok
    last = verifier.place[0]
    for state, kept in ((early, True), (verifier.state, True), (verifier.state, True), (early, False)):
        assert database.transaction(write_mark, state, KEY) == kept
    with database.read() as session:
        assert (found := read_mark(session, place.scope_id, [KEY])) is not None
        assert found.tally.seq == last
    for forged in ({"code": "0" * 64, "seq": last + 1000}, {"seq": last + 1000}):
        change(database, update(VerifiedHead).values(**forged))
        assert database.transaction(write_mark, verifier.state, KEY)
        with database.read() as session:
            assert session.execute(select(VerifiedHead.seq)).scalar_one() == last
            assert read_mark(session, place.scope_id, [KEY]) is not None
