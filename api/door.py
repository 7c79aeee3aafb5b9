"""The door: who holds a key, and how often it has come; for all who knock at the same time."""

from collections.abc import Sequence
from typing import NamedTuple

from api.rate import Hit, Rate
from api.together import Together
from core.service import keys
from core.service.context import Caller, Context


class Knock(NamedTuple):
    """A request that wants in: with which secret, and from where."""

    secret: str | None
    address: str


class Entrance(NamedTuple):
    """Who it is, None where nobody was recognised, and whether there is room for one more request."""

    caller: Caller | None
    hit: Hit


class Door:
    """The door of one application; every request asks anew, so a key that was revoked opens nothing more."""

    def __init__(self, context: Context, rate: Rate) -> None:
        self._context = context
        self._rate = rate
        self.knocks: Together[Knock, Entrance] = Together(self.open, "door")

    async def knock(self, knock: Knock) -> Entrance:
        """Find the principal behind a key, and count the request against its rate, or against its address'."""
        return await self.knocks.ask(knock)

    def open(self, knocks: Sequence[Knock]) -> list[Entrance]:
        """Answer several knocks."""
        callers = keys.authenticate_all(self._context, [knock.secret for knock in knocks])
        buckets = [
            f"address:{knock.address}" if caller is None else caller.id
            for knock, caller in zip(knocks, callers, strict=True)
        ]
        return [Entrance(caller, hit) for caller, hit in zip(callers, self._rate.hits(buckets), strict=True)]
