import json
import threading
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from core.access import principals
from core.base.errors import (
    BudgetExhausted,
    BudgetReserved,
    Conflict,
    Invalid,
    LedgerBusy,
    NotFound,
    Refusal,
    ScopeFrozen,
    StaleAttempt,
)
from core.db import clock
from core.db.database import Database
from core.db.tables import Account, Entry, Job
from core.jobs import jobs
from core.jobs.sweep import CONTACT, sweep
from core.ledger import ledger
from core.ledger.claims import Claim, put_secret
from core.privacy.budget import NANO, Terms, jobs_that_still_fit, plan_orders, renewed
from core.privacy.events import EVENT, Composed, Event, Gaussian, Pure, Zcdp
from core.privacy.renyi import cost_nano
from tests.support.store import STEP, TERMS, Place, make_place, submit

LEASE = 60.0
CHUNKS = 4
ONE = {"epsilon": "1", "delta": "1e-6"}


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


def submit_alone(database: Database, place: Place, schedule: Sequence[Event] = (STEP,) * CHUNKS) -> str:
    with database.write() as session:
        return submit(session, place, schedule).id


def claim_one(database: Database) -> Claim:
    claim = database.transaction(jobs.claim, "w", LEASE)
    assert claim is not None
    return claim


def balance(database: Database, account_id: str) -> ledger.Balance:
    with database.read() as session:
        return ledger.balance(session, account_id)


def verify(database: Database, scope_id: str) -> ledger.Verification:
    with database.read() as session:
        return ledger.verify(session, scope_id)


def test_a_reservation_is_the_price_and_its_chunks_sum_to_it(database: Database, place: Place) -> None:
    schedule = [Gaussian(sigma=33.0)] * 3 + [Zcdp(rho=0.0007), Gaussian(sigma=33.0)]
    job_id = submit_alone(database, place, schedule)
    with database.read() as session:
        job = session.get_one(Job, job_id)
    price = cost_nano(EVENT.validate_python(job.price), TERMS.orders)
    assert balance(database, place.scope_id).reserved == price
    claim = claim_one(database)
    spent = []
    for chunk in range(len(schedule)):
        database.transaction(ledger.pay, claim, chunk, None, chunk)
        spent.append(balance(database, place.scope_id))
    assert spent[-1].spent == price
    assert not any(spent[-1].reserved)
    for k, now in enumerate(spent, start=1):
        assert now.spent == cost_nano(Composed(events=tuple(schedule[:k])), TERMS.orders)
    assert all(
        one <= two for before, after in pairwise(spent) for one, two in zip(before.spent, after.spent, strict=True)
    )
    with database.read() as session:
        assert ledger.executed(session, place.scope_id) == Counter(schedule)
        assert ledger.executed_by(session, session.get_one(Job, job_id)) == Counter(schedule)


def test_a_repeated_spend_is_done_and_a_gap_is_a_bug(database: Database, place: Place) -> None:
    submit_alone(database, place)
    claim = claim_one(database)
    database.transaction(ledger.pay, claim, 0, None, 0)
    once = balance(database, place.scope_id)
    database.transaction(ledger.pay, claim, 0, None, 0)
    assert balance(database, place.scope_id) == once
    with pytest.raises(AssertionError, match="cannot be paid"):
        database.transaction(ledger.pay, claim, 2, None, 0)
    for chunk in range(1, CHUNKS):
        database.transaction(ledger.pay, claim, chunk, None, 0)
    with pytest.raises(AssertionError, match="cannot be paid"):
        database.transaction(ledger.pay, claim, CHUNKS, None, 0)
    assert verify(database, place.scope_id).ok


def test_an_exhausted_budget_says_what_would_fit(database: Database, place: Place) -> None:
    with pytest.raises(BudgetExhausted) as refused:
        submit_alone(database, place, [Gaussian(sigma=0.5)])
    facts = refused.value.facts
    assert Decimal(str(facts["required_budget_share"])) > 1
    assert facts["available_budget_share"] == "1"
    assert 0 < float(str(facts["fits_at_share"])) < 1
    submit_alone(database, place, [Zcdp(rho=float(str(facts["fits_at_rho"])) * 0.9999)])


