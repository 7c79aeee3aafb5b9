"""Connections that do nothing are ended: heads and bodies that never come, answers that nobody reads.

uvicorn closes a connection that is idle after an answer; it waits for ever for a first request, for a body that was
refused unread, and for a client that takes no answer. This protocol adds those deadlines, and lets what is long to
parse (`api.framing`) wait, so that others are answered meanwhile.
"""

import asyncio
import json
import time
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.errors import MEDIA_TYPE
from api.framing import SLICE_BYTES, BoundedConnection, Parsing
from api.middleware import GONE, KEPT_BACK
from core.base.identifiers import new_id

LINGER_SECONDS: Final = 10.0
"""After a refusal the rest of a body is read and dropped for so long, so that the client can read the refusal."""
STALL_SECONDS: Final = 30.0
LEAST_BYTES_PER_SECOND: Final = 1024
"""Of an answer that a client takes: one that takes less is gone, or holds what it is given on purpose."""


_READ_SECONDS: Final = 2.0
_MOST_DROPPED_BYTES: Final = 2**20
"""Seconds and bytes that a refused connection is still read for, until its client has read the refusal."""
_MADE_ROOM: Final = 16
"""Connections that are ended at a time where there are too many: a burst of new ones comes before any is gone."""


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with deadlines; `api.__main__` sets the two limits before it serves."""

    head_seconds: float = 20.0
    max_connections: int = 1000
    parsing = Parsing()

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - handed on
        super().__init__(*args, **kwargs)
        # The base class has made a plain h11.Connection; nothing has been parsed by it yet.
        self.conn = self.bounded = BoundedConnection()
        # uvicorn reads `app` anew for each request, so the wrapper stands in its place.
        self._answer, self.app = self.app, self._answer_who_is_there
        self._gone = asyncio.Event()
        self._kept = b""
        self._dropped: int | None = None
        """Bytes that came after the connection was refused; None: it was not."""
        self._rest_timer: asyncio.TimerHandle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Take a connection, in the place of the one that has been idle longest where there are too many."""
        super().connection_made(transport)
        self._await_head(self.head_seconds)
        if len(self.connections) > self.max_connections:
            here = [one for one in self.connections if isinstance(one, BoundedProtocol) and not one.has_ended]
            # Ended connections are listed for a while, so those that are there are counted again.
            if len(here) > self.max_connections:
                idle = sorted((one for one in here if not one.is_answering), key=lambda one: one._since)  # noqa: SLF001 - of this very class
                for one in idle[:_MADE_ROOM]:
                    one.abort()

    @property
    def has_ended(self) -> bool:
        """Whether this connection was ended, and is only listed until the event loop has seen to that."""
        return bool(self.transport.is_closing())

    @property
    def is_answering(self) -> bool:
        """Whether a request has come whole as far as its head, and its answer has not gone, nor is kept back."""
        if self.cycle is None or self.cycle.response_complete:
            return False
        return KEPT_BACK not in self.cycle.scope

    def abort(self) -> None:
        """End this connection at once, whatever is still to be sent."""
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines of a connection that is gone."""
        self._end_timers()
        self._gone.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, or keep it while this connection rests."""
        if self._dropped is not None:
            self._dropped += len(data)
            if self._dropped > _MOST_DROPPED_BYTES:
                self.abort()
            return
        self._kept += data
        if self._rest_timer is None:
            self._parse()
        else:
            self.transport.pause_reading()  # the answer's code may have asked for more meanwhile

    def _parse(self) -> None:
        data, self._kept = self._kept, b""
        started = time.thread_time()
        for start in range(0, len(data), SLICE_BYTES):
            if self.has_ended or self._dropped is not None:
                return
            super().data_received(data[start : start + SLICE_BYTES])
        if self.conn.their_state is not h11.SEND_BODY or self.has_ended:
            return  # a head is short, and who has sent it waits for an answer
        seconds = self.parsing.rest(time.thread_time() - started)
        if seconds > 0:
            self.transport.pause_reading()
            self._rest_timer = self.loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._rest_timer = None
        if self._kept:
            self._parse()
        if self._rest_timer is None and not self.flow.read_paused and not self.has_ended:
            self.transport.resume_reading()

    async def _answer_who_is_there(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - of ASGI
        """Answer a request, unless its connection ended in the moment in which it came."""
        if not self.has_ended and self._dropped is None:
            scope[GONE] = self._gone
            await self._answer(scope, receive, send)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, or too much to parse; where an answer has begun already, the connection ends."""
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.abort()
            return
        if self.cycle is not None:  # what has begun to answer has nobody to answer any more
            self.cycle.disconnected = self.cycle.response_complete = True
            self.cycle.message_event.set()
        body = json.dumps(_problem(self.bounded.fault or msg)).encode()
        headers = [("Content-Type", MEDIA_TYPE), ("Content-Length", str(len(body))), ("Connection", "close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self._dropped = 0  # what is still on its way; a connection closed before that is reset, and the answer lost
        self._await_head(_READ_SECONDS)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def handle_events(self) -> None:
        """Go through what has come; a request whose head is there is waited for no more."""
        super().handle_events()
        if self.is_answering and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def on_response_complete(self) -> None:
        """Start the wait for the next head, or for the rest of a body that was refused unread."""
        super().on_response_complete()
        # The base class may have begun the next pipelined request by now; then no head is awaited.
        if not self.is_answering:
            unread = self.conn.their_state is h11.SEND_BODY
            self._await_head(LINGER_SECONDS if unread or self.transport.is_closing() else self.head_seconds)

    def _await_head(self, seconds: float) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._since = self.loop.time()
        self._head_timer = self.loop.call_later(seconds, self.abort)

    def pause_writing(self) -> None:
        """Note how much of an answer waits for the client, and look again after a while."""
        super().pause_writing()
        if self._write_timer is None:
            self._look_again(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop the timer for slow clients: this one takes its answer."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _look_again(self, before: int) -> None:
        self._write_timer = self.loop.call_later(STALL_SECONDS, self._judge, before)

    def _judge(self, before: int) -> None:
        """End the connection of a client that took next to nothing of what waited."""
        left = self.transport.get_write_buffer_size()
        # If less waits than the least rate takes, all of it must have gone.
        if before - left < min(before, LEAST_BYTES_PER_SECOND * STALL_SECONDS):
            self.abort()
        elif not self.transport.is_closing() or left:
            self._look_again(left)

    def _end_timers(self) -> None:
        for timer in (self._head_timer, self._write_timer, self._rest_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._write_timer = self._rest_timer = None


def _problem(detail: str) -> dict[str, Any]:
    """Return the refusal of what never became a request, in the shape of all others."""
    code = "invalid-request"
    return {
        "type": f"urn:farthing:problem:{code}",
        "title": "Bad Request",
        "status": 400,
        "detail": detail,
        "code": code,
        "retryable": False,
        "actor": "client",
        "errors": [],
        "request_id": new_id("req"),
    }
