import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import delete, select, text

from core.access import principals
from core.base.errors import BudgetExhausted, Conflict, LedgerFrozen, NotReady, StaleAttempt
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.tables import Account, Attempt, Entry, Job, JobEvent, Label, ScopeEvent
from core.jobs import jobs
from core.jobs.sweep import sweep
from core.ledger import ledger
from core.ledger.claims import Claim, epoch, freeze_ledger, refuse_if_frozen
from core.ledger.identities import was_paid
from core.ledger.witness import witness as module
from core.ledger.witness import witness_file
from core.ledger.witness.comparing import compare, guard, refuse_strange
from core.ledger.witness.witness import Witness
from core.operations.reconciling import reconcile
from core.privacy.amounts import BudgetCap, CapRequest
from core.privacy.budget import plan_orders
from core.privacy.caps import declared_cap, terms_of_cap
from core.privacy.events import Zcdp, compose
from core.privacy.renyi import cost_nano
from core.training.job_repository import open_job_repository
from tests.support.store import STEP, Place, backed_up, make_place, put_back, submit

LEASE = 60.0


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


@pytest.fixture
def witness(database: Database, tmp_path: Path) -> Witness:
    made = Witness(tmp_path / "elsewhere" / "witness.jsonl")
    assert guard(database, made) == []
    assert made.exists()
    return made


def submit_witnessed(database: Database, place: Place, witness: Witness) -> str:
    with database.write() as session:
        job_id = submit(session, place).id
    witness.keep(database)
    return job_id


def pay_witnessed(database: Database, place: Place, witness: Witness) -> Claim:
    """Have a job pay for its first chunk, and the witness see it."""
    submit_witnessed(database, place, witness)
    claim = database.transaction(jobs.claim, "w", LEASE)
    assert claim is not None
    database.transaction(ledger.pay, claim, 0, None, 0)
    witness.keep(database)
    return claim


def roll_back(database: Database, place: Place, seq: int) -> None:
    """Put a scope back to an earlier entry, as a restore of yesterday's dump does, with no job left after it."""
    with database.write() as session:
        if session.get_bind().dialect.name == "sqlite":
            session.execute(text("DROP TRIGGER IF EXISTS entries_no_delete"))
        else:
            session.execute(text("ALTER TABLE entries DISABLE TRIGGER USER"))
        for table in (JobEvent, Label, Attempt, Job, ScopeEvent):
            session.execute(delete(table))
        session.execute(delete(Entry).where(Entry.scope_id == place.scope_id, Entry.seq > seq))
        session.execute(
            text(
                "UPDATE scopes SET seq = :seq, head = (SELECT hash FROM entries e WHERE e.seq = :seq), "
                "gaussian_rho = '0', other_rho = '0', unpriced = 0"
            ),
            {"seq": seq},
        )
        session.execute(
            text("UPDATE accounts SET draws = 0, " + ", ".join(f"spent_{j} = 0, reserved_{j} = 0" for j in range(1, 5)))
        )


def test_a_ledger_that_only_grows_agrees(database: Database, place: Place, witness: Witness) -> None:
    submit_witnessed(database, place, witness)
    with database.write() as session:
        submit(session, place)
    assert compare(database, witness) == []
    witness.keep(database)
    seen = witness.read()[place.scope_id]
    with database.read() as session:
        held = ledger.balance(session, place.scope_id)
        assert seen.head == ledger.verify(session, place.scope_id).head
    assert seen.seq == 4
    assert seen.taken[place.scope_id][: len(held.reserved)] == list(held.reserved)


def test_a_backup_from_before_a_claim_gives_nobody_a_second_reading(
    database: Database, place: Place, witness: Witness
) -> None:
    """A claim is no entry, so the witness agrees. The worker that had it goes on beside the one that takes it anew."""
    submit_witnessed(database, place, witness)
    database.transaction(epoch)  # drawn long ago
    before = backed_up(database)
    old = database.transaction(jobs.claim, "w", LEASE)
    assert old is not None
    put_back(database, before)
    assert compare(database, witness) == []
    new = database.transaction(jobs.claim, "v", LEASE)
    assert new is not None
    database.transaction(ledger.pay, new, 0, None, 0)
    with pytest.raises(StaleAttempt):
        database.transaction(ledger.pay, old, 0, None, 0)  # it would read the chunk that the other has paid for


def test_what_is_reconciled_was_paid_though_the_entries_that_said_so_are_lost(
    database: Database, place: Place, witness: Witness
) -> None:
    pay_witnessed(database, place, witness)
    roll_back(database, place, 2)
    with database.read() as session:
        assert not was_paid(session, place.scope_id)
    reconcile(database, witness)
    with database.read() as session:
        kinds = session.execute(select(Entry.kind).where(Entry.scope_id == place.scope_id)).scalars().all()
        assert "reconcile" in kinds
        assert "spend" not in kinds
        assert was_paid(session, place.scope_id)


