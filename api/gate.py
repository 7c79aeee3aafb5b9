"""The front gate: checks before a byte of a request's body is read, and limits while it is answered.

It checks in this order: the principal, its role, the rate of the minute, a place for the work, the owner's disk quota.
Only then is the body read, under deadlines and to a size. Which endpoint costs what stands beside the endpoint
(`api.cost`).
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.types import Message, Receive

from api.authenticator import Authenticator, Credentials
from api.batcher import Batcher
from api.cost import SMALL_BODY_BYTES, Cost, Work, require
from api.shares import LONGEST_REST_SECONDS, Presence, Shares
from api.slots import Hold, Slots
from core.base.errors import (
    BodyTooSlow,
    FieldError,
    Invalid,
    RateLimited,
    TooLarge,
    Unauthenticated,
    UnsupportedCoding,
)
from core.base.settings import ServiceSettings
from core.service import quotas
from core.service.context import Caller, Context

_BEARER: Final = "bearer"
SESSION_COOKIE: Final = "farthing_session"
RETRY_SECONDS: Final = 1
_FREE_SECONDS: Final = 1.0
_HEAVY_DEBT_SECONDS: Final = 3.5
"""Of long computations no more is remembered, so that one of a minute is not held against its principal for four."""
_REFUSAL_SECONDS: Final = 0.004
"""Seconds that a refusal counts for: authentication, routing, an answer, a log line."""
_QUEUED_TIMES: Final = 4
"""Short requests of one principal that wait, for each that may be answered."""
_REFUSAL_SHARE: Final = 0.1
_FREE_REFUSALS_SECONDS: Final = 0.4


class Gate:
    """The gate of one application."""

    def __init__(self, context: Context, authenticator: Authenticator) -> None:
        settings = context.settings
        # One for all kinds of work: a principal that asks anything is present, and others must rest beside it.
        self._here = Presence()
        alone = self._here.is_alone
        light = Shares(alone, settings.light_share, _FREE_SECONDS)
        heavy = Shares(alone, settings.heavy_share, _FREE_SECONDS, _HEAVY_DEBT_SECONDS)
        self._refused = Shares(alone, _REFUSAL_SHARE, _FREE_REFUSALS_SECONDS)
        self._holders: Batcher[Credentials, bool] = Batcher(self._hold, "holders")
        self._context = context
        self._authenticator = authenticator
        wait_seconds = settings.place_seconds
        self._slots = {
            Work.LIGHT: Slots(
                "requests",
                settings.max_requests,
                settings.max_requests_per_principal,
                wait_seconds,
                _QUEUED_TIMES * settings.max_requests_per_principal,
                light.rest,
            ),
            Work.HEAVY: Slots(
                "long computations",
                settings.max_heavy,
                settings.max_heavy_per_principal,
                wait_seconds,
                settings.max_requests_per_principal,  # as many as it may have at a time, each of which may need a plan
                heavy.rest,
            ),
            Work.UPLOAD: Slots("uploads", settings.max_uploads, settings.max_uploads_per_principal),
            Work.STREAM: Slots("open streams", settings.max_streams, settings.max_streams_per_principal),
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
        _refuse_packed(request)
        length = _length_of(request)
        most = _most_bytes(cost, self._context.settings)
        # Only an early refusal: a chunked body has no length, and `_Body` counts its bytes.
        if length is not None and length > most > 0:
            raise TooLarge(f"A request body may have {most} bytes here.", limit_bytes=most)
        request.state.who = who = _who(request, caller)
        if cost.counted:
            self._here.note(who)
        # A body of unknown length may be a long one, so it counts as heavy.
        if work is Work.LIGHT and cost.body_bytes is None and (length is None or length > SMALL_BODY_BYTES):
            work = Work.HEAVY
        request.state.waits = work is Work.STREAM
        # `late` takes a request with this attribute for one whose time is counted by its place.
        async with self._slots[work].held(who) as request.state.hold:
            if work is Work.UPLOAD:
                assert caller is not None, "uploads need a key"
                await to_thread.run_sync(
                    quotas.refuse_full, self._context, caller, 0 if cost.announced else length or 0
                )
            yield _Body(request.receive, most, work is Work.UPLOAD, self._context.settings).receive

    def late(self, request: Request) -> float:
        """Return for how many seconds a refusal is kept back: not at all, but for who gets them without a pause.

        A request refused before it has a place is counted nowhere else. A client that sends such requests without pause
        would take all of the time.
        """
        if hasattr(request.state, "hold"):
            return 0.0
        caller: Caller | None = getattr(request.state, "caller", None)
        return self._refused.rest(_who(request, caller), _REFUSAL_SECONDS)

    @asynccontextmanager
    async def short(self, request: Request) -> AsyncIterator[None]:
        """Hold a place for short requests for a piece of the work of a request that waits otherwise.

        Raises:
            TooManyAtOnce, ServiceBusy: there is none.
        """
        if not request.state.waits:  # it holds one all the while
            yield
            return
        async with self._slots[Work.LIGHT].held(request.state.who):
            yield

    @asynccontextmanager
    async def planning(self, request: Request) -> AsyncIterator[None]:
        """Hold a place for long computations for what a short request has to compute first.

        Raises:
            TooManyAtOnce, ServiceBusy: there is none.
        """
        started = time.monotonic()
        try:
            async with self._slots[Work.HEAVY].held(request.state.who):
                yield
        finally:
            # The heavy place has counted this time, so the place of the request itself must not.
            hold: Hold = request.state.hold
            hold.apart_seconds += time.monotonic() - started

    def pause(self, who: str, spent_seconds: float) -> float:
        """Return how long an answer in pieces rests after a piece that took so long: as its place would at its end."""
        if self._here.is_alone(who):
            return 0.0
        return min(LONGEST_REST_SECONDS, spent_seconds * (1 / self._context.settings.heavy_share - 1))

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


class _Body:
    """A body on its way in: its size, the time that it takes, and the longest pause in it are bounded."""

    def __init__(self, receive: Receive, most_bytes: int, is_upload: bool, settings: ServiceSettings) -> None:  # noqa: FBT001 - private, and named where it is given
        self._receive = receive
        self._most_bytes = most_bytes
        self._pause_seconds = settings.body_seconds
        self._until = time.monotonic() + (settings.upload_seconds if is_upload else settings.body_seconds)
        self._slowest = settings.upload_bytes_per_second if is_upload else 0
        self._begun = time.monotonic()
        self._bytes = 0
        self._ended = False

    async def receive(self) -> Message:
        """Return the next piece.

        Raises:
            TooLarge: there is more than this endpoint takes.
            BodyTooSlow: it did not come in time, or comes at less than the least rate.
        """
        # After the body only a disconnect is received, which may take as long as the answer does.
        if self._ended:
            return await self._receive()
        left = min(self._pause_seconds, self._until - time.monotonic())
        try:
            with anyio.fail_after(max(0.0, left)):
                message = await self._receive()
        except TimeoutError:
            raise BodyTooSlow(
                "The body of the request did not come in time.", retry_after_seconds=RETRY_SECONDS
            ) from None
        self._ended = message["type"] != "http.request" or not message.get("more_body", False)
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._most_bytes > 0:
            raise TooLarge(f"A request body may have {self._most_bytes} bytes here.", limit_bytes=self._most_bytes)
        # One pause is allowed before the least rate counts, for a slow start.
        due = self._slowest * (time.monotonic() - self._begun - self._pause_seconds)
        if not self._ended and self._bytes < due:
            text = f"The body comes too slowly: at least {self._slowest} bytes a second are needed."
            raise BodyTooSlow(text, retry_after_seconds=RETRY_SECONDS)
        return message


def _most_bytes(cost: Cost, settings: ServiceSettings) -> int:
    """Return how large a body may be; 0: none is read, so none is too large."""
    if cost.body_bytes is not None:
        return cost.body_bytes
    if cost.work is Work.UPLOAD:  # the metadata and the boundaries of a form come on top of the file
        return settings.max_upload_bytes + settings.max_body_bytes
    return settings.max_body_bytes


def _refuse_packed(request: Request) -> None:
    """Refuse a body that is encoded, whichever way: read as it stands it could mean something else."""
    said = ",".join(request.headers.getlist("content-encoding")).lower()
    if set(said.replace(" ", "").replace("\t", "").split(",")) - {"", "identity"}:
        raise UnsupportedCoding(
            "A body is sent as it is: leave Content-Encoding out. Parquet and Arrow may be compressed inside.",
            FieldError("#header/content-encoding", "send the body unpacked, without this header"),
        )


def _who(request: Request, caller: Caller | None) -> str:
    return f"address:{_address(request)}" if caller is None else caller.id


def credentials_of(request: Request) -> Credentials:
    """Return what a request authenticates with: a page takes its session alone, everything else its key alone."""
    if getattr(request.state, "is_page", False):
        return Credentials(request.cookies.get(SESSION_COOKIE), _address(request), is_session=True)
    return Credentials(_secret(request), _address(request))


def _secret(request: Request) -> str | None:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() or None if scheme.lower() == _BEARER else None


def _address(request: Request) -> str:
    return request.client.host if request.client else "?"


def _length_of(request: Request) -> int | None:
    """Return how long the body is said to be: 0 where there is none, None where only its end will tell.

    Raises:
        Invalid: it is said twice and differently; the server has refused what is no number.
    """
    # The envelope has refused a request with both headers, so a length has no meaning here.
    if "transfer-encoding" in request.headers:
        return None
    said = set(request.headers.getlist("content-length"))
    if len(said) > 1:
        raise Invalid("Content-Length is given twice.", FieldError("#header/content-length", "send it once"))
    text = said.pop() if said else "0"
    # isdigit alone is true of superscripts, which int() refuses.
    return int(text) if text.isascii() and text.isdigit() else None
