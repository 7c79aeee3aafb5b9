"""The ledger under random histories: reserve, spend, repeat, keep, settle, cancel, crash, lose a lease, wake up again,
freeze, change a principal's cap, put a backup back, reconcile with the witness or without, accept.

After every step, nothing is negative, spent + reserved is within some cap, the entries alone sum to the balances, and
the chain verifies. A model of the same history that knows nothing of the code agrees with every balance and with the
events that are reported as charged.
"""

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from core.access import principals
from core.base.errors import (
    BudgetExhausted,
    BudgetReserved,
    Conflict,
    Invalid,
    LedgerFrozen,
    Refusal,
    ScopeFrozen,
    StaleAttempt,
)
from core.db import clock
from core.db import reads as queries
from core.db.database import Database
from core.db.tables import TERMINAL_STATES, Account, Job, Scope
from core.jobs import jobs, withdrawals
from core.jobs.sweep import CONTACT, sweep
from core.ledger import allowance, gaps, ledger
from core.ledger.accounts import balance_of
from core.ledger.claims import Claim, put_secret
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.operations.reconciling import reconcile
from core.privacy.amounts import BudgetCap, CapRequest
from core.privacy.budget import NANO, Terms, plan_orders, renewed
from core.privacy.caps import changed_terms, declared_cap, terms_of_cap
from core.privacy.draws import MOST_RUNS, most_draws
from core.privacy.events import Composed, Disjoint, Event, Gaussian, Zcdp
from core.privacy.renyi import cost_nano
from core.records.datasets import give_access
from tests.support.store import DRAWS, Tables, backed_up, make_place, put_back, submit

LEASE = 600.0
EVENTS: tuple[Event, ...] = (Gaussian(sigma=20.0), Gaussian(sigma=37.0), Zcdp(rho=0.0031))
SMALL = plan_orders(Decimal("1.3"), Decimal("1e-6"))
"""Half a dozen jobs fit; it has four orders."""


Price = tuple[int, ...]
SCOPE, GRANT = "scope", "grant"
CAPS: tuple[BudgetCap, ...] = (
    "all",
    CapRequest(budget_share=Decimal("0.5")),
    CapRequest(budget_share=Decimal("0.15")),
    CapRequest(epsilon=Decimal(1)),
    CapRequest(epsilon=Decimal("0.4")),
)


def price(schedule: tuple[Event, ...], orders: tuple[int, ...] = SMALL.orders) -> Price:
    return cost_nano(Composed(events=schedule), orders)


def add(*prices: Sequence[int]) -> Price:
    return tuple(sum(amounts) for amounts in zip(*prices, strict=True))


def fits(taken: Sequence[int], cost: Sequence[int], terms: Terms) -> bool:
    return any(gone + one <= cap for gone, one, cap in zip(taken, cost, terms.caps_nano, strict=True))


