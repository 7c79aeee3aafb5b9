"""Sites of a federated job, which exchange their noised answers: none leads, and none reads another's records.

They exchange messages, bytes that are public because of the noise in them. Messages go from each site to each over
gloo, on any device: a noised answer is on the CPU.

Each message carries a tag under the peers' common key, its sender's place and a count. Without the key nobody can forge
a message, and no message can be replayed. Tags encrypt nothing.
"""

import hmac
from collections import deque
from datetime import timedelta
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist

from core.base.errors import PeerLost, ensure
from core.queries.sums.process_group import TAG_BYTES, ProcessGroup

_LONGEST_MESSAGE: Final = 2**30
_LENGTH_BYTES: Final = 8
_UNSENT: Final = 4
"""Messages to one client that may be under way; the oldest must have gone before another follows."""


class PeerGroup(Protocol):
    """One client's place among those of a federated job."""

    @property
    def place(self) -> int:
        """Which one this is, from 0."""

    @property
    def size(self) -> int:
        """Number of peers."""

    def send(self, message: bytes) -> None:
        """Send a message to every other client.

        Raises:
            PeerLost: somebody has gone.
        """

    def receive(self, place: int) -> bytes:
        """Return the next message of another client.

        Raises:
            PeerLost: it has gone, or sends nothing in time.
        """


class Alone:
    """A group of peers of one, for a federation of one client."""

    place = 0
    size = 1

    def send(self, message: bytes) -> None:
        """Send to nobody."""

    def receive(self, place: int) -> bytes:
        """Refuse: there is nobody to hear."""
        raise AssertionError(f"there is no client {place}")


class DistributedPeerGroup:
    """A group of peers of processes that have met (see `core.queries.sums.process_group.meet`).

    Args:
        group: all of them; nobody leads here, and its rank is a place.
        patience_seconds: longest wait for a message.
    """

    def __init__(self, group: ProcessGroup, patience_seconds: float) -> None:
        self.place: Final = group.rank
        self.size: Final = group.size
        self._group = group
        self._patience = timedelta(seconds=patience_seconds)
        self._sent = 0
        self._heard = [0] * group.size
        self._under_way: deque[list[tuple[Any, torch.Tensor]]] = deque()

    def send(self, message: bytes) -> None:
        """Send a message to every other client; returns before all have it, unless many are under way.

        Raises:
            PeerLost: somebody has gone.
        """
        ensure(len(message) <= _LONGEST_MESSAGE, "a message is short")
        self._sent += 1
        body = _bytes(message + self._group.tag(*_signed(self.place, self._sent, message)))
        length = _bytes(len(message).to_bytes(_LENGTH_BYTES, "big"))
        others = [place for place in range(self.size) if place != self.place]
        try:
            # Each tensor is held until it has gone: gloo reads its memory meanwhile.
            self._under_way.append([(dist.isend(part, place), part) for place in others for part in (length, body)])
            while len(self._under_way) > _UNSENT:
                self._await_oldest()
        except RuntimeError as error:
            raise PeerLost from error

    def receive(self, place: int) -> bytes:
        """Return the next message of another client.

        Raises:
            PeerLost: the client has left, sends nothing in time, or sends too long a message or a wrong tag.
        """
        ensure(place != self.place, "nobody sends to himself")
        size = int.from_bytes(self._take(place, _LENGTH_BYTES), "big")
        # The length comes without a tag, so it is bounded before memory is taken for it.
        if size > _LONGEST_MESSAGE:
            raise PeerLost
        taken = self._take(place, size + TAG_BYTES)
        message, shown = taken[:size], taken[size:]
        self._heard[place] += 1
        if not hmac.compare_digest(shown, self._group.tag(*_signed(place, self._heard[place], message))):
            raise PeerLost
        return message

    def leave(self) -> None:
        """Leave, once all that was sent has gone.

        Raises:
            PeerLost: somebody has left before.
        """
        try:
            while self._under_way:
                self._await_oldest()
        except RuntimeError as error:
            raise PeerLost from error
        self._group.part()

    def _await_oldest(self) -> None:
        for work, _ in self._under_way.popleft():
            work.wait()

    def _take(self, place: int, size: int) -> bytes:
        """Return so many bytes from a client."""
        taken = torch.empty(size, dtype=torch.uint8)
        try:
            work = dist.irecv(taken, place)
            assert work is not None, "this process is in the group"
            work.wait(self._patience)
        except RuntimeError as error:
            raise PeerLost from error
        return taken.numpy().tobytes()


def _bytes(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _signed(place: int, count: int, message: bytes) -> tuple[bytes, ...]:
    """Return what a message's tag is about."""
    return b"peers", place.to_bytes(_LENGTH_BYTES, "big"), count.to_bytes(_LENGTH_BYTES, "big"), message
