"""Limits on the parsing that one connection may cause: lines of heads and trailers, and a least mean chunk size.

The event loop parses whatever comes, before anybody is asked for a key. A line or a chunk of three bytes takes as long
as one of a thousand, so what is bounded is their number, and the share of the loop's time that all parsing takes.
"""

import time
from typing import Final

import h11
from h11._receivebuffer import ReceiveBuffer  # the one place where a head is cut into lines; pinned in constraints.txt

MOST_HEAD_BYTES: Final = 16 * 1024
"""Of the request line and all header fields; of all trailer fields as well."""
MOST_LINES: Final = 128
FREE_CHUNKS: Final = 64
"""A body may have so many chunks of any size."""
LEAST_CHUNK_BYTES: Final = 256
"""On the mean over the body, once there are more than `FREE_CHUNKS`."""
SLICE_BYTES: Final = MOST_HEAD_BYTES
"""Parsed at a time: a head that is too long is seen before it is there as a whole."""
_SHORT_SECONDS: Final = 0.001
_LEAST_REST_TIMES: Final = 3
"""A connection rests for so many times as long as its bytes took to parse."""
_LONGEST_REST_SECONDS: Final = 10.0


class _Lines(ReceiveBuffer):
    """The bytes that wait to be parsed; hands out no head that is too long."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines up to the first blank one, None where it has not come.

        Raises:
            h11.LocalProtocolError: they are too many, or too long; the connection turns it into its client's error.
        """
        lines = super().maybe_extract_lines()
        if lines is not None and (len(lines) > MOST_LINES or sum(map(len, lines)) > MOST_HEAD_BYTES):
            raise h11.LocalProtocolError("too many header lines, or too long", error_status_hint=431)
        return lines


class BoundedConnection(h11.Connection):
    """HTTP/1.1 as a server parses it, in bounds.

    Attributes:
        fault: the reason, for the client; None: no limit of this module was passed.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MOST_HEAD_BYTES)
        self._receive_buffer = _Lines()
        self._chunks = 0
        self._chunked_bytes = 0
        self.fault: str | None = None

    def next_event(self) -> "type[h11.NEED_DATA | h11.PAUSED] | h11.Event":
        """Return what comes next, as `h11.Connection` does.

        Raises:
            h11.RemoteProtocolError: too many lines, or too many small chunks, besides all that is no HTTP.
        """
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:  # noqa: PLR2004 - Request Header Fields Too Large
                self.fault = f"A head has {MOST_HEAD_BYTES} bytes and {MOST_LINES} lines at most."
            raise
        if isinstance(event, h11.Request):
            self._chunks = self._chunked_bytes = 0
        elif isinstance(event, h11.Data):
            # Only a chunked body has chunk ends, so a body with a length counts none.
            self._chunks += event.chunk_end
            self._chunked_bytes += len(event.data)
            if self._chunks > FREE_CHUNKS and self._chunks * LEAST_CHUNK_BYTES > self._chunked_bytes:
                self.fault = f"The chunks of the body are too small: send {LEAST_CHUNK_BYTES} bytes or more in each."
                # Puts h11 into its error state, as h11 does before it raises itself; it would parse on otherwise.
                self._process_error(self.their_role)
                raise h11.RemoteProtocolError(self.fault)
        return event


class Parsing:
    """The share of the event loop's time that parsing takes, over all connections of a process."""

    def __init__(self) -> None:
        self._due = 0.0

    def rest(self, spent_seconds: float) -> float:
        """Return for how long a connection whose bytes took so long to parse is not read from; mostly 0.

        Args:
            spent_seconds: of processor time.
        """
        if spent_seconds < _SHORT_SECONDS:
            return 0.0
        now = time.monotonic()
        # One time for all connections bounds their sum. Idle time is not saved up: it never lies in the past.
        self._due = max(now, self._due) + _LEAST_REST_TIMES * spent_seconds
        return min(self._due - now, _LONGEST_REST_SECONDS)
