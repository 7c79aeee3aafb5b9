"""Every kind of entry: what its body says, and the rule by which it follows from the entries before it.

A new kind is one class here: its fields, and `follow`, which compares the body with the state so far, moves what it
moves and changes the state. The class is then in `KINDS`, and with that written, read and verified. What one sees of a
chain from outside stands in `docs/ledger-format.md`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from core.privacy.budget import NANO, Terms, covers, renewed
from core.privacy.events import Event, Zcdp
from core.privacy.renyi import cost_nano
from core.store.ledger import allowance, first_form
from core.store.ledger.bodies import SLOTS, Body, Seconds, slots
from core.store.ledger.schedules import MAX_CHUNKS, Schedule, is_stream
from core.store.ledger.tally import (
    AccountTally,
    Amounts,
    JobTally,
    Tally,
    demand,
    minus,
    plus,
    terms_of_budget,
)

DAY_SECONDS: Final = 86400.0
COMPENSATIONS_PER_DAY: Final = 10
ZERO: Final = [0] * SLOTS
ACCEPTANCES: Final = ("accept_delta", "accept_weak_privacy")
"""Words of a declared budget that change none of its terms."""

Draws = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""Units of draws, see `core.privacy.draws`."""
Run = tuple[Annotated[int, Field(ge=1)], Event]
Runs = tuple[Run, ...]
"""Events in order, as runs of equal ones: how many, and which."""


class TermsBody(BaseModel):
    """What a budget promises and the caps that keep it; `declared` is the budget as its owner wrote it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epsilon: str
    delta: str
    orders: tuple[int, ...]
    weights: tuple[str, ...]
    caps_nano: tuple[int, ...]
    declared: dict[str, JsonValue]

    @property
    def terms(self) -> Terms:
        """The same, to count with."""
        return Terms(
            epsilon=Decimal(self.epsilon),
            delta=Decimal(self.delta),
            orders=self.orders,
            weights=tuple(Decimal(weight) for weight in self.weights),
            caps_nano=self.caps_nano,
        )

    def due(self, units: int, version: int) -> Terms:
        """Return the terms that follow from what was declared and n."""
        known = {"epsilon", "rho", "delta", *ACCEPTANCES}
        demand(self.declared.keys() <= known, "its budget is declared by unknown words")
        accepted = [self.declared.get(name, True) for name in ACCEPTANCES]
        demand(all(one in {True, False} for one in accepted), "what it accepts is neither true nor false")
        told = {name: self.declared.get(name) for name in ("epsilon", "rho", "delta")}
        words = [value if isinstance(value, str) else None for value in told.values()]
        demand(words == list(told.values()), "figures of its budget are no strings")
        return terms_of_budget(*words, units, version)


class Still(Body):
    """An entry that moves nothing and is about no job."""

    def follow(self, tally: Tally) -> None:
        """Demand that nothing is moved."""
        del tally
        demand(not self.accounts, "it moves amounts")
        demand((self.job, self.attempt, self.chunk) == (None, None, None), "it names a job")


class Open(Still):
    """The first entry: the scope and its budget. Caps, orders and weights follow from what was declared."""

    KIND: ClassVar[str] = "open"

    account: str
    terms: TermsBody
    actor: str
    adjacency: str
    unit: JsonValue
    units: Annotated[int, Field(ge=1)]

    def follow(self, tally: Tally) -> None:
        """Derive the terms, and open the scope's account."""
        super().follow(tally)
        demand(self.account == self.scope, "the scope's account has another name")
        told = self.terms.terms
        demand(
            told == self.terms.due(self.units, self.v),
            "its caps, orders and weights are not those of the declared budget",
        )
        tally.owner, tally.units = self.actor, self.units
        tally.accounts[self.account] = AccountTally(told, self.terms.declared, None)


class Upload(Still):
    """Records that came into the scope. Its owner answers for it that their people are in no other, whatever was found.

    It has one form and says the same of every upload: nobody but the owner learns whether there was anything to state.
    """

    KIND: ClassVar[str] = "upload"

    dataset: str
    fingerprint: str
    rows: Annotated[int, Field(ge=1)]
    actor: str


