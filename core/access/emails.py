"""Email addresses: a principal's own, to which nothing but a code is sent until it has come back.

A code is made of the master key, the row and its nonce, so it is stored nowhere, and a mail that is sent once more has
the same one. The row outlives its address: the count of codes that were sent lasts for a day in any case.
"""

import hmac
import secrets
from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import exists, inspect, select, update
from sqlalchemy.orm import Session

from core.access.principals import lock, valid
from core.base.errors import Conflict, FieldError, Invalid
from core.base.identifiers import new_id
from core.db import clock
from core.db.notice_tables import Delivery, MailAddress
from core.db.tables import ApiKey, Principal

CODE: Final = "email.code"
CODE_SECONDS: Final = 3600.0
MOST_TRIES: Final = 5
"""Wrong codes; then another one has to be sent."""
MOST_CODES: Final = 10
"""Codes that a principal has mailed in a day, to whichever addresses."""
PAUSE_SECONDS: Final = 60.0
"""Between two codes."""
_DAY_SECONDS: Final = 86_400.0
_DIGITS: Final = 8


def find(session: Session, principal_id: str) -> MailAddress | None:
    """Return a principal's row, which may be without an address."""
    return session.execute(select(MailAddress).where(MailAddress.principal_id == principal_id)).scalar_one_or_none()


def put(session: Session, principal_id: str, address: str, kinds: Sequence[str]) -> tuple[MailAddress, bool]:
    """Set a principal's address and kinds; return the row, and whether a code has to be mailed.

    The same address, once confirmed, stays confirmed.

    Raises:
        Conflict: a code was asked for too often; the text says when to try again.
    """
    lock(session, principal_id)
    at, found = clock.read(session), find(session, principal_id)
    if found is not None and found.address == address and found.confirmed_at is not None:
        found.kinds = list(kinds)
        session.flush()
        return found, False
    if found is None:
        nothing = {"nonce": "", "code_until": 0.0, "tries": 0, "codes": 0, "codes_since": at, "sent_at": 0.0}
        found = MailAddress(id=new_id("eml"), principal_id=principal_id, kinds=[], **nothing)
        session.add(found)
    if at < found.sent_at + PAUSE_SECONDS:
        raise Conflict("A code was mailed a moment ago: wait a minute before you ask for another one.")
    if at > found.codes_since + _DAY_SECONDS:
        found.codes, found.codes_since = 0, at
    if found.codes >= MOST_CODES:
        raise Conflict(f"{MOST_CODES} codes were mailed for you within a day: wait until tomorrow.")
    forget_waiting(session, [found.id])
    found.address, found.kinds, found.confirmed_at = address, list(kinds), None
    found.nonce, found.code_until, found.tries = secrets.token_hex(16), at + CODE_SECONDS, 0
    found.codes, found.sent_at = found.codes + 1, at
    session.flush()
    return found, True


def code_of(row: MailAddress, key: bytes) -> str:
    """Return the code of eight digits that confirms an address.

    Args:
        row: with the nonce of the last code.
        key: derived from the master key for nothing else.
    """
    # The address is part of it, so that its code confirms no other one.
    text = f"{row.id} {row.nonce} {row.address}".encode()
    # Of 64 bits, so that no code of eight digits is noticeably likelier than another.
    number = int.from_bytes(hmac.digest(key, text, "sha256")[:8])
    return str(number % 10**_DIGITS).zfill(_DIGITS)


def confirm(session: Session, principal_id: str, code: str, keys: Iterable[bytes]) -> bool:
    """Note that a code came back; tell whether it was the right one. A wrong one counts, so commit it too.

    Raises:
        Invalid: there is no address that waits for a code, or the code's time or tries are over.
    """
    lock(session, principal_id)
    row, at = find(session, principal_id), clock.read(session)
    if row is None or row.address is None:
        raise Invalid("There is no address that waits for a code.", FieldError("/code", "set the address first"))
    if row.confirmed_at is not None:
        return True
    if row.tries >= MOST_TRIES or at > row.code_until:
        raise Invalid("This code is over.", FieldError("/code", "set the address again: that mails another code"))
    if any(hmac.compare_digest(code_of(row, key), code) for key in keys):
        row.confirmed_at = at
        forget_waiting(session, [row.id])
    else:
        row.tries += 1
    session.flush()
    return row.confirmed_at is not None


def remove(session: Session, principal_id: str) -> None:
    """Take a principal's address away, and what waits to be mailed there."""
    lock(session, principal_id)
    row = find(session, principal_id)
    if row is not None:
        forget_waiting(session, [row.id])
        row.address = row.confirmed_at = None
        row.kinds = []
        session.flush()


def live(session: Session) -> list[tuple[MailAddress, str]]:
    """Return the confirmed addresses of principals that hold a valid key, each with the principal's role."""
    held = exists(select(ApiKey.id).where(ApiKey.principal_id == Principal.id, *valid(clock.now())))
    joined = select(MailAddress, Principal.role).join(Principal, Principal.id == MailAddress.principal_id)
    confirmed = (MailAddress.confirmed_at.is_not(None), MailAddress.address.is_not(None))
    return [(row[0], row[1]) for row in session.execute(joined.where(*confirmed, held))]


def may_be_mailed(session: Session, row: MailAddress) -> bool:
    """Tell whether an address is of a principal that holds a valid key still."""
    joined = select(ApiKey.id).join(Principal, Principal.id == ApiKey.principal_id)
    found = joined.where(Principal.id == row.principal_id, *valid(clock.now())).limit(1)
    return session.execute(found).first() is not None


def forget_waiting(session: Session, targets: Sequence[str]) -> None:
    """Give up what waits to be mailed to addresses that are these no more."""
    waiting = (Delivery.target_id.in_(targets), Delivery.state == "waiting")
    values = {"state": "given-up", "ended_at": clock.read(session), "trouble": "switched-off", "held_until": None}
    session.execute(update(Delivery).where(*waiting).values(**values))


def forget(session: Session) -> None:
    """Have every address confirmed anew: a restored backup must not mail those that were taken away since.

    The database may be of a release without addresses.
    """
    if not inspect(session.connection()).has_table(MailAddress.__tablename__):
        return
    forget_waiting(session, session.execute(select(MailAddress.id)).scalars().all())
    session.execute(update(MailAddress).values(confirmed_at=None, code_until=0.0))
