"""The first key of a new installation."""

from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.store import principals
from core.store.tables import ApiKey

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
