"""Admission of a job: its price is compared with the room of its accounts, and its worst case is reserved.

Jobs that are to be had together, such as the clients of a federated job, are all compared before any is reserved for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

from sqlalchemy.orm import Session

from core.base.errors import BudgetExhausted, BudgetReserved, DrawsExhausted, FieldError, ScopeFrozen, ensure
from core.db.tables import Account, Job, Scope
from core.ledger import allowance, chain, gaps, kinds
from core.ledger.accounts import (
    Balance,
    balance_of,
    grants_of,
    lock_accounts,
    lock_scope,
    move,
    paying,
    terms_of,
)
from core.ledger.bodies import slots
from core.ledger.claims import time_unless_frozen
from core.ledger.digests import digest_of
from core.ledger.schedules import Schedule
from core.privacy.amounts import format_figure, write_share
from core.privacy.budget import Terms, admits, smallest_change
from core.privacy.caps import part_of_draws
from core.privacy.draws import least_draws, most_draws
from core.privacy.renyi import MAX_NANO

RETRY_SECONDS: Final = 30


@dataclass(frozen=True)
class LockedAccounts:
    """The scopes and accounts that some jobs are to pay from, locked until the transaction ends."""

    session: Session
    scopes: Mapping[str, Scope]
    accounts: Mapping[str, Account]
    terms: Mapping[str, Terms]
    """Of each account."""
    at: float
    """The database's time once all of them were locked."""


def accounts_of(session: Session, jobs: Iterable[Job]) -> LockedAccounts:
    """Lock what some jobs that are not stored yet are to pay from; the caller holds their owners' locks.

    Which grants their owners have is read here, under the locks of their scopes: one that is given, changed or closed
    meanwhile counts, or waits until these jobs are stored.

    Raises:
        LedgerFrozen: the ledger is behind its witness.
    """
    wanted = list(jobs)
    # Ascending order, so that two transactions never wait for each other.
    scopes = {scope_id: lock_scope(session, scope_id) for scope_id in sorted({job.scope_id for job in wanted})}
    grants = grants_of(session, [(job.scope_id, job.owner_id) for job in wanted])
    for job in wanted:
        job.grant_id = grants.get((job.scope_id, job.owner_id))
    accounts = lock_accounts(session, {account_id for job in wanted for account_id in paying(job)})
    return LockedAccounts(
        session,
        scopes,
        accounts={account.id: account for account in accounts},
        terms={account.id: terms_of(account) for account in accounts},
        # After the locks, since the ledger may be frozen while this waits for them.
        at=time_unless_frozen(session),
    )


def reserve(accounts: LockedAccounts, job: Job, schedule: Schedule) -> int:
    """Reserve the most a job may cost, from its scope and from its owner's grant, or refuse and change nothing.

    Jobs that share accounts are admitted one after the other, each against what those before it have left. A caller
    without a grant draws on the scope's own account; whether that is allowed is the service's to say.

    Args:
        accounts: locked for this job, among others.
        job: a job that is not yet stored; its `price`, `schedule`, `chunks` and `allowance` are filled.
        schedule: its draws, frozen from here on.

    Returns:
        The number of its entry in the scope's chain.

    Raises:
        BudgetExhausted: it does not fit; the facts say by how much, the fields whether it would without allowance.
        BudgetReserved: it would fit if the present reservations were given back.
        DrawsExhausted: it may draw more than the proof of an account's promise has room for.
        ScopeFrozen: the owner or the auditor has frozen the scope.
    """
    reservation = Reservation(accounts)
    reservation.add(job, schedule)
    return reservation.make()[job.scope_id]


