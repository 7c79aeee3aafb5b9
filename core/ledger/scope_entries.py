"""Entries about a scope: their bodies, and the rule by which each follows from the entries before it."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from core.ledger.bodies import SLOTS, Body, Seconds
from core.ledger.digests import Digest
from core.ledger.tally import AccountTally, Amounts, Tally, Uploaded, demand, terms_of_budget
from core.privacy.amounts import parse_figure
from core.privacy.budget import NANO, Terms, renewed
from core.privacy.caps import part_of
from core.privacy.draws import most_draws
from core.privacy.events import Event, Zcdp
from core.privacy.facts import Adjacency

_ZERO: Final = [0] * SLOTS
ACCEPTANCES: Final = ("accept_delta", "accept_weak_privacy")
"""Words of a declared budget that change none of its terms."""


def _as_written(text: str) -> str:
    if str(Decimal(text)) != text:
        raise ValueError("it is written otherwise than a decimal is")
    return text


Written = Annotated[str, AfterValidator(_as_written)]
"""A decimal as Python writes it."""


class TermsBody(BaseModel):
    """The promise of a budget and the caps that keep it; `declared` is the budget as its owner wrote it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epsilon: Written
    delta: Written
    orders: tuple[int, ...]
    weights: tuple[Written, ...]
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

    def due(self, units: int) -> Terms:
        """Return the terms that follow from what was declared and n."""
        known = {"epsilon", "rho", "delta", *ACCEPTANCES}
        demand(self.declared.keys() <= known, "its budget is declared by unknown words")
        accepted = [self.declared.get(name, True) for name in ACCEPTANCES]
        demand(all(isinstance(one, bool) for one in accepted), "its accepted value is neither true nor false")
        told = {name: self.declared.get(name) for name in ("epsilon", "rho", "delta")}
        words = [value if isinstance(value, str) else None for value in told.values()]
        demand(words == list(told.values()), "figures of its budget are no strings")
        return terms_of_budget(*words, units)


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
        if self.v > 1:
            demand(self.adjacency in set(Adjacency), f"there is no adjacency {self.adjacency}")
            demand(_is_unit(self.unit), "its unit is neither a record nor a user's records")
        told = self.terms.terms
        demand(
            told == self.terms.due(self.units),
            "its caps, orders and weights are not those of the declared budget",
        )
        tally.owner, tally.units = self.actor, self.units
        tally.adjacency, tally.unit = self.adjacency, self.unit
        tally.accounts[self.account] = AccountTally(told, self.terms.declared, None)


def _is_unit(unit: JsonValue) -> bool:
    """Say whether a unit is a record, or at most so many records of one user."""
    if not isinstance(unit, dict):
        return unit == "record"
    column, most = unit.get("user_column"), unit.get("max_records")
    named = unit.keys() == {"user_column", "max_records"} and isinstance(column, str)
    return named and type(most) is int and most >= 1  # isinstance would admit True


class Upload(Still):
    """Records that came into the scope. Its owner answers for it that their people are in no other, whatever was found.

    It has one form and says the same of every upload: nobody but the owner learns whether there was anything to state.
    """

    KIND: ClassVar[str] = "upload"

    dataset: str
    fingerprint: str
    rows: Annotated[int, Field(ge=1)]
    actor: str
    identity: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    """SHA-256 over sealed, padded texts under fresh random nonces: that they are there, and nothing of what they say.
    Entries of datasets of which nothing is kept are without it."""
    columns: Digest | None = None
    """Of the columns as they were declared; entries of version 1 are without it."""
    approval: bool | None = None
    """True where each release waits for the owner, as for all records of the scope; left out in version 1."""

    def follow(self, tally: Tally) -> None:
        """Demand that they came into it once, and note them."""
        super().follow(tally)
        told = "identity" not in self.model_fields_set or self.identity is not None
        demand(told, "its summary of records is null")
        demand(self.dataset not in tally.uploads, f"{self.dataset} came into the scope before")
        fits = self.columns is not None if self.v > 1 else "columns" not in self.model_fields_set
        demand(fits, "its columns are not those of its version")
        same = self.approval in (True, False) if self.v > 1 else "approval" not in self.model_fields_set
        demand(same, "its rule of approval is not that of its version")
        demand(tally.approval in (None, self.approval), "its rule of approval is not that of the records before")
        tally.approval = self.approval
        if self.v > 1 and tally.unit == "record" and not tally.uploads:
            same = self.rows == tally.units
            demand(same, f"the first records of the scope are {self.rows}, and its budget is for {tally.units}")
        tally.uploads[self.dataset] = Uploaded(
            self.fingerprint, self.rows, self.actor, self.identity, self.seq, self.columns
        )


