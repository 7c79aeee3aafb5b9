"""The ledger under random histories: reserve, spend, repeat, keep, settle, cancel, crash, lose a lease, wake up again.

After every step: nothing is negative, spent + reserved is within some cap, the entries alone sum to the balances and
the chain verifies, and a model of the same history that knows nothing of the code agrees with every balance and with
the events that are told as charged.
"""

from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from core.errors import BudgetExhausted, BudgetReserved, StaleAttempt
from core.privacy.budget import plan_orders
from core.privacy.events import Composed, Disjoint, Event, Gaussian, Zcdp
from core.privacy.renyi import cost_nano
from core.store import clock
from core.store.claims import Claim, put_secret
from core.store.database import Database
from core.store.jobs import jobs
from core.store.jobs.sweep import CONTACT, sweep
from core.store.ledger import allowance, ledger
from core.store.tables import TERMINAL_STATES, Account, Job
from tests.support.store import make_place, submit

LEASE = 600.0
EVENTS: tuple[Event, ...] = (Gaussian(sigma=20.0), Gaussian(sigma=37.0), Zcdp(rho=0.0031))
SMALL = plan_orders(Decimal("1.3"), Decimal("1e-6"))
"""Half a dozen jobs fit; it has four orders."""


Price = tuple[int, ...]


def price(schedule: tuple[Event, ...]) -> Price:
    return cost_nano(Composed(events=schedule), SMALL.orders)


def add(*prices: Price) -> Price:
    return tuple(sum(amounts) for amounts in zip(*prices, strict=True))


class Model:
    """What a job should be, by the rules alone."""

    def __init__(self, schedule: tuple[Event, ...], times: int) -> None:
        self.schedule = schedule
        self.state = "queued"
        self.paid = 0
        self.kept = 0
        self.due = 0
        self.lost = 0
        self.claim: Claim | None = None
        self.again: list[Event] = []
        self.whole = False
        self.once = tuple(max(amounts) for amounts in zip(*(price((event,)) for event in schedule), strict=True))
        self.allowance = tuple(times * amount for amount in self.once)

    @property
    def rest(self) -> Price:
        taken = add(price(()), *(price((event,)) for event in self.again))
        return tuple(one - other for one, other in zip(self.allowance, taken, strict=True))

    @property
    def spent(self) -> Price:
        if self.whole:
            return add(price(self.schedule), self.allowance)
        return add(price(self.schedule[: self.paid]), *(price((event,)) for event in self.again))

    @property
    def held(self) -> Price:
        return self.spent if self.state in TERMINAL_STATES else add(price(self.schedule), self.allowance)

    @property
    def events(self) -> list[Event]:
        told = [*self.schedule[: self.paid], *self.again]
        if self.whole:
            distinct = tuple(dict.fromkeys(self.schedule))
            dearest = distinct[0] if len(distinct) == 1 else Disjoint(events=distinct)
            told += [dearest] * min(left // once for left, once in zip(self.rest, self.once, strict=True))
        return told

    @property
    def goes_on(self) -> bool:
        """Whether what is left pays for all that was paid and is in no kept state."""
        needed = add(price(()), *(price((event,)) for event in self.schedule[self.kept : self.paid]))
        return all(one <= most for one, most in zip(needed, self.rest, strict=True))

    def charge_whole(self) -> None:
        self.whole, self.paid = True, len(self.schedule)


class Ledger(RuleBasedStateMachine):
    database: Database

    def __init__(self) -> None:
        super().__init__()
        self.place = make_place(self.database, SMALL)
        self.jobs: dict[str, Model] = {}
        self.stale: list[Claim] = []

    def total(self, name: str) -> list[int]:
        columns = [getattr(job, name) for job in self.jobs.values()] or [price(())]
        return [sum(column) for column in zip(*columns, strict=True)]

    def running(self, state: str = "running") -> list[Model]:
        return [job for job in self.jobs.values() if job.state == state]

    def leave(self, job: Model, state: str) -> None:
        assert job.claim is not None
        self.stale.append(job.claim)
        job.claim, job.state = None, state

    @rule(
        schedule=st.lists(st.sampled_from(EVENTS), min_size=1, max_size=4).map(tuple),
        times=st.sampled_from([0, 1, 1, 2]),
    )
    def reserve(self, schedule: tuple[Event, ...], times: int) -> None:
        job = Model(schedule, times)

        def fits(cost: Price, name: str) -> bool:
            taken = zip(self.total(name), cost, SMALL.caps_nano, strict=True)
            return any(gone + one <= cap for gone, one, cap in taken)

        fit = {name: fits(job.held, name) for name in ("held", "spent")}
        bare_fits = fits(price(schedule), "held")
        try:
            with self.database.write() as session:
                job_id = submit(session, self.place, schedule, retry_allowance=times).id
        except (BudgetReserved, BudgetExhausted) as refused:
            refusal: BudgetReserved | BudgetExhausted | None = refused
        else:
            refusal = None
            self.jobs[job_id] = job
        assert fit["held"] is (refusal is None)
        if refusal is not None:
            assert fit["spent"] is isinstance(refusal, BudgetReserved)
            assert bool(refusal.fields) is bare_fits

    @rule(chunks=st.integers(0, 3), keep=st.booleans())
    def claim(self, chunks: int, keep: bool) -> None:
        claim = self.database.run(jobs.claim, "w", LEASE)
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
            self.database.run(ledger.spend, job.claim, job.due, b"state" if keep else None, job.due)
        if keep:
            job.kept = job.due
        if job.due < job.paid:
            job.again.append(job.schedule[job.due])
        job.due += 1
        job.paid = max(job.paid, job.due)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running()))
        self.database.run(ledger.keep, job.claim, b"state", job.due)
        job.kept = job.due

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running()))
        self.database.run(jobs.finish, job.claim, {}, "not-needed")
        self.leave(job, "succeeded")

    @precondition(lambda self: self.running())
    @rule(data=st.data(), charge=st.sampled_from(["spent", "all"]))
    def fail(self, data: st.DataObject, charge: str) -> None:
        job = data.draw(st.sampled_from(self.running()))
        self.database.run(jobs.fail, job.claim, "trainer-failed", charge=charge)
        if charge == "all":
            job.charge_whole()
        self.leave(job, "failed")

    @precondition(lambda self: self.running())
    @rule(data=st.data(), pays=st.booleans())
    def drain(self, data: st.DataObject, pays: bool) -> None:
        job = data.draw(st.sampled_from(self.running()))
        if pays:
            self.pay(job, keep=False)
        self.database.run(jobs.release_claim, job.claim)
        self.leave(job, "queued" if job.goes_on else "failed")

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)))
        self.database.run(jobs.cancel, job_id)
        job = self.jobs[job_id]
        job.state = {"queued": "cancelled", "running": "cancelling"}.get(job.state, job.state)

    @precondition(lambda self: self.running("cancelling"))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running("cancelling")))
        self.database.run(jobs.acknowledge_cancel, job.claim)
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
            self.database.run(ledger.spend, job.claim, job.paid, None, 0)
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
            lambda session: ledger.spend(session, claim, 0, None, 0),
            lambda session: jobs.finish(session, claim, {}, "not-needed"),
        ):
            with pytest.raises(StaleAttempt):
                self.database.run(work)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def crash_before_commit(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running()))
        with pytest.raises(KeyboardInterrupt), self.database.write() as session:  # noqa: PT012 - it dies in between
            if job.due < len(job.schedule):
                ledger.spend(session, job.claim, job.due, b"state", 0)
            jobs.finish(session, job.claim, {}, "not-needed")
            raise KeyboardInterrupt

    @invariant()
    def balances_agree(self) -> None:
        with self.database.read() as session:
            account = session.execute(select(Account).where(Account.id == self.place.scope_id)).scalar_one()
            assert min(account.spent_1, account.spent_4, account.reserved_1, account.reserved_4) >= 0
            held = ledger.balance(session, self.place.scope_id)
            found = ledger.verify(session, self.place.scope_id)
            told = ledger.executed(session, self.place.scope_id)
            rows = session.execute(select(Job).where(Job.id.in_(self.jobs))).scalars().all()
            states = {job.id: job.state for job in rows}
            events = {job.id: ledger.executed_by(session, job) for job in rows}
        assert found.ok, found.reason
        assert list(held.spent) == self.total("spent")
        assert [one + two for one, two in zip(held.spent, held.reserved, strict=True)] == self.total("held")
        assert any(one <= cap for one, cap in zip(self.total("held"), SMALL.caps_nano, strict=True))
        assert states == {job_id: job.state for job_id, job in self.jobs.items()}
        assert events == {job_id: Counter(job.events) for job_id, job in self.jobs.items()}
        assert told == sum(events.values(), Counter())
        worth = price(tuple(told.elements()))
        assert all(one <= most for one, most in zip(worth, held.spent, strict=True))

    def teardown(self) -> None:
        for job_id, job in self.jobs.items():
            self.database.run(jobs.cancel, job_id)
            if job.claim is not None:
                self.database.run(jobs.acknowledge_cancel, job.claim)


