"""A group of peers in one process: clients are threads, and their mail can be held, repeated and changed on its way."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from core.base.errors import PeerLost

T = TypeVar("T")
PATIENCE_SECONDS = 10.0
GONE = None
"""In the mail of a client that has ended: nothing more comes."""

Post = Callable[[bytes], Sequence[bytes]]
"""Turns a sent message into the messages that arrive."""


@dataclass
class Mail:
    """Everything that was sent, and boxes from each to each."""

    size: int
    post: Post = lambda message: [message]
    sent: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the boxes."""
        places = range(self.size)
        self.boxes: dict[tuple[int, int], queue.Queue[bytes | None]] = {
            (sender, receiver): queue.Queue() for sender in places for receiver in places
        }

    def place(self, place: int) -> "ThreadPeerGroup":
        """Return a client's place."""
        return ThreadPeerGroup(self, place)

    def sent_by(self, place: int) -> list[bytes]:
        """Return what a client has sent, in order."""
        return [message for sender, message in self.sent if sender == place]


class ThreadPeerGroup:
    """A client's place in a group of peers of threads."""

    def __init__(self, mail: Mail, place: int) -> None:
        self.place = place
        self.size = mail.size
        self._mail = mail

    def send(self, message: bytes) -> None:
        self._mail.sent.append((self.place, message))
        for receiver in range(self.size):
            if receiver != self.place:
                for copy in self._mail.post(message):
                    self._mail.boxes[self.place, receiver].put(copy)

    def receive(self, place: int) -> bytes:
        try:
            message = self._mail.boxes[place, self.place].get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise PeerLost from None
        if message is GONE:
            raise PeerLost
        return message

    def leave(self) -> None:
        """Tell the others that nothing more comes."""
        for receiver in range(self.size):
            self._mail.boxes[self.place, receiver].put(GONE)


class Clients(Generic[T]):
    """Threads, one for each site, run to their ends."""

    def __init__(self, mail: Mail, work: Callable[[ThreadPeerGroup], T]) -> None:
        self.endings: list[T | Exception] = [AssertionError("it has not ended")] * mail.size
        self._work = work
        threads = [threading.Thread(target=self._run, args=(mail.place(place),)) for place in range(mail.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run(self, peers: ThreadPeerGroup) -> None:
        try:
            self.endings[peers.place] = self._work(peers)
        except Exception as error:  # noqa: BLE001 - given to the test
            self.endings[peers.place] = error
        finally:
            peers.leave()


def together(mail: Mail, work: Callable[[ThreadPeerGroup], T]) -> list[T]:
    """Return what all clients end with; the first failure is raised."""
    endings: list[T] = []
    for ending in Clients(mail, work).endings:
        if isinstance(ending, Exception):
            raise ending
        endings.append(ending)
    return endings
