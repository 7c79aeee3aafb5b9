"""Invitations: one-time links for new colleagues."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, status

from api.body import StrictRoute
from api.cost import FEW_VALUES, NOBODY, OWNERS, WATCHERS, Cost, costs
from api.deps import After, Caller, Db, Limit, capped, page
from api.errors import problems
from api.schemas import Acceptor, NewInvitation
from core.base.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from core.service import invitations as service
from farthing.schemas.invitations import AcceptedView, InvitationView, NewInvitationView
from farthing.schemas.problems import Page

router = APIRouter(prefix="/v1", tags=["keys"], route_class=StrictRoute)
InvitationId = Annotated[str, Path(max_length=60)]


@router.post(
    "/invitations",
    status_code=status.HTTP_201_CREATED,
    responses=problems(Unauthenticated, Forbidden, NotFound, Conflict, Invalid),
)
@costs(Cost(OWNERS, body_bytes=None, values=FEW_VALUES))
def create_invitation(body: NewInvitation, caller: Caller, db: Db, request: Request) -> NewInvitationView:
    """Invite a colleague: an admin any role, an owner analysts, to a dataset of the own where one is named.

    The token is in this answer and nowhere else. It works once, for seven days.
    """
    view = service.create(db, caller, role=body.role, note=body.note, dataset_id=body.dataset, cap=body.budget_cap)
    request.state.target = f"invitations/{view.id}"
    return view


@router.get("/invitations", responses=problems(Unauthenticated, Forbidden))
@costs(Cost(OWNERS | WATCHERS))
def list_invitations(caller: Caller, db: Db, after: After = None, limit: Limit = 20) -> Page[InvitationView]:
    """List invitations, newest first: all for admins and auditors, an owner's own."""
    return page(service.page(db, caller, after, capped(limit) + 1), capped(limit))


@router.delete("/invitations/{invitation_id}", responses=problems(Unauthenticated, Forbidden, NotFound, Conflict))
@costs(Cost(OWNERS | WATCHERS))
def withdraw_invitation(invitation_id: InvitationId, caller: Caller, db: Db) -> InvitationView:
    """End an invitation that waits; its token opens nothing from then on."""
    return service.withdraw(db, caller, invitation_id)


@router.post("/join", status_code=status.HTTP_201_CREATED, responses=problems(NotFound, Conflict, Forbidden, Invalid))
@costs(Cost(NOBODY, body_bytes=None, values=FEW_VALUES))
def accept_invitation(body: Acceptor, db: Db, request: Request) -> AcceptedView:
    """Become a principal by the token of an invitation; the answer has the first key, once. No key is needed."""
    return service.accept(db, body.token, body.name, request.state.request_id)
