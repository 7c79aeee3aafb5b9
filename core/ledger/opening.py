"""Accounts, opened: a scope's budget with the first entry of its chain, and a principal's cap inside it.

A cap is one per scope and principal, whatever number of the scope's datasets the principal may use. It is never
deleted: one that is closed admits nothing, and where it is given again it counts on from what was used before.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import Conflict
from core.base.identifiers import new_id
from core.db import clock
from core.db.tables import Account, Dataset, Scope
from core.ledger import chain, kinds
from core.ledger.accounts import balance_of, described, lock_accounts, lock_scope, set_terms, terms_of
from core.ledger.digests import digest_of
from core.privacy.budget import Terms, admits


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


def note_upload(session: Session, scope_id: str, dataset: Dataset, identity: str | None = None) -> None:
    """Append to a scope's chain that records came into it, for which its owner answers.

    Args:
        session: an open write transaction.
        scope_id: the scope.
        dataset: the records' row, whose public facts are there.
        identity: the digest of what is kept of them, sealed (`core.ledger.identities.digest_of`); None: nothing is.
    """
    scope = lock_scope(session, scope_id)
    content: dict[str, Any] = {
        "dataset": dataset.id,
        "fingerprint": dataset.fingerprint,
        "rows": dataset.rows,
        "actor": dataset.owner_id,
        "columns": digest_of(dataset.columns),
        "approval": scope.approval,
        "accounts": {},
    }
    if identity is not None:
        content["identity"] = identity
    chain.append(session, scope, kinds.Upload, at=clock.read(session), content=content)
    session.flush()


def set_grant(
    session: Session, scope_id: str, principal_id: str, terms: Terms, declared: Mapping[str, Any], *, actor: str = ""
) -> Account:
    """Give a principal an own ceiling inside a scope's budget, change it, or open it again.

    A ceiling that was used keeps its orders, weights and delta (`core.privacy.caps`). It may not fall below what is
    already spent and reserved.

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
        account.declared, account.closed_at = dict(declared), None
    _note(session, scope, account, actor)
    return account


def close_grant(session: Session, scope_id: str, principal_id: str, *, actor: str = "") -> bool:
    """Close a principal's ceiling: nothing more is reserved under it; its entries and what it has used stay.

    Returns:
        Whether there was one that was open.

    Raises:
        NotFound: there is no such scope.
    """
    scope = lock_scope(session, scope_id)
    open_ones = (Account.scope_id == scope_id, Account.principal_id == principal_id, Account.closed_at.is_(None))
    found = session.execute(select(Account.id).where(*open_ones)).scalar_one_or_none()
    if found is None:
        return False
    (account,) = lock_accounts(session, [found])
    account.closed_at = clock.read(session)
    _note(session, scope, account, actor, closed=True)
    return True


def _note(session: Session, scope: Scope, account: Account, actor: str, *, closed: bool = False) -> None:
    """Append an entry that tells a grant's terms, and that it is closed where it is."""
    content = {
        "account": account.id,
        "principal": account.principal_id,
        "terms": described(terms_of(account), account.declared),
        "actor": actor,
        "accounts": {},
        "closed": closed,
    }
    chain.append(session, scope, kinds.Grant, at=clock.read(session), content=content)
    session.flush()


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
            raise Conflict("This cap was used: its delta and orders are fixed.")
        if not admits(terms, old.spent, old.reserved, [0] * len(terms.orders)):
            raise Conflict("This cap would fall below what was already spent and reserved.")
    set_terms(account, terms)
