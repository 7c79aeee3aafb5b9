"""Sign-ins to the console: a session for each, which ends with the key that it came from, and one-time links.

The cookie of a session and the token of a link are 256 random bits; a row keeps their BLAKE2b hash alone. A session
ends after a time without use, after a longest time in any case, and as soon as its key opens nothing any more.
"""

import hashlib
import secrets
from collections.abc import Iterable
from typing import Final

from sqlalchemy import delete, func, inspect, select, update
from sqlalchemy.orm import Session

from core.access.principals import TOUCH_SECONDS, KeyHolder, valid
from core.db import clock
from core.db.service_tables import ConsoleSession, SignInLink
from core.db.tables import ApiKey, Principal

TOKEN_BYTES: Final = 32
IDLE_SECONDS: Final = 30 * 60
LONGEST_SECONDS: Final = 12 * 3600
LINK_SECONDS: Final = 15 * 60
MOST_LINKS: Final = 10
"""Links of one key that wait; an older one ends when another is made."""
_PERSON: Final = b"farthing sign-in"
"""BLAKE2b's personalisation: a hash of ours is no hash of anything else."""


def begin(session: Session, key_id: str) -> str:
    """Begin a session for a key that opens the service; return its token, which is kept nowhere.

    Sessions that have ended are removed at the same time.
    """
    at = clock.read(session)
    _remove_ended(session, at)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    session.add(ConsoleSession(digest=_digest(token), key_id=key_id, begun_at=at, seen_at=at))
    session.flush()
    return token


def find_all(session: Session, tokens: Iterable[str]) -> dict[str, KeyHolder]:
    """Return the principal and key behind each session that goes on; the others are left out. Reads only."""
    by_digest = {_digest(token): token for token in tokens}
    at = clock.now()
    due = ConsoleSession.seen_at < at - TOUCH_SECONDS
    rows = session.execute(  # columns and no objects: it runs with every request
        select(ConsoleSession.digest, ApiKey.id, Principal.id, Principal.name, Principal.role, ApiKey.made_by, due)
        .select_from(ConsoleSession)
        .join(ApiKey, ApiKey.id == ConsoleSession.key_id)
        .join(Principal, Principal.id == ApiKey.principal_id)
        .where(
            ConsoleSession.digest.in_(by_digest),
            ConsoleSession.seen_at > at - IDLE_SECONDS,
            ConsoleSession.begun_at > at - LONGEST_SECONDS,
            *valid(at),
        )
    )
    return {
        by_digest[digest]: KeyHolder(principal_id, name, role, key_id, made_by, bool(touch_due))
        for digest, key_id, principal_id, name, role, made_by, touch_due in rows
    }


def touch(session: Session, tokens: Iterable[str]) -> None:
    """Note that sessions were used, at most once a minute each."""
    at = clock.read(session)
    digests = [_digest(token) for token in tokens]
    seen = ConsoleSession.digest.in_(digests) & (ConsoleSession.seen_at < at - TOUCH_SECONDS)
    session.execute(update(ConsoleSession).where(seen).values(seen_at=at))


def end(session: Session, token: str) -> None:
    """End one session."""
    session.execute(delete(ConsoleSession).where(ConsoleSession.digest == _digest(token)))


def end_all(session: Session, principal_id: str) -> int:
    """End all sessions of a principal, and all links that would begin one; return how many sessions there were."""
    keys = select(ApiKey.id).where(ApiKey.principal_id == principal_id)
    count = select(func.count()).select_from(ConsoleSession).where(ConsoleSession.key_id.in_(keys))
    ended = session.execute(count).scalar_one()
    session.execute(delete(ConsoleSession).where(ConsoleSession.key_id.in_(keys)))
    session.execute(delete(SignInLink).where(SignInLink.key_id.in_(keys)))
    return ended


def forget(session: Session) -> None:
    """End every session and link: a restored backup must not revive those that have ended since.

    The database may be of a release without them.
    """
    if not inspect(session.connection()).has_table(ConsoleSession.__tablename__):
        return
    session.execute(delete(ConsoleSession))
    session.execute(delete(SignInLink))


def make_link(session: Session, key_id: str) -> str:
    """Make a link that begins one session for a key within some minutes; return its token, which is kept nowhere."""
    at = clock.read(session)
    session.execute(delete(SignInLink).where(SignInLink.expires_at <= at))
    own = select(SignInLink.digest).where(SignInLink.key_id == key_id).order_by(SignInLink.expires_at.desc())
    surplus = session.execute(own.offset(MOST_LINKS - 1)).scalars().all()  # the new link is the last of them
    session.execute(delete(SignInLink).where(SignInLink.digest.in_(surplus)))
    token = secrets.token_urlsafe(TOKEN_BYTES)
    session.add(SignInLink(digest=_digest(token), key_id=key_id, expires_at=at + LINK_SECONDS))
    session.flush()
    return token


def take_link(session: Session, token: str) -> str | None:
    """Use a link up; return its key if it was good and the key opens something, else None.

    Of two requests with one link, one gets the key: the row goes in one statement.
    """
    at = clock.read(session)
    link = SignInLink.digest == _digest(token)
    key_id = session.execute(select(SignInLink.key_id).where(link, SignInLink.expires_at > at)).scalar_one_or_none()
    taken = session.execute(delete(SignInLink).where(link).returning(SignInLink.digest)).scalar_one_or_none()
    if key_id is None or taken is None:
        return None
    joined = select(ApiKey.id).join(Principal, Principal.id == ApiKey.principal_id)
    return session.execute(joined.where(ApiKey.id == key_id, *valid(clock.now()))).scalar_one_or_none()


def _remove_ended(session: Session, at: float) -> None:
    ended = (ConsoleSession.seen_at <= at - IDLE_SECONDS) | (ConsoleSession.begun_at <= at - LONGEST_SECONDS)
    session.execute(delete(ConsoleSession).where(ended))


def _digest(token: str) -> str:
    """Return the hash of a token: 256 bits of BLAKE2b; the token is random, so no salt is needed."""
    return hashlib.blake2b(token.encode(), digest_size=32, person=_PERSON).hexdigest()