class Grant(Still):
    """A principal's own ceiling inside the scope's budget, made or changed."""

    KIND: ClassVar[str] = "grant"

    account: str
    terms: TermsBody
    principal: str
    actor: str

    def follow(self, tally: Tally) -> None:
        """Derive the terms; a ceiling that was used keeps its orders, weights and delta."""
        super().follow(tally)
        told, due = self.terms.terms, self.terms.due(tally.units, self.v)
        demand(self.account != self.scope, "a grant is not the scope's account")
        account = tally.accounts.get(self.account)
        if account is None:
            owned = {one.principal for one in tally.accounts.values()}
            demand(self.principal not in owned, "this principal has a grant already")
            account = tally.accounts[self.account] = AccountTally(told, self.terms.declared, self.principal)
        demand(account.principal == self.principal, "it is another principal's grant")
        before = account.terms
        if account.is_used:
            demand(due.delta == before.delta, "a grant that was used has another delta")
            due = due if _shape(due) == _shape(before) else renewed(before, due.epsilon)
        demand(told == due, "its caps, orders and weights are not those of the declared ceiling")
        account.terms, account.declared = told, self.terms.declared
        demand(account.is_within, "the ceiling lies below what was used")


def _shape(terms: Terms) -> tuple[object, ...]:
    return terms.orders, terms.weights, terms.delta


class Reserve(Body):
    """A job's worst case, reserved at each account: its whole schedule, and its allowance beside it."""

    KIND: ClassVar[str] = "reserve"

    schedule: Runs
    retry_allowance: Annotated[int, Field(ge=0)]
    draws: Draws
    actor: str

    def follow(self, tally: Tally) -> None:
        """Price the schedule and the allowance at each account; the job is live from here on."""
        demand(self.job is not None and (self.attempt, self.chunk) == (0, 0), "it names no job, or one of its chunks")
        assert self.job is not None, "demanded above"
        demand(not tally.is_known(self.job), f"{self.job} was reserved for before")
        demand(not tally.is_frozen and tally.pending is None, "the scope was frozen")
        demand(self.scope in self.accounts, "the scope's account pays nothing")
        for account_id in self.accounts.keys() - {self.scope}:
            owner = tally.accounts[account_id].principal if account_id in tally.accounts else None
            demand(owner == self.actor, f"{account_id} is no grant of {self.actor}")
        priced = _priced(self.schedule, self.retry_allowance)
        held: Amounts = {}
        for account_id in self.accounts:
            totals, beside = priced.amounts(tally.accounts[account_id].terms)
            held[account_id] = plus(totals[-1], beside)
        exact = self.v != 1
        tally.move(self, dict.fromkeys(self.accounts, ZERO), held, exact=exact)
        tally.count(self.accounts, self.draws)
        self.begin(tally, priced, exact=exact)

    def begin(self, tally: Tally, priced: Schedule, *, exact: bool) -> None:
        """Count the job as live, with what was reserved for it."""
        nothing = {account_id: list(ZERO) for account_id in self.accounts}
        assert self.job is not None, "a reservation is a job's"
        tally.live[self.job] = JobTally(
            actor=self.actor,
            schedule=priced,
            exact=exact,
            held={account_id: list(moved.reserved) for account_id, moved in self.accounts.items()},
            charged=dict(nothing),
            first=dict(nothing),
            left={one: list(priced.amounts(tally.accounts[one].terms)[1]) for one in self.accounts},
            terms={one: tally.accounts[one].terms for one in self.accounts},
            draws=self.draws,
        )


