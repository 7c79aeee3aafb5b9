"""Use cases of sign-ins to the console: by key or by a one-time link, for as long as the key opens the service."""

from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy.orm import Session

from core.access import principals, sessions
from core.base.errors import DiskFull, Forbidden, Unauthenticated
from core.service.context import Caller, Context
from core.service.keys import authenticate_all, caller_of

_MAX_TOKEN = 100  # a token has 43 letters
_WRONG_KEY = "This key opens nothing: it is unknown, revoked or expired, or its owner is disabled."
_WRONG_LINK = "This link was used, or its minutes are over. Sign in with a key."


def callers(context: Context, tokens: Sequence[str | None]) -> list[Caller | None]:
    """Return the principal behind each of some sessions, in one statement, or None; note that they were used."""
    possible = {token for token in tokens if token and len(token) <= _MAX_TOKEN and token.isascii()}
    found: dict[str, principals.KeyHolder] = {}
    if possible:
        with context.database.look() as session:
            found = sessions.find_all(session, possible)
    due = [token for token, holder in found.items() if holder.touch_due]
    if due:
        with suppress(DiskFull):  # reading goes on
            context.database.transaction(sessions.touch, due)
    return [caller_of(found[token]) if token in found else None for token in tokens]


def by_key(context: Context, secret: str) -> tuple[str, Caller]:
    """Begin a session with an API key; return its token and its principal.

    Raises:
        Unauthenticated: the key opens nothing.
        Forbidden: this is a site's service, which may begin no session: one of them could be for any key.
    """
    if context.settings.site:
        raise Forbidden("The console is at the service itself. A site has its API, and the command line.")
    caller = authenticate_all(context, [secret.strip()])[0]
    if caller is None:
        raise Unauthenticated(_WRONG_KEY)
    return context.database.transaction(sessions.begin, caller.key_id), caller


def by_link(context: Context, link: str) -> tuple[str, Caller]:
    """Begin a session with a one-time link, and use the link up; return the session's token and its principal.

    Raises:
        Unauthenticated: it was used, it is too old, or its key opens nothing any more.
    """

    def work(session: Session) -> str | None:
        key_id = sessions.take_link(session, link) if len(link) <= _MAX_TOKEN and link.isascii() else None
        return None if key_id is None else sessions.begin(session, key_id)

    token = context.database.transaction(work)
    caller = None if token is None else callers(context, [token])[0]
    if token is None or caller is None:
        raise Unauthenticated(_WRONG_LINK)
    return token, caller


def end(context: Context, token: str) -> None:
    """End one session."""
    context.database.transaction(sessions.end, token)


def end_all(context: Context, caller: Caller) -> int:
    """End all sessions of the caller, on every device; return how many."""
    return context.database.transaction(sessions.end_all, caller.id)