QUICK = settings(
    max_examples=8,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


def machine(on: Database) -> type[Ledger]:
    return type("LedgerOnDatabase", (Ledger,), {"database": on})


def test_the_ledger_keeps_its_promises(database: Database) -> None:
    run_state_machine_as_test(machine(database), settings=QUICK)


@pytest.mark.slow
def test_the_ledger_keeps_its_promises_for_long(database: Database) -> None:
    run_state_machine_as_test(machine(database), settings=settings(QUICK, max_examples=150, stateful_step_count=40))


def test_the_machine_sees_a_refund_of_one_chunk_too_many(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: whatever was paid counts as one chunk less."""
    honest = ledger.total_at

    def forgetful(job: Job, account_id: str, chunks: int) -> list[int]:
        return honest(job, account_id, max(chunks - 1, 0) if chunks == job.chunks_spent else chunks)

    monkeypatch.setattr(ledger, "total_at", forgetful)
    once = settings(QUICK, max_examples=200, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
    # What the bug leaves behind in the database is seen by the next example, too: hypothesis then calls it flaky.
    with pytest.raises((AssertionError, IntegrityError, Flaky)):
        run_state_machine_as_test(machine(database), settings=once)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("planted", ["free repeats", "repeats beyond the allowance", "an allowance kept for ever"])
def test_the_machine_sees_what_is_wrong_with_repeats(
    database: Database, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    if planted == "free repeats":
        monkeypatch.setattr(allowance, "again", lambda job, account, chunks: [0] * 4)  # noqa: ARG005 - as called
    elif planted == "repeats beyond the allowance":
        monkeypatch.setattr(ledger, "affords_repeats", lambda session, job: True)  # noqa: ARG005 - as called
    else:
        monkeypatch.setattr(allowance, "take", lambda job, taken: None)  # noqa: ARG005 - as called
    once = settings(QUICK, max_examples=200, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises((AssertionError, IntegrityError, Flaky)):
        run_state_machine_as_test(machine(database), settings=once)