class Spend(Body):
    """A payment for a chunk, before it is read; `again`: it was paid before and lost, and the allowance pays."""

    KIND: ClassVar[str] = "spend"

    event: Runs
    again: bool

    def follow(self, tally: Tally) -> None:
        """Demand that the chunk is due, and price it: C(k + 1) - C(k), or by itself out of the allowance."""
        job = tally.live_job(self)
        chunk = self._due_chunk(job)
        demand(self.event == ((1, job.schedule.events[chunk]),), "its event is not the one of its chunk")
        demand(self.again == (chunk < job.paid), "whether it pays again is told wrongly")
        due = {account_id: self._price(job, tally.accounts[account_id].terms, account_id) for account_id in job.held}
        tally.move(self, due, {one: minus(amount) for one, amount in due.items()}, exact=job.exact)
        _charge(job, self)
        for account_id, moved in self.accounts.items():
            if self.again:
                demand(covers(job.left[account_id], moved.spent), "the allowance does not pay for it")
                job.left[account_id] = plus(job.left[account_id], minus(moved.spent))
            else:
                job.first[account_id] = plus(job.first[account_id], moved.spent)
        assert self.attempt is not None, "looked at with the chunk"
        job.attempt, job.due, job.paid = self.attempt, chunk + 1, max(job.paid, chunk + 1)
        _draw(tally, job, [job.schedule.events[chunk]])

    def _due_chunk(self, job: JobTally) -> int:
        """Return the chunk, which must be the next of its attempt, or the first that a new attempt may pay for."""
        chunk, attempt = self.chunk, self.attempt
        demand(chunk is not None and attempt is not None, "it names no chunk of an attempt")
        assert chunk is not None, "demanded above"
        assert attempt is not None, "demanded above"
        demand(chunk < len(job.schedule.events), "the job has no such chunk")
        demand(attempt >= max(job.attempt, 1), "it is of an attempt before the last")
        if attempt == job.attempt:
            demand(chunk == job.due, f"chunk {chunk} is paid where chunk {job.due} is due")
        elif is_stream(job.schedule.chunks):
            demand(chunk == job.paid, f"chunk {chunk} of a stream is paid where chunk {job.paid} is due")
        demand(chunk <= job.paid, f"chunk {chunk} is paid where chunk {job.paid} is due")
        return chunk

    def _price(self, job: JobTally, terms: Terms, account_id: str) -> list[int]:
        assert self.chunk is not None, "looked at before"
        if self.again:
            return slots(cost_nano(job.schedule.events[self.chunk], terms.orders))
        totals = job.schedule.amounts(terms)[0]
        before = totals[self.chunk - 1] if self.chunk else ZERO
        if job.exact:
            return plus(totals[self.chunk], minus(before))
        # What version 1 has reserved at an older, higher price is paid by its differences: as many in all, or more.
        return [max(0, one) for one in plus(totals[self.chunk], minus(job.first[account_id]))]


class Charge(Body):
    """All that a job still has reserved, spent at once: its trainer failed, so that what it read is not known."""

    KIND: ClassVar[str] = "charge"

    event: Runs
    reason: str

    def follow(self, tally: Tally) -> None:
        """Demand that all that is held is spent, and that the events are those that it pays for; the job is over."""
        job = tally.live_job(self)
        demand(self.chunk == len(job.schedule.events), "it is not of the end of the schedule")
        demand(self.attempt is not None and self.attempt >= job.attempt, "it is of an attempt before the last")
        rest = rest_of(job, self.scope, tally.accounts[self.scope].terms)
        told = [event for count, event in self.event for _ in range(min(count, len(rest) + 1))]
        demand(told == rest or not job.exact, "its events are not those left of the schedule and the allowance")
        tally.move(self, dict(job.held), {one: minus(amount) for one, amount in job.held.items()})
        _charge(job, self)
        job.paid = len(job.schedule.events)
        job.left = {one: list(ZERO) for one in job.left}
        _draw(tally, job, told)
        tally.end(self.job)