def test_a_restored_dump_freezes_the_ledger_until_it_is_reconciled(
    database: Database, place: Place, witness: Witness
) -> None:
    claim = pay_witnessed(database, place, witness)
    taken = witness.read()[place.scope_id].taken[place.scope_id]
    roll_back(database, place, 2)
    with database.write() as session:
        restored = submit(session, place, [Zcdp(rho=0.001)]).id
    assert any("lost entries" in problem for problem in guard(database, witness))
    with pytest.raises(LedgerFrozen), database.write() as session:
        submit(session, place)
    for work in (
        lambda session: jobs.claim(session, "w", LEASE),
        lambda session: ledger.pay(session, claim, 1, None, 1),
        lambda session: jobs.cancel(session, restored),
        lambda session: sweep(session, LEASE, 3, 1.0),
    ):
        with pytest.raises(LedgerFrozen):
            database.transaction(work)
    assert reconcile(database, witness) == ([restored], [])
    assert guard(database, witness) == []
    with database.read() as session:
        held = ledger.balance(session, place.scope_id)
        assert ledger.verify(session, place.scope_id).ok
        assert session.get_one(Job, restored).error_code == "worker-lost"
        drawn = compose(ledger.executed(session, place.scope_id))
    assert list(held.spent) == [max(one, two) for one, two in zip(taken, held.spent, strict=False)]
    assert not any(held.reserved)
    told = cost_nano(drawn, held.terms.orders)  # what reports say of it: all that was charged, and hardly more
    assert all(-2 <= one - two <= 0.01 * two for one, two in zip(told, held.spent, strict=True)), (told, held.spent)
    with database.write() as session:
        submit(session, place)
    database.transaction(jobs.claim, "w", LEASE)
    with pytest.raises(StaleAttempt):
        database.transaction(ledger.pay, claim, 1, None, 1)


def test_a_forked_history_is_noticed_and_never_overwrites_the_evidence(
    database: Database, place: Place, witness: Witness
) -> None:
    submit_witnessed(database, place, witness)
    known = witness.read()
    roll_back(database, place, 2)
    for _ in range(3):
        with database.write() as session:
            submit(session, place)
    witness.keep(database)
    assert witness.read() == known
    assert any("another history" in problem for problem in compare(database, witness))


def test_a_missing_witness_of_a_ledger_with_jobs_freezes_it(database: Database, place: Place, witness: Witness) -> None:
    submit_witnessed(database, place, witness)
    witness.path.unlink()
    with pytest.raises(LedgerFrozen):
        witness.keep(database)
    with pytest.raises(LedgerFrozen), database.write() as session:
        refuse_if_frozen(session)
    assert guard(database, witness) == [module.MISSING]
    with pytest.raises(Conflict, match="No witness knows"):
        reconcile(database, witness)
    assert reconcile(database, witness, without=True)[1] == [place.scope_id]
    assert guard(database, witness) == []


def test_a_witness_of_another_place_is_strange_and_a_ledgers_own_is_not(
    database: Database, place: Place, witness: Witness, tmp_path: Path
) -> None:
    """A worker that starts with it would freeze every ledger."""
    submit_witnessed(database, place, witness)
    refuse_strange(database, witness)
    url = database.url.render_as_string(hide_password=False)
    settings = ServiceSettings(home=tmp_path, database_url=url, witness=tmp_path / "nowhere.jsonl")
    with pytest.raises(NotReady, match=r"witness is not at .*nowhere"):
        open_job_repository(settings, "w")
    with database.write() as session:
        refuse_if_frozen(session)  # nothing was frozen


def test_another_server_is_noticed(database: Database, place: Place, witness: Witness) -> None:
    submit_witnessed(database, place, witness)
    lines = witness.path.read_text().splitlines()
    assert json.loads(lines[0])["server"] == (None if database.is_sqlite else witness.identity())
    witness.path.write_text("\n".join([json.dumps({**json.loads(lines[0]), "server": "1/2"}), *lines[1:]]) + "\n")
    assert any("another one" in problem for problem in compare(database, witness))


def test_a_crash_while_appending_loses_that_line_only(database: Database, place: Place, witness: Witness) -> None:
    submit_witnessed(database, place, witness)
    known = witness.read()
    with witness.path.open("a") as file:
        file.write('{"scope": "sc_half')
    assert witness.read() == known
    submit_witnessed(database, place, witness)
    assert witness.read()[place.scope_id].seq == 4


