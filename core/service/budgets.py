"""Budgets and prices as people see them."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from sqlalchemy.orm import Session

from core.db import reads as queries
from core.db.tables import Account, Scope
from core.ledger import gaps
from core.ledger.accounts import Balance, Vector, balance_of
from core.ledger.allowance import dearest
from core.ledger.charged import executed, totals_of
from core.ledger.ledger import balance
from core.privacy.amounts import write_figure, write_share
from core.privacy.budget import NANO, Terms, admits, jobs_that_still_fit, standing
from core.privacy.caps import part_of_draws, shown_cap
from core.privacy.conversions import cks_epsilon, gdp_epsilon, renyi_epsilon
from core.privacy.draws import JobDraws, jobs_with_room
from core.privacy.events import Event, compose
from core.privacy.facts import Adjacency
from core.privacy.reports import budget_figures, cost_view, implied
from core.privacy.totals import Totals
from core.service.context import Context
from core.service.labels import Composition
from core.service.views import rfc3339
from farthing.schemas.budgets import BudgetView, CapView, EpsilonView, GapView, RhoView, SharesView
from farthing.schemas.estimates import EstimateCost
from farthing.schemas.jobs import CostFigures

_EMPTY: dict[str, Balance] = {}
_MOST_KEPT = 4096
NO_COST = CostFigures(budget_share="0", epsilon_alone="0", rho="0", mu="0")


def has_room(account: Balance, price: Sequence[int], draws: JobDraws, scope: Terms) -> bool:
    """Say whether an account of a scope with these terms admits a job of this price, and has room for what it draws."""
    room = jobs_with_room(part_of_draws(account.terms, scope), account.draws, draws.most) > 0
    return room and admits(account.terms, account.spent, account.reserved, price)


def still_fit(account: Balance, price: Sequence[int], draws: JobDraws, scope: Terms) -> int:
    """Return how many such jobs an account of a scope with these terms would admit one after the other."""
    fit = jobs_that_still_fit(account.terms, account.spent, account.reserved, price)
    return min(fit, jobs_with_room(part_of_draws(account.terms, scope), account.draws, draws.most))


def cost_figures(event: Event | None, account: Balance, *, at_head: bool) -> CostFigures:
    """Return what an event costs: its share at the account's head, or of the empty budget."""
    if event is None:
        return NO_COST
    if at_head:
        return _figures(event, account.terms, tuple(account.spent), tuple(account.reserved))
    return _figures_of_empty(event, account.terms)


@lru_cache(maxsize=4096)
def _figures_of_empty(event: Event, terms: Terms) -> CostFigures:
    """Return what an event costs of an empty budget: always the same, and asked with every look at a job."""
    empty = (0,) * len(terms.orders)
    return _figures(event, terms, empty, empty)


def _figures(event: Event, terms: Terms, spent: tuple[int, ...], reserved: tuple[int, ...]) -> CostFigures:
    view = cost_view(event, terms, spent, reserved)
    return CostFigures(budget_share=view.budget_share, epsilon_alone=view.epsilon_alone, rho=view.rho, mu=view.mu)


def allowance_figures(schedule: Iterable[Event], times: int, account: Balance, *, at_head: bool) -> CostFigures:
    """Return what it costs to pay for the most expensive chunk of a schedule a number of times."""
    event = compose({dearest(schedule): times}) if times else None
    return cost_figures(event, account, at_head=at_head)


def estimated_cost(
    price: Event, schedule: Sequence[Event], times: int, account: Balance, *, at_head: bool
) -> EstimateCost:
    """Return what a job would cost an account, and what it would reserve beside that; arguments as above."""
    return EstimateCost(
        **cost_figures(price, account, at_head=at_head).model_dump(),
        retry_allowance=allowance_figures(schedule, times, account, at_head=at_head),
        delta=write_figure(account.terms.delta),
    )


def empty_budget(session: Session, scope_id: str) -> Balance:
    """Return a scope's budget with nothing spent or reserved: its terms never change, so they are read once.

    Raises:
        NotFound: there is no such scope.
    """
    if scope_id not in _EMPTY:
        terms = balance(session, scope_id).terms
        nothing = (0,) * len(terms.orders)
        if len(_EMPTY) >= _MOST_KEPT:
            _EMPTY.clear()  # terms never change and are read again
        _EMPTY[scope_id] = Balance(terms, nothing, nothing)
    return _EMPTY[scope_id]


