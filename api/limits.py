"""The limits of a request: authentication before its body is read, places for its work, sizes and deadlines.

The order is: principal, role, the rate of the minute, a place, the owner's disk quota. Only then is the body read.
Each endpoint declares its cost beside its code (`api.cost`). A principal has a semaphore for each kind of work. Slow
heads, half-open connections and floods of connections are the front proxy's part (decision 87).

All threads of a process share one interpreter, so a request that is short alone is expensive at 100 a second. The time
that a principal takes is therefore counted. Beyond a free second its places rest while others ask (decision 39).
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.types import Receive

from api.authenticator import Authenticator, Credentials, address_of, credentials_of
from api.batcher import Batcher
from api.body import BoundedBody, length_of, most_bytes, refuse_packed
from api.cost import SMALL_BODY_BYTES, Cost, Work, require
from core.base.errors import RateLimited, ServiceBusy, TooLarge, TooManyAtOnce, Unauthenticated
from core.service import quotas
from core.service.context import Caller, Context

_BUSY_RETRY_SECONDS: Final = 2
_TOGETHER_SECONDS: Final = 2.0
"""Seconds for which a principal counts as present after a request."""
_LONGEST_REST_SECONDS: Final = 10.0
_FREE_SECONDS: Final = 1.0
"""Seconds of work in a row that harm nobody."""
_MOST_COUNTED: Final = 4096
_HEAVY_DEBT_SECONDS: Final = 3.5
"""Of long computations no more is remembered, so that one of a minute is not held against its principal for four."""
_QUEUED_TIMES: Final = 4
"""Short requests of one principal that wait, for each that may be answered."""
_REFUSAL_SECONDS: Final = 0.004
"""Seconds that a refusal counts for: authentication, routing, an answer, a log line."""
_REFUSAL_SHARE: Final = 0.1
_FREE_REFUSALS_SECONDS: Final = 0.4
_DELAYED_SHARE: Final = 4
"""One part in so many of all connections may wait with a refusal of one caller; further refusals leave at once."""


class Presence:
    """The last two principals that asked: enough to say of each whether another one is here."""

    def __init__(self) -> None:
        self._last = self._before = ("", float("-inf"))

    def note(self, who: str) -> None:
        """Note the principal that asks now."""
        if who != self._last[0]:
            self._before = self._last
        self._last = who, time.monotonic()

    def is_alone(self, who: str) -> bool:
        """Return True if nobody else has asked lately: a lone principal has all of the service."""
        name, at = self._before if who == self._last[0] else self._last
        return not name or at < time.monotonic() - _TOGETHER_SECONDS


class Shares:
    """The time that each principal has taken of one kind of work, and the rest that it owes.

    Args:
        is_alone: tells whether a principal has nobody beside it.
        share: of the time that goes by, for each principal.
        free_seconds: seconds in a row that harm nobody.
        most_seconds: more than that is not remembered.
    """

    def __init__(
        self, is_alone: Callable[[str], bool], share: float, free_seconds: float, most_seconds: float = float("inf")
    ) -> None:
        self._is_alone = is_alone
        self._share = share
        self._free_seconds = free_seconds
        self._most_seconds = most_seconds
        self._taken: dict[str, tuple[float, float]] = {}

    def rest(self, who: str, spent_seconds: float) -> float:
        """Count what a principal took; return for how many seconds it is to take no more, 0 mostly."""
        now = time.monotonic()
        taken, at = self._taken.pop(who, (0.0, now))
        taken = min(self._most_seconds, max(0.0, taken - self._share * (now - at)) + spent_seconds)
        # Put back last: the first of the dictionary is the one that has been silent longest.
        self._taken[who] = taken, now
        if len(self._taken) > _MOST_COUNTED:
            del self._taken[next(iter(self._taken))]
        # Counted also of a lone principal: the excess is there when another one comes.
        if taken <= self._free_seconds or self._is_alone(who):
            return 0.0
        return min(_LONGEST_REST_SECONDS, (taken - self._free_seconds) / self._share)


@dataclass
class Hold:
    """A place that somebody holds."""

    apart_seconds: float = 0.0
    """Of the time that it was held: spent waiting, or counted elsewhere."""


@dataclass
class _Own:
    """The places of one principal, and how many of its requests hold one or wait."""

    free: asyncio.Semaphore
    requests: int = 0


@dataclass
class Places:
    """The places of one kind of work in this process; used by the event loop alone.

    Attributes:
        what: the work in words, plural, for refusals.
        total: places of all principals together.
        each: places of one principal; fewer than `total`, so that one leaves room for others.
        shares: the time that each principal may take; None: a place that is left is free at once.
        wait_seconds: seconds that a request waits for a place at most; 0: it is refused at once.
        queued: requests of one principal that may wait at a time.
    """

    what: str
    total: int
    each: int
    shares: Shares | None = None
    wait_seconds: float = 0.0
    queued: int = 0
    _own: dict[str, _Own] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the semaphore of all principals."""
        self._all = asyncio.Semaphore(self.total)

    @asynccontextmanager
    async def held(self, principal: str) -> AsyncIterator[Hold]:
        """Hold a place for the length of the block, and yield it.

        Raises:
            TooManyAtOnce: the principal holds, or waits for, as many as one may.
            ServiceBusy: others hold all of them.
        """
        own = self._own.setdefault(principal, _Own(asyncio.Semaphore(self.each)))
        own.requests += 1
        try:
            await self._enter(own)
        except BaseException:
            self._forget(principal, own)
            raise
        loop = asyncio.get_running_loop()
        begun_at, hold = loop.time(), Hold()
        try:
            yield hold
        finally:
            self._all.release()
            taken = max(0.0, loop.time() - begun_at - hold.apart_seconds)
            seconds = self.shares.rest(principal, taken) if self.shares else 0.0
            # The principal's own place stays taken after the answer, and so slows its next request instead of this one.
            if seconds > 0:
                loop.call_later(seconds, self._leave, principal, own)
            else:
                self._leave(principal, own)

    async def _enter(self, own: _Own) -> None:
        if own.requests > self.each + self.queued:
            raise self._refusal(own)
        if not self.wait_seconds and (own.free.locked() or self._all.locked()):
            raise self._refusal(own)
        try:
            async with asyncio.timeout(self.wait_seconds or None):
                # The own semaphore first: a principal's queue then never stands before another's.
                await own.free.acquire()
                try:
                    await self._all.acquire()
                except BaseException:
                    own.free.release()
                    raise
        except TimeoutError:
            raise self._refusal(own) from None

    def _leave(self, principal: str, own: _Own) -> None:
        own.free.release()
        self._forget(principal, own)

    def _forget(self, principal: str, own: _Own) -> None:
        own.requests -= 1
        if not own.requests:
            del self._own[principal]

    def _refusal(self, own: _Own) -> TooManyAtOnce | ServiceBusy:
        if own.free.locked():
            text = f"{self.each} of your {self.what} are being answered, the most at a time: wait for one to end."
            return TooManyAtOnce(text, retry_after_seconds=_BUSY_RETRY_SECONDS)
        text = f"All places for {self.what} are taken: this service has {self.total} at a time."
        return ServiceBusy(text, retry_after_seconds=_BUSY_RETRY_SECONDS)