class Reservation:
    """Jobs that are reserved for all together or not at all; a refusal changes nothing.

    Args:
        accounts: locked for all of these jobs, among others.
    """

    def __init__(self, accounts: LockedAccounts) -> None:
        self._accounts = accounts
        self._added: list[tuple[Job, Schedule]] = []
        self._balances: dict[str, Balance] = {}
        self._draws: dict[str, int] = {}

    def add(self, job: Job, schedule: Schedule) -> None:
        """Admit one more job against what those before it would leave; nothing is reserved yet.

        Raises:
            BudgetExhausted, BudgetReserved, DrawsExhausted, ScopeFrozen: as `reserve` says.
        """
        scope = self._accounts.scopes[job.scope_id]
        if scope.frozen_reason is not None:
            raise ScopeFrozen("This scope is frozen: it admits no job until its owner unfreezes it.")
        if gaps.pending(scope) is not None:
            raise ScopeFrozen(
                "Entries of this scope's ledger may be missing: it admits no job until its owner accepts that."
            )
        terms = {account_id: self._accounts.terms[account_id] for account_id in paying(job)}
        ensure(schedule.draws >= sum(map(least_draws, schedule.events)), "each answer is a draw at least")
        price(job, schedule, terms)
        balances = [(account_id, self._balance(account_id)) for account_id in terms]
        _admit(job, balances)
        drawn = {one: self._draws.get(one, self._accounts.accounts[one].draws) for one in terms}
        for account_id, counted in drawn.items():
            _count(job, account_id, counted, terms)
        self._draws |= {one: counted + job.draws for one, counted in drawn.items()}
        for account_id, held in balances:
            # Counted as spent: what is asked for together would not be given back so that the rest of it fits.
            taken = zip(held.spent, allowance.held(job, account_id), strict=False)  # orders, and four slots
            self._balances[account_id] = Balance(held.terms, tuple(map(sum, taken)), held.reserved)
        self._added.append((job, schedule))

    def _balance(self, account_id: str) -> Balance:
        """Return what an account holds beside what was admitted before."""
        found = self._balances.get(account_id)
        return found or balance_of(self._accounts.accounts[account_id], self._accounts.terms[account_id])

    def make(self) -> dict[str, int]:
        """Reserve for all; return the number of the last entry of each scope's chain."""
        return {job.scope_id: self._enter(job, schedule) for job, schedule in self._added}

    def _enter(self, job: Job, schedule: Schedule) -> int:
        locked, scope = self._accounts, self._accounts.scopes[job.scope_id]
        moved = {
            account_id: move(locked.accounts[account_id], spent=slots([]), reserved=allowance.held(job, account_id))
            for account_id in paying(job)
        }
        for account_id in moved:
            locked.accounts[account_id].draws += job.draws
        content = {"accounts": moved, "schedule": schedule.runs, "retry_allowance": schedule.retry_allowance}
        content |= {"draws": job.draws, "dataset": job.dataset_id, "actor": job.owner_id}
        content |= {"spec": digest_of(job.spec), "runs": schedule.whole_runs}
        chain.append(
            locked.session, scope, kinds.Reserve, at=locked.at, job_id=job.id, attempt=0, chunk=0, content=content
        )
        return scope.seq


def price(job: Job, schedule: Schedule, terms: Mapping[str, Terms]) -> None:
    """Fill in what a job that is not yet stored would cost the accounts with these terms, by their identifiers."""
    job.price, job.schedule, job.draws = schedule.price, schedule.chunks, schedule.draws
    job.chunks = {account_id: schedule.amounts(own)[0] for account_id, own in terms.items()}
    job.allowance = {account_id: schedule.amounts(own)[1] for account_id, own in terms.items()}
    job.allowance_spent = {account_id: slots([]) for account_id in terms}


def _admit(job: Job, balances: Sequence[tuple[str, Balance]]) -> None:
    """Refuse a job that does not fit each of its accounts, its allowance with it; say if it would without."""
    found = (
        _refusal(held, job.chunks[account_id][-1], job.allowance[account_id], whose_of(job, account_id))
        for account_id, held in balances
    )
    # The tightest account: a price that fits another one alone would be refused again.
    refusal = min((one for one in found if one is not None), key=_fitting_share, default=None)
    if refusal is None:
        return
    if not all(_fits(held, job.chunks[account_id][-1]) for account_id, held in balances):
        raise refusal
    raise type(refusal)(
        f"{refusal.detail} With retry_allowance 0 it fits as it is: a worker lost with a chunk then fails the job.",
        FieldError("/retry_allowance", "give 0 and the job fits"),
        retry_after_seconds=refusal.retry_after_seconds,
        **refusal.facts,
    )


