"""Sites of a federated job in one process, a thread each, with the real rounds of messages between their oracles."""

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from core.base.errors import PeerLost
from core.oracle import Oracle, PrivacyFilter
from core.oracle.federation import FederatedOracle, MessageRounds, SiteFilter

T = TypeVar("T")
PATIENCE_SECONDS: Final = 60.0
Boxes = dict[tuple[int, int], "queue.Queue[bytes]"]
"""Messages on their way, by sender and receiver."""


class ThreadSites:
    """One site's place among threads."""

    def __init__(self, boxes: Boxes, place: int, size: int) -> None:
        self.place: Final = place
        self.size: Final = size
        self._boxes = boxes

    def send(self, message: bytes) -> None:
        """Send a message to every other site."""
        for receiver in range(self.size):
            if receiver != self.place:
                self._boxes[self.place, receiver].put(message)

    def receive(self, place: int) -> bytes:
        """Return the next message of another site.

        Raises:
            PeerLost: it sends nothing in time.
        """
        try:
            return self._boxes[place, self.place].get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise PeerLost from None


def fit_together(
    sites: int,
    fit: Callable[[Oracle], T],
    oracle: Callable[[int, PrivacyFilter], Oracle],
    payments: Callable[[], PrivacyFilter],
) -> T:
    """Return what the first of several sites ends with; all of them have the same.

    Args:
        sites: their number.
        fit: the method, which asks the oracle it is given.
        oracle: makes a site's own oracle, by its place and its privacy filter.
        payments: makes a site's own privacy filter.

    Raises:
        PeerLost: a site fails.
    """
    boxes: Boxes = {(one, other): queue.Queue() for one in range(sites) for other in range(sites)}

    def work(place: int) -> T:
        paying = SiteFilter(payments(), MessageRounds(ThreadSites(boxes, place, sites)))
        return fit(FederatedOracle(oracle(place, paying), paying, "trust"))

    with ThreadPoolExecutor(sites) as threads:
        first, *_ = threads.map(work, range(sites))
    return first