def test_a_refusal_stores_nothing(database: Database, place: Place) -> None:
    with pytest.raises(BudgetExhausted):
        submit_alone(database, place, [Gaussian(sigma=0.5)])
    with database.read() as session:
        assert session.query(Job).count() == 0
    assert verify(database, place.scope_id).entries == 2


def test_what_fits_without_the_reservations_is_told_apart(database: Database, place: Place) -> None:
    rho = 0.1
    first = submit_alone(database, place, [Zcdp(rho=rho)])
    with pytest.raises(BudgetReserved) as refused:
        submit_alone(database, place, [Zcdp(rho=rho)])
    assert refused.value.retry_after_seconds
    database.transaction(jobs.cancel, first)
    submit_alone(database, place, [Zcdp(rho=rho)])
    claim = claim_one(database)
    database.transaction(jobs.fail, claim, "trainer-failed", charge="all")
    with pytest.raises(BudgetExhausted):
        submit_alone(database, place, [Zcdp(rho=rho)])


def test_a_monstrous_price_is_refused(database: Database, place: Place) -> None:
    for schedule in ([Gaussian(sigma=1e-9)], [Pure(epsilon=1e300)], [STEP, Zcdp(rho=1e200)]):
        with pytest.raises(BudgetExhausted):
            submit_alone(database, place, schedule)


def test_a_grant_is_a_ceiling_inside_the_scope(database: Database, place: Place) -> None:
    small = plan_orders(Decimal(1), Decimal("1e-6"))
    with database.write() as session:
        analyst = principals.create(session, "Anna", "analyst").id
        grant = ledger.set_grant(session, place.scope_id, analyst, small, ONE).id
        assert ledger.balance(session, grant).terms == small
    rho = 0.015
    with database.write() as session:
        submit(session, place, [Zcdp(rho=rho)], grant=(analyst, grant))
    assert balance(database, grant).reserved == cost_nano(Zcdp(rho=rho), small.orders)
    assert balance(database, place.scope_id).reserved == cost_nano(Zcdp(rho=rho), TERMS.orders)
    with pytest.raises(BudgetReserved), database.write() as session:
        submit(session, place, [Zcdp(rho=rho)], grant=(analyst, grant))
    submit_alone(database, place, [Zcdp(rho=rho)])
    assert verify(database, place.scope_id).ok


def test_a_used_grant_keeps_its_orders_and_what_it_has_used(database: Database, place: Place) -> None:
    terms = plan_orders(Decimal(1), Decimal("1e-6"))
    with database.write() as session:
        analyst = principals.create(session, "Anna", "analyst").id
        grant = ledger.set_grant(session, place.scope_id, analyst, TERMS, {"epsilon": "3", "delta": "1e-6"}).id
        assert ledger.set_grant(session, place.scope_id, analyst, terms, ONE).id == grant
        submit(session, place, [Zcdp(rho=0.015)], grant=(analyst, grant))
    with pytest.raises(Conflict, match="orders are fixed"):
        database.transaction(ledger.set_grant, place.scope_id, analyst, TERMS, {})
    lower = Terms(**{**terms.model_dump(), "epsilon": Decimal("0.5"), "caps_nano": tuple(1 for _ in terms.orders)})
    with pytest.raises(Conflict, match="below"):
        database.transaction(ledger.set_grant, place.scope_id, analyst, lower, {})
    higher = renewed(terms, Decimal("1.5"))
    database.transaction(ledger.set_grant, place.scope_id, analyst, higher, {"epsilon": "1.5", "delta": "1e-6"})
    assert balance(database, grant).terms == higher
    assert verify(database, place.scope_id).ok


def test_a_frozen_scope_admits_nothing_until_it_thaws(database: Database, place: Place) -> None:
    database.transaction(ledger.freeze, place.scope_id, "a lost laptop", "pr_owner")
    with pytest.raises(ScopeFrozen):
        submit_alone(database, place)
    database.transaction(ledger.unfreeze, place.scope_id, "found again", "pr_owner")
    submit_alone(database, place)
    assert verify(database, place.scope_id) == verify(database, place.scope_id)
    assert verify(database, place.scope_id).entries == 5


