"""The email address of a principal, to which notices are mailed."""

from fastapi import APIRouter, status

from api.body import StrictRoute
from api.cost import CHANGE, POST, READ, costs
from api.deps import Caller, Db
from api.errors import problems
from api.schemas import MailCode, NewEmail
from core.base.errors import Conflict, Forbidden, Invalid, Unauthenticated
from core.service import emails as service
from farthing.schemas.notices import EmailView

router = APIRouter(
    prefix="/v1/me/email", tags=["notices"], route_class=StrictRoute, responses=problems(Unauthenticated, Forbidden)
)


@router.get("")
@costs(READ)
def get_email(caller: Caller, db: Db) -> EmailView:
    """Show your email address, and what is mailed there."""
    return service.get(db, caller)


@router.put("", responses=problems(Conflict, Invalid))
@costs(POST)
def set_email(body: NewEmail, caller: Caller, db: Db) -> EmailView:
    """Set your email address, and the kinds of events that are mailed there.

    A new address is mailed a code. Nothing else is sent there before `POST /v1/me/email/confirm` brings it back.
    """
    return service.put(db, caller, body.address, body.kinds)


@router.post("/confirm", responses=problems(Invalid))
@costs(POST)
def confirm_email(body: MailCode, caller: Caller, db: Db) -> EmailView:
    """Confirm your email address by the code that was mailed there."""
    return service.confirm(db, caller, body.code)


@router.delete("", status_code=status.HTTP_204_NO_CONTENT)
@costs(CHANGE)
def remove_email(caller: Caller, db: Db) -> None:
    """Take your email address away."""
    service.remove(db, caller)
