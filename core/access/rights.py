"""Rights to a dataset's budget: its owner has them, and principals with access under an open cap.

A role gives no such right: an admin sees every dataset, and spends of none that is not its own or shared with it.
"""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, and_, exists, or_, select
from sqlalchemy.orm import Session

from core.db.tables import Access, Account, Dataset, Principal

Pair = tuple[str, str]
"""A principal and a dataset."""


def allowed(session: Session, wanted: Iterable[Pair]) -> set[Pair]:
    """Return those pairs of a principal and a dataset where the principal may use the dataset's budget now.

    Access is given and taken away under the principal's lock. A caller that holds it reads a state that stays true
    until its transaction ends.
    """
    pairs = set(wanted)
    statement = select(Principal.id, Dataset.id).where(
        Principal.id.in_({principal for principal, _ in pairs}),
        Dataset.id.in_({dataset for _, dataset in pairs}),
        may_use(),
    )
    # The two lists admit every combination: only the wanted pairs are kept.
    return {(row[0], row[1]) for row in session.execute(statement)} & pairs


def may_use() -> ColumnElement[bool]:
    """Return the condition of a principal and a dataset, both in the statement, that it may use the budget now."""
    given = exists().where(Access.dataset_id == Dataset.id, Access.principal_id == Principal.id)
    capped = exists().where(
        Account.scope_id == Dataset.scope_id, Account.principal_id == Principal.id, Account.closed_at.is_(None)
    )
    return and_(Principal.disabled_at.is_(None), or_(Dataset.owner_id == Principal.id, given & capped))
