"""Connections that do nothing are ended: heads and bodies that never come, answers that nobody reads.

uvicorn closes a connection that is idle after an answer; it waits for ever for a first request, for a body that was
refused unread, and for a client that takes no answer. This protocol adds those deadlines.
"""

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

LINGER_SECONDS: Final = 10.0
"""After a refusal the rest of a body is read and dropped for so long, so that the client can read the refusal."""
STALL_SECONDS: Final = 30.0
LEAST_BYTES_PER_SECOND: Final = 1024
"""Of an answer that a client takes: one that takes less is gone, or holds what it is given on purpose."""


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with deadlines; `api.__main__` sets the two limits before it serves."""

    head_seconds: float = 20.0
    max_connections: int = 1000

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - handed on
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Take a connection, in the place of the one that has been idle longest where there are too many."""
        super().connection_made(transport)
        self._await_head(self.head_seconds)
        if len(self.connections) > self.max_connections:
            idle = [one for one in self.connections if isinstance(one, BoundedProtocol) and not one.is_answering]
            if idle:
                min(idle, key=lambda one: one._since).abort()  # noqa: SLF001 - of this very class

    @property
    def is_answering(self) -> bool:
        """Whether a request has come whole as far as its head, and its answer has not gone."""
        return self.cycle is not None and not self.cycle.response_complete

    def abort(self) -> None:
        """End this connection at once, whatever is still to be sent."""
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines of a connection that is gone."""
        self._end_timers()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Go through what has come; a request whose head is there is waited for no more."""
        super().handle_events()
        if self.is_answering and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def on_response_complete(self) -> None:
        """Start the wait for the next head, or for the rest of a body that was refused unread."""
        super().on_response_complete()
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
        """Be content: the client takes its answer."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _look_again(self, before: int) -> None:
        self._write_timer = self.loop.call_later(STALL_SECONDS, self._judge, before)

    def _judge(self, before: int) -> None:
        """End the connection of a client that took next to nothing of what waited."""
        left = self.transport.get_write_buffer_size()
        if before - left < min(before, LEAST_BYTES_PER_SECOND * STALL_SECONDS):
            self.abort()
        elif not self.transport.is_closing() or left:
            self._look_again(left)

    def _end_timers(self) -> None:
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._write_timer = None