def rest_of(job: JobTally, scope: str, terms: Terms) -> list[Event]:
    """Return the events that the rest of a job's reservation pays for at the scope's account."""
    events = job.schedule.events
    once = allowance.promised(events, 1, terms)
    times = min((left // price for left, price in zip(job.left[scope], once, strict=True) if price), default=0)
    return [*events[job.paid :], *[allowance.dearest(events)] * times]


class Settle(Body):
    """The end of a job that was not charged whole: what it reserved and never spent is given back."""

    KIND: ClassVar[str] = "settle"

    reason: str
    draws: Draws
    """Units that it gives back: all where nothing was ever paid for it, and else none."""

    def follow(self, tally: Tally) -> None:
        """Demand that all that is held is given back, and draws only where nothing was paid; the job is over."""
        job = tally.live_job(self)
        demand((self.attempt, self.chunk) == (0, 0), "it is of a chunk")
        held = job.held
        tally.move(self, dict.fromkeys(held, ZERO), {one: minus(amount) for one, amount in held.items()})
        demand(
            self.draws == (0 if job.paid else job.draws), "it gives back draws that may have been made, or keeps others"
        )
        tally.count(held, -self.draws)
        job.held = {one: list(ZERO) for one in held}
        tally.end(self.job)


class Compensate(Body):
    """A share of a job's charge, given back once, because it never opened the records; amounts are rounded down."""

    KIND: ClassVar[str] = "compensate"

    fraction: Annotated[str, Field(pattern=r"^\d{1,18}(/\d{1,18})?$")]
    reason: str
    actor: str

    def follow(self, tally: Tally) -> None:
        """Demand that the job is over, was charged and was not compensated before, and that the share is right."""
        job = tally.job(self)
        demand((self.attempt, self.chunk) == (0, 0), "it is of a chunk")
        demand(job.is_over, f"{self.job} was not over")
        demand(not job.is_compensated, f"{self.job} was compensated before")
        demand(job.paid > 0, f"{self.job} was charged nothing")
        fraction = Fraction(self.fraction)
        demand(0 < fraction <= 1, "its share of the charge is none")
        recent = sum(at > self.at + 1 - DAY_SECONDS for at in tally.compensations)
        demand(recent < COMPENSATIONS_PER_DAY, f"there were {COMPENSATIONS_PER_DAY} compensations in 24 hours before")
        back = {one: [-int(fraction * part) for part in amount] for one, amount in job.charged.items()}
        tally.move(self, back, dict.fromkeys(back, ZERO))
        tally.compensations.append(self.at)
        job.is_compensated = True
        if fraction == 1:
            tally.charged -= job.drawn


class Freeze(Still):
    """A stop: no job is admitted from here on."""

    KIND: ClassVar[str] = "freeze"

    reason: str
    actor: str

    def follow(self, tally: Tally) -> None:
        """Demand that it was not frozen."""
        super().follow(tally)
        demand(not tally.is_frozen, "the scope was frozen before")
        tally.is_frozen = True


class Unfreeze(Still):
    """The end of a stop."""

    KIND: ClassVar[str] = "unfreeze"

    reason: str
    actor: str

    def follow(self, tally: Tally) -> None:
        """Demand that it was frozen."""
        super().follow(tally)
        demand(tally.is_frozen, "the scope was not frozen")
        tally.is_frozen = False


class Witnessed(BaseModel):
    """What the witness had seen of a scope: its last entry then, and spent + reserved of each account."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: Annotated[int, Field(ge=0)]
    head: str
    taken: dict[str, tuple[int, int, int, int]]


class Reconcile(Body):
    """What a ledger that was put back is charged more, so that it holds what its witness had seen.

    `seen` is None where the witness did not know the scope, and in version 1.
    """

    KIND: ClassVar[str] = "reconcile"

    reason: str
    actor: str
    seen: Witnessed | None

    def follow(self, tally: Tally) -> None:
        """Demand that no job is live, and that spent is raised to what was seen, or to what exhausts an order."""
        demand((self.job, self.attempt, self.chunk) == (None, None, None), "it names a job")
        demand(not tally.live, "there are live jobs")
        before = {one: list(account.spent) for one, account in tally.accounts.items()}
        if self.v == 1:
            demand(self.accounts.keys() <= tally.accounts.keys(), "it moves amounts of unknown accounts")
            raised = {one: list(moved.spent) for one, moved in self.accounts.items()}
            demand(all(min(amount) >= 0 for amount in raised.values()), "it gives something back")
        else:
            raised = {} if self.seen is None else raised_to(self.seen.taken, tally.accounts)
        tally.move(self, raised, dict.fromkeys(raised, ZERO))
        own = tally.accounts[self.scope]
        event = lost_event([one - two for one, two in zip(own.spent, before[self.scope], strict=True)], own.terms)
        if event is not None:
            tally.charged[event] += 1


def raised_to(seen: Mapping[str, Sequence[int]], accounts: Mapping[str, AccountTally]) -> Amounts:
    """Return what each account must be charged more to hold what was seen of it; accounts that need nothing are out."""
    raised: Amounts = {}
    for account_id, account in accounts.items():
        taken = account.taken
        missing = [max(0, one - two) for one, two in zip(seen.get(account_id, taken), taken, strict=True)]
        if any(missing):
            raised[account_id] = _within_cap(account, missing)
    return raised


def _within_cap(account: AccountTally, missing: list[int]) -> list[int]:
    """Return what may be added to spent: all of it, or, where no order could hold that, as much as exhausts one."""
    room = [cap - taken for cap, taken in zip(account.terms.caps_nano, account.taken, strict=False)]
    excess = {slot: missing[slot] - left for slot, left in enumerate(room) if left >= 0}
    slot = min(excess, key=lambda at: excess[at])
    return [min(part, room[at]) if at == slot else part for at, part in enumerate(missing)]


def lost_event(spent: Sequence[int], terms: Terms) -> Event | None:
    """Return what a reconciliation has charged as one event: the least rho that covers it at the orders of the terms.

    Of what was forgotten only amounts are known. None where they are 0.
    """
    if not any(spent):
        return None
    return Zcdp(rho=max(amount / (order * NANO) for amount, order in zip(spent, terms.orders, strict=False)))


class Unwitnessed(Still):
    """The ledger went on without its witness: entries of this range of time may be missing.

    The scope admits no job until its owner has accepted that, and every later view of it says so.
    """

    KIND: ClassVar[str] = "unwitnessed"

    since: Seconds
    until: Seconds
    reason: str
    actor: str

    def follow(self, tally: Tally) -> None:
        """Demand that the range begins with the last entry that is there and ends now."""
        super().follow(tally)
        demand((self.since, self.until) == (tally.at, self.at), "its range of time is not from the entry before to now")
        tally.pending = self.seq
        tally.unwitnessed.append((self.since, self.until))


class Accept(Still):
    """The owner's word that the scope goes on although entries may be missing; `entry` says which one told so."""

    KIND: ClassVar[str] = "accept"

    entry: Annotated[int, Field(ge=1)]
    reason: str
    actor: str

    def follow(self, tally: Tally) -> None:
        """Demand that it is the owner's, and about what waits for it."""
        super().follow(tally)
        demand(self.actor == tally.owner, "it is not the owner's")
        demand(self.entry == tally.pending, "nothing waits to be accepted under this number")
        tally.pending = None


KINDS: Final[dict[str, type[Open | Still | Reserve | Spend | Charge | Settle | Compensate | Reconcile]]] = {
    one.KIND: one
    for one in (
        Open,
        Upload,
        Grant,
        Reserve,
        Spend,
        Charge,
        Settle,
        Compensate,
        Freeze,
        Unfreeze,
        Reconcile,
        Unwitnessed,
        Accept,
    )
}
"""The grammar: every kind of entry by its name."""


def read(text: str) -> Body:
    """Return an entry's body from its text.

    Raises:
        ValueError, KeyError, TypeError: it is no body.
    """
    modern, kind = first_form.modernised(text)
    return KINDS[kind].read(modern)


def follow(tally: Tally, body: Body) -> None:
    """Check that an entry follows from those before it, and count it.

    Raises:
        BrokenChain: it does not.
    """
    tally.enter(body)
    body.follow(tally)
    tally.leave(body)


def _charge(job: JobTally, body: Body) -> None:
    """Move what an entry spends from what the job holds to what it was charged."""
    for account_id, moved in body.accounts.items():
        job.held[account_id] = plus(job.held[account_id], moved.reserved)
        job.charged[account_id] = plus(job.charged[account_id], moved.spent)
        demand(min(job.held[account_id]) >= 0, "it spends more than was reserved for its job")


def _draw(tally: Tally, job: JobTally, events: Sequence[Event]) -> None:
    drawn = Counter(events)
    job.drawn.update(drawn)
    tally.charged.update(drawn)


@lru_cache(maxsize=1024)
def _priced(runs: Runs, times: int) -> Schedule:
    """Return a schedule from its runs: how many alike there are is looked at before they are listed."""
    demand(1 <= sum(count for count, _ in runs) <= MAX_CHUNKS, f"a job has 1 to {MAX_CHUNKS} chunks")
    demand(all(one[1] != two[1] for one, two in pairwise(runs)), "two runs are of the same event")
    return Schedule([event for count, event in runs for _ in range(count)], times, draws=0)
