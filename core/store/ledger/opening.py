"""Accounts, opened: a scope's budget with the first entry of its chain, and an analyst's ceiling inside it."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.errors import Conflict
from core.privacy.budget import Terms, admits
from core.privacy.draws import most_draws
from core.store import clock
from core.store.ids import new_id
from core.store.ledger import chain, kinds
from core.store.ledger.accounts import balance_of, described, lock_accounts, lock_scope, set_terms, terms_of
from core.store.tables import Account, Dataset, Scope


def open_scope(
    session: Session,
    *,
    owner_id: str,
    unit: str | Mapping[str, Any],
    adjacency: str,
    units: int,
    terms: Terms,
    declared: Mapping[str, Any],
) -> Scope:
    """Make a scope with its account and the first entry of its chain.

    Args:
        session: an open write transaction.
        owner_id: the principal who answers for it.
        unit: ``record``, or the user column and the most records of one user.
        adjacency: ``zero_out`` or ``replace_one``.
        units: n, public by the owner's word.
        terms: orders, weights and caps, fixed from now on.
        declared: the budget as the owner wrote it.
    """
    at = clock.read(session)
    scope = Scope(
        id=new_id("sc"),
        owner_id=owner_id,
        unit=unit,
        adjacency=adjacency,
        units=units,
        approval=False,
        seq=0,
        head=chain.GENESIS,
        created_at=at,
    )
    session.add(scope)
    session.flush()
    session.add(_new_account(scope.id, scope.id, None, terms, declared))
    content: dict[str, Any] = {"account": scope.id, "terms": described(terms, declared), "actor": owner_id}
    content |= {"accounts": {}, "adjacency": adjacency, "unit": unit, "units": units}
    chain.append(session, scope, kinds.Open, at=at, content=content)
    session.flush()
    return scope


def note_upload(session: Session, scope_id: str, dataset: Dataset) -> None:
    """Append to a scope's chain that records came into it, for which its owner answers.

    Args:
        session: an open write transaction.
        scope_id: the scope.
        dataset: the records' row, whose public facts are there.
    """
    scope = lock_scope(session, scope_id)
    content: dict[str, Any] = {
        "dataset": dataset.id,
        "fingerprint": dataset.fingerprint,
        "rows": dataset.rows,
        "actor": dataset.owner_id,
        "accounts": {},
    }
    chain.append(session, scope, kinds.Upload, at=clock.read(session), content=content)
    session.flush()


def set_grant(
    session: Session, scope_id: str, principal_id: str, terms: Terms, declared: Mapping[str, Any], *, actor: str = ""
) -> Account:
    """Give a principal an own ceiling inside a scope's budget, or change it.

    A ceiling that was used keeps its orders, weights and delta: `grant_terms` moves a new epsilon onto them. It may
    not fall below what is already spent and reserved.

    Raises:
        NotFound: there is no such scope.
        Conflict: the new ceiling lies below what was used, or has other orders, weights or delta than a used one.
    """
    scope = lock_scope(session, scope_id)
    found = session.execute(
        select(Account.id).where(Account.scope_id == scope_id, Account.principal_id == principal_id)
    ).scalar_one_or_none()
    if found is None:
        account = _new_account(new_id("gr"), scope_id, principal_id, terms, declared)
        session.add(account)
    else:
        (account,) = lock_accounts(session, [found])
        _change_terms(account, terms)
        account.declared = dict(declared)
    content = {"account": account.id, "terms": described(terms, declared), "actor": actor, "accounts": {}}
    content |= {"principal": principal_id}
    chain.append(session, scope, kinds.Grant, at=clock.read(session), content=content)
    session.flush()
    return account


def grant_terms(session: Session, scope_id: str, principal_id: str) -> Terms | None:
    """Return the terms of a principal's ceiling, None where there is none."""
    account = session.execute(
        select(Account).where(Account.scope_id == scope_id, Account.principal_id == principal_id)
    ).scalar_one_or_none()
    return None if account is None else terms_of(account)


def _new_account(
    account_id: str, scope_id: str, principal_id: str | None, terms: Terms, declared: Mapping[str, Any]
) -> Account:
    """Return an account with nothing spent or reserved."""
    account = Account(id=account_id, scope_id=scope_id, principal_id=principal_id, declared=dict(declared), draws=0)
    set_terms(account, terms)
    for slot in range(1, 5):
        setattr(account, f"spent_{slot}", 0)
        setattr(account, f"reserved_{slot}", 0)
    return account


def _change_terms(account: Account, terms: Terms) -> None:
    """Put new terms on a grant, where the promise it has already made allows that."""
    old = balance_of(account)
    if any(old.spent) or any(old.reserved):
        if (old.terms.orders, old.terms.weights, old.terms.delta) != (terms.orders, terms.weights, terms.delta):
            raise Conflict("This grant was used: its delta and orders are fixed; give it another epsilon only.")
        if not admits(terms, old.spent, old.reserved, [0] * len(terms.orders)):
            raise Conflict("This grant would fall below what was already spent and reserved.")
        if account.draws > most_draws(terms):
            raise Conflict(
                f"Jobs of this grant have reserved {account.draws} units of noise, and one of epsilon {terms.epsilon} "
                f"has room for {most_draws(terms)}; give it a smaller epsilon."
            )
    set_terms(account, terms)
