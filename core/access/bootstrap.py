"""The first key of a new installation, and one more where all admins' keys are lost."""

from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.access import audit, principals, sessions
from core.base.identifiers import new_id
from core.db import clock
from core.db.tables import ApiKey, Principal

FIRST_NAME: Final = "admin"


def first_admin(session: Session, secret: str | None) -> str | None:
    """Make the first admin and a key, unless there is a key already.

    Args:
        session: an open write transaction.
        secret: the operator's own, None makes one.

    Returns:
        The key's secret, to be shown once; None where nothing was made.
    """
    if session.execute(select(ApiKey.id).limit(1)).first() is not None:
        return None
    admin = principals.create(session, FIRST_NAME, "admin")
    _, made = principals.create_key(session, admin.id, FIRST_NAME, secret=secret)
    return made


def further_admin(session: Session) -> tuple[str, str]:
    """Make another admin and a key, for whoever holds the database; return the principal's id and the secret.

    The audit log says so, under no principal: nobody was asked. Keys that are lost stay valid until they are revoked.
    """
    admin = principals.create(session, FIRST_NAME, "admin")
    key, secret = principals.create_key(session, admin.id, FIRST_NAME)
    audit.append(session, [audit.Line(None, "farthing admin-key", key.id, 201, None, new_id("req"))])
    return admin.id, secret


def console_link(session: Session) -> str | None:
    """Make a one-time link that signs in to the console as the longest-standing admin; return its token.

    It is for the terminal of the operator, who holds the database and could make an admin's key as well.

    Returns:
        The token; None where no admin has a key that opens the service.
    """
    keys = select(ApiKey.id).join(Principal, Principal.id == ApiKey.principal_id).where(Principal.role == "admin")
    valid = keys.where(*principals.valid(clock.now())).order_by(ApiKey.created_at, ApiKey.id).limit(1)
    key_id = session.execute(valid).scalar_one_or_none()
    return None if key_id is None else sessions.make_link(session, key_id)


def is_admin_key(session: Session, secret: str) -> bool:
    """Tell whether a secret is a key of an admin, neither revoked nor expired."""
    caller = principals.find(session, secret)
    return caller is not None and caller.role == "admin"
