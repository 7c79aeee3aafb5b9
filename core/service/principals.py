"""Use cases of principals: their list, and their disabling. Only admins shut out; auditors may look."""

from contextlib import suppress

from sqlalchemy.orm import Session

from core.access import principals
from core.base.errors import Forbidden, NotFound, Refusal
from core.db import reads as queries
from core.db.tables import Principal
from core.jobs import withdrawals
from core.jobs.sweep import BATCH
from core.service.context import Caller, Context
from core.service.views import rfc3339
from farthing.schemas.keys import PrincipalStateView


def page(context: Context, caller: Caller, after: str | None, limit: int) -> list[PrincipalStateView]:
    """Return up to `limit` principals, newest first.

    Raises:
        Forbidden: the caller is neither an admin nor an auditor.
    """
    caller.require("admin", "auditor")
    with context.database.read() as session:
        return [_view(found) for found in queries.principals(session, after, limit)]


def get(context: Context, caller: Caller, principal_id: str) -> PrincipalStateView:
    """Return one principal: any for admins and auditors, otherwise the caller's own.

    Raises:
        NotFound: it does not exist for the caller.
    """
    if caller.role not in {"admin", "auditor"} and principal_id != caller.id:
        raise NotFound("There is no such principal.")
    with context.database.read() as session:
        found = queries.principal(session, principal_id)
        if found is None:
            raise NotFound("There is no such principal.")
        return _view(found)


def disable(context: Context, caller: Caller, principal_id: str, reason: str) -> PrincipalStateView:
    """Shut a principal out: from the next request on every process refuses all its keys.

    A job in the queue ends, and gives back its reservation. A running one goes on, and its release waits for the
    data's owner.

    Raises:
        Forbidden: the caller is no admin, or it is the caller itself, so that nobody locks himself out.
        NotFound: there is none.
    """
    caller.require("admin")
    if principal_id == caller.id:
        raise Forbidden("An admin cannot disable itself: another admin can.")

    def work(session: Session) -> PrincipalStateView:
        return _view(principals.disable(session, principal_id, reason))

    disabled = context.database.transaction(work)
    end_waiting(context, principal_id)
    return disabled


def enable(context: Context, caller: Caller, principal_id: str) -> PrincipalStateView:
    """Let a principal in again, with the keys that were neither revoked nor have expired.

    Nothing else comes back: jobs that waited have ended, and streams begin anew.

    Raises:
        Forbidden: the caller is no admin.
        NotFound: there is none.
        LedgerFrozen, LedgerBusy: a waiting job could not be ended first.
    """
    caller.require("admin")
    get(context, caller, principal_id)  # there is one
    while context.database.transaction(withdrawals.end_waiting, principal_id, BATCH):
        pass

    def work(session: Session) -> PrincipalStateView:
        principals.lock(session, principal_id)
        # Again, under the lock: a job that came in between would begin once its owner is enabled.
        withdrawals.refuse_while_waiting(session, principal_id)
        return _view(principals.enable(session, principal_id))

    return context.database.transaction(work)


def end_waiting(context: Context, principal_id: str) -> None:
    """End what a principal has waiting and may not begin, as the next sweep would where this cannot."""
    with suppress(Refusal):
        while context.database.transaction(withdrawals.end_waiting, principal_id, BATCH):
            pass


def _view(found: Principal) -> PrincipalStateView:
    return PrincipalStateView(
        id=found.id,
        name=found.name,
        role=found.role,
        created_at=rfc3339(found.created_at),
        disabled_at=rfc3339(found.disabled_at),
        disabled_reason=found.disabled_reason,
    )
