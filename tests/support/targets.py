"""Targets of the integration suite: the embedded service, a cluster of processes, or the compose stack.

With FARTHING_STACK_URL in the environment it is that stack and nothing else (`make test-stack` sets it); without, the
two that this machine can start by itself.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from farthing import Client
from tests.support.cluster import cluster
from tests.support.embedded import CONNECTIONS, KEY, embedded


@dataclass(frozen=True)
class Target:
    """A running service, known by its addresses and an admin key alone."""

    url: str
    replica_url: str
    """Another API process before the same database; the same one where there is one only."""
    key: str

    def client(self, key: str | None = None) -> Client:
        """Return a client of the admin, or of the holder of `key`."""
        return Client(self.url, key or self.key)

    def http(self, key: str | None = None) -> httpx.Client:
        """Return a bare HTTP client, for what the SDK would never send."""
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {key or self.key}"}, timeout=60, limits=CONNECTIONS
        )


@contextmanager
def _embedded(home: Path) -> Iterator[Target]:
    with embedded(home) as running:
        yield Target(running.url, running.url, KEY)


@contextmanager
def _cluster(home: Path) -> Iterator[Target]:
    with cluster(home, workers=1, apis=2) as running:
        first, second = running.urls
        yield Target(first, second, KEY)


@contextmanager
def _stack(home: Path) -> Iterator[Target]:
    del home
    found = {name: os.environ[f"FARTHING_STACK_{name}"] for name in ("URL", "REPLICA_URL", "KEY")}
    yield Target(found["URL"], found["REPLICA_URL"], found["KEY"])


TARGETS: Final[dict[str, Callable[[Path], AbstractContextManager[Target]]]] = (
    {"stack": _stack} if "FARTHING_STACK_URL" in os.environ else {"embedded": _embedded, "cluster": _cluster}
)
