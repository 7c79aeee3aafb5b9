"""Use cases of invitations: an admin invites anybody, an owner analysts to the own data; a link is used once."""

from typing import Any, Final, Literal

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from core.access import audit, invitations, principals
from core.access.audit import Line
from core.base.errors import FieldError, Forbidden, Invalid, NotFound
from core.db import clock
from core.db import reads as queries
from core.db.service_tables import Invitation
from core.privacy.amounts import BudgetCap
from core.service.access import give_in, shared_by
from core.service.context import Caller, Context, Role
from core.service.views import rfc3339
from farthing.schemas.invitations import AcceptedView, InvitationView, NewInvitationView

ACCEPT: Final = "POST /v1/join"
_CAP: TypeAdapter[BudgetCap] = TypeAdapter(BudgetCap)
_MAX_TOKEN: Final = 100
_CREATED: Final = 201
_GONE: Final = "There is no such invitation: it was used or withdrawn, or its week is over. Ask for another one."


def create(
    context: Context, caller: Caller, *, role: Role, note: str, dataset_id: str | None, cap: BudgetCap | None
) -> NewInvitationView:
    """Invite a colleague; return the invitation with its token, which leaves once.

    Args:
        context: the service.
        caller: an admin, or an owner who invites an analyst.
        role: of the principal that it will make.
        note: for whom it is, in words.
        dataset_id: one of the caller's own, to which an analyst gets access at once; None: to none.
        cap: the analyst's cap of that dataset's budget; None without a dataset.

    Raises:
        Forbidden: the caller may not invite this role, or does not own the dataset.
        NotFound: the dataset does not exist for the caller.
        Invalid: a dataset without a cap, a cap without a dataset, or access for another role than analysts.
        Conflict: the dataset has no budget yet, or too many invitations wait.
    """
    caller.require("owner", "admin")
    if caller.role == "owner" and role != "analyst":
        raise Forbidden("An owner invites analysts; an admin invites other roles.")
    if dataset_id is not None and role != "analyst":
        raise Invalid("Only analysts are invited to a dataset.", FieldError("/role", "ask for the role analyst"))
    if dataset_id is not None and cap is None:
        raise Invalid("Access to a dataset has a cap.", FieldError("/budget_cap", 'give one, such as "all"'))
    if dataset_id is None and cap is not None:
        raise Invalid("A cap is of a dataset's budget.", FieldError("/dataset", "name the dataset"))

    def work(session: Session) -> NewInvitationView:
        if dataset_id is not None:
            shared_by(session, caller, dataset_id)
        shown = None if cap is None else _CAP.dump_python(cap, mode="json", exclude_none=True)
        made, token = invitations.make(
            session, made_by=caller.id, role=role, note=note, dataset_id=dataset_id, budget_cap=shown
        )
        return NewInvitationView(**_facts(made, clock.read(session)), token=token)

    return context.database.transaction(work)


def page(context: Context, caller: Caller, after: str | None, limit: int) -> list[InvitationView]:
    """Return up to `limit` invitations, newest first: all for admins and auditors, otherwise the caller's own."""
    with context.database.read() as session:
        at = clock.read(session)
        found = invitations.page(session, _whose(caller), after, limit)
        return [InvitationView(**_facts(one, at)) for one in found]


def withdraw(context: Context, caller: Caller, invitation_id: str) -> InvitationView:
    """End an invitation that waits: its maker, or an admin.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: the caller only looks.
        Conflict: it was accepted.
    """

    def work(session: Session) -> InvitationView:
        if invitations.find(session, invitation_id, _whose(caller)) is None:
            raise NotFound("There is no such invitation.")
        caller.require("owner", "admin")
        return InvitationView(**_facts(invitations.withdraw(session, invitation_id), clock.read(session)))

    return context.database.transaction(work)


def accept(context: Context, token: str, name: str, request_id: str) -> AcceptedView:
    """Make the principal of an invitation, with its first key and its access; all of it or nothing.

    Args:
        context: the service.
        token: of the link.
        name: as the colleague wants to be called.
        request_id: for the audit log: nobody is signed in yet.

    Raises:
        NotFound: the token opens nothing any more, or never did.
        Forbidden: the dataset has another owner now.
        Conflict: the dataset has no budget.
    """

    def work(session: Session) -> AcceptedView:
        known = len(token) <= _MAX_TOKEN and token.isascii()
        found = invitations.take(session, token) if known else None
        if found is None:
            raise NotFound(_GONE, FieldError("/token", "ask for another invitation"))
        role: Any = found.role
        principal = principals.create(session, name, role)
        # Made by itself: nobody else has seen the key, so it may send records at once.
        key, secret = principals.create_key(session, principal.id, name, made_by=principal.id)
        if found.dataset_id is not None:
            cap = _CAP.validate_python(found.budget_cap)
            give_in(session, _maker(session, found), found.dataset_id, principal.id, cap, None)
        invitations.accept(session, found, principal.id)
        line = Line(principal.id, ACCEPT, f"invitations/{found.id}", _CREATED, None, request_id)
        audit.append(session, [line])
        return AcceptedView(
            principal=principal.id, name=name, role=role, key_id=key.id, key=secret, dataset=found.dataset_id
        )

    return context.database.transaction(work)


def _maker(session: Session, invitation: Invitation) -> Caller:
    """Return an invitation's maker as the caller that gives access."""
    maker = queries.principal(session, invitation.made_by)
    assert maker is not None, "principals stay"
    role: Any = maker.role
    return Caller(id=maker.id, name=maker.name, role=role, key_id=invitation.id)


def _whose(caller: Caller) -> str | None:
    """Return whose invitations exist for a caller; None: everybody's."""
    return None if caller.role in {"admin", "auditor"} else caller.id


def _facts(one: Invitation, at: float) -> dict[str, Any]:
    return {
        "id": one.id,
        "role": one.role,
        "note": one.note,
        "made_by": one.made_by,
        "dataset": one.dataset_id,
        "budget_cap": one.budget_cap,
        "state": _state(one, at),
        "created_at": rfc3339(one.created_at),
        "expires_at": rfc3339(one.expires_at),
        "accepted_at": rfc3339(one.accepted_at),
        "principal": one.principal_id,
    }


def _state(one: Invitation, at: float) -> Literal["waiting", "accepted", "withdrawn", "expired"]:
    if one.accepted_at is not None:
        return "accepted"
    if one.withdrawn_at is not None:
        return "withdrawn"
    return "waiting" if one.expires_at > at else "expired"