class Limits:
    """The limits of one application."""

    def __init__(self, context: Context, authenticator: Authenticator) -> None:
        settings = self._settings = context.settings
        # One for all kinds of work: a principal that asks anything is present, and others must rest beside it.
        self._here = Presence()
        alone = self._here.is_alone
        light = Shares(alone, settings.light_share, _FREE_SECONDS)
        heavy = Shares(alone, settings.heavy_share, _FREE_SECONDS, _HEAVY_DEBT_SECONDS)
        self._refused = Shares(alone, _REFUSAL_SHARE, _FREE_REFUSALS_SECONDS)
        self._delayed: Counter[str] = Counter()
        self._context = context
        self._authenticator = authenticator
        self._holders: Batcher[Credentials, bool] = Batcher(self._hold, "holders")
        wait, each = settings.place_seconds, settings.max_requests_per_principal
        self._places = {
            Work.LIGHT: Places("requests", settings.max_requests, each, light, wait, _QUEUED_TIMES * each),
            # As many may wait as one may have short requests, each of which may need a plan.
            Work.HEAVY: Places(
                "long computations", settings.max_heavy, settings.max_heavy_per_principal, heavy, wait, each
            ),
            Work.UPLOAD: Places("uploads", settings.max_uploads, settings.max_uploads_per_principal),
            Work.STREAM: Places("open streams", settings.max_streams, settings.max_streams_per_principal),
        }

    @asynccontextmanager
    async def admitted(self, request: Request, cost: Cost, work: Work) -> AsyncIterator[Receive]:
        """Let a request in for the length of the block, and yield how its body is to be received.

        Raises:
            Unauthenticated, Forbidden: the key, or its role.
            RateLimited, TooManyAtOnce, ServiceBusy: its principal's minute or places, or the service's.
            QuotaExceeded, DiskFull: an upload that the owner, or the service, has no disk for.
            TooLarge, Invalid: the body is said to be larger than this endpoint takes.
            UnsupportedCoding: the body is said to be packed.
        """
        caller = await self.identify(request, cost)
        refuse_packed(request)
        length = length_of(request)
        most = most_bytes(cost, self._settings)
        # Only an early refusal: a chunked body has no length, and `BoundedBody` counts its bytes.
        if length is not None and length > most > 0:
            raise TooLarge(f"A request body may have {most} bytes here.", limit_bytes=most)
        request.state.who = who = _who(request, caller)
        if cost.counted:
            self._here.note(who)
        # A body of unknown length may be a long one, so it counts as heavy.
        if work is Work.LIGHT and cost.body_bytes is None and (length is None or length > SMALL_BODY_BYTES):
            work = Work.HEAVY
        request.state.waits = work is Work.STREAM
        # `delay` takes a request with this attribute for one whose time is counted by its place.
        async with self._places[work].held(who) as request.state.hold:
            if cost.answered:
                await to_thread.run_sync(quotas.leave_free, self._context, length or 0)
            elif work is Work.UPLOAD:
                assert caller is not None, "uploads need a key"
                announced = 0 if cost.announced else length or 0
                await to_thread.run_sync(quotas.refuse_full, self._context, caller, announced)
            yield BoundedBody(request.receive, most, work, self._settings).receive

    async def delay(self, request: Request) -> None:
        """Keep a refusal back where its caller gets them without a pause, while others ask.

        A request refused before it has a place is counted nowhere else. A client that sends such requests without pause
        would take all of the time.
        """
        if hasattr(request.state, "hold"):
            return
        who = _who(request, getattr(request.state, "caller", None))
        seconds = self._refused.rest(who, _REFUSAL_SECONDS)
        if seconds > 0 and self._delayed[who] < self._settings.max_connections // _DELAYED_SHARE:
            self._delayed[who] += 1
            try:
                await asyncio.sleep(seconds)
            finally:
                self._delayed[who] -= 1
                self._delayed += Counter()  # drops the names that are at 0

    @asynccontextmanager
    async def short(self, request: Request) -> AsyncIterator[None]:
        """Hold a place for short requests for a piece of the work of a request that waits otherwise.

        Raises:
            TooManyAtOnce, ServiceBusy: there is none.
        """
        if not request.state.waits:  # it holds one all the while
            yield
            return
        async with self._places[Work.LIGHT].held(request.state.who):
            yield

    @asynccontextmanager
    async def planning(self, request: Request) -> AsyncIterator[None]:
        """Hold a place for long computations for what a short request has to compute first.

        Raises:
            TooManyAtOnce, ServiceBusy: there is none.
        """
        started = time.monotonic()
        try:
            async with self._places[Work.HEAVY].held(request.state.who):
                yield
        finally:
            # The heavy place has counted this time, so the place of the request itself must not.
            request.state.hold.apart_seconds += time.monotonic() - started

    def pause(self, who: str, spent_seconds: float) -> float:
        """Return how long an answer in pieces rests after a piece that took so long: as its place would at its end."""
        if self._here.is_alone(who):
            return 0.0
        return min(_LONGEST_REST_SECONDS, spent_seconds * (1 / self._settings.heavy_share - 1))

    async def identify(self, request: Request, cost: Cost) -> Caller | None:
        """Return who sends a request, None where no key is needed; the one place where a request is authenticated.

        Raises:
            RateLimited: this minute has had its requests.
            Unauthenticated: there is no key, or none that is good.
            Forbidden: its role is none of those that the endpoint serves.
        """
        if not cost.counted:
            return None
        found, hit = await self._authenticator.authenticate(credentials_of(request))
        request.state.rate_headers = hit.headers
        # Before the answer about the key: guesses at keys are limited by their address.
        if not hit.allowed:
            raise RateLimited("Too many requests; wait a little.", retry_after_seconds=hit.wait_seconds)
        if found is None:
            if cost.roles:
                raise Unauthenticated(
                    "Send `Authorization: Bearer <key>` with a key that is neither revoked nor expired, of a principal "
                    "who is not disabled; an admin makes one."
                )
            return None
        request.state.caller = caller = replace(found, request_id=request.state.request_id)
        if cost.roles:
            require(caller.role, cost.roles)
        return caller

    def _hold(self, batch: Sequence[Credentials]) -> list[bool]:
        return [found is not None for found in self._authenticator.callers(batch)]

    async def holds(self, request: Request) -> bool:
        """Tell whether the key or session that a request came with is still good; it is not counted again."""
        return await self._holders.ask(credentials_of(request))


def _who(request: Request, caller: Caller | None) -> str:
    return f"address:{address_of(request)}" if caller is None else caller.id
