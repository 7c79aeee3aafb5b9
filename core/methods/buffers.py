"""Where a method's long vectors stand: two buffers for each, written in turn, so that no step asks for new memory.

A network's iterate is millions of numbers. Allocating one more in each step takes as long as the arithmetic: the system
finds memory, zeroes it and takes it back. It also leaves holes that the next one does not fit.
"""

from collections import deque
from typing import Final

import torch
from torch import Tensor

LONG: Final = 2**12
"""Entries from which on a buffer is used again; shorter vectors are made anew."""

_SCRATCH: Final = "scratch"


class BufferPool:
    """The buffers of the vectors that one run of a method makes in each step, by name.

    A step's result stays valid until the step after the next reuses its buffer. By then a newer state has been kept,
    which no longer refers to it. Copy a vector to keep it for longer. Logs share the tensors that they keep until a
    write; torch copies such a tensor while another reference exists.
    """

    def __init__(self) -> None:
        self._made: dict[str, deque[Tensor]] = {}

    def of(self, name: str, like: Tensor) -> Tensor:
        """Return where to write the next vector of a name: where the one before the last stood, if it was as long."""
        if like.numel() < LONG:
            return torch.empty_like(like)
        made = self._made.setdefault(name, deque())
        # The newer buffer still belongs to the current state; only the older one is free.
        buffer = made.popleft() if len(made) > 1 else None
        if buffer is None or buffer.shape != like.shape:
            buffer = torch.empty_like(like)
        made.append(buffer)
        return buffer

    def scratch(self, like: Tensor) -> Tensor:
        """Return a scratch buffer that no step receives: always the same one."""
        made = self._made.setdefault(_SCRATCH, deque())
        if not made or made[0].shape != like.shape:
            made.clear()
            made.append(torch.empty_like(like))
        return made[0]
