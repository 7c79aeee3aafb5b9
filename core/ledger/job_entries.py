"""Entries about jobs: their bodies, and the rule by which each follows from the entries before it."""

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from core.ledger import allowance
from core.ledger.bodies import SLOTS, Body, slots
from core.ledger.digests import Digest
from core.ledger.schedules import MAX_CHUNKS, Schedule, is_stream
from core.ledger.tally import Amounts, JobTally, Tally, demand, minus, plus
from core.privacy.budget import Terms, covers
from core.privacy.draws import MOST_RUNS, draws_left, least_draws
from core.privacy.events import Composed, Disjoint, Event, Repeated, Sampled
from core.privacy.facts import Adjacency
from core.privacy.renyi import cost_nano

DAY_SECONDS: Final = 86400.0
COMPENSATIONS_PER_DAY: Final = 10
SUCCEEDED: Final = "succeeded"
"""The reason of a settlement that comes with a release."""
ZERO: Final = [0] * SLOTS
Draws = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""Units of draws, see `core.privacy.draws`."""
Run = tuple[Annotated[int, Field(ge=1)], Event]
Runs = tuple[Run, ...]
"""Events in order, as runs of equal ones, each with its count."""


class Reserve(Body):
    """A job's worst case, reserved at each account: its whole schedule, and its allowance beside it."""

    KIND: ClassVar[str] = "reserve"

    schedule: Runs
    retry_allowance: Annotated[int, Field(ge=0)]
    draws: Draws
    dataset: str
    """The dataset that it reads."""
    actor: str
    spec: Digest | None = None
    """Of its specification as it is stored, filled by the planner; entries of version 1 are without it."""
    runs: Annotated[int, Field(ge=1, le=MOST_RUNS)] = 1
    """The number of runs that its draws are for, each as many; entries of version 1 are without it."""

    def follow(self, tally: Tally) -> None:
        """Price the schedule and the allowance at each account; the job is live from here on."""
        demand(self.job is not None and (self.attempt, self.chunk) == (0, 0), "it names no job, or one of its chunks")
        assert self.job is not None, "demanded above"
        demand(not tally.is_known(self.job), f"{self.job} was reserved for before")
        demand(not tally.is_frozen and tally.pending is None, "the scope was frozen")
        has = self.dataset in tally.uploads if self.v > 1 else tally.has(self.dataset)
        demand(has, "the records that it reads never came into the scope")
        fits = self.spec is not None if self.v > 1 else "spec" not in self.model_fields_set
        demand(fits, "its specification is not that of its version")
        demand(self.v > 1 or "runs" not in self.model_fields_set, "its runs are not those of its version")
        demand(self.draws % self.runs == 0, "its runs draw unequally")
        if self.v > 1:
            self._demand_possible(tally)
        demand(self.scope in self.accounts, "the scope's account pays nothing")
        for account_id in self.accounts.keys() - {self.scope}:
            owner = tally.accounts[account_id].principal if account_id in tally.accounts else None
            demand(owner == self.actor, f"{account_id} is no grant of {self.actor}")
            demand(not tally.accounts[account_id].is_closed, f"{account_id} was closed")
        own = {
            one for one, account in tally.accounts.items() if account.principal == self.actor and not account.is_closed
        }
        # Without its grant among the payers, a principal could pass its own cap on the scope's account.
        demand(own <= self.accounts.keys(), f"the grant of {self.actor} pays nothing")
        priced = _priced(self.schedule, self.retry_allowance)
        held: Amounts = {}
        for account_id in self.accounts:
            totals, beside = priced.amounts(tally.accounts[account_id].terms)
            held[account_id] = plus(totals[-1], beside)
        tally.move(self, dict.fromkeys(self.accounts, ZERO), held)
        tally.count(self.accounts, self.draws)
        self.begin(tally, priced)

    def _demand_possible(self, tally: Tally) -> None:
        """Demand that a job may draw its events under the scope's adjacency, and with as many draws as it reserves."""
        is_sampled = any(_is_sampled(event) for _, event in self.schedule)
        demand(
            not is_sampled or tally.adjacency == Adjacency.ZERO_OUT,
            f"samples have no price under {tally.adjacency}",
        )
        least = sum(times * least_draws(event) for times, event in self.schedule)
        demand(self.draws >= least, f"it reserves {self.draws} draws, and has {least} answers at least")

    def begin(self, tally: Tally, priced: Schedule) -> None:
        """Count the job as live, with what was reserved for it."""
        nothing = {account_id: list(ZERO) for account_id in self.accounts}
        assert self.job is not None, "a reservation is a job's"
        tally.live[self.job] = JobTally(
            actor=self.actor,
            dataset=self.dataset,
            schedule=priced,
            held={account_id: list(moved.reserved) for account_id, moved in self.accounts.items()},
            charged=nothing,
            left={one: list(priced.amounts(tally.accounts[one].terms)[1]) for one in self.accounts},
            terms={one: tally.accounts[one].terms for one in self.accounts},
            draws=self.draws,
            runs=self.runs,
            spec=self.spec,
        )


