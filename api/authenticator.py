"""Authentication: finds the holder of a key and counts its use, for all waiting requests at once."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.requests import Request

from api.batcher import Batcher
from api.rate import Hit, Rate
from core.service import keys, sign_ins
from core.service.context import Caller, Context

_BEARER: Final = "bearer"
SESSION_COOKIE: Final = "farthing_session"


class Credentials(NamedTuple):
    """A request's credentials: the secret of a key, or on a page of the console the token of a session."""

    secret: str | None
    address: str
    is_session: bool = False


class AuthResult(NamedTuple):
    """The principal (None if nobody was recognised), and whether the rate allows one more request."""

    caller: Caller | None
    hit: Hit


class Authenticator:
    """Authenticates the requests of one application; each is looked up anew, so a revoked key opens nothing."""

    def __init__(self, context: Context, rate: Rate) -> None:
        self._context = context
        self._rate = rate
        self.batcher: Batcher[Credentials, AuthResult] = Batcher(self.authenticate_all, "authenticator")

    async def authenticate(self, credentials: Credentials) -> AuthResult:
        """Find the principal behind a key, and count the request against its rate, or against its address'."""
        return await self.batcher.ask(credentials)

    def authenticate_all(self, batch: Sequence[Credentials]) -> list[AuthResult]:
        """Authenticate several requests."""
        callers = self.callers(batch)
        buckets = [
            f"address:{credentials.address}" if caller is None else caller.id
            for credentials, caller in zip(batch, callers, strict=True)
        ]
        return [AuthResult(caller, hit) for caller, hit in zip(callers, self._rate.hits(buckets), strict=True)]

    def callers(self, batch: Sequence[Credentials]) -> list[Caller | None]:
        """Return the principals; a session's token is no key, and a key is no session."""
        by_key = keys.authenticate_all(self._context, [None if one.is_session else one.secret for one in batch])
        if not any(one.is_session for one in batch):
            return by_key
        by_session = sign_ins.callers(self._context, [one.secret if one.is_session else None for one in batch])
        return [found or signed_in for found, signed_in in zip(by_key, by_session, strict=True)]


def credentials_of(request: Request) -> Credentials:
    """Return the credentials of a request: a page takes its session alone, everything else its key alone."""
    address = address_of(request)
    if getattr(request.state, "is_page", False):
        return Credentials(request.cookies.get(SESSION_COOKIE), address, is_session=True)
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return Credentials(secret.strip() or None if scheme.lower() == _BEARER else None, address)


def address_of(request: Request) -> str:
    """Return the address that a request came from, as the front proxy says where there is one."""
    return request.client.host if request.client else "?"
