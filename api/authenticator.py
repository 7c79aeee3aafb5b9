"""Authentication: who holds a key, and how often it was used; for all requests that wait at the same time."""

from collections.abc import Sequence
from typing import NamedTuple

from api.batcher import Batcher
from api.rate import Hit, Rate
from core.service import keys
from core.service.context import Caller, Context


class Credentials(NamedTuple):
    """What a request authenticates with: its secret, and its address."""

    secret: str | None
    address: str


class AuthResult(NamedTuple):
    """Who it is, None where nobody was recognised, and whether there is room for one more request."""

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
        callers = keys.authenticate_all(self._context, [credentials.secret for credentials in batch])
        buckets = [
            f"address:{credentials.address}" if caller is None else caller.id
            for credentials, caller in zip(batch, callers, strict=True)
        ]
        return [AuthResult(caller, hit) for caller, hit in zip(callers, self._rate.hits(buckets), strict=True)]