class Reading(Body):
    """An attempt may read records from here on: its job's charge is never given back."""

    KIND: ClassVar[str] = "read"

    def follow(self, tally: Tally) -> None:
        """Demand that it is the first of its attempt, of a live job, and moves nothing."""
        job = tally.live_job(self)
        demand(self.v > 1, "version 1 has no such kind")
        demand(not self.accounts, "it moves amounts")
        demand(self.chunk == 0 and self.attempt is not None, "it is of a chunk")
        assert self.attempt is not None, "demanded above"
        demand(self.attempt > job.reader and self.attempt >= max(job.attempt, 1), "it is of an attempt before the last")
        job.reader, job.may_have_read, job.readings = self.attempt, True, job.readings + 1


class Spend(Body):
    """A payment for a chunk, before it is read; `again`: it was paid before and lost, and the allowance pays."""

    KIND: ClassVar[str] = "spend"

    event: Runs
    again: bool

    def follow(self, tally: Tally) -> None:
        """Demand that the chunk is due, and price it: C(k + 1) - C(k), or by itself out of the allowance."""
        job = tally.live_job(self)
        chunk = self._due_chunk(job)
        demand(self.v == 1 or self.attempt == job.reader, "no entry says that its attempt may read records")
        demand(self.event == ((1, job.schedule.events[chunk]),), "its event is not the one of its chunk")
        demand(self.again == (chunk < job.paid), "whether it pays again is told wrongly")
        due = {account_id: self._price(job, tally.accounts[account_id].terms) for account_id in job.held}
        tally.move(self, due, {one: minus(amount) for one, amount in due.items()})
        _charge(job, self)
        if self.again:
            for account_id, moved in self.accounts.items():
                demand(covers(job.left[account_id], moved.spent), "the allowance does not pay for it")
                job.left[account_id] = plus(job.left[account_id], minus(moved.spent))
        assert self.attempt is not None, "looked at with the chunk"
        job.attempt, job.due, job.paid = self.attempt, chunk + 1, max(job.paid, chunk + 1)
        job.may_have_read = True
        _draw(tally, job, self.event)

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
        # A stream reads no batch twice, so a new attempt skips lost chunks.
        elif is_stream(job.schedule.chunks):
            demand(chunk == job.paid, f"chunk {chunk} of a stream is paid where chunk {job.paid} is due")
        # The chain does not say which answers were kept: a new attempt may begin at any paid chunk.
        demand(chunk <= job.paid, f"chunk {chunk} is paid where chunk {job.paid} is due")
        return chunk

    def _price(self, job: JobTally, terms: Terms) -> list[int]:
        assert self.chunk is not None, "looked at before"
        if self.again:
            return slots(cost_nano(job.schedule.events[self.chunk], terms.orders))
        totals = job.schedule.amounts(terms)[0]
        before = totals[self.chunk - 1] if self.chunk else ZERO
        return plus(totals[self.chunk], minus(before))