class Grant(Still):
    """A principal's own ceiling inside the scope's budget: made, changed, closed, or opened again.

    It is declared as an epsilon or a rho, as a share of the scope's budget, or as all of it.
    """

    KIND: ClassVar[str] = "grant"

    account: str
    terms: TermsBody
    principal: str
    actor: str
    closed: bool

    def follow(self, tally: Tally) -> None:
        """Derive the terms; a ceiling that was used keeps its orders, weights and delta."""
        super().follow(tally)
        told, due = self.terms.terms, self._due(tally)
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
            if _shape(due) != _shape(before):
                own = self.terms.declared.keys() & {"epsilon", "rho"}
                demand(bool(own), "a grant that was used has other orders")
                due = renewed(before, due.epsilon)
        demand(told == due, "its caps, orders and weights are not those of the declared ceiling")
        if self.closed:
            demand((told, self.terms.declared) == (before, account.declared), "it closes a grant, and changes it")
        account.terms, account.declared, account.is_closed = told, self.terms.declared, self.closed
        demand(account.is_within, "the ceiling lies below what was used")

    def _due(self, tally: Tally) -> Terms:
        """Return the terms that follow from what was declared, the scope's budget and n."""
        declared, scope = self.terms.declared, tally.accounts[self.scope].terms
        if declared == {"cap": "all"}:
            return scope
        if declared.keys() == {"share"}:
            share = declared["share"]
            demand(isinstance(share, str), "its share is no string")
            part = Fraction(parse_figure(share))
            demand(part <= 1, "its share is more than the budget")
            return part_of(scope, part)
        return self.terms.due(tally.units)


def _shape(terms: Terms) -> tuple[object, ...]:
    return terms.orders, terms.weights, terms.delta


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
    """The witness's head of a scope: its last entry then, and spent + reserved of each account."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: Annotated[int, Field(ge=0)]
    head: str
    taken: dict[str, tuple[int, int, int, int]]
    draws: dict[str, Annotated[int, Field(ge=0, le=2**63 - 1)]]
    """Units of draws of each account then."""


class Reconcile(Body):
    """The further charge of a ledger that was put back, up to the amounts that its witness had seen.

    `seen` is None where the witness did not know the scope.
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
        raised = {} if self.seen is None else raised_to(self.seen.taken, tally.accounts)
        tally.move(self, raised, dict.fromkeys(raised, _ZERO))
        told = {} if self.seen is None else self.seen.draws
        for account_id, draws in draws_raised_to(told, tally.accounts).items():
            tally.accounts[account_id].draws = draws
        own = tally.accounts[self.scope]
        event = lost_event([one - two for one, two in zip(own.spent, before[self.scope], strict=True)], own.terms)
        if event is not None:
            tally.charged[event] += 1


def raised_to(seen: Mapping[str, Sequence[int]], accounts: Mapping[str, AccountTally]) -> Amounts:
    """Return what each account must be charged more to hold what was seen of it; accounts that need nothing are out.

    A cap that was changed after what is here may have had more orders then: those that it has not are left out.
    """
    raised: Amounts = {}
    for account_id, account in accounts.items():
        taken, used = account.taken, len(account.terms.orders)
        pairs = zip(seen.get(account_id, taken), taken, strict=True)
        missing = [max(0, one - two) if slot < used else 0 for slot, (one, two) in enumerate(pairs)]
        if any(missing):
            raised[account_id] = _within_cap(account, missing)
    return raised


def draws_raised_to(seen: Mapping[str, int], accounts: Mapping[str, AccountTally]) -> dict[str, int]:
    """Return the units of draws that each account counts once it counts those that were seen.

    They are as many as its terms have room for at most: then it admits nothing that draws.
    """
    return {
        account_id: max(account.draws, min(seen.get(account_id, 0), most_draws(account.terms)))
        for account_id, account in accounts.items()
    }


def _within_cap(account: AccountTally, missing: list[int]) -> list[int]:
    """Return what may be added to spent: all of it, or, where no order could hold that, as much as exhausts one."""
    room = [cap - taken for cap, taken in zip(account.terms.caps_nano, account.taken, strict=False)]
    excess = {slot: missing[slot] - left for slot, left in enumerate(room) if left >= 0}
    # `Tally.move` demands one order within its cap: the one that overflows least is filled exactly.
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
        tally.unwitnessed.append((self.seq, self.since, self.until, None))


class Recovery(Still):
    """A key that the operator made for the scope's owner on the service's host; it opens nothing before `starts_at`."""

    KIND: ClassVar[str] = "recovery"

    key: str
    principal: str
    starts_at: Seconds
    reason: str
    actor: str

    def follow(self, tally: Tally) -> None:
        """Demand that it is the owner's key."""
        super().follow(tally)
        demand(self.principal == tally.owner, "it is not the owner's key")


class Accept(Still):
    """The owner's acceptance that entries may be missing; `entry` is the number of the one that stated it."""

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
        tally.unwitnessed = [(*gap[:3], gap[3] or self.seq) for gap in tally.unwitnessed]
