"""The tally: the state of one chain that verification derives, entry by entry, from bodies alone.

Every amount is worked out anew from the terms of the accounts and from the events of the schedule, and compared with
what the body moves. An entry that the state does not admit is a `BrokenChain`.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from core.ledger.bodies import SLOTS, Body, Movement
from core.ledger.schedules import Schedule
from core.privacy.amounts import parse_figure
from core.privacy.budget import Terms, default_delta, plan_orders, terms_from_rho
from core.privacy.draws import most_draws
from core.privacy.events import Event
from core.privacy.totals import Totals

Amounts = dict[str, list[int]]
"""Nano-nats in four slots, by account."""


RECONCILED: Final = ("reconcile", "unwitnessed", "accept")
"""Kinds that say that a backup was put in the ledger's place; after `unwitnessed`, payments may be missing."""


class Uploaded(NamedTuple):
    """Records that came into a scope, as their entry says."""

    fingerprint: str
    rows: int
    owner: str
    identity: str | None
    """SHA-256 of the sealed rows that later uploads are compared with; None where the entry does not say."""
    seq: int
    columns: str | None = None
    """Digest of what they were declared as; None where the entry, of version 1, does not say."""


class BrokenChain(ValueError):
    """An entry that does not follow from those before it; the text says why."""


def demand(condition: bool, reason: str) -> None:  # noqa: FBT001 - reads as a sentence: demand this, or say that
    """Refuse an entry unless a condition holds.

    Raises:
        BrokenChain: it does not hold.
    """
    if not condition:
        raise BrokenChain(reason)


@dataclass
class AccountTally:
    """One account as its entries make it."""

    terms: Terms
    declared: Mapping[str, object]
    principal: str | None
    spent: list[int] = field(default_factory=lambda: [0] * SLOTS)
    reserved: list[int] = field(default_factory=lambda: [0] * SLOTS)
    draws: int = 0
    """Units of draws that its jobs have reserved and not given back; see `core.privacy.draws`."""
    is_closed: bool = False

    @property
    def taken(self) -> list[int]:
        """Spent and reserved together."""
        return plus(self.spent, self.reserved)

    @property
    def is_used(self) -> bool:
        """Whether anything was ever charged to it or is reserved in it."""
        return any(self.taken)

    @property
    def is_within(self) -> bool:
        """Whether at some order spent and reserved are within the cap, and a scope's terms have room for all draws."""
        # Caps exist for the orders in use alone, amounts for all four slots.
        fits = any(one <= cap for one, cap in zip(self.taken, self.terms.caps_nano, strict=False))
        return fits and (self.principal is not None or self.draws <= most_draws(self.terms))


@dataclass
class JobTally:
    """One job in one scope as its entries make it.

    Attributes:
        actor: the principal that asked for it.
        dataset: the dataset that it reads.
        schedule: its draws, chunk by chunk, and their costs.
        held: its remaining reservation, by account.
        charged: its spending, by account.
        left: the rest of its allowance, by account.
        paid: chunks that were paid for at least once.
        attempt: the last attempt that has paid, 0 before.
        due: the chunk that this attempt pays for next.
        is_over: whether it was settled, or charged whole.
        is_compensated: whether a share of its charge was given back.
        drawn: the events that it was charged for.
        terms: of its accounts, when it was reserved for.
        draws: the most units of draws that it may make.
        runs: the number of runs, each of as many.
        readings: attempts that an entry has allowed to read records.
        reader: the last attempt that an entry has allowed to read records, 0 before.
        may_have_read: whether any attempt may have read records. Entries of version 1 say so of none: there, whatever
            was paid for is counted as read.
        spec: the digest of its specification; None where the entry, of version 1, does not say.
    """

    actor: str
    dataset: str
    schedule: Schedule
    held: Amounts
    charged: Amounts
    left: Amounts
    paid: int = 0
    attempt: int = 0
    due: int = 0
    is_over: bool = False
    is_compensated: bool = False
    drawn: Counter[Event] = field(default_factory=Counter)
    terms: dict[str, Terms] = field(default_factory=dict)
    draws: int = 0
    runs: int = 1
    readings: int = 0
    reader: int = 0
    may_have_read: bool = False
    spec: str | None = None

    @property
    def totals(self) -> dict[str, list[list[int]]]:
        """C(1), ..., C(K), by account."""
        return {account: self.schedule.amounts(terms)[0] for account, terms in self.terms.items()}

    @property
    def allowance(self) -> Amounts:
        """The amount that it may pay again, by account."""
        return {account: self.schedule.amounts(terms)[1] for account, terms in self.terms.items()}

    @property
    def taken(self) -> Amounts:
        """The part of it that is used."""
        return {account: plus(amount, minus(self.left[account])) for account, amount in self.allowance.items()}