class Charge(Body):
    """The rest of a job's reservation, spent at once: its trainer failed, and its readings are unknown."""

    KIND: ClassVar[str] = "charge"

    event: Runs
    reason: str

    def follow(self, tally: Tally) -> None:
        """Demand that all that is held is spent, and that the events are those that it pays for; the job is over."""
        job = tally.live_job(self)
        demand(self.chunk == len(job.schedule.events), "it is not of the end of the schedule")
        demand(self.attempt is not None and self.attempt >= job.attempt, "it is of an attempt before the last")
        rest = rest_of(job, self.scope, tally.accounts[self.scope].terms)
        demand(all(one[1] != two[1] for one, two in pairwise(self.event)), "two runs are of the same event")
        # Counts are the entry's own: an absurd one must be refused before it fills the memory.
        told = [event for count, event in self.event for _ in range(min(count, len(rest) + 1))]
        demand(told == rest, "its events are not those left of the schedule and the allowance")
        tally.move(self, dict(job.held), {one: minus(amount) for one, amount in job.held.items()})
        _charge(job, self)
        job.paid = len(job.schedule.events)
        job.may_have_read = job.may_have_read or self.v == 1
        job.left = {one: list(ZERO) for one in job.left}
        _draw(tally, job, self.event)
        tally.end(self.job)


