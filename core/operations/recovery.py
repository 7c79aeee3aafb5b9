"""A key for a principal who has lost all of its own, made by the operator on the service's host.

It opens nothing for a while, so that an owner who has lost nothing sees it among its keys and revokes it.
"""

from sqlalchemy.orm import Session

from core.access import audit, principals
from core.base.identifiers import new_id
from core.db import clock
from core.db.tables import ApiKey
from core.ledger import corrections


def recover_key(session: Session, principal_id: str, delay_seconds: float) -> tuple[ApiKey, str]:
    """Make a key that opens nothing for a while; return it with its secret, which is shown once.

    The audit log says so, under no principal: nobody was asked. An entry in each of the owner's ledgers says it too.

    Args:
        session: an open write transaction.
        principal_id: the one whose keys are lost.
        delay_seconds: from now until it opens anything.

    Raises:
        NotFound: there is no such principal.
        Conflict: it is disabled.
    """
    principals.lock(session, principal_id)
    starts_at = clock.read(session) + delay_seconds
    key, secret = principals.create_key(session, principal_id, "recovered", starts_at=starts_at)
    audit.append(session, [audit.Line(None, "farthing owner-key", f"keys/{key.id}", 201, None, new_id("req"))])
    corrections.note_recovery(session, key)
    return key, secret
