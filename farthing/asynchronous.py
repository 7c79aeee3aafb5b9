"""`AsyncClient` and its handles: each method is awaited, each property too, and lists are iterated by `async for`.

Their types stand in the stub beside this file, which `python -m tests.support.async_stub` writes.
"""

from os import environ
from types import TracebackType
from typing import Self

import httpx

from farthing.awaiting import Asynchronous, made_of
from farthing.bridging import Bridge, pause
from farthing.client import Client
from farthing.models import Model
from farthing.networks import Pretrained
from farthing.wire import Wire


@made_of(Model)
class AsyncModel(Asynchronous):
    """A released model, as `Model`: its methods and properties are awaited."""

    @property
    def id(self) -> str:
        """The model's id."""
        return str(self._inside.id)


@made_of(Pretrained)
class AsyncPretrained(Asynchronous):
    """Public weights that networks may start from, as `Pretrained`."""


@made_of(Client)
class AsyncClient(Asynchronous):
    """Talks to one Farthing service from an event loop, with the methods of `Client`.

    No thread is used, so reading a file or converting a frame holds the loop for as long as it takes. A cancelled call
    ends at once; a request that the service has stays valid.

    Args:
        url: where the service listens.
        key: an API key.
        timeout_seconds: of one request; uploads and waits take longer by themselves.

    Raises:
        MissingExtra: greenlet is not installed.
    """

    def __init__(self, url: str = "http://127.0.0.1:8000", key: str = "", timeout_seconds: float = 60.0) -> None:
        """Open a connection pool; nothing is sent yet."""
        self._http = httpx.AsyncClient(timeout=timeout_seconds)
        client = Client.__new__(Client)
        client._wire = Wire(url, key, timeout_seconds, Bridge(self._http), pause)  # noqa: SLF001 - as above
        super().__init__(client)
        self.pretrained = AsyncPretrained(Pretrained(client._wire))  # noqa: SLF001 - as above

    @property
    def url(self) -> str:
        """The address of the service."""
        return str(self._inside.url)

    @classmethod
    def from_environment(cls, url: str = "http://127.0.0.1:8000") -> Self:
        """Return a client by FARTHING_KEY, and by FARTHING_URL unless `url` says where the service listens."""
        return cls(environ.get("FARTHING_URL", url), environ.get("FARTHING_KEY", ""))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()