def shares_view(terms: Terms, spent: Sequence[int], reserved: Sequence[int]) -> SharesView:
    """Return how a budget is divided, in shares of it."""
    shares = standing(terms, spent, reserved)
    return SharesView(
        spent=write_share(shares.spent), reserved=write_share(shares.reserved), remaining=write_share(shares.remaining)
    )


def cap_view(account: Account) -> CapView:
    """Return a principal's cap, and what is used of it."""
    held = balance_of(account)
    declared: dict[str, str] = account.declared
    own = "epsilon" in declared or "rho" in declared
    return CapView(
        budget_cap=shown_cap(declared),
        epsilon=write_figure(held.terms.epsilon) if own else None,
        delta=write_figure(held.terms.delta),
        used=shares_view(held.terms, held.spent, held.reserved),
    )


def gap_views(scope: Scope) -> list[GapView]:
    """Return where entries of a scope may be missing."""
    return [
        GapView(entry=gap.entry, since=rfc3339(gap.since), until=rfc3339(gap.until), accepted=gap.accepted)
        for gap in gaps.gaps_of(scope)
    ]


def budget_view(context: Context, session: Session, scope: Scope, principal_id: str) -> BudgetView:
    """Return a scope's budget at its present head, with the principal's own cap where there is one."""
    held, totals = balance(session, scope.id), totals_of(scope)
    adjacency = Adjacency(scope.adjacency)
    epsilon = _epsilon_of_spent(context, scope, held)
    figures = budget_figures(
        held.terms, adjacency, tuple(held.spent), tuple(held.reserved), epsilon=epsilon, rho=totals.rho
    )
    others = implied(adjacency, held.terms.delta, epsilon, mu=totals.mu, rho=totals.rho)
    own = queries.grant(session, scope.id, principal_id)
    return BudgetView(
        scope=scope.id,
        adjacency=scope.adjacency,
        delta=figures.delta,
        epsilon=EpsilonView(**figures.epsilon.model_dump()),
        budget_share=SharesView(**figures.budget_share.model_dump()),
        rho=RhoView(**figures.rho.model_dump()),
        entries=scope.seq,
        head=scope.head,
        frozen=gaps.why_stopped(scope),
        unwitnessed=gap_views(scope),
        label="informational",
        implies={other.value: promise.model_dump(mode="json") for other, promise in others.items()},
        cap=None if own is None else cap_view(own),
    )


def _epsilon_of_spent(context: Context, scope: Scope, held: Balance) -> float:
    """Return an epsilon in nats that holds at a scope's delta for what was charged to it.

    Exact for Gaussian answers, from their sum. Else it is the smallest one if that was found by now, and otherwise the
    conversion of rho or of the amounts in the account, whichever is smaller.
    """
    delta, totals = float(held.terms.delta), totals_of(scope)
    if totals.mu is not None:
        return gdp_epsilon(totals.mu, delta) if totals.mu else 0.0
    amounts = zip(held.spent, held.terms.orders, strict=True)
    bounds = [renyi_epsilon(spent / NANO, order, delta) for spent, order in amounts]
    if totals.rho is not None:
        bounds.append(cks_epsilon(totals.rho, delta))

    def load() -> Composition:
        with context.database.read() as session:
            # A thread runs this later: it gives the key of the state that it reads, not of the asked one.
            found = session.get_one(Scope, scope.id)
            charged = executed(session, scope.id)
            return Composition(_key(found, balance(session, scope.id)), compose(charged), len(charged), delta)

    smallest = context.labels.smallest(scope.id, _key(scope, held), load)
    return min(bounds) if smallest is None else min(*bounds, smallest[0])


def _key(scope: Scope, held: Balance) -> tuple[Totals, Vector]:
    """Return what no two lists of charges have in common; an entry that charges nothing leaves it as it is."""
    return totals_of(scope), tuple(held.spent)