def _fitting_share(refusal: BudgetExhausted | BudgetReserved) -> float:
    """Return the share of its price at which a refused job would fit; 1 where it only has to wait."""
    if isinstance(refusal, BudgetReserved):
        return 1.0
    return float(str(refusal.facts.get("fits_at_share", "0")))


def whose_of(job: Job, account_id: str) -> str:
    """Return what an account of a job is, for people."""
    return "the budget" if account_id == job.scope_id else "this principal's budget cap"


def _count(job: Job, account_id: str, counted: int, terms: Mapping[str, Terms]) -> None:
    """Refuse a job with which a scope's jobs may draw more than the proof of its promise has room for.

    A cap inside the scope's budget needs no proof. It has a part of the scope's room, so that nobody uses up all of it.

    Raises:
        DrawsExhausted: with the numbers.
    """
    own, scope = account_id == job.scope_id, terms[job.scope_id]
    most = most_draws(scope) if own else part_of_draws(terms[account_id], scope)
    if counted + job.draws > most:
        fix = (
            "open a scope with a smaller epsilon: it has more room" if own else "ask the data's owner for a larger cap"
        )
        raise DrawsExhausted(
            f"The job may draw {job.draws} units of noise; at epsilon {scope.epsilon} and delta {scope.delta} "
            f"{whose_of(job, account_id)} has room for {most}, of which jobs before it have reserved {counted}. "
            f"Ask for fewer steps, or {fix}.",
            draws=str(job.draws),
            reserved_draws=str(counted),
            most_draws=str(most),
        )


def _refusal(
    account: Balance, price: Sequence[int], beside: Sequence[int], whose: str
) -> BudgetExhausted | BudgetReserved | None:
    """Say why a price with an allowance beside it does not fit an account; None where it does."""
    terms = account.terms
    cost = [one + other for one, other in zip(price, beside, strict=True)]
    if _fits(account, cost):
        return None
    if _fits(Balance(terms, account.spent, (0,) * len(terms.orders)), cost):
        return BudgetReserved(
            "The job does not fit now, but would if the present reservations were given back.",
            retry_after_seconds=RETRY_SECONDS,
        )
    short = smallest_change(terms, account.spent, account.reserved, cost[: len(terms.orders)])
    if short is None:  # admitted at one order, beyond what a column can count at another
        return BudgetExhausted("The job's price at one order cannot be counted; ask for noisier answers.")
    part = min(one / both for one, both in zip(price, cost, strict=True) if both)
    # The allowance buys no answers. mu grows with the root of rho, which is proportional to the price.
    mu, rho = short.mu * sqrt(part), short.rho * part
    return BudgetExhausted(
        f"The job asks {short.required} % of {whose}; {short.available} % is left. "
        f"It would fit at {_below(short.share, 4)} of its price, for example as mu {_below(mu, 4)}.",
        required_budget_share=write_share(short.required),
        available_budget_share=write_share(short.available),
        fits_at_share=_below(short.share, 6),
        fits_at_rho=_below(rho, 6),
        fits_at_mu=_below(mu, 6),
    )


def _below(figure: float, digits: int) -> str:
    """Return a figure rounded down: as it is shown, the job fits."""
    return format_figure(figure * (1 - 1e-9), "down", digits=digits)


def _fits(account: Balance, cost: Sequence[int]) -> bool:
    """Say whether an account admits a cost, and can count it at every order."""
    price = cost[: len(account.terms.orders)]
    counted = zip(account.spent, account.reserved, price, strict=True)
    # Prices saturate at MAX_NANO: a sum that reaches it may understate the cost.
    countable = all(sum(amounts) < MAX_NANO for amounts in counted)
    return countable and admits(account.terms, account.spent, account.reserved, price)