def test_a_large_witness_is_rewritten(
    database: Database, place: Place, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        submit_witnessed(database, place, witness)
    monkeypatch.setattr(witness_file, "COMPACT_BYTES", 1)
    submit_witnessed(database, place, witness)
    assert len(witness.path.read_text().splitlines()) == 2
    assert compare(database, witness) == []


def test_reconciling_never_passes_a_cap_but_exhausts_the_budget(
    database: Database, place: Place, witness: Witness
) -> None:
    submit_witnessed(database, place, witness)
    line = json.loads(witness.path.read_text().splitlines()[-1])
    line["taken"] = {place.scope_id: [10**15, 10**15, 10**15, 0]}
    with witness.path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    database.transaction(freeze_ledger, "a rehearsal.")
    reconcile(database, witness)
    with database.read() as session:
        assert ledger.verify(session, place.scope_id).ok
    with pytest.raises(BudgetExhausted), database.write() as session:
        submit(session, place, [STEP])


def test_a_cap_that_was_changed_since_is_raised_at_the_orders_that_it_has(database: Database, tmp_path: Path) -> None:
    """The backup's cap has two orders; spending from the later cap was seen at four, and unused slots stay 0."""
    small, witness = plan_orders(Decimal("1.3"), Decimal("1e-6")), Witness(tmp_path / "elsewhere" / "witness.jsonl")
    place = make_place(database, small)
    assert guard(database, witness) == []
    caps: tuple[BudgetCap, BudgetCap] = (CapRequest(epsilon=Decimal("0.4")), "all")
    with database.write() as session:
        analyst = principals.create(session, "Anna", "analyst").id
    give = partial(database.transaction, ledger.set_grant, place.scope_id, analyst)
    terms = [terms_of_cap(cap, small) for cap in caps]
    grant_id = give(terms[0], declared_cap(caps[0], small)).id
    before = backed_up(database)
    assert give(terms[1], declared_cap(caps[1], small)).id == grant_id
    with database.write() as session:
        submit(session, place, grant=(analyst, grant_id))
    witness.keep(database)
    put_back(database, before)
    assert len(terms[0].orders) < len(terms[1].orders)
    assert guard(database, witness)
    reconcile(database, witness)
    with database.read() as session:
        row = session.get_one(Account, grant_id)
        spent = [row.spent_1, row.spent_2, row.spent_3, row.spent_4]
        assert any(spent)
        assert not any(spent[len(terms[0].orders) :])
        assert ledger.verify(session, place.scope_id).ok


def test_processes_that_share_a_file_see_what_the_others_wrote_and_rewrote(
    database: Database, place: Place, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Witness(witness.path)
    for one in (other, witness, other):
        submit_witnessed(database, place, one)
        assert witness.read() == other.read() == Witness(witness.path).read()
    monkeypatch.setattr(witness_file, "COMPACT_BYTES", 1)
    submit_witnessed(database, place, other)
    monkeypatch.undo()
    assert witness.read() == other.read()
    submit_witnessed(database, place, witness)
    witness.bury("ds_gone")
    reconcile(database, other)
    assert witness.erased() == other.erased() == {"ds_gone"}
    assert compare(database, witness) == []
    assert witness.read()[place.scope_id].seq == 2 + 2 * 5 + 1  # with five jobs begun and failed, and reconciled


def test_a_process_reads_what_is_new_and_no_more(
    database: Database, place: Place, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        make_place(database)
    for _ in range(5):
        submit_witnessed(database, place, witness)
    parsed: list[str] = []
    genuine = json.loads
    monkeypatch.setattr(witness_file.json, "loads", lambda line: parsed.append(line) or genuine(line))
    submit_witnessed(database, place, witness)
    assert len(parsed) == 1  # its own
    assert len(Witness(witness.path).read()) == 21
    assert len(parsed) > 25


def test_a_job_s_payment_looks_at_its_own_scopes_only(database: Database, place: Place, witness: Witness) -> None:
    elsewhere = make_place(database)
    with database.write() as session:
        job_id = submit(session, place).id
        submit(session, elsewhere)
    witness.keep(database, job_id)
    seen = witness.read()
    assert seen[place.scope_id].seq == 3
    assert elsewhere.scope_id not in seen
    witness.keep(database)
    assert witness.read()[elsewhere.scope_id].seq == 3


def test_threads_and_processes_at_once_lose_nothing(database: Database, place: Place, witness: Witness) -> None:
    def work(one: Witness) -> None:
        for _ in range(5):
            submit_witnessed(database, place, one)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, [witness, witness, *(Witness(witness.path) for _ in range(4))]))
    assert Witness(witness.path).read()[place.scope_id].seq == 32
    assert compare(database, witness) == []
