"""Synchronous code on an event loop: it runs in a greenlet, which steps aside while the loop waits for an answer.

The same code serves both clients so, without a thread: a thousand calls may wait at once, and a cancelled one ends.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

import anyio
import httpx

from farthing.errors import MissingExtra

try:
    import greenlet
except ImportError as absent:
    raise MissingExtra("greenlet", "AsyncClient", "async") from absent

_END: Final = object()
T = TypeVar("T")


class _Aside(greenlet.greenlet):  # type: ignore[misc] # it ships no types
    """Code that runs beside the event loop's own."""


async def beside(call: Callable[[], T]) -> T:
    """Run synchronous code whose requests are awaited here, and return what it returns."""
    aside = _Aside(call)
    # One task: its context variables are seen, and set, from inside.
    aside.gr_context = greenlet.getcurrent().gr_context
    found = aside.switch()
    while not aside.dead:
        try:
            answer = await found
        except BaseException as error:  # noqa: BLE001 - a cancelled task ends the code inside, too
            found = aside.throw(error)
        else:
            found = aside.switch(answer)
    done: T = found
    return done


async def each_beside(call: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Yield what an iterator of synchronous code yields."""
    found = await beside(call)
    try:
        while (item := await beside(lambda: next(found, _END))) is not _END:
            yield item  # type: ignore[misc] # not the end's mark
    finally:
        if hasattr(found, "close"):
            await beside(found.close)


def waited_for(call: Callable[[], Awaitable[T]]) -> T:
    """Return the answer of something that the event loop waits for; from inside `beside`.

    Raises:
        RuntimeError: it was called from elsewhere.
    """
    current = greenlet.getcurrent()
    if not isinstance(current, _Aside):
        raise RuntimeError("This belongs to an AsyncClient: await the client's own methods.")  # noqa: TRY004 - of the place, not of an argument
    answer: T = current.parent.switch(call())
    return answer


def pause(seconds: float) -> None:
    """Let the event loop go on for some seconds."""
    waited_for(lambda: anyio.sleep(seconds))


class Bridge(httpx.BaseTransport):
    """Sends the requests of a synchronous client by an asynchronous one.

    Args:
        client: its pool, proxies and certificates are used.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request as it is; the content of the answer is read when it is asked for."""
        sent = httpx.Request(
            request.method,
            request.url,
            headers=request.headers,
            stream=_Sent(request.stream),
            extensions=request.extensions,
        )
        answer = waited_for(lambda: self._client.send(sent, stream=True))
        return httpx.Response(
            answer.status_code, headers=answer.headers, stream=_Received(answer), extensions=answer.extensions
        )


class _Sent(httpx.AsyncByteStream):
    """A request's content."""

    def __init__(self, content: Any) -> None:  # noqa: ANN401 - one of httpx's two kinds of streams
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._content:
            yield piece


class _Received(httpx.SyncByteStream):
    """The content of an answer."""

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        pieces = self._answer.aiter_raw()
        while (piece := waited_for(lambda: _next(pieces))) is not None:
            yield piece

    def close(self) -> None:
        waited_for(self._answer.aclose)


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
