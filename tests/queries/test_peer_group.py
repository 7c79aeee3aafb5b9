"""Messages between sites over a wire that anybody may reach: none is accepted without the key, and none twice."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
import torch
from torch import Tensor

from core.base.errors import PeerLost
from core.queries.sums import peer_group
from core.queries.sums.peer_group import DistributedPeerGroup
from core.queries.sums.process_group import TAG_BYTES, ProcessGroup

KEY = bytes(range(32))
SAID = (b"one", b"two", b"")


class Sent:
    """A message under way, which arrives."""

    def wait(self, patience: timedelta | None = None) -> None:
        del patience


@dataclass
class Wire:
    """A wire between two sites, in the place of gloo; all messages on it lie open, each in two pieces."""

    pieces: deque[bytes] = field(default_factory=deque)

    def isend(self, part: Tensor, place: int) -> Sent:
        del place
        self.pieces.append(part.numpy().tobytes())
        return Sent()

    def irecv(self, taken: Tensor, place: int) -> Sent:
        del place
        piece = self.pieces.popleft()
        if len(piece) != len(taken):
            raise RuntimeError("another length than was announced")
        taken.copy_(torch.frombuffer(bytearray(piece), dtype=torch.uint8))
        return Sent()

    def change(self, how: Callable[[list[bytes]], Sequence[bytes]]) -> None:
        """Put other messages in place of those under way, their lengths before them."""
        bodies = how(list(self.pieces)[1::2])
        self.pieces = deque(piece for body in bodies for piece in ((len(body) - TAG_BYTES).to_bytes(8, "big"), body))


@dataclass
class Met:
    """A client's place among two who have met: the key is all that of a group matters here."""

    rank: int
    _key: bytes = KEY
    size: int = 2
    tag = ProcessGroup.tag


def client(rank: int, key: bytes = KEY) -> DistributedPeerGroup:
    return DistributedPeerGroup(Met(rank, key), 1.0)  # type: ignore[arg-type] # a group without gloo


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire()
    monkeypatch.setattr(peer_group, "dist", made)
    return made


def test_messages_arrive_as_they_were_said(wire: Wire) -> None:
    speaker, hearer = client(0), client(1)
    for message in SAID:
        speaker.send(message)
    assert [hearer.receive(0) for _ in SAID] == list(SAID)
    assert not wire.pieces


@pytest.mark.parametrize(
    "how",
    [
        lambda bodies: [bytes([bodies[0][0] ^ 1]) + bodies[0][1:]],
        lambda bodies: [bodies[0][:-1] + bytes([bodies[0][-1] ^ 1])],
        lambda bodies: [bodies[0][1:]],
        lambda bodies: bodies[1:],
        lambda bodies: [bodies[1], bodies[0]],
    ],
    ids=["another word", "another tag", "a piece", "one left out", "in another order"],
)
def test_what_was_changed_on_its_way_ends_the_attempt(
    wire: Wire, how: Callable[[list[bytes]], Sequence[bytes]]
) -> None:
    speaker, hearer = client(0), client(1)
    for message in SAID[:2]:
        speaker.send(message)
    wire.change(how)
    with pytest.raises(PeerLost):
        hearer.receive(0)


def test_nothing_is_heard_twice(wire: Wire) -> None:
    speaker, hearer = client(0), client(1)
    speaker.send(b"one")
    wire.change(lambda bodies: bodies * 2)
    assert hearer.receive(0) == b"one"
    with pytest.raises(PeerLost):
        hearer.receive(0)


@pytest.mark.parametrize("speaker", [client(0, bytes(32)), client(1)], ids=["without the key", "the hearer itself"])
def test_nobody_speaks_for_another(wire: Wire, speaker: DistributedPeerGroup) -> None:
    """Without the key nobody does; and a site does not accept its own message back as another's."""
    speaker.send(b"one")
    assert len(wire.pieces) == 2
    with pytest.raises(PeerLost):
        client(1).receive(0)