class Tally:
    """The state of one chain, from its first entry on.

    Args:
        scope: the scope of the chain.
        find: looks up a job that was over before the entries in `over`, None where there is none such.
        was_seen: says whether any entry before those in `over` and of live jobs is about a job; by default `find` does.

    Attributes:
        seq: the number of the last entry.
        at: its time.
        version: of its form.
        owner: the principal that answers for the scope.
        units: n, the number of units.
        adjacency: of the scope.
        unit: of the scope, JSON-ready.
        accounts: by identifier; the scope's own has the scope's.
        uploads: datasets whose records came into the scope, by identifier.
        live: jobs that are reserved for and not over.
        over: jobs that are over, until whoever follows the chain takes them out; then they are looked up.
        is_frozen: whether the scope is frozen by an entry.
        pending: the number of the entry that says that entries may be missing, until the owner has accepted that.
        unwitnessed: the ranges of time in which entries may be missing. Each has the number of the entry that states
            it, its begin and end, and the number of the owner's acceptance, None before.
        compensations: times of the last ten corrections.
        corrected: the number of the entry that gave back a share of a job's charge, by job.
        withheld: by job whose release waited for the owner, the numbers of the entry that says so and of the decision.
        approval: whether each release waits for the owner; None where no entry says so.
        reconciled: the numbers of the entries whose kinds are `RECONCILED`.
        charged: the events that were charged and stay so, counted: those of entries after `before`.
        before: the sum of the events of earlier entries, where only that is known; None: there are none.
    """

    def __init__(
        self,
        scope: str,
        find: Callable[[str], JobTally | None] = lambda _: None,
        was_seen: Callable[[str], bool] | None = None,
    ) -> None:
        self.scope = scope
        self._find = find
        self._was_seen = was_seen or (lambda job: find(job) is not None)
        self.seq = 0
        self.at = 0.0
        self.version = 1
        self.owner = ""
        self.units = 0
        self.adjacency = ""
        self.unit: object = None
        self.accounts: dict[str, AccountTally] = {}
        self.uploads: dict[str, Uploaded] = {}
        self.live: dict[str, JobTally] = {}
        self.over: dict[str, JobTally] = {}
        self.is_frozen = False
        self.pending: int | None = None
        self.unwitnessed: list[tuple[int, float, float, int | None]] = []
        # As many as `COMPENSATIONS_PER_DAY`: an older one can refuse nothing.
        self.compensations: deque[float] = deque(maxlen=10)
        self.corrected: dict[str, int] = {}
        self.withheld: dict[str, list[int]] = {}
        self.approval: bool | None = None
        self.reconciled: list[int] = []
        self.charged: Counter[Event] = Counter()
        self.before: Totals | None = None

    def look_up(self, find: Callable[[str], JobTally | None], was_seen: Callable[[str], bool]) -> None:
        """Have jobs that were over before looked up in this way, as the arguments of the same names."""
        self._find, self._was_seen = find, was_seen

    @property
    def totals(self) -> Totals:
        """The sum of all charges that stand."""
        return (self.before or Totals()).plus(self.charged)

    def has(self, dataset: str) -> bool:
        """Say whether a dataset's records may be in the scope: they came into it, or no entry says what did."""
        return dataset in self.uploads or not self.uploads

    def enter(self, body: Body) -> None:
        """Check what every entry obeys, whatever its kind; its own rule comes after this.

        Raises:
            BrokenChain: it does not follow.
        """
        demand(body.scope == self.scope, f"it is of {body.scope}")
        demand((body.seq == 1) == (body.kind == "open"), "the first entry opens the scope, and no other does")
        demand(body.v >= self.version, f"it is of version {body.v}, after one of version {self.version}")
        # A finer time would publish how long a chunk took to compute.
        demand(body.at == int(body.at), "its time is not in whole seconds")
        demand(body.at >= self.at, "its time lies before that of the entry before")

    def leave(self, body: Body) -> None:
        """Count an entry as the last one."""
        self.seq, self.at, self.version = body.seq, body.at, body.v
        if body.kind in RECONCILED:
            self.reconciled.append(body.seq)

    def job(self, body: Body) -> JobTally:
        """Return the job that an entry is about, live or ended.

        Raises:
            BrokenChain: nothing was reserved for it.
        """
        demand(body.job is not None, "it names no job")
        assert body.job is not None, "demanded above"
        found = self.live.get(body.job) or self.over.get(body.job) or self._find(body.job)
        if found is None:
            raise BrokenChain(f"nothing was reserved for {body.job}")
        return found

    def live_job(self, body: Body) -> JobTally:
        """Return the job that an entry is about, which must not be over.

        Raises:
            BrokenChain: it is over, or nothing was reserved for it.
        """
        found = self.job(body)
        demand(not found.is_over, f"{body.job} was over")
        return found

    def is_known(self, job: str) -> bool:
        """Say whether any entry before is about a job."""
        return job in self.live or job in self.over or self._was_seen(job)

    def end(self, job_id: str | None) -> None:
        """Count a job as over."""
        assert job_id is not None, "its rule has looked it up"
        self.over[job_id] = self.live.pop(job_id)
        self.over[job_id].is_over = True

    def move(self, body: Body, spent: Amounts, reserved: Amounts) -> None:
        """Compare what an entry moves with what it should, and move it.

        Args:
            body: the entry.
            spent: the amount that it should add to the spending, by account; slots that terms do not use are 0.
            reserved: the same of what is reserved.

        Raises:
            BrokenChain: it moves something else, or more than there is, or passes every cap.
        """
        demand(body.accounts.keys() == spent.keys(), "it moves amounts of other accounts than those that pay")
        for account_id, moved in body.accounts.items():
            due = spent[account_id], reserved[account_id]
            demand(
                (list(moved.spent), list(moved.reserved)) == due,
                f"it moves {list(moved.spent)} spent and {list(moved.reserved)} reserved of {account_id}, where "
                f"{due[0]} and {due[1]} follow from its events and the terms",
            )
            self._add(account_id, moved)

    def count(self, account_ids: Iterable[str], draws: int) -> None:
        """Count units of draws that a job reserves at some accounts, or gives back.

        Raises:
            BrokenChain: the terms of one have no room for so many.
        """
        for account_id in account_ids:
            account = self.accounts[account_id]
            account.draws += draws
            most = most_draws(account.terms)
            demand(
                # A cap promises nothing by itself; the scope's account bounds all draws.
                account.draws >= 0 and (account.principal is not None or account.draws <= most),
                f"jobs of {account_id} may draw {account.draws} units, and its terms have room for {most}",
            )

    def _add(self, account_id: str, moved: Movement) -> None:
        account = self.accounts[account_id]
        account.spent, account.reserved = plus(account.spent, moved.spent), plus(account.reserved, moved.reserved)
        demand(min(account.spent) >= 0, f"spent of {account_id} would fall below zero")
        demand(min(account.reserved) >= 0, f"reserved of {account_id} would fall below zero")
        demand(account.is_within, f"spent and reserved of {account_id} pass the cap at every order")


def plus(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Return the slot-wise sum."""
    return [first + second for first, second in zip(one, other, strict=True)]


def minus(one: Sequence[int]) -> list[int]:
    """Return the slot-wise negative."""
    return [-amount for amount in one]


@lru_cache(maxsize=256)
def terms_of_budget(epsilon: str | None, rho: str | None, delta: str | None, units: int) -> Terms:
    """Return the terms of a budget as it was declared, which only the owner's words and n decide.

    Raises:
        BrokenChain: these are no words of a budget.
    """
    demand((epsilon is None) != (rho is None), "its budget is declared neither as epsilon alone nor as rho alone")
    known = default_delta(units) if delta is None else parse_figure(delta)
    if rho is not None:
        return terms_from_rho(parse_figure(rho), known)
    assert epsilon is not None, "one of the two is declared"
    return plan_orders(parse_figure(epsilon), known)
