"""Accounts as vectors: one integer of nano-nats per slot, and the terms they were opened with.

An account has four slots; terms with fewer orders leave the last ones unused (order 0, cap -1), where everything is 0.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from core.base.errors import NotFound, ensure
from core.db.tables import Account, Job, Scope
from core.ledger.bodies import SLOTS, slots
from core.privacy.budget import Terms

Vector = tuple[int, ...]
Totals = list[list[int]]
"""C(1), ..., C(K) of a job in one account, each of four slots."""


@dataclass(frozen=True)
class Balance:
    """The amounts of an account, one integer of nano-nats per order of its terms."""

    terms: Terms
    spent: Vector
    reserved: Vector
    draws: int = 0
    """Units of draws that its jobs have reserved, see `core.privacy.draws`."""


def untouched(terms: Terms) -> Balance:
    """Return the balance of an account that nothing was drawn from."""
    nothing = (0,) * len(terms.orders)
    return Balance(terms, nothing, nothing)


def read_slots(account: Account, name: str) -> list[int]:
    """Return the four slots of ``spent``, ``reserved``, ``cap`` or ``order``."""
    return [getattr(account, f"{name}_{slot}") for slot in range(1, SLOTS + 1)]


def set_terms(account: Account, terms: Terms) -> None:
    """Write terms into an account's columns."""
    account.epsilon, account.delta = str(terms.epsilon), str(terms.delta)
    weights = [*(str(weight) for weight in terms.weights), *["0"] * (SLOTS - len(terms.weights))]
    # Cap -1: an unused slot stays at 0, and the table's CHECK would count a cap of 0 as kept.
    columns = zip(slots(terms.orders), weights, slots(terms.caps_nano, fill=-1), strict=True)
    for slot, (order, weight, cap) in enumerate(columns, start=1):
        setattr(account, f"order_{slot}", order)
        setattr(account, f"weight_{slot}", weight)
        setattr(account, f"cap_{slot}", cap)


def terms_of(account: Account) -> Terms:
    """Return the terms that an account was opened with."""
    used = [slot for slot, order in enumerate(read_slots(account, "order"), start=1) if order]
    return Terms(
        epsilon=Decimal(account.epsilon),
        delta=Decimal(account.delta),
        orders=tuple(getattr(account, f"order_{slot}") for slot in used),
        weights=tuple(Decimal(getattr(account, f"weight_{slot}")) for slot in used),
        caps_nano=tuple(getattr(account, f"cap_{slot}") for slot in used),
    )


def balance_of(account: Account, terms: Terms | None = None) -> Balance:
    """Return an account's terms, which never change and may be known, with what is spent and reserved."""
    terms = terms or terms_of(account)
    used = len(terms.orders)
    spent, reserved = (tuple(read_slots(account, name)[:used]) for name in ("spent", "reserved"))
    return Balance(terms, spent, reserved, account.draws)


def move(account: Account, *, spent: Iterable[int], reserved: Iterable[int]) -> dict[str, list[int]]:
    """Add to a locked account's totals; return the movement as an entry's body tells it.

    Both totals stay at least 0, here as in the table's CHECK.
    """
    movement = {"spent": list(spent), "reserved": list(reserved)}
    changes = [(f"{name}_{slot}", by) for name, change in movement.items() for slot, by in enumerate(change, start=1)]
    totals = {name: getattr(account, name) + by for name, by in changes}
    ensure(min(totals.values()) >= 0, f"{account.id} would fall below zero")
    for name, total in totals.items():
        setattr(account, name, total)
    return movement


def lock_scope(session: Session, scope_id: str) -> Scope:
    """Lock a scope's row, and with it the head of its chain.

    Raises:
        NotFound: there is no such scope.
    """
    scope = session.execute(
        select(Scope)
        .where(Scope.id == scope_id)
        # FOR NO KEY UPDATE: inserts that refer to this row by a foreign key need not wait for it.
        .with_for_update(key_share=True)
        # The session may hold the row as it was before the lock; `seq` and `head` must be fresh.
        .execution_options(populate_existing=True)
    ).scalar_one_or_none()
    if scope is None:
        raise NotFound("There is no such scope.")
    return scope


def lock_accounts(session: Session, ids: Iterable[str]) -> list[Account]:
    """Lock accounts in ascending order of their ids; the caller holds their scope's lock."""
    statement = (
        select(Account)
        .where(Account.id.in_(sorted(ids)))
        # PostgreSQL locks rows in the order of the result: one order for all callers excludes deadlocks.
        .order_by(Account.id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    return list(session.execute(statement).scalars())


def grants_of(session: Session, holders: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the identifier of each open grant that there is, by its scope and its principal."""
    pair = tuple_(Account.scope_id, Account.principal_id)
    statement = select(Account.scope_id, Account.principal_id, Account.id)
    found = session.execute(statement.where(pair.in_(set(holders)), Account.closed_at.is_(None)))
    return {(row[0], str(row[1])): row[2] for row in found}


def paying(job: Job) -> list[str]:
    """Return the accounts that a job pays from: its scope's, and its owner's grant."""
    return [job.scope_id, job.grant_id] if job.grant_id else [job.scope_id]


def total_at(job: Job, account_id: str, chunks: int) -> list[int]:
    """Return C(chunks) of a job in one account, four slots; C(0) is 0."""
    totals: Totals = job.chunks[account_id]
    return list(totals[chunks - 1]) if chunks else [0] * SLOTS


def price_of(job: Job, account_id: str, chunk: int) -> list[int]:
    """Return the price of a chunk of a job in one account, C(chunk + 1) - C(chunk), four slots."""
    totals: Totals = job.chunks[account_id]
    return [one - (totals[chunk - 1][slot] if chunk else 0) for slot, one in enumerate(totals[chunk])]


def difference(later: Sequence[int], earlier: Sequence[int]) -> list[int]:
    """Return the slot-wise difference."""
    return [one - other for one, other in zip(later, earlier, strict=True)]


def balance(session: Session, account_id: str) -> Balance:
    """Return the balance of a scope or a grant.

    Raises:
        NotFound: there is no such account.
    """
    account = session.execute(
        select(Account).where(Account.id == account_id).execution_options(populate_existing=True)
    ).scalar_one_or_none()
    if account is None:
        raise NotFound("There is no such budget.")
    return balance_of(account)


def described(terms: Terms, declared: Any) -> dict[str, Any]:  # noqa: ANN401 - the owner's JSON, whatever its shape
    """Return terms as an entry's body tells them."""
    return {
        "epsilon": str(terms.epsilon),
        "delta": str(terms.delta),
        "orders": list(terms.orders),
        "weights": [str(weight) for weight in terms.weights],
        "caps_nano": list(terms.caps_nano),
        "declared": declared,
    }