class Model:
    """The state that a job should have, by the rules alone.

    Args:
        schedule: its draws.
        times: its allowance.
        payers: the accounts that it pays from, and their orders.
    """

    def __init__(self, schedule: tuple[Event, ...], times: int, payers: dict[str, tuple[int, ...]]) -> None:
        self.schedule = schedule
        self.payers = payers
        self.state = "queued"
        self.paid = 0
        self.kept = 0
        self.due = 0
        self.lost = 0
        self.claim: Claim | None = None
        self.again: list[Event] = []
        self.whole = False
        self.times = times
        self.attempts: set[int] = set()

    def once(self, account: str) -> Price:
        prices = (price((event,), self.payers[account]) for event in self.schedule)
        return tuple(max(amounts) for amounts in zip(*prices, strict=True))

    def allowance(self, account: str) -> Price:
        return tuple(self.times * amount for amount in self.once(account))

    def repeats(self, account: str) -> Price:
        orders = self.payers[account]
        return add(price((), orders), *(price((event,), orders) for event in self.again))

    def rest(self, account: str) -> Price:
        return tuple(one - gone for one, gone in zip(self.allowance(account), self.repeats(account), strict=True))

    def reserved(self, account: str) -> Price:
        return add(price(self.schedule, self.payers[account]), self.allowance(account))

    def spent(self, account: str) -> Price:
        if self.whole:
            return self.reserved(account)
        return add(price(self.schedule[: self.paid], self.payers[account]), self.repeats(account))

    def held(self, account: str) -> Price:
        return self.spent(account) if self.state in TERMINAL_STATES else self.reserved(account)

    @property
    def draws(self) -> int:
        """All while it may run on, and where it was charged whole; else a run for each attempt that could read."""
        if self.whole or self.state not in TERMINAL_STATES:
            return DRAWS
        return DRAWS // MOST_RUNS * min(len(self.attempts), MOST_RUNS)

    @property
    def events(self) -> list[Event]:
        told = [*self.schedule[: self.paid], *self.again]
        if self.whole:
            distinct = tuple(dict.fromkeys(self.schedule))
            dearest = distinct[0] if len(distinct) == 1 else Disjoint(events=distinct)
            pairs = zip(self.rest(SCOPE), self.once(SCOPE), strict=True)
            told += [dearest] * min(left // once for left, once in pairs)
        return told

    @property
    def goes_on(self) -> bool:
        """Whether what is left pays for all that was paid and is in no kept state, and an attempt is left."""
        lost = self.schedule[self.kept : self.paid]
        if lost and len(self.attempts) >= MOST_RUNS:
            return False
        needed = {
            one: add(price((), orders), *(price((event,), orders) for event in lost))
            for one, orders in self.payers.items()
        }
        return all(one <= most for name in needed for one, most in zip(needed[name], self.rest(name), strict=True))

    def charge_whole(self) -> None:
        self.whole, self.paid = True, len(self.schedule)


@dataclass
class Facts:
    """The state that a scope should have, by the rules alone; a restore puts all of it back."""

    jobs: dict[str, Model] = field(default_factory=dict)
    stale: list[Claim] = field(default_factory=list)
    terms: dict[str, Terms] = field(default_factory=lambda: {SCOPE: SMALL})
    """Of the accounts that there are."""
    grant_is_open: bool = False
    frozen: bool = False
    gap: int | None = None
    """The entry that waits for its owner."""
    raised: dict[str, Price] = field(default_factory=dict)
    """Charges of reconciliations, by account."""
    raised_draws: dict[str, int] = field(default_factory=dict)
    forgotten: Counter[Event] = field(default_factory=Counter)
    """The same as events of the scope."""

    def total(self, name: str, account: str) -> list[int]:
        """Return what is spent, or held, of an account."""
        own = [getattr(job, name)(account) for job in self.jobs.values() if account in job.payers]
        own = [one for one in own if any(one)]  # what gave all back may be older than the terms: of other orders
        nothing = price((), self.terms[account].orders)
        return list(add(nothing, self.raised.get(account, nothing), *own))

    def draws(self, account: str) -> int:
        own = sum(job.draws for job in self.jobs.values() if account in job.payers)
        return own + self.raised_draws.get(account, 0)


class Ledger(RuleBasedStateMachine):
    database: Database
    witness: Witness

    def __init__(self) -> None:
        super().__init__()
        if guard(self.database, self.witness):  # what the history before has left
            reconcile(self.database, self.witness, without=True)
        self.place = make_place(self.database, SMALL)
        with self.database.write() as session:
            self.analyst = principals.create(session, "Anna", "analyst").id
            give_access(session, self.place.dataset_id, self.analyst)
        self.facts = Facts()
        self.grant_id = ""
        self.backup: tuple[Tables, Facts] | None = None
        self.backup_knows_the_witness = False
        self.seen: dict[str, Price] = {}
        self.seen_draws: dict[str, int] = {}
        self.look()

    @property
    def jobs(self) -> dict[str, Model]:
        return self.facts.jobs

    @property
    def stale(self) -> list[Claim]:
        return self.facts.stale

    def account(self, name: str) -> str:
        return self.place.scope_id if name == SCOPE else self.grant_id

    def running(self, state: str = "running") -> list[Model]:
        return [job for job in self.jobs.values() if job.state == state]

    def leave(self, job: Model, state: str) -> None:
        assert job.claim is not None
        self.stale.append(job.claim)
        job.claim, job.state = None, state

    @rule(
        schedule=st.lists(st.sampled_from(EVENTS), min_size=1, max_size=4).map(tuple),
        times=st.sampled_from([0, 1, 1, 2]),
        by_analyst=st.booleans(),
    )
    def reserve(self, schedule: tuple[Event, ...], times: int, by_analyst: bool) -> None:
        facts = self.facts
        by_analyst = by_analyst and facts.grant_is_open  # without a cap that is open there is no access
        names = [SCOPE, GRANT] if by_analyst else [SCOPE]
        job = Model(schedule, times, {name: facts.terms[name].orders for name in names})
        fit = {
            name: {one: fits(facts.total(name, one), job.reserved(one), facts.terms[one]) for one in names}
            for name in ("held", "spent")
        }
        bare_fits = all(
            fits(facts.total("held", one), price(schedule, job.payers[one]), facts.terms[one]) for one in names
        )
        refusal: Refusal | None = None
        try:
            with self.database.write() as session:
                grant = (self.analyst, self.grant_id) if by_analyst else None
                job_id = submit(session, self.place, schedule, grant=grant, retry_allowance=times).id
        except (BudgetReserved, BudgetExhausted, ScopeFrozen) as refused:
            refusal = refused
        else:
            self.jobs[job_id] = job
        assert isinstance(refusal, ScopeFrozen) is (facts.frozen or facts.gap is not None)
        if not isinstance(refusal, ScopeFrozen):
            assert all(fit["held"].values()) is (refusal is None)
        if isinstance(refusal, BudgetReserved | BudgetExhausted):
            first = next(one for one in names if not fit["held"][one])
            assert fit["spent"][first] is isinstance(refusal, BudgetReserved)
            assert bool(refusal.fields) is bare_fits

    @rule()
    def freeze_or_thaw(self) -> None:
        work = ledger.unfreeze if self.facts.frozen else ledger.freeze
        self.database.transaction(work, self.place.scope_id, "so I say", self.place.principal_id)
        self.facts.frozen = not self.facts.frozen

    @rule(cap=st.sampled_from(CAPS))
    def give_a_cap(self, cap: BudgetCap) -> None:
        facts, fresh = self.facts, terms_of_cap(cap, SMALL)
        held = facts.terms.get(GRANT)
        due: Terms | None = fresh
        if held is not None and any(facts.total("held", GRANT)):
            if held.orders != fresh.orders or held.weights != fresh.weights:
                own = isinstance(cap, CapRequest) and cap.epsilon is not None
                due = renewed(held, fresh.epsilon) if own else None
            if due is not None and not fits(facts.total("held", GRANT), [0] * len(due.orders), due):
                due = None

        def change(session: Session) -> str:
            present = queries.grant(session, self.place.scope_id, self.analyst, closed=True)
            used = present is not None and any(map(any, (balance_of(present).spent, balance_of(present).reserved)))
            terms = changed_terms(cap, SMALL, balance_of(present).terms) if present and used else fresh
            return ledger.set_grant(session, self.place.scope_id, self.analyst, terms, declared_cap(cap, SMALL)).id

        if due is None:
            with pytest.raises(Conflict):
                self.database.transaction(change)
        else:
            self.grant_id = self.database.transaction(change)
            facts.terms[GRANT], facts.grant_is_open = due, True
            if not any(facts.raised.get(GRANT, ())):  # zeros, of as many orders as the terms before had
                facts.raised.pop(GRANT, None)

    @rule()
    def close_the_cap(self) -> None:
        closed = self.database.transaction(ledger.close_grant, self.place.scope_id, self.analyst)
        assert closed is self.facts.grant_is_open
        self.facts.grant_is_open = False

    @rule()
    def look(self) -> None:
        """The witness writes down where the scope stands."""
        self.witness.keep(self.database)
        self.seen = {self.account(one): tuple(self.facts.total("held", one)) for one in self.facts.terms}
        self.seen_draws = {self.account(one): self.facts.draws(one) for one in self.facts.terms}

    @precondition(lambda self: self.backup is None)
    @rule()
    def back_up(self) -> None:
        self.backup, self.backup_knows_the_witness = (backed_up(self.database), deepcopy(self.facts)), True

    @precondition(lambda self: self.backup is not None)
    @rule(seen=st.booleans())
    def restore(self, seen: bool) -> None:
        """Yesterday's backup takes the database's place; the witness is today's."""
        assert self.backup is not None
        if seen:
            self.look()
        gone = [job.claim for job in self.jobs.values() if job.claim is not None] + self.stale
        (tables, self.facts), self.backup = self.backup, None
        put_back(self.database, tables)
        valid = [job.claim for job in self.jobs.values()]
        self.facts.stale = [claim for claim in gone if claim not in valid]
        if not guard(self.database, self.witness):
            assert self.backup_knows_the_witness
            return
        with pytest.raises(LedgerFrozen), self.database.write() as session:
            submit(session, self.place)
        if not self.backup_knows_the_witness:  # it names the one that was lost before today's was begun
            self.go_on_without_witness()
            return
        reconcile(self.database, self.witness)
        self.end_all()
        for name, terms in self.facts.terms.items():
            self.raise_to_what_was_seen(name, terms)
        self.look()

    def raise_to_what_was_seen(self, name: str, terms: Terms) -> None:
        facts = self.facts
        taken = facts.total("held", name)
        seen = self.seen.get(self.account(name), tuple(taken))
        seen = (*seen, *([0] * len(taken)))[: len(taken)]  # a cap that was changed since had other orders
        missing = [max(0, one - two) for one, two in zip(seen, taken, strict=True)]
        free = [cap - gone for cap, gone in zip(terms.caps_nano, taken, strict=True)]
        if any(missing):
            _, slot = min((missing[j] - left, j) for j, left in enumerate(free) if left >= 0)
            missing[slot] = min(missing[slot], free[slot])
        nothing = price((), terms.orders)
        facts.raised[name] = add(facts.raised.get(name, nothing), missing)
        draws = facts.draws(name)
        more = max(draws, min(self.seen_draws.get(self.account(name), 0), most_draws(terms))) - draws
        facts.raised_draws[name] = facts.raised_draws.get(name, 0) + more
        if name == SCOPE and any(missing):
            pairs = zip(missing, terms.orders, strict=True)
            facts.forgotten[Zcdp(rho=max(amount / (order * NANO) for amount, order in pairs))] += 1

    @rule()
    def lose_the_witness(self) -> None:
        """Nobody knows what may be missing: the ledger goes on where its owner accepts that."""
        assert isinstance(self.witness.path, Path)
        self.witness.path.unlink()
        self.backup_knows_the_witness = False
        self.go_on_without_witness()

    def go_on_without_witness(self) -> None:
        with pytest.raises(Conflict):
            reconcile(self.database, self.witness)
        reconcile(self.database, self.witness, without=True)
        self.end_all()
        with self.database.read() as session:
            gap = gaps.pending(session.get_one(Scope, self.place.scope_id))
            assert gap is not None
            self.facts.gap = gap.entry
        self.look()

    def end_all(self) -> None:
        """Every live job was charged whole."""
        for job in self.jobs.values():
            if job.state in TERMINAL_STATES:
                continue
            job.charge_whole()
            if job.claim is not None:
                self.leave(job, "failed")
            job.state = "failed"

    @precondition(lambda self: self.facts.gap is not None)
    @rule(wrong=st.booleans())
    def accept(self, wrong: bool) -> None:
        entry = (self.facts.gap or 0) - wrong
        if wrong:
            with pytest.raises(Invalid):
                self.database.transaction(gaps.accept, self.place.scope_id, entry, "so be it", self.place.principal_id)
            return
        self.database.transaction(gaps.accept, self.place.scope_id, entry, "so be it", self.place.principal_id)
        self.facts.gap = None

    def withdraw(self) -> None:
        """Jobs that wait for whose cap was closed end, charged what they had spent, as the sweep has them."""
        if self.facts.grant_is_open:
            return
        self.database.transaction(withdrawals.end_waiting, self.analyst, len(self.jobs))
        for job in self.running("queued"):
            if GRANT in job.payers:
                job.state = "failed"

    @rule(chunks=st.integers(0, 3), keep=st.booleans())
    def claim(self, chunks: int, keep: bool) -> None:
        self.withdraw()
        claim = self.database.transaction(jobs.claim, "w", LEASE)
        waiting = self.running("queued")
        assert (claim is None) is (not waiting)
        if claim is not None:
            assert self.jobs[claim.job_id] is waiting[0]
            waiting[0].claim, waiting[0].state, waiting[0].due = claim, "running", waiting[0].kept
            for _ in range(chunks):
                self.pay(waiting[0], keep=keep)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), keep=st.booleans(), again=st.booleans())
    def spend(self, data: st.DataObject, keep: bool, again: bool) -> None:
        self.pay(data.draw(st.sampled_from(self.running())), keep=keep, again=again)

    def pay(self, job: Model, *, keep: bool, again: bool = False) -> None:
        if job.due == len(job.schedule):
            return
        for _ in range(2 if again else 1):
            self.database.transaction(ledger.pay, job.claim, job.due, b"state" if keep else None, job.due)
        if keep:
            job.kept = job.due
        if job.due < job.paid:
            job.again.append(job.schedule[job.due])
        assert job.claim is not None
        job.attempts.add(job.claim.attempt)
        job.due += 1
        job.paid = max(job.paid, job.due)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running()))
        self.database.transaction(ledger.keep, job.claim, b"state", job.due)
        job.kept = job.due

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running()))
        self.database.transaction(jobs.finish, job.claim, {}, "not-needed")
        self.leave(job, "succeeded")

    @precondition(lambda self: self.running())
    @rule(data=st.data(), charge=st.sampled_from(["spent", "all"]))
    def fail(self, data: st.DataObject, charge: str) -> None:
        job = data.draw(st.sampled_from(self.running()))
        self.database.transaction(jobs.fail, job.claim, "trainer-failed", charge=charge)
        if charge == "all":
            job.charge_whole()
        self.leave(job, "failed")

    @precondition(lambda self: self.running())
    @rule(data=st.data(), pays=st.booleans())
    def drain(self, data: st.DataObject, pays: bool) -> None:
        job = data.draw(st.sampled_from(self.running()))
        if pays:
            self.pay(job, keep=False)
        self.database.transaction(jobs.release_claim, job.claim)
        self.leave(job, "queued" if job.goes_on else "failed")

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)))
        self.database.transaction(jobs.cancel, job_id)
        job = self.jobs[job_id]
        job.state = {"queued": "cancelled", "running": "cancelling"}.get(job.state, job.state)

    @precondition(lambda self: self.running("cancelling"))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running("cancelling")))
        self.database.transaction(jobs.acknowledge_cancel, job.claim)
        self.leave(job, "cancelled")

    @precondition(lambda self: self.running() or self.running("cancelling"))
    @rule(data=st.data(), pays=st.booleans())
    def lose_a_lease(self, data: st.DataObject, pays: bool) -> None:
        job = data.draw(st.sampled_from(self.running() + self.running("cancelling")))
        if pays and job.state == "running":
            self.pay(job, keep=False)
        assert job.claim is not None
        with self.database.write() as session:
            session.execute(update(Job).where(Job.id == job.claim.job_id).values(lease_until=1.0))
        with pytest.raises(StaleAttempt):
            self.database.transaction(ledger.pay, job.claim, job.paid, None, 0)
        with self.database.write() as session:
            put_secret(session, CONTACT, f"1.0 {clock.read(session)!r}")
            sweep(session, LEASE, 3, 1e9)
        if job.state == "cancelling":
            self.leave(job, "cancelled")
            return
        job.lost += 1
        if job.lost == 3:
            job.charge_whole()
            self.leave(job, "failed")
        else:
            self.leave(job, "queued" if job.goes_on else "failed")

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def wake_up(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.stale))
        for work in (
            lambda session: ledger.pay(session, claim, 0, None, 0),
            lambda session: jobs.finish(session, claim, {}, "not-needed"),
        ):
            with pytest.raises(StaleAttempt):
                self.database.transaction(work)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def crash_before_commit(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running()))
        with pytest.raises(KeyboardInterrupt), self.database.write() as session:  # noqa: PT012 - it dies in between
            if job.due < len(job.schedule):
                ledger.pay(session, job.claim, job.due, b"state", 0)
            jobs.finish(session, job.claim, {}, "not-needed")
            raise KeyboardInterrupt

    @invariant()
    def balances_agree(self) -> None:
        facts = self.facts
        with self.database.read() as session:
            held = {name: ledger.balance(session, self.account(name)) for name in facts.terms}
            draws = {name: session.get_one(Account, self.account(name)).draws for name in facts.terms}
            found = ledger.verify(session, self.place.scope_id)
            told = ledger.executed(session, self.place.scope_id)
            rows = session.execute(select(Job).where(Job.id.in_(self.jobs))).scalars().all()
            states = {job.id: job.state for job in rows}
            events = {job.id: ledger.executed_by(session, job) for job in rows}
        assert found.ok, found.reason
        for name, terms in facts.terms.items():
            spent, reserved = held[name].spent, held[name].reserved
            assert min(*spent, *reserved) >= 0
            assert held[name].terms == terms
            assert list(spent) == facts.total("spent", name)
            assert list(add(spent, reserved)) == facts.total("held", name)
            assert fits(facts.total("held", name), [0] * len(terms.orders), terms)
            assert draws[name] == facts.draws(name)
        assert states == {job_id: job.state for job_id, job in self.jobs.items()}
        assert events == {job_id: Counter(job.events) for job_id, job in self.jobs.items()}
        assert told == sum(events.values(), Counter()) + facts.forgotten
        if not facts.forgotten:  # of what was forgotten a cap may hold less than it was worth
            worth = price(tuple(told.elements()))
            assert all(one <= most for one, most in zip(worth, held[SCOPE].spent, strict=True))

    def teardown(self) -> None:
        for job_id, job in self.jobs.items():
            self.database.transaction(jobs.cancel, job_id)
            if job.claim is not None:
                self.database.transaction(jobs.acknowledge_cancel, job.claim)


