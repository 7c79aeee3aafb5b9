"""Processes that hold one dataset between them: rank 0 leads, the others follow. Only this module has their protocol.

The leader sends followers the next task and shares tensors with them. All of them add up integers, whose total the
leader alone receives. Nothing but JSON and plain tensors goes over the wire, so a message can carry no code.

Each process proves to each other one that it has the group's key. The leader's messages carry a tag under it, fresh in
each group, and a count. Without the key nobody can ask or pose as a member. Tags encrypt nothing.

Messages go over gloo, and over NCCL for tensors on a GPU. A process gets a RuntimeError when it waits longer than its
patience or its counterpart is gone: none waits for ever.
"""

import hmac
import os
import secrets
import sys
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from core.base.errors import ensure

LEADER: Final = 0
_LOOPBACK: Final = "lo" if sys.platform == "linux" else "lo0"
_INTERFACES: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_LONGEST_TEXT: Final = 2**26
_KEY_BYTES: Final = 32
TAG_BYTES: Final = 32
_STORE_PATIENCE: Final = timedelta(seconds=30)
_CALLS: Final = "farthing/calls"
_MEETING: Final = "farthing/meeting"
_KEPT: Final[list[Any]] = []
"""Stores that this process keeps for others."""


class ProcessGroup:
    """One process's place among those of a job; one for each process.

    Args:
        device: where this process sums: the CPU, or the one GPU that is its own.
        key: 32 bytes, everybody's.

    Raises:
        PrivacyInvariantError: somebody has another key.

    Attributes:
        rank: which one this is; 0 leads.
        size: number of processes.
    """

    def __init__(self, device: torch.device, key: bytes) -> None:
        ensure(len(key) == _KEY_BYTES, "a group has a key")
        self.rank: Final = dist.get_rank()
        self.size: Final = dist.get_world_size()
        self._device = device
        self._told = 0
        # Fresh bytes of everybody are in the key: no message of an earlier group passes here.
        self._key = hmac.digest(key, b"".join(self._from_all(secrets.token_bytes(_KEY_BYTES))), sha256)
        # A tag names its rank, so that nobody passes by repeating another's.
        shown = self._from_all(self.tag(bytes([self.rank])))
        proven = (self.tag(bytes([rank])) for rank in range(self.size))
        ensure(all(map(hmac.compare_digest, shown, proven)), "everybody has the group's key")

    @property
    def leads(self) -> bool:
        """Whether this process leads."""
        return self.rank == LEADER

    def tell(self, text: str) -> None:
        """Give every follower a text; for the leader."""
        ensure(self.leads, "followers listen")
        content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        ensure(0 < len(content) <= _LONGEST_TEXT, "a message is short")
        dist.broadcast(torch.tensor([len(content)]), LEADER)
        self.share(content)

    def hear(self) -> str:
        """Return what the leader tells next; for followers."""
        ensure(not self.leads, "the leader tells")
        length = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(length, LEADER)
        ensure(0 < int(length) <= _LONGEST_TEXT, "a message is short")
        return bytes(self.share(torch.empty(int(length), dtype=torch.uint8)).tolist()).decode()

    def share(self, tensor: Tensor) -> Tensor:
        """Return the leader's tensor, on the CPU; followers give one of the same shape and type to be filled.

        Raises:
            PrivacyInvariantError: it is not the leader's, or not its next one.
        """
        shared = tensor.cpu().contiguous()
        dist.broadcast(shared, LEADER)
        self._told += 1
        tag = self.tag(self._told.to_bytes(8, "big"), shared.numpy().tobytes())
        shown = torch.frombuffer(bytearray(tag), dtype=torch.uint8)
        dist.broadcast(shown, LEADER)
        ensure(hmac.compare_digest(bytes(shown.tolist()), tag), "only the leader tells")
        return shared

    def add_up(self, total: Tensor) -> Tensor:
        """Return, to the leader, the sum of all processes' integers; the value that followers get has no meaning.

        Args:
            total: int64, of one shape everywhere. No sum of some of them may pass 63 bits.
        """
        ensure(total.dtype == torch.int64, "only integers add up to the same in any order")
        # A copy, for `reduce` writes into its tensor at followers, too.
        added = total.to(self._device, copy=True).contiguous()
        dist.reduce(added, LEADER, op=dist.ReduceOp.SUM)
        return added

    def tag(self, *parts: bytes) -> bytes:
        """Return what only this group can make of some bytes, TAG_BYTES long."""
        return hmac.digest(self._key, b"/".join(parts), sha256)

    def _from_all(self, own: bytes) -> list[bytes]:
        """Return what everybody gives, by rank; all of one length."""
        given = [torch.empty(len(own), dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(given, torch.frombuffer(bytearray(own), dtype=torch.uint8))
        return [bytes(one.tolist()) for one in given]

    def part(self) -> None:
        """Leave the group."""
        dist.destroy_process_group()


def meet(
    rank: int, size: int, place: str, *, key: bytes, patience_seconds: float, device: torch.device
) -> ProcessGroup:
    """Wait for the other processes and return this one's place in the group.

    At `file://PATH`, processes of one machine find each other by a file in a private folder that only their user can
    read. They talk over the loopback interface. Without access to the file nobody can join them. At
    `tcp://HOST:PORT/NUMBER` (see `call`), processes of any machines find each other, and what they tell goes over the
    network as it is: that network must be their own.

    Args:
        rank: which one this is.
        size: number of processes expected.
        place: where they meet.
        key: 32 bytes, everybody's.
        patience_seconds: longest wait for the others, now and for each message.
        device: where this process sums.

    Raises:
        RuntimeError: somebody did not come in time.
        PrivacyInvariantError: somebody has another key.
    """
    patience = timedelta(seconds=patience_seconds)
    scheme, where = place.split("://", 1)
    if scheme == "file":
        for name in _INTERFACES:
            os.environ[name] = _LOOPBACK
        store: Any = dist.FileStore(where, size)  # type: ignore[attr-defined] # public, but torch's stub does not say so
    else:
        address, number = where.split("/")
        store = dist.PrefixStore(f"{_MEETING}/{number}", _store(address, patience))  # type: ignore[attr-defined] # as above
    dist.init_process_group(_backend(device), store=store, rank=rank, world_size=size, timeout=patience)
    return _greeted(device, key)


def receive_at(port: int) -> int:
    """Keep the store where processes of several machines find each other, as long as this process lives.

    Another process that can reach it can keep them from meeting, and no more: they prove to each other that they have a
    key.

    Args:
        port: where to listen, on all of the machine's networks; 0: wherever is free.

    Returns:
        The port.

    Raises:
        RuntimeError: the port is taken.
    """
    store: Any = dist.TCPStore("127.0.0.1", port, is_master=True, timeout=_STORE_PATIENCE, wait_for_workers=False)  # type: ignore[attr-defined] # as above
    _KEPT.append(store)  # it ends with its last reference
    return int(store.port)


def call(address: str, size: int) -> str:
    """Call for followers where `torchrun` keeps its store, and return the place to meet them.

    Args:
        address: HOST:PORT of the store.
        size: number of processes, the caller included.
    """
    store = _store(address)
    number = store.add(_CALLS, 1)
    store.set(f"{_CALLS}/{number}", str(size))
    return f"tcp://{address}/{number}"


class Calls:
    """The calls to come, for a process that waits for them.

    Args:
        address: HOST:PORT of the store of `torchrun`.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._store = _store(address)
        self._number = self._store.add(_CALLS, 0) + 1  # adding 0 reads the count

    def next(self) -> tuple[str, int] | None:
        """Return the place and size of the next call, None while there is none."""
        key = f"{_CALLS}/{self._number}"
        if not self._store.check([key]):
            return None
        size = int(self._store.get(key))
        place = f"tcp://{self._address}/{self._number}"
        self._number += 1
        return place, size


def _store(address: str, patience: timedelta = _STORE_PATIENCE) -> Any:  # noqa: ANN401 - torch's stub hides the type
    """Return the store that `torchrun` keeps."""
    host, port = address.rsplit(":", 1)
    return dist.TCPStore(host, int(port), is_master=False, timeout=patience)  # type: ignore[attr-defined] # as above


def _backend(device: torch.device) -> str:
    """Return who carries what."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def _greeted(device: torch.device, key: bytes) -> ProcessGroup:
    """Return a group that has added up once: connections are made now, not while records are open."""
    group = ProcessGroup(device, key)
    ones = group.add_up(torch.ones(1, dtype=torch.int64))
    ensure(not group.leads or int(ones) == group.size, "everybody is here")
    return group
