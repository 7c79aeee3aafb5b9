"""Bodies that are too large to hold: taken from the socket piece by piece, and handed to a thread as an iterator.

A framework's form parser would write the whole body to disk before any check; here the metadata is checked first, and
every piece of the file is counted as it comes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from anyio import CapacityLimiter, from_thread, to_thread
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from core.base.errors import FieldError, Invalid, TooLarge

T = TypeVar("T")
MOST_THREADS: Final = 512
"""Of uploads; `api.limits` lets fewer in, so that none waits here with its connection open."""
_MAX_HEADER_BYTES: Final = 8192


async def in_thread(request: Request, limiter: CapacityLimiter, work: Callable[[Iterator[bytes]], T]) -> T:
    """Run `work` in a thread of its own pool, with the body as an iterator of pieces.

    When it refuses early, the refusal is sent at once; the server drops what the client goes on sending meanwhile, so
    that its connection is not reset before it has read the refusal.
    """
    stream = request.stream().__aiter__()

    async def following() -> bytes | None:
        try:
            return await anext(stream)
        except StopAsyncIteration:
            return None

    def pieces() -> Iterator[bytes]:
        while (piece := from_thread.run(following)) is not None:
            # Starlette ends each body with an empty piece.
            if piece:
                yield piece

    try:
        return await to_thread.run_sync(work, pieces(), limiter=limiter)
    except ClientDisconnect as error:
        raise Invalid("The upload ended before it was complete.") from error


@dataclass
class Part:
    """One part of a multipart body: its name, file name and type, and its bytes as they come."""

    name: str
    filename: str | None
    media_type: str | None
    pieces: Iterator[bytes]


class _Events:
    """Collects what the push parser says about one piece of the body."""

    def __init__(self) -> None:
        self.found: list[tuple[str, bytes]] = []

    def callbacks(self) -> dict[str, Callable[..., None]]:
        def mark(kind: str) -> Callable[[], None]:
            return lambda: self.found.append((kind, b""))

        def data(kind: str) -> Callable[[bytes, int, int], None]:
            return lambda raw, start, end: self.found.append((kind, raw[start:end]))

        return {
            "on_part_begin": mark("begin"),
            "on_part_data": data("data"),
            "on_part_end": mark("end"),
            "on_header_field": data("field"),
            "on_header_value": data("value"),
            "on_header_end": mark("header"),
            "on_headers_finished": mark("ready"),
            "on_end": mark("last"),
        }

    def take(self) -> list[tuple[str, bytes]]:
        taken, self.found = self.found, []
        return taken


def boundary_of(content_type: str) -> bytes:
    """Return the boundary of a multipart content type.

    Raises:
        Invalid: it has none.
    """
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 200:  # noqa: PLR2004 - RFC 2046 allows 70; nobody needs more than this
        raise Invalid("A multipart body needs a boundary.", FieldError("#header/Content-Type", "name a boundary"))
    return boundary


def parts(content_type: str, body: Iterator[bytes]) -> Iterator[Part]:
    """Yield the parts of a multipart body as they come; each part's pieces must be read before the next part.

    Raises:
        Invalid: the body is no multipart body, or ends in the middle.
    """
    events = _events(boundary_of(content_type), body)
    for kind, _ in events:
        if kind == "begin":
            yield _part(events)


def _events(boundary: bytes, body: Iterator[bytes]) -> Iterator[tuple[str, bytes]]:
    collected = _Events()
    try:
        parser = MultipartParser(boundary, collected.callbacks())  # type: ignore[arg-type] # a typed dict of callables
        for piece in body:
            parser.write(piece)
            for event in collected.take():
                # Text after the closing boundary belongs to no part, and is not read.
                if event[0] == "last":
                    return
                yield event
        parser.finalize()
    except FormParserError as error:
        raise Invalid("The body is not a well-formed multipart body.") from error
    raise Invalid("The body is not a complete multipart body; its closing boundary is missing.") from None


def _part(events: Iterator[tuple[str, bytes]]) -> Part:
    headers: dict[str, bytes] = {}
    field, value = b"", b""
    for kind, raw in events:
        if kind == "field":
            # The parser hands out names and values in pieces where a piece of the body ends within one.
            field += raw
        elif kind == "value":
            value += raw
        elif kind == "header":
            headers[field.decode("latin-1").lower()] = value
            field, value = b"", b""
        elif kind == "ready":
            break
        if len(field) + len(value) > _MAX_HEADER_BYTES:
            raise TooLarge(f"A part's header may have {_MAX_HEADER_BYTES} bytes.", limit_bytes=_MAX_HEADER_BYTES)
    _, options = parse_options_header(headers.get("content-disposition", b""))
    filename = options.get(b"filename")
    media = parse_options_header(headers.get("content-type", b""))[0].decode("latin-1")
    return Part(
        name=options.get(b"name", b"").decode("utf-8", "replace"),
        filename=None if filename is None else filename.decode("utf-8", "replace"),
        media_type=media or None,
        pieces=_pieces(events),
    )


def _pieces(events: Iterator[tuple[str, bytes]]) -> Iterator[bytes]:
    for kind, raw in events:
        if kind == "end":
            return
        if kind == "data":
            yield raw


def read_small(part: Part, limit_bytes: int) -> bytes:
    """Return all of a part that must be small.

    Raises:
        TooLarge: it passes `limit_bytes`.
    """
    kept: list[bytes] = []
    size = 0
    for piece in part.pieces:
        size += len(piece)
        if size > limit_bytes:
            raise TooLarge(f"The part {part.name!r} may have {limit_bytes} bytes.", limit_bytes=limit_bytes)
        kept.append(piece)
    return b"".join(kept)