def test_the_table_repeats_the_cap(database: Database) -> None:
    make_place(database)
    changes = ", ".join(f"reserved_{slot} = cap_{slot} + 1" for slot in range(1, 5))
    with pytest.raises(IntegrityError), database.write() as session:
        session.execute(text(f"UPDATE accounts SET {changes}"))
    with pytest.raises(IntegrityError), database.write() as session:
        session.execute(text("UPDATE accounts SET spent_1 = -1"))


def test_missing_things_are_not_found(database: Database) -> None:
    for work in (ledger.balance, ledger.lock_scope):
        with pytest.raises(NotFound):
            database.transaction(work, "sc_none")


def lose(database: Database, claim: Claim) -> str:
    """Let an attempt's lease run out and be swept up; return the job's state."""
    with database.write() as session:
        session.execute(update(Job).where(Job.id == claim.job_id).values(lease_until=1.0))
        put_secret(session, CONTACT, f"1.0 {clock.read(session)!r}")
        sweep(session, LEASE, 3, 1e9)
        return session.get_one(Job, claim.job_id).state


class TestRepeats:
    SCHEDULE = (Gaussian(sigma=33.0), Zcdp(rho=0.0007), Gaussian(sigma=20.0))

    def submit(self, database: Database, place: Place, times: int) -> str:
        with database.write() as session:
            return submit(session, place, self.SCHEDULE, retry_allowance=times).id

    def price(self, *events: Event) -> list[int]:
        return list(cost_nano(Composed(events=events), TERMS.orders))

    def entries(self, database: Database, place: Place) -> list[dict[str, Any]]:
        with database.read() as session:
            rows = session.execute(select(Entry).where(Entry.scope_id == place.scope_id).order_by(Entry.seq))
            return [json.loads(row.body) for row in rows.scalars()]

    def test_the_most_expensive_chunk_is_reserved_beside_the_price(self, database: Database, place: Place) -> None:
        self.submit(database, place, 2)
        dearest = [max(amounts) for amounts in zip(*(self.price(event) for event in self.SCHEDULE), strict=True)]
        pairs = zip(self.price(*self.SCHEDULE), dearest, strict=True)
        assert list(balance(database, place.scope_id).reserved) == [whole + 2 * once for whole, once in pairs]
        told = self.entries(database, place)[-1]
        assert told["retry_allowance"] == 2
        assert verify(database, place.scope_id).ok

    def test_a_lost_chunk_is_paid_again_once_by_an_entry_that_says_so(self, database: Database, place: Place) -> None:
        self.submit(database, place, 1)
        first = claim_one(database)
        database.transaction(ledger.pay, first, 0, None, 0)
        database.transaction(ledger.pay, first, 1, b"one chunk", 1)
        assert lose(database, first) == "queued"
        second = claim_one(database)
        with pytest.raises(AssertionError, match="chunk 1 is due"):
            database.transaction(ledger.pay, second, 2, b"a gap", 1)
        for _ in range(2):  # after any doubt, the same again
            database.transaction(ledger.pay, second, 1, b"one chunk", 1)
        told = self.entries(database, place)[-1]
        assert (told["kind"], told["attempt"], told["chunk"], told["again"]) == ("spend", 2, 1, True)
        assert told["event"] == [[1, EVENT.dump_python(self.SCHEDULE[1], mode="json")]]
        again = [self.price(self.SCHEDULE[0], self.SCHEDULE[1]), self.price(self.SCHEDULE[1])]
        assert list(balance(database, place.scope_id).spent) == [sum(amounts) for amounts in zip(*again, strict=True)]
        database.transaction(ledger.pay, second, 2, b"two chunks", 2)
        database.transaction(jobs.finish, second, {}, "not-needed")
        held = balance(database, place.scope_id)
        assert not any(held.reserved)
        drawn = Counter([*self.SCHEDULE, self.SCHEDULE[1]])
        with database.read() as session:
            assert ledger.executed(session, place.scope_id) == drawn
            assert ledger.executed_by(session, session.get_one(Job, first.job_id)) == drawn
        worth = self.price(*drawn.elements())
        assert all(0 <= paid - one <= 1 for paid, one in zip(held.spent, worth, strict=True))
        assert verify(database, place.scope_id).ok

    def test_what_the_allowance_does_not_cover_ends_the_job(self, database: Database, place: Place) -> None:
        self.submit(database, place, 1)
        first = claim_one(database)
        for chunk in range(3):  # nothing was kept: all three are lost
            database.transaction(ledger.pay, first, chunk, None, chunk)
        assert lose(database, first) == "failed"
        held = balance(database, place.scope_id)
        assert list(held.spent) == self.price(*self.SCHEDULE)
        assert not any(held.reserved)

    def test_an_allowance_that_was_used_up_covers_no_second_loss(self, database: Database, place: Place) -> None:
        self.submit(database, place, 1)
        for state in ("queued", "failed"):
            claim = claim_one(database)
            for chunk in (0, 1, 2) if state == "queued" else (2,):
                database.transaction(ledger.pay, claim, chunk, b"state", chunk)
            assert lose(database, claim) == state
        assert list(balance(database, place.scope_id).spent) == [
            one + other for one, other in zip(self.price(*self.SCHEDULE), self.price(self.SCHEDULE[2]), strict=True)
        ]
        assert verify(database, place.scope_id).ok

    def test_cheap_chunks_may_be_repeated_more_often(self, database: Database, place: Place) -> None:
        self.submit(database, place, 1)
        claim = claim_one(database)
        database.transaction(ledger.pay, claim, 0, None, 0)
        for _ in range(2):
            with database.write() as session:
                jobs.release_claim(session, claim)  # killed after its grace, with the chunk
            claim = claim_one(database)
            database.transaction(ledger.pay, claim, 0, None, 0)
        with database.read() as session:
            assert ledger.executed_by(session, session.get_one(Job, claim.job_id)) == {self.SCHEDULE[0]: 3}

    def test_several_chunks_are_paid_again_one_after_the_other(self, database: Database, place: Place) -> None:
        self.submit(database, place, 2)
        first = claim_one(database)
        for chunk in (0, 1):
            database.transaction(ledger.pay, first, chunk, None, 0)
        assert lose(database, first) == "queued"
        second = claim_one(database)
        for chunk in (0, 1, 2):
            database.transaction(ledger.pay, second, chunk, None, 0)
        told = [(entry["chunk"], entry["again"]) for entry in self.entries(database, place)[-3:]]
        assert told == [(0, True), (1, True), (2, False)]
        assert lose(database, second) == "failed"  # three chunks are lost, and less than one is left
        assert verify(database, place.scope_id).ok

    def test_a_drained_attempt_that_resumed_keeps_only_what_it_has(self, database: Database, place: Place) -> None:
        """A state kept before the lost chunk was paid again does not hold that chunk."""
        self.submit(database, place, 1)
        first = claim_one(database)
        database.transaction(ledger.pay, first, 0, None, 0)
        database.transaction(ledger.pay, first, 1, b"one chunk", 1)
        lose(database, first)
        second = claim_one(database)
        database.transaction(ledger.keep, second, b"still one chunk", 1)
        database.transaction(jobs.release_claim, second)
        third = claim_one(database)
        with database.read() as session:
            kept = ledger.last_kept(session, third.job_id)
        assert kept is not None
        assert (kept.chunk, kept.state) == (1, b"still one chunk")
        database.transaction(ledger.pay, third, 1, b"one chunk", 1)
        assert self.entries(database, place)[-1]["again"]

    def test_a_whole_charge_takes_the_rest_of_the_allowance(self, database: Database, place: Place) -> None:
        self.submit(database, place, 2)
        claim = claim_one(database)
        database.transaction(ledger.pay, claim, 0, None, 0)
        lose(database, claim)
        claim = claim_one(database)
        database.transaction(ledger.pay, claim, 0, None, 0)
        before = balance(database, place.scope_id)
        database.transaction(jobs.fail, claim, "trainer-failed", charge="all")
        held = balance(database, place.scope_id)
        assert list(held.spent) == [one + other for one, other in zip(before.spent, before.reserved, strict=True)]
        assert not any(held.reserved)
        with database.read() as session:
            told = ledger.executed(session, place.scope_id)
        assert told[self.SCHEDULE[0]] == 2
        assert sum(told.values()) == 5  # the schedule, a repeat, and what is left: once the most expensive chunk
        worth = self.price(*told.elements())
        assert all(one <= paid for one, paid in zip(worth, held.spent, strict=True))
        assert verify(database, place.scope_id).ok

    def test_a_compensation_gives_repeats_back_too(self, database: Database, place: Place) -> None:
        job_id = self.submit(database, place, 1)
        database.transaction(jobs.fail, claim_one(database), "gpu-unavailable", charge="all")
        database.transaction(ledger.compensate, place.scope_id, job_id, Fraction(1), "no driver", place.principal_id)
        assert not any(balance(database, place.scope_id).spent)

    @pytest.mark.parametrize(
        "statement", ["UPDATE jobs SET allowance_spent = '{}'", "UPDATE jobs SET allowance = '{}'"]
    )
    def test_verification_compares_what_a_job_remembers(self, database: Database, place: Place, statement: str) -> None:
        self.submit(database, place, 1)
        claim = claim_one(database)
        database.transaction(ledger.pay, claim, 0, None, 0)
        lose(database, claim)
        database.transaction(ledger.pay, claim_one(database), 0, None, 0)
        assert verify(database, place.scope_id).ok
        with database.write() as session:
            session.execute(text(statement))
        found = verify(database, place.scope_id)
        assert not found.ok
        assert found.reason is not None
        assert "allowance" in found.reason

    def test_a_refusal_says_when_the_job_would_fit_without(self, database: Database) -> None:
        once = cost_nano(STEP, TERMS.orders)
        caps = tuple(3 * one - 1 for one in once)  # two chunks fit, three do not
        place = make_place(database, Terms(**{**TERMS.model_dump(), "caps_nano": caps}))
        with pytest.raises(BudgetExhausted) as refused, database.write() as session:
            submit(session, place, [STEP, STEP], retry_allowance=1)
        assert [field.pointer for field in refused.value.fields] == ["/retry_allowance"]
        assert "retry_allowance 0" in refused.value.detail
        share = float(str(refused.value.facts["fits_at_share"]))
        assert float(str(refused.value.facts["fits_at_rho"])) == pytest.approx(share * 2 * 0.00125, rel=1e-4)
        with pytest.raises(BudgetExhausted) as hopeless, database.write() as session:
            submit(session, place, [STEP] * 3, retry_allowance=1)
        assert hopeless.value.fields == ()
        with database.write() as session:
            submit(session, place, [STEP, STEP])


