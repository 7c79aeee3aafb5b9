"""The frame of every page of the console: the budgets in sight, and the number of releases that wait for the caller."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.db import lists, reads
from core.db.model_reads import awaiting
from core.db.tables import Account, Dataset
from core.ledger.accounts import Balance, balance_of
from core.privacy.amounts import write_share
from core.privacy.budget import standing
from core.service.context import Caller, Context
from core.service.scopes import viewer

MOST: Final = 12
"""Budgets at the side; the page of datasets has all."""


@dataclass(frozen=True)
class BudgetShares:
    """Shares of a budget, each a decimal string from 0 to 1."""

    spent: str
    reserved: str
    remaining: str
    """Free for the caller."""
    others: str = "0"
    """Free, but beyond the caller's cap."""


@dataclass(frozen=True)
class InSight:
    """A dataset and what is left of its budget for the caller."""

    dataset: str
    name: str
    shares: BudgetShares
    """Of the whole budget; of the cap alone where `of_cap`."""
    of_cap: bool
    """Whether the caller's cap is counted at other orders than the budget, so that its own shares are shown."""


@dataclass(frozen=True)
class Overview:
    """The content of the frame."""

    budgets: tuple[InSight, ...]
    pending: int
    """Releases that wait for the caller's approval."""


def of(context: Context, caller: Caller) -> Overview:
    """Return what the caller's pages show at their side, in a few statements however many datasets there are."""
    with context.database.read() as session:
        seen = viewer(caller)
        found = [one for one in lists.datasets(session, seen, None, MOST) if one.scope_id is not None]
        until = reads.grid_time(session, context.settings.visible_grid_seconds)
        pending = 0 if caller.role != "owner" else pending_count(session, caller.id, until)
        return Overview(_in_sight(session, caller, found), pending)


def pending_count(session: Session, owner_id: str, until: float) -> int:
    """Return how many releases wait for an owner's approval that were made by a time of the visible grid."""
    mine = awaiting(owner_id, until).subquery()
    return session.execute(select(func.count()).select_from(mine)).scalar_one()


def _in_sight(session: Session, caller: Caller, datasets: list[Dataset]) -> tuple[InSight, ...]:
    scopes = {one.scope_id for one in datasets if one.scope_id is not None}
    wanted = Account.principal_id.is_(None) | ((Account.principal_id == caller.id) & Account.closed_at.is_(None))
    held: dict[str, Balance] = {}
    caps: dict[str, Balance] = {}
    for account in session.execute(select(Account).where(Account.scope_id.in_(scopes), wanted)).scalars():
        (held if account.principal_id is None else caps)[account.scope_id] = balance_of(account)
    return tuple(_one(dataset, held[str(dataset.scope_id)], caps.get(str(dataset.scope_id))) for dataset in datasets)


def _one(dataset: Dataset, scope: Balance, cap: Balance | None) -> InSight:
    if cap is None or dataset.state in {"erasing", "erased"}:
        return InSight(dataset.id, dataset.name, shares_of(scope), of_cap=False)
    if cap.terms.orders != scope.terms.orders:
        return InSight(dataset.id, dataset.name, shares_of(cap), of_cap=True)
    return InSight(dataset.id, dataset.name, left_under(scope, cap), of_cap=False)


def shares_of(account: Balance) -> BudgetShares:
    """Return the shares of an account that are spent, reserved and left."""
    found = standing(account.terms, account.spent, account.reserved)
    return BudgetShares(*(write_share(percent) for percent in (found.spent, found.reserved, found.remaining)))


def left_under(scope: Balance, cap: Balance) -> BudgetShares:
    """Return a scope's shares for a principal under a cap of the same orders: at each the smaller room is left."""
    whole = standing(scope.terms, scope.spent, scope.reserved)
    room = [min(left) for left in zip(_room(scope), _room(cap), strict=True)]
    taken = [most - left for most, left in zip(scope.terms.caps_nano, room, strict=True)]
    left = min(standing(scope.terms, taken, [0] * len(taken)).remaining, whole.remaining)
    spent, reserved, free = (write_share(one) for one in (whole.spent, whole.reserved, left))
    # Each share is rounded by itself, so the rest may fall a little below 0.
    return BudgetShares(spent, reserved, free, write_share(max(100 - whole.spent - whole.reserved - left, Decimal(0))))


def _room(account: Balance) -> list[int]:
    held = zip(account.terms.caps_nano, account.spent, account.reserved, strict=True)
    return [most - spent - reserved for most, spent, reserved in held]