QUICK = settings(
    max_examples=8,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def machine(database: Database, tmp_path: Path) -> type[Ledger]:
    made = Witness(tmp_path / "elsewhere" / "witness.jsonl")
    return type("LedgerOnDatabase", (Ledger,), {"database": database, "witness": made})


def test_the_ledger_keeps_its_promises(machine: type[Ledger]) -> None:
    run_state_machine_as_test(machine, settings=QUICK)


@pytest.mark.slow
def test_the_ledger_keeps_its_promises_for_long(machine: type[Ledger]) -> None:
    run_state_machine_as_test(machine, settings=settings(QUICK, max_examples=150, stateful_step_count=40))


def test_the_machine_sees_a_refund_of_one_chunk_too_many(
    machine: type[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: every payment counts as one chunk less."""
    honest = ledger.price_of

    def forgetful(job: Job, account_id: str, chunk: int) -> list[int]:
        before = honest(job, account_id, chunk - 1) if chunk else [0] * 4
        return [one + other for one, other in zip(honest(job, account_id, chunk), before, strict=True)]

    monkeypatch.setattr(ledger, "price_of", forgetful)
    once = settings(QUICK, max_examples=200, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
    # What the bug leaves behind in the database is seen by the next example, too: hypothesis then calls it flaky.
    with pytest.raises((AssertionError, IntegrityError, Flaky)):
        run_state_machine_as_test(machine, settings=once)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("planted", ["free repeats", "repeats beyond the allowance", "an allowance kept for ever"])
def test_the_machine_sees_what_is_wrong_with_repeats(
    machine: type[Ledger], monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    if planted == "free repeats":
        monkeypatch.setattr(allowance, "again", lambda job, account, chunks: [0] * 4)  # noqa: ARG005 - as called
    elif planted == "repeats beyond the allowance":
        monkeypatch.setattr(ledger, "affords_repeats", lambda session, job: True)  # noqa: ARG005 - as called
    else:
        monkeypatch.setattr(allowance, "take", lambda job, taken: None)  # noqa: ARG005 - as called
    once = settings(QUICK, max_examples=200, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises((AssertionError, IntegrityError, Flaky)):
        run_state_machine_as_test(machine, settings=once)