class TestCompensation:
    def charged(self, database: Database, place: Place, *, opened: bool) -> str:
        submit_alone(database, place)
        claim = claim_one(database)
        if opened:
            database.transaction(jobs.mark_opened, claim)
        database.transaction(jobs.fail, claim, "gpu-unavailable", charge="all")
        return claim.job_id

    def compensate(self, database: Database, place: Place, job_id: str, fraction: Fraction = Fraction(1)) -> None:
        database.transaction(ledger.compensate, place.scope_id, job_id, fraction, "power cut", place.principal_id)

    def test_gives_back_once_and_in_full(self, database: Database, place: Place) -> None:
        job_id = self.charged(database, place, opened=False)
        self.compensate(database, place, job_id)
        assert not any(balance(database, place.scope_id).spent)
        with database.read() as session:
            assert not ledger.executed(session, place.scope_id)
        with pytest.raises(Conflict, match="already"):
            self.compensate(database, place, job_id)
        assert verify(database, place.scope_id).ok

    def test_gives_back_a_share_rounded_down(self, database: Database, place: Place) -> None:
        job_id = self.charged(database, place, opened=False)
        before = balance(database, place.scope_id).spent
        self.compensate(database, place, job_id, Fraction(1, 3))
        after = balance(database, place.scope_id).spent
        assert after == tuple(amount - amount // 3 for amount in before)

    def test_needs_a_proven_fault(self, database: Database, place: Place) -> None:
        with pytest.raises(Conflict, match="read the records"):
            self.compensate(database, place, self.charged(database, place, opened=True))
        queued = submit_alone(database, place)
        with pytest.raises(Conflict, match="ended"):
            self.compensate(database, place, queued)
        with pytest.raises(Invalid):
            self.compensate(database, place, queued, Fraction(3, 2))

    def test_no_column_that_nobody_verifies_gives_back_what_was_read(self, database: Database, place: Place) -> None:
        """A writer into the database can remove the time when records were opened: the chain still has it."""
        for end in ("model", "failure"):
            submit_alone(database, place)
            claim = claim_one(database)
            database.transaction(jobs.mark_opened, claim)
            database.transaction(ledger.pay, claim, 0, None, 0)
            if end == "model":
                database.transaction(jobs.finish, claim, {}, "not-needed")
            else:
                database.transaction(jobs.fail, claim, "diverged", charge="spent")
            self.forget_openings(database)
            with pytest.raises(Conflict, match="records"):
                self.compensate(database, place, claim.job_id)
        job_id = self.charged(database, place, opened=True)
        self.forget_openings(database)
        with pytest.raises(Conflict, match="records"):
            self.compensate(database, place, job_id)
        assert verify(database, place.scope_id).ok

    def forget_openings(self, database: Database) -> None:
        with database.write() as session:
            session.execute(text("UPDATE attempts SET opened_at = NULL"))

    def test_is_limited_per_day(self, database: Database, place: Place) -> None:
        for _ in range(10):
            self.compensate(database, place, self.charged(database, place, opened=False))
        with pytest.raises(Conflict, match="24 hours"):
            self.compensate(database, place, self.charged(database, place, opened=False))


class TestVerification:
    def drop_triggers(self, session: Session) -> None:
        if session.get_bind().dialect.name == "sqlite":
            session.execute(text("DROP TRIGGER entries_no_update"))
            session.execute(text("DROP TRIGGER entries_no_delete"))
        else:
            session.execute(text("ALTER TABLE entries DISABLE TRIGGER USER"))

    @pytest.mark.parametrize(
        ("statement", "first_bad"),
        [
            ("UPDATE entries SET body = replace(body, 'queued', 'x') || ' ' WHERE seq = 4", 4),
            ("UPDATE entries SET chunk = 7 WHERE seq = 5", 5),
            ("UPDATE entries SET created_at = created_at + 1 WHERE seq = 2", 2),
            ("UPDATE entries SET prev_hash = 'sha256:0' WHERE seq = 3", 3),
            ("DELETE FROM entries WHERE seq = 3", 3),
            ("DELETE FROM entries WHERE seq = 9", 9),
            ("UPDATE scopes SET head = 'sha256:0'", 9),
            ("UPDATE accounts SET spent_1 = 0", None),
            ("UPDATE accounts SET cap_1 = cap_1 + 1", None),
        ],
    )
    def test_names_the_first_bad_entry(
        self, database: Database, place: Place, statement: str, first_bad: int | None
    ) -> None:
        submit_alone(database, place)
        claim = claim_one(database)
        for chunk in range(CHUNKS):
            database.transaction(ledger.pay, claim, chunk, None, chunk)
        database.transaction(jobs.finish, claim, {}, "not-needed")
        honest = verify(database, place.scope_id)
        assert (honest.ok, honest.entries, honest.first_bad_seq) == (True, 9, None)
        with database.write() as session:
            self.drop_triggers(session)
            session.execute(text(statement))
        found = verify(database, place.scope_id)
        assert not found.ok
        assert found.reason
        assert found.first_bad_seq == first_bad

    def test_the_sweeper_freezes_what_does_not_add_up(self, database: Database, place: Place) -> None:
        submit_alone(database, place)
        rounds = ledger.Rounds(database, whole_seconds=1e9)
        assert rounds.go() == {}
        submit_alone(database, place)
        with database.write() as session:
            session.execute(text("UPDATE accounts SET reserved_1 = reserved_1 - 1"))
        assert list(rounds.go()) == [place.scope_id]
        with pytest.raises(ScopeFrozen):
            submit_alone(database, place)


ADMITTED = 100
CLIENTS = 16
REPLICAS = 4


def race(database: Database, admitted: int, clients: int, tries: int, *, patient: bool = True) -> Counter[str]:
    """Let clients of four replicas try at once to submit to a budget for `admitted` jobs; count the answers."""
    replicas = [Database(database.url) for _ in range(REPLICAS)]
    largest = max(cap / order for cap, order in zip(TERMS.caps_nano, TERMS.orders, strict=True))
    once = Zcdp(rho=largest / NANO / (admitted + 0.5))
    nothing = (0,) * len(TERMS.orders)
    assert jobs_that_still_fit(TERMS, nothing, nothing, cost_nano(once, TERMS.orders)) == admitted
    place = make_place(database)
    counts: Counter[str] = Counter()
    start = threading.Barrier(clients)

    def answer_of(replica: Database) -> str:
        try:
            with replica.write() as session:
                ledger.balance(session, place.scope_id)  # a look before: what a lock must make true until the end
                submit(session, place, [once])
        except Refusal as refusal:
            return refusal.code
        except Exception as error:  # noqa: BLE001 - an unlocked variant may fail in any way; all are counted
            return type(error).__name__
        return "admitted"

    def client(replica: Database) -> None:
        start.wait()
        for _ in range(tries // clients):
            outcome = answer_of(replica)
            while patient and outcome == LedgerBusy.code:  # a slow machine: the answer says to try again
                outcome = answer_of(replica)
            counts[outcome] += 1

    threads = [threading.Thread(target=client, args=(replicas[number % REPLICAS],)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for replica in replicas:
        replica.dispose()
    held = balance(database, place.scope_id)
    counts["reserved"] = held.reserved[0] // cost_nano(once, TERMS.orders)[0]
    counts["verified"] = int(verify(database, place.scope_id).ok)
    return counts


def expected(admitted: int, tries: int) -> Counter[str]:
    refused = {BudgetReserved.code: tries - admitted} if tries > admitted else {}
    return Counter({"admitted": admitted, "reserved": admitted, "verified": 1, **refused})


@pytest.mark.slow
@pytest.mark.parametrize(("admitted", "tries"), [(1000, 1600)])
def test_sixteen_clients_get_exactly_what_the_budget_holds(database: Database, admitted: int, tries: int) -> None:
    counts = race(database, admitted, CLIENTS, tries)
    exhausted = counts.pop(BudgetExhausted.code, 0)
    assert exhausted == 0
    assert counts == expected(admitted, tries)


def test_the_same_race_is_lost_without_the_lock(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: rows are read without their locks, and SQLite's writers begin like readers."""
    from sqlalchemy.sql.selectable import Select  # noqa: PLC0415 - only the planted bug needs it

    monkeypatch.setattr(Select, "with_for_update", lambda self, **_: self)
    monkeypatch.setattr(Database, "begin_writing", "BEGIN DEFERRED")
    counts = race(database, ADMITTED, CLIENTS, 2 * ADMITTED - 2 * ADMITTED % CLIENTS, patient=False)
    assert counts != expected(ADMITTED, 2 * ADMITTED - 2 * ADMITTED % CLIENTS)


def test_the_small_race_is_won_with_the_lock(database: Database) -> None:
    tries = 2 * ADMITTED - 2 * ADMITTED % CLIENTS
    assert race(database, ADMITTED, CLIENTS, tries) == expected(ADMITTED, tries)


def test_two_children_of_one_job_spend_each_chunk_once(database: Database, place: Place) -> None:
    submit_alone(database, place)
    claim = claim_one(database)
    start = threading.Barrier(2)
    failures: list[BaseException] = []

    def child() -> None:
        start.wait()
        for chunk in range(CHUNKS):
            try:
                database.transaction(ledger.pay, claim, chunk, b"state", chunk)
            except (StaleAttempt, AssertionError) as error:  # the other child is a chunk ahead
                failures.append(error)

    threads = [threading.Thread(target=child) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with database.read() as session:
        account = session.get_one(Account, place.scope_id)
        assert account.reserved_1 == 0
        assert sum(ledger.executed(session, place.scope_id).values()) == CHUNKS
    assert verify(database, place.scope_id).ok
