"""Invitations: one-time links for new colleagues, and the page where one becomes a principal."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response
from pydantic import ValidationError

from api.authenticator import SESSION_COOKIE
from api.cost import OWNERS, Cost
from api.deps import After, Caller, Db
from api.errors import status_of
from api.pages.letting_in import budget_cap
from api.pages.rendering import ROLES, render
from api.pages.routes import Form, FormFields, PageRoute, page, see_other, value_of
from api.pages.sign_in import with_session
from api.routes import invitations as api
from api.schemas import Acceptor, NewInvitation
from core.base.errors import Conflict, Forbidden, Invalid, NotFound, Refusal
from core.service import datasets, invitations, naming, sign_ins
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.invitations import NewInvitationView

router = APIRouter(route_class=PageRoute)
InvitationId = Annotated[str, Path(max_length=60)]
MAKERS: Final = Cost(OWNERS)
A_PAGE: Final = 50
MOST_DATASETS: Final = 100


@dataclass(frozen=True)
class Made:
    """An invitation that was just made, and the address to send."""

    view: NewInvitationView
    address: str


@page(router, "/invitations", api=api.list_invitations, cost=MAKERS)
def show_invitations(request: Request, caller: Caller, db: Db, after: After = None) -> Response:
    """Show the invitations, and the form for one more."""
    return _show(request, caller, db, {}, after=after)


def _show(
    request: Request,
    caller: Principal,
    context: Context,
    form: Form,
    *,
    after: str | None = None,
    made: Made | None = None,
    refusal: Refusal | None = None,
) -> Response:
    found = invitations.page(context, caller, after, A_PAGE + 1)
    seen = datasets.page(context, caller, None, MOST_DATASETS)
    facts: dict[str, Any] = {
        "invitations": found[:A_PAGE],
        "older": f"/invitations?after={found[A_PAGE - 1].id}" if len(found) > A_PAGE else None,
        "names": naming.names(context, caller, [one.dataset for one in found] + [one.principal for one in found]),
        "datasets": [one for one in seen if one.owner == caller.id and one.scope is not None],
        "roles": ROLES if caller.role == "admin" else {"analyst": ROLES["analyst"]},
        "every_role": ROLES,
        "values": {name: value_of(form, name) for name in form},
        "made": made,
        "error": "" if refusal is None else " ".join([refusal.detail, *(one.detail for one in refusal.fields)]),
    }
    status = 200 if refusal is None else status_of(type(refusal))
    return render(request, "invitations.html", facts, at="invitations", status=status)


@page(router, "/invitations", api=api.create_invitation, method="POST")
def invite(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Make an invitation, and show its address once."""
    try:
        asked = _asked(form)
        view = invitations.create(
            db, caller, role=asked.role, note=asked.note, dataset_id=asked.dataset, cap=asked.budget_cap
        )
    except (Invalid, Forbidden, NotFound, Conflict) as refusal:
        request.state.code = refusal.code
        return _show(request, caller, db, form, refusal=refusal)
    request.state.target = f"invitations/{view.id}"
    # Behind the #, which browsers do not send, so that no proxy's log has the token.
    address = f"{str(request.base_url).rstrip('/')}/join#invitation={view.token}"
    return _show(request, caller, db, {}, made=Made(view, address))


def _asked(form: Form) -> NewInvitation:
    """Return the invitation that a form asks for.

    Raises:
        Invalid: it is none.
    """
    dataset = value_of(form, "dataset") or None
    cap = budget_cap(form) if dataset else None
    told = {"role": value_of(form, "role"), "note": value_of(form, "note"), "dataset": dataset}
    try:
        return NewInvitation.model_validate(told | {"budget_cap": cap})
    except ValidationError:
        raise Invalid("Say for whom it is, in 1 to 200 letters, and choose a role.") from None


@page(router, "/invitations/{invitation_id}/withdraw", api=api.withdraw_invitation, cost=MAKERS, method="POST")
def withdraw(invitation_id: InvitationId, caller: Caller, db: Db) -> Response:
    """End an invitation that waits."""
    invitations.withdraw(db, caller, invitation_id)
    return see_other("/invitations")


@page(router, "/join", api=api.accept_invitation)
def show_join(request: Request) -> Response:
    """Show the form of somebody who was invited; the token stands behind the # of the address."""
    return render(request, "join.html", {"error": "", "made": None, "token": "", "name_given": ""})


@page(router, "/join", api=api.accept_invitation, method="POST")
def join(request: Request, form: FormFields, db: Db) -> Response:
    """Make the principal, show its key once, and go on signed in."""
    told = {"token": value_of(form, "invitation"), "name": value_of(form, "name")}
    try:
        asked = Acceptor.model_validate(told)
        made = invitations.accept(db, asked.token, asked.name, request.state.request_id)
    except ValidationError:
        return _not_joined(request, told, Invalid("Write your name, in 1 to 200 letters."))
    except (NotFound, Conflict, Forbidden, Invalid) as refusal:
        return _not_joined(request, told, refusal)
    token, signed_in = sign_ins.by_key(db, made.key)
    request.state.caller = signed_in
    request.cookies[SESSION_COOKIE] = token  # forms of this page belong to the new session
    return with_session(request, render(request, "joined.html", {"made": made}, at="you"), token)


def _not_joined(request: Request, told: dict[str, str], refusal: Refusal) -> Response:
    request.state.code = refusal.code
    facts = {"error": refusal.detail, "made": None, "token": told["token"], "name_given": told["name"]}
    return render(request, "join.html", facts, status=status_of(type(refusal)))
