"""Use cases of email addresses: a principal's own one, confirmed by a code that is mailed there."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from core.access import deliveries, emails
from core.base.errors import Conflict, FieldError, Invalid
from core.base.identifiers import new_id
from core.db import clock
from core.db.notice_tables import MailAddress
from core.records.master_key import load_master_keys
from core.service.context import Caller, Context
from core.service.views import rfc3339
from core.service.webhooks import refuse_site
from farthing.schemas.notices import EmailView, NoticeKind

_WRONG = "This is not the code that was mailed last."


def get(context: Context, caller: Caller) -> EmailView:
    """Return the caller's address, and whether it is confirmed."""
    refuse_site(context)
    with context.database.read() as session:
        return _view(emails.find(session, caller.id))


def put(context: Context, caller: Caller, address: str, kinds: Sequence[NoticeKind]) -> EmailView:
    """Set the caller's address and kinds; a new address is mailed a code, and nothing else before that comes back.

    Args:
        context: the service.
        caller: the principal of the address.
        address: as the body's schema checked it.
        kinds: of events.

    Raises:
        Conflict: the service sends no mail, or codes were asked for too often.
        Forbidden: this is a site's service.
    """
    refuse_site(context)
    if context.settings.smtp_host is None:
        raise Conflict("This service sends no mail: its operator sets FARTHING_SMTP_HOST and FARTHING_MAIL_FROM.")

    def work(session: Session) -> EmailView:
        row, is_new = emails.put(session, caller.id, address, sorted(set(kinds)))
        if is_new:
            deliveries.add(
                session,
                principal_id=caller.id,
                target_id=row.id,
                kind=emails.CODE,
                source=new_id("code"),
                data={},
                happened_at=clock.read(session),
            )
        return _view(row)

    return context.database.transaction(work)


def confirm(context: Context, caller: Caller, code: str) -> EmailView:
    """Confirm the caller's address by the code that was mailed there.

    Raises:
        Invalid: it is another code, its hour is over, or it was tried too often.
    """
    refuse_site(context)
    keys = [key.of_codes() for key in load_master_keys(context.settings).keys]

    def work(session: Session) -> EmailView | None:
        right = emails.confirm(session, caller.id, code, keys)
        return _view(emails.find(session, caller.id)) if right else None

    view = context.database.transaction(work)
    if view is None:  # raised here, so that the wrong try is counted
        raise Invalid(_WRONG, FieldError("/code", f"write the digits of the mail; {emails.MOST_TRIES} tries in all"))
    return view


def remove(context: Context, caller: Caller) -> None:
    """Take the caller's address away; nothing more is mailed there."""
    refuse_site(context)
    context.database.transaction(emails.remove, caller.id)


def _view(row: MailAddress | None) -> EmailView:
    if row is None or row.address is None:
        return EmailView(address=None, kinds=[], state="none", confirmed_at=None)
    return EmailView(
        address=row.address,
        kinds=row.kinds,
        state="unconfirmed" if row.confirmed_at is None else "confirmed",
        confirmed_at=rfc3339(row.confirmed_at),
    )
