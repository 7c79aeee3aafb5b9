"""Use cases of access: the principals that may see a dataset and send jobs to it, with caps of its budget.

The budget belongs to the scope, and so does a cap: a principal has one in a scope, which all of its jobs there count
against, whichever of the scope's datasets they read.
"""

import hashlib
import json

from sqlalchemy.orm import Session

from core.access import principals
from core.base.errors import Conflict, FieldError, Forbidden, NotFound, PreconditionFailed
from core.db import reads as queries
from core.db.tables import Access, Account, Dataset, Principal
from core.jobs import withdrawals
from core.ledger import ledger
from core.ledger.accounts import balance_of, terms_of
from core.privacy.amounts import BudgetCap
from core.privacy.caps import POINTER, changed_terms, declared_cap, terms_of_cap
from core.records import datasets as rows
from core.service.budgets import cap_view
from core.service.context import Caller, Context
from core.service.datasets import find, find_own
from core.service.principals import end_waiting
from core.service.views import rfc3339
from farthing.schemas.budgets import AccessView


def page(context: Context, caller: Caller, dataset_id: str) -> list[AccessView]:
    """Return who has access to a dataset: all for its owner, admins and auditors, otherwise the caller's own.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        dataset = find(session, caller, dataset_id)
        everything = dataset.owner_id == caller.id or caller.role in {"admin", "auditor"}
        found = queries.accesses(session, dataset)
        return [_view(session, dataset, *one) for one in found if everything or one[1].id == caller.id]


def get(context: Context, caller: Caller, dataset_id: str, principal_id: str) -> AccessView:
    """Return what one principal may do with a dataset.

    Raises:
        NotFound: dataset or access do not exist for the caller.
    """
    for found in page(context, caller, dataset_id):
        if found.principal == principal_id:
            return found
    raise NotFound("This principal has no access to this dataset, or none that you may see.")


def give(
    context: Context,
    caller: Caller,
    dataset_id: str,
    principal_id: str,
    cap: BudgetCap,
    versions: frozenset[str] | None,
) -> tuple[AccessView, bool]:
    """Let a principal see a dataset and use its budget up to a cap; return it and whether the access is new.

    A cap that the principal has in the scope already is stated as it is, or changed by who has read it (If-Match). One
    that was taken away is given anew as one likes, and counts on from what was used under it before.

    Args:
        context: the service.
        caller: the dataset's owner.
        dataset_id: the dataset.
        principal_id: the principal that gets access.
        cap: its cap of the scope's budget.
        versions: the cap that the caller expects; None: any.

    Raises:
        NotFound: dataset or principal do not exist for the caller.
        Forbidden: it is not the caller's dataset: also an admin spends nobody's budget, and gives none away.
        Invalid: the cap cannot be kept.
        LedgerBusy: jobs wait that lost this access before, and are not ended yet.
        Conflict: the dataset has no budget yet; the principal owns it; the cap lies below what was used, or is counted
            at other orders than what was used.
        PreconditionFailed: there is another cap than the caller believes, or, where it believes nothing, than this one.
    """
    with context.database.read() as session:
        _owned_by(session, caller, dataset_id)
        known = queries.principal(session, principal_id) is not None
    if known:
        end_waiting(context, principal_id)  # what an earlier withdrawal could not end
    return context.database.transaction(give_in, caller, dataset_id, principal_id, cap, versions)


def give_in(
    session: Session,
    caller: Caller,
    dataset_id: str,
    principal_id: str,
    cap: BudgetCap,
    versions: frozenset[str] | None,
) -> tuple[AccessView, bool]:
    """Do the same in an open transaction; arguments and refusals are those of `give`."""
    dataset, scope_id = shared_by(session, caller, dataset_id)
    if principal_id == caller.id:
        raise Conflict("The owner of a dataset needs no access to it, and has no cap.")
    # The principal before the scope, in the ledger's order of locks.
    principal = principals.lock(session, principal_id)
    withdrawals.refuse_while_waiting(session, principal_id)
    ledger.lock_scope(session, scope_id)
    account = _capped(session, caller, dataset, principal_id, cap, versions)
    access, is_new = rows.give_access(session, dataset_id, principal_id)
    return _view(session, dataset, access, principal, account), is_new


def shared_by(session: Session, caller: Caller, dataset_id: str) -> tuple[Dataset, str]:
    """Return a dataset that its owner shares, and the scope whose budget it shares.

    Raises:
        NotFound: the dataset does not exist for the caller.
        Forbidden: it is not the caller's.
        Conflict: it has no budget yet.
    """
    dataset = _owned_by(session, caller, dataset_id)
    if dataset.scope_id is None:
        raise Conflict("This dataset has no budget before it has records and is sealed: do that, then share it.")
    return dataset, dataset.scope_id


def _owned_by(session: Session, caller: Caller, dataset_id: str) -> Dataset:
    dataset = find(session, caller, dataset_id)
    if dataset.owner_id != caller.id:
        raise Forbidden("Only the owner of this dataset gives access to its budget.")
    return dataset


def _capped(
    session: Session,
    caller: Caller,
    dataset: Dataset,
    principal_id: str,
    cap: BudgetCap,
    versions: frozenset[str] | None,
) -> Account:
    """Return a principal's account in a dataset's scope, under the cap that is asked for."""
    assert dataset.scope_id is not None, "it has records"
    scope = ledger.balance(session, dataset.scope_id).terms
    declared = declared_cap(cap, scope)
    present = queries.grant(session, dataset.scope_id, principal_id, closed=True)
    is_open = present is not None and present.closed_at is None
    version = _version(present) if present is not None and is_open else None
    if versions is not None and (version is None or not versions & {version, "*"}):
        raise PreconditionFailed("The cap has changed, or there is none; read it again.")
    if present is not None and is_open and present.declared == declared:
        return present
    if is_open and versions is None:
        assert present is not None, "it is open"
        raise PreconditionFailed(
            "This principal has another cap in this scope, which all datasets of the scope share. State that one, or "
            f'send If-Match: "{version}" to change it for all of them.',
            FieldError(POINTER, f"it is {json.dumps(cap_view(present).budget_cap)} now"),
        )
    held = None if present is None else balance_of(present)
    used = held is not None and (any(held.spent) or any(held.reserved))
    terms = changed_terms(cap, scope, held.terms) if held is not None and used else terms_of_cap(cap, scope)
    return ledger.set_grant(session, dataset.scope_id, principal_id, terms, declared, actor=caller.id)


def take(context: Context, caller: Caller, dataset_id: str, principal_id: str) -> None:
    """Take a principal's access to a dataset away; with the last one in the scope its cap closes.

    From then on it does not see the dataset, and reserves nothing. Its queued jobs end, and stay so if it is given
    access again. A running job goes on, and its release waits for the owner's approval. Earlier releases stay the
    principal's. Taking away what was not given changes nothing.

    Raises:
        NotFound: the dataset, or the principal, does not exist for the caller.
        Forbidden: it is somebody else's dataset.
    """

    def work(session: Session) -> None:
        dataset = find_own(session, caller, dataset_id)
        principals.lock(session, principal_id)
        take_in(session, caller.id, dataset_id, dataset.scope_id, principal_id)

    context.database.transaction(work)
    # After the commit: jobs that wait end in transactions of their own, some at a time.
    end_waiting(context, principal_id)


def take_in(session: Session, actor: str, dataset_id: str, scope_id: str | None, principal_id: str) -> None:
    """Take access away in a transaction that holds the principal's lock, and close the cap with the scope's last."""
    rows.take_access(session, dataset_id, principal_id)
    if scope_id is not None and not queries.accessible(session, scope_id, principal_id):
        ledger.close_grant(session, scope_id, principal_id, actor=actor)


def _view(session: Session, dataset: Dataset, access: Access, principal: Principal, account: Account) -> AccessView:
    return AccessView(
        **dict(cap_view(account)),
        dataset=dataset.id,
        principal=principal.id,
        name=principal.name,
        role=principal.role,
        disabled=principal.disabled_at is not None,
        scope=account.scope_id,
        datasets=queries.accessible(session, account.scope_id, principal.id),
        given_at=rfc3339(access.created_at),
        version=_version(account),
    )


def _version(account: Account) -> str:
    """Return what changes with a cap's terms."""
    terms = terms_of(account)
    text = f"{terms.epsilon} {terms.delta} {terms.orders} {terms.caps_nano} {sorted(account.declared.items())}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