def rest_of(job: JobTally, scope: str, terms: Terms) -> list[Event]:
    """Return the events that the rest of a job's reservation pays for at the scope's account."""
    events = job.schedule.events
    once = allowance.promised(events, 1, terms)
    times = min((left // price for left, price in zip(job.left[scope], once, strict=True) if price), default=0)
    return [*events[job.paid :], *[allowance.dearest(events)] * times]


class Settle(Body):
    """The end of a job that was not charged whole: the unspent rest of its reservation is given back."""

    KIND: ClassVar[str] = "settle"

    reason: str
    draws: Draws
    """Units that it gives back: all where nothing was ever paid for it, else those of runs that no attempt began."""
    release: Digest | None = None
    """Of what the job released, as it is stored; null where it released nothing, left out in version 1."""

    def follow(self, tally: Tally) -> None:
        """Demand that all that is held is given back, and the draws that nobody can have made; the job is over."""
        job = tally.live_job(self)
        demand((self.attempt, self.chunk) == (0, 0), "it is of a chunk")
        demand(("release" in self.model_fields_set) == (self.v > 1), "its release is not that of its version")
        released = self.release is not None
        demand(
            self.v == 1 or released == (self.reason == SUCCEEDED), "it ends well without a release, or with one badly"
        )
        held = job.held
        tally.move(self, dict.fromkeys(held, ZERO), {one: minus(amount) for one, amount in held.items()})
        # An attempt that may have read counts as a whole run: nobody knows where it died.
        due = draws_left(job.draws, job.runs, job.readings) if job.paid else job.draws
        demand(self.draws == due, "it gives back draws that may have been made, or keeps others")
        tally.count(held, -self.draws)
        job.held = {one: list(ZERO) for one in held}
        tally.end(self.job)


class Compensate(Body):
    """A share of a job's charge, given back once, because it never opened the records; amounts are rounded down."""

    KIND: ClassVar[str] = "compensate"

    fraction: Annotated[str, Field(pattern=r"^[0-9]{1,18}(/[0-9]{1,18})?$")]
    reason: str
    actor: str

    def follow(self, tally: Tally) -> None:
        """Demand that the job is over, was charged and was not compensated before, and that the share is right."""
        job = tally.job(self)
        demand((self.attempt, self.chunk) == (0, 0), "it is of a chunk")
        demand(job.is_over, f"{self.job} was not over")
        demand(not job.is_compensated, f"{self.job} was compensated before")
        demand(job.paid > 0, f"{self.job} was charged nothing")
        demand(self.v == 1 or not job.may_have_read, f"{self.job} may have read records")
        fraction = Fraction(self.fraction)
        demand(0 < fraction <= 1, "its share of the charge is none")
        # Entries' times are cut to seconds: the one more second admits all that the service admitted.
        recent = sum(at > self.at + 1 - DAY_SECONDS for at in tally.compensations)
        demand(recent < COMPENSATIONS_PER_DAY, f"there were {COMPENSATIONS_PER_DAY} compensations in 24 hours before")
        back = {one: [-int(fraction * part) for part in amount] for one, amount in job.charged.items()}
        tally.move(self, back, dict.fromkeys(back, ZERO))
        tally.compensations.append(self.at)
        job.is_compensated = True
        assert self.job is not None, "its job was looked up"
        tally.corrected[self.job] = self.seq
        if fraction == 1:
            tally.charged.subtract(job.drawn)  # below 0 where what was drawn is in `tally.before`


class Withhold(Body):
    """A job's release waits for the scope's owner: nobody else sees it before a `decide` entry says so.

    It moves nothing and only takes away, so that the job is not looked up: it may have ended long ago.
    """

    KIND: ClassVar[str] = "withhold"

    def follow(self, tally: Tally) -> None:
        """Demand that the job's release does not wait yet, and note that it does."""
        _demand_still(self)
        assert self.job is not None, "demanded above"
        demand(self.job not in tally.withheld, f"the release of {self.job} was withheld before")
        tally.withheld[self.job] = [self.seq]


class Decide(Body):
    """The owner's word on a release that waits; there is one."""

    KIND: ClassVar[str] = "decide"

    outcome: Literal["approved", "rejected"]
    reason: str
    actor: str

    def follow(self, tally: Tally) -> None:
        """Demand that it is the owner's, of a release that waits."""
        _demand_still(self)
        assert self.job is not None, "demanded above"
        demand(self.actor == tally.owner, "it is not the owner's")
        waits = tally.withheld.get(self.job, [])
        demand(len(waits) == 1, f"no release of {self.job} waits for a decision")
        waits.append(self.seq)


def _demand_still(body: Body) -> None:
    """Demand that an entry is about a job, and moves nothing."""
    demand(body.v > 1, "version 1 has no such kind")
    demand(not body.accounts, "it moves amounts")
    demand(body.job is not None and (body.attempt, body.chunk) == (0, 0), "it names no job, or one of its chunks")


def _charge(job: JobTally, body: Body) -> None:
    """Move what an entry spends from what the job holds to what it was charged."""
    for account_id, moved in body.accounts.items():
        job.held[account_id] = plus(job.held[account_id], moved.reserved)
        job.charged[account_id] = plus(job.charged[account_id], moved.spent)
        demand(min(job.held[account_id]) >= 0, "it spends more than was reserved for its job")


def _draw(tally: Tally, job: JobTally, runs: Runs) -> None:
    for times, event in runs:
        job.drawn[event] += times
        tally.charged[event] += times


def _is_sampled(event: Event) -> bool:
    match event:
        case Repeated(event=inner):
            return _is_sampled(inner)
        case Composed(events=parts) | Disjoint(events=parts):
            return any(map(_is_sampled, parts))
        case _:
            return isinstance(event, Sampled)


@lru_cache(maxsize=1024)
def _priced(runs: Runs, times: int) -> Schedule:
    """Return a schedule from its runs; the counts are checked before the events are listed."""
    demand(1 <= sum(count for count, _ in runs) <= MAX_CHUNKS, f"a job has 1 to {MAX_CHUNKS} chunks")
    demand(all(one[1] != two[1] for one, two in pairwise(runs)), "two runs are of the same event")
    return Schedule([event for count, event in runs for _ in range(count)], times, draws=0)
